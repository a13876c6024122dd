/** Statistics for the reports. Pure. */
import type { Quantiles } from './results.ts'

/** Least, middle and greatest of some values; of none: null. */
export interface Spread {
  readonly min: number
  readonly median: number
  readonly max: number
  readonly count: number
}

export function spread(values: readonly number[]): Spread | null {
  const sorted = values.filter(Number.isFinite).sort((a, b) => a - b)
  const [min] = sorted
  const max = sorted.at(-1)
  if (min === undefined || max === undefined) return null
  return { min, median: quantile(sorted, 0.5), max, count: sorted.length }
}

/** Linear interpolation between the neighbours. @param sorted ascending, not empty */
export function quantile(sorted: readonly number[], q: number): number {
  const at = q * (sorted.length - 1)
  const low = sorted[Math.floor(at)] ?? 0
  const high = sorted[Math.ceil(at)] ?? low
  return low + (high - low) * (at - Math.floor(at))
}

/** Five quantiles of values in any order, as the probes tell them; of none: null. */
export function quantilesOf(values: readonly number[]): Quantiles | null {
  if (values.length === 0) return null
  const sorted = [...values].sort((a, b) => a - b)
  const [p50 = 0, p90 = 0, p99 = 0, p999 = 0, max = 0] = [0.5, 0.9, 0.99, 0.999, 1].map(q =>
    quantile(sorted, q),
  )
  return { count: sorted.length, p50, p90, p99, p999, max }
}

/** One value per round of two subjects, joined by round: rounds in which one is missing are left out. */
export function paired(
  one: ReadonlyMap<number, number>,
  other: ReadonlyMap<number, number>,
  combine: (one: number, other: number) => number,
): number[] {
  return [...one].flatMap(([round, value]) => {
    const against = other.get(round)
    return against === undefined ? [] : [combine(value, against)]
  })
}

/**
 * Another order each round: everybody comes first in turn, and every second round goes backwards, so that nobody
 * always follows the same neighbour.
 */
export function rotated<T>(values: readonly T[], round: number): T[] {
  const count = values.length
  if (count === 0) return []
  // With an even count the same one would always begin backwards.
  const turns = count % 2 === 1 ? round : round + Math.floor(round / count)
  const step = turns % 2 === 1 ? count - 1 : 1
  return values.map((_, place) => values[(round + place * step) % count] as T)
}
