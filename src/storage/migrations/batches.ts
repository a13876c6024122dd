/** Migration that creates the tables of batches, their lines and their results. */
import { sql } from 'kysely'
import type { Migration } from 'kysely/migration'

/** Adds batches. Lines are narrow rows, because they change; bodies and results may be megabytes and never change. */
export const batches: Migration = {
  async up(db) {
    await db.schema
      .createTable('batches')
      .addColumn('id', 'text', column => column.primaryKey())
      .addColumn('organization_id', 'text', column => column.notNull())
      .addColumn('workspace_id', 'text')
      .addColumn('key_hash', 'text', column => column.notNull())
      .addColumn('idempotency_key', 'text')
      .addColumn('body_hash', 'text', column => column.notNull())
      .addColumn('endpoint', 'text', column => column.notNull())
      .addColumn('model', 'text', column => column.notNull())
      .addColumn('preferences', 'text')
      .addColumn('data_region', 'text')
      .addColumn('with_metadata', 'integer', column => column.notNull())
      .addColumn('status', 'text', column => column.notNull())
      .addColumn('total', 'integer', column => column.notNull())
      .addColumn('completed', 'integer', column => column.notNull())
      .addColumn('failed', 'integer', column => column.notNull())
      .addColumn('usage', 'text')
      .addColumn('error', 'text')
      .addColumn('service', 'text')
      .addColumn('created_at', 'text', column => column.notNull())
      .addColumn('expires_at', 'text', column => column.notNull())
      .addColumn('started_at', 'text')
      .addColumn('cancelling_at', 'text')
      .addColumn('finalized_at', 'text')
      .addColumn('checked_through', 'integer', column => column.notNull())
      .addColumn('owner', 'text')
      .addColumn('fence', 'integer', column => column.notNull())
      .addColumn('lease_until_ms', 'bigint', column => column.notNull())
      .addColumn('has_bodies', 'integer', column => column.notNull())
      .execute()
    // Rows without an idempotency key are all different: null equals nothing.
    await db.schema
      .createIndex('batches_by_idempotency_key')
      .on('batches')
      .columns(['organization_id', 'key_hash', 'idempotency_key'])
      .unique()
      .execute()
    await db.schema
      .createIndex('batches_by_workspace')
      .on('batches')
      .columns(['organization_id', 'workspace_id', 'created_at', 'id'])
      .execute()
    await db.schema
      .createIndex('batches_by_status')
      .on('batches')
      .columns(['status', 'finalized_at'])
      .execute()
    await db.schema
      .createIndex('batches_with_bodies')
      .on('batches')
      .column('id')
      .where(sql<boolean>`has_bodies = 1`)
      .execute()
    await db.schema
      .createTable('batch_lines')
      .addColumn('batch_id', 'text', column => column.notNull())
      .addColumn('number', 'integer', column => column.notNull())
      .addColumn('custom_id', 'text', column => column.notNull())
      .addColumn('body_bytes', 'integer', column => column.notNull())
      .addColumn('ready_ms', 'bigint')
      .addColumn('owner', 'text')
      .addColumn('fence', 'integer', column => column.notNull())
      .addColumn('tries', 'integer', column => column.notNull())
      .addPrimaryKeyConstraint('batch_lines_place', ['batch_id', 'number'])
      .execute()
    // Not by batch first: PostgreSQL, which knows nothing yet of a new batch, would read all of its lines by this
    // index.
    await db.schema
      .createIndex('batch_lines_by_custom_id')
      .on('batch_lines')
      .columns(['custom_id', 'batch_id'])
      .unique()
      .execute()
    // The queue of each batch. Lines leave it with their result.
    await db.schema
      .createIndex('batch_lines_ready')
      .on('batch_lines')
      .columns(['batch_id', 'ready_ms', 'number'])
      .where(sql<boolean>`ready_ms is not null`)
      .execute()
    await db.schema
      .createTable('batch_bodies')
      .addColumn('batch_id', 'text', column => column.notNull())
      .addColumn('number', 'integer', column => column.notNull())
      .addColumn('body', 'text', column => column.notNull())
      .addPrimaryKeyConstraint('batch_bodies_place', ['batch_id', 'number'])
      .execute()
    // The key also holds that a line has one result.
    await db.schema
      .createTable('batch_results')
      .addColumn('batch_id', 'text', column => column.notNull())
      .addColumn('number', 'integer', column => column.notNull())
      .addColumn('outcome', 'text', column => column.notNull())
      .addColumn('result_bytes', 'integer', column => column.notNull())
      .addColumn('result', 'text', column => column.notNull())
      .addPrimaryKeyConstraint('batch_results_place', ['batch_id', 'number'])
      .execute()
  },
}

/** Adds the file that had the requests of a batch. */
export const batchFiles: Migration = {
  async up(db) {
    await db.schema.alterTable('batches').addColumn('input_file', 'text').execute()
  },
}

/** Adds why a batch waits, and since when. */
export const batchWaits: Migration = {
  async up(db) {
    await db.schema.alterTable('batches').addColumn('waiting', 'text').execute()
  },
}

/** Adds what each batch takes in its workspace. What batches take that are there already is their requests alone. */
export const batchRoom: Migration = {
  async up(db) {
    await db.schema
      .alterTable('batches')
      .addColumn('room_requests', 'integer', column => column.notNull().defaultTo(0))
      .execute()
    await db.schema
      .alterTable('batches')
      .addColumn('room_bytes', 'bigint', column => column.notNull().defaultTo(0))
      .execute()
    await sql`update batches set room_requests = total`.execute(db)
  },
}
