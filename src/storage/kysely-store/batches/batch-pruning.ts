/** Pruning of batches: first hides them, then deletes them in bounded parts. */
import { type ExpressionBuilder, type Kysely, sql } from 'kysely'
import { TERMINAL_STATUSES } from '../../../protocol/management/batches.ts'
import type { BatchWork } from '../../batches.ts'
import type { Engine } from '../../engine.ts'
import type { Tables } from '../../tables.ts'
import { inTransaction } from '../rows.ts'

export function createBatchPruning(db: Kysely<Tables>, engine: Engine): Pick<BatchWork, 'prune'> {
  /** Locks one matching batch. Batches that another instance is pruning are skipped. */
  const lockMatching = (transaction: Kysely<Tables>, matching: 'removed' | 'hasBodies') =>
    transaction
      .selectFrom('batches')
      .select('id')
      .$if(matching === 'removed', query => query.where('status', '=', 'removed'))
      .$if(matching === 'hasBodies', query =>
        query.where('hasBodies', '=', 1).where('status', '!=', 'removed'),
      )
      .limit(1)
      .$if(engine.locksRows, query => query.forUpdate().skipLocked())
      .executeTakeFirst()

  return {
    prune(before, nowMs, limit) {
      return inTransaction(db, async transaction => {
        await hide(transaction, before, nowMs, limit)
        let remaining = limit
        while (remaining > 0) {
          const batch = await lockMatching(transaction, 'removed')
          if (batch === undefined) break
          remaining -= await removeLines(transaction, batch.id, remaining)
          if (remaining === 0) break
          await transaction.deleteFrom('serviceJobs').where('batchId', '=', batch.id).execute()
          await transaction.deleteFrom('batches').where('id', '=', batch.id).execute()
          remaining--
        }
        while (remaining > 0) {
          const batch = await lockMatching(transaction, 'hasBodies')
          if (batch === undefined) break
          remaining -= await removeBodies(transaction, batch.id, remaining)
          if (remaining === 0) break
          await transaction.updateTable('batches').set({ hasBodies: 0 }).where('id', '=', batch.id).execute()
        }
        return limit - remaining
      })
    },
  }
}

/** Hides old and abandoned batches, so that nobody sees one with some of its lines already deleted. */
async function hide(
  transaction: Kysely<Tables>,
  before: string,
  nowMs: number,
  limit: number,
): Promise<void> {
  const removedFields = { status: 'removed', idempotencyKey: null } as const
  // The condition is checked again after locking, because the row may change between the choice and the lock.
  const isAbandoned = ({ and, eb }: ExpressionBuilder<Tables, 'batches'>) =>
    and([eb('status', '=', 'opening'), eb('leaseUntilMs', '<=', nowMs)])
  const isOld = ({ and, eb }: ExpressionBuilder<Tables, 'batches'>) =>
    and([eb('status', 'in', TERMINAL_STATUSES), eb('finalizedAt', '<', before)])
  for (const condition of [isAbandoned, isOld]) {
    await transaction
      .updateTable('batches')
      .set(removedFields)
      .where('id', 'in', from => from.selectFrom('batches').select('id').where(condition).limit(limit))
      .where(condition)
      .execute()
  }
}

/** Returns the number of lines that were removed. */
async function removeLines(transaction: Kysely<Tables>, batchId: string, limit: number): Promise<number> {
  const range = await numberRange(transaction, 'batchLines', batchId, limit)
  if (range === null) return 0
  const { last } = range
  for (const table of ['batchResults', 'batchBodies'] as const)
    await transaction.deleteFrom(table).where('batchId', '=', batchId).where('number', '<=', last).execute()
  const { numDeletedRows } = await transaction
    .deleteFrom('batchLines')
    .where('batchId', '=', batchId)
    .where('number', '<=', last)
    .executeTakeFirst()
  return Number(numDeletedRows)
}

async function removeBodies(transaction: Kysely<Tables>, batchId: string, limit: number): Promise<number> {
  const range = await numberRange(transaction, 'batchBodies', batchId, limit)
  if (range === null) return 0
  const { first, last } = range
  const { numDeletedRows } = await transaction
    .deleteFrom('batchBodies')
    .where('batchId', '=', batchId)
    .where('number', '<=', last)
    .executeTakeFirst()
  const { bytes } = await transaction
    .selectFrom('batchLines')
    .select(sql<number | string>`coalesce(sum(body_bytes), 0)`.as('bytes'))
    .where('batchId', '=', batchId)
    .where('number', '>=', first)
    .where('number', '<=', last)
    // Lines with a result have already lost their body.
    .where('readyMs', 'is not', null)
    .executeTakeFirstOrThrow()
  await transaction
    .updateTable('batches')
    .set({ roomBytes: sql`room_bytes - ${Number(bytes)}` })
    .where('id', '=', batchId)
    .execute()
  return Number(numDeletedRows)
}

/** The first and the last number of the first `limit` rows; null: there are none. */
async function numberRange(
  transaction: Kysely<Tables>,
  table: 'batchLines' | 'batchBodies',
  batchId: string,
  limit: number,
): Promise<{ readonly first: number; readonly last: number } | null> {
  const rows = await transaction
    .selectFrom(table)
    .select('number')
    .where('batchId', '=', batchId)
    .where('number', '>=', 0)
    .orderBy('number')
    .limit(limit)
    .execute()
  const [first] = rows
  const last = rows.at(-1)
  return first === undefined || last === undefined ? null : { first: first.number, last: last.number }
}
