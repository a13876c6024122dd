/** Migration that creates the table of imported and listed models. */
import type { Migration } from 'kysely/migration'

/** Adds the lists of models by their source. */
export const catalogue: Migration = {
  async up(db) {
    await db.schema
      .createTable('catalogue_sources')
      .addColumn('source', 'text', column => column.primaryKey())
      .addColumn('version', 'text', column => column.notNull())
      .addColumn('models', 'integer', column => column.notNull())
      .addColumn('facts', 'text', column => column.notNull())
      .addColumn('updated_at', 'text', column => column.notNull())
      .execute()
  },
}
