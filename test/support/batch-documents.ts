/** Batches as a gateway sends them, for tests of code that reads them. */

export interface DocumentFields {
  readonly id?: string
  readonly status?: string
  readonly model?: string
  readonly createdAt?: number
  readonly finalizedAt?: number | null
  readonly total?: number
  readonly completed?: number
  readonly failed?: number
  readonly cost?: number | null
  readonly error?: string | null
  readonly waiting?: { readonly reason: string; readonly since: number } | null
  readonly results?: readonly unknown[] | null
}

export function batchDocument(fields: DocumentFields = {}) {
  const { total = 10, completed = 0, failed = 0, cost = null, error = null } = fields
  return {
    id: fields.id ?? 'batch_1',
    object: 'batch',
    endpoint: '/v1/responses',
    model: fields.model ?? 'acme/model',
    completion_window: '24h',
    status: fields.status ?? 'in_progress',
    created_at: fields.createdAt ?? 1_767_323_045,
    finalized_at: fields.finalizedAt ?? null,
    expires_at: 1_767_409_445,
    provider: null,
    request_counts: { total, completed, failed },
    usage:
      cost === null
        ? null
        : {
            prompt_tokens: 1_200,
            completion_tokens: 34,
            total_tokens: 1_234,
            prompt_tokens_details: { cached_tokens: 1_000 },
            cost,
          },
    error: error === null ? null : { message: error },
    ...(fields.waiting === undefined ? {} : { waiting: fields.waiting }),
    results: fields.results ?? null,
  }
}
