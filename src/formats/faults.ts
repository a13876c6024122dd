/**
 * The party at fault for a provider's error: a prompt that is too long, refused content, the account behind the key,
 * the caller, or a busy or broken provider. The provider's words and codes decide first, its status second, because
 * providers use 400 and 403 for all of them. One table for all formats. Pure.
 */
import type { FailureCode } from '../base/errors.ts'
import { PROVIDER_STATUSES } from '../base/provider-statuses.ts'

/** An error as a provider reports it. */
export interface ProviderError {
  /** HTTP status of the reply; for an error under 200, the status that its body claims. Null when unknown. */
  readonly status: number | null
  /** The provider's own code or type, e.g. `context_length_exceeded`, `overloaded_error`. */
  readonly code: string | null
  readonly message: string | null
  /** The time to wait in seconds, from the body. Absent: the body has none. */
  readonly waitSeconds?: number | null
  /** True: clients of its API parse the message, so it stays unchanged. Absent: it becomes one line. */
  readonly isQuoted?: boolean
}

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
const FAILURE_BY_CODE: ReadonlyMap<string, FailureCode> = new Map([
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

/** Providers' codes for a prompt that is too long for the model. */
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
 * Messages of providers that have no such code. Each line names the providers that use its words; many others have
 * copied them.
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

/** Errors about an output that is too long, and about limits by time, mention tokens and lengths too. */
const NO_OVERFLOW =
  /max_(?:completion_|output_|new_)?tokens['"`]?(?: is)? too large|rate.?limit|tokens per (?:minute|hour|day)|quota|throttl/

/** Statuses of errors for a prompt that is too long. llama.cpp used 500. */
const OVERFLOW_STATUSES: ReadonlySet<number | null> = new Set([null, 400, 413, 422, 500])
/** The words are at the beginning of a message. */
const MAX_SEARCHED_CHARS = 2_000

/** Codes of refused content, with any status. */
const CONTENT_CODES: ReadonlySet<string> = new Set([
  'bio_policy',
  'content_filter',
  'content_policy_violation',
  'cyber_policy',
  'data_inspection_failed',
  'image_content_policy_violation',
  'misalignment_policy_violation',
  'moderation_blocked',
  'responsibleaipolicyviolation',
])

/** True for a code, in lower case, of refused content. */
export function isContentCode(code: string): boolean {
  return CONTENT_CODES.has(code)
}

/** Words of refused content: xAI, OpenRouter, OpenAI, Azure, Alibaba, Groq. */
const CONTENT_WORDS: readonly RegExp[] = [
  /violates? (?:\w+ ){0,3}(?:usage|content|safety) (?:guidelines|polic)/,
  /failed check: safety/,
  /flagged by (?:\w+ )?moderation|(?:input|prompt|content) was flagged/,
  /rejected (?:as a result of|by) (?:our|the) safety system/,
  /content management policy/,
  /(?:may contain|contains) inappropriate content/,
]

/** Codes of a refused account, with any status: its key, its credit, its billing, its country. */
const ACCOUNT_CODES: ReadonlySet<string> = new Set([
  'access_terminated',
  'account_deactivated',
  'account_suspended',
  'api_key_invalid',
  'arrearage',
  'authentication_error',
  'billing_error',
  'billing_hard_limit_reached',
  'billing_not_active',
  'insufficient_balance',
  'insufficient_quota',
  'insufficient_user_quota',
  'invalid_api_key',
  'payment_required',
  'unsupported_country_region_territory',
])

/** Words of a refused account, for statuses that providers also use for faults of a request. */
const ACCOUNT_WORDS: readonly RegExp[] = [
  // Anthropic, xAI, OpenAI, Gemini, DeepSeek, Moonshot, Alibaba.
  /credit balance is too low/,
  /(?:incorrect|invalid) api[ -]?key|api[ -]?key (?:not valid|not found|expired|is invalid)/,
  /billing (?:hard |soft )?limit|billing (?:account )?(?:is )?not (?:active|enabled)/,
  /insufficient (?:account )?(?:balance|credits?|funds|quota)/,
  /(?:account|subscription) (?:is |has been )?(?:in arrears|overdue|suspended|deactivated|disabled|terminated)/,
  /(?:reached|exceeded) (?:your |the )?(?:specified )?(?:monthly|api) (?:spend(?:ing)?|usage|billing) limits?/,
  /(?:country|region|territory|user location)[^.]{0,40}(?:is )?not supported/,
]
/** Statuses that providers also use for errors other than a refused account, which has statuses of its own. */
const ACCOUNT_STATUSES: ReadonlySet<number | null> = new Set([null, 400, 403, 404, 422])

/**
 * An error with its message in lower case. The message is shortened, because a provider may repeat the prompt in it.
 */
interface SearchedError {
  readonly status: number | null
  readonly code: string
  readonly words: string
}

/** Words of the provider are at the beginning of a message. */
const MAX_OWN_WORDS_CHARS = 160

/**
 * The words of the provider itself, without what it quotes of the request: a caller who names a tool after an empty
 * account must not rest the endpoint.
 */
function ownWords(words: string): string {
  return words.replace(/'[^']*'|"[^"]*"|`[^`]*`/g, '').slice(0, MAX_OWN_WORDS_CHARS)
}

/** The tests that recognize a fault by its words, in the order in which they are tried. */
const RECOGNIZERS: readonly (readonly [FailureCode, (error: SearchedError) => boolean])[] = [
  [
    'context_length_exceeded',
    ({ status, code, words }) =>
      OVERFLOW_STATUSES.has(status) &&
      (OVERFLOW_CODES.has(code) ||
        (OVERFLOW_WORDS.some(pattern => pattern.test(words)) && !NO_OVERFLOW.test(words))),
  ],
  [
    'content_policy_violation',
    ({ status, code, words }) =>
      CONTENT_CODES.has(code) || (status !== 429 && CONTENT_WORDS.some(pattern => pattern.test(words))),
  ],
  [
    'account_refused',
    ({ status, code, words }) =>
      ACCOUNT_CODES.has(code) ||
      (ACCOUNT_STATUSES.has(status) && ACCOUNT_WORDS.some(pattern => pattern.test(ownWords(words)))),
  ],
]

/** The failure that an error of a provider means. */
export function faultOf({ status, code, message }: ProviderError): FailureCode {
  const error: SearchedError = {
    status,
    code: code?.toLowerCase() ?? '',
    words: message?.slice(0, MAX_SEARCHED_CHARS).toLowerCase() ?? '',
  }
  const recognizer = RECOGNIZERS.find(([, matches]) => matches(error))
  if (recognizer !== undefined) return recognizer[0]
  const byCode = FAILURE_BY_CODE.get(error.code)
  if (status === null) return byCode ?? 'provider_unavailable'
  const byStatus = PROVIDER_STATUSES[status]
  // Providers use 400 for everything, so the code is more exact.
  if (byStatus !== undefined && status !== 400) return byStatus.code
  if (status >= 400 && status < 500) return byCode ?? 'invalid_request'
  return 'provider_unavailable'
}
