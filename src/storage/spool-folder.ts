/**
 * Whose spool files are whose. Each process has a folder of its own under the spool, and holds a lock beside it
 * for as long as it lives; the kernel lets go of the lock when the process ends in whatever way. So several
 * gateways can share one spool, and what a dead one left is found without asking for process ids, which come back.
 *
 * The lock is an exclusive transaction on an empty database: the one kind of file lock the runtime offers.
 */
import { closeSync, mkdirSync, openSync, readdirSync, rmdirSync, unlinkSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { randomText } from '../ids.ts'
import { sqlitePath } from './open.ts'
import { isBusy } from './sqlite.ts'

const LOCK_SUFFIX = '.lock'

export interface SpoolFolder {
  readonly path: string
  /** Lets the folder go; it is removed when it is empty. */
  release(): void
}

/** Of storages without a file, below the working directory. */
const DATA_FOLDER = './data'

/**
 * Where the spool of a storage is: `spool` beside the file of an embedded database; for one in memory, and for
 * PostgreSQL, `./data/spool`. It has to be on a disk of this machine that outlives the process.
 */
export function spoolRoot(storageUrl: string): string {
  const path = sqlitePath(storageUrl)
  const hasFile = path !== null && path !== ':memory:'
  return join(hasFile ? dirname(resolve(path)) : resolve(DATA_FOLDER), 'spool')
}

/**
 * Makes a folder for this process and locks it.
 * @throws the error of the file system.
 */
export function claimSpoolFolder(root: string): SpoolFolder {
  mkdirSync(root, { recursive: true, mode: 0o700 })
  const path = join(root, `${process.pid}-${randomText(12)}`)
  closeSync(openSync(path + LOCK_SUFFIX, 'a', 0o600))
  // Locked before the folder exists, so that nobody ever meets it unlocked.
  const lock = lockOf(path)
  if (lock === null) throw new Error('a new lock is taken')
  mkdirSync(path, { mode: 0o700 })
  return folderOf(path, lock)
}

/** Takes over the folders whose processes have ended. The caller releases each. */
export function claimAbandoned(root: string): SpoolFolder[] {
  const claimed: SpoolFolder[] = []
  for (const entry of readdirSync(root, { withFileTypes: true })) {
    if (!entry.isDirectory()) continue
    const path = join(root, entry.name)
    try {
      const lock = lockOf(path)
      if (lock !== null) claimed.push(folderOf(path, lock))
    } catch {
      // Not ours to open; the others must not wait for it.
    }
  }
  return claimed
}

function folderOf(path: string, lock: DatabaseSync): SpoolFolder {
  return {
    path,
    release() {
      let emptied = true
      try {
        rmdirSync(path)
      } catch {
        // Files that could not be shipped stay, for whoever comes next.
        emptied = false
      }
      if (emptied) unlinkQuietly(path + LOCK_SUFFIX)
      lock.close()
    },
  }
}

/** Null when another process, or another owner in this one, holds it. */
function lockOf(path: string): DatabaseSync | null {
  const lock = new DatabaseSync(path + LOCK_SUFFIX, { timeout: 0 })
  try {
    // No journal: a killed process would leave it lying about.
    lock.exec('PRAGMA journal_mode = MEMORY; BEGIN EXCLUSIVE')
    return lock
  } catch (error) {
    lock.close()
    if (isBusy(error)) return null
    throw error
  }
}

function unlinkQuietly(path: string): void {
  try {
    unlinkSync(path)
  } catch {
    // Gone already, or not ours to remove; an empty file harms nobody.
  }
}
