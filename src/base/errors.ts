/**
 * The error type of the gateway and the table of all failures. A test keeps FAILURES equal to docs/errors.md. Leaf.
 */
import { types } from 'node:util'

/**
 * The scope in which a failed attempt may be retried: at another endpoint of the model, with another model, or not at
 * all.
 */
export type Retry = 'endpoint' | 'model' | 'never'

/** One kind of failure, and everything that follows from it. */
export interface Failure {
  /** HTTP status, equal to `error.code` in the error envelope. */
  readonly status: number
  /** Canonical `error_type`, as sent to clients. */
  readonly errorType: string
  readonly retry: Retry
  /** Effect on the health of the called endpoint; absent: none. */
  readonly health?: 'failed' | 'limited'
  /** True if the provider refuses the account behind the key, whatever its status says. */
  readonly isOfAccount?: true
  /**
   * True if the service that failed is overloaded or limits requests: it may state how long to wait, and gets fewer
   * requests for a while.
   */
  readonly isBusy?: true
  /**
   * The fate of a batch line; absent: it fails. `again`: it is tried again if the request was sent, otherwise it
   * waits; `counts`: it is tried again whether or not the request was sent; `waits`: it waits, which does not count as
   * a try.
   */
  readonly line?: 'again' | 'counts' | 'waits'
  /** True if a running request ends with this failure too: its caller has lost the right to it. */
  readonly isLostRight?: true
  /** True if the caller pays for output before the failure; absent: only if the gateway caused the failure. */
  readonly paysOutput?: true
}

/** All failures. Code refers to the key; clients see the status and the error type. */
export const FAILURES = {
  invalid_request: { status: 400, errorType: 'invalid_request', retry: 'model' },
  invalid_prompt: { status: 400, errorType: 'invalid_prompt', retry: 'model' },
  context_length_exceeded: {
    status: 400,
    errorType: 'context_length_exceeded',
    retry: 'model',
    paysOutput: true,
  },
  content_policy_violation: { status: 400, errorType: 'content_policy_violation', retry: 'model' },
  invalid_image: { status: 400, errorType: 'invalid_image', retry: 'model' },
  credential_refused: {
    status: 400,
    errorType: 'invalid_request',
    retry: 'endpoint',
    health: 'failed',
    isOfAccount: true,
  },
  model_not_found: { status: 400, errorType: 'invalid_request', retry: 'never' },
  unknown_model: { status: 404, errorType: 'not_found', retry: 'never' },
  wrong_endpoint: { status: 400, errorType: 'invalid_request', retry: 'never' },
  authentication: { status: 401, errorType: 'authentication', retry: 'never' },
  key_deleted: { status: 401, errorType: 'key_deleted', retry: 'never', isLostRight: true },
  key_disabled: { status: 401, errorType: 'key_disabled', retry: 'never', isLostRight: true },
  key_expired: { status: 401, errorType: 'key_expired', retry: 'never', isLostRight: true },
  limit_spent: { status: 402, errorType: 'limit_spent', retry: 'never', isLostRight: true },
  budget_spent: { status: 403, errorType: 'budget_spent', retry: 'never', isLostRight: true },
  model_forbidden: { status: 403, errorType: 'model_forbidden', retry: 'never', isLostRight: true },
  provider_forbidden: { status: 403, errorType: 'provider_forbidden', retry: 'never', isLostRight: true },
  tool_forbidden: { status: 403, errorType: 'tool_forbidden', retry: 'never', isLostRight: true },
  payment_required: { status: 402, errorType: 'payment_required', retry: 'never' },
  permission_denied: { status: 403, errorType: 'permission_denied', retry: 'never' },
  not_found: { status: 404, errorType: 'not_found', retry: 'never' },
  no_endpoints: { status: 404, errorType: 'not_found', retry: 'never' },
  constraint_filtered: { status: 404, errorType: 'not_found', retry: 'never' },
  method_not_allowed: { status: 405, errorType: 'invalid_request', retry: 'never' },
  deadline_exceeded: { status: 408, errorType: 'timeout', retry: 'never' },
  conflict: { status: 409, errorType: 'precondition_failed', retry: 'never' },
  idempotency_key_reused: { status: 409, errorType: 'idempotency_key_reused', retry: 'never' },
  gone: { status: 410, errorType: 'not_found', retry: 'never' },
  length_required: { status: 411, errorType: 'invalid_request', retry: 'never' },
  payload_too_large: { status: 413, errorType: 'payload_too_large', retry: 'model' },
  unsupported_media_type: { status: 415, errorType: 'invalid_request', retry: 'never' },
  expectation_failed: { status: 417, errorType: 'invalid_request', retry: 'never' },
  unprocessable: { status: 422, errorType: 'unprocessable', retry: 'model' },
  rate_limit_exceeded: {
    status: 429,
    errorType: 'rate_limit_exceeded',
    retry: 'endpoint',
    health: 'limited',
    isBusy: true,
    line: 'again',
  },
  loop_detected: { status: 429, errorType: 'loop_detected', retry: 'never' },
  headers_too_large: { status: 431, errorType: 'invalid_request', retry: 'never' },
  internal: { status: 500, errorType: 'server', retry: 'never', line: 'counts' },
  not_implemented: { status: 501, errorType: 'invalid_request', retry: 'never' },
  provider_unavailable: {
    status: 502,
    errorType: 'provider_unavailable',
    retry: 'endpoint',
    health: 'failed',
    line: 'again',
  },
  account_refused: {
    status: 502,
    errorType: 'provider_unavailable',
    retry: 'endpoint',
    health: 'failed',
    isOfAccount: true,
    line: 'again',
  },
  reply_too_large: { status: 502, errorType: 'provider_unavailable', retry: 'never' },
  answer_mismatch: { status: 502, errorType: 'provider_unavailable', retry: 'never' },
  service_unavailable: {
    status: 503,
    errorType: 'provider_overloaded',
    retry: 'endpoint',
    health: 'failed',
    isBusy: true,
    line: 'again',
  },
  store_unavailable: { status: 503, errorType: 'server', retry: 'endpoint', line: 'again' },
  credential_unreadable: { status: 503, errorType: 'server', retry: 'never', line: 'counts' },
  overloaded: { status: 503, errorType: 'provider_overloaded', retry: 'never', line: 'waits' },
  guardrail_unavailable: { status: 503, errorType: 'provider_overloaded', retry: 'never', line: 'counts' },
  upstream_timeout: { status: 524, errorType: 'timeout', retry: 'endpoint', health: 'failed', line: 'again' },
  upstream_overloaded: {
    status: 529,
    errorType: 'provider_overloaded',
    retry: 'endpoint',
    health: 'failed',
    isBusy: true,
    line: 'again',
  },
  client_closed: { status: 499, errorType: 'cancelled', retry: 'never' },
} as const satisfies Record<string, Failure>

export type FailureCode = keyof typeof FAILURES

/**
 * `Retry-After` for requests that the gateway refuses temporarily, in seconds, by what has to happen first. A client
 * that retries without a delay would only add to the load.
 */
export const RETRY_AFTER_SECONDS = {
  /** Another request ends, or a dependency responds again. */
  moment: 1,
  /** A large body has arrived, or a code execution has ended. */
  transfer: 5,
  /** An operator must change a key. */
  operator: 60,
  /** Deleted batches must be removed from disk, once an hour. */
  removal: 3_600,
} as const

const STATUS_OF: ReadonlyMap<string, number> = new Map(
  Object.values(FAILURES)
    .map(({ errorType, status }): [string, number] => [errorType, status])
    .toReversed(),
)

/** The status of an error type, from the first failure in the table with this type; 500 for an unknown type. */
export function statusOf(errorType: string | undefined | null): number {
  return STATUS_OF.get(errorType ?? '') ?? 500
}

/** The message of every internal error, which hides the cause from clients. */
export const INTERNAL_MESSAGE = 'Internal Server Error'

/** Limits that can refuse a request, as named in explanations. */
export type LimitName =
  | 'requests_per_minute'
  | 'tokens_per_minute'
  | 'parallel'
  | 'key_limit'
  | 'budget'
  | 'credits'
  | 'open_requests_of_key'
  | 'bytes_of_key'
  | 'unread_answers_of_key'
  | 'load'

/** Optional parts of a GatewayError. */
interface GatewayErrorDetails {
  /** Sent to the client as `error.metadata`; must not contain secrets or unscrubbed text from providers. */
  readonly metadata?: Readonly<Record<string, unknown>>
  /** Whole seconds for the `Retry-After` header. */
  readonly retryAfterSeconds?: number
  /** Additional response headers, with names and values chosen by the gateway. */
  readonly headers?: Readonly<Record<string, string>>
  /**
   * The limit that refused the request, for its explanation and for `finish` in server/admission/admitted-request.ts.
   * Never sent.
   */
  readonly limit?: LimitName
  /**
   * The underlying error. Its class, its code and, at debug level, its stack are logged; its message never is. Never
   * sent.
   */
  readonly cause?: unknown
  /** True if this failure already counted against the endpoint's health through another call on the same connection. */
  readonly wasCounted?: boolean
}

/** A failure with a code from the table and a message for the client. */
export class GatewayError extends Error {
  readonly code: FailureCode
  readonly metadata: Readonly<Record<string, unknown>> | undefined
  readonly retryAfterSeconds: number | undefined
  readonly headers: Readonly<Record<string, string>> | undefined
  readonly wasCounted: boolean
  readonly limit: LimitName | undefined

  constructor(code: FailureCode, message: string, details: GatewayErrorDetails = {}) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause })
    this.name = 'GatewayError'
    this.code = code
    this.metadata = details.metadata
    this.retryAfterSeconds = details.retryAfterSeconds
    this.headers = details.headers
    this.wasCounted = details.wasCounted === true
    this.limit = details.limit
  }

  /** Everything that follows from the failure. */
  get meaning(): Failure {
    return FAILURES[this.code]
  }

  get status(): number {
    return FAILURES[this.code].status
  }

  get errorType(): string {
    return FAILURES[this.code].errorType
  }

  get retry(): Retry {
    return FAILURES[this.code].retry
  }
}

/** The failure with another message or other metadata; the original becomes its cause. */
export function rewritten(
  error: GatewayError,
  {
    message = error.message,
    metadata = error.metadata,
    wasCounted = error.wasCounted,
  }: Partial<Pick<GatewayError, 'message' | 'metadata' | 'wasCounted'>>,
): GatewayError {
  const { code, retryAfterSeconds, headers, limit } = error
  return new GatewayError(code, message, {
    wasCounted,
    ...(metadata === undefined ? undefined : { metadata }),
    ...(retryAfterSeconds === undefined ? undefined : { retryAfterSeconds }),
    ...(headers === undefined ? undefined : { headers }),
    ...(limit === undefined ? undefined : { limit }),
    cause: error,
  })
}

/** The gateway's database is unavailable. The request is valid and safe to retry. */
export function storeUnavailable(cause?: unknown): GatewayError {
  return new GatewayError('store_unavailable', "The gateway's database is currently unavailable; try again", {
    retryAfterSeconds: RETRY_AFTER_SECONDS.moment,
    cause,
  })
}

/** A dependency other than the database is unavailable or busy. The request is valid and safe to retry. */
export function serviceUnavailable(cause?: unknown): GatewayError {
  return new GatewayError('service_unavailable', 'Service temporarily unavailable', {
    retryAfterSeconds: RETRY_AFTER_SECONDS.moment,
    cause,
  })
}

/** The thread's memory is full, so this request cannot continue; other requests will end within moments. */
export function overloadError(): GatewayError {
  return new GatewayError('overloaded', 'The gateway is overloaded', {
    retryAfterSeconds: RETRY_AFTER_SECONDS.moment,
    limit: 'load',
  })
}

/** A field of the request is rejected. @param path of the field, in the names of the caller's API */
export function refuseField(path: string, problem: string): GatewayError {
  return new GatewayError('invalid_request', `${path}: ${problem}`)
}

/** Converts anything thrown to a GatewayError. Unexpected errors become `internal`, masked for the client. */
export function toGatewayError(thrown: unknown): GatewayError {
  if (thrown instanceof GatewayError) return thrown
  return new GatewayError('internal', INTERNAL_MESSAGE, { cause: thrown })
}

/** An error message of the gateway that begins with a field path. */
const FIELD = /^([A-Za-z_][\w.[\]*-]{0,255}): /

/** The field path at the beginning of an error message of the gateway. */
export function fieldIn(message: string): string | undefined {
  return FIELD.exec(message)?.[1]
}

/** The path of the field that caused the failure, if one of the gateway's own rules rejected it. */
export function fieldOf({ status, message, metadata }: GatewayError): string | undefined {
  const isOurs = (status === 400 || status === 422) && metadata?.['provider_status'] === undefined
  return isOurs ? fieldIn(message) : undefined
}

/** The part of a path that names keys which callers choose, as in the maps listed here. */
const CHOSEN_NAMES = /(?<=(?:^|\.)(?:env|headers|image_config|logit_bias|metadata|properties|variables))\..*/

/** Like `fieldOf`, for logs and traces: without names that callers choose, such as keys of metadata. */
export function loggableFieldOf(error: GatewayError): string | undefined {
  return fieldOf(error)?.replace(CHOSEN_NAMES, '')
}

/**
 * True for errors of every realm: `instanceof Error` is false for an error from another context of `node:vm`. Use this
 * wherever code logs or decides by a thrown value.
 */
export function isError(thrown: unknown): thrown is Error {
  return types.isNativeError(thrown) || thrown instanceof Error
}

/** Codes of systems and protocols, such as `ECONNREFUSED`; never text from callers or providers. */
const SYSTEM_CODE = /^[A-Z][A-Z0-9_]{1,63}$/
/** Maximum number of nested causes that are examined. */
const MAX_CAUSE_DEPTH = 6

/** The code of the error, or of the nearest cause that has one, for logs; null if none has a code. */
export function systemCode(thrown: unknown): string | null {
  let error = thrown
  for (let depth = 0; depth < MAX_CAUSE_DEPTH && isError(error); depth++) {
    const code: unknown = Reflect.get(error, 'code')
    if (typeof code === 'string' && SYSTEM_CODE.test(code)) return code
    // Node tries the addresses of a host one after the other, and reports all failures in one error.
    error = error instanceof AggregateError && error.cause === undefined ? error.errors[0] : error.cause
  }
  return null
}
