/**
 * Circuit breaker: opens when attempts fail, and then lets one request at a time (the probe) test whether the endpoint
 * has recovered. If the probe is answered, the breaker closes; if it fails, the breaker opens for twice as long. Also
 * keeps the delay that a provider asked for. Pure. Hot path.
 */
import type { Cause } from './notes.ts'

/** Open time of a breaker that has just opened; it doubles with each probe that fails. */
export const OPEN_MIN_MS = 1_000
/** With this maximum, an endpoint that works again is called within ten seconds. */
const OPEN_MAX_MS = 8_000
/** After this time without a reply, another request may be the probe. */
export const PROBE_TIMEOUT_MS = 8_000
/** If a breaker opens again this soon after it closed, its open time keeps doubling. */
const RELAPSE_WINDOW_MS = 10_000
/** A time before all others. Not 0, because V8 is slow to change a field from whole numbers to fractions. */
export const NEVER_MS = Number.NEGATIVE_INFINITY
/** The longest wait that a provider can ask for: a wrong header must not exclude it for days. */
const WAIT_MAX_MS = 3_600_000

export class Breaker {
  /** Monotonic, like all times here: the breaker is open, and a probe is due from this time on; NEVER: it is closed. */
  openUntilMs = NEVER_MS
  cause: Cause = 'failure'
  /** How many times it has opened in succession; determines the open time. */
  streak = 0
  /** A probe is running until this time at the latest. */
  probeUntilMs = NEVER_MS
  /** Start of the last probe. */
  probeBeganMs = NEVER_MS
  /** Time of the last opening or closing. Attempts that began earlier do not count. */
  changedMs = NEVER_MS
  /** The provider asked the gateway to wait until this time. */
  restUntilMs = NEVER_MS
  restCause: Cause = 'limit'

  get isOpen(): boolean {
    return this.openUntilMs > NEVER_MS
  }

  /** For an open breaker: true if the next request may be the probe. */
  isDue(nowMs: number): boolean {
    return nowMs >= this.openUntilMs && nowMs >= this.probeUntilMs
  }

  /** True if the endpoint must not be called because of a rate limit. */
  isLimited(nowMs: number): boolean {
    return this.isOpen ? this.cause === 'limit' : this.restUntilMs > nowMs && this.restCause === 'limit'
  }

  /** The time until which the endpoint must not be called. */
  get blockedUntilMs(): number {
    return Math.max(this.openUntilMs, this.isOpen ? this.probeUntilMs : NEVER_MS, this.restUntilMs)
  }

  /**
   * Opens the breaker, or keeps it open for longer. Returns for how many milliseconds.
   * @param sinceMs start of the failed attempt, because an endpoint may take a long time to fail
   */
  open(nowMs: number, cause: Cause, sinceMs: number): number {
    const isRelapse = this.isOpen || nowMs - this.changedMs < RELAPSE_WINDOW_MS
    this.streak = isRelapse ? this.streak + 1 : 1
    const spanMs = Math.min(OPEN_MAX_MS, OPEN_MIN_MS * 2 ** (this.streak - 1))
    const durationMs = Math.max(OPEN_MIN_MS, sinceMs + spanMs - nowMs)
    this.setOpen(nowMs, durationMs, cause)
    return durationMs
  }

  setOpen(nowMs: number, durationMs: number, cause: Cause): void {
    this.openUntilMs = nowMs + durationMs
    this.probeUntilMs = NEVER_MS
    this.cause = cause
    this.changedMs = nowMs
  }

  setProbe(nowMs: number, durationMs: number): void {
    this.probeUntilMs = nowMs + durationMs
    this.probeBeganMs = nowMs
  }

  setClosed(nowMs: number): void {
    this.openUntilMs = NEVER_MS
    this.probeUntilMs = NEVER_MS
    this.changedMs = nowMs
  }

  /** Records a wait that the provider asked for. Returns its milliseconds, which are bounded. */
  rest(nowMs: number, durationMs: number, cause: Cause): number {
    const restMs = Math.min(WAIT_MAX_MS, durationMs)
    this.restUntilMs = Math.max(this.restUntilMs, nowMs + restMs)
    this.restCause = cause
    return restMs
  }
}
