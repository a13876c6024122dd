/**
 * Token estimates: for a reservation before the request is sent, and for a reply whose provider reports no usage. They
 * count characters, because counting tokens would block the event loop for milliseconds. Pure.
 */
import { type Usage, ZERO_USAGE } from '../../formats/format.ts'
import { EFFORT_SHARES } from '../../formats/reasoning.ts'
import { ASSUMED_OUTPUT_TOKENS, MIN_TOKENS_SHARE } from '../../protocol/limits.ts'
import type { Endpoint } from '../../protocol/provider.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import { isVisibleTool } from '../../protocol/tools.ts'
import { supportsParameter } from '../../providers/parameters.ts'

/** Estimates count quarters of tokens: the weight of one Latin letter. */
const QUARTERS = 4
/** Minimum for an attachment; for one behind a link, nothing else is known. */
const ATTACHMENT_QUARTERS = 1_000 * QUARTERS
const ATTACHMENT_FIELDS = new Set(['image_url', 'file_url', 'file_data', 'data', 'encrypted_content'])
/**
 * Attachments that are not text, recognized by their data URL or the first bytes of their base64, and the number of
 * characters per token. Providers scale images down, read sound by the second, and PDFs as pages of text and image.
 */
const MEDIA_KINDS: readonly {
  readonly url: RegExp
  readonly base64: RegExp
  readonly charactersPerToken: number
}[] = [
  {
    url: /^data:image\/(?!svg)[^,]{0,80};base64,/i,
    base64: /^(?:iVBORw0KGgo|\/9j\/|R0lGOD|UklGR)/,
    charactersPerToken: 512,
  },
  {
    url: /^data:audio\/[^,]{0,80};base64,/i,
    base64: /^(?:SUQz|\/\/[I-Po-v]|\/\+[I-P])/,
    charactersPerToken: 256,
  },
  { url: /^data:application\/pdf[^,]{0,80};base64,/i, base64: /^JVBERi0/, charactersPerToken: 32 },
]
const MEDIA_HEAD_MAX_CHARS = 128
/** Everything in these is text, whatever its field name: declarations, and maps whose keys the caller chooses. */
const TEXT_ONLY_FIELDS = new Set(['tools', 'attributes', 'env', 'environment'])
/** For a number in a schema, including sign and punctuation. */
const NUMBER_QUARTERS = 8
/** Output limit of a model if none is known: a long answer. */
const OUTPUT_TOKENS_MAX = 65_536

/** The part of a model call's reply that the gateway saw. */
export interface ObservedReply {
  /** As the provider reported it, possibly before the end; null if it did not. */
  readonly usage: Usage | null
  /** Quarters of tokens in text, reasoning and arguments. */
  readonly outputQuarters: number
  /** True if its thinking arrived as text, so it is part of `outputQuarters`. */
  readonly isThoughtSeen: boolean
  /** Tokens that the model may have written before its caller left without having seen anything; absent: none. */
  readonly unseenTokens?: number
}

/**
 * The best known usage of a call. Usage that the provider reported before the end, such as the input tokens, stays
 * exact; for output, the larger of the reported and the estimated count is used. Hidden reasoning counts by the
 * requested effort. Unseen tokens are reasoning if the model may think, because that may cost more than text.
 */
export function estimateUsage(
  request: ResponsesRequest,
  { usage: reportedUsage, outputQuarters, isThoughtSeen, unseenTokens = 0 }: ObservedReply,
  endpoint: Endpoint,
): Usage {
  const seenTokens = Math.ceil(outputQuarters / QUARTERS)
  const isThoughtKnown =
    isThoughtSeen || seenTokens === 0 || (reportedUsage !== null && reportedUsage.reasoningTokens > 0)
  const unseen = seenTokens === 0 ? unseenTokens : 0
  const budget = isThoughtKnown ? 0 : reasoningBudget(request, endpoint)
  const reasoningTokens = mayThink(request, endpoint) ? budget + unseen : budget
  const outputTokens = seenTokens + budget + unseen
  if (reportedUsage === null) {
    return { ...ZERO_USAGE, inputTokens: inputTokensOf(request), outputTokens, reasoningTokens }
  }
  return {
    ...reportedUsage,
    inputTokens: reportedUsage.inputTokens === 0 ? inputTokensOf(request) : reportedUsage.inputTokens,
    outputTokens: Math.max(reportedUsage.outputTokens, outputTokens),
    reasoningTokens: Math.max(reportedUsage.reasoningTokens, reasoningTokens),
  }
}

/** Tokens that a model may spend on reasoning for this request, as requested; 0 if nothing was requested. */
export function reasoningBudget(
  { reasoning, max_output_tokens }: ResponsesRequest,
  { maxOutputTokens }: Pick<Endpoint, 'maxOutputTokens'>,
): number {
  if (reasoning == null || isThoughtless(reasoning)) return 0
  if (reasoning.max_tokens != null) return reasoning.max_tokens
  const effort = reasoning.effort ?? (reasoning.enabled === true ? 'medium' : null)
  if (effort === null || effort === 'none') return 0
  const maxTokens = Math.min(
    max_output_tokens ?? REASONED_OUTPUT_TOKENS,
    maxOutputTokens ?? REASONED_OUTPUT_TOKENS,
  )
  return Math.floor(maxTokens * EFFORT_SHARES[effort])
}

/** The basis for the share of an effort if the caller sets no limit: most answers with reasoning stay below it. */
const REASONED_OUTPUT_TOKENS = 8_192

/** False if the model never thinks, or if the request turns reasoning off. */
export function mayThink({ reasoning }: ResponsesRequest, endpoint: Endpoint): boolean {
  if (endpoint.thinks === false || !supportsParameter(endpoint, 'reasoning')) return false
  return reasoning == null || !isThoughtless(reasoning)
}

/** True if the request turns reasoning off. */
export function isThoughtless(reasoning: NonNullable<ResponsesRequest['reasoning']>): boolean {
  return reasoning.enabled === false || reasoning.effort === 'none' || reasoning.max_tokens === 0
}

/** The maximum number of tokens that an endpoint may write without an output limit. */
export function mostOutput({ maxOutputTokens, contextLength }: Endpoint): number {
  return maxOutputTokens ?? Math.min(contextLength ?? OUTPUT_TOKENS_MAX, OUTPUT_TOKENS_MAX)
}

/** Output tokens that a token limit counts before anything is sent. */
export function ordinaryOutput(
  { max_output_tokens }: ResponsesRequest,
  { maxOutputTokens }: Endpoint,
): number {
  const outputLimit = max_output_tokens ?? ASSUMED_OUTPUT_TOKENS
  return Math.min(outputLimit, maxOutputTokens ?? outputLimit)
}

/** Input tokens of a request, including its schemas and the declarations that the model sees. */
export function inputTokensOf({ instructions, input, tools, text }: ResponsesRequest): number {
  let quarters = quartersOf(instructions, false) + quartersOf(input, false)
  for (const tool of tools ?? []) if (isVisibleTool(tool)) quarters += quartersOf(tool, true)
  if (text?.format?.type === 'json_schema') quarters += quartersOf(text.format, true)
  return Math.ceil(quarters / QUARTERS)
}

/** Minimum number of input tokens. Attachments that are not text count as zero, because providers scale them. */
export function leastInputTokensOf({ instructions, input, tools, text }: ResponsesRequest): number {
  let quarters = quartersOf(instructions, false, false) + quartersOf(input, false, false)
  for (const tool of tools ?? []) if (isVisibleTool(tool)) quarters += quartersOf(tool, true)
  if (text?.format?.type === 'json_schema') quarters += quartersOf(text.format, true)
  return Math.floor((quarters * MIN_TOKENS_SHARE) / QUARTERS)
}

/**
 * True if `inputTokensOf` is certain to be at most `tokens`. Checks lengths and not characters, so it costs next to
 * nothing for the usual request.
 */
export function isInputBelow(
  { instructions, input, tools, text }: ResponsesRequest,
  tokens: number,
): boolean {
  let remaining = tokens - (instructions?.length ?? 0)
  remaining = roomAfter(input, remaining)
  if (tools != null) remaining = roomAfter(tools, remaining)
  if (text?.format?.type === 'json_schema') remaining = roomAfter(text.format, remaining)
  return remaining >= 0
}

/** The tokens left after a value: no character has more than one. Stops when none are left. */
function roomAfter(value: unknown, room: number): number {
  if (typeof value === 'string') return room - value.length
  if (typeof value !== 'object' || value === null) return room - NUMBER_QUARTERS / QUARTERS
  let remaining = room
  if (Array.isArray(value)) {
    for (let index = 0; index < value.length && remaining >= 0; index++)
      remaining = roomAfter(value[index], remaining)
    return remaining
  }
  for (const key in value) {
    if (remaining < 0) break
    if (ATTACHMENT_FIELDS.has(key)) remaining -= ATTACHMENT_QUARTERS / QUARTERS
    remaining = roomAfter((value as Record<string, unknown>)[key], remaining - key.length)
  }
  return remaining
}

/** Tokens of arbitrary values in a request. */
export function estimateInput(values: readonly unknown[]): number {
  return Math.ceil(quartersOf(values, false) / QUARTERS)
}

/**
 * Every value counts, because an omitted one may be the longest; the work is bounded by the depth and the number of
 * parts of a body, and takes a fraction of the parsing time. `isAllText`: nothing is an attachment, and names count as
 * well. `countsMedia`: attachments that are not text count too.
 */
function quartersOf(value: unknown, isAllText: boolean, countsMedia = true): number {
  if (typeof value === 'string') return quartersIn(value)
  if (typeof value !== 'object' || value === null) return isAllText ? NUMBER_QUARTERS : 0
  let quarters = 0
  if (Array.isArray(value)) {
    for (let index = 0; index < value.length; index++)
      quarters += quartersOf(value[index], isAllText, countsMedia)
    return quarters
  }
  for (const key of Object.keys(value)) {
    const inner = (value as Record<string, unknown>)[key]
    if (isAllText) quarters += key.length + quartersOf(inner, true)
    else if (typeof inner === 'string' && ATTACHMENT_FIELDS.has(key))
      quarters += countsMedia ? attachmentQuarters(inner) : 0
    else quarters += quartersOf(inner, TEXT_ONLY_FIELDS.has(key), countsMedia)
  }
  return quarters
}

/** Tokens of an attachment, or of a link to one. */
export function attachmentTokens(attachment: string): number {
  return Math.ceil(attachmentQuarters(attachment) / QUARTERS)
}

/** Anything but media may be text in disguise, such as a file of plain text. */
function attachmentQuarters(attachment: string): number {
  const head = attachment.slice(0, MEDIA_HEAD_MAX_CHARS)
  const media = MEDIA_KINDS.find(({ url, base64 }) => url.test(head) || base64.test(head))
  const quarters =
    media === undefined
      ? quartersIn(attachment)
      : Math.ceil((attachment.length * QUARTERS) / media.charactersPerToken)
  return Math.max(ATTACHMENT_QUARTERS, quarters)
}

// Tokens that nobody saw: a model may think for minutes before its first word, a whole reply shows nothing before its
// end, and the provider bills what the model has written until the connection closes. If the caller leaves meanwhile,
// nobody reports the number of tokens, so it is estimated from the time.

/** Tokens per second while the speed of an endpoint is unknown: the usual speed of a model that thinks. */
export const USUAL_TOKENS_PER_SECOND = 50

/** A model call that ended before its first content. */
export interface SilentCall {
  readonly endpoint: Endpoint
  readonly request: ResponsesRequest
  /** True if the reply is not streamed, so that its silence says nothing. */
  readonly isWhole: boolean
  /** True if the endpoint is known to stream everything that it bills, so a silent stream has written nothing. */
  readonly isVisible: boolean
  /** Milliseconds from the request to the end of the call. */
  readonly silentMs: number
  /** The endpoint's usual speed; null if it is not known. */
  readonly tokensPerSecond: number | null
  /** The maximum number of tokens that the model may write, or that the caller's limits have reserved. */
  readonly mostTokens: number
}

/** The number of tokens that the model may have written; 0 for the stream of a model that cannot think. */
export function unseenTokens(call: SilentCall): number {
  if (!call.isWhole && (call.isVisible || !mayThink(call.request, call.endpoint))) return 0
  const tokens = Math.ceil((call.silentMs / 1_000) * (call.tokensPerSecond ?? USUAL_TOKENS_PER_SECOND))
  return Math.max(0, Math.min(tokens, call.mostTokens))
}

// The weight of a text, in quarters of tokens. A token has about four Latin letters; a character of Chinese, Japanese
// or Korean, or an emoji, takes one token or more. Hot path.

/** A character of the scripts in which each character is a token. */
const WIDE_QUARTERS = 4
/** The first such character; alphabets are below it. */
const FIRST_WIDE_CODE = 0x2e80
/** Number of evenly spread characters of a long text that are examined: more would block the event loop. */
const MAX_SAMPLED_CHARS = 65_536
/** Below this length a loop is faster than a search; for a long text a search takes a tenth of the time. */
const SHORT_TEXT_CHARS = 16
const WIDE_CHARACTER = /[\u2e80-\uffff]/

/** The weight of a text. For a delta of a stream it takes a handful of comparisons. */
export function quartersIn(text: string): number {
  const { length } = text
  if (length > SHORT_TEXT_CHARS && length <= MAX_SAMPLED_CHARS && !WIDE_CHARACTER.test(text)) return length
  const stride = length > MAX_SAMPLED_CHARS ? Math.ceil(length / MAX_SAMPLED_CHARS) : 1
  let wideCount = 0
  for (let index = 0; index < length; index += stride)
    if (text.charCodeAt(index) >= FIRST_WIDE_CODE) wideCount++
  return length + wideCount * stride * (WIDE_QUARTERS - 1)
}
