/** A usage record as exports write it: an allow-list of fields, one JSON line each. Pure. */
import type { UsageRecord } from '../../storage/usage.ts'

/** No words of callers but the model: no `trace`, no end user, no names of sessions, agents and apps. */
export function usageRow(record: UsageRecord): string {
  const row = {
    id: record.id,
    created_at: record.createdAt,
    organization_id: record.organizationId,
    workspace_id: record.workspaceId,
    key_hash: record.keyHash,
    parent: record.parent ?? null,
    model: record.model,
    provider: record.provider,
    streamed: record.streamed,
    outcome: record.outcome,
    cancelled: record.cancelled,
    error: record.error,
    finish_reason: record.finishReason,
    accounting: record.accounting,
    input_tokens: record.inputTokens,
    cached_tokens: record.cachedTokens,
    cache_write_tokens: record.cacheWriteTokens,
    output_tokens: record.outputTokens,
    reasoning_tokens: record.reasoningTokens,
    web_search_requests: record.webSearchRequests,
    cost_picousd: record.cost,
    is_byok: record.isByok,
    service_tier: record.serviceTier,
    data_region: record.dataRegion,
    latency_ms: record.latencyMs,
    generation_ms: record.generationMs,
    attempts: record.attempts.length,
  }
  return `${JSON.stringify(row)}\n`
}
