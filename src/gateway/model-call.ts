/**
 * Model call: asks the candidates in order until one has answered. After a failure that the client has not seen, it
 * asks the next one. What is asked, and who takes the reply, is said by its verbs.
 */
import type { Credential } from '../credentials/catalog.ts'
import { type FailureCode, type GatewayError, rewritten, toGatewayError } from '../errors.ts'
import { PROBE_DUE } from '../health/health.ts'
import type { Endpoint, OutgoingKey } from '../providers/provider.ts'
import { isPending, whenReady } from '../ready.ts'
import { type CallFigures, settle, type UsageEstimates, type VisibleStreams } from './accounting/account.ts'
import type { Attempt, AttemptDeps } from './attempt.ts'
import type { AttemptRecord, Finish } from './exchange.ts'
import { type OpenedAttempt, Race } from './hedge.ts'
import {
  askedWaitMs,
  candidateAfter,
  lastError,
  nextCandidate,
  nobodyNow,
  type RetryBudget,
  type RouteCandidate,
  type Routing,
  verdictOf,
  type Waiting,
} from './routing/rank.ts'
import type { RoutedExchange } from './running.ts'

export interface ModelCallDeps extends AttemptDeps {
  /** Opens keys; a promise only when one is not at hand. Fails with a GatewayError. */
  readonly providerKeys: ProviderKeys
  readonly routing: Routing
  readonly retries: RetryBudget
  readonly visibleStreams: VisibleStreams
}

/** The keys of attempts: own ones, and shared ones that their provider's row cannot carry as they are. */
export interface ProviderKeys {
  own(credential: Credential, endpoint: Endpoint): OutgoingKey | Promise<OutgoingKey>
  shared(endpoint: Endpoint): OutgoingKey | null | Promise<OutgoingKey | null>
}

/** One model call, for candidates one after the other. */
export interface ModelCall {
  /**
   * Opens an attempt at a candidate whose key is open. Null: the limits of the caller leave nothing for it. A promise
   * only where something has to be awaited.
   */
  open(candidate: RouteCandidate, record: AttemptRecord): OpenedAttempt | null | Promise<OpenedAttempt | null>
  /** True if the client has seen some of it, so that nobody else may be asked. */
  isSeen(): boolean
  /** Drops what a failed attempt has brought. */
  drop(): void
  /** Default: those of text. */
  readonly estimates?: UsageEstimates
  /** True if two attempts of it may run at once. Default: false. */
  readonly hedges?: boolean
}

/** A candidate has answered. */
export interface ModelReply {
  readonly candidate: RouteCandidate
  readonly record: AttemptRecord
  readonly attempt: Attempt
  readonly finish: Finish
}

/**
 * Rejects with the last failure when no candidate is left, at once when the client has seen some of the reply. Null:
 * the limits of the caller leave nothing for it, and nobody was asked.
 */
export function askCandidates(
  deps: ModelCallDeps,
  exchange: RoutedExchange,
  first: RouteCandidate | undefined,
  call: ModelCall,
): Promise<ModelReply | null> {
  return new Asking(deps, exchange, call).ask(first)
}

const NOBODY: readonly never[] = []

/** One model call on its way through the candidates. */
class Asking {
  /** It has a place in the retry budget. */
  isRetrying = false
  readonly #deps: ModelCallDeps
  readonly #exchange: RoutedExchange
  readonly #call: ModelCall
  /** The first attempt of this call among those of the exchange. */
  readonly #from: number
  /** Candidates that were passed over without an attempt. */
  #passed: readonly RouteCandidate[] = NOBODY
  /** Those of them that must not be asked now. */
  #waiting: readonly Waiting[] = NOBODY

  constructor(deps: ModelCallDeps, exchange: RoutedExchange, call: ModelCall) {
    this.#deps = deps
    this.#exchange = exchange
    this.#call = call
    this.#from = exchange.attempts.length
  }

  async ask(first: RouteCandidate | undefined): Promise<ModelReply | null> {
    const { attempts } = this.#exchange
    const { retries } = this.#deps
    retries.enter()
    try {
      let next = first
      while (next !== undefined) {
        const race = this.#raceOf(next)
        const ended = await this.#run(next, race)
        const result = race === null ? ended : await this.#better(ended, race)
        if (isReply(result)) return result
        next = this.#next(result)
      }
    } finally {
      retries.leave(this.isRetrying)
    }
    if (attempts.length > this.#from) throw lastError(attempts.slice(this.#from))
    if (this.#waiting.length > 0 && this.#waiting.length === this.#passed.length)
      throw nobodyNow(this.#waiting)
    return null
  }

  /** The better one of two results of a race. */
  async #better(first: Result, race: Race<Result>): Promise<Result> {
    const second = await race.end()
    if (second === null) return first
    this.#countHedge(second)
    return isReply(first) || !hasEnded(second) ? first : second
  }

  /** The candidate to try after this one, if there is one. */
  #next({ asked, error, isLast }: Exclude<Result, ModelReply>): RouteCandidate | undefined {
    if (error === null) return isLast === true ? undefined : this.#passOver(asked)
    if (error.code === 'client_closed' || this.#call.isSeen()) throw error
    this.#call.drop()
    return this.#after(asked, error)
  }

  /** Runs an attempt to its end. `race`: with another one, if that begins. Rejects with Deferred only. */
  async #run(candidate: RouteCandidate, race: Race<Result> | null): Promise<Result> {
    const deps = this.#deps
    const exchange = this.#exchange
    const call = this.#call
    const { attempts } = exchange
    const record = openRecord(candidate)
    if (!this.#begin(candidate, record)) return { asked: candidate, error: null }
    const nowMs = deps.clock.monotonicMs()
    // A second attempt beside the first one replaces nothing.
    if (race?.isRunning !== true) exchange.watch.beginAttempt(nowMs, attempts.length > this.#from)
    attempts.push(record)
    let attempt: Attempt | null = null
    try {
      const opening = openAttempt(deps, exchange, call, candidate, record)
      const opened = isPending(opening) ? await opening : opening
      if (opened === null || race?.isDecided === true) {
        remove(attempts, record)
        record.health?.ended('none', deps.clock.monotonicMs())
        return { asked: candidate, error: null, isLast: exchange.bill.closed !== null }
      }
      attempt = opened.attempt
      record.health?.sent(deps.clock.monotonicMs())
      const finish = await attempt.run(race === null ? opened.target() : race.enter(record, opened))
      this.#noteHealth(record, attempt)
      if (!settle(exchange, record, attempt, call.estimates)) noteImplausible(deps, candidate)
      // The deployment behind an own key is the caller's, and shows nothing about that of others.
      if (exchange.request.stream === true && candidate.credential === null) {
        deps.visibleStreams.note(candidate.endpoint, exchange.prompt, exchange.caller.keyHash, attempt)
      }
      return { candidate, record, attempt, finish }
    } catch (thrown) {
      if (thrown instanceof Deferred) {
        record.health?.ended('none', deps.clock.monotonicMs())
        throw thrown
      }
      if (record.isOutrun === true) {
        record.health?.ended('none', deps.clock.monotonicMs())
        return { asked: candidate, error: record.error, isOutrun: true }
      }
      const error = withProvider(asGatewayError(deps, thrown), record)
      record.error = error
      this.#noteHealth(record, attempt)
      settle(exchange, record, attempt ?? NOTHING_SAID, call.estimates)
      return { asked: candidate, error }
    }
  }

  /** A race that a second attempt may join; null: this attempt stays alone. */
  #raceOf(candidate: RouteCandidate): Race<Result> | null {
    const { clock, routing } = this.#deps
    const { attempts, candidates, fallbacks } = this.#exchange
    const { hedgeAfterMs } = routing
    if (hedgeAfterMs === null || this.#call.hedges !== true || !fallbacks) return null
    // The bill of a caller's own key is the caller's, and a later attempt follows a failure: both are asked alone.
    if (candidate.credential !== null || candidates.length < 2 || attempts.length > this.#from) return null
    const race: Race<Result> = new Race<Result>({
      clock,
      afterMs: hedgeAfterMs,
      begin: () => this.#hedge(candidate, race),
      onWon: winner => {
        for (const record of attempts.slice(this.#from)) {
          // One that is still being prepared is not asked any more.
          if (!race.hasEntered(record)) remove(attempts, record)
        }
        // The attempt that answers is the last one.
        remove(attempts, winner)
        attempts.push(winner)
        this.#endRetry()
      },
    })
    return race
  }

  /** Asks the next healthy endpoint of the same model, if the retry budget allows it. */
  #hedge(first: RouteCandidate, race: Race<Result>): Promise<Result> | null {
    const { clock, metrics, retries, routing } = this.#deps
    const { caller, candidates, signal } = this.#exchange
    const nowMs = clock.monotonicMs()
    const second = nextCandidate(
      candidates,
      this.#soFar(),
      ({ endpoint, credential }) =>
        credential === null &&
        endpoint.modelId === first.endpoint.modelId &&
        // No probe: that needs somebody behind it.
        routing.health.of(endpoint, null).standing(nowMs, caller) < PROBE_DUE,
    )
    if (second === undefined || signal.aborted) return null
    this.isRetrying = retries.take()
    if (this.isRetrying) return this.#run(second, race)
    metrics.hedges.inc({ outcome: 'over_budget' })
    return null
  }

  #countHedge(second: Result): void {
    const { hedges } = this.#deps.metrics
    if (isReply(second)) hedges.inc({ outcome: 'won' })
    else if (second.isOutrun === true) hedges.inc({ outcome: 'lost' })
    else if (second.error !== null && second.error.code !== 'client_closed') hedges.inc({ outcome: 'failed' })
  }

  /** False: the endpoint must not be asked now. */
  #begin(candidate: RouteCandidate, record: AttemptRecord): boolean {
    // A reply that a batch service has stored says nothing about now.
    if (this.#exchange.batch?.service?.kind === 'collection') return true
    const { health } = this.#deps.routing
    const { caller } = this.#exchange
    const { endpoint, credential } = candidate
    const state = health.of(endpoint, credential === null ? null : credential.id)
    const entry = health.begin(state, caller)
    if (entry !== null) {
      record.health = entry
      if (this.isRetrying) entry.onAnswered = () => this.#endRetry()
      return true
    }
    const nowMs = this.#deps.clock.monotonicMs()
    const waiting = {
      candidate,
      isLimited: state.isLimited(nowMs, caller),
      waitMs: state.waitMs(nowMs, caller),
    }
    this.#waiting = [...this.#waiting, waiting]
    return false
  }

  #noteHealth(record: AttemptRecord, attempt: Attempt | null): void {
    const { health } = record
    if (health === undefined) return
    const nowMs = this.#deps.clock.monotonicMs()
    const { prompt, signal } = this.#exchange
    // A request that was ended on this side, by a drain for instance, says nothing about the endpoint.
    const isOurs = record.error !== null && signal.aborted
    health.ended(isOurs ? 'none' : verdictOf(record, prompt), nowMs, isOurs ? 0 : askedWaitMs(record))
    if (record.error !== null || attempt === null || attempt.wasPaused) return
    const tokens = attempt.usage?.outputTokens ?? attempt.outputQuarters / QUARTERS
    health.measured(nowMs, tokens, this.#exchange.request.stream === true)
  }

  #passOver(candidate: RouteCandidate): RouteCandidate | undefined {
    this.#passed = [...this.#passed, candidate]
    const { bill, candidates, fallbacks } = this.#exchange
    if (!fallbacks) return undefined
    const isPaidAlike = ({ credential }: RouteCandidate): boolean =>
      bill.closed === null || (credential === null) === (candidate.credential === null)
    return nextCandidate(candidates, this.#soFar(), isPaidAlike)
  }

  /** No other candidate is asked if the caller has left or the request was ended here. */
  #after(candidate: RouteCandidate, error: GatewayError): RouteCandidate | undefined {
    const { candidates, fallbacks, signal } = this.#exchange
    if (!fallbacks || signal.aborted) return undefined
    const next = candidateAfter(candidates, candidate, error, this.#soFar())
    // A request that does not fit the model adds nothing to the load of an outage.
    if (next === undefined || error.retry !== 'endpoint' || this.isRetrying) return next
    this.isRetrying = this.#deps.retries.take()
    this.#deps.metrics.retries.inc({ outcome: this.isRetrying ? 'tried' : 'over_budget' })
    return this.isRetrying ? next : undefined
  }

  /** A second attempt that is answered is a request like any other, however long its answer is. */
  #endRetry(): void {
    if (!this.isRetrying) return
    this.isRetrying = false
    this.#deps.retries.release()
  }

  #soFar() {
    const { attempts, bill } = this.#exchange
    return { attempts: attempts.slice(this.#from), passed: this.#passed, hasCharge: bill.closed !== null }
  }
}

function remove(attempts: AttemptRecord[], record: AttemptRecord): void {
  const at = attempts.indexOf(record)
  if (at !== -1) attempts.splice(at, 1)
}

/** An attempt that brought no reply. */
interface Unanswered {
  readonly asked: RouteCandidate
  /** Null: the endpoint was not asked. */
  readonly error: GatewayError | null
  /** Nobody else may be asked. */
  readonly isLast?: boolean
  /** The other attempt of a race brought content first. */
  readonly isOutrun?: true
}

type Result = ModelReply | Unanswered

/** True if the second attempt of a race counts more than the first one, which has failed or was outrun. */
function hasEnded(second: Result): boolean {
  return isReply(second) || (second.error !== null && second.isOutrun !== true)
}

function isReply(result: Result): result is ModelReply {
  return 'finish' in result
}

/** Parts of a token in which output is counted. */
const QUARTERS = 4

/** The model call went to a batch service: the exchange ends here, and another one has its reply later. */
export class Deferred extends Error {
  constructor() {
    super('a batch service has the model call')
  }
}

const NOTHING_SAID: CallFigures = {
  usage: null,
  finish: null,
  outputQuarters: 0,
  isThoughtSeen: false,
  sentBytes: 0,
  isCut: false,
  isStalled: false,
  wasPaused: false,
  pieceQuarters: 0,
}

/** Opens the key of the candidate, and then the attempt. A promise only where one has to. */
function openAttempt(
  deps: ModelCallDeps,
  exchange: RoutedExchange,
  call: ModelCall,
  candidate: RouteCandidate,
  record: AttemptRecord,
): ReturnType<ModelCall['open']> {
  const { credential, endpoint } = candidate
  const service = exchange.batch?.service
  if (service?.kind === 'collection') {
    record.providerKey = service.providerKey
    return call.open(candidate, record)
  }
  const { providerKeys } = deps
  const key = credential === null ? providerKeys.shared(endpoint) : providerKeys.own(credential, endpoint)
  if (key === null) return call.open(candidate, record)
  return whenReady<OutgoingKey | null, OpenedAttempt | null>(key, opened => {
    record.providerKey = opened
    return call.open(candidate, record)
  })
}

function noteImplausible({ log, metrics }: ModelCallDeps, { endpoint }: RouteCandidate): void {
  const { slug } = endpoint.provider
  metrics.usageImplausible.inc({ provider: slug })
  log.notice('a provider reported implausible usage; a corrected usage was charged', {
    provider: slug,
    model: endpoint.modelId,
  })
}

function openRecord({ endpoint, credential }: RouteCandidate): AttemptRecord {
  return {
    endpoint,
    credential,
    isByok: credential !== null,
    providerKey: null,
    upstreamId: null,
    status: null,
    error: null,
    isRefused: false,
    isStarted: false,
  }
}

/** Failures that a provider had a part in, whoever found them. */
const OF_PROVIDERS: ReadonlySet<FailureCode> = new Set<FailureCode>([
  'provider_unavailable',
  'upstream_timeout',
  'unprocessable',
])

/** The failure with the name of the provider that it was met at, unless it has one. */
function withProvider(error: GatewayError, { endpoint }: AttemptRecord): GatewayError {
  if (!OF_PROVIDERS.has(error.code) || error.metadata?.['provider_name'] !== undefined) return error
  return rewritten(error, { metadata: { ...error.metadata, provider_name: endpoint.provider.name } })
}

/** The thrown value as a GatewayError; one we did not foresee is logged with its cause. */
export function asGatewayError({ log }: Pick<AttemptDeps, 'log'>, thrown: unknown): GatewayError {
  const error = toGatewayError(thrown)
  if (error.code === 'internal') log.fault('exchange failed', error.cause ?? error)
  return error
}
