/** Process limits and priorities set by the operating system. */
import { readdirSync, readFileSync } from 'node:fs'
import { constants, setPriority } from 'node:os'

/** Each connection may need a second descriptor, for a provider; a tenth is left for files and everything else. */
const CONNECTION_SHARE = 0.45

/** Maximum number of open files of this process; null if the system does not report it. */
export function descriptorLimit(path = '/proc/self/limits'): number | null {
  let text: string
  try {
    text = readFileSync(path, 'utf8')
  } catch {
    return null
  }
  const limit = Number(/^Max open files\s+(\d+)/m.exec(text)?.[1])
  return Number.isNaN(limit) ? null : limit
}

/**
 * The configured number of connections, or fewer if the process has too few descriptors. At the limit of descriptors
 * each `accept` fails at once and is retried, which occupies a whole core; refusing a connection costs nothing.
 */
export function connectionCap(configured: number, limit: number | null): number {
  return limit === null ? configured : Math.max(1, Math.min(configured, Math.floor(limit * CONNECTION_SHARE)))
}

/**
 * Lowers the priority of the engine's helper threads (garbage collection, compilation). In a container with fewer cores
 * than the machine, they would otherwise occupy a serve thread's core for tens of milliseconds at a time. Main thread;
 * call it before other threads start, because it changes every running thread except the caller. Linux only.
 *
 * Ten steps leave helpers a tenth of an event loop's share. At the lowest priority, other processes could keep a helper
 * from finishing its part of a collection, for which the event loop waits.
 */
export function lowerHelpers(): void {
  if (process.platform !== 'linux') return
  for (const id of threadIds()) {
    if (id === process.pid) continue
    try {
      // These threads resolve names and read files, and requests wait for both.
      if (readFileSync(`/proc/self/task/${id}/comm`, 'utf8').startsWith('libuv')) continue
      setPriority(id, constants.priority.PRIORITY_BELOW_NORMAL)
    } catch {
      // The thread has ended, or its priority cannot be changed.
    }
  }
}

function threadIds(): number[] {
  try {
    return readdirSync('/proc/self/task').map(Number)
  } catch {
    return []
  }
}
