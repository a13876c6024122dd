/** Periods after which limits reset: days at midnight UTC, weeks on Monday, months. Pure. */
import type { LimitReset } from '../../protocol/management/keys.ts'

/** The beginning of the period that contains this moment, ISO 8601 UTC; without a period, an empty text. */
export function periodStart(reset: LimitReset | null, nowMs: number): string {
  if (reset === null) return BEGINNING_OF_TIME
  const now = new Date(nowMs)
  const [year, month, day] = [now.getUTCFullYear(), now.getUTCMonth(), now.getUTCDate()]
  switch (reset) {
    case 'daily':
      return iso(year, month, day)
    case 'weekly':
      // Sunday is 0.
      return iso(year, month, day - ((now.getUTCDay() + 6) % 7))
    case 'monthly':
      return iso(year, month, 1)
  }
}

/** The end of the period that contains this moment, in Unix milliseconds; without a period, infinite. */
export function periodEndMs(reset: LimitReset | null, nowMs: number): number {
  if (reset === null) return Number.POSITIVE_INFINITY
  const start = new Date(periodStart(reset, nowMs))
  const [year, month, day] = [start.getUTCFullYear(), start.getUTCMonth(), start.getUTCDate()]
  switch (reset) {
    case 'daily':
      return Date.UTC(year, month, day + 1)
    case 'weekly':
      return Date.UTC(year, month, day + 7)
    case 'monthly':
      return Date.UTC(year, month + 1, 1)
  }
}

/** Sorts before every time. */
const BEGINNING_OF_TIME = ''

function iso(year: number, month: number, day: number): string {
  return new Date(Date.UTC(year, month, day)).toISOString()
}
