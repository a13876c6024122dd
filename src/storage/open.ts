/** The Store that a URL names. */
import { closeSync, mkdirSync, openSync } from 'node:fs'
import { dirname, resolve } from 'node:path'
import { CamelCasePlugin, Kysely } from 'kysely'
import type { Engine } from './engine.ts'
import { createCredentialStore } from './kysely-store/credentials.ts'
import { createGuardrailAssignments, createGuardrailRecords } from './kysely-store/guardrails.ts'
import { createKeyStore } from './kysely-store/keys.ts'
import { createCreditStore, createLedgerStore } from './kysely-store/ledger.ts'
import { createEndUserStore, createWorkspaceStore } from './kysely-store/workspaces.ts'
import { openPostgres } from './postgres.ts'
import { openSqlite } from './sqlite.ts'
import { codeOf, isAway, type Store, StoreError } from './store.ts'
import type { Tables } from './tables.ts'

export { isAway, StoreError }

export interface OpenOptions {
  /**
   * Default true: the Store is given when its schema is the newest one. False: a PostgreSQL that is away does not
   * keep anybody waiting. The Store is given at once; each verb tries to connect, and rejects within about two
   * seconds while that fails; the first that succeeds brings the schema up. Embedded databases are always waited for.
   */
  readonly wait?: boolean
}

const POSTGRES = /^postgres(?:ql)?:\/\//i

/** Path of an embedded database as it stands in the URL; `:memory:` for one without a file; null for any other URL. */
export function sqlitePath(url: string): string | null {
  return url.startsWith('sqlite:') ? url.slice('sqlite:'.length) : null
}

/**
 * Opens the storage at `sqlite:PATH` or `postgres://...` and brings it to the newest schema. A missing file is made
 * with mode 0600, missing folders with 0700. `sqlite::memory:` is a storage of its own at each call. Parameters of a
 * PostgreSQL URL are those of `pg`, e.g. `sslmode`.
 * @throws StoreError
 */
export async function openStore(url: string, options: OpenOptions = {}): Promise<Store> {
  const path = sqlitePath(url)
  if (path !== null) return await openFile(path)
  if (POSTGRES.test(url)) return await createKyselyStore(openPostgres(url), options.wait ?? true)
  // The rest of an unknown URL may hold a password.
  throw new StoreError('storage: expected a URL of the form sqlite:PATH or postgres://...')
}

async function openFile(path: string): Promise<Store> {
  if (path === '') throw new StoreError('storage: sqlite: needs a path, as in sqlite:./data/gateway.db')
  const file = path === ':memory:' ? path : resolve(path)
  try {
    if (file !== ':memory:') prepareFile(file)
    return await createKyselyStore(openSqlite(file), true)
  } catch (error) {
    if (error instanceof StoreError) throw error
    const message = `storage: cannot open ${file} (${reason(error)})`
    throw new StoreError(message, codeOf(error), { cause: error })
  }
}

/** The library would make the file readable for everyone; its side files take after it. */
function prepareFile(file: string): void {
  mkdirSync(dirname(file), { recursive: true, mode: 0o700 })
  closeSync(openSync(file, 'a', 0o600))
}

function reason(error: unknown): string {
  const text: unknown = error instanceof Error ? Reflect.get(error, 'errstr') : undefined
  return typeof text === 'string' ? text : (codeOf(error) ?? 'unknown reason')
}

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
