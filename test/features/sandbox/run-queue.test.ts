/** The queue of runs: no workspace can take the places of others, however long its code runs. */
import t from 'tap'
import { RunQueue } from '../../../src/features/sandbox/run-queue.ts'

function setUp() {
  const queue = new RunQueue({ running: 4, runningPerWorkspace: 2, waitingPerWorkspace: 3, maxWaiting: 5 })
  const begun: string[] = []
  const ends: (() => void)[] = []
  const run = (workspace: string, signal = new AbortController().signal) =>
    queue.run(workspace, signal, () => {
      begun.push(workspace)
      return new Promise<void>(resolve => ends.push(resolve))
    })
  return { run, begun, ends }
}

t.test('one workspace runs half of what may run, and others begin at once beside it', async t => {
  const { run, begun, ends } = setUp()
  const runs = ['a', 'a', 'a', 'a', 'b', 'c'].map(workspace => run(workspace))
  t.same(begun, ['a', 'a', 'b', 'c'])
  ends[2]?.()
  await runs[4]
  t.same(begun, ['a', 'a', 'b', 'c'], 'the place of another is none for it')
  ends[0]?.()
  await runs[0]
  t.same(begun, ['a', 'a', 'b', 'c', 'a'], 'its own is')
})

t.test(
  'of those that wait the workspace that runs least is next, and one alone cannot fill the line',
  async t => {
    const { run, begun, ends } = setUp()
    for (const workspace of ['a', 'a', 'b', 'b']) void run(workspace)
    const waiting = ['a', 'a', 'a'].map(workspace => run(workspace))
    t.equal(run('a'), null)
    const leaving = new AbortController()
    const gone = run('c', leaving.signal)
    const next = run('c')
    t.equal(run('d'), null, 'the line is full')
    leaving.abort(new Error('gone'))
    await t.rejects(Promise.resolve(gone), { message: 'gone' })
    ends[0]?.()
    await new Promise(setImmediate)
    t.same(begun.slice(4), ['c'])
    ends[1]?.()
    await new Promise(setImmediate)
    t.same(begun.slice(4), ['c', 'a'])
    t.ok(next)
    t.equal(waiting.length, 3)
  },
)
