/**
 * Reports completed requests to the console. Nothing is kept or sent unless somebody is watching; otherwise a request
 * costs one check of `isWatched`.
 */
import { type Clock, isoInstant } from '../../base/clock.ts'
import { roundedTimes } from '../../base/metrics/stages.ts'
import type { RequestEnd } from '../../exchange/exchange.ts'
import type { EndedRequest } from '../../protocol/ended-request.ts'

/** Often enough to look live; one message per request would cost more than its contents. */
const SEND_DELAY_MS = 250
/** Maximum number of requests in one message. People cannot follow more, and totals come from usage records. */
const MAX_REQUESTS = 200

export class ConsoleFeed {
  isWatched = false
  readonly #clock: Clock
  readonly #send: (requests: readonly EndedRequest[]) => void
  #requests: EndedRequest[] = []

  constructor(clock: Clock, send: (requests: readonly EndedRequest[]) => void) {
    this.#clock = clock
    this.#send = send
  }

  /** Adds a request of a known key. Only POST requests call models. */
  add({ line, watch, endedMs }: Pick<RequestEnd, 'line' | 'watch' | 'endedMs'>): void {
    const { organization } = line
    if (organization === undefined || line.method !== 'POST' || this.#requests.length >= MAX_REQUESTS) return
    if (this.#requests.length === 0) this.#clock.after(SEND_DELAY_MS, () => this.#flush())
    this.#requests.push({
      id: line.id,
      route: line.route,
      status: line.status,
      outcome: line.outcome,
      durationMs: line.durationMs,
      firstTokenMs: line.firstTokenMs,
      model: line.model,
      requestedModel: line.requestedModel,
      provider: line.provider,
      failedAttempts: line.failedAttempts,
      inputTokens: line.inputTokens,
      outputTokens: line.outputTokens,
      error: line.error,
      cause: line.cause,
      organization,
      workspace: line.workspace ?? null,
      endedAt: isoInstant(this.#clock.nowMs()),
      stages: roundedTimes(watch, endedMs),
    })
  }

  #flush(): void {
    const requests = this.#requests
    this.#requests = []
    if (this.isWatched) this.#send(requests)
  }
}
