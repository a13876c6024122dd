/** Changing master keys on a real database, while it is used. */
import t, { type Test } from 'tap'
import { createMetrics } from '../../../src/base/metrics/metrics.ts'
import { DecryptedKeys } from '../../../src/providers/credentials/decrypted-keys.ts'
import { createVault, ownerOf, type Vault, VaultError } from '../../../src/providers/credentials/vault.ts'
import {
  checkRing,
  missingKeyIds,
  type RotationProgress,
  rotate,
} from '../../../src/providers/credentials/vault-key-rotation.ts'
import { VaultKeyError } from '../../../src/providers/credentials/vault-keys.ts'
import { openStore } from '../../../src/storage/open.ts'
import type { CredentialRecord, Store } from '../../../src/storage/store.ts'
import { someCredential, someVaultKey } from '../../support/own-keys.ts'
import { TestClock } from '../../support/test-clock.ts'

const [k1, k2, k3] = [someVaultKey('k1'), someVaultKey('k2'), someVaultKey('k3')]
const old = createVault([k1])
const both = createVault([k2, k1])
const anew = createVault([k2])
const NOW = '2026-02-01T00:00:00.000Z'

async function opened(t: Test): Promise<Store> {
  const store = await openStore('sqlite::memory:')
  t.teardown(() => store.close())
  return store
}

/** Adds credentials with the keys `key-0`, `key-1`, … */
async function filled(store: Store, vault: Vault, count: number, from = 0): Promise<CredentialRecord[]> {
  const records: CredentialRecord[] = []
  for (let n = from; n < from + count; n++)
    records.push(await store.credentials.add(someCredential(vault, `key-${n}`)))
  return records
}

const opens = (vault: Vault, record: CredentialRecord) =>
  vault.open(record.sealed, ownerOf(record)).toString()

async function found(store: Store, { organizationId, id }: CredentialRecord): Promise<CredentialRecord> {
  const record = await store.credentials.find(organizationId, id)
  if (record === null) throw new Error('not there')
  return record
}

t.test('everything is wrapped anew, and nothing else is changed', async t => {
  const store = await opened(t)
  const records = await filled(store, old, 25)
  await filled(store, both, 5, 25)
  const progress: RotationProgress[] = []
  const result = await rotate(store, both, { batchRows: 10, onProgress: each => progress.push(each) })
  t.same(result, { rewrapped: 25, failed: [] })
  t.same([...(await store.credentials.countByKeyId())], [['k2', 30]])
  for (const [n, record] of records.entries()) {
    const now = await found(store, record)
    t.equal(opens(anew, now), `key-${n}`, 'opens without the old master key')
    t.same({ ...now, sealed: null }, { ...record, sealed: null })
    t.equal(now.sealed.box, record.sealed.box)
    t.throws(() => opens(old, now), VaultError)
  }
  t.same(
    progress.map(({ rewrapped: done, total }) => `${done}/${total}`),
    ['0/25', '10/25', '20/25', '25/25'],
  )
  t.same(await rotate(store, both), { rewrapped: 0, failed: [] }, 'once more is nothing to do')
})

t.test('a rotation that was cut off goes on where it was', async t => {
  const store = await opened(t)
  await filled(store, old, 25)
  const cut = new Error('cut off')
  const onProgress = ({ rewrapped: done }: RotationProgress) => {
    if (done >= 10) throw cut
  }
  await t.rejects(rotate(store, both, { batchRows: 5, onProgress }), cut)
  t.same(
    await store.credentials.countByKeyId(),
    new Map([
      ['k1', 15],
      ['k2', 10],
    ]),
  )
  t.same(await rotate(store, both), { rewrapped: 15, failed: [] })
})

t.test('two rotations at once do the work once', async t => {
  const store = await opened(t)
  const records = await filled(store, old, 60)
  const results = await Promise.all([
    rotate(store, both, { batchRows: 7 }),
    rotate(store, both, { batchRows: 11 }),
  ])
  t.same(
    results.flatMap(({ failed }) => failed),
    [],
  )
  t.equal(
    results.reduce((sum, { rewrapped }) => sum + rewrapped, 0),
    60,
  )
  for (const [n, record] of records.entries()) t.equal(opens(anew, await found(store, record)), `key-${n}`)
})

t.test('no opening fails while keys are rotated, added, changed and removed', async t => {
  const store = await opened(t)
  const records = await filled(store, old, 300)
  const cache = new DecryptedKeys({
    store,
    vault: both,
    clock: new TestClock(),
    metrics: createMetrics(),
    maxEntries: 10,
  })
  const wanted = new Map(records.map((record, n) => [record.id, `key-${n}`]))
  let opened_ = 0
  let failures = 0
  let going = true
  const reader = async (from: number) => {
    for (let n = from; going; n = (n + 7) % records.length) {
      const record = records[n]
      if (record === undefined || !wanted.has(record.id)) continue
      const before = wanted.get(record.id)
      try {
        const { sealed: _, ...bare } = record
        const key = await cache.open(bare)
        const after = wanted.get(record.id)
        // Changed while it was read: either is right.
        if (key.kind !== 'plain' || (key.apiKey !== before && key.apiKey !== after)) failures++
      } catch {
        if (wanted.has(record.id)) failures++
      }
      opened_++
      // Answers out of the cache must not keep the others from their turn.
      if (opened_ % 20 === 0) await new Promise(resolve => setImmediate(resolve))
    }
  }
  const writer = async () => {
    for (let n = 0; going; n++) {
      const record = records[(n * 13) % records.length]
      if (record === undefined || !wanted.has(record.id)) continue
      const { organizationId, id } = record
      if (n % 10 === 9) {
        wanted.delete(id)
        await store.credentials.remove(organizationId, id)
      } else {
        const key = `new-${n}`
        // An instance that has not got the new master key yet.
        const sealed = (n % 2 === 0 ? old : both).seal(Buffer.from(key), ownerOf(record))
        await store.credentials.change(organizationId, id, { sealed }, NOW)
        wanted.set(id, key)
      }
      cache.invalidate(id)
      if (n >= 60) return
    }
  }
  const readers = Array.from({ length: 32 }, (_, n) => reader(n * 9))
  const writing = writer()
  const during = await rotate(store, both, { batchRows: 9 })
  await writing
  const rest = await rotate(store, both)
  going = false
  await Promise.all(readers)
  t.comment(`${opened_} openings, ${during.rewrapped} wrapped anew meanwhile, ${rest.rewrapped} after`)
  t.equal(failures, 0)
  t.ok(opened_ > 500)
  t.same([...during.failed, ...rest.failed], [])
  t.same([...(await store.credentials.countByKeyId()).keys()], ['k2'])
  for (const record of records) {
    const key = wanted.get(record.id)
    if (key !== undefined) t.equal(opens(anew, await found(store, record)), key, 'no change was undone')
  }
})

t.test('what does not open is told and left as it is, and holds nothing up', async t => {
  const store = await opened(t)
  const records = await filled(store, old, 20)
  const lost = await filled(store, createVault([k3]), 3, 20)
  const damaged = records.slice(0, 15)
  for (const { organizationId, id, sealed } of damaged) {
    const wrapped = sealed.wrapped.replace(/^..../, 'AAAA')
    await store.credentials.change(organizationId, id, { sealed: { ...sealed, wrapped } }, NOW)
  }
  const before = await Promise.all([...damaged, ...lost].map(record => found(store, record)))
  const { rewrapped, failed } = await rotate(store, both, { batchRows: 2 })
  t.equal(rewrapped, 5)
  t.same(failed.toSorted(), before.map(({ id }) => id).sort())
  t.same(await Promise.all(before.map(record => found(store, record))), before)
})

t.test('a row that cannot be written does not hold it up for ever', async t => {
  const store = await opened(t)
  const [stubborn] = await filled(store, old, 3)
  let tries = 0
  const credentials: Store['credentials'] = {
    ...store.credentials,
    reseal: async (id, before, after) => {
      if (id !== stubborn?.id) return store.credentials.reseal(id, before, after)
      tries++
      return false
    },
  }
  const { rewrapped, failed } = await rotate({ credentials }, both)
  t.same([rewrapped, failed], [2, [stubborn?.id]])
  t.equal(tries, 5)
})

t.test('master keys that are missing are known by their ids', async t => {
  const store = await opened(t)
  t.same(await missingKeyIds(store, anew), new Map())
  await filled(store, old, 2)
  await filled(store, createVault([k3]), 1)
  await filled(store, anew, 4)
  t.same(
    await missingKeyIds(store, anew),
    new Map([
      ['k1', 2],
      ['k3', 1],
    ]),
  )
  t.same(await missingKeyIds(store, both), new Map([['k3', 1]]))
  t.same(await missingKeyIds(store, createVault([k1, k2, k3])), new Map())
})

t.test('the check before the start lets a right ring pass', async t => {
  const store = await opened(t)
  await t.resolves(checkRing(store, anew, 'GATEWAY_VAULT_KEYS'), 'with nothing sealed')
  const records = await filled(store, old, 5)
  await filled(store, anew, 5)
  await t.resolves(checkRing(store, both, 'GATEWAY_VAULT_KEYS'))
  const [first] = records
  if (first === undefined) throw new Error('no record')
  const sealed = { ...first.sealed, wrapped: first.sealed.box }
  await store.credentials.change(first.organizationId, first.id, { sealed }, NOW)
  t.same(
    await checkRing(store, both, 'GATEWAY_VAULT_KEYS'),
    [first.id],
    'one damaged row does not stop everybody else, and is named',
  )
})

t.test(
  'the only credential may be damaged: that says nothing of the master key, and stops nobody',
  async t => {
    const store = await opened(t)
    const [only] = await filled(store, old, 1)
    if (only === undefined) throw new Error('no record')
    const sealed = { ...only.sealed, box: only.sealed.wrapped, wrapped: only.sealed.box }
    await store.credentials.change(only.organizationId, only.id, { sealed }, NOW)
    t.same(await checkRing(store, both, 'GATEWAY_VAULT_KEYS'), [only.id])
  },
)

t.test('the check before the start names a missing key and what to do', async t => {
  const store = await opened(t)
  await filled(store, old, 2)
  await t.rejects(checkRing(store, anew, '/data/vault.key'), {
    constructor: VaultKeyError,
    message:
      /^\/data\/vault\.key: 2 credentials are sealed with the master key k1, which is missing there; add that key/,
  })
  await store.credentials.add(someCredential(createVault([{ ...k3, id: 'a\u001b[2Jb' }]), 'key'))
  await t.rejects(checkRing(store, both, 'X'), {
    message: /^X: 1 credential is sealed with the master key \(with an invalid name\)/,
  })
})

t.test('the check before the start knows another key of the same name', async t => {
  const store = await opened(t)
  await filled(store, old, 3)
  await t.rejects(checkRing(store, createVault([k2, someVaultKey('k1')]), 'GATEWAY_VAULT_KEYS'), {
    constructor: VaultKeyError,
    message:
      /^GATEWAY_VAULT_KEYS: none of 3 credentials opens with the master key k1: .*or all of them were damaged/,
  })
})
