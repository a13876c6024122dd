/**
 * Reads Gemini API errors: `{error: {code, status, message, details}}`, alone or in an array, sent with an error status
 * or inside a stream with status 200. `formats/failure.ts` maps them to failures of the gateway. Pure.
 */
import { GatewayError, rewritten } from '../../base/errors.ts'
import { count, filled, type Json, parseJson, record, records, textOrEmpty } from '../../base/json.ts'
import { providerFailure, tidyMessage, waitIn } from '../failure.ts'

/** The error in a parsed body; null if there is none. */
export function errorOf(body: unknown): Json | null {
  const object = record(Array.isArray(body) ? body[0] : body)
  if (object === null) return null
  const error = object['error']
  if (typeof error === 'string') return { message: error }
  return record(error)
}

/**
 * The gateway's error for an error object. `httpStatus`: the status of the reply; null for an error inside a stream,
 * where the error's own code replaces it.
 */
export function failureOf(error: Json, httpStatus: number | null): GatewayError {
  const message = filled(error['message'])
  const status = httpStatus ?? claimedStatus(error['code'])
  const details = records(error['details'])
  const isKeyInvalid = details.some(detail => detail['reason'] === 'API_KEY_INVALID')
  const failure = providerFailure({
    status,
    code: isKeyInvalid
      ? 'API_KEY_INVALID'
      : (filled(error['status']) ?? filled(error['code']) ?? filled(error['type'])),
    message,
    waitSeconds: waitIn(error),
  })
  return limitsDay(details)
    ? rewritten(failure, { metadata: { ...failure.metadata, limit_window: 'day' } })
    : failure
}

/** True if a daily limit is used up, according to its name. */
function limitsDay(details: readonly Json[]): boolean {
  return details
    .flatMap(detail => records(detail['violations']))
    .some(({ quotaId }) => /PerDay|Daily/.test(textOrEmpty(quotaId)))
}

/** The error for a reply with a status other than 2xx; `body` may be anything. */
export function geminiFailure(status: number, body: string): GatewayError {
  const value = parseJson(body)
  // HTML pages are for browsers and do not help callers; a line of text may.
  if (value === undefined)
    return providerFailure({ status, code: null, message: /^\s*</.test(body) ? null : body })
  const error = errorOf(value)
  return error === null ? providerFailure({ status, code: null, message: null }) : failureOf(error, status)
}

/** The error for a prompt that the provider blocked before any output. */
export function promptRefusal(reason: string | null, message: string | null): GatewayError {
  const detail = message === null ? '' : `: ${tidyMessage(message)}`
  return new GatewayError('content_policy_violation', `The provider blocked the prompt${detail}`, {
    metadata: reason === null ? {} : { provider_code: tidyMessage(reason) },
  })
}

function claimedStatus(code: unknown): number | null {
  const status = count(code)
  return status !== null && status >= 400 && status < 600 ? status : null
}
