/** What all threads count with, over a Store of its own. Main thread. */

import type { Clock } from '../clock.ts'
import type { Config } from '../config/config.ts'
import { openCounters, type SharedCounters } from '../limits/shared-counters.ts'
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
  let running: Promise<void> | null = null
  /** What a former process had not shipped counts too. However many ask, it is done once. */
  const shipped = (): Promise<void> => {
    running ??= shipper.ship().finally(() => {
      running = null
    })
    return running
  }
  const counters = openCounters({
    redis: config.redis.url === null ? null : { url: config.redis.url, prefix: config.redis.prefix },
    nodes: config.quotas.nodes,
    spending: createSpending(store, shipped),
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
