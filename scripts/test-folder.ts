/**
 * A folder in memory for files that tests write, if the system has room for it, so that a database commit does not wait
 * for a disk. No test cuts the power, so none needs files that survive it.
 */
import { chmodSync, mkdtempSync, rmSync, statfsSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

const MEMORY = '/dev/shm'
/** A container has 64 MiB of it by default, which is not enough. */
const ROOM_BYTES = 2 * 1024 ** 3

/** A new folder that everybody may use, as the system's own one; the process removes it at its end. */
export function testFolder(): string {
  const folder = mkdtempSync(join(hasRoom() ? MEMORY : tmpdir(), 'sluice-tests-'))
  chmodSync(folder, 0o1777)
  process.once('exit', () => rmSync(folder, { recursive: true, force: true, maxRetries: 20 }))
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(1))
  return folder
}

function hasRoom(): boolean {
  try {
    const { bavail, bsize } = statfsSync(MEMORY)
    return bavail * bsize >= ROOM_BYTES
  } catch {
    return false
  }
}
