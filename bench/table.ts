/** Formats the tables and numbers of the pages. Pure. */
import type { Spread } from './stats.ts'

/** Where there is no figure. */
export const NONE = '–'

export function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]): string => `| ${cells.join(' | ')} |`
  return [line(head), line(head.map(() => '---')), ...rows.map(line)].join('\n')
}

/** Three significant digits, no exponent. */
export function digits(value: number): string {
  const size = Math.abs(value)
  return size >= 100 ? value.toFixed(0) : size >= 10 ? value.toFixed(1) : value.toFixed(2)
}

export function median(of: Spread | null): string {
  return of === null ? NONE : digits(of.median)
}

/** `16.9 (15.0–18.2)`: median, least and greatest. */
export function withSpread(of: Spread | null): string {
  if (of === null) return NONE
  return of.count === 1 ? digits(of.median) : `${digits(of.median)} (${digits(of.min)}–${digits(of.max)})`
}
