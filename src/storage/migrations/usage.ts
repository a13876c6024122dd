/** Migrations that create the table of usage records, and add its later columns and indexes. */
import { sql } from 'kysely'
import type { Migration } from 'kysely/migration'

export const usage: Migration = {
  async up(db) {
    await db.schema
      .createTable('usage')
      .addColumn('id', 'text', column => column.primaryKey())
      .addColumn('created_at', 'text', column => column.notNull())
      .addColumn('organization_id', 'text', column => column.notNull())
      .addColumn('workspace_id', 'text')
      .addColumn('key_hash', 'text', column => column.notNull())
      .addColumn('model', 'text')
      .addColumn('provider', 'text')
      .addColumn('end_user', 'text')
      .addColumn('outcome', 'text', column => column.notNull())
      .addColumn('accounting', 'text', column => column.notNull())
      .addColumn('input_tokens', 'bigint', column => column.notNull())
      .addColumn('output_tokens', 'bigint', column => column.notNull())
      .addColumn('cost', 'bigint', column => column.notNull())
      .addColumn('details', 'text', column => column.notNull())
      .execute()
    await db.schema
      .createIndex('usage_by_organization')
      .on('usage')
      .columns(['organization_id', 'created_at'])
      .execute()
    await db.schema.createIndex('usage_by_key').on('usage').columns(['key_hash', 'created_at']).execute()
  },
}

/** Adds columns for further sums over usage records. */
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

/** Finds the records of requests for which no provider was called, by workspace and age. */
export const usageUnasked: Migration = {
  async up(db) {
    await sql`
      create index usage_unasked on usage (organization_id, (coalesce(workspace_id, '')), created_at)
      where provider is null and cost = 0
    `.execute(db)
  },
}

/** Adds session and agent, and finds the records that have one. */
export const usageSessions: Migration = {
  async up(db) {
    await db.schema.alterTable('usage').addColumn('session_id', 'text').execute()
    await db.schema.alterTable('usage').addColumn('agent', 'text').execute()
    await sql`
      create index usage_by_session on usage (organization_id, created_at, id)
      where session_id is not null or agent is not null
    `.execute(db)
  },
}

/** Adds the member: the budget of a member is the sum over all of its keys, removed ones included. */
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

/** Finds records by model, end user, session and cost, and those that did not end well: for searches of the ledger. */
export const usageSearch: Migration = {
  async up(db) {
    await sql`create index usage_by_model on usage (organization_id, model, created_at, id)`.execute(db)
    await sql`
      create index usage_by_end_user on usage (organization_id, end_user, created_at, id) where end_user is not null
    `.execute(db)
    await sql`
      create index usage_of_session on usage (organization_id, session_id, created_at, id)
      where session_id is not null
    `.execute(db)
    await sql`
      create index usage_not_completed on usage (organization_id, created_at, id) where outcome <> 'completed'
    `.execute(db)
    await sql`create index usage_by_cost on usage (organization_id, cost, id)`.execute(db)
    // With the id it has the whole order of the latest records, and leads where no other index does.
    await db.schema.dropIndex('usage_by_organization').execute()
    await sql`create index usage_by_organization on usage (organization_id, created_at, id)`.execute(db)
    await db.schema.dropIndex('usage_by_key').execute()
    await sql`create index usage_by_key on usage (organization_id, key_hash, created_at, id)`.execute(db)
  },
}

/**
 * Leaves records without a model or a cost out of the indexes of models and costs, where no search looks for them: a
 * refused request costs its caller nothing, and has neither.
 */
export const usageRefused: Migration = {
  async up(db) {
    await db.schema.dropIndex('usage_by_model').execute()
    await sql`
      create index usage_by_model on usage (organization_id, model, created_at, id) where model is not null
    `.execute(db)
    await db.schema.dropIndex('usage_by_cost').execute()
    await sql`create index usage_by_cost on usage (organization_id, cost, id) where cost > 0`.execute(db)
  },
}
