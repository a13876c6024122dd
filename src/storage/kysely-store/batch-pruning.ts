/** Pruning of batches: what nobody sees is hidden first, then removed in bounded parts. */
import type { ExpressionBuilder, Kysely } from 'kysely'
import { TERMINAL_STATUSES } from '../../protocol/batches.ts'
import type { BatchWork } from '../batches.ts'
import type { Engine } from '../engine.ts'
import type { Tables } from '../tables.ts'
import { inTransaction } from './rows.ts'

export function createBatchPruning(db: Kysely<Tables>, engine: Engine): Pick<BatchWork, 'prune'> {
  /** One batch of those that match, locked; batches that another instance is pruning are left to it. */
  const oneOf = (transaction: Kysely<Tables>, matching: 'removed' | 'hasBodies') =>
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
        let left = limit
        while (left > 0) {
          const batch = await oneOf(transaction, 'removed')
          if (batch === undefined) break
          left -= await removeLines(transaction, batch.id, left)
          if (left === 0) break
          await transaction.deleteFrom('serviceJobs').where('batchId', '=', batch.id).execute()
          await transaction.deleteFrom('batches').where('id', '=', batch.id).execute()
          left--
        }
        while (left > 0) {
          const batch = await oneOf(transaction, 'hasBodies')
          if (batch === undefined) break
          left -= await removeBodies(transaction, batch.id, left)
          if (left === 0) break
          await transaction.updateTable('batches').set({ hasBodies: 0 }).where('id', '=', batch.id).execute()
        }
        return limit - left
      })
    },
  }
}

/** Makes old and abandoned batches invisible, so that nobody sees one that has lost some of its lines. */
async function hide(
  transaction: Kysely<Tables>,
  before: string,
  nowMs: number,
  limit: number,
): Promise<void> {
  const removed = { status: 'removed', idempotencyKey: null } as const
  // The condition stands twice, because a row may change between its choice and its lock.
  const abandoned = ({ and, eb }: ExpressionBuilder<Tables, 'batches'>) =>
    and([eb('status', '=', 'opening'), eb('leaseUntilMs', '<=', nowMs)])
  const old = ({ and, eb }: ExpressionBuilder<Tables, 'batches'>) =>
    and([eb('status', 'in', TERMINAL_STATUSES), eb('finalizedAt', '<', before)])
  for (const matching of [abandoned, old]) {
    await transaction
      .updateTable('batches')
      .set(removed)
      .where('id', 'in', from => from.selectFrom('batches').select('id').where(matching).limit(limit))
      .where(matching)
      .execute()
  }
}

/** Returns the number of lines that were removed. */
async function removeLines(transaction: Kysely<Tables>, batchId: string, limit: number): Promise<number> {
  const last = await lastOf(transaction, 'batchLines', batchId, limit)
  if (last === null) return 0
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
  const last = await lastOf(transaction, 'batchBodies', batchId, limit)
  if (last === null) return 0
  const { numDeletedRows } = await transaction
    .deleteFrom('batchBodies')
    .where('batchId', '=', batchId)
    .where('number', '<=', last)
    .executeTakeFirst()
  return Number(numDeletedRows)
}

/** The number of the last of the first `limit` rows. */
async function lastOf(
  transaction: Kysely<Tables>,
  table: 'batchLines' | 'batchBodies',
  batchId: string,
  limit: number,
): Promise<number | null> {
  const rows = await transaction
    .selectFrom(table)
    .select('number')
    .where('batchId', '=', batchId)
    .where('number', '>=', 0)
    .orderBy('number')
    .limit(limit)
    .execute()
  return rows.at(-1)?.number ?? null
}
