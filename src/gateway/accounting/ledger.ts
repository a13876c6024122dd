/**
 * The usage ledger of one serve thread: writes records to its spool, from which the supervisor ships them to the Store.
 * The spool has the latest records in memory, so that this thread finds them at once.
 */

import type { LedgerStore } from '../../storage/ledger.ts'
import type { UsageSpool } from '../../storage/spool/spool.ts'
import { type UsageLine, wholeRecord } from '../../storage/spool/usage-line.ts'
import type { UsageRecord } from '../../storage/usage.ts'

export interface Ledger {
  /** Keeps the record, together with others of this turn of the event loop. Never throws. */
  append(record: UsageRecord): void
  /** Resolves when all records until now survive a kill of the process; null: they do. Never rejects. */
  written(): Promise<void> | null
  /** Null when there is none of that id in that organization. */
  find(id: string, organizationId: string): Promise<UsageRecord | null>
}

export function createLedger(spool: UsageSpool, store: LedgerStore): Ledger {
  return {
    append: spool.append.bind(spool),
    written: spool.written.bind(spool),
    async find(id, organizationId) {
      const line = spool.find(id)
      if (line === null) return store.find(id, organizationId)
      const record = wholeRecord(JSON.parse(line) as UsageLine)
      return record.organizationId === organizationId ? record : null
    },
  }
}
