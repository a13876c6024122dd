/** The policy for agents that run in a circle, by key and by workspace. */
import type { Kysely } from 'kysely'
import type { Migration } from 'kysely/migration'

export const loops: Migration = {
  async up(db: Kysely<unknown>) {
    for (const table of ['api_keys', 'workspaces'])
      await db.schema.alterTable(table).addColumn('loops', 'text').execute()
  },
}
