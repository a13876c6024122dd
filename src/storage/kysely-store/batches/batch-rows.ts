/** Code that the batch operations share: row conversion, pages of long texts, and line results. */
import {
  type Expression,
  type ExpressionBuilder,
  type Kysely,
  type Selectable,
  type SqlBool,
  sql,
} from 'kysely'
import {
  addUsage,
  type BatchPreferences,
  type BatchUsage,
  NO_USAGE,
} from '../../../protocol/management/batches.ts'
import type { BatchRecord, LineResult, PageEnd } from '../../batches.ts'
import type { BatchesTable, BatchResultsTable, StoredBatchStatus, Tables } from '../../tables.ts'

export type BatchRow = Selectable<BatchesTable>

/** States in which a batch is invisible. */
export const INVISIBLE_STATUSES = ['opening', 'removed'] as const satisfies readonly StoredBatchStatus[]

/** Rows per statement, far below the maximum number of parameters. */
const STATEMENT_ROWS_MAX = 256
/** Text per statement in UTF-16 units. Drivers copy the text, so it must stay small. */
const STATEMENT_TEXT_MAX = 4 << 20

export function isVisible({ and, eb }: ExpressionBuilder<Tables, 'batches'>) {
  return and([eb('status', '!=', 'opening'), eb('status', '!=', 'removed')])
}

/** Batches of one organization and workspace. Null selects batches without a workspace, undefined all of them. */
export function inWorkspace(organizationId: string, workspaceId: string | null | undefined) {
  return ({ and, eb }: ExpressionBuilder<Tables, 'batches'>) => {
    const inOrganization = eb('organizationId', '=', organizationId)
    if (workspaceId === undefined) return inOrganization
    return and([
      inOrganization,
      workspaceId === null ? eb('workspaceId', 'is', null) : eb('workspaceId', '=', workspaceId),
    ])
  }
}

/** The record of a visible batch. */
export function recordOf(row: BatchRow): BatchRecord {
  return {
    id: row.id,
    organizationId: row.organizationId,
    workspaceId: row.workspaceId,
    keyHash: row.keyHash,
    endpoint: row.endpoint,
    model: row.model,
    preferences: row.preferences === null ? null : (JSON.parse(row.preferences) as BatchPreferences),
    dataRegion: row.dataRegion,
    withMetadata: row.withMetadata !== 0,
    inputFile: row.inputFile === null ? null : (JSON.parse(row.inputFile) as BatchRecord['inputFile']),
    status: visibleStatus(row.status),
    total: row.total,
    completed: row.completed,
    failed: row.failed,
    usage: usageOf(row.usage),
    error: row.error,
    service: row.service === null ? null : (JSON.parse(row.service) as BatchRecord['service']),
    waiting: row.waiting === null ? null : (JSON.parse(row.waiting) as BatchRecord['waiting']),
    createdAt: row.createdAt,
    expiresAt: row.expiresAt,
    startedAt: row.startedAt,
    cancellingAt: row.cancellingAt,
    finalizedAt: row.finalizedAt,
  }
}

function visibleStatus(status: StoredBatchStatus): BatchRecord['status'] {
  if (status === 'opening' || status === 'removed') throw new TypeError('an invisible batch has no record')
  return status
}

function usageOf(column: string | null): BatchUsage {
  // Not a copy, because a sum that starts with it takes the tier of its first summand.
  return column === null ? NO_USAGE : (JSON.parse(column) as BatchUsage)
}

/** The first rows whose texts fit together; at least one. */
export function rowsThatFit<Row>(
  rows: readonly Row[],
  bytesOf: (row: Row) => number,
  { maxBytes = Infinity }: PageEnd,
): readonly Row[] {
  let bytes = 0
  let count = 0
  for (const row of rows) {
    bytes += bytesOf(row)
    if (bytes > maxBytes && count > 0) break
    count++
  }
  return rows.slice(0, count)
}

/** Splits the rows into parts for single statements. `textOf` returns the length of a row's text. */
export function* partsOf<Row>(
  rows: readonly Row[],
  textOf: (row: Row) => number = () => 0,
): Iterable<readonly Row[]> {
  let start = 0
  let length = 0
  for (const [index, row] of rows.entries()) {
    length += textOf(row)
    if (index > start && (index - start === STATEMENT_ROWS_MAX || length > STATEMENT_TEXT_MAX)) {
      yield rows.slice(start, index)
      start = index
      length = textOf(row)
    }
  }
  if (start < rows.length) yield rows.slice(start)
}

/**
 * Selects lines by number; the list must not be empty. The bounds keep PostgreSQL from reading all lines of a batch:
 * without statistics it assumes that a new batch is empty, and would use the list only as a filter.
 */
export function isAmong(numbers: readonly number[]): Expression<SqlBool> {
  const [first, last] = [Math.min(...numbers), Math.max(...numbers)]
  const between = sql<SqlBool>`number between ${first} and ${last}`
  // Usually there is no gap. Then the statement is always the same and is compiled once.
  if (last - first + 1 === new Set(numbers).size) return between
  return sql<SqlBool>`${between} and number in (${sql.join(numbers)})`
}

interface LineSettlement {
  readonly results: readonly Omit<LineResult, 'batchId' | 'fence'>[]
  /** The batch before the change, locked. */
  readonly batch: Pick<BatchRow, 'id' | 'completed' | 'failed' | 'usage' | 'roomBytes'>
}

/**
 * Stores results of lines that have none, removes the lines from the queue, deletes their bodies, and updates the
 * counts of the batch.
 */
export async function settle(transaction: Kysely<Tables>, { batch, results }: LineSettlement): Promise<void> {
  const batchId = batch.id
  let roomBytes = Number(batch.roomBytes)
  for (const part of partsOf(results, ({ result }) => result.length)) {
    const numbers = part.map(({ number }) => number)
    const rows: BatchResultsTable[] = part.map(({ number, outcome, result }) => ({
      batchId,
      number,
      outcome,
      resultBytes: Buffer.byteLength(result),
      result,
    }))
    await transaction.insertInto('batchResults').values(rows).execute()
    const lines = await transaction
      .updateTable('batchLines')
      .set({ readyMs: null, owner: null })
      .where('batchId', '=', batchId)
      .where(isAmong(numbers))
      .returning('bodyBytes')
      .execute()
    for (const { resultBytes } of rows) roomBytes += resultBytes
    for (const { bodyBytes } of lines) roomBytes -= bodyBytes
    // A request with a result is no longer needed, and its text may be private.
    await transaction
      .deleteFrom('batchBodies')
      .where('batchId', '=', batchId)
      .where(isAmong(numbers))
      .execute()
  }
  const failed = results.filter(({ outcome }) => outcome === 'failed').length
  const usage = results.reduce((sum, result) => addUsage(sum, result.usage), usageOf(batch.usage))
  await transaction
    .updateTable('batches')
    .set({
      completed: batch.completed + results.length - failed,
      failed: batch.failed + failed,
      usage: usage === NO_USAGE ? null : JSON.stringify(usage),
      roomBytes,
    })
    .where('id', '=', batchId)
    .execute()
}
