/**
 * Removes records after their retention time, in small batches: serve threads can read meanwhile, and another writer
 * waits for one batch at most. Totals of usage stay. Main thread.
 */
import { type Clock, isoInstant, type Timer } from '../clock.ts'
import type { Config } from '../config/config.ts'
import type { Files } from '../files/files.ts'
import type { Log } from '../log/log.ts'
import type { Store } from '../storage/store.ts'

export interface RetentionOptions {
  readonly store: {
    readonly ledger: Pick<Store['ledger'], 'prune'>
    readonly audit: Pick<Store['audit'], 'prune'>
    readonly batches: { readonly work: Pick<Store['batches']['work'], 'prune'> }
  }
  readonly files: Pick<Files, 'sweep'>
  readonly retention: Pick<Config['retention'], 'usageDays' | 'auditDays' | 'batchDays'>
  /**
   * Resolves with true when no record that was stored already waits to be shipped again. A removed record that comes
   * again would count twice.
   */
  readonly shipped: () => Promise<boolean>
  readonly clock: Clock
  readonly log: Pick<Log, 'fault' | 'notice'>
}

export interface Retention {
  /** Resolves when the running batch has ended. */
  close(): Promise<void>
}

const DAY_MS = 86_400_000
/** Records of one batch: some milliseconds of a disk. */
const BATCH = 200
/** Between two batches, so that other writers and the thread come first. */
const PAUSE_MS = 100
/** Soon after the start, when records of earlier processes are shipped. */
const FIRST_MS = 60_000
const INTERVAL_MS = 3_600_000

export function startRetention(options: RetentionOptions): Retention {
  const { clock, log, shipped, store, files, retention } = options
  const lists = [
    { days: retention.usageDays, prune: store.ledger.prune },
    { days: retention.auditDays, prune: store.audit.prune },
    {
      days: retention.batchDays,
      prune: (before: string, limit: number) => store.batches.work.prune(before, clock.nowMs(), limit),
    },
    // Last: a bucket that is away stops none of the others. No file takes a day to arrive.
    { days: 1, prune: (before: string, limit: number) => files.sweep(before, limit) },
  ]
  let running: Promise<void> = Promise.resolve()
  let timer: Timer = clock.after(FIRST_MS, run)
  let removed = 0
  let failing = false
  let closed = false

  function run(): void {
    running = removeBatch().then(
      more => next(more ? PAUSE_MS : INTERVAL_MS),
      (error: unknown) => {
        if (!failing) log.fault('records beyond their retention cannot be removed', error)
        failing = true
        next(INTERVAL_MS)
      },
    )
  }

  /** True if there may be more to remove. */
  async function removeBatch(): Promise<boolean> {
    if (removed === 0 && !(await shipped())) return false
    let more = false
    for (const { days, prune } of lists) {
      const count = await prune(isoInstant(clock.nowMs() - days * DAY_MS), BATCH)
      removed += count
      more ||= count === BATCH
    }
    failing = false
    if (!more) {
      if (removed > 0) log.notice('records beyond their retention are removed', { records: removed })
      removed = 0
    }
    return more
  }

  function next(delayMs: number): void {
    if (!closed) timer = clock.after(delayMs, run)
  }

  return {
    async close() {
      closed = true
      timer.cancel()
      await running
    },
  }
}
