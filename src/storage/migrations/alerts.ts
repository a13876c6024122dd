/** Migration that creates the tables of alerts and their deliveries. */
import type { Migration } from 'kysely/migration'

/** One row for each alert and receiver. Rows stay after their delivery, so that no alert is raised twice. */
export const alerts: Migration = {
  async up(db) {
    await db.schema
      .createTable('alert_deliveries')
      .addColumn('alert_id', 'text', column => column.notNull())
      .addColumn('receiver', 'text', column => column.notNull())
      .addColumn('type', 'text', column => column.notNull())
      .addColumn('object', 'text', column => column.notNull())
      .addColumn('body', 'text', column => column.notNull())
      .addColumn('created_at', 'text', column => column.notNull())
      .addColumn('tries', 'integer', column => column.notNull().defaultTo(0))
      .addColumn('due_ms', 'bigint')
      .addPrimaryKeyConstraint('alert_deliveries_key', ['alert_id', 'receiver'])
      .execute()
    await db.schema
      .createIndex('alert_deliveries_due')
      .on('alert_deliveries')
      .columns(['receiver', 'due_ms'])
      .execute()
  },
}
