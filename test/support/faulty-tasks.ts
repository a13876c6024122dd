/** Tasks that misbehave in every way that a worker can: the task table and the worker entry for the pool's tests. */
import { BroadcastChannel, workerData } from 'node:worker_threads'
import { createRunner } from '../../src/features/tasks/pool/runner.ts'
import { type Task, TaskFailure, type TaskFunction, type WorkerSetup } from '../../src/features/tasks/task.ts'

const task = <Input, Output>(run: TaskFunction<Input, Output>): Task<Input, Output> => ({
  pool: 'evaluation',
  load: async () => run,
})
const bulkTask = <Input, Output>(run: TaskFunction<Input, Output>): Task<Input, Output> => ({
  pool: 'bulk',
  load: async () => run,
})

/** Says that it was reached, then waits until it is let go; both by shared memory. */
function gate({ memory }: { memory: SharedArrayBuffer }): string {
  const flags = new Int32Array(memory)
  Atomics.add(flags, 0, 1)
  Atomics.notify(flags, 0)
  Atomics.wait(flags, 1, 0)
  return 'through'
}

function hang({ memory }: { memory?: SharedArrayBuffer }): never {
  if (memory !== undefined) {
    Atomics.add(new Int32Array(memory), 0, 1)
    Atomics.notify(new Int32Array(memory), 0)
  }
  for (;;);
}

function exhaust(_: null): number {
  const kept: unknown[] = []
  for (;;) kept.push(Array.from({ length: 10_000 }, (_, n) => ({ n })))
}

function bug(): never {
  const text = 'content of a client'
  throw new TypeError(`cannot read ${text}`)
}

/** Its code loads until the channel of this name says so; the worker reports there that it has come to it. */
export const SLOW_LOAD_CHANNEL = 'slow-load'

async function slowLoad(): Promise<TaskFunction<null, string>> {
  const channel = new BroadcastChannel(SLOW_LOAD_CHANNEL)
  const loaded = new Promise<void>(resolve => {
    channel.onmessage = () => resolve()
  })
  channel.postMessage('loading')
  await loaded
  channel.close()
  return () => 'loaded'
}

export const FAULTY = {
  echo: task((input: unknown) => input),
  busy: task(({ ms }: { ms: number }) => {
    const untilMs = performance.now() + ms
    while (performance.now() < untilMs);
    return ms
  }),
  gate: task(gate),
  hang: task(hang),
  exhaust: task(exhaust),
  exit: task((code: number) => process.exit(code)),
  refuse: task((_: null): never => {
    throw new TaskFailure('refused', 'this is not served')
  }),
  bug: task((_: null) => bug()),
  // Thrown outside of the task, after it has begun and before it ends.
  outside: task((_: null) => {
    setImmediate(() => {
      throw new Error('outside')
    })
    return new Promise<never>(() => undefined)
  }),
  // And after it has ended.
  later: task((_: null) => {
    queueMicrotask(() => setImmediate(bug))
    return 'ended'
  }),
  environment: task((_: null) => Object.keys(process.env)),
  load: bulkTask(gate),
  'bulk-hang': bulkTask(hang),
  'bulk-echo': bulkTask((input: unknown) => input),
  'bulk-slow-load': { pool: 'bulk', load: slowLoad } satisfies Task<null, string>,
}

export const FAULTY_ENTRY = new URL(import.meta.url)
// Other threads import the table only.
const setup = workerData as Partial<WorkerSetup> | null
export const run = setup?.pool === undefined ? null : createRunner(FAULTY, workerData as WorkerSetup)
