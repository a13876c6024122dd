/** Batches: the states, endpoints and counts that the interface and the store share. Pure. */

/** All public states of a batch. `batches/states.ts` defines the moves between them. */
export const BATCH_STATUSES = [
  'validating',
  'in_progress',
  'finalizing',
  'completed',
  'failed',
  'expired',
  'cancelling',
  'cancelled',
] as const
export type BatchStatus = (typeof BATCH_STATUSES)[number]

/** States that a batch never leaves. */
export const TERMINAL_STATUSES = [
  'completed',
  'failed',
  'expired',
  'cancelled',
] as const satisfies BatchStatus[]

/** States that a list can be filtered by. A batch is in the other states only for moments. */
export const FILTER_STATUSES = [
  'validating',
  'in_progress',
  ...TERMINAL_STATUSES,
] as const satisfies BatchStatus[]

/** Reasons why a batch in progress waits: see `BatchWait`. docs/batches.md explains each. */
export const BATCH_WAIT_REASONS = [
  'provider_unavailable',
  'provider_rate_limit',
  'key_limit',
  'gateway_busy',
] as const
export type BatchWaitReason = (typeof BATCH_WAIT_REASONS)[number]

/** No request of the batch has run since this time. */
export interface BatchWait {
  readonly reason: BatchWaitReason
  /** ISO 8601 UTC; a change of the reason does not change it. */
  readonly since: string
}

/** Endpoints whose requests a batch may contain. */
export const BATCH_ENDPOINTS = [
  '/v1/responses',
  '/v1/chat/completions',
  '/v1/messages',
  '/v1/embeddings',
] as const
export type BatchEndpoint = (typeof BATCH_ENDPOINTS)[number]

/** `provider` of a batch; null: no preference. */
export interface BatchPreferences {
  /** Provider slugs; null: any. */
  readonly only: readonly string[] | null
  readonly allowFallbacks: boolean
}

/** Usage of one line of a batch, or of all finished ones. Sums as text stay exact. */
export interface BatchUsage {
  readonly inputTokens: number
  readonly cachedTokens: number
  readonly cacheWriteTokens: number
  readonly outputTokens: number
  readonly reasoningTokens: number
  readonly toolCallsExecuted: number
  readonly toolCallsRequested: number
  readonly webSearchRequests: number
  /** Charged, in units of 1e-12 USD, as a decimal integer. */
  readonly cost: string
  /** By the prices of the endpoints, in the same units; `prompt` and `completions` are its parts. */
  readonly upstream: { readonly prompt: string; readonly completions: string }
  /** True if any of it ran on a BYOK credential. */
  readonly isByok: boolean
  /** The tier that answered; null if it is unknown or lines differ. */
  readonly serviceTier: string | null
}

export const NO_USAGE: BatchUsage = {
  inputTokens: 0,
  cachedTokens: 0,
  cacheWriteTokens: 0,
  outputTokens: 0,
  reasoningTokens: 0,
  toolCallsExecuted: 0,
  toolCallsRequested: 0,
  webSearchRequests: 0,
  cost: '0',
  upstream: { prompt: '0', completions: '0' },
  isByok: false,
  serviceTier: null,
}

/** The sum of two usages; `NO_USAGE` changes nothing. */
export function addUsage(a: BatchUsage, b: BatchUsage): BatchUsage {
  if (a === NO_USAGE) return b
  if (b === NO_USAGE) return a
  return {
    inputTokens: a.inputTokens + b.inputTokens,
    cachedTokens: a.cachedTokens + b.cachedTokens,
    cacheWriteTokens: a.cacheWriteTokens + b.cacheWriteTokens,
    outputTokens: a.outputTokens + b.outputTokens,
    reasoningTokens: a.reasoningTokens + b.reasoningTokens,
    toolCallsExecuted: a.toolCallsExecuted + b.toolCallsExecuted,
    toolCallsRequested: a.toolCallsRequested + b.toolCallsRequested,
    webSearchRequests: a.webSearchRequests + b.webSearchRequests,
    cost: addDecimals(a.cost, b.cost),
    upstream: {
      prompt: addDecimals(a.upstream.prompt, b.upstream.prompt),
      completions: addDecimals(a.upstream.completions, b.upstream.completions),
    },
    isByok: a.isByok || b.isByok,
    serviceTier: a.serviceTier === b.serviceTier ? a.serviceTier : null,
  }
}

function addDecimals(a: string, b: string): string {
  return String(BigInt(a) + BigInt(b))
}
