/**
 * Follows a batch to its end: polls at a rate that suits its progress, waits when the gateway asks it to, and survives
 * a restart of the gateway. Independent of any terminal.
 */
import type { Clock } from '../../../base/clock.ts'
import { CommandError } from '../command.ts'
import { GatewayFault } from '../gateway-client.ts'
import type { SeenBatch } from './reading.ts'
import type { BatchView } from './view.ts'

/** The gateway does not answer, or limits the requests of the key. */
type Trouble = 'no answer' | 'must wait'

/** A batch at one moment. */
export interface BatchMoment {
  readonly batch: BatchView
  /** Requests per second, smoothed; null: nothing is known yet. */
  readonly rate: number | null
  /** When it may be done, on the monotonic clock; null: nobody can tell. */
  readonly doneAtMs: number | null
  /** Why there is no news, in two words; null: there is. */
  readonly trouble: Trouble | null
}

/** Shows how a batch goes on. */
export interface BatchDisplay {
  show(moment: BatchMoment): void
  /** Tells something beside the figures. */
  note(text: string): void
  end(): void
}

interface WatchDeps {
  readonly id: string
  /**
   * @param onResults called once when results begin to arrive, which may take long
   * @throws GatewayFault, CommandError, or the reason of the abort
   */
  readonly read: (onResults: (batch: BatchView) => void) => Promise<SeenBatch>
  readonly display: BatchDisplay
  /** Its timers keep the process alive. */
  readonly clock: Clock
  readonly signal: AbortSignal
}

/** Between two questions: a short batch is seen at work, a long one costs little. */
const ASK_MS = { min: 1_000, max: 10_000 } as const
/** A batch is asked for about so many times until it is done. */
const ASKS = 50
/** While nothing changes, or the gateway does not answer, the pause grows by this. */
const GROWTH = { quiet: 1.5, away: 2 } as const
const AWAY_MAX_MS = 30_000

/** Resolves with the batch when it has ended. @throws CommandError, or the reason of the abort */
export async function watchBatch(deps: WatchDeps): Promise<SeenBatch> {
  const { clock, signal, display } = deps
  const questions = new Questions(deps)
  try {
    for (;;) {
      const pauseMs = await questions.ask()
      if (questions.seen?.batch.isTerminal === true) return questions.seen
      await pause(pauseMs, clock, signal)
    }
  } finally {
    display.end()
  }
}

/** The questions to the gateway, one after the other. */
class Questions {
  readonly #deps: WatchDeps
  readonly #pace = new Pace()
  #last: SeenBatch | null = null
  #trouble: Trouble | null = null
  #quietMs: number = ASK_MS.min
  #awayMs: number = ASK_MS.min

  constructor(deps: WatchDeps) {
    this.#deps = deps
  }

  /** The last answer. */
  get seen(): SeenBatch | null {
    return this.#last
  }

  /** Resolves to the milliseconds until the next question. @throws as `watchBatch` */
  async ask(): Promise<number> {
    try {
      return this.#answered(await this.#deps.read(batch => this.#show(batch)))
    } catch (error) {
      this.#deps.signal.throwIfAborted()
      // At the beginning it is more likely that the address is wrong.
      if (this.#last === null || !(error instanceof GatewayFault)) throw error
      if (error.status === 404)
        throw new CommandError(`${this.#deps.id} was deleted while it was being watched`)
      if (!error.passes) throw error
      return this.#refused(error, this.#last.batch)
    }
  }

  #answered(seen: SeenBatch): number {
    const { batch } = seen
    const before = this.#last?.batch
    const isNew = before === undefined || before.status !== batch.status || doneOf(before) !== doneOf(batch)
    this.#last = seen
    this.#awayMs = ASK_MS.min
    this.#quietMs = isNew ? ASK_MS.min : Math.min(ASK_MS.max, this.#quietMs * GROWTH.quiet)
    this.#show(batch)
    return Math.max(this.#quietMs, pauseFor(this.#pace.leftMs(batch.total)))
  }

  #refused(fault: GatewayFault, batch: BatchView): number {
    const trouble = fault.status === 429 ? 'must wait' : 'no answer'
    if (trouble !== this.#trouble) this.#deps.display.note(noteOf(trouble, fault))
    this.#trouble = trouble
    this.#deps.display.show(this.#moment(batch))
    const waitMs = fault.retryAfterMs ?? this.#awayMs
    this.#awayMs = Math.min(AWAY_MAX_MS, this.#awayMs * GROWTH.away)
    return waitMs
  }

  #show(batch: BatchView): void {
    this.#pace.note(doneOf(batch), this.#deps.clock.monotonicMs())
    if (this.#trouble === 'no answer') this.#deps.display.note('the gateway is answering again')
    this.#trouble = null
    this.#deps.display.show(this.#moment(batch))
  }

  #moment(batch: BatchView): BatchMoment {
    const leftMs = batch.isTerminal ? null : this.#pace.leftMs(batch.total)
    return {
      batch,
      rate: this.#pace.perSecond,
      doneAtMs: leftMs === null ? null : this.#deps.clock.monotonicMs() + leftMs,
      trouble: this.#trouble,
    }
  }
}

function doneOf({ completed, failed }: BatchView): number {
  return completed + failed
}

function noteOf(trouble: Trouble, { reason }: GatewayFault): string {
  return trouble === 'must wait'
    ? `the gateway limits the requests of this key (${reason}); continuing more slowly`
    : `the gateway is not answering (${reason}); it keeps the batch, and watching continues when it is back`
}

function pauseFor(leftMs: number | null): number {
  return leftMs === null ? ASK_MS.min : Math.min(ASK_MS.max, Math.max(ASK_MS.min, leftMs / ASKS))
}

function pause(ms: number, clock: Clock, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const abort = () => {
      timer.cancel()
      reject(signal.reason)
    }
    const timer = clock.after(ms, () => {
      signal.removeEventListener('abort', abort)
      resolve()
    })
    signal.addEventListener('abort', abort, { once: true })
    if (signal.aborted) abort()
  })
}

/** Older figures count less and less: after this time, a third. */
const SMOOTHING_MS = 15_000

/** How fast a batch goes, over about the last quarter of a minute. Pure. */
export class Pace {
  #last: { readonly done: number; readonly atMs: number } | null = null
  #perMs: number | null = null

  /** @param atMs monotonic */
  note(done: number, atMs: number): void {
    const last = this.#last
    if (last === null) {
      this.#last = { done, atMs }
      return
    }
    const spentMs = atMs - last.atMs
    if (spentMs <= 0) return
    const now = Math.max(0, done - last.done) / spentMs
    const share = 1 - Math.exp(-spentMs / SMOOTHING_MS)
    // Before the first one has ended there is no pace.
    if (this.#perMs !== null) this.#perMs += share * (now - this.#perMs)
    else if (now > 0) this.#perMs = now
    this.#last = { done, atMs }
  }

  get perSecond(): number | null {
    return this.#perMs === null ? null : this.#perMs * 1000
  }

  /** Time until all are done; null: nothing goes on. */
  leftMs(total: number): number | null {
    if (this.#last === null || this.#perMs === null) return null
    const left = Math.max(0, total - this.#last.done)
    if (left === 0) return 0
    return this.#perMs * SLOWEST_MS < 1 ? null : left / this.#perMs
  }
}

/** Slower than one request in this time is standing still. */
const SLOWEST_MS = 3_600_000
