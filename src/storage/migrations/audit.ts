/** Migration that creates the table of audit records. */
import { PostgresAdapter } from 'kysely'
import type { Migration } from 'kysely/migration'

/** Adds the records of management changes. The number orders records of the same time. */
export const audit: Migration = {
  async up(db) {
    const isPostgres = db.getExecutor().adapter instanceof PostgresAdapter
    await db.schema
      .createTable('audit_records')
      .addColumn('number', isPostgres ? 'bigserial' : 'integer', column =>
        isPostgres ? column.primaryKey() : column.primaryKey().autoIncrement(),
      )
      .addColumn('organization_id', 'text', column => column.notNull())
      .addColumn('created_at', 'text', column => column.notNull())
      .addColumn('action', 'text', column => column.notNull())
      .addColumn('actor', 'text', column => column.notNull())
      .addColumn('object_kind', 'text', column => column.notNull())
      .addColumn('object_id', 'text', column => column.notNull())
      .addColumn('object_name', 'text')
      .addColumn('address', 'text')
      .execute()
    await db.schema
      .createIndex('audit_records_by_organization')
      .on('audit_records')
      .columns(['organization_id', 'created_at', 'number'])
      .execute()
  },
}
