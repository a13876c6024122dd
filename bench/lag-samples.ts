/** Reads the samples that lag.ts recorded within a window. */
import { readFileSync } from 'node:fs'
import type { Quantiles } from './results.ts'
import { quantilesOf } from './stats.ts'

export interface Within {
  /** CLOCK_MONOTONIC, microseconds. */
  readonly fromMicros: number
  readonly untilMicros: number
}

/** Samples are written every tenth of a second, or when the event loop comes to it. */
const WAIT_MS = 30_000
const POLL_MS = 50

/**
 * How late the event loop was, microseconds.
 * @throws Error when the notes do not reach over the whole window: silence must not pass for no lag
 */
export async function lagWithin(file: string, within: Within, waitMs = WAIT_MS): Promise<Quantiles> {
  for (const until = performance.now() + waitMs; ; ) {
    const lag = lagOf(readFileSync(file, 'utf8'), within)
    if (lag !== null) return lag
    if (performance.now() > until) throw new Error('the event loop does not tell its lag to the end')
    await new Promise(resolve => setTimeout(resolve, POLL_MS))
  }
}

/** Null: nothing within the window, or nothing after it yet. Pure. */
export function lagOf(text: string, { fromMicros, untilMicros }: Within): Quantiles | null {
  const samples = text
    .split('\n')
    .filter(Boolean)
    .map(line => line.split(' ').map(Number))
  const [last = 0] = samples.at(-1) ?? []
  if (last < untilMicros) return null
  return quantilesOf(
    samples.flatMap(([stamp = 0, late = 0]) => (stamp >= fromMicros && stamp < untilMicros ? [late] : [])),
  )
}
