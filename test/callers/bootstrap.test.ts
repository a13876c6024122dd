import t, { type Test } from 'tap'
import { createKey, generateKey, hashKey, keyKind } from '../../src/callers/api-key.ts'
import { BootstrapError, type BootstrapOptions, createBootstrap } from '../../src/callers/bootstrap.ts'
import { openStore } from '../../src/storage/open.ts'
import { DEFAULT_ORGANIZATION_ID, type Store } from '../../src/storage/store.ts'
import { TestClock } from '../support/test-clock.ts'

const clock = new TestClock()
const notices: unknown[] = []
const log = { notice: (...line: unknown[]) => void notices.push(line) }
const ensureKeys = async (options: Omit<BootstrapOptions, 'log'>) => createBootstrap({ log, ...options })()

async function opened(test: Test): Promise<Store> {
  const store = await openStore('sqlite::memory:')
  test.teardown(() => store.close())
  return store
}

t.test('an empty store gets two keys, shown once', async t => {
  const store = await opened(t)
  const first = await ensureKeys({ store, clock, managementKey: null, apiKey: null })
  t.equal(keyKind(first?.managementKey ?? ''), 'management')
  t.equal(keyKind(first?.apiKey ?? ''), 'inference')
  t.match(await store.keys.find(hashKey(first?.apiKey ?? '')), { kind: 'inference', disabled: false })
  t.match(await store.keys.find(hashKey(first?.managementKey ?? '')), { kind: 'management' })
  t.equal(await ensureKeys({ store, clock }), null)
  t.equal(await store.keys.count(), 2)
})

t.test('configured keys become valid and none are made', async t => {
  const store = await opened(t)
  const managementKey = generateKey('management')
  const apiKey = generateKey('inference')
  t.equal(await ensureKeys({ store, clock, managementKey, apiKey }), null)
  t.equal(await ensureKeys({ store, clock, managementKey, apiKey }), null, 'a second start changes nothing')
  t.same((await store.keys.list(DEFAULT_ORGANIZATION_ID)).map(key => key.name).sort(), [
    'GATEWAY_API_KEY',
    'GATEWAY_MANAGEMENT_KEY',
  ])
  t.match(await store.keys.find(hashKey(apiKey)), { kind: 'inference' })
})

t.test('a configured key is added to a store that has others', async t => {
  const store = await opened(t)
  await store.keys.add(createKey({ kind: 'inference', name: 'old', clock }).record)
  const apiKey = generateKey('inference')
  t.equal(await ensureKeys({ store, clock, apiKey }), null)
  t.equal(await store.keys.count(), 2)
})

t.test(
  'a key of the wrong form is refused by the name of its variable, before anything is written',
  async t => {
    const store = await opened(t)
    const good = generateKey('management')
    const secret = 'sk-gw-v1-tooshort-and-secret'
    const refusal = { constructor: BootstrapError, message: /^GATEWAY_API_KEY: expected sk-gw-v1- and 64 / }
    for (const apiKey of [secret, good, '']) {
      await t.rejects(ensureKeys({ store, clock, managementKey: good, apiKey }), refusal)
    }
    await t.rejects(ensureKeys({ store, clock, managementKey: generateKey('inference') }), {
      message: /^GATEWAY_MANAGEMENT_KEY: expected sk-gw-mgmt-/,
    })
    await ensureKeys({ store, clock, apiKey: secret }).catch(error => t.notMatch(String(error), /secret/))
    t.equal(await store.keys.count(), 0)
  },
)

t.test('keys of which only one could be stored are the same at the next try', async t => {
  const store = await opened(t)
  let adds = 0
  const failing: Store = {
    ...store,
    keys: {
      ...store.keys,
      async add(record) {
        if (++adds === 2) throw new Error('away')
        return await store.keys.add(record)
      },
    },
  }
  const bootstrap = createBootstrap({ store: failing, clock, log })
  await t.rejects(bootstrap(), { message: 'away' })
  t.equal(await store.keys.count(), 1)
  const first = await bootstrap()
  t.match(await store.keys.find(hashKey(first?.managementKey ?? '')), { kind: 'management' })
  t.match(await store.keys.find(hashKey(first?.apiKey ?? '')), { kind: 'inference' })
  t.equal(await store.keys.count(), 2)
})

t.test(
  'a configured key that was deleted does not come back with the next start, and the log says so',
  async t => {
    const store = await opened(t)
    const managementKey = generateKey('management')
    const apiKey = generateKey('inference')
    await ensureKeys({ store, clock, managementKey, apiKey })
    t.equal(await store.keys.remove(DEFAULT_ORGANIZATION_ID, hashKey(apiKey)), true)
    t.equal(await store.keys.wasRemoved(hashKey(apiKey)), true)
    t.equal(await store.keys.wasRemoved(hashKey(managementKey)), false)
    notices.length = 0
    t.equal(await ensureKeys({ store, clock, managementKey, apiKey }), null)
    t.equal(await store.keys.find(hashKey(apiKey)), null)
    t.match(await store.keys.find(hashKey(managementKey)), { kind: 'management' })
    t.match(notices, [['keys', /was deleted/, { variable: 'GATEWAY_API_KEY' }]])
    t.notMatch(JSON.stringify(notices), apiKey)
  },
)

t.test('a configured key that can be guessed is refused', async t => {
  const store = await opened(t)
  for (const secret of ['a'.repeat(64), 'deadbeef'.repeat(8), '0123456789abcdef'.repeat(4)]) {
    await t.rejects(ensureKeys({ store, clock, apiKey: `sk-gw-v1-${secret}` }), {
      constructor: BootstrapError,
      message: /^GATEWAY_API_KEY: is too easy to guess/,
    })
  }
  t.equal(await store.keys.count(), 0)
})
