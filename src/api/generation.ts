/** GET /generation?id=: the record of one request, by its generation id. GET /generations: the latest requests. */
import { createHash } from 'node:crypto'
import { GatewayError } from '../errors.ts'
import { byokFee, type Ledger } from '../gateway/accounting/account.ts'
import { toUsd } from '../money.ts'
import type { KeyRecord, Store } from '../storage/store.ts'
import type { UsageRecord } from '../storage/usage.ts'
import { hashParameter, limitOf, parameter, refuseField } from './management/paging.ts'
import type { Handler } from './operation.ts'

export interface GenerationDeps {
  readonly ledger: Pick<Ledger, 'find'>
  /** The charge for a request on an own credential, as a share of its catalogue price. */
  readonly byokFeePercent: number
}

/** Our ids have 35 characters; a much longer text is no id, and the Store is not asked. */
const ID_MAX_CHARS = 128

/**
 * The thread that served the request finds the record at once, others a second after the answer. Ids of another
 * organization are unknown, and to an inference key those of other workspaces.
 */
export function findGeneration({ ledger, byokFeePercent }: GenerationDeps): Handler {
  return async (request, reply) => {
    const [id, ...more] = request.query.getAll('id')
    if (id === undefined || id === '' || more.length > 0) {
      throw new GatewayError('invalid_request', 'id: must be the id of one generation')
    }
    const record = isId(id) ? await ledger.find(id, request.key.organizationId) : null
    if (record === null || !maySee(request.key, record)) {
      throw new GatewayError('not_found', 'Generation not found')
    }
    reply.json(200, { data: toDocument(record, byokFeePercent) })
  }
}

export interface GenerationListDeps extends Pick<GenerationDeps, 'byokFeePercent'> {
  readonly store: Pick<Store, 'ledger'>
}

/**
 * The latest requests of the organization, newest first; pages by the last id, since new ones come meanwhile. A request
 * is listed a second after its answer.
 */
export function listGenerations({ store, byokFeePercent }: GenerationListDeps): Handler {
  return async (request, reply) => {
    const { query, key } = request
    const { organizationId } = key
    const limit = limitOf(query)
    const keyHash = hashParameter(query, 'api_key_hash')
    const after = parameter(query, 'after')
    const before = after !== undefined && isId(after) ? await store.ledger.find(after, organizationId) : null
    if (after !== undefined && before === null) throw refuseField('after', 'must be the id of a generation')
    const filter = {
      organizationId,
      ...(keyHash === undefined ? {} : { keyHash }),
      ...(before === null ? {} : { before }),
    }
    const records = await store.ledger.latest(filter, limit + 1)
    const data = records.slice(0, limit).map(record => toDocument(record, byokFeePercent))
    reply.json(200, { data, has_more: records.length > limit })
  }
}

function isId(text: string): boolean {
  return text.length <= ID_MAX_CHARS && !text.includes('\0') && text.isWellFormed()
}

/** A management key is the organization's; an inference key is of one workspace, whose records it may read. */
function maySee({ kind, hash, workspaceId }: KeyRecord, record: UsageRecord): boolean {
  if (kind === 'management' || hash === record.keyHash) return true
  return workspaceId !== null && workspaceId === record.workspaceId
}

/**
 * Fields that this version does not support are null, so that clients find every field, or absent where clients know no
 * null.
 */
function toDocument(record: UsageRecord, byokFeePercent: number) {
  const cost = toUsd(record.isByok ? byokFee(record.cost, byokFeePercent) : record.cost)
  return {
    id: record.id,
    upstream_id: record.upstreamId,
    request_id: record.id,
    api_type: record.apiType ?? 'completions',
    model: record.model,
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
    response_cache_source_id: null,
    provider_responses: record.attempts.map((attempt, at) => ({
      provider_name: attempt.providerName,
      ...(at === record.attempts.length - 1 ? lastReply(record) : undefined),
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

/** Clients know apps by numbers: the same name, or the same origin, is always the same one. */
function appId(app: UsageRecord['app']): number | null {
  const name = app?.title ?? originOf(app?.referer)
  return name === '' ? null : createHash('sha256').update(name).digest().readUIntBE(0, 6)
}

function lastReply({ upstreamId, serviceTier }: UsageRecord) {
  return {
    ...(upstreamId === null ? undefined : { id: upstreamId }),
    ...(serviceTier === null ? undefined : { routed_service_tier: serviceTier }),
  }
}
