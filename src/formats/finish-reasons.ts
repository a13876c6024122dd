/**
 * Finish reasons: each reason of a provider API in the gateway's vocabulary. Unknown reasons become `other`. Pure.
 */
import type { FinishReason } from './format.ts'

type Words = Readonly<Record<string, FinishReason>>

const CLAUDE: Words = {
  end_turn: 'stop',
  stop_sequence: 'stop',
  tool_use: 'tool_calls',
  max_tokens: 'length',
  model_context_window_exceeded: 'length',
  refusal: 'content_filter',
}

const WORDS = {
  /**
   * `pause_turn` is not in the list: the provider paused a long run of its own tools, and the caller continues it by
   * sending the reply back.
   */
  messages: CLAUDE,
  /** Claude's reasons, which Converse passes on, and its own. */
  converse: { ...CLAUDE, content_filtered: 'content_filter', guardrail_intervened: 'content_filter' },
  gemini: {
    STOP: 'stop',
    MAX_TOKENS: 'length',
    SAFETY: 'content_filter',
    RECITATION: 'content_filter',
    BLOCKLIST: 'content_filter',
    PROHIBITED_CONTENT: 'content_filter',
    SPII: 'content_filter',
    MODEL_ARMOR: 'content_filter',
    // Reasons for refusing a prompt. They are seen here only if output came before the refusal.
    JAILBREAK: 'content_filter',
    IMAGE_SAFETY: 'content_filter',
    IMAGE_PROHIBITED_CONTENT: 'content_filter',
    IMAGE_RECITATION: 'content_filter',
  },
  /** Of all known providers. */
  chat: {
    stop: 'stop',
    end_turn: 'stop',
    stop_sequence: 'stop',
    length: 'length',
    max_tokens: 'length',
    model_length: 'length',
    model_context_window_exceeded: 'length',
    tool_calls: 'tool_calls',
    function_call: 'tool_calls',
    tool_use: 'tool_calls',
    content_filter: 'content_filter',
    sensitive: 'content_filter',
    refusal: 'content_filter',
  },
  /** Reasons why a response is incomplete. */
  responses: { max_output_tokens: 'length', max_tokens: 'length', content_filter: 'content_filter' },
} as const satisfies Readonly<Record<string, Words>>

const REASONS = Object.fromEntries(
  Object.entries(WORDS).map(([api, words]) => [api, new Map<string, FinishReason>(Object.entries(words))]),
) as unknown as Readonly<Record<keyof typeof WORDS, ReadonlyMap<string, FinishReason>>>

export function finishReason(api: keyof typeof WORDS, native: string): FinishReason {
  return REASONS[api].get(native) ?? 'other'
}

/** Words of Chat Completions for a reply that failed, with error codes that `providerFailure` knows. */
export const BROKEN_REPLIES: ReadonlyMap<string, string> = new Map([
  ['error', 'server_error'],
  ['abort', 'server_error'],
  ['network_error', 'server_error'],
  ['insufficient_system_resource', 'overloaded_error'],
])
