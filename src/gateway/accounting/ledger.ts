/**
 * The usage ledger of one serve thread: writes records to its spool, from which the supervisor ships them to the Store.
 * It keeps the latest records in memory, so that this thread finds them at once.
 */
import type { UsageSpool } from '../../storage/spool.ts'
import type { LedgerStore } from '../../storage/store.ts'
import type { UsageRecord } from '../../storage/usage.ts'
import { type UsageLine, wholeRecord } from '../../storage/usage-line.ts'

export interface Ledger {
  /** Keeps the record, together with others of this turn of the event loop. Never throws. */
  append(record: UsageRecord): void
  /** Resolves when all records until now survive a kill of the process; null: they do. Never rejects. */
  written(): Promise<void> | null
  /** Null when there is none of that id in that organization. */
  find(id: string, organizationId: string): Promise<UsageRecord | null>
}

/** Half of what is kept. About a megabyte in all; older ones have long been shipped. */
const GENERATION_MAX = 500

export function createLedger(spool: UsageSpool, store: LedgerStore): Ledger {
  // Two generations instead of a list in order: the older one goes as a whole, so that adding is all there is to do.
  // As texts, since the collector would copy thirty objects for each record, and hardly any is asked for.
  let recent = new Map<string, string>()
  let earlier: ReadonlyMap<string, string> = new Map()
  return {
    append(record) {
      const line = spool.append(record)
      if (recent.size === GENERATION_MAX) {
        earlier = recent
        recent = new Map()
      }
      recent.set(record.id, line)
    },
    written: () => spool.written(),
    async find(id, organizationId) {
      const line = recent.get(id) ?? earlier.get(id)
      if (line === undefined) return store.find(id, organizationId)
      const record = wholeRecord(JSON.parse(line) as UsageLine)
      return record.organizationId === organizationId ? record : null
    },
  }
}
