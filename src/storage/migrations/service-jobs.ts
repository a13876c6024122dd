/** Migration that creates the table of provider batch jobs. */
import type { Migration } from 'kysely/migration'

export const serviceJobs: Migration = {
  async up(db) {
    await db.schema
      .createTable('service_jobs')
      .addColumn('batch_id', 'text', column => column.notNull())
      .addColumn('number', 'integer', column => column.notNull())
      .addColumn('provider', 'text', column => column.notNull())
      .addColumn('credential_id', 'text')
      .addColumn('upstream_model', 'text', column => column.notNull())
      .addColumn('format', 'text', column => column.notNull())
      .addColumn('path', 'text', column => column.notNull())
      .addColumn('mark', 'text', column => column.notNull())
      .addColumn('name', 'text')
      .addColumn('lines', 'integer', column => column.notNull())
      .addColumn('reserved', 'text', column => column.notNull())
      .addColumn('created_at', 'text', column => column.notNull())
      .addColumn('closed', 'integer', column => column.notNull())
      .addColumn('owner', 'text')
      .addColumn('fence', 'integer', column => column.notNull())
      .addColumn('lease_until_ms', 'bigint', column => column.notNull())
      .addPrimaryKeyConstraint('service_jobs_place', ['batch_id', 'number'])
      .execute()
    await db.schema
      .createIndex('service_jobs_open')
      .on('service_jobs')
      .columns(['closed', 'batch_id', 'number'])
      .execute()
  },
}
