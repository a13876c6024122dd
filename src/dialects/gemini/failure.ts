/** Errors in the format of Google's API: the envelope, and the last event of a stream. Pure. */
import { FAILURES, fieldIn, type GatewayError, INTERNAL_MESSAGE, statusOf } from '../../base/errors.ts'
import { availabilityOf } from '../../protocol/envelope.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import type { ResponseResource } from '../../protocol/response.ts'
import type { FailureDetails } from '../dialect.ts'
import { type GeminiFields, usageMetadata } from './answer.ts'
import { inGeminiNames } from './paths.ts'

const DETAIL_TYPE = 'type.googleapis.com/google.rpc.'

/** Google's status words by HTTP status. Other statuses are faults of the request (4xx) or of the server (5xx). */
const STATUS_WORDS: Readonly<Record<number, string>> = {
  401: 'UNAUTHENTICATED',
  402: 'PERMISSION_DENIED',
  403: 'PERMISSION_DENIED',
  404: 'NOT_FOUND',
  408: 'DEADLINE_EXCEEDED',
  409: 'ABORTED',
  410: 'NOT_FOUND',
  429: 'RESOURCE_EXHAUSTED',
  499: 'CANCELLED',
  500: 'INTERNAL',
  501: 'UNIMPLEMENTED',
  504: 'DEADLINE_EXCEEDED',
  524: 'DEADLINE_EXCEEDED',
}
/** Statuses after which a client may retry. */
const RETRYABLE_STATUSES: ReadonlySet<number> = new Set([429, 503, 529])

function statusWord(status: number): string {
  return STATUS_WORDS[status] ?? (status < 500 ? 'INVALID_ARGUMENT' : 'UNAVAILABLE')
}

interface Fault {
  readonly errorType: string
  readonly message: string
  readonly metadata: Readonly<Record<string, unknown>> | undefined
  /** The HTTP status of the error, even if another one has been sent already. */
  readonly status: number
  readonly retryAfterSeconds: number | undefined
}

function geminiError(fault: Fault): GeminiFields {
  const { status, errorType } = fault
  const isInternal = status === 500
  const message = isInternal ? INTERNAL_MESSAGE : fault.message
  return {
    code: status,
    message,
    status: statusWord(status),
    details: detailsOf({ ...fault, message }),
    error_type: errorType,
    ...(isInternal || fault.metadata === undefined ? {} : { metadata: fault.metadata }),
  }
}

function detailsOf({ status, errorType, message, metadata = {}, retryAfterSeconds }: Fault): GeminiFields[] {
  const details: GeminiFields[] = [
    { '@type': `${DETAIL_TYPE}ErrorInfo`, reason: errorType.toUpperCase(), domain: 'gateway' },
  ]
  const field = status === 400 || status === 422 ? fieldIn(message) : undefined
  if (field !== undefined)
    details.push({ '@type': `${DETAIL_TYPE}BadRequest`, fieldViolations: [{ field, description: message }] })
  // Clients wait until tomorrow if the name of the limit says that it is a daily one.
  if (metadata['limit_window'] === 'day')
    details.push({
      '@type': `${DETAIL_TYPE}QuotaFailure`,
      violations: [{ quotaId: 'LimitPerDay', description: message }],
    })
  if (RETRYABLE_STATUSES.has(status) && retryAfterSeconds !== undefined)
    details.push({ '@type': `${DETAIL_TYPE}RetryInfo`, retryDelay: `${Math.ceil(retryAfterSeconds)}s` })
  return details
}

/** The body of a failure. */
export function geminiFailure(
  error: GatewayError,
  { id, metadata, usage, request }: FailureDetails,
): GeminiFields {
  const { errorType, status, retryAfterSeconds } = error
  const message = request === null ? error.message : inGeminiNames(error.message, request)
  return {
    error: {
      ...geminiError({ errorType, message, metadata: error.metadata, status, retryAfterSeconds }),
      ...availabilityOf(error, metadata),
    },
    responseId: id,
    // For a fault of the gateway itself, no routing is reported.
    ...(metadata === null || status === 500 ? {} : { gateway_metadata: metadata }),
    ...(usage === null ? {} : { usageMetadata: usageMetadata(usage) }),
  }
}

/** The last chunk of a response that failed in mid-stream. */
export function streamFailure(response: ResponseResource, request: ResponsesRequest): GeminiFields {
  const { id, error, error_type: errorType = FAILURES.internal.errorType, usage } = response
  const { gateway_metadata: metadata, alignment } = response
  const status = statusOf(errorType)
  const message = inGeminiNames(error?.message ?? INTERNAL_MESSAGE, request)
  const fault = { errorType, message, metadata: error?.metadata, status, retryAfterSeconds: undefined }
  return {
    error: geminiError(fault),
    responseId: id,
    ...(metadata === undefined || status === 500 ? {} : { gateway_metadata: metadata }),
    ...(alignment === undefined ? {} : { alignment }),
    ...(usage === null ? {} : { usageMetadata: usageMetadata(usage) }),
  }
}

/** Google's reasons for refusing a prompt, which are passed on. */
const BLOCK_REASONS: ReadonlySet<unknown> = new Set([
  'SAFETY',
  'OTHER',
  'BLOCKLIST',
  'PROHIBITED_CONTENT',
  'IMAGE_SAFETY',
  'MODEL_ARMOR',
  'JAILBREAK',
])

/** In this API, a blocked prompt is an answer without candidates; null for any other failure. */
export function blockedAnswer(
  error: GatewayError,
  { id, metadata, usage }: FailureDetails,
): GeminiFields | null {
  if (error.code !== 'content_policy_violation') return null
  const reason = error.metadata?.['provider_code']
  return {
    promptFeedback: {
      blockReason: BLOCK_REASONS.has(reason) ? reason : 'OTHER',
      blockReasonMessage: error.message,
    },
    responseId: id,
    ...(metadata === null ? {} : { gateway_metadata: metadata }),
    ...(usage === null ? {} : { usageMetadata: usageMetadata(usage) }),
  }
}
