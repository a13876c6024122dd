/** Whose keys used what: budgets of members are sums over all of their keys, those that are gone included. */
import { sql } from 'kysely'
import type { Migration } from 'kysely/migration'

export const usageMembers: Migration = {
  async up(db) {
    await db.schema.alterTable('usage').addColumn('member_id', 'text').execute()
    await sql`
      update usage set member_id = (select creator_user_id from api_keys where hash = usage.key_hash)
      where key_hash in (select hash from api_keys where creator_user_id is not null)
    `.execute(db)
    // Most keys are nobody's, and cost nothing here.
    await sql`
      create index usage_by_member on usage (member_id, created_at) where member_id is not null
    `.execute(db)
  },
}
