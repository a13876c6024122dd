/** Errors in the format of the Messages API: the envelope, and the stream event. Pure. */
import { fieldIn, type GatewayError, INTERNAL_MESSAGE, statusOf } from '../../base/errors.ts'
import { availabilityOf } from '../../protocol/envelope.ts'
import type { OutputItem } from '../../protocol/items.ts'
import { isObject } from '../../protocol/json/schema.ts'
import type { RateKind, RateStatus } from '../../protocol/rate-headers.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import type { ResponseResource } from '../../protocol/response.ts'
import type { FailureDetails } from '../dialect.ts'
import { type MessageFields, messagesUsage } from './answer.ts'
import { contentOf } from './body.ts'
import { inMessagesNames } from './paths.ts'

/** The error types of this API by ours; the rest follows from the status. */
const ERROR_TYPES: ReadonlyMap<string, string> = new Map([
  ['authentication', 'authentication_error'],
  ['key_deleted', 'authentication_error'],
  ['key_disabled', 'authentication_error'],
  ['key_expired', 'authentication_error'],
  ['payment_required', 'billing_error'],
  ['limit_spent', 'billing_error'],
  ['permission_denied', 'permission_error'],
  ['budget_spent', 'permission_error'],
  ['model_forbidden', 'permission_error'],
  ['provider_forbidden', 'permission_error'],
  ['tool_forbidden', 'permission_error'],
  ['not_found', 'not_found_error'],
  ['rate_limit_exceeded', 'rate_limit_error'],
  ['provider_overloaded', 'overloaded_error'],
  ['timeout', 'timeout_error'],
])

function typeOf(errorType: string, status: number): string {
  return ERROR_TYPES.get(errorType) ?? (status >= 400 && status < 500 ? 'invalid_request_error' : 'api_error')
}

/** This API's own error types, which a provider that speaks it sends itself. */
const NATIVE_ERROR_TYPES: ReadonlySet<unknown> = new Set([
  'invalid_request_error',
  'request_too_large',
  'rate_limit_error',
  'timeout_error',
  'overloaded_error',
  'api_error',
])

/** The provider's own type if it refused the request or failed; null: our type is sent. */
function providerErrorType({ provider_status: status, provider_code: code }: Metadata): string | null {
  const isPassedOn = typeof status === 'number' && (PASSED_ON_STATUSES.has(status) || status >= 500)
  return isPassedOn && NATIVE_ERROR_TYPES.has(code) ? String(code) : null
}

type Metadata = Readonly<Record<string, unknown>>

/** Refusals of 401 to 404 are about the gateway's account, and not the caller's. */
const PASSED_ON_STATUSES: ReadonlySet<number> = new Set([400, 413, 422, 429])

/** Stops retries of a refusal that does not pass with time; a refusal by a rate limit gets the headers of the limit. */
export function failureHeaders({
  status,
  metadata,
  headers,
}: GatewayError): Readonly<Record<string, string>> {
  const providerStatus = metadata?.['provider_status']
  if (isFinal(status) || isFinal(providerStatus)) return NO_RETRY_HEADERS
  return status === 429 && headers !== undefined ? exhaustedRateHeaders(headers) : NO_HEADERS
}

/** The limit per minute that refused a request, in the headers of this API. */
function exhaustedRateHeaders(headers: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  const resetMs = Number(headers['X-RateLimit-Reset'])
  if (!Number.isSafeInteger(resetMs)) return NO_HEADERS
  for (const kind of ['requests', 'tokens'] as const) {
    const limit = headers[`x-ratelimit-limit-${kind}`]
    const remaining = headers[`x-ratelimit-remaining-${kind}`]
    if (limit !== undefined && remaining !== undefined)
      return rateHeaders(kind, { limit: Number(limit), remaining: Number(remaining), resetMs })
  }
  return NO_HEADERS
}

/** A limit per minute in the headers of this API. */
export function rateHeaders(kind: RateKind, { limit, remaining, resetMs }: RateStatus) {
  return {
    [`anthropic-ratelimit-${kind}-limit`]: String(limit),
    [`anthropic-ratelimit-${kind}-remaining`]: String(remaining),
    [`anthropic-ratelimit-${kind}-reset`]: new Date(resetMs).toISOString(),
  }
}

function isFinal(status: unknown): boolean {
  return typeof status === 'number' && status >= 401 && status <= 404
}

const NO_RETRY_HEADERS = { 'X-Should-Retry': 'false' }
const NO_HEADERS = {}

interface Fault {
  readonly errorType: string | null
  readonly message: string
  readonly metadata: Readonly<Record<string, unknown>> | undefined
  /** The HTTP status of the error, even if another one has been sent already. */
  readonly status: number
}

function messagesError(fault: Fault): MessageFields {
  const { errorType, metadata = {}, status } = fault
  if (status === 500) return { type: 'api_error', message: INTERNAL_MESSAGE, error_type: 'server' }
  const isTooLong = errorType === 'context_length_exceeded'
  const message = isTooLong ? tooLongMessage(fault.message) : fault.message
  const { error_code, ...otherMetadata } = metadata
  const shownMetadata = inMessagesForm(otherMetadata)
  const param = status === 400 || status === 422 ? fieldIn(message) : undefined
  return {
    type: providerErrorType(metadata) ?? typeOf(errorType ?? '', status),
    message,
    error_type: errorType ?? 'unmapped',
    ...(param === undefined ? {} : { param }),
    // The public client knows some failures by this code.
    ...(error_code === undefined ? {} : { details: { error_code } }),
    ...(Object.keys(shownMetadata).length === 0 ? {} : { metadata: shownMetadata }),
  }
}

/** The body of a failure. */
export function messagesFailure(
  error: GatewayError,
  { id, metadata, usage, request }: FailureDetails,
): MessageFields {
  const { errorType, status } = error
  const message = request === null ? error.message : inMessagesNames(error.message, request)
  return {
    type: 'error',
    error: {
      ...messagesError({ errorType, message, metadata: error.metadata, status }),
      ...availabilityOf(error, metadata),
    },
    request_id: id,
    user_id: null,
    // For a fault of the gateway itself, no routing is reported.
    ...(metadata === null || status === 500 ? {} : { gateway_metadata: metadata }),
    ...(usage === null ? {} : { usage: messagesUsage(usage, null) }),
  }
}

/** The `error` event of a response that failed in mid-stream. */
export function failureEvent(response: ResponseResource, request: ResponsesRequest): MessageFields {
  const { id, error, error_type: errorType = null, usage, gateway_metadata: metadata, alignment } = response
  const status = statusOf(errorType)
  const message = inMessagesNames(error?.message ?? INTERNAL_MESSAGE, request)
  return {
    type: 'error',
    error: messagesError({ errorType, message, metadata: error?.metadata, status }),
    request_id: id,
    ...(metadata === undefined || status === 500 ? {} : { gateway_metadata: metadata }),
    ...(alignment === undefined ? {} : { alignment }),
    ...(usage === null ? {} : { usage: messagesUsage(usage, null) }),
  }
}

/** If alignment withheld a reply, the error shows it as the content it would have been. */
function inMessagesForm(metadata: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> {
  const { alignment } = metadata
  if (!isObject(alignment) || !Array.isArray(alignment['rejected'])) return metadata
  const content = contentOf(alignment['rejected'] as OutputItem[])
  return { ...metadata, alignment: { ...alignment, rejected: { role: 'assistant', content } } }
}

// The "prompt is too long" error in the wording that clients of this API recognize: they then shorten the conversation
// and retry.

/** The API's own wording. The second form is about `max_tokens`, and clients read its numbers. */
const NATIVE_WORDING = /prompt is too long: \d+ tokens > \d+ maximum|exceed context limit: \d+ \+ \d+ > \d+/
/** A number after a word for a limit. */
const LIMIT_PATTERN =
  /(?:(?:context|prompt|model|input) (?:length|window|size)|limit|maximum|allowed|less than|max input tokens|model with)(?: is| of)?(?: only)?:? ?\(?(\d{3,9})\b/i
const NUMBER_PATTERN = /\b\d{3,9}\b/g
/** Clients that find no numbers act upon this. */
const TOO_LONG_CODE = 'capability_rejected: prompt_too_long'
/** The numbers are at the beginning. */
const MAX_SEARCHED_CHARS = 2_000

/** `message`: as a provider or the gateway wrote it. */
function tooLongMessage(message: string): string {
  if (NATIVE_WORDING.test(message)) return message
  const text = message.slice(0, MAX_SEARCHED_CHARS)
  const limit = LIMIT_PATTERN.exec(text)?.[1]
  const tokens = text.match(NUMBER_PATTERN)?.find(number => Number(number) > Number(limit))
  if (limit !== undefined && tokens !== undefined)
    return `prompt is too long: ${tokens} tokens > ${limit} maximum`
  return `prompt is too long: ${message} (${TOO_LONG_CODE})`
}
