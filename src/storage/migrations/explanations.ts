/** Migration that creates the table of explanations. */
import type { Migration } from 'kysely/migration'

/** One row for each request that is explained. They are found by either id, and removed by organization and age. */
export const explanations: Migration = {
  async up(db) {
    await db.schema
      .createTable('explanations')
      .addColumn('id', 'text', column => column.primaryKey())
      .addColumn('organization_id', 'text', column => column.notNull())
      .addColumn('request_id', 'text')
      .addColumn('created_at', 'text', column => column.notNull())
      .addColumn('is_plain', 'integer', column => column.notNull())
      .addColumn('document', 'text', column => column.notNull())
      .execute()
    await db.schema
      .createIndex('explanations_by_organization')
      .on('explanations')
      .columns(['organization_id', 'is_plain', 'created_at', 'id'])
      .execute()
    await db.schema
      .createIndex('explanations_by_request')
      .on('explanations')
      .columns(['request_id', 'created_at'])
      .execute()
  },
}
