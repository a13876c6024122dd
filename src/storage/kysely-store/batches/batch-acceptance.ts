/** Acceptance of batches: rows stay hidden until all lines are stored. */
import { type Kysely, sql } from 'kysely'
import type {
  BatchAcceptance,
  BatchRoom,
  NewLine,
  Opening,
  OpeningBatch,
  ReservationOutcome,
  ReservingBatch,
} from '../../batches.ts'
import type { Engine } from '../../engine.ts'
import { ConflictError } from '../../store.ts'
import type { Tables } from '../../tables.ts'
import { flag, inRelaxedTransaction, inTransaction, ROW_COUNT } from '../rows.ts'
import { type BatchRow, inWorkspace, partsOf, recordOf } from './batch-rows.ts'

/** Another request may take the key of an abandoned batch first. The bound prevents an endless loop. */
const OPEN_ATTEMPTS_MAX = 5

export function createBatchAcceptance(db: Kysely<Tables>, engine: Engine): BatchAcceptance {
  return {
    open(batch, nowMs) {
      return inTransaction(db, async transaction => {
        for (let attempt = 0; attempt < OPEN_ATTEMPTS_MAX; attempt++) {
          if (await insertOpening(transaction, batch)) return { outcome: 'opened' }
          const holder = await holderOf(transaction, engine, batch)
          // The caller repeats the call because the first reply was lost.
          if (holder?.id === batch.id && holder.status === 'opening') return { outcome: 'opened' }
          // Null: it was removed a moment ago, so the key is free.
          const opening = holder === null ? null : await openingOf(transaction, holder, nowMs)
          if (opening !== null) return opening
        }
        throw new TypeError('the id of a batch is that of another one')
      })
    },
    async keepOpen(id, leaseUntilMs) {
      const { numUpdatedRows } = await db
        .updateTable('batches')
        .set({ leaseUntilMs })
        .where(eb => eb.and({ id, status: 'opening' }))
        .executeTakeFirst()
      return numUpdatedRows > 0n
    },
    reserve(batch, room) {
      return inTransaction(db, async transaction => {
        const { id, organizationId, workspaceId, requests, bytes } = batch
        await engine.serialize(transaction, `batches ${organizationId} ${workspaceId}`)
        const lacking = await lackingRoom(transaction, batch, room)
        if (lacking !== null) return lacking
        const { numUpdatedRows } = await transaction
          .updateTable('batches')
          .set({ workspaceId, roomRequests: requests, roomBytes: bytes })
          .where(eb => eb.and({ id, status: 'opening' }))
          .executeTakeFirst()
        return numUpdatedRows > 0n ? 'reserved' : 'lost'
      })
    },
    async addLines(id, lines) {
      const [first] = lines
      if (first === undefined) return
      if (lines.some(({ number }, index) => number !== first.number + index)) throw gapError()
      try {
        await inRelaxedTransaction(db, engine, transaction =>
          insertLines(transaction, id, first.number, lines),
        )
      } catch (error) {
        throw engine.isDuplicate(error) ? new ConflictError('custom_id') : error
      }
    },
    async accept({ bodyHash, ...batch }) {
      const row = await db
        .updateTable('batches')
        .set({
          workspaceId: batch.workspaceId,
          bodyHash,
          endpoint: batch.endpoint,
          model: batch.model,
          preferences: batch.preferences === null ? null : JSON.stringify(batch.preferences),
          dataRegion: batch.dataRegion,
          withMetadata: flag(batch.withMetadata),
          inputFile: batch.inputFile === null ? null : JSON.stringify(batch.inputFile),
          status: 'validating',
          createdAt: batch.createdAt,
          expiresAt: batch.expiresAt,
          leaseUntilMs: 0,
        })
        .where(eb => eb.and({ id: batch.id, status: 'opening', total: batch.total }))
        .returningAll()
        .executeTakeFirst()
      if (row !== undefined) return recordOf(row)
      const existing = await db
        .selectFrom('batches')
        .selectAll()
        .where('id', '=', batch.id)
        .where('status', '!=', 'removed')
        .executeTakeFirst()
      if (existing === undefined) return null
      if (existing.status === 'opening') throw gapError()
      // The batch is already accepted; the caller repeats the call because the first reply was lost.
      return recordOf(existing)
    },
    async abandon(id) {
      await db
        .updateTable('batches')
        .set({ status: 'removed', idempotencyKey: null })
        .where(eb => eb.and({ id, status: 'opening' }))
        .execute()
    },
  }
}

/** Deleted batches whose rows still exist may use as much room again, so that deleting frees room at once. */
const REMOVED_ROOM_FACTOR = 2

/** The limit that the workspace would exceed with this batch; null: none. */
async function lackingRoom(
  transaction: Kysely<Tables>,
  { id, organizationId, workspaceId, requests, bytes }: ReservingBatch,
  room: BatchRoom,
): Promise<Exclude<ReservationOutcome, 'reserved' | 'lost'> | null> {
  const needs = { batches: 1, requests, bytes }
  const withRemoved = { ...needs }
  const rows = await transaction
    .selectFrom('batches')
    .where(inWorkspace(organizationId, workspaceId))
    .where('id', '!=', id)
    .groupBy('status')
    .select(['status', ROW_COUNT])
    .select([
      sql<number | string>`sum(room_requests)`.as('requests'),
      sql<number | string>`sum(room_bytes)`.as('bytes'),
    ])
    .execute()
  for (const row of rows) {
    for (const sums of row.status === 'removed' ? [withRemoved] : [withRemoved, needs]) {
      sums.batches += Number(row.counted)
      sums.requests += Number(row.requests)
      // Batches from before room was counted may make the sum negative.
      sums.bytes += Math.max(0, Number(row.bytes))
    }
  }
  for (const name of ['batches', 'requests', 'bytes'] as const) {
    if (needs[name] > room[name]) return name
    if (withRemoved[name] > REMOVED_ROOM_FACTOR * room[name]) return 'removing'
  }
  return null
}

/** The stored lines must match the total, or the batch would never be complete. */
function gapError(): RangeError {
  return new RangeError('the lines of a batch are added in order and without a gap')
}

/** Returns false if the batch exists already, or another one has its idempotency key. */
async function insertOpening(transaction: Kysely<Tables>, batch: OpeningBatch): Promise<boolean> {
  const { id, organizationId, keyHash, idempotencyKey, leaseUntilMs } = batch
  const row: BatchRow = {
    id,
    organizationId,
    workspaceId: null,
    keyHash,
    idempotencyKey,
    bodyHash: '',
    endpoint: '/v1/responses',
    model: '',
    preferences: null,
    dataRegion: null,
    withMetadata: 0,
    inputFile: null,
    status: 'opening',
    total: 0,
    completed: 0,
    failed: 0,
    usage: null,
    error: null,
    service: null,
    waiting: null,
    createdAt: '',
    expiresAt: '',
    startedAt: null,
    cancellingAt: null,
    finalizedAt: null,
    checkedThrough: -1,
    owner: null,
    fence: 0,
    leaseUntilMs,
    hasBodies: 0,
    roomRequests: 0,
    roomBytes: 0,
  }
  const { numInsertedOrUpdatedRows } = await transaction
    .insertInto('batches')
    .values(row)
    .onConflict(conflict => conflict.doNothing())
    .executeTakeFirst()
  return numInsertedOrUpdatedRows === 1n
}

/** The batch that has the id or the idempotency key, locked. */
async function holderOf(
  transaction: Kysely<Tables>,
  { locksRows }: Engine,
  { id, organizationId, keyHash, idempotencyKey }: OpeningBatch,
): Promise<BatchRow | null> {
  const row = await transaction
    .selectFrom('batches')
    .selectAll()
    .where(eb => eb.and({ organizationId, keyHash }))
    .where(({ or, eb }) => or([eb('id', '=', id), eb('idempotencyKey', '=', idempotencyKey)]))
    .$if(locksRows, query => query.forUpdate())
    .executeTakeFirst()
  return row ?? null
}

/** Null: the holder was abandoned and has lost the key. */
async function openingOf(
  transaction: Kysely<Tables>,
  holder: BatchRow,
  nowMs: number,
): Promise<Opening | null> {
  if (holder.status !== 'opening')
    return { outcome: 'known', batch: recordOf(holder), bodyHash: holder.bodyHash }
  if (Number(holder.leaseUntilMs) > nowMs) return { outcome: 'taken' }
  await transaction
    .updateTable('batches')
    .set({ status: 'removed', idempotencyKey: null })
    .where('id', '=', holder.id)
    .execute()
  return null
}

/** @throws the error of the engine if a `custom_id` exists already. */
async function insertLines(
  transaction: Kysely<Tables>,
  batchId: string,
  first: number,
  lines: readonly NewLine[],
): Promise<void> {
  // The row stays locked, so that the batch cannot be removed while lines are added.
  const batch = await transaction
    .updateTable('batches')
    .set({ total: sql`total + ${lines.length}` })
    .where(eb => eb.and({ id: batchId, status: 'opening' }))
    .returning('total')
    .executeTakeFirst()
  if (batch === undefined) throw new ConflictError('id')
  if (batch.total !== first + lines.length) throw gapError()
  for (const part of partsOf(lines, ({ body }) => body.length)) {
    const rows = part.map(({ number, customId, body }) => ({
      batchId,
      number,
      customId,
      bodyBytes: Buffer.byteLength(body),
      readyMs: 0,
      owner: null,
      fence: 0,
      tries: 0,
    }))
    await transaction.insertInto('batchLines').values(rows).execute()
    const bodies = part.map(({ number, body }) => ({ batchId, number, body }))
    await transaction.insertInto('batchBodies').values(bodies).execute()
  }
}
