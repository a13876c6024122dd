/** Registered end users. */
import type { Migration } from 'kysely/migration'

export const endUsers: Migration = {
  async up(db) {
    await db.schema
      .createTable('end_users')
      .addColumn('organization_id', 'text', column => column.notNull())
      .addColumn('end_user', 'text', column => column.notNull())
      .addColumn('is_active', 'integer', column => column.notNull())
      .addColumn('created_at', 'text', column => column.notNull())
      .addColumn('updated_at', 'text', column => column.notNull())
      .addPrimaryKeyConstraint('end_users_id', ['organization_id', 'end_user'])
      .execute()
    await db.schema
      .createIndex('end_users_by_age')
      .on('end_users')
      .columns(['organization_id', 'created_at', 'end_user'])
      .execute()
  },
}
