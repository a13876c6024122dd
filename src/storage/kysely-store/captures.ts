/** Captures and their parts in the database. */

import type { Kysely, Selectable } from 'kysely'
import { CAPTURE, type CaptureRecord } from '../../protocol/management/captures.ts'
import type { CaptureStore } from '../captures.ts'
import type { Engine } from '../engine.ts'
import type { CapturesTable, Tables } from '../tables.ts'
import { cellsOf, firstOf, inRelaxedTransaction, inTransaction, pageOf, ROW_COUNT, recordOf } from './rows.ts'

export function createCaptureStore(db: Kysely<Tables>, engine: Engine): CaptureStore {
  return {
    add(record, room, now) {
      const { organizationId } = record
      return inTransaction(db, async transaction => {
        await engine.serialize(transaction, `captures ${organizationId}`)
        const countQuery = transaction
          .selectFrom('captures')
          .select(ROW_COUNT)
          .where('organizationId', '=', organizationId)
        const total = await countQuery.executeTakeFirstOrThrow()
        if (Number(total.counted) >= room.kept) return 'kept'
        const runningTotal = await countQuery
          .where('endsAt', '>', now)
          .where('endedAt', 'is', null)
          .executeTakeFirstOrThrow()
        if (Number(runningTotal.counted) >= room.running) return 'running'
        await transaction
          .insertInto('captures')
          .values(cellsOf(CAPTURE, { ...CAPTURE.initial, ...record }))
          .execute()
        return null
      })
    },
    page(organizationId, page) {
      const matched = db.selectFrom('captures').where('organizationId', '=', organizationId)
      const selection = matched.selectAll().orderBy('createdAt', 'desc').orderBy('id')
      return pageOf(selection, matched.select(ROW_COUNT), page, captureOf)
    },
    async find(organizationId, id) {
      const query = db
        .selectFrom('captures')
        .selectAll()
        .where(eb => eb.and({ id, organizationId }))
      return await firstOf(query, captureOf)
    },
    async list() {
      const rows = await db
        .selectFrom('captures')
        .selectAll()
        .orderBy('createdAt', 'desc')
        .orderBy('id')
        .execute()
      return rows.map(captureOf)
    },
    async existing(ids) {
      if (ids.length === 0) return new Set()
      const rows = await db.selectFrom('captures').select('id').where('id', 'in', ids).execute()
      return new Set(rows.map(({ id }) => id))
    },
    async parts(id) {
      const rows = await db
        .selectFrom('captureParts')
        .select(['name', 'node', 'host', 'bytes', 'requests', 'leftOut'])
        .where('captureId', '=', id)
        .orderBy('node')
        .orderBy('name')
        .execute()
      // PostgreSQL returns 64-bit integers as text.
      return rows.map(({ bytes, requests, leftOut, ...fields }) => ({
        ...fields,
        bytes: Number(bytes),
        requests: Number(requests),
        leftOut: Number(leftOut),
      }))
    },
    async open(since) {
      const rows = await db
        .selectFrom('captures')
        .selectAll()
        .where('endsAt', '>', since)
        .where('endedAt', 'is', null)
        .orderBy('id')
        .execute()
      return rows.map(captureOf)
    },
    grow(id, { name, node, host, bytes, requests, leftOut }) {
      return inRelaxedTransaction(db, engine, async transaction => {
        const { numUpdatedRows } = await transaction
          .updateTable('captures')
          .set(({ eb }) => ({
            bytes: eb('bytes', '+', bytes),
            requests: eb('requests', '+', requests),
            leftOut: eb('leftOut', '+', leftOut),
          }))
          .where('id', '=', id)
          .where('endedAt', 'is', null)
          .where(({ eb }) => eb(eb('bytes', '+', bytes), '<=', eb.ref('maxBytes')))
          .executeTakeFirst()
        if (numUpdatedRows === 0n) return false
        await transaction
          .insertInto('captureParts')
          .values({ captureId: id, name, node, host, bytes, requests, leftOut })
          .onConflict(conflict =>
            conflict.columns(['captureId', 'name']).doUpdateSet(({ eb, ref }) => ({
              bytes: eb(ref('captureParts.bytes'), '+', bytes),
              requests: eb(ref('captureParts.requests'), '+', requests),
              leftOut: eb(ref('captureParts.leftOut'), '+', leftOut),
            })),
          )
          .execute()
        return true
      })
    },
    async end(id, reason, time) {
      await db
        .updateTable('captures')
        .set({ endedAt: time, endedBy: reason })
        .where('id', '=', id)
        .where('endedAt', 'is', null)
        .execute()
    },
    remove(organizationId, id) {
      return inTransaction(db, async transaction => {
        const { numDeletedRows } = await transaction
          .deleteFrom('captures')
          .where(eb => eb.and({ id, organizationId }))
          .executeTakeFirst()
        if (numDeletedRows === 0n) return false
        await transaction.deleteFrom('captureParts').where('captureId', '=', id).execute()
        return true
      })
    },
    prune(now, limit) {
      return inTransaction(db, async transaction => {
        const expired = await transaction
          .selectFrom('captures')
          .select('id')
          .where('expiresAt', '<=', now)
          .limit(limit)
          .execute()
        const ids = expired.map(({ id }) => id)
        if (ids.length === 0) return ids
        await transaction.deleteFrom('captureParts').where('captureId', 'in', ids).execute()
        await transaction.deleteFrom('captures').where('id', 'in', ids).execute()
        return ids
      })
    },
  }
}

function captureOf(row: Selectable<CapturesTable>): CaptureRecord {
  return recordOf(CAPTURE, row)
}
