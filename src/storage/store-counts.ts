/**
 * Counts of records in the Store, for the metrics. They are read on a timer and not per scrape, so that an unavailable
 * database delays no scrape. Main thread.
 */
import type { Clock, Timer } from '../base/clock.ts'

export interface StoreCounts<Name extends string> {
  /** Null when the counts are unknown now. */
  current(): ReadonlyMap<Name, number> | null
  /** Resolves when the store is no longer used. */
  close(): Promise<void>
}

interface StoreCountsOptions<Name extends string> {
  readonly count: () => Promise<ReadonlyMap<Name, number>>
  readonly intervalMs: number
  readonly clock: Clock
}

export function startStoreCounts<Name extends string>({
  count,
  intervalMs,
  clock,
}: StoreCountsOptions<Name>): StoreCounts<Name> {
  let counts: ReadonlyMap<Name, number> | null = null
  let timer: Timer | null = null
  let isClosed = false

  const read = async (): Promise<void> => {
    try {
      counts = await count()
    } catch {
      // No value is better than an outdated one. The store watch logs the outage.
      counts = null
    }
    if (!isClosed) timer = clock.after(intervalMs, readAgain)
  }
  let reading = read()
  function readAgain(): void {
    reading = read()
  }

  return {
    current: () => counts,
    async close() {
      isClosed = true
      timer?.cancel()
      await reading
    },
  }
}
