/**
 * Follows a batch to its end: polls at a rate that suits its progress, waits when the gateway asks it to, and survives
 * a restart of the gateway. Independent of any terminal.
 */
import type { Clock } from '../../../base/clock.ts'
import { CommandError } from '../command.ts'
import { GatewayFault } from '../gateway-client.ts'
import type { SeenBatch } from './reading.ts'
import type { BatchView } from './view.ts'

/** The gateway does not answer, or has reached the request limit of the key. */
type Trouble = 'no answer' | 'must wait'

/** The state of a batch at one moment. */
export interface BatchMoment {
  readonly batch: BatchView
  /** Requests per second, smoothed; null: unknown. */
  readonly rate: number | null
  /** Estimated end on the monotonic clock; null: unknown. */
  readonly doneAtMs: number | null
  /** The reason why there is no new state, in two words; null: there is one. */
  readonly trouble: Trouble | null
}

/** Shows the progress of a batch. */
export interface BatchDisplay {
  show(moment: BatchMoment): void
  /** Shows an additional message. */
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

/** Limits of the polling interval: a short batch is updated often, a long one costs little. */
const ASK_MS = { min: 1_000, max: 10_000 } as const
/** A batch is polled about this many times until it ends. */
const ASKS = 50
/** Factors by which the interval grows while nothing changes, or the gateway does not answer. */
const GROWTH = { quiet: 1.5, away: 2 } as const
const AWAY_MAX_MS = 30_000

/** Resolves with the batch when it has ended. @throws CommandError, or the reason of the abort */
export async function watchBatch(deps: WatchDeps): Promise<SeenBatch> {
  const { clock, signal, display } = deps
  const questions = new Questions(deps)
  try {
    for (;;) {
      const pauseMs = await questions.ask()
      if (questions.latest?.batch.isTerminal === true) return questions.latest
      await pause(pauseMs, clock, signal)
    }
  } finally {
    display.end()
  }
}

/** Polls the gateway, one request after the other. */
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

  /** The latest answer. */
  get latest(): SeenBatch | null {
    return this.#last
  }

  /** Resolves to the milliseconds until the next request. @throws like `watchBatch` */
  async ask(): Promise<number> {
    try {
      return this.#onAnswer(await this.#deps.read(batch => this.#show(batch)))
    } catch (error) {
      this.#deps.signal.throwIfAborted()
      // A failure of the first request probably means a wrong address.
      if (this.#last === null || !(error instanceof GatewayFault)) throw error
      if (error.status === 404)
        throw new CommandError(`${this.#deps.id} was deleted while it was being watched`)
      if (!error.passes) throw error
      return this.#onFault(error, this.#last.batch)
    }
  }

  #onAnswer(state: SeenBatch): number {
    const { batch } = state
    const before = this.#last?.batch
    const isNew = before === undefined || before.status !== batch.status || doneOf(before) !== doneOf(batch)
    this.#last = state
    this.#awayMs = ASK_MS.min
    this.#quietMs = isNew ? ASK_MS.min : Math.min(ASK_MS.max, this.#quietMs * GROWTH.quiet)
    this.#show(batch)
    return Math.max(this.#quietMs, pauseFor(this.#pace.leftMs(batch.total)))
  }

  #onFault(fault: GatewayFault, batch: BatchView): number {
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

/** Older measurements count less and less: after this time, a third. */
const SMOOTHING_MS = 15_000

/** The speed of a batch over about the last 15 seconds. Pure. */
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
    // There is no speed before the first request has ended.
    if (this.#perMs !== null) this.#perMs += share * (now - this.#perMs)
    else if (now > 0) this.#perMs = now
    this.#last = { done, atMs }
  }

  get perSecond(): number | null {
    return this.#perMs === null ? null : this.#perMs * 1000
  }

  /** Time until all requests are done; null: there is no progress. */
  leftMs(total: number): number | null {
    if (this.#last === null || this.#perMs === null) return null
    const remaining = Math.max(0, total - this.#last.done)
    if (remaining === 0) return 0
    return this.#perMs * SLOWEST_MS < 1 ? null : remaining / this.#perMs
  }
}

/** A speed below one request in this time counts as no progress. */
const SLOWEST_MS = 3_600_000
