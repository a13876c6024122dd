/** Migration that creates the list of deleted API keys. */
import type { Migration } from 'kysely/migration'

/** Hashes alone: nothing else of a deleted key is kept. */
export const removedKeys: Migration = {
  async up(db) {
    await db.schema
      .createTable('removed_keys')
      .addColumn('hash', 'text', column => column.primaryKey())
      .execute()
  },
}
