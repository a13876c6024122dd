/** What every Store must do, whatever database is behind it. */
import type { Test } from 'tap'
import type { KeyRecord, Store } from '../../src/storage/store.ts'
import { someUsage } from './usage.ts'

let made = 0

/** A key record unlike all others. */
export function someKey(fields: Partial<KeyRecord> = {}): KeyRecord {
  made++
  return {
    hash: made.toString(16).padStart(64, '0'),
    kind: 'inference',
    name: `key ${made}`,
    label: 'sk-gw-v1-abc...123',
    organizationId: 'org_1',
    workspaceId: 'ws_1',
    disabled: false,
    expiresAt: null,
    createdAt: '2026-01-01T00:00:00.000Z',
    updatedAt: '2026-01-01T00:00:00.000Z',
    ...fields,
  }
}

/** Runs the contract. `open` gives an empty Store; `close` is called by the contract. */
export async function storeContract(t: Test, open: () => Promise<Store>): Promise<void> {
  const opened = async (test: Test): Promise<Store> => {
    const store = await open()
    test.teardown(() => store.close())
    return store
  }

  await t.test('a key comes back as it was added', async t => {
    const { keys } = await opened(t)
    const plain = someKey()
    const full = someKey({
      kind: 'management',
      name: `O'Brien; DROP TABLE api_keys; -- "\u{1F511}" 日本 end`,
      workspaceId: null,
      disabled: true,
      expiresAt: '2027-01-01T00:00:00.000Z',
      updatedAt: '2026-02-01T00:00:00.000Z',
    })
    t.equal(await keys.add(plain), true)
    t.equal(await keys.add(full), true)
    t.same(await keys.find(plain.hash), plain)
    t.same(await keys.find(full.hash), full)
  })

  await t.test('an unknown hash is null, whatever it looks like', async t => {
    const { keys } = await opened(t)
    await keys.add(someKey())
    for (const hash of ['', 'f'.repeat(64), "' OR 1=1 --", '%', 'x'.repeat(100_000)]) {
      t.equal(await keys.find(hash), null)
    }
  })

  await t.test('a hash that is there already is left as it is', async t => {
    const { keys } = await opened(t)
    const first = someKey({ name: 'first' })
    t.equal(await keys.add(first), true)
    t.equal(await keys.add({ ...first, name: 'second', disabled: true }), false)
    t.same(await keys.find(first.hash), first)
    t.equal(await keys.count(), 1)
  })

  await t.test('of many who add the same key at once exactly one does', async t => {
    const { keys } = await opened(t)
    const key = someKey()
    const added = await Promise.all(Array.from({ length: 20 }, () => keys.add(key)))
    t.equal(added.filter(Boolean).length, 1)
    t.equal(await keys.count(), 1)
  })

  await t.test('keys are listed newest first, of one organization only', async t => {
    const { keys } = await opened(t)
    const at = (day: number): string => `2026-01-0${day}T00:00:00.000Z`
    for (const day of [2, 3, 1]) await keys.add(someKey({ createdAt: at(day) }))
    await keys.add(someKey({ organizationId: 'org_2' }))
    const list = await keys.list('org_1')
    t.same(
      list.map(key => key.createdAt),
      [at(3), at(2), at(1)],
    )
    t.same(await keys.list('org_3'), [])
    t.equal(await keys.count(), 4, 'all organizations count')
  })

  await t.test('a usage record comes back as it was added, to its own organization only', async t => {
    const { ledger } = await opened(t)
    const plain = someUsage({
      model: null,
      provider: null,
      providerName: null,
      workspaceId: null,
      attempts: [],
    })
    const full = someUsage({
      endUser: `O'Brien; DROP TABLE usage; -- "\u{1F511}" 日本`,
      upstreamId: 'resp_1',
      cancelled: true,
      cost: Number.MAX_SAFE_INTEGER,
      inputTokens: 1e12,
      latencyMs: 1234.567,
      generationMs: null,
    })
    t.equal(await ledger.add([plain, full]), 2)
    t.same(await ledger.find(plain.id, plain.organizationId), plain)
    t.same(await ledger.find(full.id, full.organizationId), full)
    t.equal(await ledger.find(full.id, 'org_2'), null)
    for (const id of ['', "' OR 1=1 --", '%', 'x'.repeat(100_000)])
      t.equal(await ledger.find(id, 'org_1'), null)
  })

  await t.test('a record that is shipped again changes nothing, within a batch and between them', async t => {
    const { ledger } = await opened(t)
    const [one, two] = [someUsage({ cost: 1 }), someUsage({ cost: 2 })]
    t.equal(await ledger.add([one, one, two]), 2)
    t.equal(await ledger.add([{ ...one, cost: 100 }, two]), 0)
    t.same(await ledger.find(one.id, 'org_1'), one)
    t.equal(await ledger.add([]), 0)
    t.match(await ledger.usageSince({ organizationId: 'org_1', since: '' }), { requests: 2, cost: 3n })
  })

  await t.test('of many who ship the same records at once each record is kept once', async t => {
    const { ledger } = await opened(t)
    const records = Array.from({ length: 450 }, () => someUsage())
    const added = await Promise.all(Array.from({ length: 5 }, () => ledger.add(records)))
    t.equal(
      added.reduce((sum, count) => sum + count),
      records.length,
    )
    t.equal((await ledger.usageSince({ organizationId: 'org_1', since: '' })).requests, records.length)
  })

  await t.test('sums are exact beyond what a number holds, and keep to their filter', async t => {
    const { ledger } = await opened(t)
    const large = { cost: Number.MAX_SAFE_INTEGER, inputTokens: 1e12, outputTokens: 3 }
    await ledger.add([
      // Together more than 64 bits hold.
      ...Array.from({ length: 2_000 }, () => someUsage(large)),
      someUsage({ cost: 7, inputTokens: 1, outputTokens: 2, endUser: 'u1', workspaceId: 'ws_2' }),
      someUsage({ cost: 5, inputTokens: 1, outputTokens: 2, endUser: 'u2', keyHash: 'f'.repeat(64) }),
      someUsage({ cost: 3, inputTokens: 1, outputTokens: 2, createdAt: '2025-12-31T23:59:59.000Z' }),
      someUsage({ cost: 11, organizationId: 'org_2' }),
    ])
    const organizationId = 'org_1'
    t.same(await ledger.usageSince({ organizationId, since: '2026-01-01T00:00:00.000Z' }), {
      requests: 2_002,
      inputTokens: 2_000n * 1_000_000_000_000n + 2n,
      outputTokens: 6_004n,
      cost: 2_000n * BigInt(Number.MAX_SAFE_INTEGER) + 12n,
    })
    t.match(await ledger.usageSince({ organizationId, since: '', endUser: 'u1' }), { requests: 1, cost: 7n })
    t.match(await ledger.usageSince({ organizationId, since: '', workspaceId: 'ws_2' }), {
      requests: 1,
      cost: 7n,
    })
    t.match(await ledger.usageSince({ organizationId, since: '', keyHash: 'f'.repeat(64) }), { cost: 5n })
    t.match(await ledger.usageSince({ organizationId: 'org_3', since: '' }), { requests: 0, cost: 0n })
  })

  await t.test('a closed store refuses, and closing twice does no harm', async t => {
    const store = await open()
    await store.close()
    await store.close()
    await t.rejects(store.keys.count())
  })
}
