/**
 * Counts the batches of all organizations by state, for the metrics. It asks the database on a timer, not per scrape,
 * so that an unavailable database does not delay a scrape. Main thread.
 */
import type { Clock, Timer } from '../clock.ts'
import type { BatchStatus } from '../protocol/batches.ts'
import type { Store } from '../storage/store.ts'

export interface BatchCounts {
  /** Null while it is not known. */
  current(): ReadonlyMap<BatchStatus, number> | null
  close(): Promise<void>
}

export interface BatchCountsOptions {
  readonly store: { readonly batches: Pick<Store['batches'], 'countByStatus'> }
  readonly clock: Clock
}

const INTERVAL_MS = 10_000

export function startBatchCounts({ store, clock }: BatchCountsOptions): BatchCounts {
  let counts: ReadonlyMap<BatchStatus, number> | null = null
  let timer: Timer | null = null
  let closed = false

  const read = async (): Promise<void> => {
    try {
      counts = await store.batches.countByStatus()
    } catch {
      // No figure is better than an outdated one. The store watch logs the outage.
      counts = null
    }
    if (!closed) timer = clock.after(INTERVAL_MS, readAgain)
  }
  let reading = read()
  function readAgain(): void {
    reading = read()
  }

  return {
    current: () => counts,
    async close() {
      closed = true
      timer?.cancel()
      await reading
    },
  }
}
