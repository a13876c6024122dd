/** What API keys may spend, and who made them. `limit` is a word of SQL, so the column has another name. */
import type { Migration } from 'kysely/migration'

export const keyLimits: Migration = {
  async up(db) {
    await db.schema.alterTable('api_keys').addColumn('spend_limit', 'bigint').execute()
    await db.schema.alterTable('api_keys').addColumn('limit_reset', 'text').execute()
    await db.schema
      .alterTable('api_keys')
      .addColumn('include_byok_in_limit', 'integer', column => column.notNull().defaultTo(0))
      .execute()
    await db.schema.alterTable('api_keys').addColumn('creator_user_id', 'text').execute()
  },
}
