/** Columns for what sums over usage records need beyond the first ones. */
import { sql } from 'kysely'
import type { Migration } from 'kysely/migration'

export const usageSums: Migration = {
  async up(db) {
    await db.schema
      .alterTable('usage')
      .addColumn('reasoning_tokens', 'bigint', column => column.notNull().defaultTo(0))
      .execute()
    await db.schema
      .alterTable('usage')
      .addColumn('is_byok', 'integer', column => column.notNull().defaultTo(0))
      .execute()
    // Only SQLite databases are old enough to hold records here, so the function of one engine is enough.
    const { rows } = await sql`select 1 from usage limit 1`.execute(db)
    if (rows.length === 0) return
    await sql`
      update usage set
        reasoning_tokens = coalesce(json_extract(details, '$.reasoningTokens'), 0),
        is_byok = coalesce(json_extract(details, '$.isByok'), 0)
    `.execute(db)
  },
}
