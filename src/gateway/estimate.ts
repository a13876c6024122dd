/**
 * Tokens where the provider never told them: its reply was cut, or its caller left. By length alone, because
 * counting tokens would take the event loop for milliseconds. Pure.
 */
import type { Estimate } from '../access/quota.ts'
import type { Candidate } from '../exchange.ts'
import type { Usage } from '../formats/format.ts'
import type { ResponsesRequest } from '../protocol/request.ts'

/** English prose has about four characters per token in every common vocabulary; other scripts have fewer. */
const CHARACTERS_PER_TOKEN = 4
/** What providers charge for one image of middling size; its base64 says nothing about its tokens. */
const ATTACHMENT_TOKENS = 1_000
const ATTACHMENTS = new Set(['image_url', 'file_url', 'file_data', 'data', 'encrypted_content'])
/** Most answers are shorter; more would refuse callers who have enough left. */
const ORDINARY_OUTPUT_TOKENS = 1_024
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

/**
 * The most that a request is expected to come to at these candidates, before anything is sent. Output counts with what
 * the caller allows, or else with what an ordinary answer has; reading is charged without help of a cache.
 */
export function estimateRequest(request: ResponsesRequest, candidates: readonly Candidate[]): Estimate {
  const inputTokens = estimateInput([request.instructions, request.input, request.tools])
  const wanted = request.max_output_tokens ?? ORDINARY_OUTPUT_TOKENS
  let [cost, ownCost, outputTokens] = [0, 0, 0]
  for (const { endpoint, credential } of candidates) {
    const { pricing, maxOutputTokens } = endpoint
    const output = Math.min(wanted, maxOutputTokens ?? wanted)
    const price = Math.min(
      inputTokens * pricing.prompt + output * pricing.completion + pricing.request,
      Number.MAX_SAFE_INTEGER,
    )
    cost = Math.max(cost, price)
    if (credential === null) ownCost = Math.max(ownCost, price)
    outputTokens = Math.max(outputTokens, output)
  }
  return { cost, ownCost, tokens: inputTokens + outputTokens }
}

/** Tokens of any values of a request. Takes the list over. Walks without recursion: the values were parsed from a body of bounded depth, but not of bounded breadth. */
export function estimateInput(values: unknown[]): number {
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
