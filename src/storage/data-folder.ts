/** Locations derived from storage URLs: paths on disk, and hosts. Imports little, because a start needs it first. */
import { mkdirSync, statSync } from 'node:fs'
import { userInfo } from 'node:os'
import { dirname, resolve } from 'node:path'

/** The path of an embedded database in the URL; `:memory:` for one without a file; null for other URLs. */
export function sqlitePath(url: string): string | null {
  return url.startsWith('sqlite:') ? url.slice('sqlite:'.length) : null
}

/** Data folder of storages without a file, below the working directory. */
const DEFAULT_FOLDER = './data'

/** The folder of the file of an embedded database; `./data` for one in memory and for PostgreSQL. */
export function dataFolder(storageUrl: string): string {
  const path = sqlitePath(storageUrl)
  const hasFile = path !== null && path !== ':memory:'
  return hasFile ? dirname(resolve(path)) : resolve(DEFAULT_FOLDER)
}

/**
 * Creates a folder and its parents with access for the owner alone. Not with Node's recursive mkdir, which never ends if
 * the system reports that a folder of /proc does not exist.
 * @throws the error of the file system
 */
export function makeFolder(path: string): void {
  const missingFolders: string[] = []
  for (let parent = resolve(path); !isFolder(parent); parent = dirname(parent)) missingFolders.unshift(parent)
  for (const folder of missingFolders) {
    try {
      mkdirSync(folder, { mode: 0o700 })
    } catch (error) {
      // Another process was faster.
      if (!isFolder(folder)) throw error
    }
  }
}

function isFolder(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isDirectory() === true
}

/** Advice for errors that a retry does not fix. Other errors are shown by their code alone. */
const ADVICE_BY_CODE: Readonly<Record<string, string>> = {
  EACCES: 'may not write there',
  EPERM: 'may not write there',
  EROFS: 'cannot write there, because the disk is read-only',
  ENOSPC: 'cannot write there, because the disk is full',
  ENOENT: 'cannot create it there',
  ENOTDIR: 'cannot create it there, because a part of the path is a file',
  EEXIST: 'cannot create it there, because a part of the path is a file',
}

/**
 * The message for an operator if a file of the data folder cannot be created: the path, the cause and the remedy.
 * @param code the error code of the system
 */
export function unwritable(file: string, code: string | null): string {
  const path = resolve(file)
  const advice = ADVICE_BY_CODE[code ?? '']
  if (advice === undefined) return `${path}: cannot be created (${code ?? 'unknown'})`
  return `${path}: cannot be created (${code}): ${userName()} ${advice}. Give that user the folder ${dirname(path)}, start in a folder that it may write to, or set another one in storage.url or DATABASE_URL`
}

function userName(): string {
  try {
    const { username, uid } = userInfo()
    return uid < 0 ? `user ${username}` : `user ${username} (${uid})`
  } catch {
    // A container may run as a numeric user without a name.
    return `user ${process.getuid?.() ?? ''}`.trim()
  }
}

const UNREADABLE_ADDRESS = 'an unreadable address'

/**
 * The path of an embedded database, or the host, for example `127.0.0.1:6379` or `db.internal:5432/sluice`; `an
 * unreadable address` if the text is not a URL, or could show a part of a password.
 */
export function storageLocation(url: string): string {
  if (url.startsWith('sqlite:')) return url.slice('sqlite:'.length)
  try {
    const { protocol, username, password, hostname, port, pathname, searchParams } = new URL(url)
    // An unescaped `/`, `?` or `#` in a password ends the host too early; the rest of the password would be shown.
    const isPlain =
      url.split('@').length === (username + password === '' ? 1 : 2) && /^\/?[\w-]*$/.test(pathname)
    if (!isPlain) return UNREADABLE_ADDRESS
    // The path of a Unix socket is in a parameter.
    const host = hostname === '' ? (searchParams.get('host') ?? 'localhost') : hostname
    const portText = port === '' ? DEFAULT_PORTS[protocol] : port
    return `${host}${portText === undefined ? '' : `:${portText}`}${pathname === '/' ? '' : pathname}`
  } catch {
    return UNREADABLE_ADDRESS
  }
}

const DEFAULT_PORTS: Readonly<Record<string, string>> = {
  'redis:': '6379',
  'rediss:': '6379',
  'postgres:': '5432',
  'postgresql:': '5432',
}
