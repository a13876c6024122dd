/** Opens the Store for a URL: one implementation over any engine, with one file per group of operations. */
import { closeSync, openSync } from 'node:fs'
import { dirname, resolve } from 'node:path'
import { CamelCasePlugin, Kysely } from 'kysely'
import { isError } from '../base/errors.ts'
import { makeFolder, sqlitePath, unwritable } from './data-folder.ts'
import type { Engine } from './engine.ts'
import { createAlertStore } from './kysely-store/alerts.ts'
import { addAuditRecord, createAuditStore } from './kysely-store/audit.ts'
import { createBatchStore } from './kysely-store/batches/batches.ts'
import { createCaptureStore } from './kysely-store/captures.ts'
import { createCatalogueStore } from './kysely-store/catalogue.ts'
import { createConfigurationStore } from './kysely-store/configurations.ts'
import { createCredentialStore } from './kysely-store/credentials.ts'
import { createExplanationStore } from './kysely-store/explanations.ts'
import { createFileStore } from './kysely-store/files.ts'
import { createGuardrailAssignments, createGuardrailRecords } from './kysely-store/guardrails.ts'
import { createKeyStore } from './kysely-store/keys.ts'
import { createCreditStore, createLedgerStore } from './kysely-store/ledger.ts'
import { createMemoryStore } from './kysely-store/memory.ts'
import { createPauseStore } from './kysely-store/pauses.ts'
import { createRolloutStore } from './kysely-store/rollouts.ts'
import { createEndUserStore, createWorkspaceStore } from './kysely-store/workspaces.ts'
import { openSqlite } from './sqlite.ts'
import type { Store, StoreVerbs } from './store.ts'
import { codeOf, isAway, isDiskFault, StoreError } from './store-error.ts'
import type { Tables } from './tables.ts'

export { isAway, isDiskFault, StoreError }

interface OpenOptions {
  /**
   * True, the default: resolves when the schema is the newest one. False: resolves at once, also while PostgreSQL is
   * unavailable. Each verb then tries to connect and rejects within about two seconds if that fails; the first success
   * migrates the schema. Embedded databases always behave as with true.
   */
  readonly wait?: boolean
}

const POSTGRES = /^postgres(?:ql)?:\/\//i

/**
 * Opens the storage at `sqlite:PATH` or `postgres://...` and migrates it to the newest schema. Creates a missing file
 * with mode 0600 and missing folders with 0700. `sqlite::memory:` gives a new storage at each call. A PostgreSQL URL
 * takes the parameters of `pg`, e.g. `sslmode`.
 * @throws StoreError
 */
export async function openStore(url: string, options: OpenOptions = {}): Promise<Store> {
  const path = sqlitePath(url)
  if (path !== null) return await openFile(path)
  if (POSTGRES.test(url)) {
    // The library is loaded only if it is needed.
    const { openPostgres } = await import('./postgres.ts')
    return await createKyselyStore(openPostgres(url), options.wait ?? true)
  }
  // The rest of an unknown URL may contain a password, so it is not shown.
  throw new StoreError('storage: expected a URL of the form sqlite:PATH or postgres://...')
}

async function openFile(path: string): Promise<Store> {
  if (path === '') throw new StoreError('storage: sqlite: needs a path, as in sqlite:./data/gateway.db')
  const file = path === ':memory:' ? path : resolve(path)
  try {
    if (file !== ':memory:') prepareFile(file)
  } catch (error) {
    const code = codeOf(error)
    throw new StoreError(`storage: ${unwritable(file, code)}`, code, { cause: error })
  }
  try {
    return await createKyselyStore(openSqlite(file), true)
  } catch (error) {
    if (error instanceof StoreError) throw error
    const message = `storage: cannot open ${file} (${causeText(error)}). Repair that file, or set another one in storage.url or DATABASE_URL`
    throw new StoreError(message, codeOf(error), { cause: error })
  }
}

/** Creates the file before the library does, which would make it readable for everyone. Side files inherit its mode. */
function prepareFile(file: string): void {
  makeFolder(dirname(file))
  closeSync(openSync(file, 'a', 0o600))
}

function causeText(error: unknown): string {
  const text: unknown = isError(error) ? Reflect.get(error, 'errstr') : undefined
  return typeof text === 'string' ? text : (codeOf(error) ?? 'unknown reason')
}

/**
 * Creates the Store. With `wait`, the schema is migrated first; otherwise by the first call, or by a later one if that
 * fails.
 * @throws the error of the database; the engine is closed then.
 */
async function createKyselyStore(engine: Engine, wait: boolean): Promise<Store> {
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
    ...verbsOf(db, engine),
    async audited(change, entryOf) {
      // Secrets are deleted only with the commit, so purging waits for it.
      let needsPurge = false
      const deferredEngine: Engine = {
        ...engine,
        async purge() {
          needsPurge = true
        },
      }
      const result = await db.transaction().execute(async transaction => {
        const outcome = await change(verbsOf(transaction, deferredEngine))
        const entry = entryOf(outcome)
        if (entry !== null) await addAuditRecord(transaction, entry)
        return outcome
      })
      if (needsPurge) await engine.purge(db)
      return result
    },
    probe: () => engine.probe(db),
    close: () => engine.close(),
  }
}

function verbsOf(db: Kysely<Tables>, engine: Engine): StoreVerbs {
  return {
    alerts: createAlertStore(db),
    explanations: createExplanationStore(db, engine),
    keys: createKeyStore(db),
    workspaces: createWorkspaceStore(db, engine),
    endUsers: createEndUserStore(db),
    credentials: createCredentialStore(db, engine),
    credits: createCreditStore(db),
    guardrails: { ...createGuardrailRecords(db, engine), ...createGuardrailAssignments(db, engine) },
    ledger: createLedgerStore(db, engine),
    audit: createAuditStore(db),
    batches: createBatchStore(db, engine),
    captures: createCaptureStore(db, engine),
    catalogue: createCatalogueStore(db),
    configurations: createConfigurationStore(db),
    files: createFileStore(db, engine),
    memory: createMemoryStore(db, engine),
    pauses: createPauseStore(db),
    rollouts: createRolloutStore(db, engine),
  }
}
