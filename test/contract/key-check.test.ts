/** POST /providers/check and POST /byok/{id}/check: real calls with a key, and what came of them. */
import { createServer, type IncomingMessage } from 'node:http'
import t from 'tap'
import { openStore } from '../../src/storage/open.ts'
import { listening } from '../support/listening.ts'
import { addOrganization, caller } from '../support/management.ts'
import { startManagedGateway } from '../support/world.ts'

const GOOD = 'good-key-of-the-gateway-4711'
const OWN = 'own-key-of-the-workspace-0815'
const LIST = { object: 'list', data: [{ id: 'small' }, { id: 'large' }] }
const COMPLETION = {
  id: 'c',
  object: 'chat.completion',
  choices: [{ index: 0, message: { role: 'assistant', content: 'Hi' }, finish_reason: 'stop' }],
  usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
}

interface Seen {
  readonly call: string
  readonly key: string | null
  readonly body: Record<string, unknown>
}
const seen: Seen[] = []
/** What the provider says to a call, by its path below the base URL of the test. Default: as a good provider does. */
let says: (call: Seen) => { status: number; body: unknown } | null = () => null
let wasAsked: () => void = () => undefined

async function bodyOf(request: IncomingMessage): Promise<Record<string, unknown>> {
  let text = ''
  for await (const chunk of request.setEncoding('utf8')) text += String(chunk)
  return text === '' ? {} : (JSON.parse(text) as Record<string, unknown>)
}

const server = createServer((request, response) => {
  void bodyOf(request).then(body => {
    const { authorization } = request.headers
    const call = {
      call: `${request.method} ${request.url}`,
      key: authorization === undefined ? null : authorization.replace('Bearer ', ''),
      body,
    }
    seen.push(call)
    wasAsked()
    const isKnown = call.key === GOOD || call.key === OWN
    const said = says(call) ?? {
      status: isKnown ? 200 : 401,
      body: isKnown
        ? request.method === 'GET'
          ? LIST
          : COMPLETION
        : { error: { message: `Incorrect API key provided: ${call.key}` } },
    }
    if (said.status === 0) return
    response.writeHead(said.status, { 'content-type': 'application/json' }).end(JSON.stringify(said.body))
  })
})
const { url } = await listening(server)
t.teardown(() => {
  server.closeAllConnections()
  server.close()
})

const price = (usd: string) => ({ prompt: usd, completion: usd })
const format = 'openai-chat' as const
const at = (provider: string, upstreamModel: string, usd: string) => ({
  provider,
  upstreamModel,
  pricing: price(usd),
})
const managed = await startManagedGateway(t, {
  providers: [
    { slug: 'shop', name: 'Shop', format, baseUrl: `${url}/shop`, apiKey: GOOD },
    { slug: 'stale', name: 'Stale', format, baseUrl: `${url}/stale`, apiKey: 'old-key-that-ended-2222' },
    { slug: 'keyless', name: 'Keyless', format, baseUrl: `${url}/keyless`, auth: 'bearer' },
    { slug: 'gone', name: 'Gone', format, baseUrl: 'http://127.0.0.1:1/v1', apiKey: GOOD },
    {
      slug: 'vectors',
      name: 'Vectors',
      format: 'cohere-embeddings',
      baseUrl: `${url}/vectors`,
      apiKey: GOOD,
    },
    { slug: 'bare', name: 'Bare', format: 'bedrock-converse', baseUrl: `${url}/bare`, apiKey: GOOD },
  ],
  models: [
    { id: 'shop/large', endpoints: [at('shop', 'large', '0.00001')] },
    { id: 'shop/small', endpoints: [at('shop', 'small', '0.000001')] },
    { id: 'keyless/any', endpoints: [at('keyless', 'any', '0')] },
  ],
})
const { call, clock, gateway, addKey } = managed

async function tried(path: string, body: object) {
  seen.length = 0
  const answer = await call('POST', path, body)
  t.equal(answer.status, 200, answer.text)
  for (const key of [GOOD, OWN, 'old-key-that-ended-2222']) t.notMatch(answer.text, key, 'never a key')
  return answer.data
}
const calls = () => seen.map(each => each.call)
t.beforeEach(() => {
  says = () => null
})

t.test('a key works where the list of models asks for one', async t => {
  t.match(await tried('/providers/check', { provider: 'shop' }), {
    works: true,
    provider: 'shop',
    credential_id: null,
    asked: 'models',
    model: null,
    provider_status: 200,
    message: 'Shop accepted the key: it listed its models',
    field: null,
    advice: null,
  })
  t.same(
    seen.map(({ call: made, key }) => [made, key]),
    [
      ['GET /shop/models', GOOD],
      ['GET /shop/models', null],
    ],
    'the second one asks without a key',
  )
})

t.test('a list that everybody sees proves nothing: the cheapest model is asked', async t => {
  says = ({ call: made }) => (made.startsWith('GET') ? { status: 200, body: LIST } : null)
  t.match(await tried('/providers/check', { provider: 'shop' }), {
    works: true,
    asked: 'completion',
    model: 'shop/small',
  })
  t.same(calls(), ['GET /shop/models', 'GET /shop/models', 'POST /shop/chat/completions'])
  t.match(seen[2]?.body, { model: 'small', stream: undefined })
  t.ok(Number(seen[2]?.body['max_completion_tokens'] ?? seen[2]?.body['max_tokens']) <= 16, 'the smallest')
  // A wrong key is told by the completion then.
  says = ({ call: made }) =>
    made.startsWith('GET') ? { status: 200, body: LIST } : { status: 401, body: { error: { message: 'no' } } }
  t.match(await tried('/providers/check', { provider: 'shop' }), { works: false, provider_status: 401 })
})

t.test('a provider without a list is asked for a completion, and so is a model that is named', async t => {
  says = ({ call: made }) => (made.startsWith('GET') ? { status: 404, body: 'nothing' } : null)
  t.match(await tried('/providers/check', { provider: 'shop' }), { works: true, model: 'shop/small' })
  says = () => null
  t.match(await tried('/providers/check', { provider: 'shop', model: 'shop/large' }), {
    works: true,
    asked: 'completion',
    model: 'shop/large',
    message: 'Shop accepted the key: shop/large answered',
  })
  t.same(calls(), ['POST /shop/chat/completions'])
  t.match(await call('POST', '/providers/check', { provider: 'shop', model: 'keyless/any' }), {
    status: 400,
    message: 'model: has no endpoint at shop',
  })
})

t.test('refusals are told in words, with the way out', async t => {
  t.match(await tried('/providers/check', { provider: 'stale' }), {
    works: false,
    asked: 'models',
    provider_status: 401,
    message: "Stale refused the gateway's key: Incorrect API key provided: [redacted]",
    field: 'providers[].apiKey',
    advice: /^Put a valid key into apiKey of the row stale/,
  })
  t.match(await tried('/providers/check', { provider: 'keyless' }), {
    works: false,
    asked: null,
    message: 'No key is configured for this provider (apiKey in its row under providers)',
    field: 'providers[].apiKey',
    advice: /^Put a key into apiKey/,
  })
  t.same(calls(), [], 'nothing was sent')
  t.match(await tried('/providers/check', { provider: 'gone' }), {
    works: false,
    provider_status: null,
    message: 'The provider could not be reached',
    field: 'providers[].baseUrl',
  })
  t.match(await tried('/providers/check', { provider: 'bare' }), {
    works: false,
    asked: null,
    field: 'models',
    advice: 'Add a row under models with an endpoint at bare, then try again',
  })
  for (const [status, field, advice] of [
    [403, 'providers[].apiKey', /permissions/],
    [404, 'upstreamModel', /does not offer this model/],
    [429, null, /recognizes the key/],
    [400, null, /says nothing about the key/],
    [500, null, /Shop has a problem/],
  ] as const) {
    says = () => ({ status, body: { error: { message: 'because' } } })
    t.match(
      await tried('/providers/check', { provider: 'shop', model: 'shop/small' }),
      { works: false, provider_status: status, field, advice, message: /because/ },
      String(status),
    )
  }
  says = () => ({ status: 200, body: { error: { message: 'spent', code: 402 } } })
  t.match(await tried('/providers/check', { provider: 'shop', model: 'shop/small' }), { works: false })
  says = () => ({ status: 200, body: 'hello' })
  t.match(await tried('/providers/check', { provider: 'shop', model: 'shop/small' }), { works: false })
})

t.test('models of embeddings, and providers without keys', async t => {
  t.match(await tried('/providers/check', { provider: 'sim' }), {
    works: true,
    provider: 'sim',
    message: 'Simulated accepted the key: it listed its models',
  })
  t.match(await tried('/providers/check', { provider: 'vectors' }), { works: false, field: 'models' })
  t.match(await call('POST', '/providers/check', { provider: 'nobody' }), {
    status: 404,
    message: "provider: is not offered by this gateway's configuration",
  })
  for (const body of [{}, { provider: '' }, { provider: 'shop', key: 'x' }, { provider: 'shop', model: '' }])
    t.equal((await call('POST', '/providers/check', body)).status, 400, JSON.stringify(body))
})

t.test('a silent provider is not waited for any longer than 20 seconds', async t => {
  const asked = new Promise<void>(resolve => {
    wasAsked = resolve
  })
  says = () => ({ status: 0, body: null })
  const answer = call('POST', '/providers/check', { provider: 'shop' })
  await asked
  clock.advance(20_000)
  t.match((await answer).data, {
    works: false,
    asked: 'models',
    message: /^(?:Shop did not answer within 20 s|The provider did not answer in time)$/,
    advice: /^Try again/,
  })
})

t.test('a key tries two at once', async t => {
  let count = 0
  const both = new Promise<void>(resolve => {
    wasAsked = () => ++count === 2 && resolve()
  })
  says = () => ({ status: 0, body: null })
  const running = [1, 2].map(() => call('POST', '/providers/check', { provider: 'shop' }))
  await both
  const third = await call('POST', '/providers/check', { provider: 'shop' })
  t.match(third, { status: 429, message: 'Too many keys are being checked at once; try again' })
  clock.advance(20_000)
  for (const answer of running) t.equal((await answer).status, 200)
  says = () => null
  t.match(await tried('/providers/check', { provider: 'shop' }), { works: true })
})

t.test('an organization tries thirty keys a minute', async t => {
  clock.advance(60_000)
  const statuses: number[] = []
  for (let n = 0; n < 31; n++)
    statuses.push((await call('POST', '/providers/check', { provider: 'shop' })).status)
  t.same(new Set(statuses.slice(0, 30)), new Set([200]))
  t.equal(statuses[30], 429)
  clock.advance(60_000)
  t.match(await tried('/providers/check', { provider: 'shop' }), { works: true }, 'a minute later again')
})

t.test('own credentials are tried with their own key, disabled ones too', async t => {
  const created = await call('POST', '/byok', { provider: 'stale', key: OWN, name: 'Ours' })
  const id = String(created.data['id'])
  t.match(await tried(`/byok/${id}/check`, {}), { works: true, credential_id: id, provider: 'stale' })
  t.equal(seen[0]?.key, OWN)
  await call('PATCH', `/byok/${id}`, { key: 'wrong-key-of-the-workspace-99', disabled: true })
  const refused = await tried(`/byok/${id}/check`, {})
  t.match(refused, {
    works: false,
    provider_status: 401,
    message: "Stale refused the workspace's own key Ours: Incorrect API key provided: [redacted]",
    field: 'key',
    advice: 'Put a valid key into the credential',
  })
  t.equal(seen[0]?.key, 'wrong-key-of-the-workspace-99', 'the changed key, at once')
  const other = await addOrganization(gateway.storageUrl, 'org_other')
  t.equal((await caller(gateway.url, other.managementKey)('POST', `/byok/${id}/check`, {})).status, 404)
})

t.test('a credential is tried with the models that it is for', async t => {
  says = ({ call: made }) => (made.startsWith('GET') ? { status: 404, body: '' } : null)
  const body = { provider: 'shop', key: OWN, allowed_models: ['shop/large'] }
  const { data } = await call('POST', '/byok', body)
  t.match(await tried(`/byok/${String(data['id'])}/check`, {}), { works: true, model: 'shop/large' })
})

t.test('operators may, each trial is audited, and it is in no usage', async t => {
  const { key: operator } = await addKey('management', { role: 'operator' })
  const { key: viewer } = await addKey('management', { role: 'viewer' })
  const records = async () => (await call('GET', '/audit?limit=100')).list
  const before = (await records()).length
  t.equal((await call('POST', '/providers/check', { provider: 'shop' }, viewer)).status, 403)
  t.equal((await call('POST', '/providers/check', { provider: 'nobody' }, operator)).status, 404)
  t.equal((await records()).length, before, 'what is refused leaves no record')
  t.equal((await call('POST', '/providers/check', { provider: 'shop' }, operator)).status, 200)
  const [latest] = await records()
  t.match(latest, {
    action: 'provider.check',
    object: { kind: 'provider', id: 'shop', name: 'Shop' },
    client_address: '127.0.0.1',
  })
  const store = await openStore(gateway.storageUrl)
  t.teardown(() => store.close())
  t.same((await call('GET', '/generations')).list, [])
})
