/**
 * The breakers of one endpoint in one thread: one for all callers, and one for each key. Changes only its own fields.
 * Hot path.
 *
 * Failures of one key open the breaker of that key. The breaker for all opens when a second key fails too, or when no
 * other key succeeded recently.
 */
import { Breaker, NEVER_MS, OPEN_MIN_MS, PROBE_TIMEOUT_MS } from './breaker.ts'
import { type CallerState, CallerStates, type HealthCaller } from './caller-states.ts'
import type { BreakerEvent, Cause } from './notes.ts'

/** The breaker for all callers, or for one key. */
export type BreakerScope = 'all' | 'caller'

/** Permission of a caller to use the endpoint. `due`: its request is the probe. */
export type Passage = 'free' | 'due' | 'blocked'

/** For this long after a probe is due, the key that failed last leaves it to other keys that make requests. */
const PROBE_PREFERENCE_MS = OPEN_MIN_MS

export class EndpointBreakers {
  /** The breaker for all callers. */
  readonly shared = new Breaker()
  readonly callers: CallerStates
  /** Events that have not been sent to other threads yet. */
  unsentEvents: BreakerEvent[] = []
  /** True if a single key may have an open breaker or a wait of its own. */
  #hasBlocked = false
  /** Number of the current row of failures; a success begins a new row. */
  #row = 0
  #isRowEmpty = true
  /**
   * The names of the keys if only their failures opened the breaker for all, separated by spaces; empty if there may be
   * others.
   */
  #alone = ''
  /** True if the running probe belongs to a key that is not in `#alone`. */
  #isProbeOfOther = false
  /** The key that failed last. */
  #failedLast = ''

  constructor(nowMs: number) {
    this.callers = new CallerStates(nowMs)
  }

  /** @param caller null: no particular caller */
  passage(nowMs: number, caller: HealthCaller | null): Passage {
    const { shared } = this
    if (shared.restUntilMs > nowMs) return 'blocked'
    if (shared.openUntilMs > NEVER_MS) return this.#mayProbe(nowMs, caller) ? 'due' : 'blocked'
    const callerState = this.#hasBlocked ? this.#blockedCaller(caller) : null
    if (callerState === null) return 'free'
    if (callerState.restUntilMs > nowMs) return 'blocked'
    if (!callerState.isOpen) return 'free'
    return callerState.isDue(nowMs) ? 'due' : 'blocked'
  }

  /** The breaker that applies to a caller. */
  blockingBreaker(nowMs: number, caller: HealthCaller | null): Breaker {
    const { shared } = this
    if (shared.isOpen || shared.restUntilMs > nowMs) return shared
    return this.#blockedCaller(caller) ?? shared
  }

  /** Milliseconds until the caller may call the endpoint; 0: now. */
  waitMs(nowMs: number, caller: HealthCaller | null): number {
    if (this.passage(nowMs, caller) !== 'blocked') return 0
    const { shared } = this
    const { blockedUntilMs } = this.blockingBreaker(nowMs, caller)
    const isLater = shared.isOpen && this.#leavesProbe(nowMs, caller)
    return Math.max(
      0,
      Math.max(blockedUntilMs, isLater ? shared.openUntilMs + PROBE_PREFERENCE_MS : NEVER_MS) - nowMs,
    )
  }

  /** Claims the probe for a caller. Returns the scope of its breaker. */
  probe(nowMs: number, caller: HealthCaller | null): BreakerScope {
    const callerState = this.shared.isOpen ? null : this.#blockedCaller(caller)
    ;(callerState ?? this.shared).setProbe(nowMs, PROBE_TIMEOUT_MS)
    if (callerState === null) this.#isProbeOfOther = this.#isBesideAlone(caller)
    this.unsentEvents.push({
      kind: 'probe',
      caller: callerState?.name ?? '',
      forMs: PROBE_TIMEOUT_MS,
      isOther: callerState === null && this.#isProbeOfOther,
    })
    return callerState === null ? 'all' : 'caller'
  }

  /** Counts outcomes of a caller. */
  add(nowMs: number, state: CallerState, ok: number, failures: number, limited: number): void {
    if (ok > 0 && !this.#isRowEmpty) {
      this.#row++
      this.#isRowEmpty = true
    }
    if (failures + limited > 0) {
      this.#isRowEmpty = false
      this.#failedLast = state.name
    }
    state.add(nowMs, this.#row, ok, failures, limited)
  }

  /**
   * Opens the breaker of a caller that mostly fails, or the breaker for all. Returns the cause if the latter opened,
   * otherwise null.
   */
  judge(nowMs: number, caller: HealthCaller | null, countMin: number): Cause | null {
    const { shared, callers } = this
    if (shared.isOpen) return null
    const state = callers.of(nowMs, caller)
    const ownCause = state.verdict(nowMs, countMin)
    const isOnlyKey = ownCause !== null && !callers.hasSuccessBeside(state, nowMs)
    const cause = isOnlyKey ? ownCause : callers.verdict(nowMs, this.#row, countMin)
    if (cause !== null) {
      const isAlone = isOnlyKey && callers.isAlone(state, this.#row, cause)
      this.openAll(nowMs, cause, nowMs, isAlone ? state.name : callers.aloneBesides(nowMs, this.#row, cause))
    } else if (ownCause !== null && state.name !== '' && !state.isOpen) {
      this.#openCaller(nowMs, state, ownCause, nowMs)
    }
    return cause
  }

  /** True if attempts of the caller that began at this time count: neither of its breakers has changed since. */
  isCurrent(caller: HealthCaller | null, beganMs: number): boolean {
    const callerState = caller === null ? null : this.callers.find(caller)
    return beganMs >= this.shared.changedMs && (callerState === null || beganMs >= callerState.changedMs)
  }

  isOpen(nowMs: number, caller: HealthCaller | null, scope: BreakerScope): boolean {
    return this.#breakerOf(nowMs, caller, scope).isOpen
  }

  /**
   * Keeps a breaker open for longer, because this caller's probe that began at `beganMs` has failed. False if the probe
   * does not count.
   */
  failProbe(
    nowMs: number,
    caller: HealthCaller | null,
    scope: BreakerScope,
    beganMs: number,
    cause: Cause,
  ): boolean {
    const state = this.callers.of(nowMs, caller)
    const breaker = scope === 'all' ? this.shared : state
    // A later probe is running, and its outcome will be newer.
    if (!breaker.isOpen || breaker.probeBeganMs > beganMs) return false
    this.#failedLast = state.name
    if (scope === 'all')
      this.openAll(nowMs, cause, beganMs, this.#isAmongAlone(state.name) ? this.#alone : '')
    else this.#openCaller(nowMs, state, cause, beganMs)
    return true
  }

  /** Closes the breaker whose probe succeeded. False if it was closed already. */
  close(nowMs: number, caller: HealthCaller | null, scope: BreakerScope): boolean {
    const state = scope === 'all' ? null : this.callers.of(nowMs, caller)
    if (!(state ?? this.shared).isOpen) return false
    this.#setClosed(nowMs, state)
    this.unsentEvents.push({ kind: 'closed', caller: state?.name ?? '' })
    return true
  }

  /** The probe ended without a verdict on the endpoint, so another request may be the probe. */
  endProbe(nowMs: number, caller: HealthCaller | null, scope: BreakerScope): void {
    const breaker = this.#breakerOf(nowMs, caller, scope)
    if (!breaker.isOpen) return
    breaker.probeUntilMs = NEVER_MS
    this.unsentEvents.push({
      kind: 'unproved',
      caller: breaker === this.shared ? '' : (breaker as CallerState).name,
    })
  }

  /**
   * Records that the provider asks a caller to wait. All callers wait if another one has to wait as well and no caller
   * is served meanwhile, or if no other caller had a success recently. Returns the scope of the wait.
   */
  rest(nowMs: number, state: CallerState, forMs: number, cause: Cause): BreakerScope {
    state.rest(nowMs, forMs, cause)
    this.#hasBlocked = true
    if (this.callers.isServedBeside(state, nowMs, this.#row)) return 'caller'
    this.shared.rest(nowMs, forMs, cause)
    return 'all'
  }

  /** Records a wait of one key that another thread has noted. */
  setRest(nowMs: number, state: CallerState, forMs: number, cause: Cause): void {
    state.rest(nowMs, forMs, cause)
    this.#hasBlocked = true
  }

  /** Applies a change from another thread. */
  follow(nowMs: number, event: BreakerEvent): void {
    const namedCallers = event.caller === '' ? null : this.callers.named
    const state = namedCallers?.find(({ name }) => name === event.caller) ?? null
    // A key that has no name here has no breaker here either.
    if (namedCallers !== null && state === null) return
    const breaker = state ?? this.shared
    switch (event.kind) {
      case 'open':
        breaker.streak = event.streak
        breaker.setOpen(nowMs, event.forMs, event.cause)
        if (state === null) this.#setAllOpen(nowMs, event.alone)
        else this.#hasBlocked = true
        break
      case 'probe':
        breaker.setProbe(nowMs, event.forMs)
        if (state === null) this.#isProbeOfOther = event.isOther
        break
      case 'unproved':
        breaker.probeUntilMs = NEVER_MS
        break
      case 'closed':
        this.#setClosed(nowMs, state)
        break
    }
  }

  /** The events that tell a newly started thread about open breakers. */
  openEvents(nowMs: number): BreakerEvent[] {
    const events: BreakerEvent[] = []
    this.#addOpenEvents(nowMs, this.shared, '', events)
    for (const state of this.callers.named) this.#addOpenEvents(nowMs, state, state.name, events)
    return events
  }

  openAll(nowMs: number, cause: Cause, sinceMs = nowMs, alone = ''): void {
    const forMs = this.shared.open(nowMs, cause, sinceMs)
    this.#setAllOpen(nowMs, alone)
    this.unsentEvents.push({
      kind: 'open',
      caller: '',
      forMs,
      streak: this.shared.streak,
      cause,
      alone,
    })
  }

  /** The caller, if it may have an open breaker or a wait of its own. */
  #blockedCaller(caller: HealthCaller | null): CallerState | null {
    if (!this.#hasBlocked || caller === null) return null
    const state = this.callers.find(caller)
    return state !== null && state.blockedUntilMs > NEVER_MS ? state : null
  }

  #breakerOf(nowMs: number, caller: HealthCaller | null, scope: BreakerScope): Breaker {
    return scope === 'all' ? this.shared : this.callers.of(nowMs, caller)
  }

  /** True if the caller's next request is the probe of the open breaker for all. */
  #mayProbe(nowMs: number, caller: HealthCaller | null): boolean {
    const { shared } = this
    // Only some keys have failed: the first request of another key shows whether the problem is those keys or the
    // endpoint.
    if (this.#isBesideAlone(caller)) return !(this.#isProbeOfOther && shared.probeUntilMs > nowMs)
    return shared.isDue(nowMs) && !this.#leavesProbe(nowMs, caller)
  }

  #isBesideAlone(caller: HealthCaller | null): boolean {
    return this.#alone !== '' && caller !== null && !this.#isAmongAlone(caller.keyHash)
  }

  /** @param key its hash or name */
  #isAmongAlone(key: string): boolean {
    return key !== '' && this.#alone.split(' ').some(name => name !== '' && key.startsWith(name))
  }

  /**
   * True if the last failure was this caller's and another key made a request recently: that key's request is the better
   * probe.
   */
  #leavesProbe(nowMs: number, caller: HealthCaller | null): boolean {
    if (caller === null || this.#failedLast === '' || !caller.keyHash.startsWith(this.#failedLast))
      return false
    if (nowMs >= this.shared.openUntilMs + PROBE_PREFERENCE_MS) return false
    const state = this.callers.find(caller)
    return state !== null && this.callers.hasRequestBeside(state, nowMs)
  }

  #setAllOpen(nowMs: number, alone: string): void {
    this.#alone = alone
    this.#isProbeOfOther = false
    // The breaker for all keys replaces the breakers of single keys.
    for (const state of this.callers.named) if (state.isOpen) state.setClosed(nowMs)
  }

  #openCaller(nowMs: number, state: CallerState, cause: Cause, sinceMs: number): void {
    const forMs = state.open(nowMs, cause, sinceMs)
    this.#hasBlocked = true
    this.unsentEvents.push({
      kind: 'open',
      caller: state.name,
      forMs,
      streak: state.streak,
      cause,
      alone: '',
    })
  }

  /** Forgets earlier failures. */
  #setClosed(nowMs: number, state: CallerState | null): void {
    if (state !== null) {
      state.clear(nowMs)
      return
    }
    this.shared.setClosed(nowMs)
    this.#alone = ''
    this.callers.clear(nowMs)
  }

  #addOpenEvents(nowMs: number, breaker: Breaker, caller: string, events: BreakerEvent[]): void {
    if (!breaker.isOpen) return
    const { cause, streak, openUntilMs, probeUntilMs } = breaker
    const isAll = breaker === this.shared
    const forMs = Math.max(0, openUntilMs - nowMs)
    events.push({ kind: 'open', caller, forMs, streak, cause, alone: isAll ? this.#alone : '' })
    if (probeUntilMs <= nowMs) return
    const isOther = isAll && this.#isProbeOfOther
    events.push({ kind: 'probe', caller, forMs: probeUntilMs - nowMs, isOther })
  }
}
