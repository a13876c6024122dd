/**
 * Gives the engine's helper threads (garbage collection, compilation) less of a core than event loops get. Where a
 * process may use fewer cores than the machine has, as in most containers, several of them else push a serve thread
 * aside for tens of milliseconds at once. Main thread, before any other thread of ours is started.
 */
import { readdirSync, readFileSync } from 'node:fs'
import { constants, setPriority } from 'node:os'

/**
 * Lowers the threads that run now, but for the calling one; those started later are as usual. Where threads have no
 * priority of their own, nothing happens.
 *
 * Ten steps: a tenth of an event loop's share. At the lowest priority a helper that holds a piece of a collection
 * could be kept from finishing it by other processes, and the loop waits for it.
 */
export function lowerHelpers(): void {
  if (process.platform !== 'linux') return
  for (const id of threadIds()) {
    if (id === process.pid) continue
    try {
      // Names are looked up and files are read on these, and requests wait for both.
      if (readFileSync(`/proc/self/task/${id}/comm`, 'utf8').startsWith('libuv')) continue
      setPriority(id, constants.priority.PRIORITY_BELOW_NORMAL)
    } catch {
      // It has ended, or may not be changed: it runs as before.
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
