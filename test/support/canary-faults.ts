/**
 * Loaded into a gateway before its own code (`--import`): makes it fail internally, on demand, with errors that contain
 * every secret. The product has no such hook. Commands are files in the working directory: while `store-fails` exists,
 * every database statement throws; `thread-fails` makes one serve thread throw an uncaught exception.
 */
import { existsSync, unlinkSync } from 'node:fs'
import { StatementSync } from 'node:sqlite'
import { isMainThread, workerData } from 'node:worker_threads'

const secrets = process.env['CANARIES'] ?? ''

function talkative(): Error {
  // A second line in the form of a stack frame, so that whoever keeps only those keeps it.
  const error = new Error(`${secrets}\n    at ${secrets} (file:///x.ts:1:1)`, { cause: new Error(secrets) })
  return Object.assign(error, { detail: secrets, parameters: [secrets] })
}

for (const name of ['run', 'all', 'get', 'iterate'] as const) {
  const proper = StatementSync.prototype[name] as (...values: unknown[]) => unknown
  Reflect.set(StatementSync.prototype, name, function (this: StatementSync, ...values: unknown[]) {
    if (existsSync('store-fails')) throw talkative()
    return proper.apply(this, values)
  })
}

if (!isMainThread && String((workerData as { thread?: string } | null)?.thread).startsWith('serve-')) {
  setInterval(() => {
    if (!existsSync('thread-fails')) return
    unlinkSync('thread-fails')
    throw talkative()
  }, 20).unref()
}
