/**
 * Endpoint health in one thread: which endpoints may be used now, and how fast they are. Attempts report their
 * outcomes; notes carry these to the other threads and instances. Hot path.
 */
import { LRUCache } from 'lru-cache'
import type { Clock } from '../../base/clock.ts'
import type { Metrics } from '../../base/metrics/metrics.ts'
import type { BreakerChange } from '../../base/metrics/table.ts'
import type { Endpoint } from '../../protocol/provider.ts'
import type { EndpointFigures } from '../endpoint-figures.ts'
import type { HealthCaller } from './caller-states.ts'
import type { BreakerScope } from './endpoint-breakers.ts'
import { BLOCKED, EndpointState, PROBE_DUE, type Standing } from './endpoint-state.ts'
import type { HealthNote } from './notes.ts'

/** The verdict of an attempt on its endpoint. `none`: there is none, for example because the client has left. */
export type EndpointVerdict = 'ok' | 'failed' | 'limited' | 'none'

/**
 * The condition of an endpoint, in words. `limited` and `blocked`: it is not called now, because of a rate limit or
 * failures.
 */
export type EndpointCondition = 'untried' | 'steady' | 'shaky' | 'failing' | 'probing' | 'limited' | 'blocked'

/** Number of keys in each condition. */
export type ConditionCounts = Readonly<Partial<Record<EndpointCondition, number>>>

/** Indexed by standing; the condition for standing 4 depends on its cause. */
const CONDITIONS = ['steady', 'shaky', 'failing', 'probing', 'blocked'] as const

function conditionOf(state: EndpointState, nowMs: number): EndpointCondition {
  const standing = state.standingOf(nowMs)
  if (standing === BLOCKED) return state.isLimited(nowMs) ? 'limited' : 'blocked'
  return CONDITIONS[standing]
}

interface EndpointHealthOptions {
  readonly clock: Clock
  /** Number of failures in 30 s that open a breaker; null: breakers never open, and waits are ignored. Default 5. */
  readonly breakerFailures?: number | null
  /** Sends notes to the other threads. Default: there are none. */
  readonly send?: (notes: readonly HealthNote[]) => void
  /** Maximum number of endpoints whose state is kept. Default 10,000. */
  readonly max?: number
}

const FAILURES_DEFAULT = 5
/** About 1 KB each, and another 20 KB for those with traffic in the last five minutes. */
const STATES_MAX = 10_000
/** Counts are not urgent, so they are sent together. */
const SEND_DELAY_MS = 250

/** Names an endpoint, or one own key at it, in every process that has the same catalogue. */
export function endpointKey(endpoint: Endpoint, credentialId: string | null): string {
  const { provider, upstreamModel, format, region, quantization, serviceTier = '' } = endpoint
  const parts = [
    provider.slug,
    upstreamModel,
    format,
    region ?? '',
    quantization,
    serviceTier,
    credentialId ?? '',
  ]
  return parts.join('\n')
}

/** The report of one attempt about its endpoint. */
export class HealthEntry {
  readonly state: EndpointState
  readonly #health: EndpointHealth
  readonly #caller: HealthCaller | null
  /** The scope of the breaker whose probe it is; null if it is not a probe. */
  readonly #probe: BreakerScope | null
  readonly beganMs: number
  /** Milliseconds to the first content of a stream, as measured; null if not measured. */
  firstTokenMs: number | null = null
  /** Milliseconds for each output token, as measured; null if not measured. */
  perTokenMs: number | null = null
  /**
   * Monotonic milliseconds at which the request was sent. Time before that is spent by the gateway, and is not
   * measured.
   */
  sentMs: number
  /** Monotonic milliseconds of its first content; null before. */
  #answeredMs: number | null = null
  #isOver = false
  /** Called at the first content; null if not needed. */
  onAnswered: (() => void) | null = null

  constructor(
    health: EndpointHealth,
    state: EndpointState,
    caller: HealthCaller | null,
    probe: BreakerScope | null,
    nowMs: number,
  ) {
    this.#health = health
    this.state = state
    this.#caller = caller
    this.#probe = probe
    this.beganMs = nowMs
    this.sentMs = nowMs
  }

  /** Called at the first content. This counts as a success, because the end of a long reply would come too late. */
  noteFirstContent(nowMs: number): void {
    if (this.#answeredMs !== null || this.#isOver) return
    this.#answeredMs = nowMs
    this.#health.countSuccess(this.state, this.#caller, this.#probe, nowMs)
    this.onAnswered?.()
  }

  /**
   * Called when the attempt is over. `waitMs`: the time that the provider asks the gateway to wait; 0: none. Only the
   * first call counts.
   */
  countEnd(verdict: EndpointVerdict, nowMs: number, waitMs = 0): void {
    if (this.#isOver) return
    this.#isOver = true
    const isAnswered = this.#answeredMs !== null
    if (verdict === 'ok') {
      if (!isAnswered) this.#health.countSuccess(this.state, this.#caller, this.#probe, nowMs)
      return
    }
    const probe = isAnswered ? null : this.#probe
    const [caller, beganMs] = [this.#caller, this.beganMs]
    if (verdict !== 'none') {
      this.#health.countFailure(this.state, verdict, {
        caller,
        isAnswered,
        probe,
        beganMs,
        nowMs,
        waitMs,
      })
    } else if (probe !== null) this.#health.endProbe(this.state, caller, probe, nowMs)
  }

  /** Counts replies with tool calls: good ones, and those with a faulty call. */
  countCalls(nowMs: number, good: number, faulty: number): void {
    this.#health.countCalls(this.state, nowMs, good, faulty)
  }

  /** Records the speed of the reply. `isStream`: its first content arrived as soon as it existed. */
  countSpeed(
    nowMs: number,
    outputTokens: number,
    isStream: boolean,
    { speeds }: Pick<Metrics, 'speeds'>,
    { provider, modelId }: Pick<Endpoint, 'provider' | 'modelId'>,
  ): void {
    const answeredMs = this.#answeredMs
    if (answeredMs === null) return
    const latencyMs = isStream ? Math.max(LATENCY_MIN_MS, answeredMs - this.sentMs) : null
    const spanMs = nowMs - (isStream ? answeredMs : this.sentMs)
    const isLong = outputTokens >= SPEED_TOKENS_MIN && spanMs >= SPEED_SPAN_MIN_MS
    const tokensPerSecond = isLong ? (outputTokens * 1_000) / spanMs : null
    if (latencyMs === null && tokensPerSecond === null) return
    const { firstToken, perToken } = speeds.of(provider.slug, modelId)
    if (latencyMs !== null) {
      this.firstTokenMs = latencyMs
      firstToken.observe(latencyMs / 1_000)
    }
    if (tokensPerSecond !== null) {
      this.perTokenMs = spanMs / outputTokens
      perToken.observe(spanMs / outputTokens / 1_000)
    }
    this.#health.measure(this.state, this.#caller, nowMs, latencyMs, tokensPerSecond)
  }
}

/** Shorter times are not distinguished. */
const LATENCY_MIN_MS = 0.1
/** With fewer tokens or shorter times, the speed would be too inaccurate. */
const SPEED_TOKENS_MIN = 8
const SPEED_SPAN_MIN_MS = 20

interface FailedEnd {
  readonly caller: HealthCaller | null
  /** True if there was content: the success that was counted is then subtracted. */
  readonly isAnswered: boolean
  readonly probe: BreakerScope | null
  readonly beganMs: number
  readonly nowMs: number
  readonly waitMs: number
}

export class EndpointHealth {
  /**
   * Called when this thread has changed a shared breaker; null if not needed. `isNews`: false for failed probes, and
   * for the later probes of a breaker that stays open.
   */
  onChange: ((state: EndpointState, change: BreakerChange, isNews: boolean) => void) | null = null
  readonly #options: EndpointHealthOptions
  readonly #clock: Clock
  readonly #failures: number | null
  readonly #states: LRUCache<string, EndpointState>
  /** The states of shared endpoints, so that each key is built only once. */
  readonly #byEndpoint = new WeakMap<Endpoint, EndpointState>()
  /** States with unsent notes. */
  #unsent: EndpointState[] = []
  #isTimerSet = false
  #isFlushScheduled = false

  constructor(options: EndpointHealthOptions) {
    this.#options = options
    this.#clock = options.clock
    this.#failures = options.breakerFailures === undefined ? FAILURES_DEFAULT : options.breakerFailures
    this.#states = new LRUCache({
      max: options.max ?? STATES_MAX,
      dispose: state => {
        state.isForgotten = true
      },
    })
  }

  /** The state of an endpoint with the shared key (null), or with a BYOK credential. */
  of(endpoint: Endpoint, credentialId: string | null): EndpointState {
    if (credentialId !== null) return this.#byKey(endpointKey(endpoint, credentialId), endpoint.provider.slug)
    const cached = this.#byEndpoint.get(endpoint)
    if (cached !== undefined && !cached.isForgotten) return cached
    const state = this.#byKey(endpointKey(endpoint, null), endpoint.provider.slug)
    this.#byEndpoint.set(endpoint, state)
    return state
  }

  /** Measured figures of an endpoint with the shared key; null if nothing was measured. */
  figures(endpoint: Endpoint): EndpointFigures | null {
    const state = this.#states.peek(endpointKey(endpoint, null))
    return state?.figures?.figures(this.#clock.monotonicMs()) ?? null
  }

  /** The condition of an endpoint with the shared key, for people; `untried`: it has not been called recently. */
  condition(endpoint: Endpoint): EndpointCondition {
    const nowMs = this.#clock.monotonicMs()
    const state = this.#states.peek(endpointKey(endpoint, null))
    return state === undefined ? 'untried' : conditionOf(state, nowMs)
  }

  /**
   * Counts the BYOK credentials that were called recently by their condition. Returns a function that has the counts of
   * an endpoint.
   */
  ownConditions(): (endpoint: Endpoint) => ConditionCounts {
    const nowMs = this.#clock.monotonicMs()
    const countsByEndpoint = new Map<
      string,
      { -readonly [Name in keyof ConditionCounts]: ConditionCounts[Name] }
    >()
    for (const [key, state] of this.#states.entries()) {
      const end = key.lastIndexOf('\n') + 1
      // The shared key has no name.
      if (end === key.length) continue
      const counts = countsByEndpoint.get(key.slice(0, end)) ?? {}
      const condition = conditionOf(state, nowMs)
      counts[condition] = (counts[condition] ?? 0) + 1
      countsByEndpoint.set(key.slice(0, end), counts)
    }
    return endpoint => countsByEndpoint.get(endpointKey(endpoint, null)) ?? {}
  }

  standing(state: EndpointState, caller: HealthCaller | null = null): Standing {
    return state.standingOf(this.#clock.monotonicMs(), caller)
  }

  /**
   * Begins an attempt; null if the caller must not call the endpoint now.
   * @param caller null: no particular caller
   */
  begin(state: EndpointState, caller: HealthCaller | null = null): HealthEntry | null {
    const nowMs = this.#clock.monotonicMs()
    state.breakers.callers.of(nowMs, caller).heardMs = nowMs
    const standing = state.standingOf(nowMs, caller)
    if (standing === BLOCKED) return null
    // Marks it as recently used: the table drops the least recently used ones.
    this.#states.get(state.key)
    const probe = standing === PROBE_DUE ? state.breakers.probe(nowMs, caller) : null
    if (probe !== null) this.#reportChange(state, probe, 'probed', state.breakers.shared.streak <= 1)
    return new HealthEntry(this, state, caller, probe, nowMs)
  }

  countSuccess(
    state: EndpointState,
    caller: HealthCaller | null,
    probe: BreakerScope | null,
    nowMs: number,
  ): void {
    if (probe !== null && state.close(nowMs, caller, probe)) this.#reportChange(state, probe, 'closed')
    state.count(nowMs, caller, 1, 0, 0)
    this.#scheduleNote(state)
  }

  endProbe(state: EndpointState, caller: HealthCaller | null, scope: BreakerScope, nowMs: number): void {
    state.breakers.endProbe(nowMs, caller, scope)
    this.#scheduleNote(state)
  }

  countFailure(state: EndpointState, verdict: 'failed' | 'limited', end: FailedEnd): void {
    const { caller, isAnswered, probe, beganMs, nowMs, waitMs } = end
    const isFailed = verdict === 'failed'
    const cause = isFailed ? 'failure' : 'limit'
    if (this.#failures !== null && waitMs > 0) state.rest(nowMs, caller, waitMs, cause)
    const { breakers } = state
    if (probe !== null && breakers.isOpen(nowMs, caller, probe)) {
      const isReopened = breakers.failProbe(nowMs, caller, probe, beganMs, cause)
      if (isReopened) this.#reportChange(state, probe, isFailed ? 'opened' : 'limited', false)
    } else if (breakers.isCurrent(caller, beganMs)) {
      state.count(nowMs, caller, isAnswered ? -1 : 0, isFailed ? 1 : 0, isFailed ? 0 : 1)
    }
    const openCause = this.#failures === null ? null : breakers.judge(nowMs, caller, this.#failures)
    if (openCause !== null) this.#reportChange(state, 'all', openCause === 'limit' ? 'limited' : 'opened')
    this.#scheduleNote(state)
  }

  measure(
    state: EndpointState,
    caller: HealthCaller | null,
    nowMs: number,
    latencyMs: number | null,
    tokensPerSecond: number | null,
  ): void {
    state.measure(nowMs, caller, latencyMs, tokensPerSecond)
    this.#scheduleNote(state)
  }

  countCalls(state: EndpointState, nowMs: number, good: number, faulty: number): void {
    state.countCalls(nowMs, good, faulty)
    this.#scheduleNote(state)
  }

  /** Adds notes of other threads. */
  apply(notes: readonly HealthNote[]): void {
    const nowMs = this.#clock.monotonicMs()
    for (const note of notes) this.#byKey(note.key, slugOf(note.key)).apply(nowMs, note)
  }

  /** Notes for a thread that starts now. */
  snapshot(): readonly HealthNote[] {
    const nowMs = this.#clock.monotonicMs()
    const notes: HealthNote[] = []
    for (const state of this.#states.values()) {
      const note = state.snapshot(nowMs)
      if (note !== null) notes.push(note)
    }
    return notes
  }

  /** Number of endpoints that must not be called now, by reason. */
  blocked(): { readonly open: number; readonly limited: number; readonly resting: number } {
    const nowMs = this.#clock.monotonicMs()
    let [open, limited, resting] = [0, 0, 0]
    for (const state of this.#states.values()) {
      const { isOpen, cause, restUntilMs } = state.breakers.shared
      if (isOpen && cause === 'limit') limited++
      else if (isOpen) open++
      else if (restUntilMs > nowMs) resting++
    }
    return { open, limited, resting }
  }

  /** Slugs of providers none of whose endpoints may be called, because all of them failed for all keys. */
  downProviders(): readonly string[] {
    const downByProvider = new Map<string, boolean>()
    for (const { provider, breakers } of this.#states.values()) {
      const { isOpen, cause } = breakers.shared
      downByProvider.set(provider, (downByProvider.get(provider) ?? true) && isOpen && cause !== 'limit')
    }
    return [...downByProvider].flatMap(([provider, isDown]) => (isDown ? [provider] : []))
  }

  /** Sends all unsent notes; also called before a thread ends. */
  flush(): void {
    if (this.#unsent.length === 0) return
    const notes: HealthNote[] = []
    for (const state of this.#unsent) {
      const note = state.drainUnsent()
      if (note !== null) notes.push(note)
    }
    this.#unsent = []
    this.#options.send?.(notes)
  }

  #byKey(key: string, provider: string): EndpointState {
    let state = this.#states.get(key)
    if (state === undefined) {
      state = new EndpointState(key, provider, this.#clock.monotonicMs())
      this.#states.set(key, state)
    }
    return state
  }

  /** Reports changes of the shared breaker only: changes for single keys do not concern other instances. */
  #reportChange(state: EndpointState, scope: BreakerScope, change: BreakerChange, isNews = true): void {
    if (scope === 'all') this.onChange?.(state, change, isNews)
    this.#scheduleNote(state)
  }

  /** Schedules the note of a state: an urgent one immediately, others after 250 ms. */
  #scheduleNote(state: EndpointState): void {
    if (this.#options.send === undefined) {
      state.drainUnsent()
      return
    }
    if (!state.isListed) {
      state.isListed = true
      this.#unsent.push(state)
    }
    if (state.isUrgent || state.breakers.unsentEvents.length > 0) {
      if (this.#isFlushScheduled) return
      this.#isFlushScheduled = true
      setImmediate(() => {
        this.#isFlushScheduled = false
        this.flush()
      })
    } else if (!this.#isTimerSet) {
      this.#isTimerSet = true
      this.#clock.after(SEND_DELAY_MS, () => {
        this.#isTimerSet = false
        this.flush()
      })
    }
  }
}

function slugOf(key: string): string {
  return key.slice(0, key.indexOf('\n'))
}
