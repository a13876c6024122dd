/**
 * Model call: tries the candidates in order until one has answered. After a failure that the client has not seen, it
 * asks the next one. One road for each attempt: health, key, terms, encoded request, attempt, and back with its result.
 * Subclasses say what is asked, and who takes the reply: a turn, or a call for embeddings.
 */
import type { Credential } from '../../credentials/catalog.ts'
import { type GatewayError, overloaded } from '../../errors.ts'
import type { AttemptRecord } from '../../exchange/exchange.ts'
import type { WireRequest } from '../../formats/format.ts'
import type { Endpoint, OutgoingKey } from '../../providers/provider.ts'
import { isPending } from '../../ready.ts'
import type { UpstreamRequest } from '../../upstream/transport.ts'
import { type CallFigures, settle, type UsageEstimates, type VisibleStreams } from '../accounting/account.ts'
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
} from '../routing/rank.ts'
import type { RoutedExchange } from '../running.ts'
import type { Attempt, AttemptDeps } from './attempt.ts'
import type { AttemptTarget } from './attempt-target.ts'
import {
  better,
  type HedgedCall,
  isReply,
  type ModelReply,
  type Race,
  type Result,
  raceOf,
  remove,
  type Unanswered,
} from './hedge.ts'
import { asGatewayError, withProvider } from './provider-failure.ts'
import type { ProviderRequests } from './provider-request.ts'

export interface ModelCallDeps extends AttemptDeps {
  /** Opens keys; a promise only when one is not at hand. Fails with a GatewayError. */
  readonly providerKeys: ProviderKeys
  readonly requests: Pick<ProviderRequests, 'encode' | 'address' | 'endUserOf'>
  /** Null: what comes says nothing about the health of endpoints now. Absent: as routing has it. */
  readonly health?: null
  readonly routing: Routing
  readonly retries: RetryBudget
  readonly visibleStreams: VisibleStreams
}

/** The keys of attempts: own ones, and shared ones that their provider's row cannot carry as they are. */
export interface ProviderKeys {
  own(credential: Credential, endpoint: Endpoint): OutgoingKey | Promise<OutgoingKey>
  shared(endpoint: Endpoint): OutgoingKey | null | Promise<OutgoingKey | null>
}

const NOBODY: readonly never[] = []

/** `Terms`: what one attempt asks, and how. */
export abstract class ModelCall<Deps extends ModelCallDeps, Each extends RoutedExchange, Terms>
  implements HedgedCall
{
  readonly deps: Deps
  readonly exchange: Each
  /** It has a place in the retry budget. */
  isRetrying = false
  /** The first attempt of this call among those of the exchange. */
  readonly from: number
  /** Candidates that were passed over without an attempt. */
  #passed: readonly RouteCandidate[] = NOBODY
  /** Those of them that must not be asked now. */
  #waiting: readonly Waiting[] = NOBODY

  constructor(deps: Deps, exchange: Each) {
    this.deps = deps
    this.exchange = exchange
    this.from = exchange.attempts.length
  }

  /** True if two attempts of it may run at once. */
  protected get hedges(): boolean {
    return false
  }

  /** Undefined: those of text. */
  protected get estimates(): UsageEstimates | undefined {
    return undefined
  }

  /** True if the client has seen some of it, so that nobody else may be asked. */
  protected abstract isSeen(): boolean
  /** Drops what a failed attempt has brought. */
  protected abstract drop(): void
  /**
   * Prepares an attempt at a candidate whose key is open. Null: the limits of the caller leave nothing for it. A
   * promise only where something has to be awaited.
   */
  protected abstract prepare(candidate: RouteCandidate): Terms | null | Promise<Terms | null>
  /** @throws GatewayError `unprocessable` */
  protected abstract encode(record: AttemptRecord, terms: Terms): WireRequest
  /** True if a batch service has taken the call. */
  protected submits(_record: AttemptRecord, _terms: Terms, _wire: WireRequest): boolean {
    return false
  }
  protected abstract open(record: AttemptRecord, terms: Terms): Attempt
  /** Makes the receiver of the reply: when the attempt runs or, in a race, when it has won. */
  protected abstract target(attempt: Attempt, record: AttemptRecord, terms: Terms): AttemptTarget

  /**
   * Asks the candidates, this one first. Rejects with the last failure when no candidate is left, at once when the
   * client has seen some of the reply. Null: the limits of the caller leave nothing for it, and nobody was asked; or a
   * batch service has taken the call, as the exchange says then.
   */
  async ask(first: RouteCandidate | undefined): Promise<ModelReply | null> {
    const { attempts } = this.exchange
    const { retries } = this.deps
    retries.enter()
    try {
      let next = first
      while (next !== undefined) {
        const race = this.hedges ? raceOf(this, next) : null
        const ended = await this.run(next, race)
        const result = race === null ? ended : await better(this, ended, race)
        if (isReply(result)) return result
        next = this.#next(result)
      }
    } finally {
      retries.leave(this.isRetrying)
    }
    if (this.exchange.isSubmitted) return null
    if (attempts.length > this.from) throw lastError(attempts.slice(this.from))
    if (this.#waiting.length > 0 && this.#waiting.length === this.#passed.length)
      throw nobodyNow(this.#waiting)
    return null
  }

  /** The candidate to try after this one, if there is one. */
  #next({ asked, error, isLast }: Exclude<Result, ModelReply>): RouteCandidate | undefined {
    if (error === null) return isLast === true ? undefined : this.#passOver(asked)
    if (error.code === 'client_closed' || this.isSeen()) throw error
    this.drop()
    return this.#after(asked, error)
  }

  /** Runs an attempt to its end. `race`: with another one, if that begins. Never rejects. */
  async run(candidate: RouteCandidate, race: Race | null): Promise<Result> {
    const { deps, exchange } = this
    const { attempts } = exchange
    const record = openRecord(candidate)
    if (!this.#begin(candidate, record)) return { asked: candidate, error: null }
    // A second attempt beside the first one replaces nothing.
    if (race?.isRunning !== true) {
      exchange.watch.beginAttempt(deps.clock.monotonicMs(), attempts.length > this.from)
    }
    attempts.push(record)
    let figures: CallFigures = NOTHING_SAID
    try {
      const { credential, endpoint } = candidate
      const key =
        credential === null ? deps.providerKeys.shared(endpoint) : deps.providerKeys.own(credential, endpoint)
      record.providerKey = isPending(key) ? await key : key
      const preparing = this.prepare(candidate)
      const terms = isPending(preparing) ? await preparing : preparing
      if (terms === null) return this.#leave(candidate, record)
      const request = this.#requestOf(record, terms)
      if (request === null) {
        exchange.isSubmitted = true
        return { ...this.#leave(candidate, record), isLast: true }
      }
      const addressed = isPending(request) ? await request : request
      if (race?.isDecided === true) return this.#leave(candidate, record)
      const attempt = this.open(record, terms)
      figures = attempt.figures
      const finish = await attempt.run(
        addressed,
        race === null
          ? this.target(attempt, record, terms)
          : race.enter(record, attempt, () => this.target(attempt, record, terms)),
      )
      this.#noteHealth(record, figures)
      if (!settle(exchange, record, figures, this.estimates)) noteImplausible(deps, candidate)
      // The deployment behind an own key is the caller's, and shows nothing about that of others.
      if (exchange.request.stream === true && credential === null) {
        deps.visibleStreams.note(endpoint, exchange.prompt, exchange.caller.keyHash, figures)
      }
      return { candidate, record, figures, finish }
    } catch (thrown) {
      if (record.isOutrun === true) {
        record.health?.ended('none', deps.clock.monotonicMs())
        return { asked: candidate, error: record.error, isOutrun: true }
      }
      const error = withProvider(asGatewayError(deps, thrown), record)
      record.error = error
      this.#noteHealth(record, figures)
      settle(exchange, record, figures, this.estimates)
      return { asked: candidate, error }
    }
  }

  /** The request as it is sent; null: a batch service has taken it. */
  #requestOf(record: AttemptRecord, terms: Terms): UpstreamRequest | Promise<UpstreamRequest> | null {
    const { held, signal, callerContext } = this.exchange
    signal.throwIfAborted()
    // Nothing is encoded where the thread has no room as it is.
    if (!held.hold(0)) throw overloaded()
    const wire = this.encode(record, terms)
    if (this.submits(record, terms, wire)) return null
    return this.deps.requests.address(record, wire, held.bytes, callerContext?.header)
  }

  /** The candidate is not asked. */
  #leave(asked: RouteCandidate, record: AttemptRecord): Unanswered {
    const { attempts, bill } = this.exchange
    remove(attempts, record)
    record.health?.ended('none', this.deps.clock.monotonicMs())
    return { asked, error: null, isLast: bill.closed !== null }
  }

  /** False: the endpoint must not be asked now. */
  #begin(candidate: RouteCandidate, record: AttemptRecord): boolean {
    if (this.deps.health === null) return true
    const { health } = this.deps.routing
    const { caller } = this.exchange
    const { endpoint, credential } = candidate
    const state = health.of(endpoint, credential === null ? null : credential.id)
    const entry = health.begin(state, caller)
    if (entry !== null) {
      record.health = entry
      if (this.isRetrying) entry.onAnswered = () => this.endRetry()
      return true
    }
    const nowMs = this.deps.clock.monotonicMs()
    const waiting = {
      candidate,
      isLimited: state.isLimited(nowMs, caller),
      waitMs: state.waitMs(nowMs, caller),
    }
    this.#waiting = [...this.#waiting, waiting]
    return false
  }

  #noteHealth(record: AttemptRecord, figures: CallFigures): void {
    const { health } = record
    if (health === undefined) return
    const nowMs = this.deps.clock.monotonicMs()
    const { prompt, signal } = this.exchange
    // A request that was ended on this side, by a drain for instance, says nothing about the endpoint.
    const isOurs = record.error !== null && signal.aborted
    health.ended(isOurs ? 'none' : verdictOf(record, prompt), nowMs, isOurs ? 0 : askedWaitMs(record))
    if (record.error !== null || figures.wasPaused) return
    const tokens = figures.usage?.outputTokens ?? figures.outputQuarters / QUARTERS
    health.measured(nowMs, tokens, this.exchange.request.stream === true)
  }

  #passOver(candidate: RouteCandidate): RouteCandidate | undefined {
    this.#passed = [...this.#passed, candidate]
    const { bill, candidates, fallbacks } = this.exchange
    if (!fallbacks) return undefined
    const isPaidAlike = ({ credential }: RouteCandidate): boolean =>
      bill.closed === null || (credential === null) === (candidate.credential === null)
    return nextCandidate(candidates, this.soFar(), isPaidAlike)
  }

  /** No other candidate is asked if the caller has left or the request was ended here. */
  #after(candidate: RouteCandidate, error: GatewayError): RouteCandidate | undefined {
    const { candidates, fallbacks, signal } = this.exchange
    if (!fallbacks || signal.aborted) return undefined
    const next = candidateAfter(candidates, candidate, error, this.soFar())
    // A request that does not fit the model adds nothing to the load of an outage.
    if (next === undefined || error.retry !== 'endpoint' || this.isRetrying) return next
    this.isRetrying = this.deps.retries.take()
    this.deps.metrics.retries.inc({ outcome: this.isRetrying ? 'tried' : 'over_budget' })
    return this.isRetrying ? next : undefined
  }

  /** A second attempt that is answered is a request like any other, however long its answer is. */
  endRetry(): void {
    if (!this.isRetrying) return
    this.isRetrying = false
    this.deps.retries.release()
  }

  soFar() {
    const { attempts, bill } = this.exchange
    return { attempts: attempts.slice(this.from), passed: this.#passed, hasCharge: bill.closed !== null }
  }
}

/** Parts of a token in which output is counted. */
const QUARTERS = 4

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

function noteImplausible({ log, metrics }: ModelCallDeps, { endpoint }: RouteCandidate): void {
  const { slug } = endpoint.provider
  metrics.usageImplausible.inc({ provider: slug })
  log.notice('gateway', 'provider reported implausible usage; a corrected usage was charged', {
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
