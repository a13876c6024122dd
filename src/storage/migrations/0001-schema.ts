/**
 * The first migration: the whole schema, by subject. Nearly all types exist in both engines: a boolean is an integer, a
 * time ISO 8601 text (or Unix milliseconds in columns named `…_ms`), a list JSON text. `tables.ts` describes the
 * columns.
 */
import { type ColumnDefinitionBuilder, type Kysely, PostgresAdapter, sql } from 'kysely'
import type { Migration } from 'kysely/migration'
import { systemClock } from '../../base/clock.ts'
import { defaultGuardrailId } from '../guardrails.ts'
import { DEFAULT_ORGANIZATION_ID, DEFAULT_WORKSPACE_ID } from '../store.ts'

type Column = (column: ColumnDefinitionBuilder) => ColumnDefinitionBuilder
type Database = Kysely<Record<'workspaces' | 'guardrails', Readonly<Record<string, string | number>>>>

const required: Column = column => column.notNull()
const primary: Column = column => column.primaryKey()
const defaultZero: Column = column => column.notNull().defaultTo(0)
const autoNumbered: Column = column => column.primaryKey().autoIncrement()
const defaultOne: Column = column => column.notNull().defaultTo(1)

export const schema: Migration = {
  async up(db: Database) {
    const isPostgres = db.getExecutor().adapter instanceof PostgresAdapter
    await keys(db)
    await workspaces(db)
    await credentials(db)
    await guardrails(db)
    await usage(db, isPostgres)
    await batches(db)
    await files(db, isPostgres)
    await records(db, isPostgres)
    await defaults(db)
  },
}

async function keys(db: Database): Promise<void> {
  await db.schema
    .createTable('api_keys')
    .addColumn('hash', 'text', primary)
    .addColumn('kind', 'text', required)
    .addColumn('name', 'text', required)
    .addColumn('label', 'text', required)
    .addColumn('organization_id', 'text', required)
    .addColumn('workspace_id', 'text')
    .addColumn('disabled', 'integer', required)
    .addColumn('expires_at', 'text')
    .addColumn('created_at', 'text', required)
    .addColumn('updated_at', 'text', required)
    // `limit` is an SQL keyword.
    .addColumn('spend_limit', 'bigint')
    .addColumn('limit_reset', 'text')
    .addColumn('include_byok_in_limit', 'integer', defaultZero)
    .addColumn('creator_user_id', 'text')
    .addColumn('role', 'text')
    .addColumn('trace_trusted', 'integer', defaultZero)
    .addColumn('rotated_at', 'text')
    .addColumn('identity', 'text')
    .execute()
  await sql`create index api_keys_by_organization on api_keys (organization_id, created_at)`.execute(db)
  await sql`create index api_keys_by_workspace on api_keys (organization_id, workspace_id)`.execute(db)
  // Secrets of rotated keys. A key without a row here has one secret, whose hash is the key's own.
  await db.schema
    .createTable('key_secrets')
    .addColumn('hash', 'text', primary)
    .addColumn('key_hash', 'text', required)
    .addColumn('label', 'text', required)
    .addColumn('created_at', 'text', required)
    .addColumn('expires_at', 'text')
    .execute()
  await sql`create index key_secrets_by_key on key_secrets (key_hash)`.execute(db)
  // Only the hash of a deleted key is kept.
  await db.schema.createTable('removed_keys').addColumn('hash', 'text', primary).execute()
}

async function workspaces(db: Database): Promise<void> {
  await db.schema
    .createTable('workspaces')
    .addColumn('organization_id', 'text', required)
    .addColumn('id', 'text', required)
    .addColumn('name', 'text', required)
    .addColumn('slug', 'text', required)
    .addColumn('description', 'text')
    .addColumn('created_at', 'text', required)
    .addColumn('updated_at', 'text', required)
    .addColumn('disabled_tools', 'text')
    // Each organization may have its own `ws_default`.
    .addPrimaryKeyConstraint('workspaces_id', ['organization_id', 'id'])
    .addUniqueConstraint('workspaces_slug', ['organization_id', 'slug'])
    .execute()
  await db.schema
    .createTable('end_users')
    .addColumn('organization_id', 'text', required)
    .addColumn('end_user', 'text', required)
    .addColumn('is_active', 'integer', required)
    .addColumn('created_at', 'text', required)
    .addColumn('updated_at', 'text', required)
    .addColumn('weight', 'integer', defaultOne)
    .addPrimaryKeyConstraint('end_users_id', ['organization_id', 'end_user'])
    .execute()
  await sql`create index end_users_by_age on end_users (organization_id, created_at, end_user)`.execute(db)
}

async function credentials(db: Database): Promise<void> {
  await db.schema
    .createTable('credentials')
    .addColumn('id', 'text', primary)
    .addColumn('organization_id', 'text', required)
    .addColumn('workspace_id', 'text', required)
    .addColumn('provider', 'text', required)
    .addColumn('name', 'text')
    .addColumn('label', 'text', required)
    .addColumn('seal_version', 'integer', required)
    .addColumn('master_key_id', 'text', required)
    .addColumn('wrapped', 'text', required)
    .addColumn('box', 'text', required)
    .addColumn('disabled', 'integer', required)
    .addColumn('is_required', 'integer', required)
    .addColumn('is_fallback', 'integer', required)
    .addColumn('is_byok_only', 'integer', required)
    .addColumn('sort_order', 'integer', required)
    .addColumn('allowed_api_key_hashes', 'text')
    .addColumn('allowed_models', 'text')
    .addColumn('allowed_user_ids', 'text')
    .addColumn('declared_region', 'text')
    .addColumn('declared_zdr', 'integer')
    .addColumn('created_at', 'text', required)
    .addColumn('updated_at', 'text', required)
    .addColumn('key_revision', 'integer', defaultOne)
    .execute()
  await sql`
      create index credentials_by_workspace on credentials (organization_id, workspace_id, provider, sort_order)
    `.execute(db)
  await sql`create index credentials_by_master_key on credentials (master_key_id, id)`.execute(db)
  await db.schema
    .createTable('credits')
    .addColumn('organization_id', 'text', required)
    .addColumn('id', 'text', required)
    .addColumn('amount', 'bigint', required)
    .addColumn('note', 'text')
    .addColumn('created_at', 'text', required)
    .addPrimaryKeyConstraint('credits_id', ['organization_id', 'id'])
    .execute()
}

/** Deleting a workspace, key or guardrail deletes the rows that depend on it. */
async function guardrails(db: Database): Promise<void> {
  await db.schema
    .createTable('guardrails')
    .addColumn('id', 'text', primary)
    .addColumn('organization_id', 'text', required)
    .addColumn('workspace_id', 'text')
    .addColumn('is_workspace_default', 'integer', required)
    .addColumn('name', 'text', required)
    .addColumn('description', 'text')
    .addColumn('spend_limit', 'bigint')
    .addColumn('reset_interval', 'text')
    .addColumn('include_byok_in_budgets', 'integer', required)
    .addColumn('rules', 'text', required)
    .addColumn('revision', 'integer', required)
    .addColumn('created_at', 'text', required)
    .addColumn('updated_at', 'text', required)
    // Guardrails of the whole organization have no workspace.
    .addForeignKeyConstraint(
      'guardrails_workspace',
      ['organization_id', 'workspace_id'],
      'workspaces',
      ['organization_id', 'id'],
      constraint => constraint.onDelete('cascade'),
    )
    .execute()
  await sql`
      create index guardrails_by_workspace on guardrails (organization_id, workspace_id, created_at, id)
    `.execute(db)
  await db.schema
    .createTable('guardrail_assignments')
    .addColumn('id', 'text', primary)
    .addColumn('organization_id', 'text', required)
    .addColumn('guardrail_id', 'text', column =>
      column.notNull().references('guardrails.id').onDelete('cascade'),
    )
    // The assignee, a key or a member, has at most one guardrail.
    .addColumn('key_hash', 'text', column => column.unique().references('api_keys.hash').onDelete('cascade'))
    .addColumn('member_id', 'text')
    .addColumn('assigned_by', 'text')
    .addColumn('created_at', 'text', required)
    .addUniqueConstraint('guardrail_assignments_member', ['organization_id', 'member_id'])
    .execute()
  await sql`
      create index guardrail_assignments_by_guardrail on guardrail_assignments (guardrail_id, created_at, id)
    `.execute(db)
  await sql`
      create index guardrail_assignments_by_age on guardrail_assignments (organization_id, created_at, id)
    `.execute(db)
}

async function usage(db: Database, isPostgres: boolean): Promise<void> {
  await db.schema
    .createTable('usage')
    .addColumn('id', 'text', primary)
    .addColumn('created_at', 'text', required)
    .addColumn('organization_id', 'text', required)
    .addColumn('workspace_id', 'text')
    .addColumn('key_hash', 'text', required)
    .addColumn('model', 'text')
    .addColumn('provider', 'text')
    .addColumn('end_user', 'text')
    .addColumn('outcome', 'text', required)
    .addColumn('accounting', 'text', required)
    .addColumn('input_tokens', 'bigint', required)
    .addColumn('output_tokens', 'bigint', required)
    .addColumn('cost', 'bigint', required)
    .addColumn('details', 'text', required)
    .addColumn('reasoning_tokens', 'bigint', defaultZero)
    .addColumn('is_byok', 'integer', defaultZero)
    .addColumn('member_id', 'text')
    // SQLite cannot drop a default, so it keeps the one of its first schema.
    .addColumn('in_totals', 'integer', isPostgres ? required : defaultZero)
    .addColumn('session_id', 'text')
    .addColumn('agent', 'text')
    .execute()
  // The orders in which the ledger is searched. Partial indexes leave out records that no search reads.
  await sql`create index usage_by_organization on usage (organization_id, created_at, id)`.execute(db)
  await sql`create index usage_by_key on usage (organization_id, key_hash, created_at, id)`.execute(db)
  await sql`
      create index usage_by_model on usage (organization_id, model, created_at, id)
      where model is not null
    `.execute(db)
  await sql`
      create index usage_by_end_user on usage (organization_id, end_user, created_at, id)
      where end_user is not null
    `.execute(db)
  await sql`
      create index usage_of_session on usage (organization_id, session_id, created_at, id)
      where session_id is not null
    `.execute(db)
  await sql`
      create index usage_by_session on usage (organization_id, created_at, id)
      where session_id is not null or agent is not null
    `.execute(db)
  await sql`
      create index usage_not_completed on usage (organization_id, created_at, id)
      where outcome <> 'completed'
    `.execute(db)
  await sql`create index usage_by_cost on usage (organization_id, cost, id) where cost > 0`.execute(db)
  // Requests that reached no provider; a workspace keeps a limited number of them.
  await sql`
      create index usage_unasked on usage (organization_id, (coalesce(workspace_id, '')), created_at)
      where provider is null and cost = 0
    `.execute(db)
  // Missing text is '' here, because a primary key cannot contain null.
  await db.schema
    .createTable('usage_totals')
    .addColumn('organization_id', 'text', required)
    .addColumn('kind', 'text', required)
    .addColumn('owner', 'text', required)
    .addColumn('day', 'text', required)
    .addColumn('key_hash', 'text', required)
    .addColumn('workspace_id', 'text', required)
    .addColumn('model', 'text', required)
    .addColumn('provider', 'text', required)
    .addColumn('requests', 'bigint', required)
    .addColumn('input_tokens', 'bigint', required)
    .addColumn('output_tokens', 'bigint', required)
    .addColumn('reasoning_tokens', 'bigint', required)
    .addColumn('cost_high', 'bigint', required)
    .addColumn('cost_low', 'bigint', required)
    .addColumn('byok_high', 'bigint', required)
    .addColumn('byok_low', 'bigint', required)
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
  // One row exists while records are missing in the totals: those after this id.
  await db.schema.createTable('usage_fill').addColumn('after_id', 'text', required).execute()
}

/** Lines change often, so their rows are small. Bodies and results may be megabytes and never change. */
async function batches(db: Database): Promise<void> {
  await db.schema
    .createTable('batches')
    .addColumn('id', 'text', primary)
    .addColumn('organization_id', 'text', required)
    .addColumn('workspace_id', 'text')
    .addColumn('key_hash', 'text', required)
    .addColumn('idempotency_key', 'text')
    .addColumn('body_hash', 'text', required)
    .addColumn('endpoint', 'text', required)
    .addColumn('model', 'text', required)
    .addColumn('preferences', 'text')
    .addColumn('data_region', 'text')
    .addColumn('with_metadata', 'integer', required)
    .addColumn('status', 'text', required)
    .addColumn('total', 'integer', required)
    .addColumn('completed', 'integer', required)
    .addColumn('failed', 'integer', required)
    .addColumn('usage', 'text')
    .addColumn('error', 'text')
    .addColumn('service', 'text')
    .addColumn('created_at', 'text', required)
    .addColumn('expires_at', 'text', required)
    .addColumn('started_at', 'text')
    .addColumn('cancelling_at', 'text')
    .addColumn('finalized_at', 'text')
    .addColumn('checked_through', 'integer', required)
    .addColumn('owner', 'text')
    .addColumn('fence', 'integer', required)
    .addColumn('lease_until_ms', 'bigint', required)
    .addColumn('has_bodies', 'integer', required)
    .addColumn('room_requests', 'integer', defaultZero)
    .addColumn('room_bytes', 'bigint', defaultZero)
    .addColumn('input_file', 'text')
    .addColumn('waiting', 'text')
    .execute()
  // Rows without an idempotency key do not conflict, because null equals nothing.
  await sql`
      create unique index batches_by_idempotency_key on batches (organization_id, key_hash, idempotency_key)
    `.execute(db)
  await sql`
      create index batches_by_workspace on batches (organization_id, workspace_id, created_at, id)
    `.execute(db)
  await sql`create index batches_by_status on batches (status, finalized_at)`.execute(db)
  await sql`create index batches_with_bodies on batches (id) where has_bodies = 1`.execute(db)
  await db.schema
    .createTable('batch_lines')
    .addColumn('batch_id', 'text', required)
    .addColumn('number', 'integer', required)
    .addColumn('custom_id', 'text', required)
    .addColumn('body_bytes', 'integer', required)
    .addColumn('ready_ms', 'bigint')
    .addColumn('owner', 'text')
    .addColumn('fence', 'integer', required)
    .addColumn('tries', 'integer', required)
    .addPrimaryKeyConstraint('batch_lines_place', ['batch_id', 'number'])
    .execute()
  // The batch is not the first column: PostgreSQL has no statistics of a new batch and would read all its lines through
  // this index.
  await sql`create unique index batch_lines_by_custom_id on batch_lines (custom_id, batch_id)`.execute(db)
  // The queue of each batch. Lines leave it when they have a result.
  await sql`
      create index batch_lines_ready on batch_lines (batch_id, ready_ms, number)
      where ready_ms is not null
    `.execute(db)
  await db.schema
    .createTable('batch_bodies')
    .addColumn('batch_id', 'text', required)
    .addColumn('number', 'integer', required)
    .addColumn('body', 'text', required)
    .addPrimaryKeyConstraint('batch_bodies_place', ['batch_id', 'number'])
    .execute()
  // The key also ensures that a line has only one result.
  await db.schema
    .createTable('batch_results')
    .addColumn('batch_id', 'text', required)
    .addColumn('number', 'integer', required)
    .addColumn('outcome', 'text', required)
    .addColumn('result_bytes', 'integer', required)
    .addColumn('result', 'text', required)
    .addPrimaryKeyConstraint('batch_results_place', ['batch_id', 'number'])
    .execute()
  await db.schema
    .createTable('service_jobs')
    .addColumn('batch_id', 'text', required)
    .addColumn('number', 'integer', required)
    .addColumn('provider', 'text', required)
    .addColumn('credential_id', 'text')
    .addColumn('upstream_model', 'text', required)
    .addColumn('format', 'text', required)
    .addColumn('path', 'text', required)
    .addColumn('mark', 'text', required)
    .addColumn('name', 'text')
    .addColumn('lines', 'integer', required)
    .addColumn('reserved', 'text', required)
    .addColumn('created_at', 'text', required)
    .addColumn('closed', 'integer', required)
    .addColumn('owner', 'text')
    .addColumn('fence', 'integer', required)
    .addColumn('lease_until_ms', 'bigint', required)
    .addPrimaryKeyConstraint('service_jobs_place', ['batch_id', 'number'])
    .execute()
  await sql`create index service_jobs_open on service_jobs (closed, batch_id, number)`.execute(db)
}

/** Files, their text chunks for search, and the memory of tools. */
async function files(db: Database, isPostgres: boolean): Promise<void> {
  await db.schema
    .createTable('files')
    .addColumn('id', 'text', primary)
    .addColumn('organization_id', 'text', required)
    .addColumn('workspace_id', 'text', required)
    .addColumn('number', 'bigint', required)
    .addColumn('filename', 'text', required)
    .addColumn('purpose', 'text', required)
    .addColumn('media_type', 'text')
    .addColumn('bytes', 'bigint', required)
    .addColumn('status', 'text', required)
    .addColumn('text', 'text', required)
    .addColumn('created_at', 'text', required)
    .execute()
  await sql`create unique index files_by_workspace on files (organization_id, workspace_id, number)`.execute(
    db,
  )
  await sql`create index files_by_name on files (organization_id, workspace_id, filename, number)`.execute(db)
  await sql`
      create index files_to_remove on files (status, created_at)
      where status <> 'stored'
    `.execute(db)
  await db.schema
    .createTable('file_passages')
    .addColumn('id', isPostgres ? 'bigserial' : 'integer', isPostgres ? primary : autoNumbered)
    .addColumn('file_id', 'text', required)
    .addColumn('number', 'integer', required)
    .addColumn('text', 'text', required)
    .execute()
  await sql`create unique index file_passages_by_file on file_passages (file_id, number)`.execute(db)
  if (isPostgres) {
    await sql`alter table file_passages add column words tsvector not null`.execute(db)
    await sql`create index file_passages_by_word on file_passages using gin (words)`.execute(db)
  } else {
    // The index stores only positions of words: the text is in the table.
    await sql`
      create virtual table file_words using fts5(words, content='', contentless_delete=1, tokenize='unicode61')
    `.execute(db)
  }
  await db.schema
    .createTable('memory')
    .addColumn('organization_id', 'text', required)
    .addColumn('workspace_id', 'text', required)
    .addColumn('end_user', 'text', required)
    .addColumn('key', 'text', required)
    .addColumn('value', 'text', required)
    .addColumn('updated_at', 'text', required)
    .addPrimaryKeyConstraint('memory_place', ['organization_id', 'workspace_id', 'end_user', 'key'])
    .execute()
}

/** Records of the gateway about itself: management changes, alerts, captures, explanations, lists of models. */
async function records(db: Database, isPostgres: boolean): Promise<void> {
  // The number orders records of the same time.
  await db.schema
    .createTable('audit_records')
    .addColumn('number', isPostgres ? 'bigserial' : 'integer', isPostgres ? primary : autoNumbered)
    .addColumn('organization_id', 'text', required)
    .addColumn('created_at', 'text', required)
    .addColumn('action', 'text', required)
    .addColumn('actor', 'text', required)
    .addColumn('object_kind', 'text', required)
    .addColumn('object_id', 'text', required)
    .addColumn('object_name', 'text')
    .addColumn('address', 'text')
    .execute()
  await sql`
      create index audit_records_by_organization on audit_records (organization_id, created_at, number)
    `.execute(db)
  // Rows stay after delivery, so that no alert is raised twice.
  await db.schema
    .createTable('alert_deliveries')
    .addColumn('alert_id', 'text', required)
    .addColumn('receiver', 'text', required)
    .addColumn('type', 'text', required)
    .addColumn('object', 'text', required)
    .addColumn('body', 'text', required)
    .addColumn('created_at', 'text', required)
    .addColumn('tries', 'integer', defaultZero)
    .addColumn('due_ms', 'bigint')
    .addPrimaryKeyConstraint('alert_deliveries_key', ['alert_id', 'receiver'])
    .execute()
  await sql`create index alert_deliveries_due on alert_deliveries (receiver, due_ms)`.execute(db)
  // The captured data itself is in files.
  await db.schema
    .createTable('captures')
    .addColumn('id', 'text', primary)
    .addColumn('organization_id', 'text', required)
    .addColumn('key_hash', 'text')
    .addColumn('workspace_id', 'text')
    .addColumn('created_by', 'text', required)
    .addColumn('max_bytes', 'bigint', required)
    .addColumn('bytes', 'bigint', required)
    .addColumn('requests', 'bigint', required)
    .addColumn('left_out', 'bigint', required)
    .addColumn('created_at', 'text', required)
    .addColumn('ends_at', 'text', required)
    .addColumn('ended_at', 'text')
    .addColumn('ended_by', 'text')
    .addColumn('expires_at', 'text', required)
    .execute()
  await sql`create index captures_by_organization on captures (organization_id, created_at)`.execute(db)
  await db.schema
    .createTable('capture_parts')
    .addColumn('capture_id', 'text', required)
    .addColumn('name', 'text', required)
    .addColumn('node', 'text', required)
    .addColumn('host', 'text', required)
    .addColumn('bytes', 'bigint', required)
    .addColumn('requests', 'bigint', required)
    .addColumn('left_out', 'bigint', required)
    .addPrimaryKeyConstraint('capture_parts_key', ['capture_id', 'name'])
    .execute()
  // Explanations are found by either id, and removed by organization and age.
  await db.schema
    .createTable('explanations')
    .addColumn('id', 'text', primary)
    .addColumn('organization_id', 'text', required)
    .addColumn('request_id', 'text')
    .addColumn('created_at', 'text', required)
    .addColumn('is_plain', 'integer', required)
    .addColumn('document', 'text', required)
    .execute()
  await sql`
      create index explanations_by_organization on explanations (organization_id, is_plain, created_at, id)
    `.execute(db)
  await sql`create index explanations_by_request on explanations (request_id, created_at)`.execute(db)
  await db.schema
    .createTable('catalogue_sources')
    .addColumn('source', 'text', primary)
    .addColumn('version', 'text', required)
    .addColumn('models', 'integer', required)
    .addColumn('facts', 'text', required)
    .addColumn('updated_at', 'text', required)
    .execute()
}

/**
 * The default workspace of the embedded mode, with its empty guardrail. It is created here and not at start-up, so that
 * it stays deleted once deleted.
 */
async function defaults(db: Database): Promise<void> {
  const now = new Date(systemClock.nowMs()).toISOString()
  await db
    .insertInto('workspaces')
    .values({
      organization_id: DEFAULT_ORGANIZATION_ID,
      id: DEFAULT_WORKSPACE_ID,
      name: 'Default',
      slug: 'default',
      created_at: now,
      updated_at: now,
    })
    .execute()
  await db
    .insertInto('guardrails')
    .values({
      id: defaultGuardrailId(DEFAULT_ORGANIZATION_ID, DEFAULT_WORKSPACE_ID),
      organization_id: DEFAULT_ORGANIZATION_ID,
      workspace_id: DEFAULT_WORKSPACE_ID,
      is_workspace_default: 1,
      name: `Workspace ${DEFAULT_WORKSPACE_ID} Default`,
      include_byok_in_budgets: 0,
      rules: '{}',
      revision: 1,
      created_at: now,
      updated_at: now,
    })
    .execute()
}
