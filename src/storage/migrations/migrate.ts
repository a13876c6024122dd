/**
 * Brings a database to the newest schema. Migrations only ever add to this table; those that ran are never
 * changed. All pending ones run in one transaction, so a process killed in between leaves the old schema, and of
 * two processes that start at once one finds the work done.
 */
import type { Kysely } from 'kysely'
import { type Migration, Migrator } from 'kysely/migration'
import type { Tables } from '../tables.ts'
import { keys } from './0001-keys.ts'
import { usage } from './0002-usage.ts'

/** In the order of their names, which the database remembers. */
const MIGRATIONS: Readonly<Record<string, Migration>> = {
  '0001-keys': keys,
  '0002-usage': usage,
}

/** @throws what the database threw; nothing is changed then. */
export async function migrate(db: Kysely<Tables>): Promise<void> {
  const migrator = new Migrator({ db, provider: { getMigrations: async () => ({ ...MIGRATIONS }) } })
  const { error } = await migrator.migrateToLatest()
  if (error !== undefined) throw error
}
