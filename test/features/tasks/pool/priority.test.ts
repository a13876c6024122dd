import { readdirSync, readFileSync } from 'node:fs'
import { constants, getPriority } from 'node:os'
import t from 'tap'
import { systemClock } from '../../../../src/base/clock.ts'
import { createMetrics } from '../../../../src/base/metrics/metrics.ts'
import { createTaskPool } from '../../../../src/features/tasks/pool/pool.ts'
import { writePdf } from '../../../support/pdf.ts'

/** Thread id to nice value, as the kernel tells it. */
function niceness(): Map<string, number> {
  return new Map(
    readdirSync('/proc/self/task').map(id => {
      // What follows the name, which may hold anything, begins with the third field; nice is the nineteenth.
      const fields = readFileSync(`/proc/self/task/${id}/stat`, 'utf8').split(') ').at(-1)?.split(' ') ?? []
      return [id, Number(fields[16])]
    }),
  )
}

const skip = process.platform === 'linux' ? false : 'threads have no priority of their own here'

t.test('workers stand back from the event loop, those for documents furthest', { skip }, async t => {
  const pool = createTaskPool({ threads: 1, bulkThreads: 1, clock: systemClock, metrics: createMetrics() })
  t.teardown(() => pool.close())
  const own = getPriority()
  const added = async (work: () => Promise<unknown>) => {
    const before = niceness()
    await work()
    return [...niceness()].filter(([id]) => !before.has(id)).map(([, nice]) => nice - own)
  }
  const down = (steps: number) => Math.min(constants.priority.PRIORITY_LOW - own, steps)
  const bytes = writePdf({ pages: ['One page'] })
  const terms = { deadlineMs: 60_000 }
  const [most] = (await added(() => pool.run('pdf-text', { bytes }, terms))).toSorted((a, b) => b - a)
  t.equal(most, down(10))
  const [some] = (await added(() => pool.run('repair-json', { text: '{a: 1}' }, terms))).toSorted(
    (a, b) => b - a,
  )
  t.equal(some, down(3))
  t.equal(getPriority(), own, 'the thread that asks is as it was')
})
