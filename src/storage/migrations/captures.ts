/** Migration that creates the tables of captures and their parts. The captured data itself is stored in files. */
import type { Migration } from 'kysely/migration'

export const captures: Migration = {
  async up(db) {
    await db.schema
      .createTable('captures')
      .addColumn('id', 'text', column => column.primaryKey())
      .addColumn('organization_id', 'text', column => column.notNull())
      .addColumn('key_hash', 'text')
      .addColumn('workspace_id', 'text')
      .addColumn('created_by', 'text', column => column.notNull())
      .addColumn('max_bytes', 'bigint', column => column.notNull())
      .addColumn('bytes', 'bigint', column => column.notNull())
      .addColumn('requests', 'bigint', column => column.notNull())
      .addColumn('left_out', 'bigint', column => column.notNull())
      .addColumn('created_at', 'text', column => column.notNull())
      .addColumn('ends_at', 'text', column => column.notNull())
      .addColumn('ended_at', 'text')
      .addColumn('ended_by', 'text')
      .addColumn('expires_at', 'text', column => column.notNull())
      .execute()
    await db.schema
      .createIndex('captures_by_organization')
      .on('captures')
      .columns(['organization_id', 'created_at'])
      .execute()
    await db.schema
      .createTable('capture_parts')
      .addColumn('capture_id', 'text', column => column.notNull())
      .addColumn('name', 'text', column => column.notNull())
      .addColumn('node', 'text', column => column.notNull())
      .addColumn('host', 'text', column => column.notNull())
      .addColumn('bytes', 'bigint', column => column.notNull())
      .addColumn('requests', 'bigint', column => column.notNull())
      .addColumn('left_out', 'bigint', column => column.notNull())
      .addPrimaryKeyConstraint('capture_parts_key', ['capture_id', 'name'])
      .execute()
  },
}
