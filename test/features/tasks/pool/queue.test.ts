/** The queue of a pool with scripted workers: cases that real workers reach only by a race. */
import t, { type Test } from 'tap'
import { createMetrics } from '../../../../src/base/metrics/metrics.ts'
import { type JobTerms, TaskQueue, type TaskQueueOptions } from '../../../../src/features/tasks/pool/queue.ts'
import type { WorkerSlot } from '../../../../src/features/tasks/pool/worker-set.ts'
import { TaskError, type TaskReply } from '../../../../src/features/tasks/task.ts'
import { TestClock } from '../../../support/test-clock.ts'

/** A worker that answers, or dies, when the test says so. */
class ScriptedSlot implements WorkerSlot {
  state: WorkerSlot['state'] = 'ready'
  hasStarted = false
  readonly posted: string[] = []
  #reply: PromiseWithResolvers<TaskReply> | null = null

  post(task: string): Promise<TaskReply> {
    this.posted.push(task)
    this.#reply = Promise.withResolvers()
    return this.#reply.promise
  }

  done(output: unknown, cpuMs = 1): void {
    this.#reply?.resolve({ kind: 'done', output, ranMs: 1, cpuMs })
  }

  die(begun: boolean): void {
    this.hasStarted = begun
    this.state = 'dead'
    this.#reply?.reject(new Error('the worker died'))
  }

  end(): void {
    this.die(true)
  }
}

const USUAL: JobTerms = { key: '', waitMs: 1_000, runMs: 1_000, long: false, signal: undefined }

function startQueue(t: Test, slots: Set<ScriptedSlot>, options: Partial<TaskQueueOptions> = {}) {
  let ready: () => void = () => undefined
  const expected = new Set<string>()
  const queue = new TaskQueue(
    {
      pool: 'evaluation',
      clock: new TestClock(),
      metrics: createMetrics(),
      maxWaitingJobs: 10,
      waitingPerKey: 10,
      runningPerKey: 10,
      endCancelled: false,
      ...options,
    },
    onReady => {
      ready = onReady
      return {
        slots: () => slots,
        expect: task => void expected.add(task),
        keepAlive: () => undefined,
        close: async () => undefined,
      }
    },
  )
  t.teardown(() => queue.close(0))
  const replace = (dead: ScriptedSlot): ScriptedSlot => {
    const slot = new ScriptedSlot()
    slots.delete(dead)
    slots.add(slot)
    ready()
    return slot
  }
  const run = (task: string, terms: Partial<JobTerms> = {}) =>
    queue.run(task, null, { ...USUAL, ...terms }).catch((error: unknown) => {
      if (error instanceof TaskError) return error.outcome
      throw error
    })
  return { queue, run, replace, expected, ready: () => ready() }
}

const turn = () => new Promise(resolve => setImmediate(resolve))

t.test('a job whose worker died before it began is tried once more, before all others', async t => {
  const first = new ScriptedSlot()
  const { run, replace } = startQueue(t, new Set([first]))
  const outcomes = [run('a'), run('b')]
  first.die(false)
  await turn()
  const second = replace(first)
  t.same(second.posted, ['a'])
  second.done('answer of a')
  await turn()
  t.same(second.posted, ['a', 'b'])
  second.done('answer of b')
  t.same(await Promise.all(outcomes), ['answer of a', 'answer of b'])
})

t.test('a job that lost two workers before it began is not tried a third time', async t => {
  const first = new ScriptedSlot()
  const { run, replace } = startQueue(t, new Set([first]))
  const outcome = run('a')
  first.die(false)
  await turn()
  replace(first).die(false)
  t.equal(await outcome, 'crashed')
})

t.test('a job that had begun when its worker died is not tried again', async t => {
  const first = new ScriptedSlot()
  const { run, replace } = startQueue(t, new Set([first]))
  const outcome = run('a')
  first.die(true)
  t.equal(await outcome, 'crashed')
  t.same(replace(first).posted, [])
})

t.test('a worker that is starting is given no job, but makes room for one more to wait', async t => {
  const slot = new ScriptedSlot()
  slot.state = 'starting'
  const { queue, run, ready } = startQueue(t, new Set([slot]), { maxWaitingJobs: 2 })
  const outcomes = ['a', 'b', 'c'].map(task => run(task))
  t.equal(await run('d'), 'overloaded')
  t.same(slot.posted, [])
  t.equal(queue.waitingJobs, 3)
  slot.state = 'ready'
  ready()
  t.same(slot.posted, ['a'])
  t.equal(queue.waitingJobs, 2)
  await queue.close(0)
  t.same(await Promise.all(outcomes), ['cancelled', 'cancelled', 'cancelled'])
})

/** Lets the worker end its job, and waits until it has the next one. */
async function next(slot: ScriptedSlot): Promise<void> {
  slot.done(null)
  await turn()
}

t.test('keys take turns, and the jobs of one key keep their order', async t => {
  const slot = new ScriptedSlot()
  const { run } = startQueue(t, new Set([slot]))
  const flood = ['a1', 'a2', 'a3', 'a4'].map(task => run(task, { key: 'a' }))
  const others = [run('b1', { key: 'b' }), run('c1', { key: 'c' }), run('b2', { key: 'b' })]
  for (let job = 0; job < 7; job++) await next(slot)
  t.same(slot.posted, ['a1', 'a2', 'b1', 'c1', 'a3', 'b2', 'a4'])
  await Promise.all([...flood, ...others])
})

t.test('a key that fills its places is refused, and another one is not', async t => {
  const slot = new ScriptedSlot()
  const { queue, run } = startQueue(t, new Set([slot]), { waitingPerKey: 2 })
  const flood = ['a1', 'a2', 'a3', 'a4'].map(task => run(task, { key: 'a' }))
  const other = run('b1', { key: 'b' })
  t.equal(await flood[3], 'overloaded')
  t.equal(queue.waitingJobs, 3)
  for (let job = 0; job < 4; job++) await next(slot)
  t.same(slot.posted, ['a1', 'a2', 'b1', 'a3'])
  t.equal(await other, null)
})

t.test('a refusal tells whether the jobs of its own key left no room', async t => {
  const { queue } = startQueue(t, new Set([new ScriptedSlot()]), { waitingPerKey: 2, maxWaitingJobs: 3 })
  const ask = (task: string, key: string) =>
    queue.run(task, null, { ...USUAL, key }).catch((error: unknown) => error)
  const flood = ['a1', 'a2', 'a3', 'a4'].map(task => ask(task, 'a'))
  t.match(await flood[3], { outcome: 'overloaded', keyFull: true })
  const others = ['b1', 'c1'].map(task => ask(task, task))
  t.match(await flood[2], { outcome: 'overloaded', keyFull: false }, 'the queue of all is full')
  await queue.close(0)
  await Promise.all([...flood, ...others])
})

t.test(
  'a key is told before the input of its job is made that it has no room, as long as it has none',
  async t => {
    const slot = new ScriptedSlot()
    const metrics = createMetrics()
    const { queue, run } = startQueue(t, new Set([slot]), { waitingPerKey: 2, metrics })
    const refused = async () => {
      const { values } = await metrics.taskOutcomes.get()
      return values.find(({ labels }) => labels.outcome === 'overloaded' && labels.task === 'a9')?.value ?? 0
    }
    const check = (key: string) => queue.checkRoom('a9', key)
    const flood = ['a1', 'a2', 'a3'].map((task, index) => {
      t.doesNotThrow(() => check('a'), `job ${index}`)
      return run(task, { key: 'a' })
    })
    t.throws(() => check('a'), new TaskError('overloaded', null, true))
    t.equal(await run('a4', { key: 'a' }), 'overloaded', 'nor would it be taken')
    t.doesNotThrow(() => check('b'))
    t.equal(await refused(), 1)
    await next(slot)
    t.doesNotThrow(() => check('a'))
    for (let job = 0; job < 2; job++) await next(slot)
    await Promise.all(flood)
  },
)

t.test('workers that start expect the task of a job before they are looked for', async t => {
  const { run, expected } = startQueue(t, new Set())
  void run('a1')
  t.same([...expected], ['a1'])
})

t.test('in a full queue the key with most jobs makes room for the others', async t => {
  const slot = new ScriptedSlot()
  const { run } = startQueue(t, new Set([slot]), { maxWaitingJobs: 3 })
  const flood = ['a1', 'a2', 'a3', 'a4'].map(task => run(task, { key: 'a' }))
  const other = run('b1', { key: 'b' })
  t.equal(await flood[3], 'overloaded')
  for (let job = 0; job < 4; job++) await next(slot)
  t.same(slot.posted, ['a1', 'a2', 'b1', 'a3'])
  t.equal(await other, null)
})

t.test('a key has no more workers than its part, whatever else is free', async t => {
  const slots = [new ScriptedSlot(), new ScriptedSlot()] as const
  const [first, second] = slots
  const { run } = startQueue(t, new Set(slots), { runningPerKey: 1 })
  const jobs = [run('a1', { key: 'a' }), run('a2', { key: 'a' })]
  t.same([first.posted, second.posted], [['a1'], []])
  jobs.push(run('b1', { key: 'b' }))
  t.same(second.posted, ['b1'])
  await next(second)
  t.same(second.posted, ['b1'], 'the first job of the key is still running')
  await next(first)
  t.same([...first.posted, ...second.posted].sort(), ['a1', 'a2', 'b1'])
  first.done(null)
  await Promise.all(jobs)
})

t.test('long jobs leave one worker of several to short ones, and a single worker takes both', async t => {
  const slots = [new ScriptedSlot(), new ScriptedSlot()] as const
  const [first, second] = slots
  const { run } = startQueue(t, new Set(slots))
  const jobs = ['a1', 'a2', 'a3'].map(task => run(task, { key: 'a', long: true }))
  t.same([first.posted, second.posted], [['a1'], []])
  jobs.push(run('b1', { key: 'b' }))
  t.same(second.posted, ['b1'])
  await next(second)
  for (let job = 0; job < 3; job++) await next(first)
  t.same([first.posted, second.posted], [['a1', 'a2', 'a3'], ['b1']])
  await Promise.all(jobs)

  const alone = new ScriptedSlot()
  const single = startQueue(t, new Set([alone]))
  const both = [single.run('a1', { long: true }), single.run('b1')]
  await next(alone)
  await next(alone)
  t.same(alone.posted, ['a1', 'b1'])
  await Promise.all(both)
})

t.test('the time to run begins when a worker takes the job, however long it has waited', async t => {
  const clock = new TestClock()
  const slot = new ScriptedSlot()
  const { run } = startQueue(t, new Set([slot]), { clock })
  const first = run('a', { runMs: 100_000 })
  const second = run('b', { waitMs: 60_000, runMs: 50 })
  clock.advance(59_000)
  slot.done('a')
  t.equal(await first, 'a')
  clock.advance(49)
  slot.done('b')
  t.equal(await second, 'b')
})

t.test('a job ends at the end of its time to wait, and then at the end of its time to run', async t => {
  const clock = new TestClock()
  const slot = new ScriptedSlot()
  const { queue, run } = startQueue(t, new Set([slot]), { clock })
  const running = run('a', { runMs: 50 })
  const waiting = run('b', { waitMs: 20 })
  clock.advance(20)
  t.equal(await waiting, 'timeout')
  t.equal(queue.waitingJobs, 0)
  clock.advance(30)
  t.equal(await running, 'timeout')
})

/** Ends the job of a worker with so much work of a core. */
async function took(slot: ScriptedSlot, cpuMs: number): Promise<void> {
  slot.done(null, cpuMs)
  await turn()
}

t.test(
  'keys whose jobs were long leave a worker to the others, however many such keys there are',
  async t => {
    const [first, second] = [new ScriptedSlot(), new ScriptedSlot()]
    const { run } = startQueue(t, new Set([first, second]), { runningPerKey: 1 })
    const jobs = [run('a1', { key: 'a' }), run('b1', { key: 'b' })]
    await took(first, 500)
    await took(second, 500)
    jobs.push(run('a2', { key: 'a' }), run('b2', { key: 'b' }))
    t.same([first.posted, second.posted], [['a1', 'a2'], ['b1']], 'one long job at a time')
    jobs.push(run('c1', { key: 'c' }))
    t.same(second.posted, ['b1', 'c1'])
    await took(second, 1)
    t.equal(second.posted.length, 2, 'the free worker waits for short jobs')
    await took(first, 500)
    t.same(first.posted, ['a1', 'a2', 'b2'])
    await took(first, 1)
    await Promise.all(jobs)
  },
)

t.test('some short jobs make one long job good', async t => {
  const [first, second] = [new ScriptedSlot(), new ScriptedSlot()]
  const { run } = startQueue(t, new Set([first, second]))
  const jobs = [run('a1', { key: 'a' })]
  await took(first, 300)
  for (const task of ['a2', 'a3', 'a4']) {
    jobs.push(run(task, { key: 'a' }))
    await took(first, 1)
  }
  t.same(first.posted, ['a1', 'a2', 'a3', 'a4'])
  jobs.push(run('b', { key: 'b', long: true }), run('a5', { key: 'a' }))
  t.same([first.posted.at(-1), second.posted], ['b', ['a5']], 'it has the last worker again')
  await took(first, 1)
  await took(second, 1)
  await Promise.all(jobs)
})

t.test('a key whose job was given up with its worker does not get the last worker that is ready', async t => {
  const [first, second] = [new ScriptedSlot(), new ScriptedSlot()]
  const slots = new Set([first, second])
  const clock = new TestClock()
  const { run, ready } = startQueue(t, slots, { clock, endCancelled: true })
  const left = new AbortController()
  const given = run('a1', { key: 'a', signal: left.signal })
  left.abort()
  clock.advance(25)
  t.equal(await given, 'cancelled')
  await turn()
  t.equal(first.state, 'dead')
  const third = new ScriptedSlot()
  third.state = 'starting'
  slots.delete(first)
  slots.add(third)
  const again = run('a2', { key: 'a' })
  t.same(second.posted, [], 'no worker is ready but this one')
  const other = run('b1', { key: 'b' })
  t.same(second.posted, ['b1'])
  third.state = 'ready'
  ready()
  t.same(third.posted, ['a2'])
  second.done('b')
  third.done('a')
  t.same(await Promise.all([again, other]), ['a', 'b'])
})
