/** What a caller sees of routing: metadata, availability, and an endpoint that is not asked any more. */
import { createServer } from 'node:http'
import t, { type Test } from 'tap'
import { startGateway } from '../support/gateway.ts'
import { listening } from '../support/listening.ts'

const WITH_METADATA = { headers: { 'x-gateway-metadata': 'enabled' } }
const BODY = JSON.stringify({
  id: 'chatcmpl-1',
  object: 'chat.completion',
  model: 'm',
  choices: [{ index: 0, message: { role: 'assistant', content: 'Yes.' }, finish_reason: 'stop' }],
  usage: { prompt_tokens: 10, completion_tokens: 2, total_tokens: 12 },
})

async function start(t: Test) {
  const statuses = new Map<string, number>()
  const asked: string[] = []
  const bodies: Record<string, unknown>[] = []
  const server = createServer((request, response) => {
    const slug = (request.url ?? '').split('/')[1] ?? ''
    let json = ''
    request.setEncoding('utf8').on('data', text => {
      json += text
    })
    request.on('end', () => {
      asked.push(slug)
      bodies.push(JSON.parse(json))
      const status = json.includes('poison') ? 500 : (statuses.get(slug) ?? 200)
      const hint = status === 429 ? { 'retry-after': '7' } : {}
      response.writeHead(status, { 'content-type': 'application/json', ...hint })
      response.end(status === 200 ? BODY : '{}')
    })
  })
  const { port } = await listening(server, t)
  const slugs = ['one', 'two']
  const gateway = await startGateway({
    providers: slugs.map(slug => ({
      slug,
      name: slug.toUpperCase(),
      format: 'openai-chat' as const,
      baseUrl: `http://127.0.0.1:${port}/${slug}`,
    })),
    models: [
      {
        id: 'v/both-1',
        endpoints: slugs.map(provider => ({ provider, upstreamModel: 'm', pricing: { prompt: '0.000001' } })),
      },
      {
        id: 'v/single',
        endpoints: [{ provider: 'one', upstreamModel: 'm', pricing: { prompt: '0.000001' } }],
      },
    ],
  })
  t.teardown(() => gateway.close())
  const ask = async (body: object) => {
    const reply = await gateway.respond({ model: 'v/both-1', input: 'hi', ...body }, WITH_METADATA)
    return { status: reply.status, headers: reply.headers, document: (await reply.json()) as Json }
  }
  return { gateway, statuses, asked, bodies, ask }
}

// biome-ignore lint/suspicious/noExplicitAny: documents of replies
type Json = any

t.test('metadata says how the model was chosen, who was asked, and where the gateway stands', async t => {
  const { statuses, ask } = await start(t)
  statuses.set('one', 500)
  const plain = await ask({})
  t.match(plain.document.gateway_metadata, {
    requested: 'v/both-1',
    strategy: 'direct',
    region: 'local',
    summary: 'available=2, selected=TWO',
    attempt: 2,
    attempts: [
      { provider: 'ONE', model: 'v/both-1', status: 500 },
      { provider: 'TWO', model: 'v/both-1', status: 200 },
    ],
    endpoints: { total: 2 },
  })
  t.match((await ask({ model: '~v/both-latest' })).document.gateway_metadata, {
    requested: '~v/both-latest',
    strategy: 'latest',
  })
  const list = await ask({ model: undefined, models: ['v/gone', 'v/both-1'] })
  t.match(list.document.gateway_metadata, { strategy: 'fallback', skipped_models: ['v/gone'] })
})

t.test('preferences that leave nothing are told with availability, and no attempt', async t => {
  const { ask, gateway } = await start(t)
  const { status, document } = await ask({ provider: { only: ['three'] } })
  t.equal(status, 404)
  t.match(document, {
    error: {
      code: 404,
      error_type: 'not_found',
      http_status: 404,
      availability: { code: 'constraint_filtered', retryable: false, excluded_by: ['allowed_providers'] },
    },
    gateway_metadata: { requested: 'v/both-1', attempt: 0, attempts: [] },
  })
  const unasked = await gateway.respond({ model: 'v/both-1', input: 'hi', provider: { only: ['three'] } })
  const { error, gateway_metadata } = (await unasked.json()) as Json
  t.same([error.availability, gateway_metadata], [undefined, undefined], 'for whom did not ask for metadata')
})

t.test('after attempts that all failed, their number is told', async t => {
  const { statuses, ask } = await start(t)
  statuses.set('one', 500).set('two', 503)
  const { status, document } = await ask({})
  t.equal(status, 503)
  t.match(document.gateway_metadata, {
    attempt: 2,
    endpoints: { available: [{ selected: false }, { selected: false }] },
  })
})

t.test('an endpoint that keeps failing is not asked, and the answer says when to come back', async t => {
  const { statuses, asked, ask } = await start(t)
  statuses.set('one', 500)
  for (let at = 0; at < 5; at++) t.equal((await ask({ model: 'v/single' })).status, 502)
  const { status, headers, document } = await ask({ model: 'v/single' })
  t.equal(status, 503)
  t.equal(headers.get('retry-after'), '1')
  t.match(document, {
    error: {
      availability: { code: 'temporarily_unavailable', retryable: true, affected_providers: ['ONE'] },
    },
    gateway_metadata: { attempt: 0 },
  })
  t.equal(asked.length, 5)
})

t.test('a key whose requests fail at the provider takes the endpoint from itself alone', async t => {
  const { gateway, asked, ask } = await start(t)
  const made = await fetch(`${gateway.url}/keys`, {
    method: 'POST',
    headers: { authorization: `Bearer ${gateway.managementKey}`, 'content-type': 'application/json' },
    body: JSON.stringify({ name: 'another' }),
  })
  const { key } = (await made.json()) as Json
  const another = async (input: string): Promise<number> => {
    const reply = await fetch(`${gateway.url}/responses`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body: JSON.stringify({ model: 'v/single', input }),
    })
    await reply.arrayBuffer()
    return reply.status
  }
  t.equal((await ask({ model: 'v/single' })).status, 200)
  const burst = await Promise.all(Array.from({ length: 6 }, () => another('poison')))
  t.same(
    burst,
    Array.from({ length: 6 }, () => 502),
  )
  t.equal(await another('hi'), 503)
  for (let time = 0; time < 5; time++) t.equal((await ask({ model: 'v/single' })).status, 200)
  t.equal(asked.length, 12)
})

t.test('Retry-After of a provider holds for all who come after', async t => {
  const { statuses, asked, ask } = await start(t)
  statuses.set('one', 429)
  t.equal((await ask({})).status, 200)
  t.equal((await ask({})).status, 200)
  t.same(asked, ['one', 'two', 'two'])
  const { status, headers, document } = await ask({ model: 'v/single' })
  t.equal(status, 429)
  t.equal(headers.get('retry-after'), '7')
  t.match(document.error, { availability: { code: 'capacity_exhausted' } })
})

t.test('the variant :thinking turns reasoning on, unless the request says something of it', async t => {
  const { bodies, ask } = await start(t)
  t.equal((await ask({ model: 'v/single:thinking' })).status, 200)
  t.ok(bodies.at(-1)?.['reasoning_effort'])
  await ask({ model: 'v/single' })
  t.equal(bodies.at(-1)?.['reasoning_effort'], undefined)
  await ask({ model: 'v/single:thinking', reasoning: { effort: 'low' } })
  t.equal(bodies.at(-1)?.['reasoning_effort'], 'low')
})

t.test('a typo in a preference is 400, on every door', async t => {
  const { gateway } = await start(t)
  const asks: readonly (readonly [string, object])[] = [
    ['/responses', { input: 'hi' }],
    ['/chat/completions', { messages: [{ role: 'user', content: 'hi' }] }],
    ['/messages', { messages: [{ role: 'user', content: 'hi' }], max_tokens: 5 }],
  ]
  for (const [path, body] of asks) {
    const reply = await fetch(`${gateway.url}${path}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${gateway.apiKey}`, 'content-type': 'application/json' },
      body: JSON.stringify({ model: 'v/single', ...body, provider: { data_colection: 'deny' } }),
    })
    t.equal(reply.status, 400, path)
    t.match(((await reply.json()) as Json).error.message, /provider\.data_colection/)
  }
})
