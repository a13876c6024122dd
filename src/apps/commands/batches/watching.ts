/**
 * Follows a batch to its end: polls at a rate that suits its progress, waits when the gateway asks it to, and survives
 * a restart of the gateway. Independent of any terminal.
 */
import type { Clock } from '../../../base/clock.ts'
import { CommandError } from '../command.ts'
import { GatewayFault } from '../gateway-client.ts'
import type { BatchWithResults } from './reading.ts'
import type { BatchView } from './view.ts'

/** The gateway does not answer, or has reached the request limit of the key. */
type Trouble = 'no answer' | 'must wait'

/** The state of a batch at one moment. */
export interface BatchMoment {
  readonly batch: BatchView
  /** Requests per second, smoothed; null: unknown. */
  readonly rate: number | null
  /** Estimated end on the monotonic clock; null: unknown. */
  readonly endsAtMs: number | null
  /** The reason why there is no new state, in two words; null: the state is new. */
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
  readonly read: (onResults: (batch: BatchView) => void) => Promise<BatchWithResults>
  readonly display: BatchDisplay
  /** Its timers keep the process alive. */
  readonly clock: Clock
  readonly signal: AbortSignal
}

/** Limits of the polling interval: a short batch is updated often, a long one costs little. */
const POLL_INTERVAL_MS = { min: 1_000, max: 10_000 } as const
/** The interval is the remaining time divided by this, within those limits. */
const POLLS_PER_BATCH = 50
/** Factors by which the interval grows while nothing changes, or the gateway does not answer. */
const INTERVAL_GROWTH = { quiet: 1.5, away: 2 } as const
const MAX_AWAY_INTERVAL_MS = 30_000

/** Resolves with the batch when it has ended. @throws CommandError, or the reason of the abort */
export async function watchBatch(deps: WatchDeps): Promise<BatchWithResults> {
  const { clock, signal, display } = deps
  const poller = new BatchPoller(deps)
  try {
    for (;;) {
      const pauseMs = await poller.poll()
      if (poller.latest?.batch.isTerminal === true) return poller.latest
      await pause(pauseMs, clock, signal)
    }
  } finally {
    display.end()
  }
}

/** Polls the gateway, one request after the other. */
class BatchPoller {
  readonly #deps: WatchDeps
  readonly #pace = new Pace()
  #last: BatchWithResults | null = null
  #trouble: Trouble | null = null
  #quietMs: number = POLL_INTERVAL_MS.min
  #awayMs: number = POLL_INTERVAL_MS.min

  constructor(deps: WatchDeps) {
    this.#deps = deps
  }

  /** The latest answer. */
  get latest(): BatchWithResults | null {
    return this.#last
  }

  /** Resolves to the milliseconds until the next request. @throws like `watchBatch` */
  async poll(): Promise<number> {
    try {
      return this.#onAnswer(await this.#deps.read(batch => this.#show(batch)))
    } catch (error) {
      this.#deps.signal.throwIfAborted()
      // A failure of the first request probably means a wrong address.
      if (this.#last === null || !(error instanceof GatewayFault)) throw error
      if (error.status === 404)
        throw new CommandError(`${this.#deps.id} was deleted while it was being watched`)
      if (!error.isTemporary) throw error
      return this.#onFault(error, this.#last.batch)
    }
  }

  #onAnswer(state: BatchWithResults): number {
    const { batch } = state
    const before = this.#last?.batch
    const isNew = before === undefined || before.status !== batch.status || endedOf(before) !== endedOf(batch)
    this.#last = state
    this.#awayMs = POLL_INTERVAL_MS.min
    this.#quietMs = isNew
      ? POLL_INTERVAL_MS.min
      : Math.min(POLL_INTERVAL_MS.max, this.#quietMs * INTERVAL_GROWTH.quiet)
    this.#show(batch)
    return Math.max(this.#quietMs, pauseFor(this.#pace.remainingMs(batch.total)))
  }

  #onFault(fault: GatewayFault, batch: BatchView): number {
    const trouble = fault.status === 429 ? 'must wait' : 'no answer'
    if (trouble !== this.#trouble) this.#deps.display.note(noteOf(trouble, fault))
    this.#trouble = trouble
    this.#deps.display.show(this.#momentOf(batch))
    const waitMs = fault.retryAfterMs ?? this.#awayMs
    this.#awayMs = Math.min(MAX_AWAY_INTERVAL_MS, this.#awayMs * INTERVAL_GROWTH.away)
    return waitMs
  }

  #show(batch: BatchView): void {
    this.#pace.note(endedOf(batch), this.#deps.clock.monotonicMs())
    if (this.#trouble === 'no answer') this.#deps.display.note('the gateway is answering again')
    this.#trouble = null
    this.#deps.display.show(this.#momentOf(batch))
  }

  #momentOf(batch: BatchView): BatchMoment {
    const remainingMs = batch.isTerminal ? null : this.#pace.remainingMs(batch.total)
    return {
      batch,
      rate: this.#pace.perSecond,
      endsAtMs: remainingMs === null ? null : this.#deps.clock.monotonicMs() + remainingMs,
      trouble: this.#trouble,
    }
  }
}

function endedOf({ completed, failed }: BatchView): number {
  return completed + failed
}

function noteOf(trouble: Trouble, { reason }: GatewayFault): string {
  return trouble === 'must wait'
    ? `the gateway limits the requests of this key (${reason}); continuing more slowly`
    : `the gateway is not answering (${reason}); it keeps the batch, and watching continues when it is back`
}

function pauseFor(remainingMs: number | null): number {
  return remainingMs === null
    ? POLL_INTERVAL_MS.min
    : Math.min(POLL_INTERVAL_MS.max, Math.max(POLL_INTERVAL_MS.min, remainingMs / POLLS_PER_BATCH))
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
    const currentPerMs = Math.max(0, done - last.done) / spentMs
    const share = 1 - Math.exp(-spentMs / SMOOTHING_MS)
    // There is no speed before the first request has ended.
    if (this.#perMs !== null) this.#perMs += share * (currentPerMs - this.#perMs)
    else if (currentPerMs > 0) this.#perMs = currentPerMs
    this.#last = { done, atMs }
  }

  get perSecond(): number | null {
    return this.#perMs === null ? null : this.#perMs * 1000
  }

  /** Time until all requests are done; null: there is no progress. */
  remainingMs(total: number): number | null {
    if (this.#last === null || this.#perMs === null) return null
    const remaining = Math.max(0, total - this.#last.done)
    if (remaining === 0) return 0
    return this.#perMs * MAX_MS_PER_REQUEST < 1 ? null : remaining / this.#perMs
  }
}

/** A speed below one request in this time counts as no progress. */
const MAX_MS_PER_REQUEST = 3_600_000
