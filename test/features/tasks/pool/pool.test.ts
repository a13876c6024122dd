/** The task pool with real workers that hang, die and run out of memory. */
import { once } from 'node:events'
import { BroadcastChannel, Worker } from 'node:worker_threads'
import t, { type Test } from 'tap'
import { type Clock, systemClock } from '../../../../src/base/clock.ts'
import { createMetrics } from '../../../../src/base/metrics/metrics.ts'
import { createPoolOf } from '../../../../src/features/tasks/pool/pool.ts'
import { TaskError, type TaskOutcome } from '../../../../src/features/tasks/task.ts'
import { FAULTY, FAULTY_ENTRY, SLOW_LOAD_CHANNEL } from '../../../support/faulty-tasks.ts'
import { awaited } from '../../../support/patience.ts'
import { TestClock } from '../../../support/test-clock.ts'

// Holds task workers at the point a test wants: they report that they have begun, and wait until they are
// released.

interface Gate {
  readonly memory: SharedArrayBuffer
  /** How many workers have come to it. */
  readonly arrived: number
  /** Resolves once so many have come. */
  arrival(count: number): Promise<void>
  open(): void
}

function createGate(): Gate {
  const memory = new SharedArrayBuffer(8)
  const flags = new Int32Array(memory)
  return {
    memory,
    get arrived() {
      return Atomics.load(flags, 0)
    },
    async arrival(count) {
      for (;;) {
        const arrived = Atomics.load(flags, 0)
        if (arrived >= count) return
        await Atomics.waitAsync(flags, 0, arrived).value
      }
    },
    open() {
      Atomics.store(flags, 1, 1)
      Atomics.notify(flags, 1)
    },
  }
}

/** Long enough for a worker to start on a busy machine. */
const AMPLE = { deadlineMs: 60_000 }

interface Setup {
  readonly clock?: Clock
  readonly threads?: number
  readonly maxWaitingTasks?: number
  readonly heapMb?: number
}

function startPool(t: Test, { clock = new TestClock(), threads = 1, ...rest }: Setup = {}) {
  const metrics = createMetrics()
  const pool = createPoolOf(FAULTY, FAULTY_ENTRY, { threads, clock, metrics, ...rest })
  t.teardown(() => pool.close())
  const counted = async (outcome: TaskOutcome) => {
    const { values } = await metrics.taskOutcomes.get()
    return values.reduce((sum, { labels, value }) => (labels.outcome === outcome ? sum + value : sum), 0)
  }
  return { pool, metrics, counted }
}

/** What became of it: `ok`, or how it failed. */
const outcomeOf = (task: Promise<unknown>): Promise<TaskOutcome> =>
  task.then(
    () => 'ok',
    (error: unknown) => {
      if (error instanceof TaskError) return error.outcome
      throw error
    },
  )

const turn = () => new Promise(resolve => setImmediate(resolve))

/** The workers that this process starts from here on. */
function startedWorkers(t: Test): readonly Worker[] {
  const started: Worker[] = []
  const onWorker = (worker: Worker): void => void started.push(worker)
  process.on('worker', onWorker)
  t.teardown(() => process.off('worker', onWorker))
  return started
}

t.test('a task returns its output, and what it refuses comes back with code and message', async t => {
  const { pool } = startPool(t)
  t.same(await pool.run('echo', { deep: [1, { two: null }] }, AMPLE), { deep: [1, { two: null }] })
  const refused = await pool.run('refuse', null, AMPLE).catch((error: unknown) => error)
  t.ok(refused instanceof TaskError)
  t.match(refused, { outcome: 'failed', failure: { code: 'refused', message: 'this is not served' } })
})

t.test('an error that a task did not mean to throw shows its class only', async t => {
  const { pool } = startPool(t)
  const error = await pool.run('bug', null, AMPLE).catch((thrown: unknown) => thrown)
  t.match(error, { outcome: 'failed', failure: { code: 'internal', message: 'the task failed: TypeError' } })
  t.notMatch(JSON.stringify(error), 'content of a client')
})

t.test('an input that cannot be copied fails, and the worker goes on', async t => {
  const { pool } = startPool(t)
  let nested: unknown = null
  for (let depth = 0; depth < 20_000; depth++) nested = [nested]
  for (const input of [() => 1, nested]) {
    const error = await pool.run('echo', input, AMPLE).catch((thrown: unknown) => thrown)
    t.match(error, { outcome: 'failed', failure: { code: 'uncopyable' } })
  }
  t.equal(await pool.run('echo', 'on', AMPLE), 'on')
})

t.test('of a burst, as many wait as may, the others are told at once, and each has one outcome', async t => {
  const { pool, metrics, counted } = startPool(t, { threads: 2, maxWaitingTasks: 50 })
  await Promise.all([pool.run('echo', 0, AMPLE), pool.run('echo', 0, AMPLE)])
  const gate = createGate()
  const held = [
    pool.run('gate', { memory: gate.memory }, AMPLE),
    pool.run('gate', { memory: gate.memory }, AMPLE),
  ]
  await gate.arrival(2)
  const outcomes = new Map<TaskOutcome, number>()
  let told = 0
  let mostWaiting = 0
  const burst = Array.from({ length: 1000 }, (_, n) => {
    const task = outcomeOf(pool.run('echo', n, AMPLE)).then(outcome => {
      told++
      outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1)
    })
    mostWaiting = Math.max(mostWaiting, pool.waitingTasks('evaluation'))
    return task
  })
  await turn()
  t.equal(mostWaiting, 50)
  t.equal(outcomes.get('overloaded'), told, 'while the workers are held, only refusals are told')
  t.equal(outcomes.get('overloaded'), 1000 - 50)
  t.equal((await metrics.taskQueueDepth.get()).values[0]?.value, 50)
  gate.open()
  await Promise.all([...held, ...burst])
  t.equal(told, 1000)
  t.same([...outcomes.keys()].toSorted(), ['ok', 'overloaded'])
  t.equal(await counted('ok'), 4 + 50)
  t.equal(await counted('overloaded'), 950)
  t.equal((await metrics.taskQueueDepth.get()).values[0]?.value, 0)
})

type Pool = ReturnType<typeof startPool>['pool']
const FAULTS: Readonly<Record<string, (pool: Pool) => Promise<unknown>>> = {
  'leaves the process': pool => pool.run('exit', 7, AMPLE),
  'throws outside of its task': pool => pool.run('outside', null, AMPLE),
  'runs out of memory': pool => pool.run('exhaust', null, AMPLE),
}
for (const [name, fault] of Object.entries(FAULTS)) {
  t.test(`a worker that ${name} takes its task along and no other`, async t => {
    const { pool, counted } = startPool(t, { heapMb: 24 })
    // More often than once: each death is the first for the worker that follows.
    for (let round = 0; round < 3; round++) {
      const faulty = outcomeOf(fault(pool))
      const others = [1, 2, 3, 4, 5, 6].map(n => pool.run('echo', n, AMPLE))
      t.equal(await faulty, 'crashed')
      t.same(await Promise.all(others), [1, 2, 3, 4, 5, 6], 'those behind it go on')
    }
    t.equal(await counted('crashed'), 3)
  })
}

t.test('the answer of a task is on its way before the next one begins', async t => {
  const { pool } = startPool(t)
  const gate = createGate()
  const outcomes = [
    pool.run('gate', { memory: gate.memory }, AMPLE),
    pool.run('echo', 1, AMPLE),
    pool.run('hang', {}, AMPLE),
  ]
  const told = Promise.all(outcomes.slice(0, 2))
  await gate.arrival(1)
  gate.open()
  t.same(await told, ['through', 1])
  const [, , hanging] = outcomes
  const cancelled = outcomeOf(hanging ?? Promise.resolve())
  await pool.close()
  t.equal(await cancelled, 'cancelled')
})

t.test('a worker that dies between two tasks is replaced unnoticed', async t => {
  const { pool } = startPool(t)
  t.equal(await pool.run('later', null, AMPLE), 'ended')
  for (let n = 0; n < 20; n++) t.equal(await pool.run('echo', n, AMPLE), n)
})

t.test('a task behind others that kill their workers is not taken along', async t => {
  const { pool } = startPool(t)
  await pool.run('echo', 0, AMPLE)
  const outcomes = [pool.run('exit', 1, AMPLE), pool.run('exit', 1, AMPLE), pool.run('echo', 1, AMPLE)]
  t.same(await Promise.all(outcomes.map(outcomeOf)), ['crashed', 'crashed', 'ok'])
  t.equal(await pool.run('echo', 2, AMPLE), 2)
})

t.test('a worker that hangs is ended at the deadline of its task, and the tasks behind it go on', async t => {
  const clock = new TestClock()
  const { pool } = startPool(t, { clock })
  await pool.run('echo', 0, AMPLE)
  const { memory, arrival } = createGate()
  const hanging = outcomeOf(pool.run('hang', { memory }, { deadlineMs: 250 }))
  await arrival(1)
  const behind = [1, 2, 3, 4, 5].map(n => pool.run('echo', n, AMPLE))
  clock.advance(250)
  t.equal(await hanging, 'timeout')
  clock.advance(25)
  t.same(await Promise.all(behind), [1, 2, 3, 4, 5])
})

t.test('while one worker hangs, the other does all that waits', async t => {
  const clock = new TestClock()
  const { pool } = startPool(t, { clock, threads: 2 })
  const { memory, arrival } = createGate()
  const gate = createGate()
  const hanging = outcomeOf(pool.run('hang', { memory }, { deadlineMs: 1_000 }))
  const held = pool.run('gate', { memory: gate.memory }, AMPLE)
  await Promise.all([arrival(1), gate.arrival(1)])
  const behind = [1, 2, 3, 4, 5, 6].map(n => pool.run('echo', n, AMPLE))
  gate.open()
  // The clock stands still: nobody has been given up.
  t.same(await Promise.all([held, ...behind]), ['through', 1, 2, 3, 4, 5, 6])
  clock.advance(1_025)
  t.equal(await hanging, 'timeout')
})

t.test('a task that is late, but ends, keeps its worker', async t => {
  const clock = new TestClock()
  const { pool } = startPool(t, { clock })
  const gate = createGate()
  const late = outcomeOf(pool.run('gate', { memory: gate.memory }, { deadlineMs: 250 }))
  await gate.arrival(1)
  clock.advance(250)
  t.equal(await late, 'timeout')
  gate.open()
  t.equal(await pool.run('echo', 1, AMPLE), 1)
  clock.advance(1_000)
  t.equal(await pool.run('echo', 2, AMPLE), 2)
})

t.test('waiting counts towards the deadline, and a task that is late before it began never runs', async t => {
  const clock = new TestClock()
  const { pool, counted } = startPool(t, { clock })
  const [first, second] = [createGate(), createGate()]
  const held = pool.run('gate', { memory: first.memory }, AMPLE)
  await first.arrival(1)
  second.open()
  const late = Array.from({ length: 8 }, () =>
    outcomeOf(pool.run('gate', { memory: second.memory }, { deadlineMs: 100 })),
  )
  t.equal(pool.waitingTasks('evaluation'), 8)
  clock.advance(100)
  t.same(new Set(await Promise.all(late)), new Set(['timeout']))
  t.equal(pool.waitingTasks('evaluation'), 0)
  first.open()
  t.equal(await held, 'through')
  await pool.run('echo', 1, AMPLE)
  t.equal(second.arrived, 0)
  t.equal(await counted('timeout'), 8)
})

t.test('workers that never start leave no task without an outcome', async t => {
  const clock = new TestClock()
  const entry = new URL('./there-is-no-such-file.ts', import.meta.url)
  const pool = createPoolOf(FAULTY, entry, { threads: 2, clock, metrics: createMetrics() })
  t.teardown(() => pool.close())
  for (let round = 0; round < 2; round++) {
    const tasks = Array.from({ length: 20 }, () => outcomeOf(pool.run('echo', 1, { deadlineMs: 900 })))
    await turn()
    clock.advance(900)
    for (const outcome of await Promise.all(tasks)) t.match(outcome, /^(timeout|crashed)$/)
  }
})

t.test('a worker that does not become ready is replaced', async t => {
  const workers = startedWorkers(t)
  const clock = new TestClock()
  const entry = new URL('./stuck-worker.ts', import.meta.url)
  const pool = createPoolOf(FAULTY, entry, { threads: 1, clock, metrics: createMetrics() })
  t.teardown(() => pool.close())
  const task = outcomeOf(pool.run('echo', 1, { deadlineMs: 900 }))
  await turn()
  const [stuck] = workers
  if (stuck === undefined) throw new Error('no worker was started')
  clock.advance(900)
  t.equal(await task, 'timeout')
  clock.advance(58_000)
  t.not(stuck.threadId, -1, 'it has a minute, in two halves for machines that were paused')
  const ended = once(stuck, 'exit')
  clock.advance(1_100)
  await ended
  await turn()
  t.equal(workers.length, 2)
})

t.test('a worker that loads code is not ended before it has loaded', async t => {
  const workers = startedWorkers(t)
  const clock = new TestClock()
  const { pool } = startPool(t, { clock })
  const channel = new BroadcastChannel(SLOW_LOAD_CHANNEL)
  t.teardown(() => channel.close())
  const loading = new Promise(resolve => {
    channel.onmessage = resolve
  })
  const control = new AbortController()
  // Workers that start with a task load its code before they are ready; this one loads it with its job.
  await pool.run('bulk-echo', null, AMPLE)
  const task = outcomeOf(pool.run('bulk-slow-load', null, { ...AMPLE, signal: control.signal }))
  await awaited('the worker that loads', loading)
  const before = workers.map(worker => worker.threadId)
  control.abort()
  t.equal(await task, 'cancelled')
  clock.advance(1_000)
  await turn()
  t.same(
    workers.map(worker => worker.threadId),
    before,
    'all workers live',
  )
  const ended = Promise.race(workers.map(worker => once(worker, 'exit')))
  channel.postMessage('go on')
  await awaited('the end of the worker', ended)
})

t.test(
  'all workers that start with a task load its code, so the job of another key waits for none',
  async t => {
    const { pool } = startPool(t)
    const channel = new BroadcastChannel(SLOW_LOAD_CHANNEL)
    t.teardown(() => channel.close())
    const both = Promise.withResolvers<void>()
    let loading = 0
    channel.onmessage = () => {
      if (++loading === 2) both.resolve()
    }
    const task = pool.run('bulk-slow-load', null, AMPLE)
    await awaited('both workers that load', both.promise)
    channel.postMessage('go on')
    t.equal(await task, 'loaded')
  },
)

t.test('a caller that gives up is told at once, whatever its task does', async t => {
  const clock = new TestClock()
  const { pool } = startPool(t, { clock })
  t.equal(await outcomeOf(pool.run('echo', 1, { ...AMPLE, signal: AbortSignal.abort() })), 'cancelled')

  const gate = createGate()
  const control = new AbortController()
  const { signal } = control
  const begun = outcomeOf(pool.run('gate', { memory: gate.memory }, { ...AMPLE, signal }))
  await gate.arrival(1)
  const passed = createGate()
  passed.open()
  const untouched = Array.from({ length: 6 }, () =>
    outcomeOf(pool.run('gate', { memory: passed.memory }, { ...AMPLE, signal })),
  )
  control.abort()
  t.same(new Set(await Promise.all([begun, ...untouched])), new Set(['cancelled']))
  gate.open()
  t.equal(await pool.run('echo', 2, AMPLE), 2)
  t.equal(passed.arrived, 0, 'tasks that had not begun never do')
})

t.test('a short task that was cancelled and hangs is ended at its deadline', async t => {
  const clock = new TestClock()
  const { pool } = startPool(t, { clock })
  const { memory, arrival } = createGate()
  const control = new AbortController()
  const hanging = outcomeOf(pool.run('hang', { memory }, { deadlineMs: 250, signal: control.signal }))
  await arrival(1)
  control.abort()
  t.equal(await hanging, 'cancelled')
  const behind = pool.run('echo', 1, AMPLE)
  clock.advance(275)
  t.equal(await awaited('the task behind the one that hangs', behind), 1)
})

t.test('a long task that was cancelled frees its worker without waiting for its deadline', async t => {
  const clock = new TestClock()
  const { pool } = startPool(t, { clock })
  const { memory, arrival } = createGate()
  const control = new AbortController()
  const hanging = outcomeOf(pool.run('bulk-hang', { memory }, { ...AMPLE, signal: control.signal }))
  await arrival(1)
  const behind = pool.run('bulk-echo', 1, AMPLE)
  control.abort()
  t.equal(await hanging, 'cancelled')
  clock.advance(25)
  t.equal(await behind, 1)
})

t.test('closing cancels what runs and waits, and leaves no worker behind', async t => {
  const workers = startedWorkers(t)
  const { pool } = startPool(t, { threads: 2 })
  const { memory, arrival } = createGate()
  const hanging = [1, 2].map(() => outcomeOf(pool.run('hang', { memory }, AMPLE)))
  const bulk = outcomeOf(pool.run('bulk-hang', { memory }, AMPLE))
  await arrival(3)
  const waiting = Array.from({ length: 20 }, () => outcomeOf(pool.run('echo', 1, AMPLE)))
  await pool.close()
  t.same(new Set(await Promise.all([...hanging, bulk, ...waiting])), new Set(['cancelled']))
  t.equal(await outcomeOf(pool.run('echo', 1, AMPLE)), 'cancelled', 'and takes nothing more')
  t.ok(workers.length >= 3)
  t.ok(workers.every(({ threadId }) => threadId === -1))
})

t.test('closing waits until workers have loaded their code, before it ends them', async t => {
  const loaded = new Set<Worker>()
  const early: Worker[] = []
  const onWorker = (worker: Worker): void => {
    worker.once('message', () => loaded.add(worker))
    worker.once('exit', () => loaded.has(worker) || early.push(worker))
  }
  process.on('worker', onWorker)
  t.teardown(() => process.off('worker', onWorker))
  const { pool } = startPool(t, { threads: 4 })
  const first = outcomeOf(pool.run('echo', 1, AMPLE))
  await pool.close()
  t.match(await first, /ok|cancelled/)
  t.ok(loaded.size >= 4)
  t.same(early.length, 0)
})

t.test('closing with grace lets tasks finish, and no longer than that', async t => {
  const clock = new TestClock()
  const { pool } = startPool(t, { clock })
  const gate = createGate()
  const running = [
    outcomeOf(pool.run('gate', { memory: gate.memory }, AMPLE)),
    outcomeOf(pool.run('echo', 1, AMPLE)),
  ]
  await gate.arrival(1)
  const closed = pool.close(5_000)
  gate.open()
  t.same(await Promise.all(running), ['ok', 'ok'])
  await closed

  const other = startPool(t, { clock }).pool
  const { memory, arrival } = createGate()
  const hanging = outcomeOf(other.run('hang', { memory }, AMPLE))
  await arrival(1)
  const late = other.close(5_000)
  clock.advance(5_000)
  await late
  t.equal(await hanging, 'cancelled')
})

t.test('bulk work that fills its pool does not hold evaluation up', async t => {
  const { pool } = startPool(t)
  const { memory, arrival } = createGate()
  const own = { ...AMPLE, key: 'one' }
  const bulk = Array.from({ length: 17 }, () => outcomeOf(pool.run('bulk-hang', { memory }, own)))
  await arrival(1)
  // The second worker makes room for one more as long as it is starting.
  for (;;) {
    const one = outcomeOf(pool.run('bulk-hang', { memory }, own))
    if ((await Promise.race([one, turn().then(() => 'waits')])) !== 'waits') break
    bulk.push(one)
  }
  t.ok(bulk.length <= 18, `${bulk.length} run or wait`)
  t.equal(await outcomeOf(pool.run('bulk-echo', 1, own)), 'overloaded')
  t.equal(await pool.run('bulk-echo', 1, { ...AMPLE, key: 'another' }), 1, 'the other worker is for others')
  for (let n = 0; n < 50; n++) t.equal(await pool.run('echo', n, AMPLE), n)
  await pool.close()
  t.same(new Set(await Promise.all(bulk)), new Set(['cancelled']))
})

t.test(
  'the loop of the pool turns while all workers hang, and all are back after their deadline',
  async t => {
    const clock = new TestClock()
    const { pool } = startPool(t, { threads: 2, clock })
    await Promise.all([pool.run('echo', 0, AMPLE), pool.run('echo', 0, AMPLE)])
    const { memory, arrival } = createGate()
    const hanging = Array.from({ length: 8 }, () =>
      outcomeOf(pool.run('hang', { memory }, { deadlineMs: 300 })),
    )
    const settled = Promise.all(hanging)
    let isSettled = false
    void settled.then(() => {
      isSettled = true
    })
    await arrival(2)
    for (let turns = 0; turns < 21; turns++) await turn()
    t.notOk(isSettled, 'all hang until their deadline')
    clock.advance(325)
    t.same(new Set(await settled), new Set(['timeout']))
    t.equal(await pool.run('echo', 1, AMPLE), 1)
  },
)

t.test('workers are not given the environment', async t => {
  // Whoever watches this test may put something of its own there.
  process.env['SECRET_OF_THE_POOL_TEST'] = 'canary'
  t.teardown(() => delete process.env['SECRET_OF_THE_POOL_TEST'])
  const { pool } = startPool(t)
  const names = await pool.run('environment', null, AMPLE)
  t.notOk(names.includes('SECRET_OF_THE_POOL_TEST') || names.includes('PATH'))
})

t.test('small work is done where it is asked for, other work by a worker', async t => {
  const { pool } = startPool(t)
  const input = { same: true }
  t.equal(await pool.runInlineOr('echo', input, 'small', AMPLE), input)
  const copy = await pool.runInlineOr('echo', input, 'large', AMPLE)
  t.not(copy, input)
  t.same(copy, input)
  const refused = await pool.runInlineOr('refuse', null, 'small', AMPLE).catch((error: unknown) => error)
  t.match(refused, { outcome: 'failed', failure: { code: 'refused' } })
})

t.test('no worker is started before the first task', async t => {
  const workers = startedWorkers(t)
  const { pool } = startPool(t, { threads: 4 })
  t.equal(await pool.runInlineOr('echo', 1, 'small', AMPLE), 1)
  t.equal(workers.length, 0, 'nor for small work')
  t.equal(await pool.run('echo', 1, AMPLE), 1)
  t.ok(workers.length > 0)
})

t.test('the pool works in a worker thread', async t => {
  const thread = new Worker(new URL('./task-thread.ts', import.meta.url))
  const { promise: ended, resolve } = Promise.withResolvers<number>()
  thread.once('exit', resolve)
  const [said] = await new Promise<unknown[]>((resolve, reject) => {
    thread.once('message', (...message) => resolve(message))
    thread.once('error', reject)
  })
  t.same(said, { failed: "the task's worker died", echoed: 'nested' })
  t.equal(await ended, 0, 'and lets it end')
})

t.test('each outcome is counted, with how long it waited and ran', async t => {
  const { pool, metrics, counted } = startPool(t, { clock: systemClock })
  await pool.run('busy', { ms: 20 }, AMPLE)
  await pool.run('refuse', null, AMPLE).catch(() => undefined)
  t.equal(await counted('ok'), 1)
  t.equal(await counted('failed'), 1)
  const sum = async (metric: typeof metrics.taskRun | typeof metrics.taskWait, end: string) =>
    (await metric.get()).values.find(({ metricName }) => metricName?.endsWith(end))?.value ?? 0
  t.ok((await sum(metrics.taskRun, '_sum')) >= 0.02)
  t.equal(await sum(metrics.taskWait, '_count'), 2)
})
