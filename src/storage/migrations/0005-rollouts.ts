/** Rollouts of routes, and the sums of their arms. */
import type { ColumnDefinitionBuilder, Kysely } from 'kysely'
import type { Migration } from 'kysely/migration'

const required = (column: ColumnDefinitionBuilder) => column.notNull()

export const rollouts: Migration = {
  async up(db: Kysely<unknown>) {
    await db.schema
      .createTable('rollouts')
      .addColumn('route', 'text', column => column.primaryKey())
      .addColumn('candidate', 'text', required)
      .addColumn('state', 'text', required)
      .addColumn('step', 'integer', required)
      .addColumn('share', 'double precision', required)
      .addColumn('reason', 'text', required)
      .addColumn('revision', 'integer', required)
      .addColumn('since_ms', 'bigint', required)
      .execute()
    await db.schema
      .createTable('rollout_sums')
      .addColumn('route', 'text', required)
      .addColumn('candidate', 'text', required)
      .addColumn('step', 'integer', required)
      .addColumn('arm', 'text', required)
      .addColumn('requests', 'bigint', required)
      .addColumn('errors', 'bigint', required)
      .addColumn('first_token_count', 'bigint', required)
      .addColumn('first_token_sum', 'double precision', required)
      .addColumn('first_token_squares', 'double precision', required)
      .addColumn('speed_count', 'bigint', required)
      .addColumn('speed_sum', 'double precision', required)
      .addColumn('speed_squares', 'double precision', required)
      .addColumn('cost_count', 'bigint', required)
      .addColumn('cost_sum', 'double precision', required)
      .addColumn('cost_squares', 'double precision', required)
      .addPrimaryKeyConstraint('rollout_sums_place', ['route', 'candidate', 'step', 'arm'])
      .execute()
  },
}
