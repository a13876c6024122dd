/** Counters of several instances in one Redis, which comes and goes. */
import { createClient } from '@redis/client'
import t, { type Test } from 'tap'
import { type Clock, systemClock } from '../../../src/base/clock.ts'
import { whenReady } from '../../../src/base/maybe-promise.ts'
import type { CounterEntry, ReserveResult } from '../../../src/callers/limits/counters.ts'
import { SharedCounters } from '../../../src/callers/limits/shared-counters.ts'
import { turns } from '../../support/raw-http.ts'
import { ownRedis, type RedisServer, WITHOUT_REDIS } from '../../support/redis-server.ts'
import { eventually } from '../../support/stream-probe.ts'
import { TestClock } from '../../support/test-clock.ts'

// Results of counters in a form that tests can compare.

/** The first entry that did not fit. */
interface LimitExceeded {
  readonly index: number
  /** The total before, reservations included. */
  readonly total: number
  readonly ceiling: number
}

/** Null: all was taken. */
function exceededOf({ exceeded, rooms }: ReserveResult): LimitExceeded | null {
  const room = exceeded === null ? undefined : rooms[exceeded]
  if (exceeded === null || room === undefined) return null
  return { index: exceeded, total: room.total, ceiling: room.ceiling }
}

/** For what comes in a moment on a machine that is not busy; a late answer of Redis is no silence either. */
const PATIENCE_MS = 60_000
/** No test waits until an instance counts as dead. */
const ALIVE_MS = 600_000
/** After this a Redis that says nothing counts as away, where a test is about that. */
const SILENCE_MS = 50

const WITH_REDIS = { skip: WITHOUT_REDIS }

/** What the ledger says, for all instances. */
interface Books {
  spent: number
  reads: number
  /** Reading takes until this is settled. */
  gate: Promise<void>
}

interface Instance extends Pick<SharedCounters, 'settle' | 'close' | 'degraded'> {
  take(entries: readonly CounterEntry[]): LimitExceeded | null | Promise<LimitExceeded | null>
  readonly lines: string[]
}

function instance(
  t: Test,
  redis: RedisServer,
  books: Books,
  options: { nodes?: number; aliveMs?: number; silenceMs?: number; clock?: Clock } = {},
): Instance {
  const lines: string[] = []
  const counters = new SharedCounters({
    redis: { url: redis.url, prefix: 'test:' },
    nodes: options.nodes ?? 1,
    clock: options.clock ?? systemClock,
    log: {
      fault: (_, message) => void lines.push(message),
      notice: (_, message) => void lines.push(message),
    },
    spending: {
      async sum() {
        books.reads++
        const { spent } = books
        await books.gate
        return spent
      },
      credits: async () => 0,
    },
    silenceMs: options.silenceMs ?? PATIENCE_MS,
    ...(options.aliveMs === undefined ? {} : { aliveMs: options.aliveMs }),
  })
  t.teardown(() => counters.close())
  return {
    lines,
    get degraded() {
      return counters.degraded
    },
    take: entries => whenReady(counters.reserve(entries), exceededOf),
    settle: (entries, used) => counters.settle(entries, used),
    close: () => counters.close(),
  }
}

const newBooks = (spent = 0): Books => ({ spent, reads: 0, gate: Promise.resolve() })

const money = (amount: number, ceiling: number, id = 'usd/k'): CounterEntry => ({
  id,
  amount,
  ceiling,
  origin: { organizationId: 'o', keyHash: 'k', since: '', includeByok: false },
  endsMs: Number.POSITIVE_INFINITY,
})

const rate = (amount: number, ceiling: number): CounterEntry => ({
  id: 'requests/k/1',
  amount,
  ceiling,
  origin: null,
  endsMs: systemClock.nowMs() + 60_000,
})

const ready = (...instances: Instance[]): Promise<boolean> =>
  eventually(() => instances.every(each => !each.degraded), PATIENCE_MS)

const admitted = (answers: readonly (LimitExceeded | null)[]): number =>
  answers.filter(answer => answer === null).length

/** What one asks of Redis beside the instances. */
async function operator(t: Test, redis: RedisServer) {
  const client = createClient({ url: redis.url })
  client.on('error', () => undefined)
  await client.connect()
  t.teardown(() => client.destroy())
  return (...command: string[]): Promise<unknown> => client.sendCommand(command)
}

t.test('instances count together, exactly', WITH_REDIS, async t => {
  const redis = await ownRedis(t)
  await redis.start()
  const books = newBooks(100)
  const instances = [1, 2, 3].map(() => instance(t, redis, books))
  t.ok(await ready(...instances))
  const answers = await Promise.all(
    Array.from({ length: 1000 }, (_, at) => instances[at % 3]?.take([rate(1, 900), money(7, 1000)])),
  )
  t.equal(admitted(answers.map(answer => answer ?? null)), 128, 'what the ledger says is counted once')
  t.match(answers.at(-1), { index: 1, total: 996, ceiling: 1000 })
  t.equal(await instances[0]?.take([rate(772, 900)]), null, 'what was refused left the other counter alone')
  t.match(await instances[1]?.take([rate(1, 900)]), { index: 0, total: 900 })
})

t.test('what one instance gives back is there for another', WITH_REDIS, async t => {
  const redis = await ownRedis(t)
  await redis.start()
  const books = newBooks()
  const [one, two] = [instance(t, redis, books), instance(t, redis, books)]
  t.ok(await ready(one, two))
  const entries = [money(10, 10)]
  t.equal(await one.take(entries), null)
  t.match(await two.take([money(1, 10)]), { index: 0, total: 10 })
  one.settle(entries, [4])
  t.ok(await eventually(async () => (await two.take([money(6, 10)])) === null, PATIENCE_MS))
  t.match(await one.take([money(1, 10)]), { total: 10 })
})

t.test(
  'what a killed instance had reserved is free again, and what it had spent is not',
  WITH_REDIS,
  async t => {
    const redis = await ownRedis(t)
    await redis.start()
    const books = newBooks()
    let killed = false
    const clock: Clock = {
      ...systemClock,
      after: (ms, callback) => systemClock.after(ms, () => killed || callback()),
    }
    const dead = instance(t, redis, books, { aliveMs: ALIVE_MS, clock })
    t.ok(await ready(dead))
    t.equal(await dead.take([money(10, 10)]), null)
    // As if it had been killed: its connection is gone, nothing follows, and it took no leave.
    const ask = await operator(t, redis)
    killed = true
    await ask('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes')
    t.ok(await eventually(() => dead.degraded, PATIENCE_MS))

    const living = instance(t, redis, books)
    const [sign = '', ...others] = (await ask('KEYS', 'test:alive/*')) as string[]
    t.same(others, [], 'its sign of life is there still')
    t.ok(await ready(living))
    books.spent = 3
    t.match(await living.take([money(7, 10)]), { index: 0, total: 13 }, 'until then it counts as alive')
    const left = Number(await ask('PTTL', sign))
    t.ok(left > 0 && left <= ALIVE_MS, `which ends by itself in ${left} ms`)
    await ask('PEXPIRE', sign, '1')
    t.ok(await eventually(async () => (await living.take([money(7, 10)])) === null, PATIENCE_MS))
    t.match(await living.take([money(1, 10)]), { index: 0, total: 10 }, 'the ledger was read again')
  },
)

t.test('an instance that ends in order leaves no reservation behind', WITH_REDIS, async t => {
  const redis = await ownRedis(t)
  await redis.start()
  const books = newBooks()
  const [one, two] = [instance(t, redis, books), instance(t, redis, books)]
  t.ok(await ready(one, two))
  t.equal(await one.take([money(10, 10)]), null)
  await one.close()
  t.equal(await two.take([money(10, 10)]), null)
})

t.test('Redis is killed: nobody waits, shares are kept to, and it comes back', WITH_REDIS, async t => {
  const redis = await ownRedis(t)
  await redis.start()
  const books = newBooks()
  const [one, two] = [instance(t, redis, books, { nodes: 2 }), instance(t, redis, books, { nodes: 2 })]
  t.ok(await ready(one, two))
  for (const each of [one, two]) t.equal(await each.take([money(10, 100)]), null)
  t.equal(await one.take([money(0, 100)]), null)
  await redis.kill()
  // Those that were asked already are answered when the connection ends: silence is not what they wait for.
  const count = admitted(
    await Promise.all(
      [one, two].flatMap(each => Array.from({ length: 200 }, () => each.take([money(1, 100)]))),
    ),
  )
  // Each has half of what was left when it last heard: 80 of 100, or 90 for the one that heard last of 10.
  t.ok(count >= 80 && count <= 85, `${count} of 80 were admitted`)
  t.ok(one.degraded && two.degraded)
  for (const each of [one, two]) {
    t.notOk(each.take([money(1, 100)]) instanceof Promise, 'nobody waits for what is away')
  }
  t.same(one.lines, ['redis is unavailable'], 'told once')

  // All of it has come to the ledger meanwhile.
  books.spent = 10
  await redis.start()
  t.ok(await ready(one, two))
  t.ok(
    await eventually(async () => (await one.take([money(1, 100)])) !== null, PATIENCE_MS),
    'what runs is known again',
  )
  t.same(one.lines, ['redis is unavailable', 'redis is available again'])
})

t.test('Redis that hangs is no different, and a short silence does no harm', WITH_REDIS, async t => {
  const redis = await ownRedis(t)
  await redis.start()
  const books = newBooks()
  const clock = new TestClock()
  const one = instance(t, redis, books, { clock, silenceMs: SILENCE_MS })
  t.ok(await ready(one))
  t.equal(await one.take([money(1, 100)]), null)
  redis.freeze()
  const first = one.take([money(1, 100)])
  t.ok(first instanceof Promise)
  clock.advance(SILENCE_MS - 1)
  await turns(5)
  t.notOk(one.degraded, 'it is waited for a little')
  clock.advance(1)
  t.equal(await first, null)
  t.ok(one.degraded)
  const second = one.take([money(1, 100)])
  t.equal(second, null, 'nobody waits again')
  redis.thaw()
  t.ok(await ready(one))
  books.spent = 0
  const exact = async () => (await one.take([money(97, 100)])) === null
  t.ok(await eventually(exact, PATIENCE_MS), 'three are reserved, neither more nor fewer')
  t.match(await one.take([money(1, 100)]), { total: 100 })
})

t.test(
  'without Redis at the start limits hold by the ledger, and it is found when it comes',
  WITH_REDIS,
  async t => {
    const redis = await ownRedis(t)
    const books = newBooks(40)
    const one = instance(t, redis, books, { nodes: 2 })
    t.ok(one.degraded)
    t.match(await one.take([money(31, 100)]), { total: 40, ceiling: 70 })
    t.equal(await one.take([money(30, 100)]), null)
    await redis.start()
    t.ok(await ready(one))
    t.ok(
      await eventually(async () => (await one.take([money(30, 100)])) === null, PATIENCE_MS),
      'the whole limit counts',
    )
    t.match(await one.take([money(1, 100)]), { total: 100, ceiling: 100 })
  },
)

t.test('Redis that lost its data begins with the ledger and with what runs', WITH_REDIS, async t => {
  const redis = await ownRedis(t)
  await redis.start()
  const books = newBooks(10)
  const one = instance(t, redis, books)
  t.ok(await ready(one))
  const entries = [money(50, 100)]
  t.equal(await one.take(entries), null)
  await redis.kill()
  t.ok(await eventually(() => one.degraded, PATIENCE_MS))
  await redis.start()
  t.ok(await ready(one))
  t.ok(await eventually(async () => (await one.take([money(40, 100)])) === null, PATIENCE_MS))
  t.match(await one.take([money(1, 100)]), { total: 100 })
  one.settle(entries, [0])
  t.ok(await eventually(async () => (await one.take([money(50, 100)])) === null, PATIENCE_MS))
})

t.test('what Redis never heard of is made up for when it is back', WITH_REDIS, async t => {
  const redis = await ownRedis(t)
  await redis.start()
  const books = newBooks()
  const one = instance(t, redis, books)
  t.ok(await ready(one))
  const entries = [money(10, 100)]
  t.equal(await one.take(entries), null)
  const ask = await operator(t, redis)
  // It holds writes back, and drops what it held back of a connection that ends.
  await ask('CLIENT', 'PAUSE', '600000', 'WRITE')
  one.settle(entries, [4])
  const held = async () => /^blocked_clients:1\r$/m.test(String(await ask('INFO', 'clients')))
  t.ok(await eventually(held, PATIENCE_MS))
  await ask('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes')
  t.ok(await eventually(() => one.degraded, PATIENCE_MS))
  await ask('CLIENT', 'UNPAUSE')
  books.spent = 4
  t.ok(await ready(one))
  t.equal(await one.take([money(96, 100)]), null, 'the reservation of ten is gone')
  t.match(await one.take([money(1, 100)]), { total: 100 }, 'and what was used of it is not')
})

t.test('nobody waits for a ledger that is slow while limits are known well enough', WITH_REDIS, async t => {
  const redis = await ownRedis(t)
  await redis.start()
  const books = newBooks()
  const one = instance(t, redis, books)
  t.ok(await ready(one))
  t.equal(await one.take([money(1, 100)]), null)
  await redis.kill()
  t.ok(await eventually(() => one.degraded, PATIENCE_MS))
  t.equal(await one.take([money(1, 100)]), null)
  const gate = Promise.withResolvers<void>()
  books.gate = gate.promise
  const readBefore = books.reads
  await redis.start()
  t.ok(await ready(one))
  for (let n = 0; n < 5; n++) t.equal(one.take([money(1, 100)]), null, 'at once')
  t.ok(await eventually(() => books.reads > readBefore, PATIENCE_MS), 'while the ledger is being read')
  gate.resolve()
  t.ok(await eventually(async () => (await one.take([money(93, 100)])) === null, PATIENCE_MS))
  t.match(await one.take([money(1, 100)]), { total: 100 })
})

/** Closes the gate of the ledger: the next read takes until `open`. */
function gated(books: Books): { readonly begun: () => Promise<boolean>; readonly open: () => void } {
  const gate = Promise.withResolvers<void>()
  books.gate = gate.promise
  const { reads } = books
  return {
    begun: () => eventually(() => books.reads > reads, PATIENCE_MS),
    open: () => {
      if (books.gate === gate.promise) books.gate = Promise.resolve()
      gate.resolve()
    },
  }
}

t.test('a reply that ends while the ledger is read after an outage is counted once', WITH_REDIS, async t => {
  const redis = await ownRedis(t)
  await redis.start()
  const books = newBooks()
  const one = instance(t, redis, books)
  t.ok(await ready(one))
  const [first, second] = [[money(10, 100)], [money(20, 100)]]
  t.equal(await one.take(first), null)
  t.equal(await one.take(second), null)
  const ask = await operator(t, redis)
  const ledger = gated(books)
  await ask('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes')
  t.ok(await eventually(() => one.degraded, PATIENCE_MS))
  t.ok(await ready(one))
  t.ok(await ledger.begun())
  books.spent = 7
  one.settle(first, [7])
  ledger.open()
  const spent = async (): Promise<number> => Number(await ask('HGET', 'test:usd/k', 's'))
  t.ok(await eventually(async () => (await spent()) === 7, PATIENCE_MS), 'which the first read did not see')
  t.ok(await eventually(async () => (await one.take([money(74, 100)]))?.total === 27, PATIENCE_MS))
  books.spent = 20
  one.settle(second, [13])
  t.ok(await eventually(async () => (await spent()) === 20, PATIENCE_MS))
  t.match(await one.take([money(81, 100)]), { total: 20 })
  t.equal(await one.take([money(80, 100)]), null)
})

t.test('replies that end while a missing counter is made anew are counted once', WITH_REDIS, async t => {
  for (const lost of ['the counter', 'all data']) {
    const redis = await ownRedis(t)
    await redis.start()
    const books = newBooks(30)
    const clock = new TestClock()
    const one = instance(t, redis, books, { clock })
    t.ok(await ready(one))
    const [first, second] = [[money(10, 100)], [money(20, 100)]]
    t.equal(await one.take(first), null)
    t.equal(await one.take(second), null)
    const ask = await operator(t, redis)
    const early = gated(books)
    await ask(...(lost === 'all data' ? ['FLUSHALL'] : ['DEL', 'test:usd/k']))
    const asking = one.take([money(0, 100)])
    t.ok(await early.begun())
    books.spent += 10
    one.settle(first, [10])
    await turns(20)
    const late = gated(books)
    early.open()
    t.ok(await late.begun())
    await turns(20)
    books.spent += 20
    one.settle(second, [20])
    late.open()
    await waitFor(clock, asking)
    const spent = async () => (await waitFor(clock, one.take([money(100, 100)])))?.total
    t.ok(await eventually(async () => (await spent()) === 60, PATIENCE_MS), lost)
    t.match(await waitFor(clock, one.take([money(41, 100)])), { total: 60 })
  }
})

/** Two instances whose clocks stand still, so that none finds out by its heartbeat. */
async function twoWithReservations(t: Test) {
  const redis = await ownRedis(t)
  await redis.start()
  const books = newBooks(10)
  /** What each instance has spent; it is in the ledger as soon as that instance reads it. */
  const unshipped: [number, number] = [0, 0]
  const booksOf = (at: 0 | 1): Books => ({
    ...newBooks(),
    get spent() {
      books.spent += unshipped[at]
      unshipped[at] = 0
      return books.spent
    },
  })
  const clocks = [new TestClock(), new TestClock()] as const
  const ledgers = [booksOf(0), booksOf(1)] as const
  const [one, two] = [
    instance(t, redis, ledgers[0], { clock: clocks[0], aliveMs: ALIVE_MS }),
    instance(t, redis, ledgers[1], { clock: clocks[1], aliveMs: ALIVE_MS }),
  ]
  t.ok(await ready(one, two))
  const [first, second] = [[money(30, 100)], [money(50, 100)]]
  t.equal(await one.take(first), null)
  t.equal(await two.take(second), null)
  const beat = async (at: 0 | 1): Promise<void> => {
    clocks[at].advance(1_000)
    await turns(20)
  }
  const ask = await operator(t, redis)
  /** Whether each instance knows of the other. */
  const acquainted = async (): Promise<boolean> => {
    await beat(0)
    await beat(1)
    return Number(await ask('SCARD', 'test:nodes')) === 2
  }
  t.ok(await eventually(acquainted, PATIENCE_MS))
  await beat(0)
  await beat(1)
  // Answers come in order: no heartbeat is on its way any more.
  for (const each of [one, two]) t.equal(await each.take([money(0, 100)]), null)
  return { redis, books, ledgers, unshipped, clocks, one, two, first, second, beat, ask }
}

/** The answer, while time passes for the instance alone. */
async function waitFor<T>(clock: TestClock, answer: T | Promise<T>): Promise<T> {
  let isOver = false
  const asking = Promise.resolve(answer).finally(() => {
    isOver = true
  })
  while (!isOver) {
    clock.advance(10)
    await turns(2)
  }
  return asking
}

/** Whether so much fits in the end. */
const fits = (clock: TestClock, each: Instance, amount: number): Promise<boolean> =>
  eventually(async () => (await waitFor(clock, each.take([money(amount, 100)]))) === null, PATIENCE_MS)

t.test(
  'Redis is flushed while requests run: nobody reserves what others have reserved',
  WITH_REDIS,
  async t => {
    const { clocks, one, two, first, second, beat, ask } = await twoWithReservations(t)
    t.match(await one.take([money(11, 100)]), { total: 90 }, 'a control')
    await ask('FLUSHALL')
    const early = await waitFor(clocks[0], one.take([money(1, 100)]))
    t.match(early, { index: 0 }, 'the other one has not said what it has reserved')
    await beat(1)
    t.ok(await fits(clocks[0], one, 10), 'now it has')
    t.match(await one.take([money(1, 100)]), { total: 100 })
    t.match(await waitFor(clocks[1], two.take([money(1, 100)])), { total: 100 }, 'nothing is counted twice')
    one.settle(first, [5])
    two.settle(second, [7])
    t.ok(await fits(clocks[1], two, 68))
    t.match(await one.take([money(1, 100)]), { total: 100 })
  },
)

t.test('what ends in the moment of the loss is counted once', WITH_REDIS, async t => {
  const { books, clocks, one, two, first, second, beat, ask } = await twoWithReservations(t)
  await ask('FLUSHALL')
  // Its command comes after the loss, and its record to the ledger before the counter is made anew.
  books.spent = 25
  one.settle(first, [15])
  await turns(20)
  await beat(0)
  await beat(1)
  t.ok(await fits(clocks[1], two, 25))
  t.match(await waitFor(clocks[0], one.take([money(1, 100)])), { total: 100 })
  two.settle(second, [0])
  t.ok(await fits(clocks[0], one, 50))
  t.match(await one.take([money(1, 100)]), { total: 100 })
})

t.test('a node that does not come back is awaited until it counts as dead', WITH_REDIS, async t => {
  const { clocks, one, two, ask } = await twoWithReservations(t)
  await ask('FLUSHALL')
  t.match(await waitFor(clocks[0], one.take([money(1, 100)])), { index: 0 })
  const left = Number(await ask('PTTL', 'test:awaited-until'))
  t.ok(left > 0 && left <= ALIVE_MS, `for ${left} ms more`)
  await ask('PEXPIRE', 'test:awaited-until', '1')
  t.ok(await fits(clocks[0], one, 60))
  t.match(await one.take([money(1, 100)]), { total: 100 })
  t.notOk(two.degraded)
})

t.test('a dead node is awaited no longer because counters begin meanwhile', WITH_REDIS, async t => {
  const { redis, books, clocks, one, beat, ask } = await twoWithReservations(t)
  const three = instance(t, redis, books, { clock: clocks[0], aliveMs: ALIVE_MS })
  t.ok(await ready(three))
  for (const each of [one, three]) t.equal(await each.take([money(1, 100, 'usd/other')]), null)
  await ask('FLUSHALL')
  const awaited = async () =>
    (await ask('ZRANGE', 'test:awaited-until', '0', '-1', 'WITHSCORES')) as unknown[]
  /** The first and the third one are back, so that the second one alone is awaited, until a certain time. */
  const alone = async (): Promise<boolean> => {
    await beat(0)
    return Number(await ask('SCARD', 'test:nodes')) === 2 && (await awaited()).length === 1
  }
  t.ok(await eventually(alone, PATIENCE_MS))
  const before = await awaited()
  await ask('DEL', 'test:usd/other')
  t.match(await waitFor(clocks[0], one.take([money(1, 100, 'usd/other')])), { index: 0 })
  t.ok(await eventually(alone, PATIENCE_MS))
  t.same(await awaited(), before)
})

t.test('one counter is gone, and both write what they have reserved in it', WITH_REDIS, async t => {
  const { clocks, one, two, beat, ask } = await twoWithReservations(t)
  await ask('DEL', 'test:usd/k')
  t.match(await waitFor(clocks[0], one.take([money(1, 100)])), { index: 0 }, 'the other one is awaited')
  await beat(1)
  t.ok(await fits(clocks[0], one, 10))
  t.match(await waitFor(clocks[1], two.take([money(1, 100)])), { total: 100 })
})

t.test('one counter is gone in which the other has spent and reserves nothing', WITH_REDIS, async t => {
  const { unshipped, clocks, one, two, second, beat, ask } = await twoWithReservations(t)
  unshipped[1] = 50
  two.settle(second, [50])
  t.ok(await eventually(async () => Number(await ask('HGET', 'test:usd/k', 's')) === 60, PATIENCE_MS))
  await ask('DEL', 'test:usd/k')
  t.match(await waitFor(clocks[0], one.take([money(1, 100)])), { index: 0 }, 'the other one is awaited')
  await beat(1)
  t.ok(await fits(clocks[0], one, 10))
  t.match(await waitFor(clocks[0], one.take([money(1, 100)])), { total: 100 })
})

t.test(
  'what ends while another node is awaited is counted beside what that one has spent',
  WITH_REDIS,
  async t => {
    for (const lost of ['FLUSHALL', 'DEL test:usd/k']) {
      const { unshipped, clocks, one, two, first, second, beat, ask } = await twoWithReservations(t)
      unshipped[1] = 50
      two.settle(second, [50])
      t.ok(await eventually(async () => Number(await ask('HGET', 'test:usd/k', 's')) === 60, PATIENCE_MS))
      await ask(...lost.split(' '))
      t.match(await waitFor(clocks[0], one.take([money(1, 100)])), { index: 0 }, 'the other one is awaited')
      unshipped[0] = 30
      one.settle(first, [30])
      await turns(20)
      await beat(1)
      t.ok(await fits(clocks[0], one, 10), lost)
      t.match(await waitFor(clocks[0], one.take([money(1, 100)])), { total: 100 })
    }
  },
)

t.test('what both spend while a counter is made anew is counted', WITH_REDIS, async t => {
  const { unshipped, ledgers, clocks, one, two, first, second, beat, ask } = await twoWithReservations(t)
  await ask('DEL', 'test:usd/k')
  t.match(await waitFor(clocks[0], one.take([money(1, 100)])), { index: 0 }, 'the other one is awaited')
  // The other one comes back, and spends before and after.
  const gate = gated(ledgers[1])
  await beat(1)
  t.ok(await gate.begun())
  unshipped[1] = 20
  two.settle(second, [20])
  await turns(20)
  gate.open()
  unshipped[0] = 30
  one.settle(first, [30])
  t.ok(await fits(clocks[1], two, 40))
  t.match(await waitFor(clocks[0], one.take([money(1, 100)])), { total: 100 })
})

t.test('nobody reserves before the cost of what has ended is read', WITH_REDIS, async t => {
  const { unshipped, ledgers, clocks, one, two, first, beat, ask } = await twoWithReservations(t)
  await ask('DEL', 'test:usd/k')
  t.match(await waitFor(clocks[0], one.take([money(1, 100)])), { index: 0 }, 'the other one is awaited')
  const gate = gated(ledgers[0])
  unshipped[0] = 30
  one.settle(first, [30])
  t.ok(await gate.begun())
  await beat(1)
  t.match(await waitFor(clocks[1], two.take([money(1, 100)])), { index: 0 }, 'which is back')
  gate.open()
  t.ok(await fits(clocks[1], two, 10))
  t.match(await waitFor(clocks[1], two.take([money(1, 100)])), { total: 100 })
})

t.test('while one counter is made anew, others go on', WITH_REDIS, async t => {
  const { clocks, one, two, beat, ask } = await twoWithReservations(t)
  const other = (amount: number) => money(amount, 1_000, 'usd/other')
  const [third, fourth] = [[other(100)], [other(200)]]
  t.equal(await one.take(third), null)
  t.equal(await two.take(fourth), null)
  await ask('DEL', 'test:usd/k')
  t.match(await waitFor(clocks[0], one.take([money(1, 100)])), { index: 0 }, 'the other one is awaited')
  t.equal(await waitFor(clocks[0], one.take([other(300)])), null, 'which does not matter here')
  // Neither is in the ledger yet.
  one.settle(third, [100])
  two.settle(fourth, [200])
  await beat(1)
  t.ok(await fits(clocks[0], one, 10))
  t.match(await waitFor(clocks[1], two.take([other(391)])), { total: 610 })
})

t.test('a reply of several minutes that has just ended is recent spending', WITH_REDIS, async t => {
  const { unshipped, clocks, one, two, second, beat, ask } = await twoWithReservations(t)
  for (let seconds = 0; seconds < 90; seconds++) await beat(1)
  unshipped[1] = 50
  two.settle(second, [50])
  t.ok(await eventually(async () => Number(await ask('HGET', 'test:usd/k', 's')) === 60, PATIENCE_MS))
  await ask('DEL', 'test:usd/k')
  t.match(await waitFor(clocks[0], one.take([money(1, 100)])), { index: 0 }, 'the other one is awaited')
  await beat(1)
  t.ok(await fits(clocks[0], one, 10))
  t.match(await waitFor(clocks[0], one.take([money(1, 100)])), { total: 100 })
})

t.test('a second loss on the way back makes nobody keep to a share', WITH_REDIS, async t => {
  const { ledgers, clocks, one, two, second, beat, ask } = await twoWithReservations(t)
  const gate = gated(ledgers[0])
  await ask('FLUSHALL')
  const asking = one.take([money(50, 100)])
  t.ok(await gate.begun())
  await ask('FLUSHALL')
  gate.open()
  t.match(await waitFor(clocks[0], asking), { index: 0 }, 'the other one has not said what it has reserved')
  await beat(1)
  t.ok(await fits(clocks[0], one, 10))
  t.match(await waitFor(clocks[0], one.take([money(1, 100)])), { total: 100 })
  two.settle(second, [0])
  t.ok(await fits(clocks[0], one, 50))
})

t.test('after a loss the ledger is read for a few counters at a time', WITH_REDIS, async t => {
  const redis = await ownRedis(t)
  await redis.start()
  const books = newBooks(10)
  const clock = new TestClock()
  const one = instance(t, redis, books, { clock, aliveMs: ALIVE_MS })
  t.ok(await ready(one))
  const entries = Array.from({ length: 20 }, (_, at) => money(1, 100, `usd/${at}`))
  for (const entry of entries) t.equal(await one.take([entry]), null)
  const ask = await operator(t, redis)
  await ask('FLUSHALL')
  const before = books.reads
  const gate = gated(books)
  clock.advance(1_000)
  t.ok(await gate.begun())
  await turns(100)
  t.equal(books.reads - before, 3, 'so that requests find a connection')
  gate.open()
  t.ok(await eventually(async () => Number(await ask('EXISTS', 'test:awaited-until')) === 0, PATIENCE_MS))
  for (const entry of entries) t.equal(await waitFor(clock, one.take([entry])), null)
})

t.test('Redis restarts empty: both write again what they have reserved', WITH_REDIS, async t => {
  const { redis, clocks, one, two, first, second } = await twoWithReservations(t)
  await redis.kill()
  t.ok(await eventually(() => one.degraded && two.degraded, PATIENCE_MS))
  await redis.start()
  const back = async (): Promise<boolean> => {
    for (const clock of clocks) clock.advance(1_000)
    await turns(5)
    return !one.degraded && !two.degraded
  }
  t.ok(await eventually(back, PATIENCE_MS))
  const full = async (each: Instance, at: 0 | 1) =>
    (await waitFor(clocks[at], each.take([money(11, 100)])))?.total === 90
  t.ok(await eventually(() => full(one, 0), PATIENCE_MS), 'ten are left')
  t.ok(await eventually(() => full(two, 1), PATIENCE_MS))
  one.settle(first, [0])
  two.settle(second, [0])
  t.ok(await fits(clocks[0], one, 90))
})

t.test('commands that a hanging Redis reads late change nothing', WITH_REDIS, async t => {
  const redis = await ownRedis(t)
  await redis.start()
  const books = newBooks()
  const clock = new TestClock()
  const one = instance(t, redis, books, { clock, silenceMs: SILENCE_MS })
  t.ok(await ready(one))
  const first = [money(10, 100)]
  t.equal(await one.take(first), null)
  redis.freeze()
  const late = [money(20, 100)]
  const taking = one.take(late)
  one.settle(first, [4])
  // The connection is given up, and its commands are read when Redis goes on.
  for (let step = 0; step < 40; step++) {
    clock.advance(50)
    await turns(2)
  }
  t.equal(await taking, null, 'by the share')
  t.ok(one.degraded)
  books.spent = 4
  redis.thaw()
  const back = async (): Promise<boolean> => {
    clock.advance(1_000)
    await turns(5)
    return !one.degraded
  }
  t.ok(await eventually(back, PATIENCE_MS))
  const exact = async (): Promise<boolean> => (await waitFor(clock, one.take([money(77, 100)])))?.total === 24
  t.ok(await eventually(exact, PATIENCE_MS), '4 are spent and 20 reserved')
  one.settle(late, [0])
  t.ok(await fits(clock, one, 96))
})

t.test('no message repeats the password of the URL', WITH_REDIS, async t => {
  const lines: unknown[] = []
  const counters = new SharedCounters({
    redis: { url: 'redis://user:secret-word@127.0.0.1:1/0', prefix: 'x' },
    nodes: 1,
    clock: systemClock,
    log: { fault: (...line) => void lines.push(...line), notice: (...line) => void lines.push(...line) },
    spending: { sum: async () => 0, credits: async () => 0 },
  })
  t.teardown(() => counters.close())
  t.ok(await eventually(() => lines.length > 0, PATIENCE_MS))
  t.notMatch(JSON.stringify(lines.map(line => (line instanceof Error ? line.message : line))), 'secret-word')
})

/** A request that runs. */
const place = (ceiling: number): CounterEntry => ({
  id: 'parallel/k',
  amount: 1,
  ceiling,
  origin: null,
  endsMs: Number.POSITIVE_INFINITY,
})

t.test(
  'requests at once are counted over instances, and after Redis has lost its data',
  WITH_REDIS,
  async t => {
    const redis = await ownRedis(t)
    await redis.start()
    const [one, two] = [instance(t, redis, newBooks()), instance(t, redis, newBooks())]
    const ask = await operator(t, redis)
    t.ok(await ready(one, two))
    const running = [place(3)]
    t.equal(await one.take(running), null)
    t.equal(await two.take([place(3)]), null)
    t.equal(await two.take([place(3)]), null)
    t.match(await one.take([place(3)]), { total: 3, ceiling: 3 })
    await ask('FLUSHALL')
    const isBack = async () => Number(await ask('EXISTS', 'test:parallel/k')) === 1
    t.ok(await eventually(isBack, PATIENCE_MS))
    const isWhole = async () =>
      ((await ask('HVALS', 'test:parallel/k')) as string[]).reduce((sum, each) => sum + Number(each), 0) === 3
    t.ok(await eventually(isWhole, PATIENCE_MS), 'each instance tells again what runs')
    t.match(await one.take([place(3)]), { total: 3, ceiling: 3 })
    one.settle(running, [0])
    t.equal(await two.take([place(3)]), null, 'the place of a request that ended is free everywhere')
  },
)

t.test('the places of an instance that died are free', WITH_REDIS, async t => {
  const redis = await ownRedis(t)
  await redis.start()
  const ask = await operator(t, redis)
  const [one, two] = [instance(t, redis, newBooks()), instance(t, redis, newBooks())]
  t.ok(await ready(one, two))
  t.equal(await one.take([place(1)]), null)
  t.match(await two.take([place(1)]), { total: 1 })
  await one.close()
  t.equal(await two.take([place(1)]), null)
  t.equal(Number(await ask('HLEN', 'test:parallel/k')), 1)
})
