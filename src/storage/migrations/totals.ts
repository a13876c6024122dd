/**
 * Migration that creates the tables of usage totals. It does not fill them: a large ledger takes minutes, so the
 * gateway does that in batches at startup (`LedgerStore.fillTotals`).
 */
import { PostgresAdapter, sql } from 'kysely'
import type { Migration } from 'kysely/migration'

/** Adds a total for each owner and day, and to each record whether it is in the totals. */
export const usageTotals: Migration = {
  async up(db) {
    // Text that may be missing in a record is '' here, because null has no place in a primary key.
    await db.schema
      .createTable('usage_totals')
      .addColumn('organization_id', 'text', column => column.notNull())
      .addColumn('kind', 'text', column => column.notNull())
      .addColumn('owner', 'text', column => column.notNull())
      .addColumn('day', 'text', column => column.notNull())
      .addColumn('key_hash', 'text', column => column.notNull())
      .addColumn('workspace_id', 'text', column => column.notNull())
      .addColumn('model', 'text', column => column.notNull())
      .addColumn('provider', 'text', column => column.notNull())
      .addColumn('requests', 'bigint', column => column.notNull())
      .addColumn('input_tokens', 'bigint', column => column.notNull())
      .addColumn('output_tokens', 'bigint', column => column.notNull())
      .addColumn('reasoning_tokens', 'bigint', column => column.notNull())
      .addColumn('cost_high', 'bigint', column => column.notNull())
      .addColumn('cost_low', 'bigint', column => column.notNull())
      .addColumn('byok_high', 'bigint', column => column.notNull())
      .addColumn('byok_low', 'bigint', column => column.notNull())
      .addPrimaryKeyConstraint('usage_totals_place', [
        'organization_id',
        'kind',
        'owner',
        'day',
        'key_hash',
        'workspace_id',
        'model',
        'provider',
      ])
      .execute()
    await db.schema
      .alterTable('usage')
      .addColumn('in_totals', 'integer', column => column.notNull().defaultTo(0))
      .execute()
    if (db.getExecutor().adapter instanceof PostgresAdapter) {
      // An instance of an older version that still runs must not add records that no total has: without a default its
      // inserts fail, and it keeps its records on disk until its successor ships them.
      await db.schema
        .alterTable('usage')
        .alterColumn('in_totals', column => column.dropDefault())
        .execute()
    }
    // One row while records are missing in the totals: those behind this id.
    await db.schema
      .createTable('usage_fill')
      .addColumn('after_id', 'text', column => column.notNull())
      .execute()
    const { rows } = await sql`select 1 from usage limit 1`.execute(db)
    if (rows.length > 0) await db.insertInto('usage_fill').values({ after_id: '' }).execute()
    // Sums over members were its only use.
    await db.schema.dropIndex('usage_by_member').execute()
  },
}
