/** The Store over any engine: one implementation, assembled from a file per group of verbs. */
import { CamelCasePlugin, Kysely } from 'kysely'
import type { Engine } from '../engine.ts'
import type { Store } from '../store.ts'
import type { Tables } from '../tables.ts'
import { createCredentialStore } from './credentials.ts'
import { createCreditStore } from './credits.ts'
import { createEndUserStore } from './end-users.ts'
import { createGuardrailAssignments } from './guardrail-assignments.ts'
import { createGuardrailRecords } from './guardrails.ts'
import { createKeyStore } from './keys.ts'
import { createLedgerStore } from './ledger.ts'
import { createWorkspaceStore } from './workspaces.ts'

/**
 * Opens the Store. `wait`: only when the schema is the newest one; otherwise the first verb sees to that, and each
 * verb after it while that fails.
 * @throws what the database threw; the engine is closed then.
 */
export async function createKyselyStore(engine: Engine, wait: boolean): Promise<Store> {
  const db = new Kysely<Tables>({ dialect: engine.dialect, plugins: [new CamelCasePlugin()] })
  if (wait) {
    try {
      await db.connection().execute(async () => undefined)
    } catch (error) {
      await engine.close()
      throw error
    }
  }
  return {
    keys: createKeyStore(db),
    workspaces: createWorkspaceStore(db, engine),
    endUsers: createEndUserStore(db),
    credentials: createCredentialStore(db, engine),
    credits: createCreditStore(db),
    guardrails: { ...createGuardrailRecords(db, engine), ...createGuardrailAssignments(db, engine) },
    ledger: createLedgerStore(db),
    close: () => engine.close(),
  }
}
