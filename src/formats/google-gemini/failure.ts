/**
 * Errors as the Gemini API tells them: `{error: {code, status, message, details}}`, alone, in an array, under a
 * status of its own or under 200 inside a stream. Pure. Which failure they become is decided in `formats/failure.ts`.
 */
import { GatewayError } from '../../errors.ts'
import { providerFailure, tidyMessage } from '../failure.ts'
import { count, filled, type Json, parseJson, record, records } from '../json.ts'

/** A longer wait than a day is no hint any more. */
const RETRY_MAX_SECONDS = 86_400

/** Over-long prompts come as INVALID_ARGUMENT; only the message tells them apart. */
const TOO_LONG =
  /input (?:token count|context)[^.]{0,80}exceeds|exceeds the maximum number of (?:input )?tokens/i

/** The error of a parsed body, wherever it is kept; null when the body holds none. */
export function errorOf(body: unknown): Json | null {
  const holder = record(Array.isArray(body) ? body[0] : body)
  if (holder === null) return null
  const error = holder['error']
  if (typeof error === 'string') return { message: error }
  return record(error)
}

/**
 * The failure that an error object means. `httpStatus` is the status of the reply; null when the error came
 * inside a stream, where the error's own code stands in for it.
 */
export function failureOf(error: Json, httpStatus: number | null): GatewayError {
  const message = filled(error['message'])
  const status = httpStatus ?? claimedStatus(error['code'])
  const details = records(error['details'])
  if (details.some(detail => detail['reason'] === 'API_KEY_INVALID')) {
    // Told as 400, but it is our credential that is refused, not the caller's request.
    const refused = providerFailure({ status: 401, code: 'API_KEY_INVALID', message })
    return new GatewayError(refused.code, refused.message, {
      metadata: { ...refused.metadata, ...(status === null ? {} : { provider_status: status }) },
    })
  }
  const tooLong = message !== null && TOO_LONG.test(message)
  const failure = providerFailure({
    status,
    code: tooLong ? 'context_length_exceeded' : filled(error['status']),
    message,
  })
  const retryAfterSeconds = retryDelay(details)
  if (retryAfterSeconds === null) return failure
  return new GatewayError(failure.code, failure.message, {
    ...(failure.metadata === undefined ? {} : { metadata: failure.metadata }),
    retryAfterSeconds,
  })
}

/** What a reply with a status other than 2xx means; `body` may be anything. */
export function geminiFailure(status: number, body: string): GatewayError {
  const parsed = parseJson(body)
  // A page of HTML says nothing to a caller; a line of text may.
  if (parsed === undefined)
    return providerFailure({ status, code: null, message: /^\s*</.test(body) ? null : body })
  const error = errorOf(parsed)
  return error === null ? providerFailure({ status, code: null, message: null }) : failureOf(error, status)
}

/** The provider refused the prompt before it said anything. */
export function promptRefusal(reason: string | null, message: string | null): GatewayError {
  const said = message === null ? '' : `: ${tidyMessage(message)}`
  return new GatewayError('content_policy_violation', `The provider blocked the prompt${said}`, {
    metadata: reason === null ? {} : { provider_code: tidyMessage(reason) },
  })
}

function claimedStatus(code: unknown): number | null {
  const status = count(code)
  return status !== null && status >= 400 && status < 600 ? status : null
}

/** `RetryInfo.retryDelay` is a duration: `"34.4s"`, or `{seconds, nanos}` from some proxies. */
function retryDelay(details: readonly Json[]): number | null {
  for (const detail of details) {
    if (!filled(detail['@type'])?.endsWith('google.rpc.RetryInfo')) continue
    const delay = detail['retryDelay']
    const seconds =
      typeof delay === 'string'
        ? Number(/^(\d{1,9}(?:\.\d{1,9})?)s$/.exec(delay)?.[1] ?? 'NaN')
        : Number(record(delay)?.['seconds'] ?? Number.NaN)
    if (Number.isFinite(seconds) && seconds >= 0) return Math.min(Math.ceil(seconds), RETRY_MAX_SECONDS)
  }
  return null
}
