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
export function addUsage(one: BatchUsage, other: BatchUsage): BatchUsage {
  if (one === NO_USAGE) return other
  if (other === NO_USAGE) return one
  return {
    inputTokens: one.inputTokens + other.inputTokens,
    cachedTokens: one.cachedTokens + other.cachedTokens,
    cacheWriteTokens: one.cacheWriteTokens + other.cacheWriteTokens,
    outputTokens: one.outputTokens + other.outputTokens,
    reasoningTokens: one.reasoningTokens + other.reasoningTokens,
    toolCallsExecuted: one.toolCallsExecuted + other.toolCallsExecuted,
    toolCallsRequested: one.toolCallsRequested + other.toolCallsRequested,
    webSearchRequests: one.webSearchRequests + other.webSearchRequests,
    cost: addText(one.cost, other.cost),
    upstream: {
      prompt: addText(one.upstream.prompt, other.upstream.prompt),
      completions: addText(one.upstream.completions, other.upstream.completions),
    },
    isByok: one.isByok || other.isByok,
    serviceTier: one.serviceTier === other.serviceTier ? one.serviceTier : null,
  }
}

function addText(one: string, other: string): string {
  return String(BigInt(one) + BigInt(other))
}
