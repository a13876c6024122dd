/** What every Store must do, whatever database is behind it. */
import type { Test } from 'tap'
import type { KeyRecord, Store } from '../../src/storage/store.ts'

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

  await t.test('a closed store refuses, and closing twice does no harm', async t => {
    const store = await open()
    await store.close()
    await store.close()
    await t.rejects(store.keys.count())
  })
}
