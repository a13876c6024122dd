/**
 * Estimates of tokens and cost: for a reservation before the request is sent, and for a reply whose provider reports no
 * usage. They count characters, because counting tokens would block the event loop for milliseconds. Pure.
 */

import type { Usage } from '../../formats/format.ts'
import type { Estimate } from '../../limits/quota.ts'
import { ORDINARY_OUTPUT_TOKENS } from '../../protocol/limits.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import type { Candidate } from '../exchange.ts'

/** English prose has about four characters per token in every common vocabulary; other scripts have fewer. */
const CHARACTERS_PER_TOKEN = 4
/** As providers count one image of medium size; the length of its base64 is no measure. */
const ATTACHMENT_CHARACTERS = 1_000 * CHARACTERS_PER_TOKEN
const ATTACHMENTS = new Set(['image_url', 'file_url', 'file_data', 'data', 'encrypted_content'])
/** Attachments that are no text: images, sound and PDFs, as data URLs or by the first bytes of their base64. */
const MEDIA_URL = /^data:(?:image\/(?!svg)|audio\/|application\/pdf)[^,]{0,80};base64,/i
const MEDIA_BASE64 = /^(?:iVBORw0KGgo|\/9j\/|R0lGOD|UklGR|JVBERi0|SUQz|\/\/[I-Po-v]|\/\+[I-P])/
const MEDIA_HEAD_MAX_CHARS = 128
/** In these all is text, whatever it is called: declarations, and maps whose keys are the caller's. */
const ALL_TEXT = new Set(['tools', 'attributes', 'env', 'environment'])
/** Of a number in a schema, sign and punctuation included. */
const NUMBER_CHARACTERS = 8

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
    inputTokens: inputTokensOf(request),
    cachedTokens: 0,
    cacheWriteTokens: 0,
    outputTokens,
    reasoningTokens: 0,
    webSearchRequests: 0,
  }
}

/**
 * The most that a request is expected to come to at these candidates, before anything is sent. Output counts with what
 * the caller allows, or else with what an ordinary answer has; reading is charged without help of a cache. `calls`: how
 * often a model may be asked for one answer.
 */
export function estimateRequest(
  request: ResponsesRequest,
  candidates: readonly Candidate[],
  calls = 1,
): Estimate {
  const inputTokens = inputTokensOf(request)
  const wanted = request.max_output_tokens ?? ORDINARY_OUTPUT_TOKENS
  let [cost, ownCost, tokens] = [0, 0, inputTokens]
  for (const { endpoint, credential } of candidates) {
    const { pricing, maxOutputTokens } = endpoint
    const output = Math.min(wanted, maxOutputTokens ?? wanted)
    // Who is asked again is shown what was withheld before.
    const read = calls * inputTokens + ((calls * (calls - 1)) / 2) * output
    const said = calls * output
    const price = Math.min(
      read * pricing.prompt + said * pricing.completion + calls * pricing.request,
      Number.MAX_SAFE_INTEGER,
    )
    cost = Math.max(cost, price)
    if (credential === null) ownCost = Math.max(ownCost, price)
    tokens = Math.max(tokens, read + said)
  }
  return { cost, ownCost, tokens }
}

function inputTokensOf({ instructions, input, tools, text }: ResponsesRequest): number {
  let characters = charactersIn(instructions, false) + charactersIn(input, false)
  if (tools != null) characters += charactersIn(tools, true)
  if (text?.format?.type === 'json_schema') characters += charactersIn(text.format, true)
  return Math.ceil(characters / CHARACTERS_PER_TOKEN)
}

/** Tokens of any values of a request. */
export function estimateInput(values: readonly unknown[]): number {
  return Math.ceil(charactersIn(values, false) / CHARACTERS_PER_TOKEN)
}

/**
 * Every value counts, because one that is left out may be the longest; what is looked at is bounded with the depth and
 * the parts of a body, and takes a fraction of what parsing it took. `allText`: attachments are none, and names are
 * read as well.
 */
function charactersIn(value: unknown, allText: boolean): number {
  if (typeof value === 'string') return value.length
  if (typeof value !== 'object' || value === null) return allText ? NUMBER_CHARACTERS : 0
  let characters = 0
  if (Array.isArray(value)) {
    for (let at = 0; at < value.length; at++) characters += charactersIn(value[at], allText)
    return characters
  }
  for (const key of Object.keys(value)) {
    const inner = (value as Record<string, unknown>)[key]
    if (allText) characters += key.length + charactersIn(inner, true)
    else if (typeof inner === 'string' && ATTACHMENTS.has(key)) characters += attachmentCharacters(inner)
    else characters += charactersIn(inner, ALL_TEXT.has(key))
  }
  return characters
}

/** Anything but media may be text in disguise, such as a file of plain text. */
function attachmentCharacters(attachment: string): number {
  const head = attachment.slice(0, MEDIA_HEAD_MAX_CHARS)
  if (MEDIA_URL.test(head) || MEDIA_BASE64.test(head)) return ATTACHMENT_CHARACTERS
  return Math.max(ATTACHMENT_CHARACTERS, attachment.length)
}
