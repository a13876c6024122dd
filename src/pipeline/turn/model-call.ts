/**
 * Model call: tries the candidates in order until one has answered. After a failure that the client has not seen, it
 * tries the next one. Every attempt takes the same path: health, key, terms, encoded request, attempt, and back with
 * its result. Subclasses define the request and the receiver of the reply: a turn, or an embeddings call.
 */
import { type GatewayError, overloaded } from '../../base/errors.ts'
import { resolved } from '../../base/maybe-promise.ts'
import type { AttemptRecord, Candidate, Finish } from '../../exchange/exchange.ts'
import type { WireRequest } from '../../formats/format.ts'
import type { UpstreamRequest } from '../../providers/upstream/transport.ts'
import {
  type CallFigures,
  noteImplausible,
  settle,
  type UsageEstimates,
  unseenTokens,
  type VisibleStreams,
} from '../accounting/account.ts'
import type { RoutedExchange } from '../exchange-stages.ts'
import {
  candidateAfter,
  lastError,
  nextCandidate,
  nobodyNow,
  noteHealth,
  openRecord,
  type RetryBudget,
  type RouteCandidate,
  type Routing,
  type Waiting,
} from '../routing/rank.ts'
import type { Attempt } from './attempt.ts'
import { closeSpan, openSpan } from './attempt-spans.ts'
import type { AttemptTarget } from './attempt-target.ts'
import type { AttemptDeps } from './attempt-terms.ts'
import { countGenAi } from './gen-ai-call.ts'
import {
  better,
  type HedgedCall,
  type ModelReply,
  type Race,
  type Result,
  raceOf,
  remove,
  type Unanswered,
} from './hedge.ts'
import { asGatewayError, hasAnotherResource, withProvider } from './provider-failure.ts'
import type { ProviderKeys, ProviderRequests } from './provider-request.ts'
import { NOTHING_SAID } from './reply-figures.ts'

export interface ModelCallDeps extends AttemptDeps {
  /** Opens keys; a promise only if a key is not in memory. Fails with a GatewayError. */
  readonly providerKeys: ProviderKeys
  readonly requests: Pick<ProviderRequests, 'encode' | 'address' | 'endUserOf'>
  /** Null: outcomes say nothing about the health of endpoints now. Absent: routing's health is used. */
  readonly health?: null
  readonly routing: Routing
  readonly retries: RetryBudget
  readonly visibleStreams: VisibleStreams
}

const NOBODY: readonly never[] = []

/** Continues with the reply of a model call; null if there is none. */
type Onward<Then> = (reply: ModelReply | null) => Then | Promise<Then>

/** Tries candidates for one model call. `Terms`: the request of one attempt and its settings. */
export abstract class ModelCall<Deps extends ModelCallDeps, Each extends RoutedExchange, Terms>
  implements HedgedCall
{
  readonly deps: Deps
  readonly exchange: Each
  /** True if the call has a place in the retry budget. */
  isRetrying = false
  /** The first attempt of this call among those of the exchange. */
  readonly from: number
  /** Undefined: estimates for text. */
  protected readonly estimates: UsageEstimates | undefined
  /** Candidates that were skipped without an attempt. */
  #passed: readonly RouteCandidate[] = NOBODY
  /** Skipped candidates that must not be called now. */
  #waiting: readonly Waiting[] = NOBODY

  constructor(deps: Deps, exchange: Each, estimates?: UsageEstimates) {
    this.deps = deps
    this.exchange = exchange
    this.estimates = estimates
    this.from = exchange.attempts.length
  }

  /** True if two attempts may run at once. Called only if the settings allow it. */
  protected hedges(): boolean {
    return false
  }

  /** True if the client has seen some of the reply, so that no other candidate may be called. */
  protected abstract isSeen(): boolean
  /** Drops the output of a failed attempt. */
  protected abstract drop(): void
  /**
   * Prepares an attempt at a candidate whose key is open. Null if the caller's limits leave nothing for it. A promise
   * only if it has to wait.
   */
  protected abstract prepare(candidate: RouteCandidate): Terms | null | Promise<Terms | null>
  /** @throws GatewayError `unprocessable` */
  protected abstract encode(record: AttemptRecord, terms: Terms): WireRequest
  /** True if a batch service has taken the call. Called only for batch lines. */
  protected submits(_record: AttemptRecord, _terms: Terms, _wire: WireRequest): boolean {
    return false
  }
  protected abstract open(record: AttemptRecord, terms: Terms): Attempt
  /** The maximum number of tokens that the model may write, or that the caller's limits have reserved. */
  protected abstract mostTokens(record: AttemptRecord, terms: Terms): number
  /** Creates the receiver of the reply: when the attempt runs or, in a race, when it has won. */
  protected abstract target(attempt: Attempt, record: AttemptRecord, terms: Terms): AttemptTarget

  /**
   * Calls the candidates, starting with this one, and passes the reply to `onward`. Null if the caller's limits leave
   * nothing, or if a batch service has taken the call, as the exchange then shows. Rejects with the last failure when
   * no candidate is left, immediately if the client has seen some of the reply, and as `onward` does.
   */
  ask<Then>(first: RouteCandidate | undefined, onward: Onward<Then>): Promise<Then> {
    this.deps.retries.enter()
    return this.#askFrom(first, onward)
  }

  /** Uses callbacks, because they need less memory than an async function that waits as long as the stream is open. */
  #askFrom<Then>(candidate: RouteCandidate | undefined, onward: Onward<Then>): Promise<Then> {
    if (candidate === undefined) return this.#askedAll(onward)
    const race = this.deps.routing.hedgeAfterMs === null || !this.hedges() ? null : raceOf(this, candidate)
    const ended = (result: Result): Then | Promise<Then> => {
      if (!('finish' in result)) return this.#askNext(result, onward)
      this.deps.retries.leave(this.isRetrying)
      return onward(result)
    }
    if (race === null) return this.#run(candidate, null, ended)
    return this.run(candidate, race)
      .then(first => better(this, first, race))
      .then(ended)
  }

  async #askedAll<Then>(onward: Onward<Then>): Promise<Then> {
    this.deps.retries.leave(this.isRetrying)
    const { attempts, isSubmitted } = this.exchange
    if (!isSubmitted) {
      if (attempts.length > this.from) throw lastError(attempts.slice(this.from))
      // Under a limit that is spent, waiting for a provider is of no use.
      const payable = this.#waiting.filter(({ candidate }) => this.#isPayable(candidate))
      if (payable.length > 0) throw nobodyNow(payable)
    }
    return onward(null)
  }

  #isPayable({ credential }: Candidate): boolean {
    const allowance = this.exchange.reservation?.allowance ?? null
    return allowance === null || allowance.rest(credential !== null) >= 0
  }

  #askNext<Then>(result: Unanswered, onward: Onward<Then>): Promise<Then> {
    let next: RouteCandidate | undefined
    try {
      next = this.#next(result)
    } catch (thrown) {
      this.deps.retries.leave(this.isRetrying)
      throw thrown
    }
    return this.#askFrom(next, onward)
  }

  /** The next candidate to try, if there is one. @throws the failure, if no other candidate may be called */
  #next({ asked, error, isLast, hasAnother }: Unanswered): RouteCandidate | undefined {
    if (error === null) return isLast === true ? undefined : this.#passOver(asked)
    if (error.code === 'client_closed' || this.isSeen()) throw error
    this.drop()
    return hasAnother === true ? asked : this.#after(asked, error)
  }

  /** Runs an attempt that races with another one, to its end. Never rejects. */
  run(candidate: RouteCandidate, race: Race): Promise<Result> {
    return this.#run<Result>(candidate, race, result => result)
  }

  /** Runs an attempt to its end, and passes its result to `ended`. Rejects as `ended` does. */
  #run<Then>(
    candidate: RouteCandidate,
    race: Race | null,
    ended: (result: Result) => Then | Promise<Then>,
  ): Promise<Then> {
    const { deps, exchange } = this
    const { credential, endpoint } = candidate
    const record = openRecord(candidate, exchange.bill.turns)
    let figures: CallFigures = NOTHING_SAID
    let sent: Terms | null = null
    const send = (terms: Terms | null): Unanswered | Promise<Finish | Unanswered> => {
      if (terms === null) return this.#leave(candidate, record)
      const { batch, callerContext, held, signal, spans } = exchange
      if (signal.aborted) throw signal.reason
      // Nothing is encoded if the thread's memory is already full.
      if (!held.hold(0)) throw overloaded()
      const wire = this.encode(record, terms)
      if (batch !== undefined && this.submits(record, terms, wire)) {
        exchange.isSubmitted = true
        return { ...this.#leave(candidate, record), isLast: true }
      }
      const { span } = record
      const header = span === undefined ? callerContext?.header : spans?.header(span)
      const state = (span === undefined ? callerContext : spans)?.state
      const request = deps.requests.address(record, wire, held.bytes, header, state)
      if (request instanceof Promise)
        return request.then<Finish | Unanswered>(addressed => begin(terms, addressed))
      return begin(terms, request)
    }
    const begin = (terms: Terms, request: UpstreamRequest): Unanswered | Promise<Finish> => {
      if (race?.isDecided === true) return this.#leave(candidate, record)
      const attempt = this.open(record, terms)
      figures = attempt.figures
      sent = terms
      return attempt.run(
        request,
        race === null
          ? this.target(attempt, record, terms)
          : race.enter(record, attempt, () => this.target(attempt, record, terms)),
      )
    }
    const result = (outcome: Finish | Unanswered): Then | Promise<Then> =>
      ended('asked' in outcome ? outcome : this.#answered(candidate, record, figures, outcome))
    const failed = (thrown: unknown): Then | Promise<Then> =>
      ended(this.#failed(candidate, record, figures, thrown, sent))

    if (!this.#begin(candidate, record)) return resolved(() => ended({ asked: candidate, error: null }))
    record.startedMs = record.health?.beganMs ?? deps.clock.monotonicMs()
    const isBeside = race?.isRunning === true
    if (!isBeside) exchange.watch.beginAttempt(record.startedMs, exchange.attempts.length > this.from)
    exchange.attempts.push(record)
    if (exchange.spans !== null) openSpan(exchange, record, this.from, isBeside, deps.clock)
    let sending: Unanswered | Promise<Finish | Unanswered>
    try {
      const key =
        credential === null ? deps.providerKeys.shared(endpoint) : deps.providerKeys.own(credential, endpoint)
      let terms: Terms | null | Promise<Terms | null>
      if (key instanceof Promise) {
        terms = key.then(opened => {
          record.providerKey = opened
          return this.prepare(candidate)
        })
      } else {
        record.providerKey = key
        terms = this.prepare(candidate)
      }
      sending = terms instanceof Promise ? terms.then(send) : send(terms)
    } catch (thrown) {
      return resolved(() => failed(thrown))
    }
    return sending instanceof Promise ? sending.then(result, failed) : resolved(() => result(sending))
  }

  #answered(candidate: RouteCandidate, record: AttemptRecord, figures: CallFigures, finish: Finish): Result {
    const { deps, exchange } = this
    try {
      const nowMs = record.endedMs
      noteHealth(exchange, record, figures, nowMs, deps.metrics)
      const isPlausible = settle(exchange, record, figures, this.estimates)
      if (!isPlausible) noteImplausible(deps, record)
      const { genAi } = deps.metrics
      if (genAi !== null) countGenAi(genAi, exchange, record, isPlausible ? figures.usage : null, nowMs)
      if (record.span !== undefined) closeSpan(exchange, record, figures, deps.clock)
      // The deployment behind a BYOK key belongs to the caller, so it says nothing about the deployments of others.
      if (exchange.request.stream === true && candidate.credential === null) {
        deps.visibleStreams.note(candidate.endpoint, exchange.prompt, exchange.caller.keyHash, figures)
      }
      return { candidate, record, figures, finish }
    } catch (thrown) {
      return this.#failed(candidate, record, figures, thrown)
    }
  }

  #failed(
    candidate: RouteCandidate,
    record: AttemptRecord,
    figures: CallFigures,
    thrown: unknown,
    terms: Terms | null = null,
  ): Unanswered {
    const { deps, exchange } = this
    record.endedMs = deps.clock.monotonicMs()
    if (record.isOutrun === true) {
      record.health?.ended('none', record.endedMs)
      if (record.span !== undefined) exchange.spans?.outrun(record.span, record.endedMs)
      return { asked: candidate, error: record.error, isOutrun: true }
    }
    const error = withProvider(asGatewayError(deps, thrown), record)
    record.error = error
    const hasAnother = hasAnotherResource(record, error, exchange, this.from, record.endedMs)
    if (!hasAnother) noteHealth(exchange, record, figures, record.endedMs, deps.metrics)
    if (deps.metrics.genAi !== null) countGenAi(deps.metrics.genAi, exchange, record, null, record.endedMs)
    settle(exchange, record, figures, this.estimates, this.#unseenTokens(record, figures, terms))
    if (record.span !== undefined) closeSpan(exchange, record, figures, deps.clock)
    return hasAnother ? { asked: candidate, error, hasAnother } : { asked: candidate, error }
  }

  /** Tokens that the model may have written before the call was ended on this side; 0 if there was content. */
  #unseenTokens(record: AttemptRecord, figures: CallFigures, terms: Terms | null): number {
    const { endpoint, endedMs, health, startedMs } = record
    const { prompt, request, signal } = this.exchange
    if (!signal.aborted || terms === null || figures.outputQuarters > 0) return 0
    return unseenTokens({
      endpoint,
      request: prompt,
      isWhole: request.stream !== true,
      isVisible: this.deps.visibleStreams.isVisible(endpoint, prompt),
      silentMs: endedMs - (health?.sentMs ?? startedMs),
      tokensPerSecond: health?.state.throughput?.percentiles(endedMs)?.p50 ?? null,
      mostTokens: this.mostTokens(record, terms),
    })
  }

  /** Skips a candidate. */
  #leave(asked: RouteCandidate, record: AttemptRecord): Unanswered {
    const { attempts, bill, spans } = this.exchange
    if (record.span !== undefined) spans?.drop(record.span)
    remove(attempts, record)
    record.health?.ended('none', this.deps.clock.monotonicMs())
    return { asked, error: null, isLast: bill.closed !== null }
  }

  /** False if the endpoint must not be called now. */
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
    const isLimited = state.isLimited(nowMs, caller)
    this.#waiting = [...this.#waiting, { candidate, isLimited, waitMs: state.waitMs(nowMs, caller) }]
    this.exchange.passedOver = this.#waiting
    return false
  }

  #passOver(candidate: RouteCandidate): RouteCandidate | undefined {
    this.#passed = [...this.#passed, candidate]
    const { bill, candidates, ranking } = this.exchange
    if (!ranking.fallbacks) return undefined
    const isPaidAlike = ({ credential }: RouteCandidate): boolean =>
      bill.closed === null || (credential === null) === (candidate.credential === null)
    return nextCandidate(candidates, this.soFar(), isPaidAlike)
  }

  /** Returns no candidate if the caller has left or the request was ended here. */
  #after(candidate: RouteCandidate, error: GatewayError): RouteCandidate | undefined {
    const { candidates, ranking, signal } = this.exchange
    if (!ranking.fallbacks || signal.aborted) return undefined
    const next = candidateAfter(candidates, candidate, error, this.soFar())
    // A request that the model cannot serve does not add to the load of an outage.
    if (next === undefined || error.retry !== 'endpoint' || this.isRetrying) return next
    this.isRetrying = this.deps.retries.take()
    this.deps.metrics.retries.inc({ outcome: this.isRetrying ? 'tried' : 'over_budget' })
    return this.isRetrying ? next : undefined
  }

  /** Once a second attempt has been answered, it is a request like any other, however long its answer is. */
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
