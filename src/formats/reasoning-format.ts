/** The names of reasoning by where it comes from: they decide how it is sent back in a later turn. Pure. */

const REASONING_FORMATS = [
  'unknown',
  'openai-responses-v1',
  'azure-openai-responses-v1',
  'xai-responses-v1',
  'anthropic-claude-v1',
  'google-gemini-v1',
] as const

export type ReasoningFormat = (typeof REASONING_FORMATS)[number]

const KNOWN: ReadonlySet<unknown> = new Set(REASONING_FORMATS)

/** The value when it is one of the names, else null. */
export function reasoningFormat(value: unknown): ReasoningFormat | null {
  return KNOWN.has(value) ? (value as ReasoningFormat) : null
}
