/**
 * Deletes records after their retention time (`retention` in the settings), in small batches, so that serve threads can
 * read in between and another writer waits for one batch at most. Usage totals are kept. Main thread.
 */
import { type Clock, isoInstant, type Timer } from '../../base/clock.ts'
import type { Log } from '../../base/log/log.ts'
import type { Files } from '../../features/files/files.ts'
import type { Store } from '../../storage/store.ts'
import type { Config } from '../config/settings.ts'

interface RetentionOptions {
  readonly store: {
    readonly ledger: Pick<Store['ledger'], 'prune' | 'pruneUnasked'>
    readonly audit: Pick<Store['audit'], 'prune'>
    readonly alerts: Pick<Store['alerts'], 'prune'>
    readonly batches: { readonly work: Pick<Store['batches']['work'], 'prune'> }
  }
  readonly files: Pick<Files, 'sweep'>
  readonly retention: Config['retention']
  /**
   * Resolves to true if no stored record waits to be shipped again. A removed record that is shipped again would be
   * counted twice.
   */
  readonly shipped: () => Promise<boolean>
  readonly clock: Clock
  readonly log: Pick<Log, 'fault' | 'notice'>
}

export interface Retention {
  /** Resolves when the running batches have ended. */
  close(): Promise<void>
}

/** One kind of records to remove, and the interval of the search for them. */
interface Removal {
  readonly everyMs: number
  readonly label: string
  /** Remove up to `limit` records and return their number. */
  readonly lists: readonly ((limit: number) => Promise<number>)[]
}

const DAY_MS = 86_400_000
/** Records per batch: a few milliseconds of disk time. */
const BATCH_SIZE = 200
/** Pause between two batches, so that other writers and the thread come first. */
const PAUSE_MS = 100
/** Soon after the start, when records of earlier processes are shipped. */
const FIRST_DELAY_MS = 60_000
const INTERVAL_MS = 3_600_000
/** One key may leave a thousand such records in a second. */
const UNASKED_INTERVAL_MS = 60_000

export function startRetention(options: RetentionOptions): Retention {
  const { clock, store, files, retention } = options
  const before = (days: number): string => isoInstant(clock.nowMs() - days * DAY_MS)
  const removals = [
    startRemoval(options, {
      everyMs: INTERVAL_MS,
      label: 'expired records',
      lists: [
        limit => store.ledger.prune(before(retention.usageDays), limit),
        limit => store.audit.prune(before(retention.auditDays), limit),
        limit => store.alerts.prune(before(retention.auditDays), limit),
        limit => store.batches.work.prune(before(retention.batchDays), clock.nowMs(), limit),
        // Last, so that an unreachable bucket blocks none of the others. No file takes a day to upload.
        limit => files.sweep(before(1), limit),
      ],
    }),
    startRemoval(options, {
      everyMs: UNASKED_INTERVAL_MS,
      label: 'excess records of requests that never reached a model',
      lists: [limit => store.ledger.pruneUnasked(retention.unaskedRecords, limit)],
    }),
  ]
  return {
    async close() {
      await Promise.all(removals.map(removal => removal.close()))
    },
  }
}

function startRemoval(
  { clock, log, shipped }: RetentionOptions,
  { everyMs, label, lists }: Removal,
): Retention {
  let lastRun: Promise<void> = Promise.resolve()
  let timer: Timer = clock.after(FIRST_DELAY_MS, run)
  let removed = 0
  let isFailing = false
  let isClosed = false

  function run(): void {
    lastRun = removeBatch().then(
      hasMore => next(hasMore ? PAUSE_MS : everyMs),
      (error: unknown) => {
        if (!isFailing) log.fault('retention', `cannot delete ${label}`, error)
        isFailing = true
        next(everyMs)
      },
    )
  }

  /** True if there may be more to remove. */
  async function removeBatch(): Promise<boolean> {
    if (removed === 0 && !(await shipped())) return false
    let hasMore = false
    for (const remove of lists) {
      const count = await remove(BATCH_SIZE)
      removed += count
      hasMore ||= count === BATCH_SIZE
    }
    isFailing = false
    if (!hasMore) {
      if (removed > 0) log.notice('retention', `deleted ${label}`, { records: removed })
      removed = 0
    }
    return hasMore
  }

  function next(delayMs: number): void {
    if (!isClosed) timer = clock.after(delayMs, run)
  }

  return {
    async close() {
      isClosed = true
      timer.cancel()
      await lastRun
    },
  }
}
