/** Opened keys in memory: their bounds in number, bytes and time, and that no old one comes back. */
import fc from 'fast-check'
import t from 'tap'
import { GatewayError } from '../../../src/base/errors.ts'
import { createMetrics, type Metrics } from '../../../src/base/metrics/metrics.ts'
import { CREDENTIAL_EVICTIONS } from '../../../src/base/metrics/table.ts'
import {
  type CredentialRef,
  DecryptedKeys,
  type DecryptedKeysOptions,
} from '../../../src/providers/credentials/decrypted-keys.ts'
import type { ProviderKey } from '../../../src/providers/credentials/parse/provider-key.ts'
import { createVault, ownerOf, type Vault } from '../../../src/providers/credentials/vault.ts'
import type { CredentialRecord } from '../../../src/storage/store.ts'
import { someCredential, someVaultKey } from '../../support/own-keys.ts'
import { TestClock } from '../../support/test-clock.ts'

const vault = createVault([someVaultKey('k1')])

interface Setup {
  readonly cache: DecryptedKeys
  readonly clock: TestClock
  readonly metrics: Metrics
  /** What the store holds. */
  readonly rows: Map<string, CredentialRecord>
  /** Adds a credential of this key; gives it back without its sealed form. */
  add(key: string, fields?: Partial<CredentialRecord>): CredentialRef
  /** How often the store was asked. */
  asked(): number
  /** Every buffer that the vault has handed out. */
  readonly opened: Buffer[]
  /** From now on the store works, fails, or answers only when told to. */
  store: 'works' | 'fails' | 'waits'
  /** Answers all who wait: each with what was there when it asked. */
  answer(): void
}

function setup(settings: Partial<DecryptedKeysOptions> = {}): Setup {
  const clock = new TestClock()
  const metrics = createMetrics()
  const rows = new Map<string, CredentialRecord>()
  const opened: Buffer[] = []
  const waiting: (() => void)[] = []
  let asked = 0
  const find = async (organizationId: string, id: string): Promise<CredentialRecord | null> => {
    asked++
    if (state.store === 'fails') throw new Error('database is away: canary-detail')
    const row = rows.get(id)
    const found = row?.organizationId === organizationId ? row : null
    if (state.store === 'waits') await new Promise<void>(resolve => waiting.push(resolve))
    return found
  }
  const watched: Pick<Vault, 'open'> = {
    open(sealed, owner) {
      const secret = vault.open(sealed, owner)
      opened.push(secret)
      return secret
    },
  }
  const state: Setup = {
    cache: new DecryptedKeys({
      store: { credentials: { find } },
      vault: watched,
      clock,
      metrics,
      ...settings,
    }),
    clock,
    metrics,
    rows,
    add(key, fields) {
      const record = someCredential(vault, key, fields)
      rows.set(record.id, record)
      return bare(record)
    },
    asked: () => asked,
    opened,
    store: 'works',
    answer: () => {
      for (const go of waiting.splice(0)) go()
    },
  }
  return state
}

function bare({ sealed: _, ...record }: CredentialRecord): CredentialRef {
  return record
}

/** The plain key, or code and message of the refusal. */
async function keyOf(cache: DecryptedKeys, credential: CredentialRef): Promise<string> {
  try {
    return apiKey(await cache.open(credential))
  } catch (error) {
    if (!(error instanceof GatewayError)) throw error
    return `${error.code}: ${error.message}`
  }
}

function apiKey(key: ProviderKey): string {
  return key.kind === 'plain' ? key.apiKey : key.kind
}

/** Lets everything that is ready run. */
const settled = () => new Promise(resolve => setImmediate(resolve))

async function evicted({ metrics }: Setup): Promise<Record<string, number>> {
  const { values } = await metrics.credentialEvictions.get()
  const zeros = Object.fromEntries(CREDENTIAL_EVICTIONS.map(reason => [reason, 0]))
  return { ...zeros, ...Object.fromEntries(values.map(({ labels, value }) => [labels.reason, value])) }
}
const read = async (metric: { get(): Promise<{ values: { value: number }[] }> }) =>
  (await metric.get()).values[0]?.value ?? 0

const GONE = 'provider_unavailable: The stored credential for this provider no longer exists or is disabled'
const brokenOf = (provider: string) =>
  `credential_unreadable: The workspace's stored credential for ${provider} cannot be opened; enter its key again, or disable it`
const BROKEN = brokenOf('anthropic')
const AWAY = "store_unavailable: The gateway's database is currently unavailable; try again"

t.test('a key is read and opened once, then answered at once', async t => {
  const { cache, add, asked, metrics, opened } = setup()
  const credential = add('sk-ant-1')
  const first = cache.open(credential)
  t.ok(first instanceof Promise)
  t.match(await first, { kind: 'plain', apiKey: 'sk-ant-1' })
  const second = cache.open(credential)
  t.notOk(second instanceof Promise, 'synchronously')
  t.equal(second, await first)
  t.equal(asked(), 1)
  t.equal(opened.length, 1)
  t.same([await read(metrics.credentialHits), await read(metrics.credentialMisses)], [1, 1])
  t.equal(await read(metrics.credentialEntries), 1)
  t.ok((await read(metrics.credentialBytes)) > 100)
})

t.test('with the sealed form given the store is not asked', async t => {
  const { cache, rows, add, asked } = setup()
  const { id } = add('sk-ant-1')
  const record = rows.get(id)
  if (record === undefined) throw new Error('no record')
  for (let n = 0; n < 3; n++) {
    const key = cache.open(record)
    t.notOk(key instanceof Promise)
    t.match(key, { apiKey: 'sk-ant-1' })
  }
  t.equal(asked(), 0)
})

t.test('however many ask at once, the store is asked once', async t => {
  const state = setup()
  const { cache, add, asked, answer } = state
  const [one, two] = [add('key-1'), add('key-2')]
  state.store = 'waits'
  const all = [one, one, two, one, two].map(credential => keyOf(cache, credential))
  t.equal(asked(), 2)
  answer()
  t.same(await Promise.all(all), ['key-1', 'key-1', 'key-2', 'key-1', 'key-2'])
  t.equal(asked(), 2)
})

t.test('there are never more lookups than allowed; one more is told to come again', async t => {
  const state = setup({ maxLookups: 3 })
  const { cache, add, asked, answer } = state
  const credentials = Array.from({ length: 5 }, (_, n) => add(`key-${n}`))
  state.store = 'waits'
  const all = credentials.map(credential => keyOf(cache, credential))
  // Forgotten ones wait all the same.
  for (const { id } of credentials) cache.invalidate(id)
  const again = credentials.map(credential => keyOf(cache, credential))
  t.equal(asked(), 3)
  t.same(
    await Promise.all([...all.slice(3), ...again]),
    Array.from({ length: 7 }, () => 'service_unavailable: Service temporarily unavailable'),
  )
  const refused = await Promise.resolve(cache.open(add('key-5'))).catch(error => error as unknown)
  t.match(refused, { retryAfterSeconds: 1 })
  answer()
  t.same(await Promise.all(all.slice(0, 3)), ['key-0', 'key-1', 'key-2'])
  state.store = 'works'
  t.same(await Promise.all(credentials.slice(0, 3).map(credential => keyOf(cache, credential))), [
    'key-0',
    'key-1',
    'key-2',
  ])
})

t.test('a key that is forgotten while it is read does not come in', async t => {
  const state = setup()
  const { cache, rows, add, answer, asked } = state
  const credential = add('old')
  state.store = 'waits'
  const before = keyOf(cache, credential)
  rows.set(credential.id, someCredential(vault, 'new', { ...credential }))
  cache.invalidate(credential.id)
  const after = keyOf(cache, credential)
  t.equal(asked(), 2, 'who comes after the change does not wait for the old reading')
  answer()
  t.equal(await before, 'old')
  t.equal(await after, 'new')
  t.equal(await keyOf(cache, credential), 'new')
  t.equal(asked(), 2)
})

t.test('of two readings the one before the change never wins, in whatever order they end', async t => {
  const waiting: ((record: CredentialRecord) => void)[] = []
  const find = () => new Promise<CredentialRecord>(resolve => waiting.push(resolve))
  const { cache } = setup({ store: { credentials: { find } } })
  const old = someCredential(vault, 'old')
  const anew = someCredential(vault, 'new', bare(old))
  const first = keyOf(cache, bare(old))
  cache.invalidate(old.id)
  const second = keyOf(cache, bare(old))
  waiting[1]?.(anew)
  t.equal(await second, 'new')
  waiting[0]?.(old)
  t.equal(await first, 'old')
  t.equal(await keyOf(cache, bare(old)), 'new')
})

t.test('after everything is forgotten everything is read anew, what was being read too', async t => {
  const state = setup()
  const { cache, rows, add, answer, metrics } = state
  const [warm, cold] = [add('warm'), add('old')]
  await cache.open(warm)
  state.store = 'waits'
  const before = keyOf(cache, cold)
  rows.set(warm.id, someCredential(vault, 'warm-2', warm))
  rows.set(cold.id, someCredential(vault, 'new', cold))
  cache.invalidateAll()
  t.equal(await read(metrics.credentialEntries), 0)
  const after = [warm, cold].map(each => keyOf(cache, each))
  answer()
  t.equal(await before, 'old')
  t.same(await Promise.all(after), ['warm-2', 'new'])
  t.same([await keyOf(cache, warm), await keyOf(cache, cold)], ['warm-2', 'new'])
})

t.test('an old record in somebody’s hand does not bring its key back for others', async t => {
  const { cache, rows, add } = setup()
  const credential = add('old')
  const old = rows.get(credential.id)
  if (old === undefined) throw new Error('no record')
  const anew = someCredential(vault, 'new', credential)
  rows.set(credential.id, anew)
  cache.invalidate(credential.id)
  t.equal(await keyOf(cache, old), 'old', 'a request that began before the change')
  t.equal(await keyOf(cache, anew), 'new')
  t.equal(await keyOf(cache, old), 'old')
  t.equal(await keyOf(cache, credential), 'new', 'who brings no record gets what the store says')
  t.equal(await keyOf(cache, anew), 'new')
})

t.test('the same key wrapped anew is still the same key', async t => {
  const [k1, k2] = [someVaultKey('k1'), someVaultKey('k2')]
  const [before, after] = [createVault([k1]), createVault([k2, k1])]
  const { cache, metrics } = setup({ vault: after })
  const record = someCredential(before, 'sk-1')
  t.equal(await keyOf(cache, record), 'sk-1')
  t.equal(await keyOf(cache, { ...record, sealed: after.rewrap(record.sealed, ownerOf(record)) }), 'sk-1')
  t.equal(await read(metrics.credentialHits), 1)
})

t.test('nobody gets a key by its id alone', async t => {
  const state = setup()
  const { cache, add, rows, answer } = state
  const credential = add('sk-1')
  const others: Partial<CredentialRef>[] = [
    { organizationId: 'org_2' },
    { workspaceId: 'ws_2' },
    { provider: 'openai' },
  ]
  for (const warm of [false, true]) {
    if (warm) t.equal(await keyOf(cache, credential), 'sk-1')
    for (const other of others) {
      const broken = brokenOf(other.provider ?? credential.provider)
      const refused = 'organizationId' in other ? GONE : broken
      t.equal(await keyOf(cache, { ...credential, ...other }), refused)
      const record = rows.get(credential.id)
      t.equal(
        await keyOf(cache, { ...credential, ...other, ...(record && { sealed: record.sealed }) }),
        broken,
      )
    }
  }
  cache.invalidate(credential.id)
  state.store = 'waits'
  const both = [credential, { ...credential, organizationId: 'org_2' }].map(each => keyOf(cache, each))
  answer()
  t.same(await Promise.all(both), ['sk-1', GONE], 'not by waiting for somebody else’s reading either')
})

t.test('what is not there is asked for again each time', async t => {
  const { cache, add, rows, asked } = setup()
  const credential = add('sk-1')
  const record = rows.get(credential.id)
  rows.clear()
  t.equal(await keyOf(cache, credential), GONE)
  t.equal(await keyOf(cache, credential), GONE)
  if (record !== undefined) rows.set(record.id, { ...record, disabled: true })
  t.equal(await keyOf(cache, credential), GONE, 'a disabled one is not there either')
  if (record !== undefined) rows.set(record.id, record)
  t.equal(await keyOf(cache, credential), 'sk-1')
  t.equal(asked(), 4)
})

t.test('what does not open, or is no key, is told without a word of it, and not kept', async t => {
  const { cache, add, rows, opened, metrics } = setup()
  const credential = add('canary key with spaces')
  const failure = await Promise.resolve(cache.open(credential)).then(
    () => new Error('opened'),
    error => error as GatewayError,
  )
  t.match(failure, { code: 'credential_unreadable', retry: 'never' })
  t.notMatch(`${failure.message}${failure.stack}${String(failure.cause)}`, /canary/)
  t.equal(opened.length, 1)
  t.ok(
    opened[0]?.every(byte => byte === 0),
    'and zeroed',
  )
  const record = rows.get(credential.id)
  if (record !== undefined)
    rows.set(record.id, { ...record, sealed: { ...record.sealed, box: record.sealed.wrapped } })
  t.equal(await keyOf(cache, credential), BROKEN)
  t.equal(await read(metrics.credentialEntries), 0)
  const { values } = await metrics.credentialOpenFailures.get()
  t.same(Object.fromEntries(values.map(({ labels, value }) => [labels.reason, value])), {
    damaged: 1,
    invalid: 1,
  })
})

t.test('while the store is away, keys in memory go on and others are told to come again', async t => {
  const state = setup()
  const { cache, add, clock } = state
  const [warm, cold] = [add('warm'), add('cold')]
  t.equal(await keyOf(cache, warm), 'warm')
  state.store = 'fails'
  t.equal(await keyOf(cache, warm), 'warm')
  t.equal(await keyOf(cache, cold), AWAY)
  state.store = 'waits'
  const hanging = keyOf(cache, cold)
  clock.advance(2_000)
  t.equal(await hanging, AWAY, 'a store that says nothing is away too')
  state.store = 'works'
  t.equal(await keyOf(cache, cold), 'cold', 'nothing of the outage is remembered')
})

t.test('a key goes on for its time, to the millisecond, and no longer', async t => {
  for (const [ttlMs, keptMs] of [
    [undefined, 300_000],
    [60_000, 60_000],
    [86_400_000, 300_000],
  ] as const) {
    const { cache, add, clock, asked } = setup(ttlMs === undefined ? {} : { ttlMs })
    const credential = add('sk-1')
    await cache.open(credential)
    clock.advance(keptMs - 1)
    t.notOk(cache.open(credential) instanceof Promise)
    clock.advance(2)
    t.ok(cache.open(credential) instanceof Promise, 'use does not prolong it')
    await settled()
    t.equal(asked(), 2)
  }
})

t.test('an expired key that nobody asks for leaves memory within ten seconds', async t => {
  const state = setup({ ttlMs: 60_000 })
  const { cache, add, clock, metrics } = state
  await cache.open(add('sk-1'))
  t.equal(clock.armed, 1)
  clock.advance(59_000)
  t.equal(await read(metrics.credentialEntries), 1)
  clock.advance(11_000)
  t.equal(await read(metrics.credentialEntries), 0)
  t.equal(await read(metrics.credentialBytes), 0)
  t.match(await evicted(state), { expired: 1, capacity: 0 })
  t.equal(clock.armed, 0, 'an empty cache has no timer')
  const { values } = await metrics.credentialAge.get()
  const sum = values.find(({ metricName }) => metricName?.endsWith('_sum'))?.value ?? 0
  t.ok(sum > 60 && sum <= 70, `it was ${sum} s old`)
})

t.test('why a key leaves is counted', async t => {
  const state = setup({ maxEntries: 2 })
  const { cache, add, rows, clock } = state
  const [a, b, c] = [add('a'), add('b'), add('c')]
  for (const each of [a, b, c]) await cache.open(each)
  t.match(await evicted(state), { capacity: 1, expired: 0, forgotten: 0, replaced: 0 })
  cache.invalidate(c.id)
  cache.invalidate('unknown')
  t.match(await evicted(state), { capacity: 1, forgotten: 1 })
  const anew = someCredential(vault, 'b2', b)
  rows.set(b.id, anew)
  await cache.open(anew)
  t.match(await evicted(state), { replaced: 1 })
  cache.close()
  t.match(await evicted(state), { forgotten: 2 })
  t.equal(clock.armed, 0)
})

t.test('the least recently used key leaves first', async t => {
  const { cache, add } = setup({ maxEntries: 2 })
  const [a, b, c] = [add('a'), add('b'), add('c')]
  for (const each of [a, b, a, c]) await cache.open(each)
  t.notOk(cache.open(a) instanceof Promise)
  t.notOk(cache.open(c) instanceof Promise)
  t.ok(cache.open(b) instanceof Promise)
  await settled()
})

t.test('big keys push out by bytes, and one beyond the whole bound is not kept', async t => {
  const { cache, add, metrics } = setup({ maxBytes: 40_000 })
  const big = Array.from({ length: 10 }, () => add('x'.repeat(4_000)))
  for (const each of big) await cache.open(each)
  const entries = await read(metrics.credentialEntries)
  t.ok(entries > 1 && entries < 5, `${entries} entries`)
  const small = setup({ maxBytes: 2_000 })
  const credential = small.add('x'.repeat(4_000))
  t.equal((await keyOf(small.cache, credential)).length, 4_000)
  t.equal(await read(small.metrics.credentialEntries), 0)
  t.equal((await keyOf(small.cache, credential)).length, 4_000)
})

t.test('every buffer that the vault handed out is zeroed by the time the key is there', async t => {
  const { cache, add, rows, opened, clock } = setup({ maxEntries: 3 })
  for (let n = 0; n < 20; n++) {
    const credential = add(`sk-canary-${n}`)
    await cache.open(credential)
    const record = rows.get(credential.id)
    if (record !== undefined && n % 3 === 0) cache.invalidate(record.id)
    if (record !== undefined) cache.open(record)
    clock.advance(30_000)
  }
  t.ok(opened.length >= 20)
  t.ok(opened.every(buffer => buffer.length > 0 && buffer.every(byte => byte === 0)))
})

t.test('whatever happens, the bounds hold and nobody gets an old or foreign key', async t => {
  const IDS = 6
  const step = fc.oneof(
    fc.record({ kind: fc.constant('open' as const), which: fc.nat(IDS - 1), withRecord: fc.boolean() }),
    fc.record({ kind: fc.constant('change' as const), which: fc.nat(IDS - 1) }),
    fc.record({ kind: fc.constant('advance' as const), ms: fc.nat(90_000) }),
    fc.record({ kind: fc.constant('answer' as const) }),
  )
  const holds = fc.asyncProperty(fc.array(step, { maxLength: 40 }), async steps => {
    const state = setup({ maxEntries: 3, maxBytes: 4_000, ttlMs: 60_000, maxLookups: 4 })
    const { cache, rows, add, clock, metrics, answer } = state
    const credentials = Array.from({ length: IDS }, (_, n) => add(`key-${n}-0`))
    const versions = credentials.map(() => 0)
    const pending: Promise<void>[] = []
    state.store = 'waits'
    for (const each of steps) {
      if (each.kind === 'advance') clock.advance(each.ms)
      else if (each.kind === 'answer') {
        answer()
        await settled()
      } else {
        const { which } = each
        const credential = credentials[which]
        if (credential === undefined) continue
        if (each.kind === 'change') {
          const version = (versions[which] ?? 0) + 1
          versions[which] = version
          rows.set(credential.id, someCredential(vault, `key-${which}-${version}`, credential))
          cache.invalidate(credential.id)
        } else {
          const since = versions[which] ?? 0
          const record = each.withRecord ? rows.get(credential.id) : credential
          if (record === undefined) continue
          pending.push(
            keyOf(cache, record).then(key => {
              if (key === AWAY) return
              const [, owner, version] = key.split('-')
              if (Number(owner) !== which || Number(version) < since)
                throw new Error(`${key} for ${which}-${since}`)
            }),
          )
        }
      }
      if ((await read(metrics.credentialEntries)) > 3) throw new Error('too many')
      if ((await read(metrics.credentialBytes)) > 4_000) throw new Error('too big')
      if (state.opened.some(buffer => buffer.some(byte => byte !== 0))) throw new Error('not zeroed')
    }
    answer()
    await Promise.all(pending)
    cache.close()
  })
  await t.resolves(fc.assert(holds, { numRuns: 300, seed: 42 }))
})
