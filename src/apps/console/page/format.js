/** Formats numbers, money and times for people. */

const NO_VALUE = '–'

/** $0.0012, $1.23, $1,234. */
export function usd(amount) {
  if (amount === null || amount === undefined) return NO_VALUE
  if (amount === 0) return '$0'
  // Floating-point products of prices are slightly off.
  const size = Number(Math.abs(amount).toPrecision(12))
  const sign = amount < 0 ? '-' : ''
  if (size < 0.000001) return `${sign}<$0.000001`
  if (size >= 1000) return `${sign}$${Math.round(size).toLocaleString('en')}`
  if (size >= 0.1) return `${sign}$${size.toFixed(2)}`
  // Two significant digits.
  const decimals = Math.min(8, 1 - Math.floor(Math.log10(size)))
  return `${sign}$${size.toFixed(decimals).replace(/0+$/, '')}`
}

/** 0.4 ms, 123 ms, 1.2 s, 2 min 3 s. */
export function duration(ms) {
  if (ms === null || ms === undefined) return NO_VALUE
  if (ms < 10) return `${Number(ms.toFixed(1))} ms`
  if (ms < 1000) return `${Math.round(ms)} ms`
  const seconds = ms / 1000
  if (seconds < 59.95) return `${seconds.toFixed(1)} s`
  const wholeSeconds = Math.round(seconds)
  return `${Math.floor(wholeSeconds / 60)} min ${wholeSeconds % 60} s`
}

/** 12, 1.2k, 3.4M. */
export function count(number) {
  if (number === null || number === undefined) return NO_VALUE
  const size = Math.abs(number)
  if (size < 1000) return String(Math.round(number * 10) / 10)
  if (size < 999_500) return `${(number / 1000).toFixed(size < 9_950 ? 1 : 0)}k`
  return `${(number / 1_000_000).toFixed(1)}M`
}

export function percent(share) {
  if (share === null || share === undefined) return NO_VALUE
  return `${Number((share * 100).toFixed(share < 0.1 ? 1 : 0))} %`
}

/** A price per token, a decimal text, as USD per million tokens. */
export function perMillion(price) {
  return usd(Number(price) * 1_000_000)
}

const CLOCK = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit' })
const DAY = new Intl.DateTimeFormat('en-CA', { dateStyle: 'short' })

/** 12:34:56, in the zone of the browser. */
export function clock(instant) {
  return CLOCK.format(new Date(instant))
}

/** 2026-11-23 12:34:56, in the zone of the browser. */
export function dateTime(instant) {
  return instant === null || instant === undefined
    ? NO_VALUE
    : `${DAY.format(new Date(instant))} ${clock(instant)}`
}

export function text(value) {
  return value === null || value === undefined || value === '' ? NO_VALUE : String(value)
}

/** 12:34, in the zone of the browser, of Unix seconds. */
export function hourAndMinute(seconds) {
  const date = new Date(seconds * 1000)
  return `${String(date.getHours()).padStart(2, '0')}:${String(date.getMinutes()).padStart(2, '0')}`
}

/** 2026-11-23, the day in UTC, of Unix seconds. */
export function dayOfSeconds(seconds) {
  return new Date(seconds * 1000).toISOString().slice(0, 10)
}

/** 12,345. */
export function whole(number) {
  return number === null || number === undefined ? NO_VALUE : Math.round(number).toLocaleString('en')
}
