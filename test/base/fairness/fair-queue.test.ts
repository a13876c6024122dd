/** Shares of end users: the queue alone, and the shares of a key that is at its limit, with a clock of the test. */
import t from 'tap'
import { type EndUserShare, FairQueue, type QueueEntry } from '../../../src/base/fairness/fair-queue.ts'
import { createMetrics } from '../../../src/base/metrics/metrics.ts'
import { KeyShares, type KeySlot } from '../../../src/server/admission/key-shares.ts'
import { someKey } from '../../storage/records.ts'
import { turns } from '../../support/raw-http.ts'
import { TestClock } from '../../support/test-clock.ts'

const KEY = someKey()
const PLACES = 4
const USERS = 10
/** How often one of them asks while each of the others asks once. */
const GREED = 50

interface Asked extends QueueEntry {
  readonly n: number
}

function queueOf(max: number, ...users: readonly (string | null)[]) {
  const queue = new FairQueue<Asked>(max)
  users.forEach((endUser, n) => {
    queue.add({ endUser, n })
  })
  return queue
}

/** The users of the next starts, each of which ends at once. */
function served(queue: FairQueue<Asked>, count: number): readonly (string | null)[] {
  return Array.from({ length: count }, () => {
    const next = queue.next()
    if (next !== null) queue.countEnd(next.share)
    return next === null ? 'nobody' : next.entry.endUser
  })
}

t.test('users come round, each with its oldest first', async t => {
  const queue = queueOf(10, 'a', 'a', 'a', 'b', 'b', 'c')
  t.same(served(queue, 7), ['a', 'b', 'c', 'a', 'b', 'a', 'nobody'])
  t.ok(queue.isIdle)
})

t.test('requests without an end user have one share', async t => {
  t.same(served(queueOf(10, null, null, null, 'b', 'b'), 5), [null, 'b', null, 'b', null])
})

t.test('who runs least comes first, so long requests do not add up', async t => {
  const queue = queueOf(10, 'long', 'short', 'long', 'short', 'short', 'short')
  const long = queue.next()
  t.equal(long?.entry.endUser, 'long')
  t.same(served(queue, 3), ['short', 'short', 'short'], 'while the long one runs')
  if (long !== null) queue.countEnd(long.share)
  t.same(served(queue, 2), ['long', 'short'])
})

t.test('a full queue loses the newest of the user with the most', async t => {
  const queue = queueOf(4, 'a', 'a', 'a', 'b')
  t.same(queue.add({ endUser: 'b', n: 4 }), { endUser: 'a', n: 2 })
  t.same(queue.add({ endUser: 'a', n: 5 }), { endUser: 'a', n: 5 }, 'he himself')
  t.same(queue.add({ endUser: 'c', n: 6 })?.endUser, 'a', 'among equals the first')
  t.equal(queue.length, 4)
  t.same(served(queue, 5), ['a', 'b', 'c', 'b', 'nobody'])
})

t.test('who comes back begins where the others are, and newcomers hold nobody up', async t => {
  const queue = queueOf(100, 'early', 'a', 'b')
  served(queue, 3)
  for (let n = 0; n < 30; n++) {
    queue.add({ endUser: 'a', n })
    queue.add({ endUser: 'b', n })
  }
  served(queue, 20)
  for (let n = 0; n < 10; n++) queue.add({ endUser: 'early', n })
  const shares = served(queue, 12).filter(user => user === 'early').length
  t.ok(shares === 4 || shares === 5, 'a third, and one start at most beside it')
  for (let n = 0; n < 20; n++) queue.add({ endUser: 'waits', n })
  let starts = 0
  for (let n = 0; n < 60; n++) {
    queue.add({ endUser: `new ${n}`, n })
    if (served(queue, 1)[0] === 'waits') starts++
  }
  t.ok(starts > 2, `${starts} of 60 in spite of a newcomer before each`)
})

t.test('end users have shares by their weights, however much each asks', async t => {
  const weights = new Map([
    ['light', 1],
    ['middle', 2],
    ['heavy', 7],
  ])
  for (const places of [1, 2, 3, 8]) {
    const queue = new FairQueue<Asked>(1_000)
    const ask = (endUser: string) => {
      queue.add({ endUser, n: 0 })
      queue.weigh(endUser, weights.get(endUser) ?? 1)
    }
    for (const name of weights.keys()) for (let n = 0; n < 50; n++) ask(name)
    const running: EndUserShare<Asked>[] = []
    const starts = new Map<string, number>()
    for (let n = 0; n < 1_000; n++) {
      const next = queue.next()
      if (next === null) break
      const name = next.entry.endUser ?? ''
      starts.set(name, (starts.get(name) ?? 0) + 1)
      ask(name)
      running.push(next.share)
      const [oldest] = running.length < places ? [] : running.splice(0, 1)
      if (oldest !== undefined) queue.countEnd(oldest)
    }
    for (const [name, weight] of weights) {
      const count = starts.get(name) ?? 0
      t.ok(Math.abs(count - weight * 100) <= 30, `${name}: ${count} of 1000 starts with ${places} places`)
    }
    t.equal(queue.length, 150, 'and the queue is as long as before')
  }
})

t.test(
  'a weight gives no more than its share to long requests, and counts from when it is known',
  async t => {
    const queue = queueOf(100, ...Array.from({ length: 20 }, (_, n) => (n % 2 === 0 ? 'long' : 'short')))
    queue.weigh('nobody', 7)
    queue.weigh('long', 3)
    const started = Array.from({ length: 8 }, () => queue.next()?.entry.endUser)
    t.equal(started.filter(name => name === 'long').length, 6, 'of eight places, while nothing ends')
    queue.weigh('long', 1)
    t.same(served(queue, 3), ['short', 'short', 'short'], 'until it runs as little')
  },
)

t.test('a full queue loses the newest of the user with the most for its weight', async t => {
  const queue = queueOf(5, 'heavy', 'heavy', 'heavy', 'light', 'light')
  queue.weigh('heavy', 3)
  t.same(queue.add({ endUser: 'heavy', n: 5 })?.endUser, 'light')
  t.same(queue.add({ endUser: 'heavy', n: 6 })?.endUser, 'heavy')
})

t.test('an entry that leaves is not started', async t => {
  const queue = new FairQueue<Asked>(10)
  const [first, second] = [
    { endUser: 'a', n: 0 },
    { endUser: 'a', n: 1 },
  ]
  queue.add(first)
  queue.add(second)
  queue.remove(first)
  queue.remove(first)
  t.equal(queue.length, 1)
  t.equal(queue.next()?.entry, second)
})

/** A key at its limit of four, with requests that take a time of their own. */
function startKey(waitingPerKey = 256, waitMs = 60_000) {
  const clock = new TestClock()
  const metrics = createMetrics()
  const limits = { openPerKey: PLACES, bytesInFlightPerKey: 1_000_000, waitingPerKey, waitMs }
  const shares = new KeyShares(limits, { clock, metrics })
  const enter = (endUser: string | null) => {
    const place = shares.enter(KEY, 100, true)
    return { place, waiting: place.isLate ? place.wait(endUser) : null }
  }
  return { clock, metrics, shares, enter }
}

t.test(
  'ten end users of a key at its limit get equal shares, though one asks fifty times as often',
  async t => {
    const { clock, metrics, enter } = startKey()
    const names = Array.from({ length: USERS }, (_, n) => (n === 0 ? 'greedy' : `user ${n}`))
    const done = new Map(names.map(name => [name, 0]))
    const waits = new Map<string, number[]>(names.map(name => [name, []]))
    let refused = 0
    const run = async (name: string): Promise<void> => {
      const askedMs = clock.monotonicMs()
      const { place, waiting } = enter(name)
      try {
        if (waiting !== null) await waiting
        waits.get(name)?.push(clock.monotonicMs() - askedMs)
        await new Promise<void>(resolve => clock.after(100, resolve))
        done.set(name, (done.get(name) ?? 0) + 1)
      } catch {
        refused++
      }
      place.leave()
    }
    // In 250 ms there is room for ten requests, and sixty-nine are asked for: each user could use more than his share.
    for (let round = 0; round < 150; round++) {
      for (let ask = 0; ask < GREED; ask++) void run('greedy')
      for (const name of names.slice(1)) void run(name)
      for (let step = 0; step < 5; step++) {
        clock.advance(50)
        await turns(1)
      }
    }
    const counts = names.map(name => done.get(name) ?? 0)
    const total = counts.reduce((sum, count) => sum + count, 0)
    t.comment(`completed ${counts.join(' ')}, refused ${refused}`)
    t.ok(total >= 1_000, `${total} completions`)
    for (const count of counts)
      t.ok(Math.abs(count / total - 1 / USERS) <= 0.1 / USERS, `${count} of ${total}`)
    const late = waits.get('user 1') ?? []
    t.ok(Math.max(...late) <= 600, `the others wait for a round or two, at most ${Math.max(...late)} ms`)
    const queued = (await metrics.queuedRequests.get()).values[0]?.value ?? 0
    t.ok(queued > 0 && queued <= 256, `${queued} wait`)
  },
)

t.test('a wait ends by a start, a refusal, its time, or the leaving of its client', async t => {
  const { clock, metrics, enter } = startKey(2, 1_000)
  const running = Array.from({ length: PLACES }, () => enter('a').place)
  const outcome = ({ waiting }: { waiting: Promise<void> | null }) =>
    waiting?.then(
      () => 'started',
      error => String(error.message),
    )
  const first = enter('b')
  const second = enter('b')
  const third = enter('c')
  t.match(
    await outcome(second),
    /limit of 4 open requests and 2 waiting ones, most of them from this end user/,
  )
  running[0]?.leave()
  t.equal(await outcome(first), 'started')
  clock.advance(1_000)
  t.match(await outcome(third), /none of them ended within 1000 ms \(limits\.openPerKey\)/)
  third.place.leave()
  second.place.leave()
  const fourth = enter('d')
  fourth.place.giveUp(new Error('gone') as never)
  t.equal(await outcome(fourth), 'gone')
  fourth.place.leave()
  const fifth = enter('d')
  fifth.place.leave()
  t.equal(await outcome(fifth), 'The request is over')
  first.place.leave()
  for (const place of running.slice(1)) place.leave()
  const { values } = await metrics.queueWait.get()
  const counts = values.filter(({ metricName }) => metricName?.endsWith('_count'))
  t.same(Object.fromEntries(counts.map(({ labels, value }) => [labels.outcome, value])), {
    refused: 1,
    started: 1,
    expired: 1,
    left: 2,
  })
  t.equal((await metrics.queuedRequests.get()).values[0]?.value, 0)
  t.equal(clock.armed, 0)
  const again = Array.from({ length: PLACES }, () => enter('a'))
  t.ok(
    again.every(({ waiting }) => waiting === null),
    'all places are free again',
  )
})

t.test('without an end user nobody waits, unless others do', async t => {
  const { enter } = startKey()
  const running: KeySlot[] = Array.from({ length: PLACES }, () => enter(null).place)
  t.throws(() => enter(null), { code: 'rate_limit_exceeded' })
  const named = enter('a')
  const unnamed = enter(null)
  t.ok(named.waiting !== null && unnamed.waiting !== null)
  running[0]?.leave()
  running[1]?.leave()
  await named.waiting
  await unnamed.waiting
})

t.test('at the limit so many bodies are read as may wait, and no large one', async t => {
  const { shares, enter } = startKey(2)
  for (let n = 0; n < PLACES; n++) enter('a')
  const late = Array.from({ length: 4 }, () => shares.enter(KEY, 100, true))
  t.throws(() => shares.enter(KEY, 100, true), { code: 'rate_limit_exceeded' })
  late[0]?.leave()
  t.throws(() => shares.enter(KEY, 1_000_000, true), { code: 'rate_limit_exceeded' })
  t.throws(
    () => shares.enter(KEY, 100),
    { code: 'rate_limit_exceeded' },
    'what has no end user does not wait',
  )
  shares.enter(KEY, 100, true)
})

t.test('a body without a length is read no further than one that waits may be long', t => {
  const { shares, enter } = startKey()
  for (let n = 0; n < PLACES; n++) enter('a')
  const late = shares.enter(KEY, 0, true)
  late.add(256 * 1024)
  t.throws(() => late.add(1), { code: 'rate_limit_exceeded', metadata: { limit: 'limits.openPerKey' } })
  late.leave()
  const waiting = Array.from({ length: 3 }, () => shares.enter(KEY, 256 * 1024, true))
  t.ok(
    waiting.every(({ isLate }) => isLate),
    'the key has as much room as before',
  )
  t.end()
})
