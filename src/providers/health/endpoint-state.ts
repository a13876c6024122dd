/**
 * State of one endpoint in one thread: its breakers, the delays that its provider asked for, its counts, and changes
 * not yet reported to other threads. Changes only its own fields. Hot path.
 */
import type { CallerState, HealthCaller } from './caller-states.ts'
import { type BreakerScope, EndpointBreakers } from './endpoint-breakers.ts'
import { CallWindow, FigureWindows, OutcomeWindow, UPTIME_ATTEMPTS_MIN } from './failure-windows.ts'
import { type BreakerEvent, type CallerNote, type Cause, type HealthNote, SAMPLES_MAX } from './notes.ts'
import { RecentValues } from './recent-values.ts'

/** The standings of an endpoint, best first. */
export const STEADY = 0
/** It may be called, but after others: 5 to 20 % of its attempts fail. */
export const SHAKY = 1
/** More than 20 % of its attempts fail. */
export const FAILING = 2
/** Its breaker is open, and one request may test whether it works again. */
export const PROBE_DUE = 3
/** It must not be called. */
export const BLOCKED = 4
export type Standing = typeof STEADY | typeof SHAKY | typeof FAILING | typeof PROBE_DUE | typeof BLOCKED

const STEADY_UPTIME_MIN = 0.95
const SHAKY_UPTIME_MIN = 0.8

export class EndpointState {
  readonly key: string
  /** Slug of its provider, for metrics. */
  readonly provider: string
  readonly breakers: EndpointBreakers
  window: OutcomeWindow | null = null
  latency: RecentValues | null = null
  throughput: RecentValues | null = null
  /** Its replies with tool calls; null if there were none. */
  calls: CallWindow | null = null
  /** Figures over a longer time, for listings; null if there were no attempts. */
  figures: FigureWindows | null = null
  /** True if the thread's table has dropped it. */
  isForgotten = false
  /** True if its unsent note must not wait for other notes. Written only here. */
  isUrgent = false
  /** True if it is in the list of states with unsent notes. */
  isListed = false
  /** The part that has not been sent to other threads yet; null if there is nothing but events. */
  #unsent: UnsentNote | null = null

  constructor(key: string, provider: string, nowMs: number) {
    this.key = key
    this.provider = provider
    this.breakers = new EndpointBreakers(nowMs)
  }

  /** True if the breaker for all is open. */
  get isOpen(): boolean {
    return this.breakers.shared.isOpen
  }

  /** @param caller null: no particular caller */
  standingOf(nowMs: number, caller: HealthCaller | null = null): Standing {
    const passage = this.breakers.passage(nowMs, caller)
    if (passage !== 'free') return passage === 'due' ? PROBE_DUE : BLOCKED
    const { window } = this
    if (window === null || window.failed <= 0) return STEADY
    window.advance(nowMs)
    const { ok, failed } = window
    const total = ok + failed
    if (failed <= 0 || total < UPTIME_ATTEMPTS_MIN || ok >= total * STEADY_UPTIME_MIN) return STEADY
    return ok >= total * SHAKY_UPTIME_MIN ? SHAKY : FAILING
  }

  /** True if it must not be called because of a rate limit. */
  isLimited(nowMs: number, caller: HealthCaller | null = null): boolean {
    return this.breakers.blockingBreaker(nowMs, caller).isLimited(nowMs)
  }

  /** Milliseconds until it may be called; 0: now. */
  waitMs(nowMs: number, caller: HealthCaller | null = null): number {
    return this.breakers.waitMs(nowMs, caller)
  }

  /** The share of attempts that succeeded in the last 30 s; 1 if there were none. */
  uptime(nowMs: number): number {
    const { window } = this
    if (window === null) return 1
    window.advance(nowMs)
    const total = window.ok + window.failed
    return total <= 0 ? 1 : window.ok / total
  }

  count(nowMs: number, caller: HealthCaller | null, ok: number, failures: number, limited: number): void {
    const state = this.breakers.callers.of(nowMs, caller, failures + limited > 0)
    this.#add(nowMs, state, ok, failures, limited)
    this.#unsent ??= new UnsentNote()
    this.#unsent.count(state, ok, failures, limited)
  }

  /** Records that the provider asks a caller to wait. */
  rest(nowMs: number, caller: HealthCaller | null, forMs: number, cause: Cause): void {
    const state = this.breakers.callers.of(nowMs, caller, true)
    const scope = this.breakers.rest(nowMs, state, forMs, cause)
    this.#unsent ??= new UnsentNote()
    this.isUrgent = true
    this.#unsent.rest(scope === 'all' ? null : state, forMs, cause)
  }

  /** Closes the breaker whose probe succeeded. False if it was closed already. */
  close(nowMs: number, caller: HealthCaller | null, scope: BreakerScope): boolean {
    if (!this.breakers.close(nowMs, caller, scope)) return false
    if (scope === 'all') this.window?.clear()
    return true
  }

  measure(
    nowMs: number,
    caller: HealthCaller | null,
    latencyMs: number | null,
    tokensPerSecond: number | null,
  ): void {
    if (latencyMs === null && tokensPerSecond === null) return
    const { callers } = this.breakers
    const state = callers.of(nowMs, caller)
    const weight = callers.hasRequestBeside(state, nowMs) ? state.weigh(nowMs) : 1
    // In a note, values are not assigned to keys.
    if (weight === 1) this.#unsent ??= new UnsentNote()
    const unsent = weight < 1 ? null : this.#unsent
    if (latencyMs !== null) {
      this.#addLatency(nowMs, latencyMs, weight)
      if (unsent !== null && unsent.latencies.length < SAMPLES_MAX) unsent.latencies.push(latencyMs)
    }
    if (tokensPerSecond !== null) {
      this.#addThroughput(nowMs, tokensPerSecond, weight)
      if (unsent !== null && unsent.throughputs.length < SAMPLES_MAX) unsent.throughputs.push(tokensPerSecond)
    }
  }

  /** Counts replies with tool calls. */
  countCalls(nowMs: number, good: number, faulty: number): void {
    this.#addCalls(nowMs, good, faulty)
    this.#unsent ??= new UnsentNote()
    const unsent = this.#unsent
    unsent.goodCalls += good
    unsent.faultyCalls += faulty
  }

  /** Adds a note of another thread. */
  apply(nowMs: number, note: HealthNote): void {
    const { goodCalls, faultyCalls } = note
    const { ok, failed, limited, events, restMs, restCause, latencies, throughputs } = note
    const { shared, callers } = this.breakers
    const states = note.callers.map(callerNote => {
      const fails = callerNote.failed + callerNote.limited > 0 || callerNote.restMs > 0
      return callers.ofName(nowMs, callerNote.name, callerNote.owner, fails)
    })
    // A breaker that closes forgets everything counted before.
    for (const event of events) {
      this.breakers.follow(nowMs, event)
      if (event.kind === 'closed' && event.caller === '') this.window?.clear()
    }
    this.#add(nowMs, callers.of(nowMs, null), ok, failed, limited)
    for (let index = 0; index < states.length; index++) {
      const [callerNote, state] = [note.callers[index], states[index]]
      if (callerNote === undefined || state === undefined) continue
      this.#add(nowMs, state, callerNote.ok, callerNote.failed, callerNote.limited)
      if (callerNote.restMs > 0) this.breakers.setRest(nowMs, state, callerNote.restMs, callerNote.restCause)
    }
    if (restMs > 0) shared.rest(nowMs, restMs, restCause)
    if (goodCalls + faultyCalls > 0) this.#addCalls(nowMs, goodCalls, faultyCalls)
    for (const value of latencies) this.#addLatency(nowMs, value, 1)
    for (const value of throughputs) this.#addThroughput(nowMs, value, 1)
  }

  /**
   * The note for a thread that starts now; null if there is nothing to report. Does not include latencies, throughputs
   * and tool calls.
   */
  snapshot(nowMs: number): HealthNote | null {
    const { shared, callers } = this.breakers
    const note = new UnsentNote()
    for (const state of callers.allCallers) {
      state.window.advance(nowMs)
      const { ok, failed, limited } = state.window
      const restMs = state.restUntilMs - nowMs
      if (ok + failed + limited > 0 || state.isOpen) note.count(state, ok, failed, limited)
      if (restMs > 0 && state.name !== '') note.rest(state, restMs, state.restCause)
    }
    const restMs = shared.restUntilMs - nowMs
    if (restMs > 0) note.rest(null, restMs, shared.restCause)
    const events = this.breakers.openEvents(nowMs)
    return note.isEmpty && events.length === 0 ? null : note.plain(this.key, events)
  }

  /** Returns the unsent note and clears it; null if there is none. */
  drainUnsent(): HealthNote | null {
    const { unsentEvents } = this.breakers
    const unsent = this.#unsent
    this.#unsent = null
    this.isUrgent = false
    this.isListed = false
    if (unsentEvents.length === 0) return unsent === null ? null : unsent.plain(this.key, NO_EVENTS)
    this.breakers.unsentEvents = []
    return (unsent ?? new UnsentNote()).plain(this.key, unsentEvents)
  }

  #add(nowMs: number, state: CallerState, ok: number, failures: number, limited: number): void {
    if (ok === 0 && failures === 0 && limited === 0) return
    this.window ??= new OutcomeWindow(nowMs)
    this.window.add(nowMs, ok, failures, limited)
    this.figures ??= new FigureWindows()
    this.figures.count(nowMs, ok, failures)
    this.breakers.add(nowMs, state, ok, failures, limited)
  }

  #addCalls(nowMs: number, good: number, faulty: number): void {
    this.calls ??= new CallWindow(nowMs)
    this.calls.add(nowMs, good, faulty)
  }

  #addLatency(nowMs: number, ms: number, weight: number): void {
    this.latency ??= new RecentValues()
    this.latency.add(nowMs, ms, weight)
    this.figures?.latency(nowMs, ms, weight)
  }

  #addThroughput(nowMs: number, tokensPerSecond: number, weight: number): void {
    this.throughput ??= new RecentValues()
    this.throughput.add(nowMs, tokensPerSecond, weight)
    this.figures?.throughput(nowMs, tokensPerSecond, weight)
  }
}

const NO_EVENTS: readonly never[] = []

type Writable<T> = { -readonly [Key in keyof T]: T[Key] }

/** The caller that a count belongs to; an empty name stands for all unnamed callers. */
interface NamedCaller {
  readonly name: string
  readonly owner: string
}

/** A health update that is being collected and has not been sent to the other threads yet. */
class UnsentNote {
  goodCalls = 0
  faultyCalls = 0
  readonly latencies: number[] = []
  readonly throughputs: number[] = []
  #ok = 0
  #failed = 0
  #limited = 0
  readonly #callers: Writable<CallerNote>[] = []
  #restMs = 0
  #restCause: Cause = 'limit'

  /** True if it reports nothing. */
  get isEmpty(): boolean {
    return this.#callers.length === 0 && this.#ok + this.#failed + this.#limited === 0 && this.#restMs === 0
  }

  count(caller: NamedCaller, ok: number, failures: number, limited: number): void {
    if (caller.name === '') {
      this.#ok += ok
      this.#failed += failures
      this.#limited += limited
      return
    }
    const note = this.#noteOf(caller)
    note.ok += ok
    note.failed += failures
    note.limited += limited
  }

  /** @param caller null: all callers have to wait */
  rest(caller: NamedCaller | null, restMs: number, cause: Cause): void {
    if (caller === null) {
      this.#restCause = cause
      this.#restMs = Math.max(this.#restMs, restMs)
    } else if (caller.name !== '') {
      const note = this.#noteOf(caller)
      note.restCause = cause
      note.restMs = Math.max(note.restMs, restMs)
    }
  }

  plain(key: string, events: readonly BreakerEvent[]): HealthNote {
    return {
      key,
      ok: this.#ok,
      failed: this.#failed,
      limited: this.#limited,
      callers: this.#callers,
      goodCalls: this.goodCalls,
      faultyCalls: this.faultyCalls,
      events,
      restMs: this.#restMs,
      restCause: this.#restCause,
      latencies: this.latencies,
      throughputs: this.throughputs,
    }
  }

  #noteOf({ name, owner }: NamedCaller): Writable<CallerNote> {
    for (const note of this.#callers) if (note.name === name) return note
    const newNote = { name, owner, ok: 0, failed: 0, limited: 0, restMs: 0, restCause: 'limit' as const }
    this.#callers.push(newNote)
    return newNote
  }
}
