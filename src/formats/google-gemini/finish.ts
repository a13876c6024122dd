/** Why Gemini stopped, in the gateway's words. Pure. */
import type { FinishReason } from '../format.ts'

/** Reasons that are not here (an internal fault, a malformed call, a word of tomorrow) are `other`. */
const REASONS: ReadonlyMap<string, FinishReason> = new Map([
  ['STOP', 'stop'],
  ['MAX_TOKENS', 'length'],
  ['SAFETY', 'content_filter'],
  ['RECITATION', 'content_filter'],
  ['BLOCKLIST', 'content_filter'],
  ['PROHIBITED_CONTENT', 'content_filter'],
  ['SPII', 'content_filter'],
  ['MODEL_ARMOR', 'content_filter'],
  // Why a prompt is refused; seen here only when output came before the refusal.
  ['JAILBREAK', 'content_filter'],
  ['IMAGE_SAFETY', 'content_filter'],
  ['IMAGE_PROHIBITED_CONTENT', 'content_filter'],
  ['IMAGE_RECITATION', 'content_filter'],
])

/** How the protocol spells "not finished" where a field must have a value. */
export const NOT_FINISHED = 'FINISH_REASON_UNSPECIFIED'

export function finishReason(native: string, called: boolean): FinishReason {
  const reason = REASONS.get(native) ?? 'other'
  return reason === 'stop' && called ? 'tool_calls' : reason
}
