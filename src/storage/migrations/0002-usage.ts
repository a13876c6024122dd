/** Usage records. */
import type { Migration } from 'kysely/migration'

export const usage: Migration = {
  async up(db) {
    await db.schema
      .createTable('usage')
      .addColumn('id', 'text', column => column.primaryKey())
      .addColumn('created_at', 'text', column => column.notNull())
      .addColumn('organization_id', 'text', column => column.notNull())
      .addColumn('workspace_id', 'text')
      .addColumn('key_hash', 'text', column => column.notNull())
      .addColumn('model', 'text')
      .addColumn('provider', 'text')
      .addColumn('end_user', 'text')
      .addColumn('outcome', 'text', column => column.notNull())
      .addColumn('accounting', 'text', column => column.notNull())
      .addColumn('input_tokens', 'bigint', column => column.notNull())
      .addColumn('output_tokens', 'bigint', column => column.notNull())
      .addColumn('cost', 'bigint', column => column.notNull())
      .addColumn('details', 'text', column => column.notNull())
      .execute()
    await db.schema
      .createIndex('usage_by_organization')
      .on('usage')
      .columns(['organization_id', 'created_at'])
      .execute()
    await db.schema.createIndex('usage_by_key').on('usage').columns(['key_hash', 'created_at']).execute()
  },
}
