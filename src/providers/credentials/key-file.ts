/** Files with secret keys: checks who can read and replace them. */
import { closeSync, fsyncSync, openSync, statSync } from 'node:fs'
import { dirname } from 'node:path'

const OTHERS_MODE_BITS = 0o077
const OTHERS_WRITE_BIT = 0o002
/** Sticky bit: other users cannot remove or rename files they do not own, as in /tmp. */
const STICKY_BIT = 0o1000

/**
 * The message for an operator if users other than the owner can read or replace the keys; null: they cannot. A missing
 * file or folder is not an error.
 */
export function modeFault(path: string): string | null {
  const file = modeOf(path)
  if ((file & OTHERS_MODE_BITS) !== 0) {
    return `${path}: users other than its owner can read it (mode ${modeText(file)}): run chmod 600 ${path}`
  }
  const folder = modeOf(dirname(path))
  if ((folder & OTHERS_WRITE_BIT) !== 0 && (folder & STICKY_BIT) === 0) {
    return `${path}: anyone can replace it, because its folder has mode ${modeText(folder)}: run chmod o-w ${dirname(path)}`
  }
  return null
}

function modeOf(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.mode ?? 0
}

function modeText(mode: number): string {
  return (mode & 0o7777).toString(8).padStart(4, '0')
}

/** Syncs the entry of a new file in its folder, so that the file survives a power cut. */
export function syncFolder(path: string): void {
  const folder = openSync(path, 'r')
  try {
    fsyncSync(folder)
  } finally {
    closeSync(folder)
  }
}
