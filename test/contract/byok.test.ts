/** Own provider credentials over real sockets: the provider sees the right key each time, and nobody else any. */
import { request as httpRequest } from 'node:http'
import t from 'tap'
import { systemClock } from '../../src/base/clock.ts'
import { createKey } from '../../src/callers/api-key.ts'
import type { Credential } from '../../src/providers/credentials/catalog.ts'
import { createVault } from '../../src/providers/credentials/vault.ts'
import { parseVaultKeys } from '../../src/providers/credentials/vault-keys.ts'
import { openStore } from '../../src/storage/open.ts'
import { type CredentialRecord, DEFAULT_ORGANIZATION_ID, type SealedSecret } from '../../src/storage/store.ts'
import { CALLER, expected, modelRows, sharedKey, type World, worlds } from '../support/byok-worlds.ts'
import { startGateway } from '../support/gateway.ts'
import { credentialOf, sealedRecord } from '../support/own-keys.ts'
import { startKeyedProvider } from '../support/provider.ts'

const provider = await startKeyedProvider()
const row = (slug: string) => ({
  slug,
  name: slug.toUpperCase(),
  format: 'openai-chat' as const,
  baseUrl: `${provider.url}/${slug}`,
  apiKey: sharedKey(slug),
})
const PRICED = { prompt: '0.000001', completion: '0.000002' }
const gateway = await startGateway({
  // Keys are refused on purpose, again and again.
  routing: { breakerFailures: null },
  providers: [
    row('p'),
    row('q'),
    { slug: 'azure' },
    { slug: 'own', format: 'openai-chat', baseUrl: `${provider.url}/own` },
  ],
  models: [
    ...modelRows(),
    { id: 'm/priced', endpoints: [{ provider: 'p', pricing: PRICED }] },
    { id: 'm/azure', endpoints: [{ provider: 'azure' }, { provider: 'q' }] },
    { id: 'm/own', endpoints: [{ provider: 'own' }] },
  ],
  regions: { europe: ['eu.localhost'], us: ['us.localhost'] },
  byok: { feePercent: 5 },
})
const store = await openStore(gateway.storageUrl)
const vault = createVault(parseVaultKeys(gateway.vaultKeys))
t.teardown(async () => {
  await store.close()
  await gateway.close()
  provider.close()
})

interface Tenant {
  readonly workspaceId: string
  readonly apiKey: string
  /** The keys by the ids that the case gave. */
  key(id: string): string
}

let tenants = 0

/** A workspace of its own with an API key and these credentials; `CALLER` in them becomes the hash of that key. */
async function tenant(
  credentials: readonly Credential[],
  keyOf = (id: string, workspace: string) => `own-key-of-${workspace}-${id}`,
): Promise<Tenant> {
  const workspaceId = `ws-${tenants++}`
  const { key: apiKey, record } = createKey({ kind: 'inference', name: 't', clock: systemClock, workspaceId })
  await store.keys.add(record)
  // The store numbers them in the order in which they come.
  for (const credential of credentials.toSorted((a, b) => a.sortOrder - b.sortOrder)) {
    const { allowedApiKeyHashes: hashes } = credential
    const stored = {
      ...credential,
      id: `${workspaceId}-${credential.id}`,
      workspaceId,
      allowedApiKeyHashes: hashes?.map(hash => (hash === CALLER ? record.hash : hash)) ?? null,
    }
    await store.credentials.add(sealedRecord(vault, stored, keyOf(credential.id, workspaceId)))
  }
  return { workspaceId, apiKey, key: id => keyOf(id, workspaceId) }
}

interface Answer {
  readonly status: number
  readonly text: string
}

/** POST /responses; `fetch` would not let a test choose the Host header. */
function ask(from: Tenant, body: object, host = 'localhost'): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const headers = {
      host,
      authorization: `Bearer ${from.apiKey}`,
      'content-type': 'application/json',
      'x-gateway-metadata': 'enabled',
    }
    const options = { host: '127.0.0.1', port: gateway.port, path: '/v1/responses', method: 'POST', headers }
    const sent = httpRequest(options, reply => {
      let text = ''
      reply.setEncoding('utf8')
      reply.on('data', (chunk: string) => {
        text += chunk
      })
      reply.on('end', () => resolve({ status: reply.statusCode ?? 0, text }))
    })
    sent.on('error', reject)
    sent.end(JSON.stringify(body))
  })
}

function bodyOf({ model, user, zdr }: World['request']): object {
  return { model, input: 'hi', ...(user === null ? {} : { user }), ...(zdr ? { provider: { zdr } } : {}) }
}

/** Some worlds of every kind, spread over the whole enumeration; more of those where there is something to order. */
function sample(): World[] {
  const found: World[] = []
  const perLength = new Map<number, number>()
  let index = 0
  for (const world of worlds()) {
    // Coprime to the length of every loop of the enumeration.
    if (index++ % 101 !== 0) continue
    const { length } = expected(world)
    const count = perLength.get(length) ?? 0
    if (count >= (length < 2 ? 10 : 26)) continue
    perLength.set(length, count + 1)
    found.push(world)
  }
  return found
}

t.test('over the wire, the keys come in the order of the oracle', async t => {
  const cases = sample()
  t.ok(cases.length >= 100, `${cases.length} worlds`)
  const byConnection = new Map<number, Set<string>>()
  const wrong: unknown[] = []
  for (const world of cases) {
    const from = await tenant(world.credentials.map(each => ({ ...each, id: `${each.provider}-${each.id}` })))
    const wanted = expected(world).map(name => {
      const [slug = '', id = ''] = name.split('/')
      return { base: slug, key: id === 'shared' ? sharedKey(slug) : from.key(`${slug}-${id}`) }
    })
    const host =
      world.request.region === null
        ? 'localhost'
        : `${{ europe: 'eu', us: 'us' }[world.request.region]}.localhost`
    for (const good of [wanted.length, wanted.length - 1]) {
      provider.calls.length = 0
      provider.refuses.clear()
      for (const { key } of wanted.slice(0, good)) provider.refuses.set(key, 401)
      const answer = await ask(from, bodyOf(world.request), host)
      const status = wanted.length === 0 ? 404 : good < wanted.length ? 200 : 502
      for (const { connection, key } of provider.calls) {
        byConnection.set(connection, (byConnection.get(connection) ?? new Set()).add(key))
      }
      const seen = provider.calls.map(({ base, key }) => ({ base, key }))
      if (answer.status !== status || JSON.stringify(seen) !== JSON.stringify(wanted)) {
        wrong.push({ world, wanted, seen, answer })
      }
      if (wanted.length === 0) break
    }
  }
  t.same(wrong.slice(0, 2), [], `${wrong.length} of ${cases.length} differ`)
  for (const keys of byConnection.values()) {
    const isShared = [...keys].every(key => key.startsWith('shared-key-of-'))
    if (!isShared && keys.size > 1) t.fail(`one connection carried ${[...keys].join(' and ')}`)
  }
})

t.test('a cascade: refused own keys, a refused shared one, a fallback that answers', async t => {
  const from = await tenant([
    credentialOf('p', { id: 'first', sortOrder: 0 }),
    credentialOf('p', { id: 'second', sortOrder: 1 }),
    credentialOf('p', { id: 'last', isFallback: true }),
  ])
  provider.refuses.clear()
  provider.refuses.set(from.key('first'), 401)
  provider.refuses.set(from.key('second'), 403)
  provider.refuses.set(sharedKey('p'), 429)
  const { status, text } = await ask(from, { model: 'm/priced', input: 'hi' })
  t.equal(status, 200)
  const body = JSON.parse(text)
  t.match(body.gateway_metadata, {
    is_byok: true,
    attempt: 4,
    attempts: [{ status: 401 }, { status: 403 }, { status: 429 }, { status: 200 }],
    endpoints: {
      total: 4,
      available: [{ selected: false }, { selected: false }, { selected: false }, { selected: true }],
    },
  })
  t.match(body.usage, {
    is_byok: true,
    cost: 0.0000025,
    cost_details: { upstream_inference_cost: 0.00005 },
  })
  const record = await fetch(`${gateway.url}/generation?id=${body.id}`, {
    headers: { authorization: `Bearer ${from.apiKey}` },
  })
  t.match(await record.json(), {
    data: {
      is_byok: true,
      total_cost: 0.0000025,
      upstream_inference_cost: 0.00005,
      provider_responses: [{ is_byok: true }, { is_byok: true }, { is_byok: false }, { is_byok: true }],
    },
  })
})

t.test('where own keys are demanded, the shared one is never called', async t => {
  for (const flag of [{ isRequired: true }, { isByokOnly: true }]) {
    const from = await tenant([credentialOf('p', { id: 'mine', ...flag })])
    provider.refuses.clear()
    provider.refuses.set(from.key('mine'), 500)
    provider.calls.length = 0
    const { status, text } = await ask(from, { model: 'm/priced', input: 'hi' })
    t.equal(status, 502)
    t.same(
      provider.calls.map(({ key }) => key),
      [from.key('mine')],
    )
    t.match(JSON.parse(text).gateway_metadata, { is_byok: true, endpoints: { total: 1 } })
  }
})

t.test('a BYOK key that a provider repeats is in no answer and in no log line', async t => {
  const secret = 'zq7Canary0123456789XyZ-'.repeat(2)
  const from = await tenant([credentialOf('p', { id: 'mine', isRequired: true })], () => secret)
  provider.refuses.clear()
  provider.saying = 'Incorrect API key provided: KEY. See https://provider.example/keys?key=KEY'
  for (const refusedWith of [400, 401, 429, 500]) {
    provider.refuses.set(secret, refusedWith)
    for (const stream of [false, true]) {
      const { text } = await ask(from, {
        model: 'm/priced',
        input: 'hi',
        stream,
        debug: { echo_upstream_body: true },
      })
      t.match(text, /"error_type"/)
      for (const piece of [secret, secret.slice(0, 16), secret.slice(-16)]) t.notMatch(text, piece)
    }
  }
  t.notMatch(JSON.stringify(gateway.lines), 'Canary')
})

t.test('a key that the endpoint cannot be called with is never sent, and the next one is tried', async t => {
  const deployment = {
    model_slug: 'm/azure',
    endpoint_url: 'https://mine.openai.azure.com/openai/v1/responses',
    api_key: 'c0ffee'.repeat(8),
    model_id: 'mine',
  }
  const keyOf = (id: string) => (id === 'azure' ? JSON.stringify([deployment]) : 'key-of-q')
  const alone = await tenant([credentialOf('azure', { id: 'azure', isByokOnly: true })], keyOf)
  provider.refuses.clear()
  provider.calls.length = 0
  const refused = await ask(alone, { model: 'm/azure', input: 'hi' })
  t.equal(refused.status, 502)
  t.match(
    JSON.parse(refused.text).error.message,
    /names a deployment at \/responses, but this model is called at/,
  )
  t.notMatch(refused.text, /c0ffee/)
  t.same(provider.calls, [])
  const both = [credentialOf('azure', { id: 'azure' }), credentialOf('q', { id: 'key', sortOrder: 1 })]
  t.equal((await ask(await tenant(both, keyOf), { model: 'm/azure', input: 'hi' })).status, 200)
  t.same(
    provider.calls.map(({ key }) => key),
    ['key-of-q'],
  )
})

t.test('a credential that does not open fails the request, and the shared key never pays for it', async t => {
  const swapped = (record: CredentialRecord): SealedSecret => ({
    ...record.sealed,
    box: record.sealed.wrapped,
    wrapped: record.sealed.box,
  })
  const flipped = (text: string): string => {
    const bytes = Buffer.from(text, 'base64')
    bytes[20] = (bytes[20] ?? 0) ^ 1
    return bytes.toString('base64')
  }
  const damages: readonly ((record: CredentialRecord) => SealedSecret)[] = [
    swapped,
    ({ sealed }) => ({ ...sealed, box: flipped(sealed.box) }),
    ({ sealed }) => ({ ...sealed, wrapped: flipped(sealed.wrapped) }),
    ({ sealed }) => ({ ...sealed, keyId: 'gone' }),
  ]
  for (const damage of damages) {
    const from = await tenant([
      credentialOf('p', { id: 'own' }),
      credentialOf('q', { id: 'next', sortOrder: 1 }),
    ])
    const record = await store.credentials.find(DEFAULT_ORGANIZATION_ID, `${from.workspaceId}-own`)
    if (record === null) throw new Error('no record')
    await store.credentials.change(
      record.organizationId,
      record.id,
      { sealed: damage(record) },
      record.updatedAt,
    )
    provider.refuses.clear()
    provider.calls.length = 0
    for (const stream of [false, true]) {
      const { status, text } = await ask(from, { model: 'm/priced', input: 'hi', stream })
      t.equal(status, 503)
      t.match(JSON.parse(text).error, {
        message: /^The workspace's stored credential for p cannot be opened/,
        metadata: { error_type: 'server' },
      })
    }
    t.same(provider.calls, [], 'no key was sent anywhere')
  }
})

t.test('a provider that the service calls without a key takes a BYOK one', async t => {
  const from = await tenant([credentialOf('own', { id: 'mine' })])
  provider.calls.length = 0
  t.equal((await ask(from, { model: 'm/own', input: 'hi' })).status, 200)
  t.same(
    provider.calls.map(({ key }) => key),
    [from.key('mine')],
  )
})

t.test('word of a change counts with the next request', async t => {
  const from = await tenant([credentialOf('p', { id: 'mine' })])
  const id = `${from.workspaceId}-mine`
  const keysSeen = async () => {
    provider.calls.length = 0
    await ask(from, { model: 'm/priced', input: 'hi' })
    return provider.calls.map(({ key }) => key)
  }
  const organizationId = credentialOf('p').organizationId
  provider.refuses.clear()
  t.same(await keysSeen(), [from.key('mine')])
  await store.credentials.change(organizationId, id, { disabled: true }, '2026-01-02T03:04:06.000Z')
  t.same(await keysSeen(), [from.key('mine')], 'what is remembered still counts')
  const { workspaceId } = from
  gateway.serving.invalidate({ kind: 'credentials', organizationId, workspaceId, ids: [id] })
  t.same(await keysSeen(), [sharedKey('p')])
})
