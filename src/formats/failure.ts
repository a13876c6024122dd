/**
 * Errors that formats raise: provider errors, requests that a format cannot express, and replies that exceed a limit.
 * Each format reads its own error shape; one table here maps errors to failures of the gateway. Pure.
 */
import { type FailureCode, GatewayError, PROVIDER_STATUSES } from '../base/errors.ts'

/** An error as a provider reports it. */
export interface ProviderError {
  /** HTTP status of the reply; for an error under 200, the status that its body claims. Null when unknown. */
  readonly status: number | null
  /** The provider's own code or type, e.g. `context_length_exceeded`, `overloaded_error`. */
  readonly code: string | null
  readonly message: string | null
  /** Clients of its API act upon the words, which stay as they are. Absent: they become one line. */
  readonly isQuoted?: boolean
}

/** Characters. A longer message helps no caller, and a page of HTML must not become one. */
const LINE_LIMIT = 500
const QUOTED_LIMIT = 2_000

/** Codes of errors about an image in the request. */
const IMAGE_CODES = [
  'invalid_image',
  'invalid_image_format',
  'invalid_image_mode',
  'invalid_image_url',
  'invalid_base64_image',
  'image_parse_error',
  'image_too_large',
  'image_too_small',
  'image_file_too_large',
  'image_file_not_found',
  'empty_image_file',
  'failed_to_download_image',
  'image_download_failed',
  'unsupported_image_format',
  'unsupported_image_media_type',
] as const

/** Codes that are more exact than their status, and codes of errors inside a stream, which have no status. */
const BY_CODE: ReadonlyMap<string, FailureCode> = new Map([
  ['content_filter', 'content_policy_violation'],
  ['content_policy_violation', 'content_policy_violation'],
  ['invalid_prompt', 'invalid_prompt'],
  ...IMAGE_CODES.map((code): [string, FailureCode] => [code, 'invalid_image']),
  ['invalid_request_error', 'invalid_request'],
  ['invalid_argument', 'invalid_request'],
  ['failed_precondition', 'invalid_request'],
  ['request_too_large', 'payload_too_large'],
  ['rate_limit_error', 'rate_limit_exceeded'],
  ['rate_limit_exceeded', 'rate_limit_exceeded'],
  ['resource_exhausted', 'rate_limit_exceeded'],
  ['overloaded_error', 'upstream_overloaded'],
  ['unavailable', 'service_unavailable'],
  ['timeout_error', 'upstream_timeout'],
  ['deadline_exceeded', 'upstream_timeout'],
])

/** The words of providers for a prompt that is too long for the model. */
const OVERFLOW_CODES: ReadonlySet<string> = new Set([
  'context_length_exceeded',
  'context_window_exceeded',
  'exceed_context_size_error',
  'max_tokens_exceeded',
  'model_context_window_exceeded',
  'string_above_max_length',
  'string_too_long',
  'token_limit_exceeded',
])

/**
 * Messages of providers that have no code for it. A line names those whose words it has; many others have copied them.
 */
const OVERFLOW_WORDS: readonly RegExp[] = [
  // OpenAI, vLLM, DeepSeek, Fireworks; xAI says `prompt length`.
  /max(?:imum)? (?:context|prompt) length(?: is| of| by|:| \()/,
  // llama.cpp, LM Studio, Together, SGLang, Ollama, Anthropic, Poolside.
  /(?:exceed(?:s|ed|ing)?|(?:longer|greater|larger) than) (?:the )?(?:model(?:'s)? )?(?:max(?:imum)? |available |configured )?(?:allowed )?(?:context|prompt|input|model) (?:length|window|size|limit)/,
  // Anthropic, Amazon Bedrock.
  /(?:prompt|input) (?:is )?too long\b/,
  /input length and `?max_tokens`? exceed/,
  /input tokens exceed|too many input tokens|context (?:window|length) (?:is )?exceeded/,
  // vLLM, LM Studio.
  /too long to fit into the model|context length (?:is|of) only/,
  // Gemini, GitHub Copilot.
  /(?:input|prompt) (?:token count|context)[^.]{0,80}exceeds|exceeds? the maximum number of (?:input )?tokens/,
  // Mistral, Groq, MiniMax, Moonshot, Alibaba.
  /too large for model with \d+ maximum context/,
  /reduce the length of the (?:messages|prompt|input)/,
  /context window exceeds limit/,
  /exceeded model token limit/,
  /range of input length should be/,
  // Text Generation Inference; Cohere.
  /inputs`? (?:tokens \+ `?max_new_tokens`? must be <=|must have less than \d+ tokens)/,
  /too many tokens: (?:size limit|(?:the )?total number)/,
]

/** An output that is too long, and limits by time, speak of tokens and lengths too. */
const NO_OVERFLOW =
  /max_(?:completion_|output_|new_)?tokens['"`]?(?: is)? too large|rate.?limit|tokens per (?:minute|hour|day)|quota|throttl/

/** Statuses under which a prompt is too long. llama.cpp had 500 for it. */
const OVERFLOW_STATUSES: ReadonlySet<number | null> = new Set([null, 400, 413, 422, 500])
/** The words are at the beginning; a provider that repeats the prompt in its message shall not cost time. */
const OVERFLOW_MAX_CHARS = 2_000

/** True for an error about a prompt that does not fit into the model's context, in whatever words. */
function isOverflow({ status, code, message }: ProviderError): boolean {
  if (!OVERFLOW_STATUSES.has(status)) return false
  if (OVERFLOW_CODES.has(code?.toLowerCase() ?? '')) return true
  const words = message?.slice(0, OVERFLOW_MAX_CHARS).toLowerCase() ?? ''
  return OVERFLOW_WORDS.some(each => each.test(words)) && !NO_OVERFLOW.test(words)
}

/** The message of an error without words. */
export const NO_MESSAGE = 'Provider returned error'

function failureCode(error: ProviderError): FailureCode {
  const { status, code } = error
  if (isOverflow(error)) return 'context_length_exceeded'
  const byCode = BY_CODE.get(code?.toLowerCase() ?? '')
  if (status === null) return byCode ?? 'provider_unavailable'
  const byStatus = PROVIDER_STATUSES[status]
  // Providers use 400 for everything; the code is more exact.
  if (byStatus !== undefined && status !== 400) return byStatus.code
  if (status >= 400 && status < 500) return byCode ?? 'invalid_request'
  return 'provider_unavailable'
}

/** Cuts provider text to one line of bounded length, without control characters. */
export function tidyMessage(text: string): string {
  const line = text
    // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is removed here
    .replace(/[\u0000-\u001f\u007f]+/g, ' ')
    .trim()
  return cut(line, LINE_LIMIT)
}

/** The words of a provider as they are, without control characters that no text has. */
function wordsOf(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is removed here
  return cut(text.replace(/[\u0000-\u0008\u000b-\u001f\u007f]+/g, ' ').trim(), QUOTED_LIMIT)
}

function cut(text: string, limit: number): string {
  return text.length > limit ? `${text.slice(0, limit).toWellFormed()}…` : text
}

/** The gateway's error for an error of a provider; its message is tidied, not yet scrubbed of secrets. */
export function providerFailure(error: ProviderError): GatewayError {
  const code = failureCode(error)
  const words = error.message?.trim() ?? ''
  const text = error.isQuoted === true ? wordsOf(words) : tidyMessage(words)
  const message = text === '' ? NO_MESSAGE : text
  const metadata: Record<string, unknown> = {}
  if (error.status !== null) metadata['provider_status'] = error.status
  if (error.code !== null) metadata['provider_code'] = tidyMessage(error.code)
  return new GatewayError(code, message, { metadata })
}

// Requests that a format cannot express

/** The error for a field that a format cannot express. `path`: as the caller sent it, e.g. `input[2].content[0]`. */
export function inexpressible(path: string, why: string): GatewayError {
  return new GatewayError('unprocessable', `${path}: ${why}`)
}

// Bounds of a reply

/** Most items in one reply, and most parts in all its messages. The longest known replies have some hundreds. */
export const ITEMS_MAX = 4_096

/**
 * Returns `count` if a reply may hold one more thing. A loop in a model, or a hostile provider, must not use up memory.
 * @throws GatewayError `provider_unavailable`
 */
export function oneMore(count: number, things: string): number {
  if (count < ITEMS_MAX) return count
  throw new GatewayError('provider_unavailable', `The provider sent too many ${things}`)
}
