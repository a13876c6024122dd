/**
 * The usage ledger as one serve thread sees it: records go to its spool, from where the supervisor ships them into
 * the Store. The latest ones are kept at hand too, so that this thread finds at once what it has just served.
 */
import { LRUCache } from 'lru-cache'
import type { UsageSpool } from '../storage/spool.ts'
import type { LedgerStore } from '../storage/store.ts'
import type { UsageRecord } from '../storage/usage.ts'

export interface Ledger {
  /** Keeps the record: it survives a kill of the process from here on. Never throws. */
  append(record: UsageRecord): void
  /** Null when there is none of that id in that organization. */
  find(id: string, organizationId: string): Promise<UsageRecord | null>
}

/** About a megabyte; older ones have long been shipped. */
const RECENT_MAX = 1_000

export function createLedger(spool: UsageSpool, store: LedgerStore): Ledger {
  const recent = new LRUCache<string, UsageRecord>({ max: RECENT_MAX })
  return {
    append(record) {
      spool.append(record)
      recent.set(record.id, record)
    },
    async find(id, organizationId) {
      const record = recent.get(id)
      if (record !== undefined) return record.organizationId === organizationId ? record : null
      return store.find(id, organizationId)
    },
  }
}
