/** Migration that adds the list of server tools that a workspace has disabled. */
import type { Migration } from 'kysely/migration'

export const workspaceTools: Migration = {
  async up(db) {
    // A JSON list of names; null: none.
    await db.schema.alterTable('workspaces').addColumn('disabled_tools', 'text').execute()
  },
}
