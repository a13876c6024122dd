/**
 * Retry rules: the next candidate after a failure, what the failure means for the endpoint, the limit of concurrent
 * retries, and the error when no candidate is left. Hot path.
 */
import { GatewayError, INTERNAL_MESSAGE } from '../../base/errors.ts'
import type { Metrics } from '../../base/metrics/metrics.ts'
import { PROVIDER_STATUSES } from '../../base/provider-statuses.ts'
import type { AttemptRecord, Candidate, Exchange } from '../../exchange/exchange.ts'
import { isUnknownField } from '../../formats/outgoing.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import type { EndpointVerdict } from '../../providers/health/health.ts'
import type { RouteCandidate } from '../routing/candidate.ts'

/** Attempts of one model call. With more, the caller would wait longer than for a retry of its own. */
const MAX_ATTEMPTS = 10
/** Shared endpoints of one model that a model call may try. If three fail, the model most likely fails everywhere. */
const MAX_SHARED_ENDPOINTS = 3

export interface CallProgress {
  /** Attempts of the model call. */
  readonly attempts: readonly Candidate[]
  /** Candidates that the call skipped, because they must not be called now. */
  readonly skippedCandidates: readonly Candidate[]
  /** True if an earlier turn of the exchange was charged. */
  readonly hasCharge: boolean
}

/** Creates the record of a new attempt. */
export function openRecord({ endpoint, credential }: RouteCandidate, turn = 0): AttemptRecord {
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
    startedMs: 0,
    endedMs: 0,
    turn,
    cost: 0,
  }
}

/** The next candidate to call after a failure, if there is one. No candidate is called twice. */
export function candidateAfter(
  candidates: readonly RouteCandidate[],
  failed: RouteCandidate,
  error: GatewayError,
  call: CallProgress,
): RouteCandidate | undefined {
  if (error.retry === 'never') return undefined
  return nextCandidate(
    candidates,
    call,
    ({ endpoint, credential }) =>
      (error.retry === 'endpoint' || endpoint.modelId !== failed.endpoint.modelId) &&
      // One usage record cannot have both charges to credits and charges by the provider.
      (!call.hasCharge || (credential === null) === (failed.credential === null)),
  )
}

/** The first candidate that the call has neither called nor skipped and that its limits allow. */
export function nextCandidate(
  candidates: readonly RouteCandidate[],
  { attempts, skippedCandidates }: CallProgress,
  isWanted: (candidate: RouteCandidate) => boolean,
): RouteCandidate | undefined {
  if (attempts.length >= MAX_ATTEMPTS) return undefined
  return candidates.find(candidate => {
    if (!isWanted(candidate) || isAmong(attempts, candidate) || isAmong(skippedCandidates, candidate))
      return false
    if (candidate.credential !== null) return true
    let shared = 0
    for (const { endpoint, credential } of attempts) {
      if (credential === null && endpoint.modelId === candidate.endpoint.modelId) shared++
    }
    return shared < MAX_SHARED_ENDPOINTS
  })
}

function isAmong(candidates: readonly Candidate[], { endpoint, credential }: Candidate): boolean {
  return candidates.some(entry => entry.endpoint === endpoint && entry.credential?.id === credential?.id)
}

/** Judges an endpoint by an attempt. `request`: the request that was sent there. */
export function verdictOf(
  { status, error, isStarted, isRefused }: AttemptRecord,
  request: ResponsesRequest,
): EndpointVerdict {
  if (error === null || isRefused) return 'ok'
  if (!isStarted || error.wasCounted) return 'none'
  const { health = 'none', isOfAccount } = error.meaning
  if (isOfAccount === true) return 'failed'
  // If the provider refused the request, its status says more than the failure derived from it.
  const isRefusal = health !== 'limited' && status !== null && status >= 400 && status < 500
  const verdict = isRefusal ? (PROVIDER_STATUSES[status]?.health ?? 'none') : health
  if (verdict === 'limited') return TOO_LARGE.test(error.message) ? 'none' : 'limited'
  return verdict === 'named' ? (namesResources(request) ? 'none' : 'failed') : verdict
}

/** OpenAI's error for a single request above the limit per minute: smaller requests are served. */
const TOO_LARGE = /^Request too large\b/i

const TEXT_PART_TYPES: ReadonlySet<unknown> = new Set(['input_text', 'output_text', 'refusal'])

/** True for a request that may name more than its model: a stored prompt, a file, an item, a tool's store. */
function namesResources(request: ResponsesRequest): boolean {
  const { prompt, tools, input } = request
  if (prompt != null || tools?.some(({ type }) => type !== 'function') === true) return true
  if (Object.keys(request).some(isUnknownField)) return true
  return Array.isArray(input) && input.some(itemNamesResources)
}

function itemNamesResources(item: object): boolean {
  const { id, content, output } = item as Readonly<Record<string, unknown>>
  return id != null || [content, output].some(parts => Array.isArray(parts) && parts.some(isNonTextPart))
}

function isNonTextPart(part: { readonly type?: unknown } | null): boolean {
  return !TEXT_PART_TYPES.has(part?.type)
}

/** Milliseconds that the provider asks the gateway to wait; 0 if none. */
export function askedWaitMs({ error }: AttemptRecord): number {
  return error?.meaning.isBusy === true ? (error.retryAfterSeconds ?? 0) * 1_000 : 0
}

/** The speed of an endpoint as seen in one reply. */
interface ReplySpeed {
  readonly usage: { readonly outputTokens: number } | null
  readonly outputQuarters: number
  /** True if its reader was slow at some point. */
  readonly wasPaused: boolean
}

/** Parts of a token in which output is counted. */
const QUARTERS = 4
/** The provider's count of a stream may be this many times our estimate of its text. */
const COUNT_RATIO = 2

/** Reports the outcome and speed of an attempt to the health of its endpoint; metrics show the speed too. */
export function noteHealth(
  { prompt, request, signal }: Pick<Exchange, 'prompt' | 'request' | 'signal'>,
  record: AttemptRecord,
  { usage, outputQuarters, wasPaused }: ReplySpeed,
  nowMs: number,
  metrics: Pick<Metrics, 'speeds'>,
): void {
  const { endpoint, error, health, span } = record
  record.endedMs = nowMs
  if (health === undefined) return
  if (error === null) {
    health.countEnd('ok', nowMs, 0)
    if (wasPaused) return
    const isStream = request.stream === true
    const seenTokens = outputQuarters / QUARTERS
    const tokens = usage?.outputTokens ?? seenTokens
    // The time of a stream begins at its first content: hidden thoughts were written before.
    const isSeen = !isStream || seenTokens === 0 || tokens <= seenTokens * COUNT_RATIO
    health.countSpeed(nowMs, isSeen ? tokens : seenTokens, isStream, metrics, endpoint)
    if (span !== undefined) span.firstTokenMs = health.firstTokenMs
    return
  }
  // A request that was ended on this side, for example by a drain, says nothing about the endpoint.
  if (signal.aborted) health.countEnd('none', nowMs, 0)
  else health.countEnd(verdictOf(record, prompt), nowMs, askedWaitMs(record))
}

/** Largest share of the running model calls that may be at a second or later attempt. */
const MAX_RETRY_SHARE = 0.2
/** This many are always allowed. */
const MIN_RETRIES = 3

/** The retry budget of one thread: during an outage, second attempts must not double the load on working endpoints. */
export class RetryBudget {
  #active = 0
  #retrying = 0

  /** Called when a model call begins. */
  enter(): void {
    this.#active++
  }

  leave(isRetrying: boolean): void {
    this.#active--
    if (isRetrying) this.release()
  }

  /** Returns a slot. */
  release(): void {
    this.#retrying--
  }

  /** Takes a slot for a second attempt. False if there is none. */
  spend(): boolean {
    if (this.#retrying >= Math.max(MIN_RETRIES, this.#active * MAX_RETRY_SHARE)) return false
    this.#retrying++
    return true
  }
}

/** An endpoint that must not be called now, and for how long. */
export interface BlockedModel {
  readonly candidate: Candidate
  readonly isLimited: boolean
  readonly waitMs: number
}

/** The error of a request none of whose endpoints may be called now. */
export function nobodyNow(blockedModels: readonly BlockedModel[]): GatewayError {
  const models = [...new Set(blockedModels.map(({ candidate }) => candidate.endpoint.modelId))]
  const providers = [...new Set(blockedModels.map(({ candidate }) => candidate.endpoint.provider.name))]
  const waitMs = blockedModels.reduce(
    (least, blockedModel) => Math.min(least, blockedModel.waitMs),
    Number.POSITIVE_INFINITY,
  )
  const seconds = Math.max(1, Math.ceil(waitMs / 1_000))
  const isLimited = blockedModels.every(blockedModel => blockedModel.isLimited)
  const [code, availability, state] = isLimited
    ? (['rate_limit_exceeded', 'capacity_exhausted', 'are at capacity'] as const)
    : (['service_unavailable', 'temporarily_unavailable', 'are failing at the moment'] as const)
  const plural = seconds === 1 ? 'second' : 'seconds'
  return new GatewayError(
    code,
    `All providers for ${models.join(', ')} ${state}. Retry after ${seconds} ${plural}.`,
    {
      metadata: {
        availability: {
          code: availability,
          retryable: true,
          retry_after: seconds,
          requested_models: models,
          affected_providers: providers,
        },
      },
      retryAfterSeconds: seconds,
    },
  )
}

/**
 * One error for all failed attempts: the last error that is not a rate limit, or the last one if all are rate limits.
 * `Retry-After` is the shortest of all attempts if each has one; otherwise that of the returned error.
 */
export function lastError(records: readonly AttemptRecord[]): GatewayError {
  const attempts = records.filter(({ isOutrun }) => isOutrun !== true)
  const errors = attempts.map(attempt => attempt.error).filter(error => error !== null)
  const last = errors.at(-1)
  if (last === undefined) return new GatewayError('internal', INTERNAL_MESSAGE)
  if (attempts.length === 1) return last
  const chosenError = errors.findLast(error => error.code !== 'rate_limit_exceeded') ?? last
  const waits = errors.map(error => error.retryAfterSeconds)
  const retryAfterSeconds = waits.every(wait => wait !== undefined)
    ? Math.min(...waits)
    : chosenError.retryAfterSeconds
  return new GatewayError(chosenError.code, chosenError.message, {
    metadata: {
      ...chosenError.metadata,
      previous_errors: attempts.slice(0, -1).map(attempt => ({
        provider: attempt.endpoint.provider.name,
        code: attempt.error?.errorType ?? null,
        status: attempt.status,
        ...reasonOf(attempt.error),
      })),
    },
    ...(retryAfterSeconds === undefined ? {} : { retryAfterSeconds }),
    cause: chosenError,
  })
}

function reasonOf(error: GatewayError | null): { reason?: unknown } {
  const reason = error?.metadata?.['reason']
  return reason === undefined ? {} : { reason }
}
