/**
 * Errors that formats raise: provider errors, requests that a format cannot express, and replies that exceed a limit.
 * Each format reads its own error shape; `faults.ts` says whose fault it is. Pure.
 */
import { durationSeconds, WAIT_MAX_SECONDS } from '../base/duration.ts'
import { GatewayError } from '../base/errors.ts'
import { filled, type Json, record, records } from '../base/json.ts'
import { faultOf, type ProviderError } from './faults.ts'

/** "Please try again in 6m0s", "Your quota will reset after 39s". */
const WAIT_WORDS = /\b(?:again|retry|reset) (?:in|after) (\d[\d.hms]{0,20}[hms])\b/

/**
 * The time to wait that an error names, in whole seconds: in Google's details (`RetryInfo`, `quotaResetDelay`), which
 * its compatible interface has too, or in its words. Null if it names none.
 */
export function waitIn(error: Json): number | null {
  for (const detail of records(error['details'])) {
    const delay = detail['retryDelay'] ?? record(detail['metadata'])?.['quotaResetDelay']
    const seconds =
      typeof delay === 'string' ? durationSeconds(delay) : Number(record(delay)?.['seconds'] ?? Number.NaN)
    if (seconds !== null && seconds >= 0) return wholeSeconds(seconds)
  }
  const duration = WAIT_WORDS.exec(filled(error['message'])?.slice(0, MAX_LINE_CHARS) ?? '')?.[1]
  const seconds = duration === undefined ? null : durationSeconds(duration)
  return seconds === null ? null : wholeSeconds(seconds)
}

function wholeSeconds(seconds: number): number {
  return Math.min(WAIT_MAX_SECONDS, Math.ceil(seconds))
}

/** Characters. A longer message helps no caller, and a page of HTML must not become one. */
const MAX_LINE_CHARS = 500
const MAX_QUOTED_CHARS = 2_000

/** The message for an error without one. */
export const DEFAULT_MESSAGE = 'Provider returned error'

/** Cuts provider text to one line of bounded length, without control characters. */
export function tidyMessage(text: string): string {
  const line = text
    // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is removed here
    .replace(/[\u0000-\u001f\u007f]+/g, ' ')
    .trim()
  return cut(line, MAX_LINE_CHARS)
}

/** The unchanged message of a provider, without control characters. */
function quotedMessage(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is removed here
  return cut(text.replace(/[\u0000-\u0008\u000b-\u001f\u007f]+/g, ' ').trim(), MAX_QUOTED_CHARS)
}

function cut(text: string, maxChars: number): string {
  return text.length > maxChars ? `${text.slice(0, maxChars).toWellFormed()}…` : text
}

/** The gateway's error for a provider's error; its message is tidied, but not yet scrubbed of secrets. */
export function providerFailure(error: ProviderError): GatewayError {
  const code = faultOf(error)
  const rawMessage = error.message?.trim() ?? ''
  const text = error.isQuoted === true ? quotedMessage(rawMessage) : tidyMessage(rawMessage)
  const message = text === '' ? DEFAULT_MESSAGE : text
  const metadata: Record<string, unknown> = {}
  if (error.status !== null) metadata['provider_status'] = error.status
  if (error.code !== null) metadata['provider_code'] = tidyMessage(error.code)
  const { waitSeconds = null } = error
  return new GatewayError(code, message, {
    metadata,
    ...(waitSeconds === null ? {} : { retryAfterSeconds: waitSeconds }),
  })
}

/** The error for a field that a format cannot express. `path`: as the caller sent it, e.g. `input[2].content[0]`. */
export function inexpressible(path: string, problem: string): GatewayError {
  return new GatewayError('unprocessable', `${path}: ${problem}`)
}
