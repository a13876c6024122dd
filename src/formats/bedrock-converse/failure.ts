/** Reads Bedrock errors: a JSON body with a message, usually without a code, and exceptions inside a stream. Pure. */
import type { GatewayError } from '../../base/errors.ts'
import { filled, type Json, parseJson, record, wholeNumber } from '../../base/json.ts'
import { providerFailure } from '../failure.ts'

/** Prefix of an exception's name, which replaces the event type. */
export const EXCEPTION_PREFIX = 'exception:'

/** HTTP statuses of the exceptions, by their names in lower case; inside a stream only the name is there. */
const EXCEPTION_STATUSES: ReadonlyMap<string, number> = new Map([
  ['validationexception', 400],
  ['accessdeniedexception', 403],
  ['resourcenotfoundexception', 404],
  ['modeltimeoutexception', 504],
  ['modelnotreadyexception', 503],
  ['throttlingexception', 429],
  ['servicequotaexceededexception', 429],
  ['modelerrorexception', 502],
  ['modelstreamerrorexception', 502],
  ['internalserverexception', 500],
  ['serviceunavailableexception', 503],
])

/** Not the caller's fault, although it is below 500. */
const MODEL_ERROR_STATUS = 424

/** The error for a reply with a status other than 2xx. */
export function converseFailure(status: number, body: string): GatewayError {
  const fields = record(parseJson(body))
  if (fields !== null) return failureOf(status, null, fields)
  const text = body.trim()
  // HTML pages are for browsers and do not help callers.
  return providerFailure({
    status,
    code: null,
    message: text === '' || text.startsWith('<') ? null : text,
  })
}

/** The error for an exception inside a stream. */
export function streamFailure(exception: string, fields: Json): GatewayError {
  const original = wholeNumber(fields['originalStatusCode'])
  const isStatus = original !== null && original >= 400 && original < 600
  const status = isStatus ? original : (EXCEPTION_STATUSES.get(exception.toLowerCase()) ?? null)
  return failureOf(status, exception, fields)
}

function failureOf(status: number | null, exception: string | null, fields: Json): GatewayError {
  const message = filled(fields['message']) ?? filled(fields['Message']) ?? filled(fields['originalMessage'])
  // `ValidationException:http://internal.amazon.com/coral/…` in some replies.
  const code = exception ?? filled(fields['__type'])?.replace(/^.*#|:.*$/g, '') ?? null
  return providerFailure({
    // The model failed, so the request is not at fault.
    status: status === MODEL_ERROR_STATUS ? null : status,
    code,
    message,
  })
}
