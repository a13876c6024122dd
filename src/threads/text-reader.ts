/** Reads the text of new files in the task pool, so that search finds it. */
import type { ReadText } from '../files/files.ts'
import type { GatewayTasks } from '../tasks/pool.ts'

/** A worker takes the largest text in about a quarter of it. */
const DEADLINE_MS = 20_000
/** Other files of the same key wait as well. */
const WAIT_MS = 60_000

/** What cannot be read, or not now, is kept as a file that search does not find. */
export function createTextReader(tasks: Pick<GatewayTasks, 'run'>, storageUrl: string): ReadText {
  return async (fileId, source, keyHash) => {
    const options = { deadlineMs: DEADLINE_MS, waitMs: WAIT_MS, key: keyHash }
    return await tasks
      .run('index-file', { storageUrl, fileId, source }, options)
      .catch(() => 'unreadable' as const)
  }
}
