/** Debug output that a caller requests (`debug`): bodies sent to providers, and attempt times. Hot path. */
import type { Clock } from '../../base/clock.ts'
import type { Exchange } from '../../exchange/exchange.ts'
import type { DebugFacts } from '../../protocol/events.ts'
import type { DebugReport, DebugTimings } from '../../protocol/response.ts'

/**
 * Maximum number of times for one request: more than its attempts need, unless tools call the model again and again.
 */
const MAX_TIMINGS = 256

/** Collects the debug facts of one exchange. */
export class DebugNotes {
  /** Bodies for providers, one for each attempt of the first turn. */
  readonly bodies: Readonly<Record<string, unknown>>[] = []
  /** Null if they were not requested. */
  readonly #timings: DebugTimings[] | null
  #sentCount = 0

  constructor({ request }: Pick<Exchange, 'request'>) {
    this.#timings = request.debug?.timings === true ? [] : null
  }

  /** Notes an event that happened now. */
  note(event: DebugTimings['event'], clock: Clock, startedMs: number): void {
    if (this.#timings === null || this.#timings.length === MAX_TIMINGS) return
    const start_ms = Math.round((clock.monotonicMs() - startedMs) * 1000) / 1000
    this.#timings.push({ epoch_ms: clock.nowMs(), event, start_ms })
  }

  /** For the beginning of a stream: bodies, and times so far. */
  opening(): readonly DebugFacts[] {
    const bodies = this.bodies.map((body): DebugFacts => ({ echo_upstream_body: { ...body } }))
    // All of them, because an opening that was dropped with its draft never reached the client.
    this.#sentCount = 0
    return [...bodies, ...this.unsentTimings()]
  }

  /** Returns the timings that were not sent yet, and counts them as sent. */
  unsentTimings(): readonly DebugFacts[] {
    const unsentTimings = this.#timings?.slice(this.#sentCount) ?? []
    this.#sentCount += unsentTimings.length
    return unsentTimings.map(timings => ({ timings }))
  }

  /**
   * For a whole reply. The body sent to the provider is included only in batch results. Undefined if there is nothing
   * to report.
   */
  report(isBatched: boolean): DebugReport | undefined {
    const body = isBatched ? this.bodies.at(-1) : undefined
    if (body === undefined && this.#timings === null) return undefined
    return {
      ...(body === undefined ? undefined : { echo_upstream_body: body }),
      ...(this.#timings === null ? undefined : { timings: this.#timings }),
    }
  }
}
