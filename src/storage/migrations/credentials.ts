/** Migrations that create the tables of provider credentials, credits and key revisions. */
import type { Migration } from 'kysely/migration'

/** Adds sealed provider credentials. Lists of restrictions are JSON, or null. */
export const credentials: Migration = {
  async up(db) {
    await db.schema
      .createTable('credentials')
      .addColumn('id', 'text', column => column.primaryKey())
      .addColumn('organization_id', 'text', column => column.notNull())
      .addColumn('workspace_id', 'text', column => column.notNull())
      .addColumn('provider', 'text', column => column.notNull())
      .addColumn('name', 'text')
      .addColumn('label', 'text', column => column.notNull())
      .addColumn('seal_version', 'integer', column => column.notNull())
      .addColumn('master_key_id', 'text', column => column.notNull())
      .addColumn('wrapped', 'text', column => column.notNull())
      .addColumn('box', 'text', column => column.notNull())
      .addColumn('disabled', 'integer', column => column.notNull())
      .addColumn('is_required', 'integer', column => column.notNull())
      .addColumn('is_fallback', 'integer', column => column.notNull())
      .addColumn('is_byok_only', 'integer', column => column.notNull())
      .addColumn('sort_order', 'integer', column => column.notNull())
      .addColumn('allowed_api_key_hashes', 'text')
      .addColumn('allowed_models', 'text')
      .addColumn('allowed_user_ids', 'text')
      .addColumn('declared_region', 'text')
      .addColumn('declared_zdr', 'integer')
      .addColumn('created_at', 'text', column => column.notNull())
      .addColumn('updated_at', 'text', column => column.notNull())
      .execute()
    await db.schema
      .createIndex('credentials_by_workspace')
      .on('credentials')
      .columns(['organization_id', 'workspace_id', 'provider', 'sort_order'])
      .execute()
    await db.schema
      .createIndex('credentials_by_master_key')
      .on('credentials')
      .columns(['master_key_id', 'id'])
      .execute()
  },
}

/** Adds credits, whose entries never change. Amounts are in units of 1e-6 USD. */
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

/** Adds the number of the key among those that a credential has had. */
export const keyRevisions: Migration = {
  async up(db) {
    await db.schema
      .alterTable('credentials')
      .addColumn('key_revision', 'integer', column => column.notNull().defaultTo(1))
      .execute()
  },
}
