import t from 'tap'
import { createVault } from '../../../src/providers/credentials/vault.ts'
import { startKeyUsageGauge } from '../../../src/providers/credentials/vault-key-rotation.ts'
import { openStore } from '../../../src/storage/open.ts'
import { someCredential, someVaultKey } from '../../support/own-keys.ts'
import { TestClock } from '../../support/test-clock.ts'

t.test('counts are known by master key, renewed, and left out while they are not known', async t => {
  const [k1, k2, k3] = [someVaultKey('k1'), someVaultKey('k2'), someVaultKey('k3')]
  const store = await openStore('sqlite::memory:')
  t.teardown(() => store.close())
  await store.credentials.add(someCredential(createVault([k1]), 'a'))
  await store.credentials.add(someCredential(createVault([k3]), 'b'))
  const clock = new TestClock()
  let away = false
  let asked = 0
  const countByKeyId = async () => {
    asked++
    if (away) throw new Error('away')
    return store.credentials.countByKeyId()
  }
  const counts = startKeyUsageGauge({
    store: { credentials: { countByKeyId } },
    vault: createVault([k2, k1]),
    keyIds: ['k2', 'k1'],
    clock,
  })
  const renewed = async () => {
    while (clock.armed === 0) await new Promise(resolve => setImmediate(resolve))
  }
  t.equal(counts.current(), null)
  await renewed()
  t.same(
    counts.current(),
    new Map([
      ['k2', 0],
      ['k1', 1],
      ['other', 1],
    ]),
  )
  await store.credentials.add(someCredential(createVault([k2]), 'c'))
  clock.advance(30_000)
  await renewed()
  t.same(
    counts.current(),
    new Map([
      ['k2', 1],
      ['k1', 1],
      ['other', 1],
    ]),
  )
  away = true
  clock.advance(30_000)
  await renewed()
  t.equal(counts.current(), null)
  away = false
  clock.advance(30_000)
  await counts.close()
  t.equal(clock.armed, 0)
  t.equal(asked, 4)
})
