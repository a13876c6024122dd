/**
 * Brings a database to the newest schema. Migrations only ever add to this table; those that ran are never
 * changed. All pending ones run in one transaction, so a process killed in between leaves the old schema, and of
 * processes that start at once one does the work, while the others wait and find it done.
 */
import { type Dialect, Kysely, type QueryExecutorProvider } from 'kysely'
import { type Migration, Migrator } from 'kysely/migration'
import type { Serialize } from '../engine.ts'
import { StoreError } from '../store.ts'
import { credentials, credits } from './credentials.ts'
import { guardrails } from './guardrails.ts'
import { keyLimits, keys } from './keys.ts'
import { usage, usageMembers, usageSums } from './usage.ts'
import { endUsers, workspaces } from './workspaces.ts'

/** In the order of their names, which the database remembers. */
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
}

/**
 * `schema` tells where tables without a schema's name are made, for engines that have schemas: another one of the
 * same database may have migrations of its own.
 * @throws StoreError when migrations ran that are not known here, e.g. of a newer version; else what the database
 * threw. Nothing is changed then.
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
    if (error instanceof Error && error.message.startsWith('corrupted migrations')) {
      throw new StoreError('storage: the schema of the database is that of another version', 'schema', {
        cause: error,
      })
    }
    if (error !== undefined) throw error
  })
}
