/** Providers out of service: no request goes to them until the time is over, and callers are told why. */
import t, { type Test } from 'tap'
import { until } from '../support/patience.ts'
import { Provider } from '../support/provider.ts'
import { startManagedGateway } from '../support/world.ts'

const MINUTE_MS = 60_000
const SLUGS = ['one', 'two', 'two/east'] as const

async function started(t: Test, options: Parameters<typeof startManagedGateway>[1] = {}) {
  const providers = SLUGS.map(() => new Provider(() => ({ status: 200 })))
  const rows = []
  for (const [at, provider] of providers.entries())
    rows.push({
      slug: SLUGS[at] as string,
      format: 'openai-chat' as const,
      baseUrl: await provider.listen(t),
      apiKey: 'shared',
    })
  const endpoint = (provider: string) => ({ provider, upstreamModel: 'any' })
  const world = await startManagedGateway(t, {
    providers: rows,
    models: [
      { id: 'acme/both', endpoints: [endpoint('one'), endpoint('two')] },
      { id: 'acme/one', endpoints: [endpoint('one')] },
      { id: 'acme/east', endpoints: [endpoint('two/east')] },
    ],
    ...options,
  })
  const ask = async (fields: object) => {
    const before = providers.map(({ requests }) => requests.length)
    const reply = await world.gateway.respond({ input: 'Hello', ...fields })
    const text = await reply.text()
    const { error } = JSON.parse(text) as { error?: { message: string; metadata: object } | null }
    return {
      status: reply.status,
      text,
      wait: reply.headers.get('retry-after'),
      error: error ?? null,
      asked: SLUGS.filter((_, at) => (providers[at]?.requests.length ?? 0) > (before[at] ?? 0)),
    }
  }
  return { ...world, ask }
}

t.test('a paused provider gets no request until its time is over, with and without a plan', async t => {
  const { call, clock, ask } = await started(t)
  const plain = { model: 'acme/both' }
  const special = { ...plain, max_output_tokens: 64, temperature: 0.5, provider: { sort: 'price' } }
  for (const fields of [plain, special]) t.match(await ask(fields), { status: 200, asked: ['one'] })
  const paused = await call('POST', '/providers/one/pause', { minutes: 30, reason: 'incident 4711' })
  t.match(paused, { status: 200, data: { provider: 'one', reason: 'incident 4711' } }, paused.text)
  t.equal(Date.parse(String(paused.data['until'])) - Date.parse(String(paused.data['since'])), 30 * MINUTE_MS)
  await until('it is so', async () => (await ask(plain)).asked[0] === 'two')
  for (const fields of [plain, special]) t.match(await ask(fields), { status: 200, asked: ['two'] })
  const only = await ask({ model: 'acme/one' })
  t.match(only, { status: 503, wait: '1800', asked: [] }, only.text)
  t.match(
    only.error?.message,
    /^An operator has taken one out of service for a time, and no other provider of acme\/one may serve this request\. Try again in 1800 s, or name another model\.$/,
  )
  t.match(only.error?.metadata, {
    availability: {
      code: 'temporarily_unavailable',
      retryable: true,
      affected_providers: ['one'],
      excluded_by: ['provider_paused'],
    },
  })
  t.match(await ask({ model: 'acme/one', models: ['acme/both'] }), { status: 200, asked: ['two'] })
  t.match(await ask({ model: 'acme/one', provider: { only: ['two'] } }), { status: 404 })
  t.match(await call('GET', '/pauses'), { list: [{ provider: 'one' }], document: { total_count: 1 } })

  clock.advance(29 * MINUTE_MS)
  t.match(await ask(plain), { asked: ['two'] })
  clock.advance(MINUTE_MS)
  for (const fields of [plain, special, { model: 'acme/one' }])
    t.match(await ask(fields), { status: 200, asked: ['one'] })
  t.match(await call('GET', '/pauses'), { list: [], document: { total_count: 0 } })
  t.match(await call('POST', '/providers/one/resume'), { status: 404, message: /is not paused/ })
})

t.test('a pause covers the regions of a provider, is replaced by another, and ended by hand', async t => {
  const { call, ask } = await started(t)
  t.match(await call('POST', '/providers/two/pause', { minutes: 5 }), { status: 200, data: { reason: null } })
  await until('it is so', async () => (await ask({ model: 'acme/east' })).status === 503)
  t.match(await ask({ model: 'acme/east' }), { wait: '300', asked: [] })
  t.match(await call('POST', '/providers/two/pause', { minutes: 60 }), { status: 200 })
  await until('it is so', async () => (await ask({ model: 'acme/east' })).wait === '3600')
  t.equal((await call('GET', '/pauses')).list.length, 1)
  t.match(await call('POST', '/providers/two/resume'), { status: 200, data: { provider: 'two' } })
  await until('it is so', async () => (await ask({ model: 'acme/east' })).status === 200)
  t.match(await call('POST', '/providers/two%2Feast/pause', { minutes: 1 }), {
    status: 200,
    data: { provider: 'two/east' },
  })
  await until('it is so', async () => (await ask({ model: 'acme/east' })).status === 503)
  t.match(await ask({ model: 'acme/both', provider: { only: ['two'] } }), { status: 200, asked: ['two'] })
  const { list } = await call('GET', '/audit')
  t.match(
    list.map(({ action, object }) => ({ action, object })),
    [
      { action: 'provider.pause', object: { kind: 'provider', id: 'two/east' } },
      { action: 'provider.resume', object: { id: 'two' } },
      { action: 'provider.pause' },
      { action: 'provider.pause' },
    ],
  )
})

t.test('what is wrong with a pause is said by name', async t => {
  const { call } = await started(t)
  t.match(await call('POST', '/providers/three/pause', { minutes: 1 }), {
    status: 404,
    message: /no provider with this slug: GET \/v1\/providers lists them/,
  })
  for (const [body, said] of [
    [{}, /minutes: is required and must be an integer from 1 to 10080/],
    [{ minutes: 0 }, /minutes: must be an integer from 1 to 10080/],
    [{ minutes: 10_081 }, /minutes/],
    [{ minutes: 1, reason: 'x'.repeat(201) }, /reason/],
  ] as const)
    t.match(await call('POST', '/providers/one/pause', body), { status: 400, message: said })
})

t.test('a route goes to another target while a provider is paused', async t => {
  const { call, ask } = await started(t, {
    routes: [{ name: 'prod/chat', targets: [{ model: 'acme/one' }], fallback: ['acme/both'] }],
  } as Parameters<typeof startManagedGateway>[1])
  t.match(await ask({ model: 'prod/chat' }), { status: 200, asked: ['one'] })
  t.equal((await call('POST', '/providers/one/pause', { minutes: 1 })).status, 200)
  await until('it is so', async () => (await ask({ model: 'prod/chat' })).asked[0] === 'two')
})

t.test('a gateway that starts again knows its pauses', async t => {
  const { call, gateway } = await started(t)
  t.equal((await call('POST', '/providers/one/pause', { minutes: 10_080 })).status, 200)
  const again = await started(t, { storageUrl: gateway.storageUrl })
  t.match(await again.ask({ model: 'acme/both' }), { status: 200, asked: ['two'] })
})
