/**
 * Watches the free space of the data folder, for readiness. With a full disk, requests are still served, but nothing
 * can be stored. Main thread.
 */
import { statfs } from 'node:fs/promises'
import type { Clock, Timer } from '../../base/clock.ts'
import type { ProcessLog } from '../../base/log/log.ts'

export interface DiskWatch {
  /** True if there is hardly any space left. */
  readonly isFull: boolean
  close(): void
}

interface DiskWatchOptions {
  /** Folder in which usage records are spooled. */
  readonly folder: string
  readonly clock: Clock
  readonly log: Pick<ProcessLog, 'notice' | 'error'>
  /** Default: reads it from the file system. */
  readonly freeBytes?: (folder: string) => Promise<number>
}

const CHECK_INTERVAL_MS = 2_000
/** Less than a change of the database and its log may need. */
const MIN_FREE_BYTES = 256 * 1024

async function freeBytesOf(folder: string): Promise<number> {
  const { bavail, bsize } = await statfs(folder)
  return bavail * bsize
}

export function watchDisk({ folder, clock, log, freeBytes = freeBytesOf }: DiskWatchOptions): DiskWatch {
  let isFull = false
  let closed = false
  let timer: Timer = clock.after(0, check)

  function check(): void {
    void freeBytes(folder).then(
      free => note(free < MIN_FREE_BYTES),
      // If the folder no longer exists, writing to it fails and is reported.
      () => note(false),
    )
  }

  function note(isFullNow: boolean): void {
    if (closed) return
    if (isFullNow && !isFull) log.error('disk', 'the disk is full', { folder })
    if (!isFullNow && isFull) log.notice('disk', 'the disk has free space again')
    isFull = isFullNow
    timer = clock.after(CHECK_INTERVAL_MS, check)
  }

  return {
    get isFull() {
      return isFull
    },
    close() {
      closed = true
      timer.cancel()
    },
  }
}
