/**
 * Model call: tries the candidates in order until one has answered. After a failure that the client has not seen, it
 * tries the next one. Every attempt takes the same path: health, key, terms, encoded request, attempt, and back with
 * its result. Turns and embeddings calls differ in their requests and in the receivers of their replies.
 *
 * Uses callbacks, because they need less memory than async functions that wait as long as the stream is open.
 */
import { overloadError } from '../../base/errors.ts'
import { resolved } from '../../base/maybe-promise.ts'
import { isLossy } from '../../exchange/changes.ts'
import type { AttemptRecord, Candidate, Finish } from '../../exchange/exchange.ts'
import type { Change, Usage, WireRequest } from '../../formats/format.ts'
import { DIALECT_ABILITIES } from '../../protocol/dialect-abilities.ts'
import type { OutgoingKey } from '../../protocol/provider.ts'
import type { EndpointState } from '../../providers/health/endpoint-state.ts'
import type { UpstreamRequest } from '../../providers/upstream/transport.ts'
import { type CallFigures, noteImplausible, settle } from '../accounting/charge.ts'
import { unseenTokens } from '../accounting/estimate.ts'
import type { UsageEstimates } from '../accounting/usage-check.ts'
import type { VisibleStreams } from '../accounting/visible-streams.ts'
import type { RoutedExchange } from '../exchange-stages.ts'
import type { RouteCandidate } from '../routing/candidate.ts'
import type { Routing } from '../routing/rank-input.ts'
import { tooLossy } from '../routing/refusal.ts'
import type { Attempt, AttemptDeps } from './attempt.ts'
import type { AttemptTarget } from './attempt-target.ts'
import type { BrokenReply } from './continuation.ts'
import {
  type BlockedModel,
  candidateAfter,
  lastError,
  nextCandidate,
  nobodyNow,
  noteHealth,
  openRecord,
  type RetryBudget,
} from './failover.ts'
import {
  betterResult,
  type CallWithoutReply,
  endRetry,
  type HedgedCall,
  type ModelReply,
  progressOf,
  type Race,
  type Result,
  raceOf,
  removeAttempt,
} from './hedge.ts'
import { asGatewayError, hasAnotherResource, withProvider } from './provider-failure.ts'
import { type ProviderKeys, type ProviderRequests, requiresAll } from './provider-request.ts'
import type { RefusedKeys } from './refused-keys.ts'
import { NO_FIGURES } from './reply-reading.ts'
import { NO_REQUEST } from './stored-transport.ts'

export interface ModelCallDeps extends AttemptDeps {
  /** Opens keys; a promise only if a key is not in memory. Fails with a GatewayError. */
  readonly providerKeys: ProviderKeys
  readonly requests: Pick<ProviderRequests, 'encode' | 'address' | 'endUserOf'>
  readonly routing: Routing
  readonly retries: RetryBudget
  readonly visibleStreams: VisibleStreams
  /** Absent: refused keys are not logged. */
  readonly refusedKeys?: RefusedKeys
}

/** The side of a model call that knows its request and its reply. `Terms`: of one attempt. One object per call. */
export interface CallSubject<Terms> {
  /** Once the client has seen some of the reply, no other candidate is called. */
  readonly draft: { readonly turnSeen: boolean; dropTurn(): void }
  /** True if two attempts may run at once. */
  readonly mayHedge: boolean
  /** Estimates of usage that a provider does not report. */
  readonly estimates: UsageEstimates
  /**
   * Prepares an attempt at a candidate whose key is open. Null if the caller's limits leave nothing for it. A promise
   * only if it has to wait.
   */
  prepare(candidate: RouteCandidate): Terms | null | Promise<Terms | null>
  /** @throws GatewayError `unprocessable` */
  encode(record: AttemptRecord, terms: Terms): WireRequest
  /** True if a batch service has taken the call. Called only for batch lines. */
  submits?(record: AttemptRecord, terms: Terms, wire: WireRequest): boolean
  open(record: AttemptRecord, terms: Terms): Attempt
  /** Creates the receiver of the reply: when the attempt runs or, in a race, when it has won. */
  receive(attempt: Attempt, record: AttemptRecord, terms: Terms): AttemptTarget
  /**
   * The candidate that continues a reply which broke after the client had seen some of it; undefined: none. `next`:
   * the next candidate that may be called, among those wanted.
   */
  goesOn?(
    broken: BrokenReply,
    next: (isWanted: (candidate: RouteCandidate) => boolean) => RouteCandidate | undefined,
  ): RouteCandidate | undefined
  /** The maximum number of tokens that the model may write, or that the caller's limits have reserved. */
  mostTokens(record: AttemptRecord, terms: Terms): number
}

/** A model call on its way through the candidates. */
interface ModelCall<Terms> extends HedgedCall {
  readonly deps: ModelCallDeps
  readonly exchange: RoutedExchange
  readonly subject: CallSubject<Terms>
  /** Skipped candidates that must not be called now. */
  blockedModels: readonly BlockedModel[]
}

/** Continues with the reply of a model call; null if there is none. */
type Onward<Then> = (reply: ModelReply | null) => Then | Promise<Then>

const EMPTY_LIST: readonly never[] = []

/**
 * Calls the candidates, starting with this one, and passes the reply to `onward`. Null if the caller's limits leave
 * nothing, or if a batch service has taken the call, as the exchange then shows. Rejects with the last failure when no
 * candidate is left, immediately if the client has seen some of the reply, and as `onward` does.
 */
export function callModel<Terms, Then>(
  deps: ModelCallDeps,
  exchange: RoutedExchange,
  subject: CallSubject<Terms>,
  first: RouteCandidate | undefined,
  onward: Onward<Then>,
): Promise<Then> {
  deps.retries.enter()
  const from = exchange.attempts.length
  return tryFrom(
    {
      deps,
      exchange,
      subject,
      from,
      isRetrying: false,
      skippedCandidates: EMPTY_LIST,
      blockedModels: EMPTY_LIST,
    },
    first,
    onward,
  )
}

function tryFrom<Terms, Then>(
  call: ModelCall<Terms>,
  candidate: RouteCandidate | undefined,
  onward: Onward<Then>,
): Promise<Then> {
  if (candidate === undefined) return endUnanswered(call, onward)
  const { retries, routing } = call.deps
  const onResult = (result: Result): Then | Promise<Then> => {
    if ('finish' in result) {
      retries.leave(call.isRetrying)
      return onward(result)
    }
    let next: RouteCandidate | undefined
    try {
      next = candidateAfterResult(call, result)
    } catch (thrown) {
      retries.leave(call.isRetrying)
      throw thrown
    }
    return tryFrom(call, next, onward)
  }
  if (routing.hedgeAfterMs !== null && call.subject.mayHedge) {
    const race = raceOf(call, candidate, runToResult)
    if (race !== null)
      return runToResult(call, candidate, race)
        .then(first => betterResult(call, first, race))
        .then(onResult)
  }
  return runAttempt(call, candidate, null, onResult)
}

/** Runs an attempt that races with another one, to its end. Never rejects. */
function runToResult<Terms>(call: ModelCall<Terms>, candidate: RouteCandidate, race: Race): Promise<Result> {
  return runAttempt<Terms, Result>(call, candidate, race, result => result)
}

/** One attempt at a candidate, from its record to its result. */
interface RunningAttempt<Terms> {
  readonly candidate: RouteCandidate
  readonly record: AttemptRecord
  /** Null: it runs alone. */
  readonly race: Race | null
  /** Null until the request is sent. */
  terms: Terms | null
  figures: CallFigures
}

/** Runs an attempt to its end, and passes its result to `onResult`. Rejects as `onResult` does. */
function runAttempt<Terms, Then>(
  call: ModelCall<Terms>,
  candidate: RouteCandidate,
  race: Race | null,
  onResult: (result: Result) => Then | Promise<Then>,
): Promise<Then> {
  const { deps, exchange } = call
  const { attempts, bill, watch } = exchange
  const { credential, endpoint } = candidate
  const record = openRecord(candidate, bill.turns)
  const runningAttempt: RunningAttempt<Terms> = {
    candidate,
    record,
    race,
    terms: null,
    figures: NO_FIGURES,
  }
  const collected = exchange.batch?.collected
  if (collected === undefined) {
    const { health } = deps.routing
    const state = health.of(endpoint, credential === null ? null : credential.id)
    const entry = health.begin(state, exchange.caller)
    if (entry === null) {
      passOver(call, candidate, state)
      return resolved(() => onResult({ candidate, error: null }))
    }
    record.health = entry
    record.startedMs = entry.beganMs
    if (call.isRetrying) entry.onAnswered = () => endRetry(call)
    // A stored reply says nothing about the health of its endpoint now.
  } else record.startedMs = deps.clock.monotonicMs()
  const isBeside = race?.isRunning === true
  if (!isBeside) watch.beginAttempt(record.startedMs, attempts.length > call.from)
  attempts.push(record)
  if (exchange.spans !== null) openSpan(call, record, isBeside)
  let outcome: CallWithoutReply | Promise<Finish | CallWithoutReply>
  try {
    // A shared key without a form of its own is sent as the row has it.
    let key: OutgoingKey | null | Promise<OutgoingKey | null> = null
    if (collected !== undefined) key = collected.providerKey
    else if (credential !== null) key = deps.providerKeys.ownKey(credential, endpoint)
    else if (endpoint.provider.keyForm !== undefined) key = deps.providerKeys.sharedKey(endpoint)
    if (key instanceof Promise) {
      outcome = key.then(openedKey => {
        record.providerKey = openedKey
        return send(call, runningAttempt, call.subject.prepare(candidate))
      })
    } else {
      record.providerKey = key
      outcome = send(call, runningAttempt, call.subject.prepare(candidate))
    }
  } catch (thrown) {
    return resolved(() => onResult(failedResult(call, runningAttempt, thrown)))
  }
  if (!(outcome instanceof Promise)) return resolved(() => onResult(outcome as CallWithoutReply))
  return outcome.then(
    finish => onResult('error' in finish ? finish : answeredResult(call, runningAttempt, finish)),
    thrown => onResult(failedResult(call, runningAttempt, thrown)),
  )
}

/** Encodes and sends the request, once its terms are ready. `terms` null: the caller's limits leave nothing for it. */
function send<Terms>(
  call: ModelCall<Terms>,
  runningAttempt: RunningAttempt<Terms>,
  terms: Terms | null | Promise<Terms | null>,
): CallWithoutReply | Promise<Finish | CallWithoutReply> {
  if (terms instanceof Promise) return terms.then(ready => send(call, runningAttempt, ready))
  if (terms === null) return skipCandidate(call, runningAttempt)
  const { deps, exchange, subject } = call
  const { batch, held, signal, spans } = exchange
  const { callerContext } = exchange.clientRequest.context
  const { record } = runningAttempt
  if (signal.aborted) throw signal.reason
  // Nothing is encoded if the thread's memory is already full.
  if (!held.count(0)) throw overloadError()
  if (batch?.collected !== undefined) return receive(call, runningAttempt, terms, NO_REQUEST)
  const wire = subject.encode(record, terms)
  if (record.changes !== undefined && isRefusedLoss(exchange, record.changes))
    return skipLossy(call, runningAttempt)
  if (batch !== undefined && subject.submits?.(record, terms, wire) === true) {
    exchange.isSubmitted = true
    return { ...skipCandidate(call, runningAttempt), isLast: true }
  }
  const { span } = record
  const header = span === undefined ? callerContext?.header : spans?.header(span)
  const state = (span === undefined ? callerContext : spans)?.state
  const request = deps.requests.address(record, wire, held.bytes, header, state)
  if (request instanceof Promise) return request.then(ready => receive(call, runningAttempt, terms, ready))
  return receive(call, runningAttempt, terms, request)
}

function receive<Terms>(
  call: ModelCall<Terms>,
  runningAttempt: RunningAttempt<Terms>,
  terms: Terms,
  request: UpstreamRequest,
): CallWithoutReply | Promise<Finish | CallWithoutReply> {
  const { race, record } = runningAttempt
  const { subject } = call
  if (race?.isDecided === true) return skipCandidate(call, runningAttempt)
  const attempt = subject.open(record, terms)
  runningAttempt.figures = attempt.figures
  runningAttempt.terms = terms
  return attempt.run(
    request,
    race === null
      ? subject.receive(attempt, record, terms)
      : race.enter(record, attempt, () => subject.receive(attempt, record, terms)),
  )
}

function answeredResult<Terms>(
  call: ModelCall<Terms>,
  runningAttempt: RunningAttempt<Terms>,
  finish: Finish,
): Result {
  const { deps, exchange, subject } = call
  const { candidate, figures, record } = runningAttempt
  try {
    noteHealth(exchange, record, figures, record.endedMs, deps.metrics)
    exchange.finish = finish
    const isPlausible = settle(exchange, record, figures, subject.estimates)
    if (!isPlausible) noteImplausible(deps, record)
    if (deps.metrics.genAi !== null) countGenAi(call, record, isPlausible ? figures.usage : null)
    if (record.span !== undefined) closeSpan(call, record, figures)
    // The deployment behind a BYOK key belongs to the caller, so it says nothing about the deployments of others.
    if (exchange.request.stream === true && candidate.credential === null) {
      deps.visibleStreams.note(candidate.endpoint, exchange.prompt, exchange.caller.keyHash, figures)
    }
    return { candidate, record, figures, finish }
  } catch (thrown) {
    return failedResult(call, runningAttempt, thrown)
  }
}

function failedResult<Terms>(
  call: ModelCall<Terms>,
  runningAttempt: RunningAttempt<Terms>,
  thrown: unknown,
): CallWithoutReply {
  const { deps, exchange, subject } = call
  const { candidate, figures, record } = runningAttempt
  record.endedMs = deps.clock.monotonicMs()
  if (record.isOutrun === true) {
    record.health?.countEnd('none', record.endedMs)
    if (record.span !== undefined) exchange.spans?.outrun(record.span, record.endedMs)
    return { candidate, error: record.error, isOutrun: true }
  }
  const error = withProvider(asGatewayError(deps, thrown), record)
  record.error = error
  if (error.meaning.isOfAccount === true) deps.refusedKeys?.note(record)
  const hasAnother = hasAnotherResource(record, error, exchange, call.from, record.endedMs)
  if (!hasAnother) noteHealth(exchange, record, figures, record.endedMs, deps.metrics)
  if (deps.metrics.genAi !== null) countGenAi(call, record, null)
  exchange.finish = figures.finish
  settle(exchange, record, figures, subject.estimates, unseenTokensOf(call, runningAttempt))
  if (record.span !== undefined) closeSpan(call, record, figures)
  const failed = { record, figures }
  return hasAnother ? { candidate, error, failed, hasAnother } : { candidate, error, failed }
}

/** Tokens that the model may have written before the call was ended on this side; 0 if there was content. */
function unseenTokensOf<Terms>(
  { deps, exchange, subject }: ModelCall<Terms>,
  { figures, record, terms }: RunningAttempt<Terms>,
): number {
  const { endpoint, endedMs, health, startedMs } = record
  const { prompt, request, signal } = exchange
  if (!signal.aborted || terms === null || figures.outputQuarters > 0) return 0
  return unseenTokens({
    endpoint,
    request: prompt,
    isWhole: request.stream !== true,
    isVisible: deps.visibleStreams.isVisible(endpoint, prompt),
    silentMs: endedMs - (health?.sentMs ?? startedMs),
    tokensPerSecond: health?.state.throughput?.percentiles(endedMs)?.p50 ?? null,
    mostTokens: subject.mostTokens(record, terms),
  })
}

/** Skips a candidate whose attempt was not sent. */
function skipCandidate<Terms>(
  { deps, exchange }: ModelCall<Terms>,
  { candidate, record }: RunningAttempt<Terms>,
): CallWithoutReply {
  const { attempts, bill, spans } = exchange
  if (record.span !== undefined) spans?.drop(record.span)
  removeAttempt(attempts, record)
  record.health?.countEnd('none', deps.clock.monotonicMs())
  return { candidate, error: null, isLast: bill.closed !== null }
}

/** True if the caller requires that its request loses nothing. What later turns say is partly the gateway's own. */
function isRefusedLoss({ bill, request }: RoutedExchange, changes: readonly Change[]): boolean {
  return bill.turns === 0 && requiresAll(request) && isLossy(changes)
}

/** Leaves out a candidate for which the request would lose something. */
function skipLossy<Terms>(call: ModelCall<Terms>, runningAttempt: RunningAttempt<Terms>): CallWithoutReply {
  const { candidate, record } = runningAttempt
  const { exchange } = call
  exchange.lossy = [...exchange.lossy, { candidate, changes: record.changes ?? [] }]
  return { ...skipCandidate(call, runningAttempt), isLossy: true }
}

/** Notes a candidate whose endpoint must not be called now. */
function passOver<Terms>(call: ModelCall<Terms>, candidate: RouteCandidate, state: EndpointState): void {
  const { deps, exchange } = call
  const { caller } = exchange
  const nowMs = deps.clock.monotonicMs()
  const isLimited = state.isLimited(nowMs, caller)
  call.blockedModels = [...call.blockedModels, { candidate, isLimited, waitMs: state.waitMs(nowMs, caller) }]
  exchange.passedOver = call.blockedModels
}

/**
 * The next candidate to try; undefined if no other one may be called.
 * @throws the failure, if the caller has left, or has seen some of the reply and no candidate continues it
 */
function candidateAfterResult<Terms>(
  call: ModelCall<Terms>,
  { candidate: called, error, failed, isLast, isLossy: isLeftOut, hasAnother }: CallWithoutReply,
): RouteCandidate | undefined {
  const { deps, exchange, subject } = call
  const { bill, candidates, ranking, signal } = exchange
  if (error === null) {
    if (isLast === true) return undefined
    call.skippedCandidates = [...call.skippedCandidates, called]
    if (!ranking.fallbacks && isLeftOut !== true) return undefined
    const isPaidAlike = ({ credential }: RouteCandidate): boolean =>
      bill.closed === null || (credential === null) === (called.credential === null)
    return nextCandidate(candidates, progressOf(call), isPaidAlike)
  }
  if (error.code === 'client_closed') throw error
  if (subject.draft.turnSeen) {
    const next =
      failed === undefined
        ? undefined
        : subject.goesOn?.({ ...failed, error }, isWanted =>
            ranking.fallbacks && !signal.aborted
              ? candidateAfter(candidates.filter(isWanted), called, error, progressOf(call))
              : undefined,
          )
    if (next === undefined) throw error
    return next
  }
  subject.draft.dropTurn()
  if (hasAnother === true) return called
  if (!ranking.fallbacks || signal.aborted) return undefined
  const next = candidateAfter(candidates, called, error, progressOf(call))
  // A request that the model cannot serve does not add to the load of an outage.
  if (next === undefined || error.retry !== 'endpoint' || call.isRetrying) return next
  call.isRetrying = deps.retries.spend()
  deps.metrics.retries.inc({ outcome: call.isRetrying ? 'tried' : 'over_budget' })
  return call.isRetrying ? next : undefined
}

/** Called when no candidate is left. */
async function endUnanswered<Terms, Then>(
  { deps, exchange, from, isRetrying, blockedModels }: ModelCall<Terms>,
  onward: Onward<Then>,
): Promise<Then> {
  deps.retries.leave(isRetrying)
  const { attempts, isSubmitted, reservation } = exchange
  if (!isSubmitted) {
    if (attempts.length > from) throw lastError(attempts.slice(from))
    // Under a limit that is spent, waiting for a provider is of no use.
    const allowance = reservation?.allowance ?? null
    const isPayable = ({ credential }: Candidate): boolean =>
      allowance === null || allowance.remaining(credential !== null) >= 0
    const payable = blockedModels.filter(({ candidate }) => isPayable(candidate))
    if (payable.length > 0) throw nobodyNow(payable)
    if (exchange.lossy.length > 0) throw tooLossy(exchange.lossy, exchange.clientRequest)
  }
  return onward(null)
}

/** Begins the span of an attempt. Called only while the request is traced. */
function openSpan<Terms>(
  { deps, exchange, from }: ModelCall<Terms>,
  record: AttemptRecord,
  isBeside: boolean,
): void {
  const { attempts, bill, spans } = exchange
  if (spans === null) return
  const kind = isBeside ? 'hedge' : attempts.length > from + 1 ? 'again' : 'first'
  const spanFacts = { kind, isByok: record.isByok, turn: bill.turns } as const
  record.span = spans.attempt(record.endpoint, spanFacts, deps.clock.monotonicMs())
}

/** Ends the span of an attempt whose figures are already in the bill. */
function closeSpan<Terms>(
  { deps, exchange }: ModelCall<Terms>,
  { span, status, error, upstreamId }: AttemptRecord,
  { usage, finish }: CallFigures,
): void {
  if (span === undefined) return
  const { bill, spans } = exchange
  const cost = (bill.total?.cost ?? 0) - (bill.closed?.cost ?? 0)
  const end = {
    status,
    error: error?.code ?? null,
    isOutrun: false,
    upstreamId,
    finish: finish?.reason ?? null,
    usage: usage ?? null,
  }
  spans?.endAttempt(span, end, cost, deps.clock.monotonicMs())
}

/**
 * Records an attempt for the OpenTelemetry GenAI metrics, if they are enabled. `usage` is null if the provider reported
 * none that is plausible.
 */
function countGenAi<Terms>(
  { deps: { metrics }, exchange: { dialect } }: ModelCall<Terms>,
  { endedMs, endpoint, error, health }: AttemptRecord,
  usage: Usage | null,
): void {
  // A stored reply has no times.
  if (health === undefined) return
  const { beganMs, firstTokenMs, perTokenMs } = health
  metrics.genAi?.observe({
    operation: DIALECT_ABILITIES[dialect].embeds ? 'embeddings' : 'chat',
    provider: endpoint.provider.slug,
    model: endpoint.modelId,
    seconds: (endedMs - beganMs) / 1000,
    error: error?.code ?? null,
    inputTokens: usage?.inputTokens ?? null,
    outputTokens: usage?.outputTokens ?? null,
    firstTokenSeconds: firstTokenMs === null ? null : firstTokenMs / 1000,
    perTokenSeconds: perTokenMs === null ? null : perTokenMs / 1000,
  })
}
