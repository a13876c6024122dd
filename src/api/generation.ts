/**
 * GET /generation?id=: the record of one request and the reasons for its routing. GET /generations: the latest records.
 */
import { createHash } from 'node:crypto'
import { GatewayError, refuseField } from '../base/errors.ts'
import { toUsd, UNITS_PER_USD } from '../base/money.ts'
import type { Explanation } from '../features/explanations/explanation.ts'
import { explanationOfRecord } from '../features/explanations/of-record.ts'
import { reasonsOf } from '../features/explanations/reasons.ts'
import type { Ledger } from '../pipeline/accounting/account.ts'
import { byokFee } from '../pipeline/accounting/charge.ts'
import { IDENTIFIER_MAX_CHARS, MODEL_MAX_CHARS } from '../protocol/limits.ts'
import type { KeyRecord } from '../protocol/management/keys.ts'
import { parseInstant } from '../protocol/management/management.ts'
import type { ExplanationStore } from '../storage/ledger.ts'
import type { Store } from '../storage/store.ts'
import type { SearchFilter, UsageOutcome, UsageRecord } from '../storage/usage.ts'
import { hashParameter, limitOf, parameter, textParameter } from './management/paging.ts'
import type { Handler } from './operation.ts'

export interface GenerationDeps {
  readonly ledger: Pick<Ledger, 'find'>
  readonly explanations: Pick<ExplanationStore, 'find'>
  /** The charge for a request on a BYOK credential, in per cent of its catalogue price. */
  readonly byokFeePercent: number
}

/** Our ids have 35 characters. A much longer text is not an id, so the Store is not read. */
const ID_MAX_CHARS = 128
const OUTCOMES: readonly UsageOutcome[] = ['completed', 'incomplete', 'failed', 'aborted']

/** Maximum requests with one `X-Request-Id` that are searched. */
const MAX_SAME_REQUEST_ID = 20

/**
 * The thread that served the request finds the record at once, others a second after the answer; the explanation can be
 * found two seconds after the answer. Ids of other organizations are unknown, and for an inference key those of other
 * workspaces too.
 */
export function findGeneration({ ledger, explanations, byokFeePercent }: GenerationDeps): Handler {
  return async (request, reply) => {
    const [id, ...more] = request.query.getAll('id')
    if (id === undefined || id === '' || more.length > 0) {
      throw new GatewayError('invalid_request', 'id: must be the id of one generation')
    }
    const { key } = request
    const { organizationId } = key
    const byId = isId(id) ? await ledger.find(id, organizationId) : null
    if (byId !== null && !mayRead(key, byId)) throw generationNotFound()
    const explanation = isId(id) ? await explain(explanations, key, id, byId !== null) : null
    const record = byId ?? (explanation === null ? null : await ledger.find(explanation.id, organizationId))
    const generation = record ?? (explanation === null ? null : refusedRecord(explanation))
    if (generation === null || !mayRead(key, generation)) throw generationNotFound()
    const why = explanation ?? explanationOfRecord(generation as UsageRecord)
    // The key hash is for operators only.
    const { key_hash: hash, organization_id: _organization, ...publicFields } = why
    const ofKey = key.kind === 'management' ? { key_hash: hash } : undefined
    const data = { ...publicFields, ...ofKey, reasons: reasonsOf(why) }
    reply.json(200, { data: { ...toDocument(generation, byokFeePercent), explanation: data } })
  }
}

function generationNotFound(): GatewayError {
  return new GatewayError('not_found', 'Generation not found')
}

/** The latest explanation that the key may read. @param isExact only explanations of this generation id */
async function explain(
  explanations: GenerationDeps['explanations'],
  key: KeyRecord,
  id: string,
  isExact: boolean,
): Promise<Explanation | null> {
  for (const { document } of await explanations.find(id, key.organizationId, MAX_SAME_REQUEST_ID)) {
    const explanation = JSON.parse(document) as Explanation
    if (isExact && explanation.id !== id) continue
    if (mayRead(key, { keyHash: explanation.key_hash ?? '', workspaceId: explanation.workspace_id })) {
      return explanation
    }
  }
  return null
}

/** The record of a request, even if it was refused early and has no usage record. */
type AnyRecord = Omit<UsageRecord, 'outcome'> & { readonly outcome: string }

function refusedRecord(explanation: Explanation): AnyRecord {
  return {
    id: explanation.id,
    createdAt: explanation.created_at,
    organizationId: explanation.organization_id ?? '',
    workspaceId: explanation.workspace_id,
    keyHash: explanation.key_hash ?? '',
    model: null,
    provider: null,
    providerName: null,
    upstreamId: null,
    streamed: explanation.streamed === true,
    outcome: explanation.outcome,
    cancelled: explanation.outcome === 'aborted',
    error: explanation.error?.code ?? null,
    finishReason: null,
    nativeFinishReason: null,
    accounting: 'none',
    inputTokens: 0,
    cachedTokens: 0,
    cacheWriteTokens: 0,
    outputTokens: 0,
    reasoningTokens: 0,
    webSearchRequests: 0,
    cost: 0,
    isByok: false,
    serviceTier: null,
    dataRegion: explanation.data_region,
    endUser: null,
    sessionId: null,
    latencyMs: explanation.duration_ms,
    generationMs: null,
    attempts: [],
  }
}

export interface GenerationListDeps extends Pick<GenerationDeps, 'byokFeePercent'> {
  readonly store: Pick<Store, 'ledger'>
}

/**
 * The latest requests of the organization that match the filters, newest first. Pages continue after the last id,
 * because new requests arrive in the meantime. A request is listed a second after its answer.
 */
export function listGenerations({ store, byokFeePercent }: GenerationListDeps): Handler {
  return async (request, reply) => {
    const { query, key } = request
    const { organizationId } = key
    const limit = limitOf(query)
    const filter = searchFilter(query, organizationId)
    const after = parameter(query, 'after')
    const before = after !== undefined && isId(after) ? await store.ledger.find(after, organizationId) : null
    if (after !== undefined && before === null) throw refuseField('after', 'must be the id of a generation')
    const { records, last } = await store.ledger.search(
      before === null ? filter : { ...filter, before },
      limit,
    )
    reply.json(200, {
      data: records.map(record => toDocument(record, byokFeePercent)),
      has_more: last !== null,
      last_id: last?.id ?? null,
    })
  }
}

/** @throws GatewayError `invalid_request` that names the parameter */
function searchFilter(query: URLSearchParams, organizationId: string): SearchFilter {
  const text = (name: string, maxChars = IDENTIFIER_MAX_CHARS) => textParameter(query, name, maxChars)
  const filters = {
    keyHash: hashParameter(query),
    workspaceId: text('workspace_id'),
    model: text('model', MODEL_MAX_CHARS),
    provider: text('provider'),
    endUser: text('user_id'),
    sessionId: text('session_id'),
    outcomes: outcomesOf(query),
    minCost: minCostOf(query),
    since: instantOf(query, 'created_after'),
    until: instantOf(query, 'created_before'),
  }
  const fields = Object.entries(filters).filter(([, value]) => value !== undefined)
  return { organizationId, ...(Object.fromEntries(fields) as Partial<SearchFilter>) }
}

/** One value, or several separated by commas. */
function outcomesOf(query: URLSearchParams): readonly UsageOutcome[] | undefined {
  const value = parameter(query, 'outcome')?.split(',')
  const outcomes = value?.flatMap(text => OUTCOMES.find(outcome => outcome === text) ?? [])
  if (outcomes?.length !== value?.length)
    throw refuseField('outcome', `must be one or more of ${OUTCOMES.join(', ')}`)
  return outcomes
}

function minCostOf(query: URLSearchParams): number | undefined {
  const value = parameter(query, 'min_cost')
  if (value === undefined) return undefined
  const usd = Number(value)
  if (!/^\d{1,9}(?:\.\d{1,9})?$/.test(value) || usd === 0) {
    throw refuseField('min_cost', 'must be an amount in US dollars above 0')
  }
  return Math.min(Number.MAX_SAFE_INTEGER, Math.ceil(Number((usd * UNITS_PER_USD).toPrecision(15))))
}

function instantOf(query: URLSearchParams, name: string): string | undefined {
  const value = parameter(query, name)
  if (value === undefined) return undefined
  const ms = parseInstant(value)
  if (ms === null) throw refuseField(name, 'must be an ISO 8601 time with seconds and Z or an offset')
  return new Date(ms).toISOString()
}

function isId(text: string): boolean {
  return text.length <= ID_MAX_CHARS && !text.includes('\0') && text.isWellFormed()
}

/** A management key may read all records of its organization, an inference key those of its workspace. */
function mayRead(
  { kind, hash, workspaceId }: KeyRecord,
  record: Pick<UsageRecord, 'keyHash' | 'workspaceId'>,
): boolean {
  if (kind === 'management' || hash === record.keyHash) return true
  return workspaceId !== null && workspaceId === record.workspaceId
}

/**
 * Fields that this version does not support are null, so that clients find every field, or absent if clients accept no
 * null.
 */
function toDocument(record: AnyRecord, byokFeePercent: number) {
  const cost = toUsd(record.isByok ? byokFee(record.cost, byokFeePercent) : record.cost)
  return {
    id: record.id,
    upstream_id: record.upstreamId,
    request_id: record.id,
    api_type: record.apiType ?? 'completions',
    model: record.model,
    requested_model: record.requestedModel ?? null,
    provider_name: record.providerName,
    router: record.router ?? null,
    created_at: record.createdAt,
    streamed: record.streamed,
    cancelled: record.cancelled,
    outcome: record.outcome,
    error: record.error,
    finish_reason: record.finishReason,
    native_finish_reason: record.nativeFinishReason,
    latency: record.latencyMs,
    generation_time: record.generationMs,
    moderation_latency: null,
    accounting: record.accounting,
    tokens_prompt: record.inputTokens,
    tokens_completion: record.outputTokens,
    native_tokens_prompt: record.inputTokens,
    native_tokens_completion: record.outputTokens,
    native_tokens_reasoning: record.reasoningTokens,
    native_tokens_cached: record.cachedTokens,
    native_tokens_completion_images: null,
    total_cost: cost,
    usage: cost,
    cache_discount: null,
    upstream_inference_cost: record.isByok ? toUsd(record.cost) : null,
    is_byok: record.isByok,
    service_tier: record.serviceTier,
    session_id: record.sessionId,
    cache_miss: record.cacheMiss ?? null,
    agent_id: record.agent ?? null,
    parent_agent_id: record.parentAgent ?? null,
    external_user: record.endUser,
    workspace_id: record.workspaceId,
    data_region: record.dataRegion ?? 'global',
    origin: originOf(record.app?.referer),
    http_referer: record.app?.referer ?? null,
    user_agent: record.app?.userAgent ?? null,
    app_id: appId(record.app),
    trace: record.trace ?? null,
    preset_id: null,
    web_search_engine: null,
    num_search_results: record.webSearchRequests === 0 ? null : record.webSearchRequests,
    num_fetches: null,
    num_media_prompt: null,
    num_media_completion: null,
    num_input_audio_prompt: null,
    response_cache_source_id: record.cachedFrom ?? null,
    provider_responses: record.attempts.map((attempt, index) => ({
      provider_name: attempt.providerName,
      ...(index === record.attempts.length - 1 ? lastReply(record) : undefined),
      model_permaslug: attempt.model,
      status: attempt.status,
      is_byok: attempt.isByok,
      error: attempt.error,
    })),
  }
}

function originOf(referer: string | undefined): string {
  const url = referer === undefined ? null : URL.parse(referer)
  return url === null || url.origin === 'null' ? '' : url.origin
}

/** Clients identify apps by number: the same name, or the same origin, always gives the same number. */
function appId(app: UsageRecord['app']): number | null {
  const name = app?.title ?? originOf(app?.referer)
  return name === '' ? null : createHash('sha256').update(name).digest().readUIntBE(0, 6)
}

function lastReply({ upstreamId, serviceTier }: AnyRecord) {
  return {
    ...(upstreamId === null ? undefined : { id: upstreamId }),
    ...(serviceTier === null ? undefined : { routed_service_tier: serviceTier }),
  }
}
