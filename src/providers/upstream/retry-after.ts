/** How long a provider asks clients to wait, in the headers of its reply. Pure. */
import type { Clock } from '../../base/clock.ts'
import { durationSeconds, WAIT_MAX_SECONDS } from '../../base/duration.ts'

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
  return seconds >= 0 && seconds <= WAIT_MAX_SECONDS ? seconds : null
}

function clampSeconds(seconds: number): number {
  return Math.min(WAIT_MAX_SECONDS, Math.max(0, Math.ceil(seconds)))
}
