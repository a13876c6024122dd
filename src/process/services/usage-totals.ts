/**
 * Adds usage records of an older schema to the totals. Main thread, before the gateway accepts requests, because limits
 * and sums would otherwise be too low. Runs in small batches, so that the thread can do other work in between.
 */
import { setImmediate as turn } from 'node:timers/promises'
import type { Clock } from '../../base/clock.ts'
import type { Log } from '../../base/log/log.ts'
import type { Store } from '../../storage/store.ts'

/** Some tens of milliseconds. */
const BATCH_RECORDS = 2_000
const PROGRESS_MS = 5_000

/** Goes on where an earlier call ended. @throws the error of the Store */
export async function fillTotals(
  { ledger }: Pick<Store, 'ledger'>,
  clock: Pick<Clock, 'monotonicMs'>,
  log: Pick<Log, 'notice'>,
): Promise<void> {
  let records = 0
  let loggedMs = Number.NEGATIVE_INFINITY
  for (;;) {
    const batch = await ledger.fillTotals(BATCH_RECORDS)
    if (batch === null) break
    records += batch.counted
    if (clock.monotonicMs() - loggedMs >= PROGRESS_MS) {
      loggedMs = clock.monotonicMs()
      log.notice('ledger', 'adding older usage records to the totals; requests wait until this is done', {
        records,
        upTo: batch.upTo ?? '',
      })
    }
    await turn()
  }
  if (records > 0) log.notice('ledger', 'added older usage records to the totals', { records })
}
