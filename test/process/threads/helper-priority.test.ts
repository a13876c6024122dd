import { readdirSync, readFileSync } from 'node:fs'
import { Worker } from 'node:worker_threads'
import t from 'tap'
import { lowerHelpers } from '../../../src/process/wiring/operating-system.ts'

/** Thread id to nice value, as the kernel tells it. */
function niceness(): Map<number, number> {
  return new Map(
    readdirSync('/proc/self/task').map(id => {
      // What follows the name, which may hold anything, begins with the third field; nice is the nineteenth.
      const fields = readFileSync(`/proc/self/task/${id}/stat`, 'utf8').split(') ').at(-1)?.split(' ') ?? []
      return [Number(id), Number(fields[16])]
    }),
  )
}

function isLookup(id: number): boolean {
  return readFileSync(`/proc/self/task/${id}/comm`, 'utf8').startsWith('libuv')
}

const skip = process.platform === 'linux' ? false : 'threads have no priority of their own here'

t.test('helpers that run are lowered, the main thread and what starts later is not', { skip }, async t => {
  const before = niceness()
  lowerHelpers()
  const worker = new Worker('require("node:worker_threads").parentPort.once("message", () => {})', {
    eval: true,
  })
  t.teardown(() => worker.terminate())
  await new Promise(resolve => worker.once('online', resolve))
  const after = niceness()
  t.equal(after.get(process.pid), before.get(process.pid))
  const helpers = [...before.keys()].filter(id => id !== process.pid && after.has(id) && !isLookup(id))
  t.ok(helpers.length > 0, 'the engine has helpers')
  // Whoever started this process may have lowered all of it, and further than we do.
  const own = before.get(process.pid) ?? 0
  for (const id of helpers) t.ok(after.get(id) === 10 || (own > 10 && after.get(id) === own))
  const started = [...after.keys()].filter(id => !before.has(id))
  t.ok(started.length > 0)
  for (const id of started) t.equal(after.get(id), own, 'a thread of ours')
})
