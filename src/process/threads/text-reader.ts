/** Extracts the text of new files in the task pool, so that search can find it. */
import type { ReadText } from '../../features/files/files.ts'
import type { GatewayTasks } from '../../features/tasks/pool/pool.ts'

/** A worker needs about a quarter of this for the largest text. */
const TASK_DEADLINE_MS = 20_000
/** Both together are less than the time limit of a server-tool call. */
const TASK_WAIT_MS = 15_000
/** Files of one API key that wait for each other: the pool runs one task of a key at a time, and queues few. */
const MAX_WAITING_FILES = 64

/** Creates a text reader. A file that cannot be read, or not now, is kept, but search does not find it. */
export function createTextReader(tasks: Pick<GatewayTasks, 'run'>, storageUrl: string): ReadText {
  const queues = new Map<string, { waiting: number; last: Promise<unknown> }>()
  return async (fileId, source, keyHash) => {
    const queue = queues.get(keyHash) ?? { waiting: 0, last: Promise.resolve() }
    if (queue.waiting >= MAX_WAITING_FILES) return 'unreadable'
    queues.set(keyHash, queue)
    queue.waiting++
    const options = { deadlineMs: TASK_DEADLINE_MS, waitMs: TASK_WAIT_MS, key: keyHash }
    const reading = queue.last.then(() =>
      tasks.run('index-file', { storageUrl, fileId, source }, options).catch(() => 'unreadable' as const),
    )
    queue.last = reading
    try {
      return await reading
    } finally {
      queue.waiting--
      if (queue.waiting === 0) queues.delete(keyHash)
    }
  }
}
