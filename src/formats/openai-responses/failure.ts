/**
 * Reads errors of Responses providers: an HTTP reply, an `error` event (flat or nested), a failed response, or a JSON
 * body with status 200. Pure.
 */
import type { GatewayError } from '../../base/errors.ts'
import { filled, isRecord, type Json, parseJson, recordOrEmpty, records } from '../../base/json.ts'
import { providerFailure, waitIn } from '../failure.ts'
import { isContentCode } from '../faults.ts'

/** The status for a code without an HTTP status. */
const STATUS_BY_CODE: ReadonlyMap<string, number> = new Map([
  ['rate_limit_exceeded', 429],
  ['insufficient_quota', 429],
  ['too_many_requests', 429],
  ['slow_down', 503],
  ['server_is_overloaded', 529],
  ['vector_store_timeout', 504],
  ['timeout', 504],
  ['request_timeout', 504],
  ['rate_limit_error', 429],
  ['overloaded_error', 529],
  ['timeout_error', 504],
  ['invalid_prompt', 400],
  ['invalid_request', 400],
  ['invalid_request_error', 400],
  ['invalid-argument', 400],
  ['unsupported_file', 400],
  ['image_parse_error', 400],
  ['image_too_large', 400],
  ['image_too_small', 400],
  ['image_file_too_large', 400],
  ['image_file_not_found', 400],
  ['empty_image_file', 400],
  ['failed_to_download_image', 400],
  ['invalid_image', 400],
  ['invalid_image_format', 400],
  ['invalid_image_mode', 400],
  ['invalid_image_url', 400],
  ['invalid_base64_image', 400],
  ['unsupported_image_media_type', 400],
])

interface ErrorFields {
  readonly status: number | null
  readonly code: string | null
  /** The class of the error, for codes that no table has. */
  readonly type: string | null
  readonly message: string | null
  readonly waitSeconds: number | null
}

/** The error in a JSON value; `status`: the HTTP status if it was an error, else null. */
export function failureOf(value: unknown, status: number | null): GatewayError {
  const error = readError(value)
  const code = error.code?.toLowerCase() ?? ''
  const codeStatus = isContentCode(code)
    ? 400
    : (STATUS_BY_CODE.get(code) ?? STATUS_BY_CODE.get(error.type ?? '') ?? null)
  return providerFailure({
    status: status ?? error.status ?? codeStatus,
    code: error.code,
    message: error.message,
    waitSeconds: error.waitSeconds,
  })
}

/** The error for a reply with an error status; the body may be JSON of any shape, plain text, HTML or empty. */
export function responsesFailure(status: number, body: string): GatewayError {
  const httpStatus = status >= 400 ? status : null
  const text = body.trim()
  const value = parseJson(text)
  if (value !== undefined) return failureOf(value, httpStatus)
  // HTML pages are for browsers and do not help callers.
  return providerFailure({ status: httpStatus, code: null, message: text.startsWith('<') ? null : text })
}

/** True for an error, whatever its HTTP status. */
export function reportsError(body: Json): boolean {
  const { error, message } = body
  // The form of nearly all replies.
  if (error == null && message == null && body['detail'] == null) return false
  return isRecord(error) || filled(error) !== null || detailMessage(body) !== null || filled(message) !== null
}

function readError(value: unknown): ErrorFields {
  if (typeof value === 'string')
    return { status: null, code: null, type: null, message: value, waitSeconds: null }
  const body = recordOrEmpty(Array.isArray(value) ? value[0] : value)
  const response = body['response']
  if (isRecord(response) && isRecord(response['error'])) return readError({ error: response['error'] })
  const error = body['error']
  const errorObject = isRecord(error) ? error : body
  return {
    status: errorStatus(errorObject) ?? errorStatus(body),
    code: errorCode(errorObject),
    type: filled(errorObject['type']),
    message:
      filled(errorObject['message']) ??
      filled(error) ??
      filled(body['message']) ??
      filled(body['Message']) ??
      detailMessage(body),
    waitSeconds: waitIn(errorObject),
  }
}

function errorCode(error: Json): string | null {
  // Azure hides the verdict of its filter one level deeper, under a code that says only "bad request".
  const innerCode = filled(recordOrEmpty(error['innererror'])['code'])
  if (innerCode !== null && isContentCode(innerCode.toLowerCase())) return innerCode
  const type = filled(error['type'])
  return filled(error['code']) ?? (type === 'error' ? null : type) ?? filled(error['__type'])
}

function errorStatus(error: Json): number | null {
  for (const key of ['status', 'status_code', 'statusCode', 'code']) {
    const value = error[key]
    const number = typeof value === 'string' && /^\d{3}$/.test(value) ? Number(value) : value
    if (typeof number === 'number' && Number.isInteger(number) && number >= 400 && number <= 599)
      return number
  }
  return null
}

function detailMessage(body: Json): string | null {
  return (
    filled(body['detail']) ??
    filled(recordOrEmpty(body['detail'])['message']) ??
    filled(records(body['detail'])[0]?.['msg'])
  )
}
