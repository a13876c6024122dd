/** Counting between a serve thread and the main thread: what is said, answered, late, or left behind. */
import t from 'tap'
import { RemoteCounters } from '../../src/limits/counter-client.ts'
import { CounterDesk } from '../../src/limits/counter-server.ts'
import type { CounterEntry, Counters, Refusal } from '../../src/limits/counters.ts'
import type { FromThread } from '../../src/threads/messages.ts'
import { TestClock } from '../support/test-clock.ts'

const entry = (id: string): readonly CounterEntry[] => [
  { id, amount: 5, ceiling: 10, origin: null, endsMs: Number.POSITIVE_INFINITY },
]
const REFUSAL: Refusal = { index: 0, total: 10, ceiling: 10 }
const turn = () => new Promise(resolve => setImmediate(resolve))

function pair(take: Counters['take'] = () => null) {
  const given: [string | undefined, readonly number[]][] = []
  const messages: FromThread[] = []
  const faults: string[] = []
  const clock = new TestClock()
  const counters: Counters = { take, give: (entries, used) => void given.push([entries[0]?.id, used]) }
  const remote = new RemoteCounters(message => {
    messages.push(message)
    // As between threads: nothing but plain data arrives.
    const plain = structuredClone(message)
    if (plain.type === 'count') desk.receive(plain.takes, plain.gives)
  }, clock)
  const desk = new CounterDesk(counters, { fault: message => void faults.push(message) }, answers =>
    remote.answered(structuredClone(answers)),
  )
  return { remote, desk, given, messages, faults, clock }
}

t.test(
  'what one turn has to say goes in one message, and what was used comes back to its entries',
  async t => {
    const { remote, given, messages } = pair(entries => (entries[0]?.id === 'c' ? REFUSAL : null))
    const [a, b, c] = [entry('a'), entry('b'), entry('c')]
    t.same(await Promise.all([remote.take(a), remote.take(b), remote.take(c)]), [null, null, REFUSAL])
    t.equal(messages.length, 1)
    remote.give(b, [1])
    remote.give(a, [2])
    await turn()
    t.equal(messages.length, 2)
    t.same(given, [
      ['b', [1]],
      ['a', [2]],
    ])
  },
)

t.test('what a thread held is given back when it has ended, also what it was still to get', async t => {
  const late = Promise.withResolvers<Refusal | null>()
  const { remote, desk, given } = pair(entries => (entries[0]?.id === 'late' ? late.promise : null))
  const [settled, held] = [entry('settled'), entry('held')]
  await Promise.all([remote.take(settled), remote.take(held)])
  void remote.take(entry('late'))
  remote.give(settled, [5])
  await turn()
  desk.close()
  t.same(given, [
    ['settled', [5]],
    ['held', []],
  ])
  late.resolve(null)
  await turn()
  t.same(given.at(-1), ['late', []])
})

t.test('who waits too long is told so, and what it gets later is given back', async t => {
  const late = Promise.withResolvers<Refusal | null>()
  const { remote, given, clock } = pair(() => late.promise)
  const waiting = remote.take(entry('late'))
  await turn()
  clock.advance(2_000)
  await t.rejects(waiting, /in time/)
  await turn()
  late.resolve(null)
  await turn()
  t.same(given, [['late', []]])
  t.equal(clock.armed, 0)
})

t.test('counters that cannot be read are told of once, and refuse', async t => {
  const { remote, faults } = pair(() => {
    throw new Error('away')
  })
  for (let n = 0; n < 3; n++) await t.rejects(Promise.resolve(remote.take(entry('x'))))
  t.same(faults, ['what was spent cannot be read'])
})
