/** Work on whole batches: their states, the claim of a batch, and the validation of its lines. */
import { type Kysely, sql } from 'kysely'
import { BATCH_STATUSES, type BatchStatus, TERMINAL_STATUSES } from '../../../protocol/management/batches.ts'
import type { BatchWork } from '../../batches.ts'
import type { Engine } from '../../engine.ts'
import type { BatchesTable, Tables } from '../../tables.ts'
import { firstOf, inTransaction } from '../rows.ts'
import { isAmong, isVisible, partsOf, recordOf, rowsThatFit, settle } from './batch-rows.ts'

const TERMINAL_SET: ReadonlySet<BatchStatus> = new Set(TERMINAL_STATUSES)
/** States that are not final. */
export const RUNNING_STATUSES = BATCH_STATUSES.filter(status => !TERMINAL_SET.has(status))

/** The column with the time at which a batch entered the state. */
const TIME_COLUMNS: Readonly<Partial<Record<BatchStatus, 'startedAt' | 'cancellingAt' | 'finalizedAt'>>> = {
  in_progress: 'startedAt',
  cancelling: 'cancellingAt',
  completed: 'finalizedAt',
  failed: 'finalizedAt',
  expired: 'finalizedAt',
  cancelled: 'finalizedAt',
}

type Verbs = 'open' | 'move' | 'setWaiting' | 'claimBatch' | 'releaseBatch' | 'uncheckedLines' | 'markChecked'

export function createBatchWork(db: Kysely<Tables>, engine: Engine): Pick<BatchWork, Verbs> {
  return {
    async open() {
      const rows = await db
        .selectFrom('batches')
        .selectAll()
        .where('status', 'in', RUNNING_STATUSES)
        .orderBy('createdAt')
        .orderBy('id')
        .execute()
      return rows.map(recordOf)
    },
    async move(id, from, to, time, change = {}) {
      const runningStatuses = from.filter(status => !TERMINAL_SET.has(status))
      if (runningStatuses.length === 0) return null
      const timeColumn = TIME_COLUMNS[to]
      const { error, service } = change
      const query = db
        .updateTable('batches')
        .set({
          status: to,
          waiting: null,
          ...(timeColumn === undefined ? {} : { [timeColumn]: time }),
          ...(error === undefined ? {} : { error }),
          ...(service === undefined ? {} : { service: service === null ? null : JSON.stringify(service) }),
          ...(TERMINAL_SET.has(to)
            ? { hasBodies: sql<number>`case when completed + failed < total then 1 else 0 end` }
            : {}),
        } satisfies Partial<Record<keyof BatchesTable, unknown>>)
        .where('id', '=', id)
        .where('status', 'in', runningStatuses)
        .returningAll()
      return await firstOf(query, recordOf)
    },
    async setWaiting(id, waiting) {
      await db
        .updateTable('batches')
        .set({ waiting: waiting === null ? null : JSON.stringify(waiting) })
        .where('id', '=', id)
        .where('status', '=', 'in_progress')
        .execute()
    },
    async claimBatch(id, owner, nowMs, leaseUntilMs) {
      const row = await db
        .updateTable('batches')
        .set({ owner, leaseUntilMs, fence: sql`fence + 1` })
        .where('id', '=', id)
        .where('status', 'in', RUNNING_STATUSES)
        .where(({ eb, or }) =>
          or([eb('owner', 'is', null), eb('owner', '=', owner), eb('leaseUntilMs', '<=', nowMs)]),
        )
        .returning('fence')
        .executeTakeFirst()
      return row === undefined ? null : { owner, fence: row.fence }
    },
    async releaseBatch(id, claim) {
      await db
        .updateTable('batches')
        .set({ owner: null, leaseUntilMs: 0 })
        .where(eb => eb.and({ id, owner: claim.owner, fence: claim.fence }))
        .execute()
    },
    async uncheckedLines(id, end) {
      const batch = await db
        .selectFrom('batches')
        .select('checkedThrough')
        .where('id', '=', id)
        .where(isVisible)
        .executeTakeFirst()
      if (batch === undefined) return []
      // Not a join: see `isAmong`.
      const lines = await db
        .selectFrom('batchLines')
        .select(['number', 'customId', 'bodyBytes'])
        .where('batchId', '=', id)
        .where('number', '>', batch.checkedThrough)
        .orderBy('number')
        .limit(end.limit)
        .execute()
      const pageLines = rowsThatFit(lines, ({ bodyBytes }) => bodyBytes, end)
      const bodies = await bodiesOf(
        db,
        id,
        pageLines.map(({ number }) => number),
      )
      return pageLines.flatMap(({ number, customId }) => {
        const body = bodies.get(number)
        // Another runner has checked it in the meantime.
        return body === undefined ? [] : [{ number, customId, body }]
      })
    },
    markChecked(id, claim, upTo, failures) {
      return inTransaction(db, async transaction => {
        const batch = await transaction
          .selectFrom('batches')
          .select(['id', 'completed', 'failed', 'usage', 'roomBytes', 'checkedThrough', 'total'])
          .where(eb => eb.and({ id, status: 'validating', owner: claim.owner, fence: claim.fence }))
          .$if(engine.locksRows, query => query.forUpdate())
          .executeTakeFirst()
        if (batch === undefined) return false
        // Each line is checked only once, so that it gets only one result.
        const lastNumber = Math.min(upTo, batch.total - 1)
        const results = new Map(
          failures
            .filter(({ number }) => number > batch.checkedThrough && number <= lastNumber)
            .map(failure => [failure.number, failure]),
        )
        await settle(transaction, { batch, results: [...results.values()] })
        await transaction
          .updateTable('batches')
          .set({ checkedThrough: Math.max(lastNumber, batch.checkedThrough) })
          .where('id', '=', id)
          .execute()
        return true
      })
    },
  }
}

/** Bodies by the numbers of their lines. */
export async function bodiesOf(
  db: Kysely<Tables>,
  batchId: string,
  numbers: readonly number[],
): Promise<ReadonlyMap<number, string>> {
  const bodies = new Map<number, string>()
  for (const part of partsOf(numbers)) {
    const rows = await db
      .selectFrom('batchBodies')
      .select(['number', 'body'])
      .where('batchId', '=', batchId)
      .where(isAmong(part))
      .execute()
    for (const { number, body } of rows) bodies.set(number, body)
  }
  return bodies
}
