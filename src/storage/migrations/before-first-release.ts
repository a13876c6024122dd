/** Upgrade from the versions before the first release, whose schema came from 33 migrations, to the first migration. */
import { sql, type Transaction } from 'kysely'
import { systemClock } from '../../base/clock.ts'
import { StoreError } from '../store-error.ts'

/** The migrations of the versions from 54b545f9 to the last one before the first release, in their order. */
const UNRELEASED_MIGRATIONS = [
  ...['0001-keys', '0002-usage', '0003-key-limits', '0004-workspaces', '0005-end-users', '0006-credentials'],
  ...['0007-credits', '0008-usage-sums', '0009-guardrails', '0010-usage-members', '0011-removed-keys'],
  ...['0012-usage-totals', '0013-audit', '0014-key-revisions', '0015-batches', '0016-service-jobs'],
  ...['0017-catalogue', '0018-workspace-tools', '0019-files', '0020-memory', '0021-batch-room'],
  ...[
    '0022-end-user-weights',
    '0023-usage-unasked',
    '0024-usage-sessions',
    '0025-batch-files',
    '0026-alerts',
  ],
  ...['0027-key-secrets', '0028-usage-search', '0029-captures', '0030-explanations', '0031-key-identities'],
  ...['0032-usage-refused', '0033-batch-waits'],
]
/** How many migrations commit 54b545f9 had: a database with fewer cannot be upgraded. */
const MIGRATIONS_MIN = 31

/**
 * Upgrades a database of these versions to the schema of the first migration.
 * @returns false if it has another version; then nothing has changed.
 * @throws StoreError if its version is too old
 */
export async function upgradeUnreleased(transaction: Transaction<unknown>): Promise<boolean> {
  const { rows } = await sql<{ name: string }>`select name from kysely_migration order by name`.execute(
    transaction,
  )
  if (
    rows.length > UNRELEASED_MIGRATIONS.length ||
    rows.some(({ name }, index) => name !== UNRELEASED_MIGRATIONS[index])
  )
    return false
  if (rows.length < MIGRATIONS_MIN) {
    throw new StoreError(
      'storage: the database is too old for this version of Sluice. Make a backup, start the version of commit 54b545f9 once on the database, then start this one',
      'schema',
    )
  }
  if (rows.length < 32) {
    // Both indexes no longer contain records that no search reads.
    await sql`drop index usage_by_model`.execute(transaction)
    await sql`
      create index usage_by_model on usage (organization_id, model, created_at, id) where model is not null
    `.execute(transaction)
    await sql`drop index usage_by_cost`.execute(transaction)
    await sql`create index usage_by_cost on usage (organization_id, cost, id) where cost > 0`.execute(
      transaction,
    )
  }
  if (rows.length < 33) await sql`alter table batches add column waiting text`.execute(transaction)
  await sql`delete from kysely_migration`.execute(transaction)
  await sql`
    insert into kysely_migration (name, timestamp) values ('0001-schema', ${new Date(systemClock.nowMs()).toISOString()})
  `.execute(transaction)
  return true
}
