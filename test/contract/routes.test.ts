/** Routes in the running gateway: shares, fallbacks, conditions, allow lists, lists of models, faults of the file. */
import t, { type Test } from 'tap'
import { startGateway, type TestGatewayOptions } from '../support/gateway.ts'
import { caller } from '../support/management.ts'

const MODELS = [
  { id: 'acme/large', endpoints: [{ provider: 'sim', upstreamModel: 'echo' }] },
  { id: 'acme/small', endpoints: [{ provider: 'sim', upstreamModel: 'echo' }] },
  { id: 'acme/down', endpoints: [{ provider: 'sim', upstreamModel: 'fail-500' }] },
]

async function started(t: Test, routes: readonly object[], options: Partial<TestGatewayOptions> = {}) {
  const gateway = await startGateway({ models: MODELS, routes, ...options } as Partial<TestGatewayOptions>)
  t.teardown(() => gateway.close())
  const ask = async (fields: object = {}, path = '/responses') => {
    const reply = await fetch(`${gateway.url}${path}`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${gateway.apiKey}`,
        'content-type': 'application/json',
        'x-gateway-metadata': 'enabled',
      },
      body: JSON.stringify({ model: 'prod/chat', input: 'Hello', ...fields }),
    })
    const text = await reply.text()
    const document = JSON.parse(text) as {
      readonly model?: string
      readonly gateway_metadata?: Readonly<Record<string, unknown>>
      readonly error?: { readonly message: string; readonly code: number }
    }
    return { ...document, status: reply.status, text }
  }
  return { gateway, ask, manage: caller(gateway.url, gateway.managementKey) }
}

for (const front of ['uws', 'node'] as const) {
  t.test(`a route chooses a target by weight, and says so (${front})`, async t => {
    const route = {
      name: 'prod/chat',
      targets: [
        { model: 'acme/large', weight: 3 },
        { model: 'acme/small', weight: 1 },
      ],
    }
    const { ask } = await started(t, [route], { listen: { front } })
    const models = new Set<string | undefined>()
    for (let n = 0; n < 40; n++) {
      const { model, gateway_metadata, status, text } = await ask()
      t.equal(status, 200, text)
      models.add(model)
      t.match(gateway_metadata, { requested: 'prod/chat', route: 'prod/chat', strategy: 'route' })
    }
    t.same([...models].sort(), ['acme/large', 'acme/small'])
    const stays = new Set<string | undefined>()
    for (let n = 0; n < 20; n++) stays.add((await ask({ session_id: 'one' })).model)
    t.equal(stays.size, 1)
    const tools = [{ type: 'function', name: 'f', parameters: { type: 'object', properties: {} } }]
    t.ok(stays.has((await ask({ session_id: 'one', tools })).model), 'with and without a plan')
    t.notOk((await ask({ model: 'acme/large' })).gateway_metadata?.['route'])
  })
}

t.test('all doors and embeddings know routes', async t => {
  const { gateway, ask } = await started(
    t,
    [
      { name: 'prod/chat', targets: [{ model: 'acme/small' }] },
      { name: 'vectors', targets: [{ model: 'sim/embed' }] },
    ],
    { simulator: { enabled: true, batch: false } } as Partial<TestGatewayOptions>,
  )
  const messages = [{ role: 'user', content: 'Hello' }]
  t.match(await ask({ input: undefined, messages }, '/chat/completions'), {
    status: 200,
    model: 'acme/small',
  })
  t.match(await ask({ input: undefined, messages, max_tokens: 9 }, '/messages'), {
    status: 200,
    model: 'acme/small',
  })
  t.match(await ask({ model: 'vectors' }, '/embeddings'), { status: 200, model: 'sim/embed' })
  t.match(await ask({ model: 'prod/chat', input: 'x' }, '/embeddings'), { status: 400 })
  t.match(await ask({ model: 'prod/chta' }), { status: 400, error: { message: /prod\/chat/ } })
  const stream = await fetch(`${gateway.url}/responses`, {
    method: 'POST',
    headers: { authorization: `Bearer ${gateway.apiKey}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'prod/chat', input: 'Hello', stream: true }),
  })
  t.match(await stream.text(), /"model":"acme\/small"/)
})

t.test('a target that fails goes to the fallbacks in order, and not to another target', async t => {
  const route = {
    name: 'prod/chat',
    targets: [
      { model: 'acme/down', weight: 1 },
      { model: 'acme/large', weight: 0 },
    ],
    fallback: ['acme/down', 'acme/small', 'acme/large'],
  }
  const { ask } = await started(t, [route])
  for (const fields of [{}, { tools: [{ type: 'function', name: 'f' }] }]) {
    const { model, gateway_metadata } = await ask(fields)
    t.equal(model, 'acme/small')
    t.match(gateway_metadata, { attempts: [{ model: 'acme/down' }, { model: 'acme/small' }] })
  }
  t.equal((await ask({ provider: { allow_fallbacks: false } })).status >= 500, true)
})

t.test('conditions and preferences of a target', async t => {
  const route = {
    name: 'prod/chat',
    targets: [
      { model: 'acme/small' },
      { model: 'acme/large', when: [{ field: 'tag:tier', op: '=', value: 'gold' }] },
      { model: 'acme/large', provider: 'openai', when: [{ field: 'tag:tier', op: '=', value: 'none' }] },
    ],
    fallback: ['acme/down'],
  }
  const { ask } = await started(t, [route])
  t.equal((await ask()).model, 'acme/small')
  t.equal((await ask({ metadata: { tier: 'gold' } })).model, 'acme/large')
  t.equal(
    (await ask({ metadata: { tier: 'none' } })).status,
    502,
    'no endpoint at the provider of the target',
  )
})

t.test('a route without a target for the request says so', async t => {
  const when = [{ field: 'tools', op: '=', value: true }]
  const { ask } = await started(t, [{ name: 'prod/chat', targets: [{ model: 'acme/small', when }] }])
  t.match(await ask(), {
    status: 404,
    error: { message: /No target of the route prod\/chat can serve this request/ },
  })
})

t.test('allow lists check the target: one that is not allowed drops out', async t => {
  const route = {
    name: 'prod/chat',
    targets: [
      { model: 'acme/large', weight: 99 },
      { model: 'acme/small', weight: 1 },
    ],
  }
  const { ask, manage } = await started(t, [route])
  const { document } = await manage('POST', '/guardrails', {
    name: 'small only',
    allowed_models: ['acme/small'],
  })
  const id = (document['data'] as { id: string }).id
  const keys = await manage('GET', '/keys')
  const hashes = (keys.document['data'] as { hash: string; is_management_key: boolean }[])
    .filter(key => !key.is_management_key)
    .map(({ hash }) => hash)
  const assigned = await manage('POST', `/guardrails/${id}/assignments/keys`, { key_hashes: hashes })
  t.equal(assigned.status, 200, assigned.text)
  for (let n = 0; n < 20; n++) t.equal((await ask({ session_id: `${n}` })).model, 'acme/small')
  t.match(await ask({ model: 'acme/large' }), { status: 403 })
})

t.test('GET /models lists routes first', async t => {
  const route = { name: 'prod/chat', targets: [{ model: 'acme/large' }, { model: 'acme/small' }] }
  const { gateway } = await started(t, [route, { name: 'fast', targets: [{ model: 'acme/small' }] }])
  const get = async (path: string) => {
    const reply = await fetch(`${gateway.url}${path}`, {
      headers: { authorization: `Bearer ${gateway.apiKey}` },
    })
    return (await reply.json()) as {
      data: { id: string; endpoints?: unknown[] }[] & { id: string; endpoints?: unknown[] }
    }
  }
  const { data } = await get('/models')
  t.same(
    data.slice(0, 2).map(({ id }) => id),
    ['prod/chat', 'fast'],
  )
  t.match(await get('/models/prod/chat'), { id: 'prod/chat', owned_by: 'prod' })
  t.match(await get('/models/prod/chat/endpoints'), { data: { id: 'prod/chat', endpoints: { length: 2 } } })
})

t.test('records and explanations name the route', async t => {
  const { gateway, ask } = await started(t, [{ name: 'prod/chat', targets: [{ model: 'acme/small' }] }])
  const { id } = JSON.parse((await ask()).text) as { readonly id: string }
  const { document } = await caller(gateway.url, gateway.apiKey)('GET', `/generation?id=${id}`)
  t.match(document, { data: { model: 'acme/small', requested_model: 'prod/chat' } })
})
