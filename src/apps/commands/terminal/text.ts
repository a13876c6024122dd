/**
 * Text for a terminal: numbers, durations, and untrusted strings without control characters. Numbers and durations are
 * ASCII, because every terminal shows that. Pure.
 */

/** Controls, also those that turn the direction of a line: they would move the cursor or hide text. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are what it removes
const CONTROLS = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]+/g

/** Text from a gateway without control characters, shortened to a length in characters. */
export function plain(text: string, maxChars = 300): string {
  const clean = text.replace(CONTROLS, ' ').trim()
  return clean.length <= maxChars ? clean : `${clean.slice(0, maxChars - 3)}...`
}

/** A number with commas between thousands. */
export function count(value: number): string {
  return String(value).replace(/\B(?=(\d{3})+$)/g, ',')
}

/** One, or several: `1 request`, `2 requests`. */
export function counted(value: number, noun: string): string {
  return `${count(value)} ${noun}${value === 1 ? '' : 's'}`
}

const SECOND_MS = 1_000
const MINUTE_MS = 60 * SECOND_MS
const HOUR_MS = 60 * MINUTE_MS
const DAY_MS = 24 * HOUR_MS

/** A duration to the second: `0:07`, `12:07`, `3:12:07`, `2d 3:12:07`. */
export function duration(ms: number): string {
  const wholeMs = Math.max(0, ms)
  const days = Math.floor(wholeMs / DAY_MS)
  const hours = Math.floor(wholeMs / HOUR_MS) % 24
  const minutes = Math.floor(wholeMs / MINUTE_MS) % 60
  const seconds = twoDigits(Math.floor(wholeMs / SECOND_MS) % 60)
  if (days === 0 && hours === 0) return `${minutes}:${seconds}`
  return `${days === 0 ? '' : `${days}d `}${hours}:${twoDigits(minutes)}:${seconds}`
}

const DURATION_UNITS = [
  ['d', DAY_MS],
  ['h', HOUR_MS],
  ['min', MINUTE_MS],
  ['s', SECOND_MS],
] as const

/** A duration in its largest unit: `5 s`, `3 min`, `2 h`, `12 d`. */
export function roughly(ms: number): string {
  const [unit, unitMs] = DURATION_UNITS.find(([, unitMs]) => ms >= unitMs) ?? (['s', SECOND_MS] as const)
  return `${Math.floor(Math.max(0, ms) / unitMs)} ${unit}`
}

function twoDigits(value: number): string {
  return String(value).padStart(2, '0')
}

/** An amount of US dollars with all its decimals, at least two. */
export function exactUsd(usd: number): string {
  // Only very small numbers have an exponent.
  const text = String(usd).includes('e') ? usd.toFixed(12).replace(/0+$/, '') : String(usd)
  const [dollars = '0', decimals = ''] = text.split('.')
  return `$${dollars}.${decimals.padEnd(2, '0')}`
}

/** An amount of US dollars in a few digits. */
export function shortUsd(usd: number): string {
  if (usd === 0 || usd >= 1) return `$${usd.toFixed(2)}`
  return exactUsd(Number(usd.toPrecision(3)))
}

/** Formats rows as aligned columns; `right` lists the columns that are right-aligned. */
export function table(rows: readonly (readonly string[])[], right: ReadonlySet<number>): string[] {
  const widths = (rows[0] ?? []).map((_, index) => Math.max(...rows.map(row => row[index]?.length ?? 0)))
  return rows.map(row =>
    row
      .map((cell, index) =>
        right.has(index) ? cell.padStart(widths[index] ?? 0) : cell.padEnd(widths[index] ?? 0),
      )
      .join('  ')
      .trimEnd(),
  )
}
