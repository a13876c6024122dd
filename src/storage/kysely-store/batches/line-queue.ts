/** Batch lines as queues: claims with leases and fences, results, and lines that return to the queue. */
import { type Kysely, sql } from 'kysely'
import { TERMINAL_STATUSES } from '../../../protocol/management/batches.ts'
import type { BatchWork, HeldLine } from '../../batches.ts'
import type { Engine } from '../../engine.ts'
import type { Tables } from '../../tables.ts'
import { inRelaxedTransaction, inTransaction } from '../rows.ts'
import { INVISIBLE_STATUSES, isAmong, partsOf, rowsThatFit, settle } from './batch-rows.ts'
import { bodiesOf, RUNNING_STATUSES } from './batch-work.ts'

/** In these states no more results are accepted. */
const CLOSED_STATUSES = [...TERMINAL_STATUSES, ...INVISIBLE_STATUSES]

type Verbs = 'claimLines' | 'renew' | 'finish' | 'giveBack' | 'counts' | 'nextLineAt'

export function createBatchQueue(db: Kysely<Tables>, engine: Engine): Pick<BatchWork, Verbs> {
  return {
    claimLines(id, owner, terms) {
      return inRelaxedTransaction(db, engine, async transaction => {
        // The lock ensures that no claim is running when the batch leaves the state.
        const batch = await transaction
          .selectFrom('batches')
          .select('id')
          .where(eb => eb.and({ id, status: 'in_progress' }))
          .$if(engine.locksRows, query => query.forShare())
          .executeTakeFirst()
        if (batch === undefined) return []
        const ready = await transaction
          .selectFrom('batchLines')
          .select(['number', 'customId', 'bodyBytes', 'fence', 'tries'])
          .where('batchId', '=', id)
          .where('readyMs', '<=', terms.nowMs)
          .orderBy('readyMs')
          .orderBy('number')
          .limit(terms.limit)
          .$if(engine.locksRows, query => query.forUpdate().skipLocked())
          .execute()
        const lines = rowsThatFit(ready, ({ bodyBytes }) => bodyBytes, terms)
        const numbers = lines.map(({ number }) => number)
        for (const part of partsOf(numbers)) {
          await transaction
            .updateTable('batchLines')
            .set({ owner, readyMs: terms.leaseUntilMs, fence: sql`fence + 1` })
            .where('batchId', '=', id)
            .where(isAmong(part))
            .execute()
        }
        const bodies = await bodiesOf(transaction, id, numbers)
        return lines.map(({ number, customId, fence, tries }) => {
          const body = bodies.get(number)
          if (body === undefined) throw new TypeError('a line without a result has lost its body')
          return { batchId: id, number, customId, body, fence: fence + 1, tries }
        })
      })
    },
    renew(owner, lines, leaseUntilMs) {
      return inRelaxedTransaction(db, engine, async transaction => {
        const batches = await transaction
          .selectFrom('batches')
          .select('id')
          .where('status', 'in', RUNNING_STATUSES)
          .where('owner', '=', owner)
          .orderBy('id')
          .$if(engine.locksRows, query => query.forUpdate())
          .execute()
        for (const { id } of batches)
          await transaction.updateTable('batches').set({ leaseUntilMs }).where('id', '=', id).execute()
        const renewed: HeldLine[] = []
        for (const [batchId, batchLines] of byBatch(lines)) {
          const heldRows = await heldLines(transaction, engine, owner, batchId, batchLines)
          await changeLines(transaction, batchId, heldRows, { readyMs: leaseUntilMs })
          renewed.push(...heldRows)
        }
        return renewed
      })
    },
    finish(owner, results) {
      return inTransaction(db, async transaction => {
        const byBatchId = byBatch(results)
        if (byBatchId.size === 0) return []
        const openBatches = await transaction
          .selectFrom('batches')
          .select(['id', 'completed', 'failed', 'usage', 'roomBytes'])
          .where('id', 'in', [...byBatchId.keys()])
          .where('status', 'not in', CLOSED_STATUSES)
          .orderBy('id')
          .$if(engine.locksRows, query => query.forUpdate())
          .execute()
        const storedLines = new Set<HeldLine>()
        const batches = new Map(openBatches.map(batch => [batch.id, batch]))
        for (const [id, lines] of byBatchId) {
          const batch = batches.get(id)
          if (batch === undefined) continue
          const heldRows = await heldLines(transaction, engine, owner, id, lines)
          if (heldRows.length > 0) await settle(transaction, { batch, results: heldRows })
          for (const line of heldRows) storedLines.add(line)
        }
        return results.filter(result => storedLines.has(result))
      })
    },
    async giveBack(owner, lines) {
      await inRelaxedTransaction(db, engine, async transaction => {
        for (const [batchId, batchLines] of byBatch(lines)) {
          const heldRows = await heldLines(transaction, engine, owner, batchId, batchLines)
          // Most lines have equal values, and those take one statement.
          const sameTries = Map.groupBy(heldRows, ({ tries, notBeforeMs }) => `${tries} ${notBeforeMs}`)
          for (const part of sameTries.values()) {
            const [{ tries, notBeforeMs } = { tries: 0, notBeforeMs: 0 }] = part
            await changeLines(transaction, batchId, part, { owner: null, tries, readyMs: notBeforeMs })
          }
        }
      })
    },
    async counts(id) {
      const row = await db
        .selectFrom('batches')
        .select(['total', 'completed', 'failed', 'checkedThrough'])
        .select(({ selectFrom }) =>
          // A claimed line has the end of its lease as its time, so the index of waiting lines finds it too.
          selectFrom('batchLines')
            .select(({ fn }) => fn.countAll<number | string>().as('claimed'))
            .where('batchId', '=', id)
            .where('readyMs', '>', 0)
            .where('owner', 'is not', null)
            .as('claimed'),
        )
        .where('id', '=', id)
        .where('status', 'not in', INVISIBLE_STATUSES)
        .executeTakeFirst()
      if (row === undefined) return { unchecked: 0, waiting: 0, claimed: 0, finished: 0 }
      const unchecked = row.total - 1 - row.checkedThrough
      const claimed = Number(row.claimed)
      const finished = row.completed + row.failed
      return { unchecked, waiting: row.total - unchecked - claimed - finished, claimed, finished }
    },
    async nextLineAt(id) {
      const row = await db
        .selectFrom('batchLines')
        .select('readyMs')
        .where('batchId', '=', id)
        .where('readyMs', '>=', 0)
        .where('owner', 'is', null)
        .orderBy('readyMs')
        .limit(1)
        .executeTakeFirst()
      return row === undefined ? null : Number(row.readyMs)
    },
  }
}

/** Lines grouped by batch, in the order in which all transactions lock batches. */
function byBatch<Line extends HeldLine>(lines: readonly Line[]): ReadonlyMap<string, readonly Line[]> {
  const groups = [...Map.groupBy(lines, ({ batchId }) => batchId)]
  return new Map(groups.sort(([a], [b]) => (a < b ? -1 : 1)))
}

/** The lines among these that the owner still has, each once, locked in order. */
export async function heldLines<Line extends HeldLine>(
  transaction: Kysely<Tables>,
  { locksRows }: Engine,
  owner: string,
  batchId: string,
  lines: readonly Line[],
): Promise<readonly Line[]> {
  const byNumber = new Map<number, Line>()
  // If two results are for the same line, the first one counts.
  for (const line of lines) if (!byNumber.has(line.number)) byNumber.set(line.number, line)
  const heldRows: Line[] = []
  const numbers = [...byNumber.keys()].sort((a, b) => a - b)
  for (const part of partsOf(numbers)) {
    const rows = await transaction
      .selectFrom('batchLines')
      .select(['number', 'fence'])
      .where('batchId', '=', batchId)
      .where(isAmong(part))
      .where('owner', '=', owner)
      .orderBy('number')
      .$if(locksRows, query => query.forUpdate())
      .execute()
    for (const { number, fence } of rows) {
      const line = byNumber.get(number)
      if (line?.fence === fence) heldRows.push(line)
    }
  }
  return heldRows
}

export async function changeLines(
  transaction: Kysely<Tables>,
  batchId: string,
  lines: readonly HeldLine[],
  columns: { readonly readyMs: number; readonly owner?: string | null; readonly tries?: number },
): Promise<void> {
  for (const part of partsOf(lines.map(({ number }) => number))) {
    await transaction
      .updateTable('batchLines')
      .set(columns)
      .where('batchId', '=', batchId)
      .where(isAmong(part))
      .execute()
  }
}
