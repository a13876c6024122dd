/**
 * A finished request, with the data for its explanation. It refers to the notes of the exchange, but to neither its
 * prompt nor its answer, so that these can be freed. Serve threads. Pure.
 */
import {
  type FailureCode,
  fieldOf,
  type GatewayError,
  type LimitName,
  systemCode,
} from '../../base/errors.ts'
import type { ExchangeLine } from '../../base/log/log.ts'
import { loggableModel } from '../../base/log/loggable.ts'
import { STAGES } from '../../base/metrics/stages.ts'
import { atFactor, type PriceFactor, toUsd } from '../../base/money.ts'
import type { ReportedChange } from '../../exchange/changes.ts'
import type { AttemptRecord, Candidate, Exchange } from '../../exchange/exchange.ts'
import type { RankingNotes, Way } from '../../exchange/reasons.ts'
import type { PipelineStage } from '../../protocol/response.ts'
import type {
  ExplainedAction,
  ExplainedAttempt,
  ExplainedError,
  ExplainedWay,
  Explanation,
} from './explanation.ts'

/** The fields of an exchange that are kept until its explanation is built. */
type ExplainedExchange = Pick<
  Exchange,
  | 'strategy'
  | 'rollout'
  | 'router'
  | 'dataRegion'
  | 'candidates'
  | 'attempts'
  | 'passedOver'
  | 'lossy'
  | 'toolCalls'
  | 'innerCalls'
  | 'pipeline'
> & {
  readonly ranking: RankingNotes
  readonly streamed: boolean
  /** Of the last attempt. */
  readonly changes: readonly ReportedChange[]
  readonly preferences: Exchange['request']['provider']
  readonly priceFactor: PriceFactor
}

export interface ExplainedRequest {
  readonly line: ExchangeLine
  /** Monotonic milliseconds. */
  readonly startedMs: number
  /** In the order of `STAGES`; NaN: not entered. */
  readonly spentMs: Float64Array
  readonly keyHash: string | null
  readonly error: GatewayError | null
  /** Null: it was refused before an exchange existed. */
  readonly exchange: ExplainedExchange | null
  readonly isPlain: boolean
  readonly unkeptBefore: number
}

/** Maximum entries of each list, and characters of each text: a document has at most a few KB. */
const LIST_MAX = 40
const TEXT_MAX_CHARS = 300
const NAMES_MAX = 10
/** Names that clients write into preferences: other texts are not shown. */
const NAME = /^[\w.:/ -]{1,64}$/
const KEY = /sk-|eyJ/
/** The path of a field. */
const PATH = /^[\w.:[\]-]{1,128}$/
/** A kind of failure of the gateway. */
const REASON = /^[a-z_]{1,40}$/
const PREFERENCES = [
  'order',
  'only',
  'ignore',
  'allow_fallbacks',
  'require_parameters',
  'data_collection',
  'zdr',
  'quantizations',
  'sort',
  'max_price',
  'enforce_distillable_text',
] as const
/** Kinds of stages whose summary consists of the gateway's words and names of settings. */
const SUMMARIZED: ReadonlySet<string> = new Set(['guardrail', 'context_compression', 'response_healing'])

/** The explanation of a finished request. @param createdAt ISO 8601 UTC */
export function explanationOf(request: ExplainedRequest, createdAt: string): Explanation {
  const { line, exchange, startedMs } = request
  const since = (ms: number): number => rounded(ms - startedMs)
  const error = explainedError(request)
  return {
    source: 'whole',
    id: line.id,
    parent: null,
    request_id: line.requestId ?? null,
    created_at: createdAt,
    organization_id: line.organization ?? null,
    workspace_id: line.workspace ?? null,
    key: line.key ?? null,
    key_hash: request.keyHash,
    method: line.method,
    route: line.route,
    status: line.status,
    outcome: line.outcome,
    streamed: exchange?.streamed ?? null,
    requested_model: line.requestedModel ?? line.model ?? null,
    model: line.model ?? null,
    provider: line.provider ?? null,
    router: exchange?.router ?? null,
    strategy: exchange?.strategy ?? null,
    rollout: exchange?.rollout?.arm ?? null,
    data_region: exchange?.dataRegion ?? null,
    duration_ms: line.durationMs,
    first_token_ms: line.firstTokenMs ?? null,
    input_tokens: line.inputTokens ?? null,
    output_tokens: line.outputTokens ?? null,
    cost: line.cost ?? null,
    finish: line.finish ?? null,
    error,
    stages_ms: stagesOf(request.spentMs),
    choice: exchange?.ranking.choice ?? null,
    first: exchange?.candidates[0] === undefined ? null : wayOf(exchange.candidates[0]),
    rather: exchange?.ranking.rather == null ? null : wayOf(exchange.ranking.rather),
    attempts: exchange === null ? [] : explainedAttempts(exchange, since),
    passed_over: (exchange?.passedOver ?? []).slice(0, LIST_MAX).map(({ candidate, isLimited, waitMs }) => ({
      ...wayOf(candidate),
      state: isLimited ? 'rate_limited' : 'breaker_open',
      wait_ms: Math.round(waitMs),
    })),
    not_reached: exchange === null ? [] : rest(exchange),
    excluded: [
      ...(exchange?.ranking.exclusions ?? []),
      ...(exchange?.lossy ?? []).map(({ candidate }) => ({ ...candidate, by: 'require_parameters' })),
    ]
      .slice(0, LIST_MAX)
      .map(exclusion => ({ ...wayOf(exclusion), by: exclusion.by })),
    preferences: preferencesOf(exchange?.preferences ?? {}),
    skipped_models: (exchange?.ranking.skipped ?? []).slice(0, NAMES_MAX).map(loggableModel),
    actions: (exchange?.pipeline ?? []).slice(0, LIST_MAX).map(explainedAction),
    changes: (exchange?.changes ?? []).slice(0, LIST_MAX).map(shownChange),
    tools: (exchange?.toolCalls ?? []).slice(0, LIST_MAX).map(call => ({
      tool: call.tool,
      start_ms: since(call.startedMs),
      end_ms: since(call.endedMs),
      outcome: call.outcome,
      cost: toUsd(call.cost),
    })),
    inner_calls: (exchange?.innerCalls ?? []).slice(0, LIST_MAX).map(call => ({
      id: call.id,
      model: call.model,
      start_ms: since(call.startedMs),
      end_ms: since(call.endedMs),
      error: call.error,
      cost: toUsd(call.cost),
    })),
    unkept_before: request.unkeptBefore,
  }
}

/** Names of unknown fields are the client's words. */
function shownChange(change: ReportedChange): ReportedChange {
  const isShown = PATH.test(change.field) && !KEY.test(change.field)
  return isShown ? change : { ...change, field: 'an unknown field' }
}

/** Rounded to microseconds. */
function rounded(ms: number): number {
  return Math.round(ms * 1000) / 1000
}

function stagesOf(spentMs: Float64Array): Explanation['stages_ms'] {
  const entered = STAGES.flatMap((stage, at) => {
    const ms = spentMs[at] ?? Number.NaN
    return Number.isNaN(ms) ? [] : [[stage, rounded(ms)] as const]
  })
  return Object.fromEntries(entered)
}

function wayOf({ endpoint, credential }: Way): ExplainedWay {
  const way = { provider: endpoint.provider.slug, model: endpoint.modelId }
  return credential === null ? way : { ...way, credential: credential.id }
}

function explainedAttempts(
  { attempts, priceFactor }: ExplainedExchange,
  since: (ms: number) => number,
): ExplainedAttempt[] {
  const raced = new Set(attempts.filter(({ isOutrun }) => isOutrun === true).map(({ turn }) => turn))
  const callsOfTurn = new Set<number>()
  return attempts.slice(0, LIST_MAX).map((attempt, at) => {
    const { turn, startedMs, endedMs, error } = attempt
    const isFirst = !callsOfTurn.has(turn)
    callsOfTurn.add(turn)
    // The last attempt of a turn was charged, and each part of an answer that went on elsewhere.
    const isCharged = attempts[at + 1]?.turn !== turn || attempt.partUsage !== undefined
    return {
      ...wayOf(attempt),
      start_ms: startedMs === 0 ? null : since(startedMs),
      end_ms: endedMs === 0 ? null : since(endedMs),
      kind: raced.has(turn) ? 'hedge' : isFirst ? 'first' : 'again',
      turn,
      status: attempt.status,
      error: attempt.isOutrun === true ? null : (error?.code ?? null),
      cause: attempt.isOutrun === true ? null : causeOf(error),
      outrun: attempt.isOutrun === true,
      cost: isCharged ? toUsd(atFactor(attempt.cost, priceFactor)) : 0,
      ...(attempt.continuedAt === undefined ? {} : { continued_at: attempt.continuedAt }),
    }
  })
}

function causeOf(error: AttemptRecord['error']): string | null {
  if (error === null) return null
  const reason = error.metadata?.['reason']
  return systemCode(error) ?? (typeof reason === 'string' && REASON.test(reason) ? reason : null)
}

function isSame(a: Way, b: Way): boolean {
  return a.endpoint === b.endpoint && a.credential?.id === b.credential?.id
}

function rest({ candidates, attempts, passedOver, lossy }: ExplainedExchange): Explanation['not_reached'] {
  const isReached = (candidate: Candidate): boolean =>
    attempts.some(each => isSame(each, candidate)) ||
    lossy.some(each => isSame(each.candidate, candidate)) ||
    passedOver.some(each => isSame(each.candidate, candidate))
  return candidates
    .slice(0, LIST_MAX)
    .filter(candidate => !isReached(candidate))
    .map(candidate => ({ ...wayOf(candidate), breaker_open: candidate.state?.isOpen === true }))
}

/** Failures with a message of the gateway itself, even after a provider was called. */
const OWN_CODES: ReadonlySet<FailureCode> = new Set<FailureCode>([
  'permission_denied',
  'credential_unreadable',
  'guardrail_unavailable',
  'deadline_exceeded',
  'overloaded',
  'client_closed',
])

/** The gateway's text about a failure; null: parts of it may be a provider's. */
function messageOf(error: GatewayError, attempts: number): string | null {
  const { metadata } = error
  if (metadata?.['provider_name'] !== undefined || metadata?.['provider_status'] !== undefined) return null
  if (attempts > 0 && !OWN_CODES.has(error.code)) return null
  return error.message.slice(0, TEXT_MAX_CHARS)
}

function explainedError({ line, error, exchange }: ExplainedRequest): ExplainedError | null {
  if (line.outcome === 'completed') return null
  if (error === null) {
    if (line.error == null) return null
    return { ...NO_DETAILS, code: line.error, cause: line.cause ?? null }
  }
  const { metadata } = error
  const availability = metadata?.['availability'] as { readonly excluded_by?: readonly string[] } | undefined
  const guardrail = metadata?.['guardrail_id']
  return {
    code: error.code,
    message: messageOf(error, exchange?.attempts.length ?? 0),
    field: fieldOf(error) ?? null,
    cause: line.cause ?? null,
    limit: error.limit ?? null,
    retry_after_seconds: error.retryAfterSeconds ?? null,
    excluded_by: availability?.excluded_by?.slice(0, LIST_MAX) ?? [],
    guardrail_id: typeof guardrail === 'string' ? guardrail : null,
  }
}

const NO_DETAILS = {
  message: null,
  field: null,
  limit: null as LimitName | null,
  retry_after_seconds: null,
  excluded_by: [],
  guardrail_id: null,
} satisfies Partial<ExplainedError>

function explainedAction({ type, name, guardrail_id, summary, data }: PipelineStage): ExplainedAction {
  const facts = data as Readonly<Record<string, unknown>> | undefined
  const action = facts?.['action']
  const model = facts?.['resolved_to']
  const text = SUMMARIZED.has(type) ? summary : typeof model === 'string' ? `chose ${model}` : undefined
  return {
    type,
    name,
    ...(guardrail_id === undefined ? {} : { guardrail_id }),
    ...(typeof action === 'string' && REASON.test(action) ? { action } : {}),
    ...(text === undefined ? {} : { summary: text.slice(0, TEXT_MAX_CHARS) }),
  }
}

function preferencesOf(preferences: Readonly<Record<string, unknown>> | null): Record<string, unknown> {
  const shownPreferences: Record<string, unknown> = {}
  for (const name of PREFERENCES) {
    const value = preferences?.[name]
    if (value != null) shownPreferences[name] = shownValue(value)
  }
  return shownPreferences
}

function shownValue(value: unknown): unknown {
  if (typeof value === 'boolean' || typeof value === 'number') return value
  if (typeof value === 'string') return NAME.test(value) && !KEY.test(value) ? value : '*'
  if (Array.isArray(value)) return value.slice(0, NAMES_MAX).map(shownValue)
  if (typeof value !== 'object' || value === null) return '*'
  const entries = Object.entries(value).slice(0, NAMES_MAX)
  return Object.fromEntries(entries.map(([name, each]) => [shownValue(name), shownValue(each)]))
}
