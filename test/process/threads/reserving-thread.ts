/**
 * A serve thread that makes a reservation and then ends silently, as if killed. Used as `SupervisorOptions.entries`.
 */
import { parentPort } from 'node:worker_threads'
import { systemClock } from '../../../src/base/clock.ts'
import { type LinkMessage, ThreadLink } from '../../../src/base/thread-rpc.ts'
import type { MainApi } from '../../../src/process/threads/thread-apis.ts'

const link = new ThreadLink<MainApi>(systemClock, message => parentPort?.postMessage(message))
link.serve({ work: { drain: () => process.exit(0) } })
parentPort?.on('message', (message: LinkMessage) => {
  if (message.answers.length > 0) process.exit(1)
  link.receive(message)
})
const entry = { id: 'requests/k/1', amount: 1, ceiling: 10, origin: null, endsMs: 60_000 }
link.service('supervisor').send('started', [])
void link.service('counters').ask('reserve', [1, [entry]], null)
