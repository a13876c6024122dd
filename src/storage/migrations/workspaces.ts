/** Migrations that create the tables of workspaces and end users. */
import type { Migration } from 'kysely/migration'
import { systemClock } from '../../base/clock.ts'

/**
 * Adds workspaces, with the default one of the embedded mode. The migration creates it, and not the start of the
 * gateway, so that a deleted one stays deleted.
 */
export const workspaces: Migration = {
  async up(db) {
    await db.schema
      .createTable('workspaces')
      .addColumn('organization_id', 'text', column => column.notNull())
      .addColumn('id', 'text', column => column.notNull())
      .addColumn('name', 'text', column => column.notNull())
      .addColumn('slug', 'text', column => column.notNull())
      .addColumn('description', 'text')
      .addColumn('created_at', 'text', column => column.notNull())
      .addColumn('updated_at', 'text', column => column.notNull())
      // Each organization may have its own `ws_default`.
      .addPrimaryKeyConstraint('workspaces_id', ['organization_id', 'id'])
      .addUniqueConstraint('workspaces_slug', ['organization_id', 'slug'])
      .execute()
    await db.schema
      .createIndex('api_keys_by_workspace')
      .on('api_keys')
      .columns(['organization_id', 'workspace_id'])
      .execute()
    const now = new Date(systemClock.nowMs()).toISOString()
    await db
      .insertInto('workspaces')
      .values({
        organization_id: 'org_default',
        id: 'ws_default',
        name: 'Default',
        slug: 'default',
        description: null,
        created_at: now,
        updated_at: now,
      })
      .execute()
  },
}

/** Adds registered end users. */
export const endUsers: Migration = {
  async up(db) {
    await db.schema
      .createTable('end_users')
      .addColumn('organization_id', 'text', column => column.notNull())
      .addColumn('end_user', 'text', column => column.notNull())
      .addColumn('is_active', 'integer', column => column.notNull())
      .addColumn('created_at', 'text', column => column.notNull())
      .addColumn('updated_at', 'text', column => column.notNull())
      .addPrimaryKeyConstraint('end_users_id', ['organization_id', 'end_user'])
      .execute()
    await db.schema
      .createIndex('end_users_by_age')
      .on('end_users')
      .columns(['organization_id', 'created_at', 'end_user'])
      .execute()
  },
}

/** Adds the shares that an end user has of a key at its limit. */
export const endUserWeights: Migration = {
  async up(db) {
    await db.schema
      .alterTable('end_users')
      .addColumn('weight', 'integer', column => column.notNull().defaultTo(1))
      .execute()
  },
}
