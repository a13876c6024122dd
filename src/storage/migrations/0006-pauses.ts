/** Providers that are out of service for a time. */
import type { Kysely } from 'kysely'
import type { Migration } from 'kysely/migration'

export const pauses: Migration = {
  async up(db: Kysely<unknown>) {
    await db.schema
      .createTable('pauses')
      .addColumn('provider', 'text', column => column.primaryKey())
      .addColumn('since_ms', 'bigint', column => column.notNull())
      .addColumn('until_ms', 'bigint', column => column.notNull())
      .addColumn('reason', 'text')
      .addColumn('actor', 'text', column => column.notNull())
      .execute()
  },
}
