/** Credits: entries that are only ever added. Amounts are units of 1e-6 USD. */
import type { Migration } from 'kysely/migration'

export const credits: Migration = {
  async up(db) {
    await db.schema
      .createTable('credits')
      .addColumn('organization_id', 'text', column => column.notNull())
      .addColumn('id', 'text', column => column.notNull())
      .addColumn('amount', 'bigint', column => column.notNull())
      .addColumn('note', 'text')
      .addColumn('created_at', 'text', column => column.notNull())
      .addPrimaryKeyConstraint('credits_id', ['organization_id', 'id'])
      .execute()
  },
}
