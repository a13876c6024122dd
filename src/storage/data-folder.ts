/** Paths on disk that follow from the storage URL. Light: a start needs them before it loads a storage. Leaf. */
import { dirname, resolve } from 'node:path'

/** The path of an embedded database in the URL; `:memory:` for one without a file; null for other URLs. */
export function sqlitePath(url: string): string | null {
  return url.startsWith('sqlite:') ? url.slice('sqlite:'.length) : null
}

/** Data folder of storages without a file, below the working directory. */
const DATA_FOLDER = './data'

/** The folder of the file of an embedded database; `./data` for one in memory and for PostgreSQL. */
export function dataFolder(storageUrl: string): string {
  const path = sqlitePath(storageUrl)
  const hasFile = path !== null && path !== ':memory:'
  return hasFile ? dirname(resolve(path)) : resolve(DATA_FOLDER)
}
