/** Reading and deleting batches. */
import type { Kysely } from 'kysely'
import { type BatchStatus, TERMINAL_STATUSES } from '../../../protocol/management/batches.ts'
import type { BatchReading, StoredResult } from '../../batches.ts'
import type { Tables } from '../../tables.ts'
import { firstOf, ROW_COUNT } from '../rows.ts'
import {
  INVISIBLE_STATUSES,
  inWorkspace,
  isAmong,
  isVisible,
  partsOf,
  recordOf,
  rowsThatFit,
} from './batch-rows.ts'

export function createBatchReading(db: Kysely<Tables>): BatchReading {
  const visibleIn = (organizationId: string, workspaceId: string | null | undefined) =>
    db.selectFrom('batches').where(inWorkspace(organizationId, workspaceId)).where(isVisible)
  const isStillVisible = async (id: string): Promise<boolean> => {
    const batch = await db
      .selectFrom('batches')
      .select('id')
      .where('id', '=', id)
      .where(isVisible)
      .executeTakeFirst()
    return batch !== undefined
  }

  return {
    async list({ organizationId, workspaceId, statuses, endpoint, ...terms }, limit) {
      const { createdAfter, createdBefore, after, before } = terms
      let selection = visibleIn(organizationId, workspaceId)
      const cursorId = after ?? before
      if (cursorId !== undefined) {
        const start = await selection
          .select(['createdAt', 'id'])
          .where('id', '=', cursorId)
          .executeTakeFirst()
        if (start === undefined) return null
        selection = selection.where(({ eb, refTuple, tuple }) =>
          eb(refTuple('createdAt', 'id'), after === undefined ? '>' : '<', tuple(start.createdAt, start.id)),
        )
      }
      if (endpoint !== undefined) selection = selection.where('endpoint', '=', endpoint)
      if (statuses?.length === 0) return { items: [], hasMore: false }
      if (statuses !== undefined) selection = selection.where('status', 'in', statuses)
      if (createdAfter !== undefined) selection = selection.where('createdAt', '>', createdAfter)
      if (createdBefore !== undefined) selection = selection.where('createdAt', '<', createdBefore)
      const direction = before === undefined ? 'desc' : 'asc'
      const rows = await selection
        .selectAll()
        .orderBy('createdAt', direction)
        .orderBy('id', direction)
        .limit(limit + 1)
        .execute()
      const items = rows.slice(0, limit).map(recordOf)
      return { items: before === undefined ? items : items.reverse(), hasMore: rows.length > limit }
    },
    async find(organizationId, workspaceId, id) {
      const query = visibleIn(organizationId, workspaceId).selectAll().where('id', '=', id)
      return await firstOf(query, recordOf)
    },
    async results(id, after, end) {
      const sizes = await db
        .selectFrom('batchResults')
        .select(['number', 'resultBytes'])
        .where('batchId', '=', id)
        .where('number', '>', after)
        .orderBy('number')
        .limit(end.limit)
        .execute()
      const pageRows = rowsThatFit(sizes, ({ resultBytes }) => resultBytes, end)
      const numbers = pageRows.map(({ number }) => number)
      const results: StoredResult[] = []
      for (const part of partsOf(numbers)) results.push(...(await resultsOf(db, id, part)))
      // Checked after the read: a visible batch has not lost any results.
      return (await isStillVisible(id)) ? results : null
    },
    async unansweredLines(id, after, limit) {
      // Uses the primary key alone; the queue's index has another order.
      const lines = await db
        .selectFrom('batchLines')
        .select(['number', 'customId', 'readyMs'])
        .where('batchId', '=', id)
        .where('number', '>', after)
        .orderBy('number')
        .limit(limit)
        .execute()
      const last = lines.at(-1)
      if (last === undefined || !(await isStillVisible(id))) return null
      const items = lines
        .filter(({ readyMs }) => readyMs !== null)
        .map(({ number, customId }) => ({ number, customId }))
      return { items, last: last.number }
    },
    async remove(organizationId, workspaceId, id) {
      const { numUpdatedRows } = await db
        .updateTable('batches')
        .set({ status: 'removed', idempotencyKey: null })
        .where(inWorkspace(organizationId, workspaceId))
        .where('id', '=', id)
        .where('status', 'in', TERMINAL_STATUSES)
        .executeTakeFirst()
      if (numUpdatedRows > 0n) return 'removed'
      const runningRow = await visibleIn(organizationId, workspaceId)
        .select('id')
        .where('id', '=', id)
        .executeTakeFirst()
      return runningRow === undefined ? 'unknown' : 'running'
    },
    async countByStatus() {
      const rows = await db
        .selectFrom('batches')
        .select(['status', ROW_COUNT])
        .where('status', 'not in', INVISIBLE_STATUSES)
        .groupBy('status')
        .execute()
      return new Map(rows.map(({ status, counted }) => [status as BatchStatus, Number(counted)]))
    },
  }
}

async function resultsOf(
  db: Kysely<Tables>,
  batchId: string,
  numbers: readonly number[],
): Promise<readonly StoredResult[]> {
  // Two statements instead of a join: see `isAmong`.
  const lines = await db
    .selectFrom('batchLines')
    .select(['number', 'customId'])
    .where('batchId', '=', batchId)
    .where(isAmong(numbers))
    .execute()
  const customIds = new Map(lines.map(({ number, customId }) => [number, customId]))
  const rows = await db
    .selectFrom('batchResults')
    .select(['number', 'outcome', 'result'])
    .where('batchId', '=', batchId)
    .where(isAmong(numbers))
    .orderBy('number')
    .execute()
  return rows.map(row => ({ ...row, customId: customIds.get(row.number) ?? '' }))
}
