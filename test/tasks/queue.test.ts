/** The queue of a pool with scripted workers: cases that real workers reach only by a race. */
import t, { type Test } from 'tap'
import { createMetrics } from '../../src/metrics/metrics.ts'
import { TaskQueue } from '../../src/tasks/queue.ts'
import { TaskError, type TaskReply } from '../../src/tasks/task.ts'
import type { WorkerSlot } from '../../src/tasks/worker-set.ts'
import { TestClock } from '../support/test-clock.ts'

/** A worker that answers, or dies, when the test says so. */
class ScriptedSlot implements WorkerSlot {
  state: WorkerSlot['state'] = 'ready'
  begun = false
  readonly posted: string[] = []
  #reply: PromiseWithResolvers<TaskReply> | null = null

  post(task: string): Promise<TaskReply> {
    this.posted.push(task)
    this.#reply = Promise.withResolvers()
    return this.#reply.promise
  }

  done(output: unknown): void {
    this.#reply?.resolve({ kind: 'done', output, ranMs: 1 })
  }

  die(begun: boolean): void {
    this.begun = begun
    this.state = 'dead'
    this.#reply?.reject(new Error('the worker died'))
  }

  end(): void {
    this.die(true)
  }
}

function startQueue(t: Test, slots: Set<ScriptedSlot>, waitingMax = 10) {
  let ready: () => void = () => undefined
  const queue = new TaskQueue(
    {
      pool: 'evaluation',
      clock: new TestClock(),
      metrics: createMetrics(),
      waitingMax,
      endCancelled: false,
    },
    onReady => {
      ready = onReady
      return { slots: () => slots, keepAlive: () => undefined, close: async () => undefined }
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
  const run = (task: string) =>
    queue.run(task, null, 1_000).catch((error: unknown) => {
      if (error instanceof TaskError) return error.outcome
      throw error
    })
  return { queue, run, replace, ready: () => ready() }
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
  const { queue, run, ready } = startQueue(t, new Set([slot]), 2)
  const outcomes = ['a', 'b', 'c'].map(run)
  t.equal(await run('d'), 'overloaded')
  t.same(slot.posted, [])
  t.equal(queue.waiting, 3)
  slot.state = 'ready'
  ready()
  t.same(slot.posted, ['a'])
  t.equal(queue.waiting, 2)
  await queue.close(0)
  t.same(await Promise.all(outcomes), ['cancelled', 'cancelled', 'cancelled'])
})
