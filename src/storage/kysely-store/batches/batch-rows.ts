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

/** States of batches that nobody sees. */
export const INVISIBLE = ['opening', 'removed'] as const satisfies readonly StoredBatchStatus[]

/** Rows per statement: far below the number of parameters that an engine takes. */
const ROWS_MAX = 256
/** Text per statement, in UTF-16 units, so that the copy of it which drivers make is small. */
const TEXT_MAX = 4 << 20

export function isVisible({ and, eb }: ExpressionBuilder<Tables, 'batches'>) {
  return and([eb('status', '!=', 'opening'), eb('status', '!=', 'removed')])
}

/** Batches of one organization and workspace; no workspace (null) is one of its own, undefined is all of them. */
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
  // Not a copy: a sum begins with it, and takes the tier of its first summand.
  return column === null ? NO_USAGE : (JSON.parse(column) as BatchUsage)
}

/** The rows from the front whose texts fit together; at least one. */
export function fitting<Row>(
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

/** The rows in parts that one statement takes; `textOf` gives the length of a row's text. */
export function* partsOf<Row>(
  rows: readonly Row[],
  textOf: (row: Row) => number = () => 0,
): Iterable<readonly Row[]> {
  let from = 0
  let length = 0
  for (const [at, row] of rows.entries()) {
    length += textOf(row)
    if (at > from && (at - from === ROWS_MAX || length > TEXT_MAX)) {
      yield rows.slice(from, at)
      from = at
      length = textOf(row)
    }
  }
  if (from < rows.length) yield rows.slice(from)
}

/**
 * Lines by their numbers, which must not be empty. The bounds keep PostgreSQL from reading all lines of a batch:
 * without statistics of a new batch it takes it for empty, and would use a list as a filter only.
 */
export function isAmong(numbers: readonly number[]): Expression<SqlBool> {
  const [first, last] = [Math.min(...numbers), Math.max(...numbers)]
  const between = sql<SqlBool>`number between ${first} and ${last}`
  // Mostly there is no gap. One statement for all numbers is compiled once.
  if (last - first + 1 === new Set(numbers).size) return between
  return sql<SqlBool>`${between} and number in (${sql.join(numbers)})`
}

interface Settled {
  readonly results: readonly Omit<LineResult, 'batchId' | 'fence'>[]
  /** The batch as it is before, locked. */
  readonly batch: Pick<BatchRow, 'id' | 'completed' | 'failed' | 'usage' | 'roomBytes'>
}

/**
 * Stores results of lines that have none, takes the lines out of the queue, drops their bodies, and counts all in the
 * row of the batch.
 */
export async function settle(transaction: Kysely<Tables>, { batch, results }: Settled): Promise<void> {
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
    // Nobody needs a request that has its result, and its text may be private.
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
