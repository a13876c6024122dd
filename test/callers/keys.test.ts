import t, { type Test } from 'tap'
import { GatewayError } from '../../src/base/errors.ts'
import { createKey, createSecret, generateKey } from '../../src/callers/api-key.ts'
import { ApiKeys, type ApiKeysOptions } from '../../src/callers/keys.ts'
import type { KeyRecord } from '../../src/protocol/management/keys.ts'
import { openStore } from '../../src/storage/open.ts'
import type { Store } from '../../src/storage/store.ts'
import { TestClock } from '../support/test-clock.ts'

interface Setup {
  readonly ring: ApiKeys
  readonly clock: TestClock
  readonly keys: Store['keys']
  /** How often the store was asked. */
  asked(): number
  /** From now on the store fails, never answers, or works. */
  store: 'works' | 'fails' | 'hangs'
  readonly log: string[]
}

/** A ring on a real store whose `find` can be made to fail. */
async function setup(test: Test, settings: Partial<ApiKeysOptions> = {}): Promise<Setup> {
  const store = await openStore('sqlite::memory:')
  test.teardown(() => store.close())
  const clock = new TestClock()
  let asked = 0
  const log: string[] = []
  const find = async (hash: string): Promise<KeyRecord | null> => {
    asked++
    if (state.store === 'fails') throw new Error('database is away: secret-detail')
    if (state.store === 'hangs') return new Promise(() => undefined)
    return store.keys.find(hash)
  }
  const ring = new ApiKeys({
    store: { keys: { ...store.keys, find } },
    clock,
    log: { fault: (_, message) => log.push(message), notice: (_, message) => log.push(message) },
    ...settings,
  })
  const state: Setup = { ring, clock, keys: store.keys, asked: () => asked, store: 'works', log }
  return state
}

async function added(
  { keys, clock }: Setup,
  fields: Partial<KeyRecord> = {},
): Promise<{ key: string; record: KeyRecord }> {
  const { key, record } = createKey({ kind: 'inference', name: 'k', clock })
  const full = { ...record, ...fields }
  await keys.add(full)
  return { key, record: full }
}

/** How an attempt ended: the record, or code and message of the error, thrown or rejected. */
async function attempt(ring: ApiKeys, authorization: string | undefined): Promise<KeyRecord | string> {
  try {
    return await ring.authenticate(authorization)
  } catch (error) {
    if (!(error instanceof GatewayError)) throw error
    return `${error.code}: ${error.message}`
  }
}

const INVALID = 'authentication: Invalid API key'
const AWAY = "store_unavailable: The gateway's database is currently unavailable; try again"

t.test('a key is looked up once and then known without waiting', async t => {
  const s = await setup(t)
  const { key, record } = await added(s)
  const first = s.ring.authenticate(`Bearer ${key}`)
  t.type(first, Promise)
  t.same(await first, record)
  for (const scheme of ['Bearer', 'bearer', 'BEARER']) {
    t.same(s.ring.authenticate(`${scheme} ${key}`), record, 'synchronously')
  }
  t.equal(s.asked(), 1)
})

t.test('only the strict form is looked up', async t => {
  const s = await setup(t)
  const { key } = await added(s)
  t.equal(await attempt(s.ring, undefined), 'authentication: Missing Authentication header')
  t.equal(await attempt(s.ring, ''), 'authentication: Missing Authentication header')
  const odd = [
    key,
    `Bearer  ${key}`,
    `Bearer\t${key}`,
    ` Bearer ${key}`,
    `Bearer ${key} `,
    `Bearer ${key},Bearer ${key}`,
    `Bearer ${key}\u0000`,
    `Bearer "${key}"`,
    `Basic ${key}`,
    `Bearer`,
    'Bearer ',
    `Bearer ${key.toUpperCase()}`,
    `Bearer ${key.slice(0, -1)}`,
    `Bearer sk-gw-v1-${"' OR 1=1 --".padEnd(64, 'a')}`,
    `Bearer ${'a'.repeat(8192)}`,
    `Bearer sk-gw-v1-${'é'.repeat(64)}`,
    '__proto__',
  ]
  for (const text of odd) t.equal(await attempt(s.ring, text), INVALID, JSON.stringify(text.slice(0, 40)))
  t.equal(s.asked(), 0)
})

t.test('ten thousand malformed headers are 401 and never reach the store', async t => {
  const s = await setup(t)
  let random = 1
  for (let round = 0; round < 10_000; round++) {
    let text = round % 2 === 0 ? 'Bearer sk-gw-v1-' : ''
    for (let at = 0; at < 1 + (round % 90); at++) {
      random = (random * 48271) % 2147483647
      text += String.fromCharCode(random % 256)
    }
    const ended = await attempt(s.ring, text)
    if (ended !== INVALID) t.fail(`${JSON.stringify(text)}: ${String(ended)}`)
  }
  t.equal(s.asked(), 0)
})

t.test('requests that come together share one look-up', async t => {
  const s = await setup(t)
  const { key, record } = await added(s)
  const all = await Promise.all(Array.from({ length: 100 }, () => attempt(s.ring, `Bearer ${key}`)))
  t.ok(all.every(result => typeof result === 'object' && result.hash === record.hash))
  const unknownKey = `Bearer ${generateKey('inference')}`
  const refused = await Promise.all(Array.from({ length: 100 }, () => attempt(s.ring, unknownKey)))
  t.ok(refused.every(result => result === INVALID))
  t.equal(s.asked(), 2)
})

t.test('an unknown key is remembered for a short while', async t => {
  const s = await setup(t)
  const { key, record } = createKey({ kind: 'inference', name: 'late', clock: s.clock })
  t.equal(await attempt(s.ring, `Bearer ${key}`), INVALID)
  await s.keys.add(record)
  s.clock.advance(4_999)
  t.equal(await attempt(s.ring, `Bearer ${key}`), INVALID)
  t.equal(s.asked(), 1)
  s.clock.advance(1)
  t.same(await attempt(s.ring, `Bearer ${key}`), record)
})

t.test('a key that was made or changed here counts at once', async t => {
  const s = await setup(t)
  const { key, record } = createKey({ kind: 'inference', name: 'late', clock: s.clock })
  await attempt(s.ring, `Bearer ${key}`)
  await s.keys.add(record)
  s.ring.invalidate(record.hash)
  t.same(await attempt(s.ring, `Bearer ${key}`), record)
})

t.test('a look-up that began before a change does not bring the old state back', async t => {
  const s = await setup(t)
  const { key, record } = createKey({ kind: 'inference', name: 'late', clock: s.clock })
  const early = attempt(s.ring, `Bearer ${key}`)
  s.ring.invalidate(record.hash)
  t.equal(await early, INVALID)
  await s.keys.add(record)
  t.same(await attempt(s.ring, `Bearer ${key}`), record)
})

t.test('disabled and expired keys are 401, also when the time comes while they are cached', async t => {
  const s = await setup(t)
  const disabled = await added(s, { disabled: true })
  const ended = 'authentication: This API key is disabled'
  t.equal(await attempt(s.ring, `Bearer ${disabled.key}`), ended)
  t.equal(await attempt(s.ring, `Bearer ${disabled.key}`), ended)
  const short = await added(s, { expiresAt: new Date(s.clock.nowMs() + 10_000).toISOString() })
  t.type(await attempt(s.ring, `Bearer ${short.key}`), 'object')
  s.clock.advance(9_999)
  t.type(await attempt(s.ring, `Bearer ${short.key}`), 'object')
  s.clock.advance(1)
  t.equal(await attempt(s.ring, `Bearer ${short.key}`), 'authentication: This API key has expired')
  const odd = await added(s, { expiresAt: 'whenever' })
  t.match(
    await attempt(s.ring, `Bearer ${odd.key}`),
    /expired/,
    'a date that cannot be read counts as passed',
  )
})

t.test('a key is confirmed again after its time', async t => {
  const s = await setup(t)
  const { key } = await added(s)
  await attempt(s.ring, `Bearer ${key}`)
  s.clock.advance(29_999)
  await attempt(s.ring, `Bearer ${key}`)
  t.equal(s.asked(), 1)
  s.clock.advance(1)
  await attempt(s.ring, `Bearer ${key}`)
  t.equal(s.asked(), 2)
})

t.test('a failing store is 503 for the unknown and nothing for the known', async t => {
  const s = await setup(t)
  const { key, record } = await added(s)
  await attempt(s.ring, `Bearer ${key}`)
  s.store = 'fails'
  const stranger = generateKey('inference')
  for (let round = 0; round < 3; round++) t.equal(await attempt(s.ring, `Bearer ${stranger}`), AWAY)
  s.clock.advance(30_000)
  t.same(await attempt(s.ring, `Bearer ${key}`), record)
  const before = s.asked()
  t.same(s.ring.authenticate(`Bearer ${key}`), record, 'synchronously again, without asking each time')
  t.equal(s.asked(), before)
  s.clock.advance(599_999)
  t.same(s.ring.authenticate(`Bearer ${key}`), record)
  await new Promise(resolve => setImmediate(resolve))
  t.equal(s.asked(), before + 1, 'asked for the next one')
  s.clock.advance(1)
  t.equal(await attempt(s.ring, `Bearer ${key}`), AWAY, 'known for too long without confirmation')
  s.store = 'works'
  t.same(await attempt(s.ring, `Bearer ${key}`), record)
  t.equal(await attempt(s.ring, `Bearer ${stranger}`), INVALID)
  t.same(
    s.log,
    ['cannot read API keys from the store', 'API keys can be read from the store again'],
    'one line each',
  )
})

t.test('a store that never answers is 503 in time', async t => {
  const s = await setup(t)
  const { key, record } = await added(s)
  await attempt(s.ring, `Bearer ${key}`)
  s.store = 'hangs'
  const stranger = attempt(s.ring, `Bearer ${generateKey('inference')}`)
  s.clock.advance(2_000)
  t.equal(await stranger, AWAY)
  s.clock.advance(28_000)
  const again = attempt(s.ring, `Bearer ${key}`)
  s.clock.advance(2_000)
  t.same(await again, record)
  const before = s.asked()
  for (let round = 1; round < 4; round++) {
    s.clock.advance(1_000)
    for (let n = 0; n < 3; n++) {
      t.same(s.ring.authenticate(`Bearer ${key}`), record, 'nobody waits a second time')
    }
    t.equal(s.asked(), before + round, 'but it is asked')
    s.clock.advance(2_000)
    await new Promise(resolve => setImmediate(resolve))
  }
  s.ring.invalidateAll()
  const doubted = attempt(s.ring, `Bearer ${key}`)
  t.equal(s.asked(), before + 4, 'unless something may have changed')
  s.clock.advance(2_000)
  t.same(await doubted, record)
  t.equal(s.clock.armed, 0, 'no timer stays behind')
})

t.test('look-ups, known and unknown keys are bounded', async t => {
  const s = await setup(t, { maxKeys: 2, maxUnknown: 2, maxLookups: 3 })
  const mine = [await added(s), await added(s), await added(s)]
  for (const { key } of mine) await attempt(s.ring, `Bearer ${key}`)
  t.equal(s.asked(), 3)
  await attempt(s.ring, `Bearer ${mine[0]?.key}`)
  t.equal(s.asked(), 4, 'the oldest one had to go')
  for (let round = 0; round < 10; round++) await attempt(s.ring, `Bearer ${generateKey('inference')}`)
  const before = s.asked()
  await attempt(s.ring, `Bearer ${mine[0]?.key}`)
  t.equal(s.asked(), before, 'guessing pushes no known key out')
  s.store = 'hangs'
  const waiting = Array.from({ length: 3 }, () => attempt(s.ring, `Bearer ${generateKey('inference')}`))
  t.equal(await attempt(s.ring, `Bearer ${generateKey('inference')}`), AWAY)
  t.equal(s.asked(), before + 3)
  s.clock.advance(2_000)
  t.same(await Promise.all(waiting), [AWAY, AWAY, AWAY])
})

t.test(
  'when word may have been missed every key is read anew, and goes on while the store fails',
  async t => {
    const s = await setup(t)
    const { key, record } = createKey({ kind: 'inference', name: 'x', clock: s.clock })
    await s.keys.add(record)
    await s.ring.authenticate(`Bearer ${key}`)
    await s.ring.authenticate(`Bearer ${key}`)
    t.equal(s.asked(), 1)
    s.ring.invalidateAll()
    await s.ring.authenticate(`Bearer ${key}`)
    t.equal(s.asked(), 2)
    s.ring.invalidateAll()
    s.store = 'fails'
    t.equal((await s.ring.authenticate(`Bearer ${key}`)).hash, record.hash)
    const unknown = generateKey('inference')
    s.store = 'works'
    await t.rejects(Promise.resolve(s.ring.authenticate(`Bearer ${unknown}`)))
    const asked = s.asked()
    s.ring.invalidateAll()
    await t.rejects(Promise.resolve(s.ring.authenticate(`Bearer ${unknown}`)))
    t.equal(s.asked(), asked + 1, 'unknown ones too')
  },
)

/** Gives a key one more secret; the older ones end after the overlap. */
async function rotated({ keys, ring, clock }: Setup, hash: string, overlapMs: number): Promise<string> {
  const { key, secret } = createSecret('inference', clock)
  const endsAt = new Date(clock.nowMs() + overlapMs).toISOString()
  await keys.rotate('org_default', hash, secret, endsAt, 10)
  ring.invalidate(hash)
  return key
}

const ENDED =
  'authentication: This is the old secret of a rotated API key, and it has expired; use the new secret'

t.test('a rotated key is one key by each of its secrets, until each has ended', async t => {
  const s = await setup(t)
  const { key, record } = await added(s)
  await attempt(s.ring, `Bearer ${key}`)
  const next = await rotated(s, record.hash, 60_000)
  const [old, fresh] = [await attempt(s.ring, `Bearer ${key}`), await attempt(s.ring, `Bearer ${next}`)]
  t.match(old, { hash: record.hash, label: record.label, secretExpiresAt: /^2/ })
  t.match(fresh, { hash: record.hash, secretExpiresAt: null })
  t.not((fresh as KeyRecord).label, record.label, 'each secret is known by its label')
  const asked = s.asked()
  s.clock.advance(20_000)
  await attempt(s.ring, `Bearer ${key}`)
  await attempt(s.ring, `Bearer ${next}`)
  t.equal(s.asked(), asked, 'both are cached')
  s.clock.advance(40_000)
  t.equal(await attempt(s.ring, `Bearer ${key}`), ENDED, 'also while it is cached')
  t.type(await attempt(s.ring, `Bearer ${next}`), 'object')
  t.match(await s.ring.find(record.hash), { hash: record.hash }, 'what is stored by its name goes on')
})

t.test('a change of a key is seen by each of its secrets', async t => {
  const s = await setup(t)
  const { key, record } = await added(s)
  const later = [await rotated(s, record.hash, 60_000), await rotated(s, record.hash, 60_000)]
  for (const each of [key, ...later]) t.type(await attempt(s.ring, `Bearer ${each}`), 'object')
  await s.keys.change('org_default', record.hash, { disabled: true }, record.updatedAt)
  s.ring.invalidate(record.hash)
  for (const each of [key, ...later])
    t.equal(await attempt(s.ring, `Bearer ${each}`), 'authentication: This API key is disabled')
  await s.keys.change('org_default', record.hash, { disabled: false }, record.updatedAt)
  s.ring.invalidate(record.hash)
  const slow = attempt(s.ring, `Bearer ${later[0]}`)
  const last = await rotated(s, record.hash, 0)
  await slow
  for (const each of [key, ...later]) t.equal(await attempt(s.ring, `Bearer ${each}`), ENDED)
  t.type(await attempt(s.ring, `Bearer ${last}`), 'object')
  await s.keys.remove('org_default', record.hash)
  s.ring.invalidate(record.hash)
  for (const each of [key, ...later, last]) t.equal(await attempt(s.ring, `Bearer ${each}`), INVALID)
})
