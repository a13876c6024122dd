/**
 * Reads errors of the Messages API and of proxies in front of it: Anthropic's envelope, Google's (Vertex), a bare
 * message, HTML, an empty body. Pure.
 */
import type { GatewayError } from '../../base/errors.ts'
import {
  filled,
  type Json,
  listOrEmpty,
  parseJson,
  record,
  textOrEmpty,
  wholeNumber,
} from '../../base/json.ts'
import { providerFailure, waitIn } from '../failure.ts'

/** The error in a body; `status` is null for an error inside a reply. */
export function errorMeaning(status: number | null, body: Json): GatewayError {
  const error = record(body['error'])
  const message =
    filled(error?.['message']) ?? filled(body['error']) ?? filled(body['message']) ?? filled(body['detail'])
  // Google names the kind `status` and repeats the HTTP status as `code`.
  const code = filled(error?.['type']) ?? filled(error?.['status']) ?? filled(error?.['code'])
  const statusInBody = wholeNumber(error?.['code'])
  return providerFailure({
    status:
      status ?? (statusInBody !== null && statusInBody >= 400 && statusInBody < 600 ? statusInBody : null),
    code,
    message,
    isQuoted: true,
    waitSeconds: waitIn(error ?? body),
  })
}

/** The error in a JSON value; null if there is none. */
export function bodyError(status: number | null, value: unknown): GatewayError | null {
  const body = record(value) ?? record(listOrEmpty(value)[0])
  if (body === null) return null
  const hasError = record(body['error']) !== null || filled(body['error']) !== null
  return hasError ? errorMeaning(status, body) : null
}

/** The error for a reply with a status other than 2xx. */
export function messagesFailure(status: number, body: string): GatewayError {
  const value = parseJson(body) ?? null
  const error = bodyError(status, value)
  if (error !== null) return error
  const fields = record(value)
  if (fields !== null) return errorMeaning(status, fields)
  const text = value === null ? body.trim() : textOrEmpty(value)
  // HTML pages are for browsers and do not help callers.
  const message = text === '' || text.startsWith('<') ? null : text
  return providerFailure({ status, code: null, message })
}
