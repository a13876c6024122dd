/** The configuration of the last start or reload, without secrets. */
import type { Kysely } from 'kysely'
import type { Migration } from 'kysely/migration'

export const configurations: Migration = {
  async up(db: Kysely<unknown>) {
    await db.schema
      .createTable('configurations')
      .addColumn('id', 'text', column => column.primaryKey())
      .addColumn('document', 'text', column => column.notNull())
      .addColumn('updated_at', 'text', column => column.notNull())
      .execute()
  },
}
