/** The Store that a URL names. */
import { closeSync, mkdirSync, openSync } from 'node:fs'
import { dirname, resolve } from 'node:path'
import { createKyselyStore } from './kysely-store/kysely-store.ts'
import { openPostgres } from './postgres.ts'
import { openSqlite } from './sqlite.ts'
import type { Store } from './store.ts'
import { codeOf, isAway, StoreError } from './store-error.ts'

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
