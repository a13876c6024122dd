/**
 * Summaries that a provider of the Messages API makes itself: the edit `compact_20260112`, which needs a beta flag and
 * a conversation of at least 50,000 tokens. For a shorter conversation, the model writes the summary as plain text,
 * because the request also asks for it in words. Pure.
 */
import { filled } from '../../base/json.ts'
import type { Endpoint } from '../../protocol/provider.ts'
import type { ModelRequest, WireRequest } from '../format.ts'
import { COMPACTION_BETA, encodeMessages } from './encode.ts'

/** The API refuses a smaller threshold. */
const MIN_THRESHOLD_TOKENS = 50_000

/**
 * @param threshold null: a summary now, without an answer
 * @throws GatewayError `unprocessable`
 */
export function encodeCompacting(
  model: ModelRequest,
  endpoint: Endpoint,
  threshold: number | null,
): WireRequest {
  const wire = encodeMessages(model, endpoint)
  const value = Math.max(MIN_THRESHOLD_TOKENS, threshold ?? 0)
  const edit = {
    type: 'compact_20260112',
    trigger: { type: 'input_tokens', value },
    ...(threshold === null ? { pause_after_compaction: true } : {}),
  }
  const betas = new Set((filled(wire.headers?.['anthropic-beta']) ?? COMPACTION_BETA).split(','))
  betas.add(COMPACTION_BETA)
  return {
    ...wire,
    headers: { ...wire.headers, 'anthropic-beta': [...betas].join(',') },
    body: { ...wire.body, context_management: { edits: [edit] } },
  }
}
