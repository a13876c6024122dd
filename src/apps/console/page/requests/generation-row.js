/** Builds a row of the list from a record of GET /generations, which has no stages. */

const CLIENT_LEFT_STATUS = 499

export function rowOfGeneration(record) {
  const { latency, generation_time: generation } = record
  return {
    id: record.id,
    at: record.created_at,
    model: record.model ?? record.router,
    provider: record.provider_name,
    status: record.outcome === 'aborted' ? CLIENT_LEFT_STATUS : record.error === null ? 200 : '',
    outcome: record.outcome,
    error: record.error,
    cause: null,
    firstTokenMs: generation === null ? null : Math.max(0, latency - generation),
    durationMs: latency,
    inputTokens: record.tokens_prompt,
    outputTokens: record.tokens_completion,
    cost: record.total_cost,
    attempts: record.provider_responses.map(({ provider_name: provider, status, error }) => ({
      provider,
      status,
      error,
      cause: null,
    })),
    stages: null,
    workspace: record.workspace_id,
    isInner: false,
  }
}
