/** The Store that a URL names. */
import { closeSync, mkdirSync, openSync } from 'node:fs'
import { dirname, resolve } from 'node:path'
import { createKyselyStore } from './kysely-store/kysely-store.ts'
import { openSqlite } from './sqlite.ts'
import type { Store } from './store.ts'

/** A storage that cannot be used; the message is fit for the operator and free of credentials. */
export class StoreError extends Error {
  override readonly name = 'StoreError'
}

/** Path of an embedded database as it stands in the URL; `:memory:` for one without a file; null for any other URL. */
export function sqlitePath(url: string): string | null {
  return url.startsWith('sqlite:') ? url.slice('sqlite:'.length) : null
}

/**
 * Opens the storage at `sqlite:PATH` and brings it to the newest schema. A missing file is made with mode 0600,
 * missing folders with 0700. `sqlite::memory:` is a storage of its own at each call.
 * @throws StoreError
 */
export async function openStore(url: string): Promise<Store> {
  const path = sqlitePath(url)
  if (path === null) throw new StoreError(`storage: ${unsupported(url)}`)
  if (path === '') throw new StoreError('storage: sqlite: needs a path, as in sqlite:./data/gateway.db')
  const file = path === ':memory:' ? path : resolve(path)
  try {
    if (file !== ':memory:') prepareFile(file)
    return await createKyselyStore(openSqlite(file))
  } catch (error) {
    throw new StoreError(`storage: cannot open ${file} (${reason(error)})`, { cause: error })
  }
}

function unsupported(url: string): string {
  if (/^postgres(?:ql)?:/i.test(url)) return 'PostgreSQL is not supported yet, use sqlite:PATH'
  // The rest of an unknown URL may hold a password.
  return 'expected a URL of the form sqlite:PATH'
}

/** The library would make the file readable for everyone; its side files take after it. */
function prepareFile(file: string): void {
  mkdirSync(dirname(file), { recursive: true, mode: 0o700 })
  closeSync(openSync(file, 'a', 0o600))
}

function reason(error: unknown): string {
  const { code, errstr } = error as { code?: unknown; errstr?: unknown }
  if (typeof errstr === 'string') return errstr
  return typeof code === 'string' ? code : 'unknown reason'
}
