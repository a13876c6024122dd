/**
 * A serve thread that makes a reservation and then ends silently, as if killed. Used as `SupervisorOptions.entries`.
 */
import { parentPort } from 'node:worker_threads'
import type { FromThread, ToThread } from '../../src/process/threads/messages.ts'

const send = (message: FromThread): void => parentPort?.postMessage(message)

parentPort?.on('message', (message: ToThread) => {
  if (message.type === 'answers') process.exit(1)
  if (message.type === 'drain') process.exit(0)
})
const entry = { id: 'requests/k/1', amount: 1, ceiling: 10, origin: null, endsMs: 60_000 }
send({ type: 'started' })
send({
  type: 'calls',
  channel: 'counters',
  calls: [{ number: 1, question: { kind: 'take', entries: [entry] } }],
})
