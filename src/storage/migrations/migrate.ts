/**
 * Migrates a database to the latest schema. New migrations are added to `MIGRATIONS`; released ones never change.
 * All pending ones run in one transaction, so a kill leaves the old schema. If several processes start at once, one
 * migrates and the others wait.
 */
import { type Dialect, Kysely, type QueryExecutorProvider } from 'kysely'
import { type Migration, Migrator } from 'kysely/migration'
import { isError } from '../../base/errors.ts'
import type { Serialize } from '../engine.ts'
import { StoreError } from '../store-error.ts'
import { schema as firstSchema } from './0001-schema.ts'
import { rateLimits } from './0002-rate-limits.ts'
import { loops } from './0003-loops.ts'
import { configurations } from './0004-configurations.ts'
import { rollouts } from './0005-rollouts.ts'
import { pauses } from './0006-pauses.ts'
import { responseCache } from './0007-response-cache.ts'
import { shadows } from './0008-shadows.ts'
import { upgradeUnreleased } from './before-first-release.ts'

/** All migrations by name. They run in the order of their names, which the database stores. */
export const MIGRATIONS: Readonly<Record<string, Migration>> = {
  '0001-schema': firstSchema,
  '0002-rate-limits': rateLimits,
  '0003-loops': loops,
  '0004-configurations': configurations,
  '0005-rollouts': rollouts,
  '0006-pauses': pauses,
  '0007-response-cache': responseCache,
  '0008-shadows': shadows,
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
    let { error } = await migrator.migrateToLatest()
    if (hasUnknownNames(error) && (await upgradeUnreleased(transaction))) {
      error = (await migrator.migrateToLatest()).error
    }
    if (hasUnknownNames(error)) {
      throw new StoreError('storage: the database schema belongs to another version of Sluice', 'schema', {
        cause: error,
      })
    }
    if (error !== undefined) throw error
  })
}

/** True if the database lists migrations that are not in `MIGRATIONS`. Then nothing has run. */
function hasUnknownNames(error: unknown): boolean {
  return isError(error) && error.message.startsWith('corrupted migrations')
}
