/** Time: an injected clock, so that tests can control it, and timestamps as text. Leaf. */

/** A pending call of `after`. */
export interface Timer {
  cancel(): void
}

/** The source of time. */
export interface Clock {
  /** Milliseconds since the Unix epoch. May jump; for timestamps only. */
  nowMs(): number
  /** Monotonic milliseconds with a fraction; for durations and deadlines. */
  monotonicMs(): number
  /** Calls back once after `delayMs`. A pending timer does not keep the process alive. */
  after(delayMs: number, callback: () => void): Timer
}

/** The real clock. */
export const systemClock: Clock = {
  nowMs: Date.now,
  monotonicMs: performance.now.bind(performance),
  after(delayMs, callback) {
    const handle = setTimeout(callback, delayMs)
    handle.unref()
    return { cancel: () => clearTimeout(handle) }
  },
}

/** Unix time in whole seconds, the form in inference objects. */
export function unixSeconds(clock: Clock): number {
  return Math.floor(clock.nowMs() / 1000)
}

/** Settles like the promise, or rejects after `limitMs` and ignores the promise's later outcome. */
export function within<T>(clock: Clock, limitMs: number, promise: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = clock.after(limitMs, () => reject(new Error('no answer in time')))
    promise.then(resolve, reject).finally(() => timer.cancel())
  })
}

/** `00` to `99`. */
const TWO_DIGITS = Array.from({ length: 100 }, (_, n) => String(n).padStart(2, '0'))
const DAYS_PER_ERA = 146_097
/** From 1 March of the year 0 to 1 January 1970. */
const DAYS_TO_EPOCH = 719_468

/**
 * The time as ISO 8601 UTC with milliseconds, like `Date`; from 1970 to 9999. Hot path: each exchange needs two, and a
 * `Date` for each takes longer than the rest of its summary.
 */
export function isoInstant(unixMs: number): string {
  const second = Math.floor(unixMs / 1000)
  if (second !== lastSecond) {
    lastText = isoSecond(second)
    lastSecond = second
  }
  const milliseconds = Math.floor(unixMs - second * 1000)
  return `${lastText}${milliseconds < 10 ? '00' : milliseconds < 100 ? '0' : ''}${milliseconds}Z`
}

/** The last second that was formatted: many times share one. */
let lastSecond = Number.NaN
let lastText = ''

function isoSecond(unixSecond: number): string {
  const day = Math.floor(unixSecond / 86_400)
  const second = unixSecond - day * 86_400
  const minute = Math.floor(second / 60)
  const hour = Math.floor(minute / 60)
  return `${isoDay(day)}T${TWO_DIGITS[hour]}:${TWO_DIGITS[minute - hour * 60]}:${TWO_DIGITS[second - minute * 60]}.`
}

/** Howard Hinnant's `civil_from_days`: years begin in March, so that a leap day is their last day. */
function isoDay(unixDay: number): string {
  const days = unixDay + DAYS_TO_EPOCH
  const era = Math.floor(days / DAYS_PER_ERA)
  const dayOfEra = days - era * DAYS_PER_ERA
  const yearOfEra = Math.floor(
    (dayOfEra -
      Math.floor(dayOfEra / 1460) +
      Math.floor(dayOfEra / 36_524) -
      Math.floor(dayOfEra / 146_096)) /
      365,
  )
  const dayOfYear = dayOfEra - (365 * yearOfEra + Math.floor(yearOfEra / 4) - Math.floor(yearOfEra / 100))
  const monthFromMarch = Math.floor((5 * dayOfYear + 2) / 153)
  const day = dayOfYear - Math.floor((153 * monthFromMarch + 2) / 5) + 1
  const month = monthFromMarch < 10 ? monthFromMarch + 3 : monthFromMarch - 9
  const year = yearOfEra + era * 400 + (month <= 2 ? 1 : 0)
  return `${year}-${TWO_DIGITS[month]}-${TWO_DIGITS[day]}`
}
