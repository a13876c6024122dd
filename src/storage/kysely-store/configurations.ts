/** The configuration of the last start or reload in the database: one row. */
import type { Kysely } from 'kysely'
import type { ConfigurationStore } from '../store.ts'
import type { Tables } from '../tables.ts'

const ROW_ID = 'last'

export function createConfigurationStore(db: Kysely<Tables>): ConfigurationStore {
  return {
    async put(document, updatedAt) {
      const content = { document, updatedAt }
      await db
        .insertInto('configurations')
        .values({ id: ROW_ID, ...content })
        .onConflict(conflict => conflict.column('id').doUpdateSet(content))
        .execute()
    },
    async find() {
      const row = await db
        .selectFrom('configurations')
        .select('document')
        .where('id', '=', ROW_ID)
        .executeTakeFirst()
      return row?.document ?? null
    },
  }
}
