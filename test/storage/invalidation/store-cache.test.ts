import t from 'tap'
import { GatewayError } from '../../../src/base/errors.ts'
import { StoreCache, type StoreCacheOptions } from '../../../src/storage/invalidation/store-cache.ts'
import { TestClock } from '../../support/test-clock.ts'

type Settings = StoreCacheOptions<string, string | null>

/** Words in capitals; there is no thing `none`, and `odd` cannot be made into anything. */
function make(found: string): string | null {
  if (found === 'odd') throw new Error('cannot be made')
  return found === 'none' ? null : found.toUpperCase()
}

function setup(settings: Partial<Settings> = {}) {
  const clock = new TestClock()
  const log: string[] = []
  const learned: string[] = []
  const cache = new StoreCache<string, string | null>({
    clock,
    log: { fault: (_, message) => log.push(message), notice: (_, message) => log.push(message) },
    plural: 'words',
    maxEntries: 10,
    make,
    onLoad: (name, value) => learned.push(`${name}: ${value}`),
    ...settings,
  })
  return { cache, clock, log, learned }
}

const says = (word: string) => async () => word
const fails = async (): Promise<string> => {
  throw new Error('database is away: secret-detail')
}

/** Would be seen in what is said, or in the log. */
const unasked = async (): Promise<string> => {
  throw new Error('the store was asked')
}

/** What was said, `at once` when no promise was needed; or how it was refused. */
async function said(answer: string | null | Promise<string | null>): Promise<string> {
  try {
    return `${answer instanceof Promise ? '' : 'at once: '}${await answer}`
  } catch (error) {
    return error instanceof GatewayError ? error.code : String(error)
  }
}

t.test('what is fresh needs no question, and what is known can be had however old', async t => {
  const { cache, clock } = setup({ freshMs: 1000 })
  t.same([cache.get('a'), cache.peek('a')], [undefined, undefined])
  t.equal(await said(cache.load('a', says('x'))), 'X')
  t.equal(clock.armed, 0, 'no timer stays behind')
  clock.advance(999)
  t.same([cache.get('a'), cache.peek('a')], ['X', 'X'])
  clock.advance(1)
  t.same([cache.get('a'), cache.peek('a')], [undefined, 'X'])
  clock.advance(86_400_000)
  t.equal(cache.peek('a'), 'X')
})

t.test('where too many wait for the store, a known name goes on with its last value', async t => {
  const { cache, clock, log } = setup({ freshMs: 1000, maxLookups: 1 })
  await cache.load('a', says('x'))
  clock.advance(1000)
  const { promise, resolve } = Promise.withResolvers<string>()
  const waiting = said(cache.load('b', () => promise))
  t.equal(await said(cache.load('a', unasked)), 'X')
  t.equal(cache.get('a'), 'X', 'for the next second')
  t.equal(await said(cache.load('c', unasked)), 'store_unavailable')
  t.same(log, [], 'the store is not away')
  cache.invalidate('b')
  t.equal(await said(cache.load('c', unasked)), 'store_unavailable', 'who was forgotten still waits')
  resolve('y')
  t.equal(await waiting, 'Y')
  t.equal(await said(cache.load('c', says('z'))), 'Z')
})

t.test('what is no longer there is not kept, and does not come back when the store fails', async t => {
  const { cache, clock, learned } = setup({ freshMs: 1000 })
  await cache.load('a', says('x'))
  clock.advance(1000)
  t.equal(await said(cache.load('a', says('none'))), 'null')
  t.equal(cache.peek('a'), undefined)
  t.equal(await said(cache.load('a', fails)), 'store_unavailable')
  t.same(learned, ['a: X', 'a: null'])
})

t.test('what was read for a forgotten or doubted name is answered, but neither kept nor told', async t => {
  const { cache, learned } = setup()
  const drops: Readonly<Record<string, () => void>> = {
    'the name was forgotten': () => cache.invalidate('a'),
    'all of its owner were': () => cache.invalidateOwner('me'),
    'all were doubted': () => cache.invalidateAll(),
  }
  for (const [why, drop] of Object.entries(drops)) {
    for (const word of ['x', 'none']) {
      const { promise, resolve } = Promise.withResolvers<string>()
      const early = said(cache.load('a', () => promise, 'me'))
      drop()
      resolve(word)
      t.equal(await early, String(make(word)), why)
      t.same([cache.peek('a'), learned], [undefined, []], why)
    }
  }
})

t.test('what others own is neither forgotten nor read for nothing', async t => {
  const { cache } = setup()
  await cache.load('a', says('x'), 'me')
  const running = said(cache.load('b', says('y'), 'me'))
  const unowned = said(cache.load('c', says('z')))
  cache.invalidateOwner('you')
  t.same([await running, await unowned], ['Y', 'Z'])
  t.same(
    ['a', 'b', 'c'].map(name => cache.get(name)),
    ['X', 'Y', 'Z'],
  )
})

t.test('after a doubt the store is waited for again, though it failed just now', async t => {
  const { cache, clock } = setup({ freshMs: 1000 })
  await cache.load('a', says('x'))
  clock.advance(1000)
  await cache.load('a', fails)
  cache.invalidateAll()
  t.equal(cache.get('a'), undefined)
  t.equal(await said(cache.load('a', says('y'))), 'Y')
})

t.test('a question of before a change does not end the one of after it', async t => {
  const { cache } = setup()
  const early = said(cache.load('a', says('x')))
  cache.invalidate('a')
  const { promise, resolve } = Promise.withResolvers<string>()
  const late = said(cache.load('a', () => promise))
  t.equal(await early, 'X')
  const joined = said(cache.load('a', unasked))
  resolve('y')
  t.same([await late, await joined, cache.get('a')], ['Y', 'Y', 'Y'])
})

t.test('an answer that comes after its time changes nothing', async t => {
  const { cache, clock, learned } = setup({ lookupMs: 500 })
  const { promise, resolve } = Promise.withResolvers<string>()
  const waiting = said(cache.load('a', () => promise))
  clock.advance(500)
  t.equal(await waiting, 'store_unavailable')
  resolve('x')
  await new Promise(done => setImmediate(done))
  t.same([cache.peek('a'), learned, clock.armed], [undefined, [], 0])
})

t.test('an answer that cannot be used is no outage, and leaves what was known', async t => {
  const { cache, clock, log } = setup({ freshMs: 1000 })
  await cache.load('a', says('x'))
  clock.advance(1000)
  t.equal(await said(cache.load('a', says('odd'))), 'Error: cannot be made')
  t.same([cache.get('a'), cache.peek('a')], [undefined, 'X'])
  t.equal(await said(cache.load('a', says('y'))), 'Y')
  t.same(log, [])
})

t.test('an outage is one line for all names, and so is its end', async t => {
  const { cache, clock, log } = setup({ freshMs: 1000 })
  await cache.load('a', says('x'))
  for (let outage = 0; outage < 2; outage++) {
    clock.advance(1000)
    t.equal(await said(cache.load('b', fails)), 'store_unavailable')
    t.equal(await said(cache.load('a', fails)), 'X')
    clock.advance(1000)
    t.equal(await said(cache.load('a', says('x'))), 'at once: X', 'the store is asked behind it')
    await new Promise(done => setImmediate(done))
    t.equal(cache.get('a'), 'X')
  }
  const [away, back] = ['cannot read words from the store', 'words can be read from the store again']
  t.same(log, [away, back, away, back])
})
