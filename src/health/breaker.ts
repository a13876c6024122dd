/**
 * Circuit breaker: opens when attempts fail, and then lets one request at a time (the probe) test whether the endpoint
 * has recovered. If the probe is answered, the breaker closes; if it fails, the breaker opens for twice as long. Also
 * keeps the delay that a provider asked for. Pure. Hot path.
 */
import type { Cause } from './notes.ts'

/** The first span of an open breaker; it doubles with each probe that fails. */
export const OPEN_FIRST_MS = 1_000
/** With this maximum, an endpoint that works again is asked within ten seconds. */
const OPEN_MAX_MS = 8_000
/** After this time without an answer, another request may be the probe. */
export const PROBE_MS = 8_000
/** If a breaker opens again this soon after it closed, its span goes on doubling. */
const RELAPSE_MS = 10_000
/** A time before all others. Not 0: V8 is slow to change a field from whole numbers to fractions. */
export const NEVER = Number.NEGATIVE_INFINITY
/** The longest wait that a provider can ask for: a wrong header must not exclude it for days. */
const REST_MAX_MS = 3_600_000

export class Breaker {
  /** Monotonic, as all times here: it is open, and a probe is due from then on; NEVER: it is closed. */
  openUntilMs = NEVER
  cause: Cause = 'failure'
  /** How often it has opened in succession; it sets the span. */
  streak = 0
  /** A probe is on its way until then. */
  probeUntilMs = NEVER
  /** When the last probe began. */
  probeBeganMs = NEVER
  /** When it last opened or closed: attempts that began before do not count. */
  changedMs = NEVER
  /** The provider asked to wait until then. */
  restUntilMs = NEVER
  restCause: Cause = 'limit'

  get isOpen(): boolean {
    return this.openUntilMs > NEVER
  }

  /** True if it is open and the next request may be the probe. */
  isDue(nowMs: number): boolean {
    return nowMs >= this.openUntilMs && nowMs >= this.probeUntilMs
  }

  /** True if the endpoint must not be asked because of a rate limit. */
  isLimited(nowMs: number): boolean {
    return this.isOpen ? this.cause === 'limit' : this.restUntilMs > nowMs && this.restCause === 'limit'
  }

  /** Until when the endpoint must not be asked. */
  get blockedUntilMs(): number {
    return Math.max(this.openUntilMs, this.isOpen ? this.probeUntilMs : NEVER, this.restUntilMs)
  }

  /**
   * Opens it, or opens it for longer. Returns for how many milliseconds.
   * @param sinceMs when the failed attempt began, because an endpoint may take long to fail
   */
  open(nowMs: number, cause: Cause, sinceMs: number): number {
    const isRelapse = this.isOpen || nowMs - this.changedMs < RELAPSE_MS
    this.streak = isRelapse ? this.streak + 1 : 1
    const spanMs = Math.min(OPEN_MAX_MS, OPEN_FIRST_MS * 2 ** (this.streak - 1))
    const forMs = Math.max(OPEN_FIRST_MS, sinceMs + spanMs - nowMs)
    this.setOpen(nowMs, forMs, cause)
    return forMs
  }

  setOpen(nowMs: number, forMs: number, cause: Cause): void {
    this.openUntilMs = nowMs + forMs
    this.probeUntilMs = NEVER
    this.cause = cause
    this.changedMs = nowMs
  }

  setProbe(nowMs: number, forMs: number): void {
    this.probeUntilMs = nowMs + forMs
    this.probeBeganMs = nowMs
  }

  setClosed(nowMs: number): void {
    this.openUntilMs = NEVER
    this.probeUntilMs = NEVER
    this.changedMs = nowMs
  }

  /** Keeps a wait. Returns its milliseconds, which are bounded. */
  rest(nowMs: number, forMs: number, cause: Cause): number {
    const restMs = Math.min(REST_MAX_MS, forMs)
    this.restUntilMs = Math.max(this.restUntilMs, nowMs + restMs)
    this.restCause = cause
    return restMs
  }
}
