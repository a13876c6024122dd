/** The Store over any engine: one implementation, assembled from a file per group of verbs. */
import { CamelCasePlugin, Kysely } from 'kysely'
import type { Engine } from '../engine.ts'
import { migrate } from '../migrations/migrate.ts'
import type { Store } from '../store.ts'
import type { Tables } from '../tables.ts'
import { createKeyStore } from './keys.ts'
import { createLedgerStore } from './ledger.ts'

/**
 * Brings the database to the newest schema and opens the Store on it.
 * @throws what the database threw; the engine is closed then.
 */
export async function createKyselyStore(engine: Engine): Promise<Store> {
  const db = new Kysely<Tables>({ dialect: engine.dialect, plugins: [new CamelCasePlugin()] })
  try {
    await migrate(db)
  } catch (error) {
    await db.destroy()
    throw error
  }
  return {
    keys: createKeyStore(db),
    ledger: createLedgerStore(db),
    close: () => db.destroy(),
  }
}
