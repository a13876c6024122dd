/**
 * Converts a provider's failure to a GatewayError, with its meaning according to the format, `Retry-After`, the
 * provider's name and scrubbed text. Text from a provider's failure reaches clients only through this file. Pure.
 */
import type { Clock } from '../../base/clock.ts'
import { durationSeconds } from '../../base/duration.ts'
import { type FailureCode, GatewayError } from '../../base/errors.ts'
import { scrub } from '../../base/scrub.ts'
import { DEFAULT_MESSAGE, providerFailure } from '../../formats/failure.ts'
import type { Format } from '../../formats/format.ts'

/** An error reply of a provider. */
export interface Refusal {
  readonly format: Pick<Format, 'failure'>
  readonly status: number
  /** Lower-case names. */
  readonly headers: Readonly<Record<string, string>>
  /** The text of the body that was read. */
  readonly body: string
  /** Every key that was sent with the request. */
  readonly secrets: readonly string[]
  /** Display name, for `error.metadata.provider_name`. */
  readonly providerName: string
  /** The owner of the key that was sent, in the gateway's words, e.g. `the gateway's key`. */
  readonly keyOwner: string
  /** True if the key belongs to the caller, who may know its limits. Absent: it does not. */
  readonly isOwnKey?: boolean
  readonly clock: Clock
}

/** Maximum depth of metadata. Formats write flat metadata. */
const METADATA_DEPTH = 4

/** Scrubs a failure that a decoder found inside a reply, and adds the provider's name. */
export function failureInReply(
  failure: GatewayError,
  provider: Pick<Refusal, 'secrets' | 'providerName'>,
): GatewayError {
  const metadata = scrubIn(failure.metadata ?? {}, provider.secrets, METADATA_DEPTH) as Record<
    string,
    unknown
  >
  metadata['provider_name'] = provider.providerName
  return new GatewayError(failure.code, scrub(failure.message, provider.secrets), {
    metadata,
    ...(failure.retryAfterSeconds === undefined
      ? undefined
      : { retryAfterSeconds: failure.retryAfterSeconds }),
    ...(failure.cause === undefined ? undefined : { cause: failure.cause }),
  })
}

/** Creates the error for an error reply of a provider. */
export function upstreamFailure(refusal: Refusal): GatewayError {
  const failure = interpret(refusal)
  const { code: failureCode, message: scrubbedMessage, metadata = {} } = failureInReply(failure, refusal)
  const isOwnKey = refusal.isOwnKey === true
  const text = isOwnKey ? scrubbedMessage : withoutIds(scrubbedMessage)
  const message = refusesKey(refusal, failureCode) ? keyRefused(refusal, text) : text
  // Callers can mend their own account, and would look in vain for a fault of the gateway.
  const code =
    failureCode === 'account_refused' && isOwnKey && refusal.status === 400
      ? 'credential_refused'
      : failureCode
  // For other failures, `Retry-After` would be misleading.
  if (failure.meaning.isBusy !== true) return new GatewayError(code, message, { metadata })
  const seconds = failure.retryAfterSeconds ?? retryAfterSeconds(refusal.headers, refusal.clock)
  const rates = isOwnKey ? providerRates(refusal.headers) : null
  return new GatewayError(code, message, {
    metadata,
    ...(rates === null ? undefined : { headers: rates }),
    ...(seconds === null ? undefined : { retryAfterSeconds: seconds }),
  })
}

function refusesKey({ status }: Refusal, failureCode: FailureCode): boolean {
  return failureCode === 'account_refused' || (status === 403 && failureCode === 'provider_unavailable')
}

/** Ids of teams, accounts, projects and keys in the words of providers. */
const OPERATOR_IDS =
  /\b(team|account|organization|project|workspace|api[ _-]key)((?:[ _-]id)?(?: ?[:=] ?| (?=[a-z]+[-_]\w*\d)))[\w.*-]+/gi

/** The message without ids of the operator, which others must not see. */
function withoutIds(text: string): string {
  return text.replace(OPERATOR_IDS, '$1$2[redacted]')
}

/** Without this error, callers would look for the fault in their own key, which the provider has never seen. */
function keyRefused({ status, providerName, keyOwner }: Refusal, providerText: string): string {
  const message = `${providerName} refused ${keyOwner}${status === 403 ? ', or the key lacks permission for this call' : ''}`
  return providerText === DEFAULT_MESSAGE ? message : `${message}: ${providerText}`
}

function interpret({ format, status, headers, body }: Refusal): GatewayError {
  // The gateway asks for no compression; if compressed bytes arrive anyway, they are not text.
  const encoding = headers['content-encoding'] ?? 'identity'
  try {
    return format.failure(status, encoding.toLowerCase() === 'identity' || encoding === '' ? body : '')
  } catch {
    return providerFailure({ status, code: null, message: null })
  }
}

function scrubIn(value: unknown, secrets: readonly string[], depth: number): unknown {
  if (typeof value === 'string') return scrub(value, secrets)
  if (typeof value !== 'object' || value === null) return value
  if (depth === 0) return null
  if (Array.isArray(value)) return value.map(item => scrubIn(item, secrets, depth - 1))
  const fields = Object.entries(value).map(([name, item]) => [
    scrub(name, secrets),
    scrubIn(item, secrets, depth - 1),
  ])
  return Object.fromEntries(fields)
}

/** A day: a longer wait is a mistake, or useless to a caller. */
const RETRY_AFTER_MAX_SECONDS = 86_400

const DECIMAL = /^\d{1,15}(?:\.\d{1,9})?$/
/** The three forms of an HTTP date. `Date.parse` accepts more. */
const HTTP_DATES = [
  /^(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d{2} [A-Z][a-z]{2} \d{4} \d{2}:\d{2}:\d{2} GMT$/,
  /^(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day, \d{2}-[A-Z][a-z]{2}-\d{2} \d{2}:\d{2}:\d{2} GMT$/,
  /^(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2} [ \d]\d \d{2}:\d{2}:\d{2} \d{4}$/,
]
const RFC3339 = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d{1,9})?(?:Z|[+-]\d{2}:\d{2})$/

/** Header pairs: remaining budget and time of its reset. A reset counts only if its budget is used up. */
const BUDGET_HEADERS = [
  ['x-ratelimit-remaining-requests', 'x-ratelimit-reset-requests'],
  ['x-ratelimit-remaining-tokens', 'x-ratelimit-reset-tokens'],
  ['anthropic-ratelimit-requests-remaining', 'anthropic-ratelimit-requests-reset'],
  ['anthropic-ratelimit-tokens-remaining', 'anthropic-ratelimit-tokens-reset'],
  ['anthropic-ratelimit-input-tokens-remaining', 'anthropic-ratelimit-input-tokens-reset'],
  ['anthropic-ratelimit-output-tokens-remaining', 'anthropic-ratelimit-output-tokens-reset'],
  ['x-ratelimit-remaining', 'x-ratelimit-reset'],
] as const

/** A plain number of at least this size is a point in time, a smaller one a delay. */
const EPOCH_SECONDS_MIN = 1_000_000_000
const EPOCH_MS_MIN = 1_000_000_000_000

/** The delay from the provider's headers: whole seconds in 0..86400, rounded up; null if none is valid. */
export function retryAfterSeconds(headers: Readonly<Record<string, string>>, clock: Clock): number | null {
  const ms = headers['retry-after-ms']?.trim() ?? ''
  if (DECIMAL.test(ms)) return clampSeconds(Number(ms) / 1000)
  const header = headers['retry-after']?.trim() ?? ''
  if (DECIMAL.test(header)) return clampSeconds(Number(header))
  if (HTTP_DATES.some(form => form.test(header))) {
    // The oldest form names no time zone; all of them mean GMT.
    const timeMs = Date.parse(header.endsWith('GMT') ? header : `${header} GMT`)
    if (!Number.isNaN(timeMs)) return clampSeconds((timeMs - clock.nowMs()) / 1000)
  }
  return durationOf(header) ?? budgetReset(headers, clock)
}

/** A header that some gateways write with a unit. */
function durationOf(text: string): number | null {
  const seconds = durationSeconds(text)
  return seconds === null ? null : clampSeconds(seconds)
}

function budgetReset(headers: Readonly<Record<string, string>>, clock: Clock): number | null {
  let latest: number | null = null
  for (const [remaining, reset] of BUDGET_HEADERS) {
    if (headers[remaining]?.trim() !== '0') continue
    const seconds = resetSeconds(headers[reset]?.trim() ?? '', clock)
    if (seconds !== null && (latest === null || seconds > latest)) latest = seconds
  }
  return latest === null ? null : clampSeconds(latest)
}

/** Seconds from now; null if the value is invalid, in the past or more than a day away. */
function resetSeconds(value: string, clock: Clock): number | null {
  let seconds: number
  if (DECIMAL.test(value)) {
    const number = Number(value)
    if (number >= EPOCH_MS_MIN) seconds = (number - clock.nowMs()) / 1000
    else if (number >= EPOCH_SECONDS_MIN) seconds = number - clock.nowMs() / 1000
    else seconds = number
  } else if (RFC3339.test(value)) {
    seconds = (Date.parse(value) - clock.nowMs()) / 1000
  } else {
    const duration = durationSeconds(value)
    if (duration === null) return null
    seconds = duration
  }
  return seconds >= 0 && seconds <= RETRY_AFTER_MAX_SECONDS ? seconds : null
}

function clampSeconds(seconds: number): number {
  return Math.min(RETRY_AFTER_MAX_SECONDS, Math.max(0, Math.ceil(seconds)))
}

/** Names of providers' rate-limit headers; all of them end in the same few words, in any order. */
const RATE_HEADER_NAME = /^(?:x-ratelimit|anthropic-(?:ratelimit|priority))-[a-z0-9-]{1,60}$/
/** Numbers, durations, points in time. */
const RATE_HEADER_VALUE = /^[A-Za-z0-9:.+-]{1,64}$/
const PROVIDER_RATES_MAX = 32

/**
 * The headers of a provider's reply that state its limits; null if there are none. `headers`: with lower-case names.
 */
export function providerRates(
  headers: Readonly<Record<string, string>>,
): Readonly<Record<string, string>> | null {
  let rates: Record<string, string> | null = null
  let count = 0
  for (const name in headers) {
    const value = headers[name] ?? ''
    if (!RATE_HEADER_NAME.test(name) || !RATE_HEADER_VALUE.test(value)) continue
    rates ??= {}
    rates[name] = value
    if (++count === PROVIDER_RATES_MAX) break
  }
  return rates
}
