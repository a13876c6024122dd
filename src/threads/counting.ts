/** Opens the counters that all serve threads share, over a Store connection of their own. Main thread. */
import type { Clock } from '../clock.ts'
import type { Config } from '../config/config.ts'
import { SingleFlight } from '../invalidation/single-flight.ts'
import { SharedCounters } from '../limits/shared-counters.ts'
import { createSpending } from '../limits/spending.ts'
import type { Log } from '../log/log.ts'
import { openStore } from '../storage/open.ts'
import type { LedgerShipper } from './ledger-shipper.ts'

export interface Counting {
  readonly counters: SharedCounters
  close(): Promise<void>
}

export interface CountingOptions {
  readonly config: Pick<Config, 'storage' | 'redis' | 'quotas'>
  readonly shipper: Pick<LedgerShipper, 'ship'>
  readonly clock: Clock
  readonly log: Log
}

/** @throws StoreError */
export async function startCounting({ config, shipper, clock, log }: CountingOptions): Promise<Counting> {
  const store = await openStore(config.storage.url, { wait: false })
  const shipments = new SingleFlight<void>()
  const counters = new SharedCounters({
    redis: config.redis.url === null ? null : { url: config.redis.url, prefix: config.redis.prefix },
    nodes: config.quotas.nodes,
    // Records that an earlier process left in the spool are spending too.
    spending: createSpending(store, () => shipments.run('spool', () => shipper.ship())),
    silenceMs: config.redis.silenceMs,
    clock,
    log,
  })
  return {
    counters,
    async close() {
      await counters.close()
      await store.close()
    },
  }
}
