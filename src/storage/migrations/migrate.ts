/**
 * Migrates a database to the latest schema. New migrations are added to the table; released ones never change. All
 * pending ones run in one transaction, so a kill leaves the old schema. If several processes start at once, one
 * migrates and the others wait.
 */
import { type Dialect, Kysely, type QueryExecutorProvider } from 'kysely'
import { type Migration, Migrator } from 'kysely/migration'
import { isError } from '../../base/errors.ts'
import type { Serialize } from '../engine.ts'
import { StoreError } from '../store.ts'
import { alerts } from './alerts.ts'
import { audit } from './audit.ts'
import { batches, batchFiles, batchRoom, batchWaits } from './batches.ts'
import { captures } from './captures.ts'
import { catalogue } from './catalogue.ts'
import { credentials, credits, keyRevisions } from './credentials.ts'
import { explanations } from './explanations.ts'
import { files, memory } from './files.ts'
import { guardrails } from './guardrails.ts'
import { keyIdentities, keyLimits, keySecrets, keys } from './keys.ts'
import { removedKeys } from './removed-keys.ts'
import { serviceJobs } from './service-jobs.ts'
import { usageTotals } from './totals.ts'
import {
  usage,
  usageMembers,
  usageRefused,
  usageSearch,
  usageSessions,
  usageSums,
  usageUnasked,
} from './usage.ts'
import { workspaceTools } from './workspace-tools.ts'
import { endUsers, endUserWeights, workspaces } from './workspaces.ts'

/** All migrations by name. They run in the order of their names, which the database stores. */
export const MIGRATIONS: Readonly<Record<string, Migration>> = {
  '0001-keys': keys,
  '0002-usage': usage,
  '0003-key-limits': keyLimits,
  '0004-workspaces': workspaces,
  '0005-end-users': endUsers,
  '0006-credentials': credentials,
  '0007-credits': credits,
  '0008-usage-sums': usageSums,
  '0009-guardrails': guardrails,
  '0010-usage-members': usageMembers,
  '0011-removed-keys': removedKeys,
  '0012-usage-totals': usageTotals,
  '0013-audit': audit,
  '0014-key-revisions': keyRevisions,
  '0015-batches': batches,
  '0016-service-jobs': serviceJobs,
  '0017-catalogue': catalogue,
  '0018-workspace-tools': workspaceTools,
  '0019-files': files,
  '0020-memory': memory,
  '0021-batch-room': batchRoom,
  '0022-end-user-weights': endUserWeights,
  '0023-usage-unasked': usageUnasked,
  '0024-usage-sessions': usageSessions,
  '0025-batch-files': batchFiles,
  '0026-alerts': alerts,
  '0027-key-secrets': keySecrets,
  '0028-usage-search': usageSearch,
  '0029-captures': captures,
  '0030-explanations': explanations,
  '0031-key-identities': keyIdentities,
  '0032-usage-refused': usageRefused,
  '0033-batch-waits': batchWaits,
}

/**
 * Runs the pending migrations. `schema` gives the schema in which unqualified tables are created, for engines that have
 * schemas: another schema of the same database may have its own migrations.
 * @throws StoreError if unknown migrations ran, e.g. of a newer version; otherwise the error of the database. The
 * database stays unchanged then.
 */
export async function migrate(
  dialect: Dialect,
  serialize: Serialize,
  schema?: (transaction: QueryExecutorProvider) => Promise<string>,
): Promise<void> {
  const db = new Kysely<unknown>({ dialect })
  await db.transaction().execute(async transaction => {
    await serialize(transaction, 'migrations')
    const migrator = new Migrator({
      db: transaction,
      provider: { getMigrations: async () => ({ ...MIGRATIONS }) },
      ...(schema === undefined ? {} : { migrationTableSchema: await schema(transaction) }),
    })
    const { error } = await migrator.migrateToLatest()
    if (isError(error) && error.message.startsWith('corrupted migrations')) {
      throw new StoreError('storage: the database schema belongs to another version of Sluice', 'schema', {
        cause: error,
      })
    }
    if (error !== undefined) throw error
  })
}
