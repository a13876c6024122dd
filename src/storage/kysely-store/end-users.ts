/** Registered end users in the database. */
import type { Kysely, Selectable } from 'kysely'
import type { EndUserRecord, EndUserStore } from '../store.ts'
import type { EndUsersTable, Tables } from '../tables.ts'
import { flag } from './flag.ts'
import { COUNTED, pageOf } from './page.ts'

export function createEndUserStore(db: Kysely<Tables>): EndUserStore {
  return {
    page({ organizationId, user, includeInactive }, page) {
      const matching = {
        organizationId,
        ...(user === undefined ? {} : { endUser: user }),
        ...(includeInactive ? {} : { isActive: 1 }),
      }
      const matched = db.selectFrom('endUsers').where(where => where.and(matching))
      const listed = matched.selectAll().orderBy('createdAt').orderBy('endUser')
      return pageOf(listed, matched.select(COUNTED), page, recordOf)
    },
    async find(organizationId, user) {
      const row = await db
        .selectFrom('endUsers')
        .selectAll()
        .where('organizationId', '=', organizationId)
        .where('endUser', '=', user)
        .executeTakeFirst()
      return row === undefined ? null : recordOf(row)
    },
    async add({ organizationId, user, isActive, createdAt, updatedAt }) {
      const result = await db
        .insertInto('endUsers')
        .values({ organizationId, endUser: user, isActive: flag(isActive), createdAt, updatedAt })
        .onConflict(conflict => conflict.columns(['organizationId', 'endUser']).doNothing())
        .executeTakeFirst()
      return (result.numInsertedOrUpdatedRows ?? 0n) > 0n
    },
    async setActive(organizationId, user, isActive, updatedAt) {
      const row = await db
        .updateTable('endUsers')
        .set({ isActive: flag(isActive), updatedAt })
        .where('organizationId', '=', organizationId)
        .where('endUser', '=', user)
        .returningAll()
        .executeTakeFirst()
      return row === undefined ? null : recordOf(row)
    },
  }
}

function recordOf({ endUser, isActive, ...same }: Selectable<EndUsersTable>): EndUserRecord {
  return { ...same, user: endUser, isActive: isActive !== 0 }
}
