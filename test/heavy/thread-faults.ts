/**
 * Loaded into a gateway before its own code (`--import`): makes a serve thread fail on demand. The product has no such
 * hook. Commands are files in the working directory: `thread-fails` makes one thread throw an uncaught exception; while
 * `thread-hangs` exists, its event loop is blocked.
 */
import { existsSync, unlinkSync } from 'node:fs'
import { isMainThread, workerData } from 'node:worker_threads'

if (!isMainThread && String((workerData as { thread?: string } | null)?.thread).startsWith('serve-')) {
  const still = new Int32Array(new SharedArrayBuffer(4))
  setInterval(() => {
    while (existsSync('thread-hangs')) Atomics.wait(still, 0, 0, 50)
    if (!existsSync('thread-fails')) return
    unlinkSync('thread-fails')
    throw new Error('told to fail')
  }, 20).unref()
}
