/**
 * State of one endpoint in one thread: its circuit breaker, the wait that its provider asked for, and its counts.
 * Changes nothing but its own fields. Hot path.
 *
 * The breaker opens when attempts mostly fail. Then the endpoint is not asked for a while, except by one request at a
 * time, the probe. If the probe is answered, the breaker closes; if it fails, the breaker opens for twice as long.
 */

import { CallWindow } from './call-window.ts'
import { FigureWindows } from './endpoint-figures.ts'
import type { BreakerEvent, Cause, HealthNote } from './notes.ts'
import { SAMPLES_MAX } from './notes.ts'
import { OutcomeWindow } from './outcome-window.ts'
import { RecentValues } from './recent-values.ts'

/** How an endpoint may be used, the best first. */
export const STEADY = 0
/** It may be asked, but others first: 5 to 20 % of its attempts fail. */
export const SHAKY = 1
/** More than 20 % of its attempts fail. */
export const FAILING = 2
/** Its breaker is open, and one request may find out whether it works again. */
export const PROBE_DUE = 3
/** It must not be asked. */
export const BLOCKED = 4
export type Standing = typeof STEADY | typeof SHAKY | typeof FAILING | typeof PROBE_DUE | typeof BLOCKED

/** Fewer attempts are not enough to judge by the share of failures. */
const UPTIME_MIN = 100
const UPTIME_STEADY = 0.95
const UPTIME_SHAKY = 0.8

/** The first span of an open breaker; it doubles with each probe that fails. */
const OPEN_FIRST_MS = 1_000
/** With this maximum, an endpoint that works again is asked within ten seconds. */
const OPEN_MAX_MS = 8_000
/** After this time without an answer, another request may be the probe. */
const PROBE_MS = 8_000
/** If a breaker opens again this soon after it closed, its span goes on doubling. */
const RELAPSE_MS = 10_000
/** A time before all others. Not 0: V8 is slow to change a field from whole numbers to fractions. */
const NEVER = Number.NEGATIVE_INFINITY
/** The longest wait that a provider can ask for: a wrong header must not exclude it for days. */
const REST_MAX_MS = 3_600_000

export class EndpointState {
  readonly key: string
  /** Slug of its provider, for metrics. */
  readonly provider: string
  /** Monotonic, as all times here: the breaker is open, and a probe is due from then on; NEVER: it is closed. */
  openUntilMs = NEVER
  cause: Cause = 'failure'
  /** How often the breaker has opened in succession; it sets the span. */
  streak = 0
  /** A probe is on its way until then. */
  probeUntilMs = NEVER
  /** When the last probe began. */
  probeBeganMs = NEVER
  /** Failures since the last success, and refusals by a rate limit since then. */
  failedInRow = 0
  limitedInRow = 0
  /** The provider asked to wait until then. */
  restUntilMs = NEVER
  restCause: Cause = 'limit'
  /** When the breaker last opened or closed: attempts that began before do not count. */
  changedMs = NEVER
  window: OutcomeWindow | null = null
  latency: RecentValues | null = null
  throughput: RecentValues | null = null
  /** Its replies with tool calls; null: none was seen. */
  calls: CallWindow | null = null
  /** Over a longer time, for listings; null: nothing was seen. */
  figures: FigureWindows | null = null
  /** True: the table of the thread has dropped it. */
  isForgotten = false
  /** True: it is in the list of states with unsent notes. */
  isListed = false
  /** The part that other threads were not sent yet; null: nothing. */
  #unsent: UnsentNote | null = null

  constructor(key: string, provider: string) {
    this.key = key
    this.provider = provider
  }

  get isOpen(): boolean {
    return this.openUntilMs > NEVER
  }

  standing(nowMs: number): Standing {
    if (this.restUntilMs > nowMs) return BLOCKED
    if (this.openUntilMs > NEVER) {
      return nowMs >= this.openUntilMs && nowMs >= this.probeUntilMs ? PROBE_DUE : BLOCKED
    }
    const { window } = this
    if (window === null || window.failed <= 0) return STEADY
    window.advance(nowMs)
    const { ok, failed } = window
    const total = ok + failed
    if (failed <= 0 || total < UPTIME_MIN || ok >= total * UPTIME_STEADY) return STEADY
    return ok >= total * UPTIME_SHAKY ? SHAKY : FAILING
  }

  /** True if it must not be asked because of its rate limit. */
  isLimited(nowMs: number): boolean {
    return this.openUntilMs > NEVER
      ? this.cause === 'limit'
      : this.restUntilMs > nowMs && this.restCause === 'limit'
  }

  /** The share of attempts that succeeded in the last 30 s; 1 without any. */
  uptime(nowMs: number): number {
    const { window } = this
    if (window === null) return 1
    window.advance(nowMs)
    const total = window.ok + window.failed
    return total <= 0 ? 1 : window.ok / total
  }

  /** Milliseconds until it may be asked; 0: now. */
  waitMs(nowMs: number): number {
    const until = this.isOpen ? Math.max(this.openUntilMs, this.probeUntilMs) : NEVER
    return Math.max(0, Math.max(until, this.restUntilMs) - nowMs)
  }

  /** Claims the probe. */
  probe(nowMs: number): void {
    this.#setProbe(nowMs, PROBE_MS)
    this.#tell({ kind: 'probe', forMs: PROBE_MS })
  }

  count(nowMs: number, ok: number, failed: number, limited: number): void {
    this.#add(nowMs, ok, failed, limited)
    const unsent = this.#note()
    unsent.ok += ok
    unsent.failed += failed
    unsent.limited += limited
  }

  /** Opens the breaker if attempts mostly fail, or are mostly refused by a rate limit. True if it opened. */
  judge(nowMs: number, least: number): boolean {
    const { window } = this
    if (window === null || this.openUntilMs > NEVER) return false
    window.advance(nowMs)
    const { ok, failed, limited } = window
    // In a row: otherwise an outage would open the breaker only after as many failures as there were successes.
    if (failed >= least && (failed > ok || this.failedInRow >= least)) this.open(nowMs, 'failure')
    else if (limited >= least && (limited > ok || this.limitedInRow >= least)) this.open(nowMs, 'limit')
    return this.openUntilMs > NEVER
  }

  /** @param sinceMs when the failed attempt began, because an endpoint may take long to fail */
  open(nowMs: number, cause: Cause, sinceMs = nowMs): void {
    const isRelapse = this.openUntilMs > NEVER || nowMs - this.changedMs < RELAPSE_MS
    this.streak = isRelapse ? this.streak + 1 : 1
    const spanMs = Math.min(OPEN_MAX_MS, OPEN_FIRST_MS * 2 ** (this.streak - 1))
    const forMs = Math.max(OPEN_FIRST_MS, sinceMs + spanMs - nowMs)
    this.#setOpen(nowMs, forMs, cause)
    this.#tell({ kind: 'open', forMs, streak: this.streak, cause })
  }

  /** Opens the breaker for longer, because the probe that began at `beganMs` has failed. False: it does not count. */
  failProbe(nowMs: number, beganMs: number, cause: Cause): boolean {
    // A later probe is running; its outcome is newer.
    if (this.openUntilMs === NEVER || this.probeBeganMs > beganMs) return false
    this.open(nowMs, cause, beganMs)
    return true
  }

  close(nowMs: number): void {
    this.#setClosed(nowMs)
    this.#tell({ kind: 'closed' })
  }

  /** The probe ended without a verdict about the endpoint: another request may be the probe. */
  unprobe(): void {
    this.probeUntilMs = NEVER
    this.#tell({ kind: 'unproved' })
  }

  rest(nowMs: number, forMs: number, cause: Cause): void {
    const restMs = Math.min(REST_MAX_MS, forMs)
    this.restUntilMs = Math.max(this.restUntilMs, nowMs + restMs)
    this.restCause = cause
    const unsent = this.#note()
    unsent.restCause = cause
    unsent.restMs = Math.max(unsent.restMs, restMs)
    unsent.isUrgent = true
  }

  measure(nowMs: number, latencyMs: number | null, tokensPerSecond: number | null): void {
    const unsent = this.#note()
    if (latencyMs !== null) {
      this.#addLatency(nowMs, latencyMs)
      if (unsent.latencies.length < SAMPLES_MAX) unsent.latencies.push(latencyMs)
    }
    if (tokensPerSecond !== null) {
      this.#addThroughput(nowMs, tokensPerSecond)
      if (unsent.throughputs.length < SAMPLES_MAX) unsent.throughputs.push(tokensPerSecond)
    }
  }

  /** Counts replies with tool calls. */
  called(nowMs: number, good: number, faulty: number): void {
    this.#addCalls(nowMs, good, faulty)
    const unsent = this.#note()
    unsent.goodCalls += good
    unsent.faultyCalls += faulty
  }

  /** Adds a note of another thread. */
  apply(nowMs: number, note: HealthNote): void {
    const { goodCalls, faultyCalls } = note
    const { ok, failed, limited, events, restMs, restCause, latencies, throughputs } = note
    // A breaker that closes forgets what was counted before.
    for (const event of events) this.#follow(nowMs, event)
    if (ok !== 0 || failed !== 0 || limited !== 0) this.#add(nowMs, ok, failed, limited)
    if (restMs > 0) {
      this.restUntilMs = Math.max(this.restUntilMs, nowMs + restMs)
      this.restCause = restCause
    }
    if (goodCalls + faultyCalls > 0) this.#addCalls(nowMs, goodCalls, faultyCalls)
    for (const value of latencies) this.#addLatency(nowMs, value)
    for (const value of throughputs) this.#addThroughput(nowMs, value)
  }

  /** The note for a thread that starts now; null: nothing to tell. It has no values of latency. */
  snapshot(nowMs: number): HealthNote | null {
    this.window?.advance(nowMs)
    const { ok = 0, failed = 0, limited = 0 } = this.window ?? {}
    const events: BreakerEvent[] = []
    if (this.openUntilMs > NEVER) {
      const forMs = Math.max(0, this.openUntilMs - nowMs)
      events.push({ kind: 'open', forMs, streak: this.streak, cause: this.cause })
      if (this.probeUntilMs > nowMs) events.push({ kind: 'probe', forMs: this.probeUntilMs - nowMs })
    }
    const restMs = Math.max(0, this.restUntilMs - nowMs)
    if (ok + failed + limited === 0 && events.length === 0 && restMs === 0) return null
    const { key, restCause } = this
    const spans = { events, restMs, restCause, latencies: [], throughputs: [] }
    return { key, ok, failed, limited, goodCalls: 0, faultyCalls: 0, ...spans }
  }

  /** True if the unsent note must be sent at once. */
  get isUrgent(): boolean {
    return this.#unsent?.isUrgent === true
  }

  /** Returns the unsent note and clears it; null: there is none. */
  takeUnsent(): HealthNote | null {
    const unsent = this.#unsent
    this.#unsent = null
    this.isListed = false
    if (unsent === null) return null
    const { isUrgent: _urgent, ...note } = unsent
    return { key: this.key, ...note }
  }

  #follow(nowMs: number, event: BreakerEvent): void {
    switch (event.kind) {
      case 'open':
        this.streak = event.streak
        this.#setOpen(nowMs, event.forMs, event.cause)
        break
      case 'probe':
        this.#setProbe(nowMs, event.forMs)
        break
      case 'unproved':
        this.probeUntilMs = NEVER
        break
      case 'closed':
        this.#setClosed(nowMs)
        break
    }
  }

  #add(nowMs: number, ok: number, failed: number, limited: number): void {
    this.window ??= new OutcomeWindow(nowMs)
    this.window.add(nowMs, ok, failed, limited)
    this.figures ??= new FigureWindows()
    this.figures.count(nowMs, ok, failed)
    this.failedInRow = ok > 0 ? 0 : this.failedInRow + failed
    this.limitedInRow = ok > 0 ? 0 : this.limitedInRow + limited
  }

  #addCalls(nowMs: number, good: number, faulty: number): void {
    this.calls ??= new CallWindow(nowMs)
    this.calls.add(nowMs, good, faulty)
  }

  #addLatency(nowMs: number, ms: number): void {
    this.latency ??= new RecentValues()
    this.latency.add(nowMs, ms)
    this.figures?.latency(nowMs, ms)
  }

  #addThroughput(nowMs: number, tokensPerSecond: number): void {
    this.throughput ??= new RecentValues()
    this.throughput.add(nowMs, tokensPerSecond)
    this.figures?.throughput(nowMs, tokensPerSecond)
  }

  #setProbe(nowMs: number, forMs: number): void {
    this.probeUntilMs = nowMs + forMs
    this.probeBeganMs = nowMs
  }

  #setOpen(nowMs: number, forMs: number, cause: Cause): void {
    this.openUntilMs = nowMs + forMs
    this.probeUntilMs = NEVER
    this.cause = cause
    this.changedMs = nowMs
  }

  #setClosed(nowMs: number): void {
    this.openUntilMs = NEVER
    this.probeUntilMs = NEVER
    this.changedMs = nowMs
    // Failures from before do not count any more.
    this.window?.clear()
    this.failedInRow = 0
    this.limitedInRow = 0
  }

  #tell(event: BreakerEvent): void {
    const unsent = this.#note()
    unsent.events.push(event)
    unsent.isUrgent = true
  }

  #note(): UnsentNote {
    this.#unsent ??= {
      ok: 0,
      failed: 0,
      limited: 0,
      goodCalls: 0,
      faultyCalls: 0,
      events: [],
      restMs: 0,
      restCause: 'limit',
      latencies: [],
      throughputs: [],
      isUrgent: false,
    }
    return this.#unsent
  }
}

interface UnsentNote {
  ok: number
  failed: number
  limited: number
  goodCalls: number
  faultyCalls: number
  readonly events: BreakerEvent[]
  restMs: number
  restCause: Cause
  readonly latencies: number[]
  readonly throughputs: number[]
  isUrgent: boolean
}
