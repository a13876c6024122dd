/** Moments and days as clients write them. Pure. */

const INSTANT = /^(\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2})(?:\.\d{1,9})?(?:Z|[+-]\d{2}:\d{2})$/
const DAY = /^\d{4}-\d{2}-\d{2}$/

/** Unix milliseconds of an ISO 8601 time with seconds and `Z` or an offset; null when it is none. */
export function parseInstant(text: string): number | null {
  const [, local] = INSTANT.exec(text) ?? []
  // The runtime takes the 30th of February for the 2nd of March, and 24:00 for the next day.
  if (local === undefined || !exists(`${local}.000Z`)) return null
  const ms = Date.parse(text)
  return Number.isNaN(ms) ? null : ms
}

/** Unix milliseconds of the midnight (UTC) at which a day `YYYY-MM-DD` begins; null when there is no such day. */
export function parseDay(text: string): number | null {
  const midnight = `${text}T00:00:00.000Z`
  return DAY.test(text) && exists(midnight) ? Date.parse(midnight) : null
}

function exists(iso: string): boolean {
  const ms = Date.parse(iso)
  return !Number.isNaN(ms) && new Date(ms).toISOString() === iso
}
