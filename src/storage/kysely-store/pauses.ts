/** Paused providers in the database. */
import type { Kysely } from 'kysely'
import type { PauseStore } from '../pauses.ts'
import type { Tables } from '../tables.ts'

export function createPauseStore(db: Kysely<Tables>): PauseStore {
  return {
    async list() {
      const rows = await db.selectFrom('pauses').selectAll().orderBy('provider').execute()
      return rows.map(row => ({ ...row, sinceMs: Number(row.sinceMs), untilMs: Number(row.untilMs) }))
    },
    async put(record) {
      await db
        .insertInto('pauses')
        .values(record)
        .onConflict(conflict => conflict.column('provider').doUpdateSet(record))
        .execute()
    },
    async end(provider) {
      const { numDeletedRows } = await db
        .deleteFrom('pauses')
        .where('provider', '=', provider)
        .executeTakeFirst()
      return numDeletedRows > 0n
    },
    async prune(nowMs) {
      await db.deleteFrom('pauses').where('untilMs', '<=', nowMs).execute()
    },
  }
}
