/**
 * The folders of the spool. Each process has its own folder, and holds a lock next to it while it runs; the kernel
 * releases the lock however the process ends. So several gateways can share one spool, and the folders of dead
 * processes are found without process ids, which the kernel reuses.
 *
 * The lock is an exclusive transaction on an empty database, the only kind of file lock that Node offers.
 */
import { closeSync, mkdirSync, openSync, readdirSync, rmdirSync, unlinkSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { randomText } from '../../base/ids.ts'
import { dataFolder, makeFolder } from '../data-folder.ts'
import { isBusy } from '../sqlite.ts'

const LOCK_SUFFIX = '.lock'

/** A locked folder. */
export interface SpoolFolder {
  readonly path: string
  /** Releases the lock, and removes the folder if it is empty. */
  release(): void
}

/**
 * The spool folder of a storage: `spool` beside the file of an embedded database, `./data/spool` for one in memory and
 * for PostgreSQL. It must be on a local disk that outlives the process.
 */
export function spoolRoot(storageUrl: string): string {
  return join(dataFolder(storageUrl), 'spool')
}

/**
 * Creates a folder for this process and locks it.
 * @throws the error of the file system.
 */
export function claimSpoolFolder(root: string): SpoolFolder {
  makeFolder(root)
  const path = join(root, `${process.pid}-${randomText(12)}`)
  closeSync(openSync(path + LOCK_SUFFIX, 'a', 0o600))
  // Locked before the folder is created, so that no process ever finds it unlocked.
  const lock = lockOf(path)
  if (lock === null) throw new Error('another process holds the new lock')
  mkdirSync(path, { mode: 0o700 })
  return lockedFolder(path, lock)
}

/** Locks the folders of processes that have ended. The caller releases each. */
export function claimAbandoned(root: string): SpoolFolder[] {
  const folders: SpoolFolder[] = []
  for (const entry of readdirSync(root, { withFileTypes: true })) {
    if (!entry.isDirectory()) continue
    const path = join(root, entry.name)
    try {
      const lock = lockOf(path)
      if (lock !== null) folders.push(lockedFolder(path, lock))
    } catch {
      // This process cannot read the folder, but it may be able to read others.
    }
  }
  return folders
}

function lockedFolder(path: string, lock: DatabaseSync): SpoolFolder {
  return {
    path,
    release() {
      let isEmpty = true
      try {
        rmdirSync(path)
      } catch {
        // Files that could not be shipped stay for the next process.
        isEmpty = false
      }
      if (isEmpty) unlinkQuietly(path + LOCK_SUFFIX)
      lock.close()
    },
  }
}

/** Null if another process, or another owner in this one, holds the lock. */
function lockOf(path: string): DatabaseSync | null {
  const lock = new DatabaseSync(path + LOCK_SUFFIX, { timeout: 0 })
  try {
    // Without a journal file, because a killed process would leave it behind.
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
    // It is already gone, or this process may not remove it. An empty file is harmless.
  }
}
