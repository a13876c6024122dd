/** Web search of a provider that has one: the gateway hands the tool over, and no engine of ours is asked. */
import t from 'tap'
import type { ResponseResource } from '../../src/protocol/response.ts'
import { startGateway } from '../support/gateway.ts'
import { responsesReply, serve, startEngine, startWebWorld } from '../support/world.ts'

const SEARCHED = responsesReply('Tea.', [
  { type: 'web_search_call', id: 'ws_1', status: 'completed', action: { type: 'search', query: 'tea' } },
])

t.test('auto, native, the plugin and :online hand the search to the provider', async t => {
  const engine = await startEngine(t)
  const provider = await serve(t, (_request, response) => {
    response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(SEARCHED))
  })
  const row = { slug: 'acme', name: 'Acme', baseUrl: provider.url, apiKey: 'x' }
  const gateway = await startGateway({
    tools: { webSearch: { engines: [engine.row], default: null, timeoutMs: 1_000 } },
    providers: [{ ...row, format: 'openai-responses' }],
    models: [{ id: 'acme/m', endpoints: [{ provider: 'acme', pricing: {} }] }],
  })
  t.teardown(gateway.close)
  const parameters = { search_context_size: 'low', max_results: 3 }
  const asked = [
    { tools: [{ type: 'gateway:web_search', parameters }] },
    { tools: [{ type: 'web_search', search_context_size: 'low' }] },
    { tools: [{ type: 'openrouter:web_search', parameters: { ...parameters, engine: 'native' } }] },
    { plugins: [{ id: 'web' }] },
    { plugins: [{ id: 'web', engine: 'native' }] },
    { model: 'acme/m:online' },
  ]
  for (const fields of asked) {
    const reply = await gateway.respond({ model: 'acme/m', input: 'tea', ...fields })
    const response = (await reply.json()) as ResponseResource
    t.equal(reply.status, 200, JSON.stringify(response))
    t.same(
      response.output.map(({ type }) => type),
      ['web_search_call', 'message'],
    )
    const { tools } = JSON.parse(provider.seen.at(-1)?.body ?? '') as { tools: readonly { type: string }[] }
    t.same(
      tools.map(({ type }) => type),
      ['web_search'],
    )
    t.notMatch(JSON.stringify(tools), /engine|max_results/)
  }
  t.equal(engine.seen.length, 0)
  const named = { tools: [{ type: 'gateway:web_search', parameters: { engine: 'exa' } }] }
  await gateway.respond({ model: 'acme/m', input: 'tea', ...named })
  t.match(JSON.parse(provider.seen.at(-1)?.body ?? ''), { tools: [{ type: 'function', name: 'web_search' }] })
})

t.test('a provider whose format has no search gets a function in its place', async t => {
  const engine = await startEngine(t)
  engine.results = [{ url: 'https://a.test/', text: 'x' }]
  const { gateway, provider } = await startWebWorld(t, { engines: [engine.row] })
  provider.script('model', [
    { calls: [{ name: 'web_search', arguments: '{"query":"tea"}' }] },
    { text: 'Tea.' },
  ])
  const reply = await gateway.respond({ model: 'acme/model', input: 'tea', tools: [{ type: 'web_search' }] })
  t.match(await reply.json(), { output: [{ type: 'web_search_call', status: 'completed' }, {}] })
})
