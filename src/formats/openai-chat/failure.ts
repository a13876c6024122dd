/**
 * Reads errors of Chat Completions providers: under an error status, under 200, and inside a stream. Pure.
 * Shapes: `{error:{message,code,type,status}}`, `{error:"text"}`, `[{error:{…}}]`,
 * `{object:"error",message,code}`, `{message,type,code}`, `{detail:"text"|[{loc,msg}]}`, `{errors:[…]}`, text, HTML.
 */
import type { GatewayError } from '../../base/errors.ts'
import { filled, type Json, list, parseJson, record } from '../../base/json.ts'
import { providerFailure, waitIn } from '../failure.ts'
import type { ProviderError } from '../faults.ts'

/** The status for a kind of error: errors inside a stream often have no status. */
const STATUS_OF_KIND: ReadonlyMap<string, number> = new Map([
  ['invalid_request_error', 400],
  ['authentication_error', 401],
  ['permission_error', 403],
  ['not_found_error', 404],
  ['rate_limit_error', 429],
  ['overloaded_error', 529],
])

/** The error for a reply with an error status. `body` may be anything. */
export function chatFailure(status: number, body: string): GatewayError {
  const value = parseBody(body)
  const error = errorIn(value)
  if (error !== null) return providerFailure({ ...error, status })
  const text = body.trim()
  const isPage = value !== undefined || text.startsWith('<') || text.startsWith('{') || text.startsWith('[')
  return providerFailure({ status, code: null, message: isPage ? null : text })
}

/** The error in a body or frame; null if there is none. */
export function errorIn(value: unknown): ProviderError | null {
  // One level only: a hostile body may be nested as deep as it is long.
  const body = record(Array.isArray(value) ? value[0] : value)
  if (body === null) return null
  const error = body['error']
  const errorObject = record(error)
  if (errorObject !== null && Object.keys(errorObject).length > 0) {
    return readError(
      errorObject,
      errorObject['message'] ?? errorObject['detail'] ?? errorObject['error'],
      body,
    )
  }
  if (filled(error) !== null) return readError(body, error, body)
  if (error === true) return readError(body, body['message'] ?? body['detail'], body)
  return null
}

/**
 * The error in a body without an `error` field that is not a reply: it has a message, calls itself an error, or is
 * known to be one (`isCertain`).
 */
export function bareErrorIn(body: Json, isCertain = false): ProviderError | null {
  const message = body['message'] ?? body['detail'] ?? body['errors']
  const isError = isCertain || body['object'] === 'error' || body['type'] === 'error'
  if (!isError && (message === undefined || message === null)) return null
  return readError(body, message, body)
}

/** Parses a body; undefined for invalid JSON. A body that is only an error goes under `error`. */
function parseBody(body: string): unknown {
  const value = parseJson(body)
  if (typeof value === 'string') return { error: value }
  const object = record(value)
  if (object === null || errorIn(object) !== null) return value
  const bareError = bareErrorIn(object)
  return bareError === null ? value : { error: { code: bareError.code, message: bareError.message } }
}

function readError(error: Json, message: unknown, body: Json): ProviderError {
  const code = wordIn(error['code']) ?? wordIn(error['type']) ?? wordIn(error['status'])
  const kind = wordIn(error['type'])
  return {
    status: statusIn(error) ?? statusIn(body) ?? STATUS_OF_KIND.get(kind ?? '') ?? null,
    code,
    message: messageText(message),
    waitSeconds: waitIn(error),
  }
}

/** A code that is a word; numbers, even as text, are statuses. */
function wordIn(value: unknown): string | null {
  const text = filled(value)
  return text === null || /^\d+$/.test(text) ? null : text
}

function statusIn(error: Json): number | null {
  for (const value of [error['status_code'], error['code'], error['status']]) {
    const number = typeof value === 'string' ? Number(value) : value
    if (typeof number === 'number' && Number.isInteger(number) && number >= 400 && number <= 599)
      return number
  }
  return null
}

/** Validation errors come as lists of `{loc, msg}`, possibly wrapped in another `detail`. */
function messageText(value: unknown, depth = 0): string | null {
  if (typeof value === 'string') return value
  if (depth > 3) return null
  const elements = list(value)
  if (elements !== null) {
    const texts = elements.slice(0, 5).map(element => messageText(element, depth + 1))
    return filled(texts.filter(text => text !== null).join('; '))
  }
  const object = record(value)
  if (object === null) return null
  const text = messageText(object['msg'] ?? object['message'] ?? object['detail'], depth + 1)
  const location = list(object['loc'])
  return text !== null && location !== null
    ? `${location.slice(0, 10).filter(isStep).join('.')}: ${text}`
    : text
}

function isStep(value: unknown): value is string | number {
  return typeof value === 'string' || typeof value === 'number'
}
