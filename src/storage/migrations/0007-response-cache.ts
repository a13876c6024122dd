/** The response cache, by key and by workspace. */
import type { Kysely } from 'kysely'
import type { Migration } from 'kysely/migration'

export const responseCache: Migration = {
  async up(db: Kysely<unknown>) {
    for (const table of ['api_keys', 'workspaces'])
      await db.schema.alterTable(table).addColumn('cache', 'text').execute()
  },
}
