/** A per-minute limit in the form that clients see: the headers `X-RateLimit-*`. Pure. */
export interface RateStatus {
  readonly limit: number
  /** After this request. */
  readonly remaining: number
  /** Unix milliseconds at which the limit is reset. */
  readonly resetMs: number
}

/** Receives the limits for the headers of an answer. Calls after the head was sent have no effect. */
export interface RateSink {
  /** Sets the headers of a limit of the gateway. */
  setRate(kind: RateKind, status: RateStatus, nowMs: number): void
  /** Sets a provider's headers about its own limits; the gateway's headers of the same name take precedence. */
  setProviderRates(headers: Readonly<Record<string, string>>): void
}

/** The limits that apply, by their unit. */
export type RateKind = 'requests' | 'tokens'

/** Headers in the form of OpenAI, which most clients know. */
export function rateHeaders(kind: RateKind, { limit, remaining, resetMs }: RateStatus, nowMs: number) {
  return {
    [`x-ratelimit-limit-${kind}`]: String(limit),
    [`x-ratelimit-remaining-${kind}`]: String(remaining),
    [`x-ratelimit-reset-${kind}`]: durationText(Math.max(0, resetMs - nowMs)),
  }
}

/** `1s`, `6m0s`: whole seconds, rounded up. */
function durationText(ms: number): string {
  const seconds = Math.ceil(ms / 1000)
  return seconds < 60 ? `${seconds}s` : `${Math.floor(seconds / 60)}m${seconds % 60}s`
}
