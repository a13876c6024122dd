/** Counting between a serve thread and the main thread: what is said, answered, late, or left behind. */
import t from 'tap'
import { CounterClient, CounterServer } from '../../../src/callers/limits/counter-channel.ts'
import type { CounterEntry, Counters, ReserveResult } from '../../../src/callers/limits/counters.ts'
import { TestClock } from '../../support/test-clock.ts'
import { linkedEnds } from '../../support/thread-link.ts'

const entry = (id: string): readonly CounterEntry[] => [
  { id, amount: 5, ceiling: 10, origin: null, endsMs: Number.POSITIVE_INFINITY },
]
const ROOMS = [{ used: 4, total: 10, ceiling: 10 }]
const TAKEN: ReserveResult = { exceeded: null, rooms: ROOMS }
const EXCEEDED: ReserveResult = { exceeded: 0, rooms: ROOMS }
const turn = () => new Promise(resolve => setImmediate(resolve))

function pair(reserve: Counters['reserve'] = () => TAKEN) {
  const given: [string | undefined, readonly number[]][] = []
  const faults: string[] = []
  const clock = new TestClock()
  const counters: Counters = { reserve, settle: (entries, used) => void given.push([entries[0]?.id, used]) }
  const server = new CounterServer(counters, { fault: (_, message) => void faults.push(message) })
  const { caller, sent: messages } = linkedEnds({ api: { counters: server }, clock })
  const client = new CounterClient(caller.service('counters'))
  return { client, server, given, messages, faults, clock }
}

t.test(
  'what one turn has to say goes in one message, and what was used comes back to its entries',
  async t => {
    const { client, given, messages } = pair(entries => (entries[0]?.id === 'c' ? EXCEEDED : TAKEN))
    const [a, b, c] = [entry('a'), entry('b'), entry('c')]
    t.same(await Promise.all([client.reserve(a), client.reserve(b), client.reserve(c)]), [
      TAKEN,
      TAKEN,
      EXCEEDED,
    ])
    t.equal(messages.length, 1)
    client.settle(b, [1])
    client.settle(a, [2])
    await turn()
    t.equal(messages.length, 2)
    t.same(given, [
      ['b', [1]],
      ['a', [2]],
    ])
  },
)

t.test('what a thread held is given back when it has ended, also what it was still to get', async t => {
  const late = Promise.withResolvers<ReserveResult>()
  const { client, server, given } = pair(entries => (entries[0]?.id === 'late' ? late.promise : TAKEN))
  const [settled, held] = [entry('settled'), entry('held')]
  await Promise.all([client.reserve(settled), client.reserve(held)])
  void client.reserve(entry('late'))
  client.settle(settled, [5])
  await turn()
  server.close()
  t.same(given, [
    ['settled', [5]],
    ['held', []],
  ])
  late.resolve(TAKEN)
  await turn()
  t.same(given.at(-1), ['late', []])
})

t.test('who waits too long is told so, and what it gets later is given back', async t => {
  const late = Promise.withResolvers<ReserveResult>()
  const { client, given, clock } = pair(() => late.promise)
  const waiting = client.reserve(entry('late'))
  await turn()
  clock.advance(2_000)
  await t.rejects(waiting, /in time/)
  await turn()
  late.resolve(TAKEN)
  await turn()
  t.same(given, [['late', []]])
  t.equal(clock.armed, 0)
})

t.test('counters that cannot be read are told of once, and refuse', async t => {
  const { client, faults } = pair(() => {
    throw new Error('away')
  })
  for (let n = 0; n < 3; n++) await t.rejects(Promise.resolve(client.reserve(entry('x'))))
  t.same(faults, [
    'cannot read spending from the store; limits use the last known values, and requests without such values get 503',
  ])
})
