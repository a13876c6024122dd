/**
 * Tokens where the provider never told them: its reply was cut, or its caller left. By length alone, because
 * counting tokens would take the event loop for milliseconds. Pure.
 */
import type { Usage } from '../formats/format.ts'
import type { ResponsesRequest } from '../protocol/request.ts'

/** English prose has about four characters per token in every common vocabulary; other scripts have fewer. */
const CHARACTERS_PER_TOKEN = 4
/** What providers charge for one image of middling size; its base64 says nothing about its tokens. */
const ATTACHMENT_TOKENS = 1_000
const ATTACHMENTS = new Set(['image_url', 'file_url', 'file_data', 'data', 'encrypted_content'])
/** Values of the request that are looked at, about a millisecond; a request with more is long, not branchy. */
const VALUES_MAX = 20_000

/**
 * What was used, as far as can be known. `told` is what the provider reported before the end, such as the input it
 * had read: that stays exact, and the larger of told and estimated output counts.
 */
export function estimateUsage(
  request: ResponsesRequest,
  told: Usage | null,
  outputCharacters: number,
): Usage {
  const outputTokens = Math.ceil(outputCharacters / CHARACTERS_PER_TOKEN)
  if (told !== null) return { ...told, outputTokens: Math.max(told.outputTokens, outputTokens) }
  return {
    inputTokens: estimateInput([request.instructions, request.input, request.tools]),
    cachedTokens: 0,
    cacheWriteTokens: 0,
    outputTokens,
    reasoningTokens: 0,
    webSearchRequests: 0,
  }
}

/** Walks without recursion: the values were parsed from a body of bounded depth, but not of bounded breadth. */
function estimateInput(values: unknown[]): number {
  let characters = 0
  let attachments = 0
  for (let seen = 0; values.length > 0 && seen < VALUES_MAX; seen++) {
    const value = values.pop()
    if (typeof value === 'string') {
      characters += value.length
    } else if (Array.isArray(value)) {
      for (let at = 0; at < value.length && values.length < VALUES_MAX; at++) values.push(value[at])
    } else if (typeof value === 'object' && value !== null) {
      for (const key of Object.keys(value)) {
        const inner = (value as Record<string, unknown>)[key]
        if (ATTACHMENTS.has(key) && typeof inner === 'string') attachments++
        else if (values.length < VALUES_MAX) values.push(inner)
      }
    }
  }
  return Math.ceil(characters / CHARACTERS_PER_TOKEN) + attachments * ATTACHMENT_TOKENS
}
