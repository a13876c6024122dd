/** Rate limits of keys, workspaces and end users. */
import { type Kysely, sql } from 'kysely'
import type { Migration } from 'kysely/migration'

export const rateLimits: Migration = {
  async up(db: Kysely<unknown>) {
    for (const table of ['api_keys', 'workspaces', 'end_users'])
      await db.schema.alterTable(table).addColumn('rate_limit', 'text').execute()
    // Each lookup of a key asks if its organization limits any end user.
    await sql`create index end_users_limited on end_users (organization_id) where rate_limit is not null`.execute(
      db,
    )
  },
}
