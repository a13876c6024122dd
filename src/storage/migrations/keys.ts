/** Migrations that create the tables of API keys and their secrets, and add roles and identities. */
import type { Migration } from 'kysely/migration'

export const keys: Migration = {
  async up(db) {
    await db.schema
      .createTable('api_keys')
      .addColumn('hash', 'text', column => column.primaryKey())
      .addColumn('kind', 'text', column => column.notNull())
      .addColumn('name', 'text', column => column.notNull())
      .addColumn('label', 'text', column => column.notNull())
      .addColumn('organization_id', 'text', column => column.notNull())
      .addColumn('workspace_id', 'text')
      .addColumn('disabled', 'integer', column => column.notNull())
      .addColumn('expires_at', 'text')
      .addColumn('created_at', 'text', column => column.notNull())
      .addColumn('updated_at', 'text', column => column.notNull())
      .execute()
    await db.schema
      .createIndex('api_keys_by_organization')
      .on('api_keys')
      .columns(['organization_id', 'created_at'])
      .execute()
  },
}

/** Adds roles, and the secrets of keys that were rotated; a key without a row has one secret, which its hash is of. */
export const keySecrets: Migration = {
  async up(db) {
    await db.schema.alterTable('api_keys').addColumn('role', 'text').execute()
    await db.schema
      .alterTable('api_keys')
      .addColumn('trace_trusted', 'integer', column => column.notNull().defaultTo(0))
      .execute()
    await db.schema.alterTable('api_keys').addColumn('rotated_at', 'text').execute()
    await db.schema
      .createTable('key_secrets')
      .addColumn('hash', 'text', column => column.primaryKey())
      .addColumn('key_hash', 'text', column => column.notNull())
      .addColumn('label', 'text', column => column.notNull())
      .addColumn('created_at', 'text', column => column.notNull())
      .addColumn('expires_at', 'text')
      .execute()
    await db.schema.createIndex('key_secrets_by_key').on('key_secrets').column('key_hash').execute()
  },
}

/** Adds who signed in, to the keys of console sessions. */
export const keyIdentities: Migration = {
  async up(db) {
    await db.schema.alterTable('api_keys').addColumn('identity', 'text').execute()
  },
}

/** Adds spending limits and the creator. `limit` is a word of SQL, so the column has another name. */
export const keyLimits: Migration = {
  async up(db) {
    await db.schema.alterTable('api_keys').addColumn('spend_limit', 'bigint').execute()
    await db.schema.alterTable('api_keys').addColumn('limit_reset', 'text').execute()
    await db.schema
      .alterTable('api_keys')
      .addColumn('include_byok_in_limit', 'integer', column => column.notNull().defaultTo(0))
      .execute()
    await db.schema.alterTable('api_keys').addColumn('creator_user_id', 'text').execute()
  },
}
