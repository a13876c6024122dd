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
  /** The changes that the last attempt made to the request. */
  readonly changes: readonly ReportedChange[]
  readonly preferences: Exchange['request']['provider']
  readonly priceFactor: PriceFactor
}

export interface ExplainedRequest {
  readonly line: ExchangeLine
  /** Monotonic milliseconds. */
  readonly startedMs: number
  /** Milliseconds by stage, in the order of `STAGES`; NaN for a stage that was not entered. */
  readonly spentMs: Float64Array
  readonly keyHash: string | null
  readonly error: GatewayError | null
  /** Null if the request was refused before an exchange existed. */
  readonly exchange: ExplainedExchange | null
  readonly isPlain: boolean
  readonly unkeptBefore: number
}

/** Maximum entries of each list, and characters of each text: a document has at most a few KB. */
const MAX_LIST_ENTRIES = 40
const MAX_TEXT_CHARS = 300
const MAX_NAMES = 10
/** The names in preferences that are shown: a client may write other texts there. */
const SHOWN_NAME = /^[\w.:/ -]{1,64}$/
const KEY_OR_TOKEN = /sk-|eyJ/
const FIELD_PATH = /^[\w.:[\]-]{1,128}$/
/** The gateway's own names of failures and actions. */
const FAILURE_REASON = /^[a-z_]{1,40}$/
const SHOWN_PREFERENCES = [
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
const SUMMARIZED_STAGES: ReadonlySet<string> = new Set([
  'guardrail',
  'context_compression',
  'response_healing',
])

/** The explanation of a finished request. @param createdAt ISO 8601 UTC */
export function explanationOf(request: ExplainedRequest, createdAt: string): Explanation {
  const { line, exchange, startedMs } = request
  const msSinceStart = (ms: number): number => rounded(ms - startedMs)
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
    attempts: exchange === null ? [] : explainedAttempts(exchange, msSinceStart),
    passed_over: (exchange?.passedOver ?? [])
      .slice(0, MAX_LIST_ENTRIES)
      .map(({ candidate, isLimited, waitMs }) => ({
        ...wayOf(candidate),
        state: isLimited ? 'rate_limited' : 'breaker_open',
        wait_ms: Math.round(waitMs),
      })),
    not_reached: exchange === null ? [] : notReached(exchange),
    excluded: [
      ...(exchange?.ranking.exclusions ?? []),
      ...(exchange?.lossy ?? []).map(({ candidate }) => ({ ...candidate, by: 'require_parameters' })),
    ]
      .slice(0, MAX_LIST_ENTRIES)
      .map(exclusion => ({ ...wayOf(exclusion), by: exclusion.by })),
    preferences: preferencesOf(exchange?.preferences ?? {}),
    skipped_models: (exchange?.ranking.skipped ?? []).slice(0, MAX_NAMES).map(loggableModel),
    actions: (exchange?.pipeline ?? []).slice(0, MAX_LIST_ENTRIES).map(explainedAction),
    changes: (exchange?.changes ?? []).slice(0, MAX_LIST_ENTRIES).map(shownChange),
    tools: (exchange?.toolCalls ?? []).slice(0, MAX_LIST_ENTRIES).map(call => ({
      tool: call.tool,
      start_ms: msSinceStart(call.startedMs),
      end_ms: msSinceStart(call.endedMs),
      outcome: call.outcome,
      cost: toUsd(call.cost),
    })),
    inner_calls: (exchange?.innerCalls ?? []).slice(0, MAX_LIST_ENTRIES).map(call => ({
      id: call.id,
      model: call.model,
      start_ms: msSinceStart(call.startedMs),
      end_ms: msSinceStart(call.endedMs),
      error: call.error,
      cost: toUsd(call.cost),
    })),
    unkept_before: request.unkeptBefore,
  }
}

/** Hides the names of fields that only the client knows, because they may contain anything. */
function shownChange(change: ReportedChange): ReportedChange {
  const isShown = FIELD_PATH.test(change.field) && !KEY_OR_TOKEN.test(change.field)
  return isShown ? change : { ...change, field: 'an unknown field' }
}

/** Rounded to microseconds. */
function rounded(ms: number): number {
  return Math.round(ms * 1000) / 1000
}

function stagesOf(spentMs: Float64Array): Explanation['stages_ms'] {
  const entered = STAGES.flatMap((stage, index) => {
    const ms = spentMs[index] ?? Number.NaN
    return Number.isNaN(ms) ? [] : [[stage, rounded(ms)] as const]
  })
  return Object.fromEntries(entered)
}

function wayOf({ endpoint, credential }: Way): ExplainedWay {
  const explainedWay = { provider: endpoint.provider.slug, model: endpoint.modelId }
  return credential === null ? explainedWay : { ...explainedWay, credential: credential.id }
}

function explainedAttempts(
  { attempts, priceFactor }: ExplainedExchange,
  since: (ms: number) => number,
): ExplainedAttempt[] {
  const hedgedTurns = new Set(attempts.filter(({ isOutrun }) => isOutrun === true).map(({ turn }) => turn))
  const callsOfTurn = new Set<number>()
  return attempts.slice(0, MAX_LIST_ENTRIES).map((attempt, index) => {
    const { turn, startedMs, endedMs, error } = attempt
    const isFirst = !callsOfTurn.has(turn)
    callsOfTurn.add(turn)
    // The last attempt of a turn is charged, and so is each part of an answer that went on elsewhere.
    const isCharged = attempts[index + 1]?.turn !== turn || attempt.partUsage !== undefined
    return {
      ...wayOf(attempt),
      start_ms: startedMs === 0 ? null : since(startedMs),
      end_ms: endedMs === 0 ? null : since(endedMs),
      kind: hedgedTurns.has(turn) ? 'hedge' : isFirst ? 'first' : 'again',
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
  return systemCode(error) ?? (typeof reason === 'string' && FAILURE_REASON.test(reason) ? reason : null)
}

function isSame(a: Way, b: Way): boolean {
  return a.endpoint === b.endpoint && a.credential?.id === b.credential?.id
}

function notReached({
  candidates,
  attempts,
  passedOver,
  lossy,
}: ExplainedExchange): Explanation['not_reached'] {
  const isReached = (candidate: Candidate): boolean =>
    attempts.some(attempt => isSame(attempt, candidate)) ||
    lossy.some(entry => isSame(entry.candidate, candidate)) ||
    passedOver.some(entry => isSame(entry.candidate, candidate))
  return candidates
    .slice(0, MAX_LIST_ENTRIES)
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

/** The gateway's text about a failure; null if it may contain text of a provider. */
function messageOf(error: GatewayError, attempts: number): string | null {
  const { metadata } = error
  if (metadata?.['provider_name'] !== undefined || metadata?.['provider_status'] !== undefined) return null
  if (attempts > 0 && !OWN_CODES.has(error.code)) return null
  return error.message.slice(0, MAX_TEXT_CHARS)
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
    excluded_by: availability?.excluded_by?.slice(0, MAX_LIST_ENTRIES) ?? [],
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
  const text = SUMMARIZED_STAGES.has(type)
    ? summary
    : typeof model === 'string'
      ? `chose ${model}`
      : undefined
  return {
    type,
    name,
    ...(guardrail_id === undefined ? {} : { guardrail_id }),
    ...(typeof action === 'string' && FAILURE_REASON.test(action) ? { action } : {}),
    ...(text === undefined ? {} : { summary: text.slice(0, MAX_TEXT_CHARS) }),
  }
}

function preferencesOf(preferences: Readonly<Record<string, unknown>> | null): Record<string, unknown> {
  const shownPreferences: Record<string, unknown> = {}
  for (const name of SHOWN_PREFERENCES) {
    const value = preferences?.[name]
    if (value != null) shownPreferences[name] = shownValue(value)
  }
  return shownPreferences
}

function shownValue(value: unknown): unknown {
  if (typeof value === 'boolean' || typeof value === 'number') return value
  if (typeof value === 'string') return SHOWN_NAME.test(value) && !KEY_OR_TOKEN.test(value) ? value : '*'
  if (Array.isArray(value)) return value.slice(0, MAX_NAMES).map(shownValue)
  if (typeof value !== 'object' || value === null) return '*'
  const entries = Object.entries(value).slice(0, MAX_NAMES)
  return Object.fromEntries(entries.map(([name, inner]) => [shownValue(name), shownValue(inner)]))
}
