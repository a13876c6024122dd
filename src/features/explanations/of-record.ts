/** The explanation of a request that is known only from its usage record. Pure. */
import { toUsd } from '../../base/money.ts'
import type { UsageRecord } from '../../storage/usage.ts'
import type { Explanation } from './explanation.ts'

/** Only the facts in the record: attempts have no start times, and choices have no reasons. */
export function explanationOfRecord(record: UsageRecord): Explanation {
  const { latencyMs, generationMs, error } = record
  return {
    source: 'record',
    id: record.id,
    parent: record.parent ?? null,
    request_id: null,
    created_at: record.createdAt,
    organization_id: record.organizationId,
    workspace_id: record.workspaceId,
    key: null,
    key_hash: record.keyHash,
    method: null,
    route: null,
    status: null,
    outcome: record.outcome,
    streamed: record.streamed,
    requested_model: record.requestedModel ?? null,
    model: record.model,
    provider: record.provider,
    router: record.router ?? null,
    strategy: null,
    rollout: record.rollout?.arm ?? null,
    data_region: record.dataRegion,
    duration_ms: latencyMs,
    first_token_ms: generationMs === null ? null : Math.max(0, latencyMs - generationMs),
    input_tokens: record.inputTokens,
    output_tokens: record.outputTokens,
    cost: toUsd(record.cost),
    finish: record.finishReason,
    error: error === null ? null : { ...NO_DETAILS, code: error },
    stages_ms: null,
    choice: null,
    rather: null,
    changes: null,
    attempts: record.attempts.map(({ provider, model, status, error: failure, isByok }, index, attempts) => ({
      provider,
      model,
      ...(isByok ? { credential: 'own' } : {}),
      start_ms: null,
      end_ms: null,
      kind: index === 0 ? 'first' : 'again',
      turn: 0,
      status,
      error: failure,
      cause: null,
      outrun: false,
      cost: index === attempts.length - 1 ? toUsd(record.cost) : 0,
    })),
    passed_over: [],
    not_reached: [],
    excluded: [],
    preferences: {},
    skipped_models: [],
    actions: [],
    tools: [],
    inner_calls: [],
    unkept_before: 0,
  }
}

const NO_DETAILS = {
  message: null,
  field: null,
  cause: null,
  limit: null,
  retry_after_seconds: null,
  excluded_by: [],
  guardrail_id: null,
}
