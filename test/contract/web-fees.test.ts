/** Fees of searches over HTTP: a limit of money holds for them, and a caller who leaves owes them. */
import t from 'tap'
import type { ResponseResource } from '../../src/protocol/response.ts'
import { caller } from '../support/management.ts'
import { eventually } from '../support/stream-probe.ts'
import { MODEL, startEngine, startWebWorld } from '../support/world.ts'

const search = { name: 'web_search', arguments: '{"query":"tea"}' }
const SEARCHES = { calls: [search, search, search, search], tokens: { input: 10, output: 2 } }
const ANSWERS = { text: 'tea', tokens: { input: 20, output: 3 } }

t.test('searches that the limit of the key does not cover do not run, also at the same time', async t => {
  const engine = await startEngine(t)
  const { gateway, provider } = await startWebWorld(t, { engines: [engine.row] })
  const made = await caller(gateway.url, gateway.managementKey)('POST', '/keys', { name: 'a', limit: 0.016 })
  provider.script('model', [SEARCHES, ANSWERS])
  const reply = await gateway.respond(
    { model: MODEL, input: 'tea?', max_output_tokens: 20, tools: [{ type: 'gateway:web_search' }] },
    { headers: { authorization: `Bearer ${String(made.document['key'])}` } },
  )
  const { usage, status, output } = (await reply.json()) as ResponseResource
  t.equal(status, 'completed')
  t.equal(engine.seen.length, 2, 'a search of Exa costs 0.007')
  t.match(usage, {
    server_tool_use_details: { tool_calls_requested: 4, tool_calls_executed: 2, web_search_requests: 2 },
    cost: 0.01408,
  })
  t.equal(output.length, 3)
  t.match(JSON.stringify(provider.asked[1]?.body), 'This call would exceed a spending limit of this API key')
})

t.test('a caller who leaves while an engine searches owes the fee', async t => {
  const asks = {
    tool: { model: MODEL, input: 'tea?', stream: true, tools: [{ type: 'gateway:web_search' }] },
    plugin: { model: MODEL, input: 'tea?', stream: true, plugins: [{ id: 'web' }] },
  }
  for (const [name, ask] of Object.entries(asks)) {
    const leaving = new AbortController()
    // It never answers.
    const engine = await startEngine(t, () => leaving.abort())
    const { gateway, provider } = await startWebWorld(t, { engines: [engine.row] })
    provider.script('model', [{ ...SEARCHES, calls: [search] }])
    await gateway
      .respond(ask, { signal: leaving.signal })
      .then(reply => reply.text())
      .catch(() => undefined)
    const spent = async () => {
      await gateway.shipper.ship()
      const { document } = await caller(gateway.url, gateway.apiKey)('GET', '/key')
      return Number((document['data'] as { usage: number }).usage)
    }
    t.ok(await eventually(async () => (await spent()) >= 0.007, 5_000), name)
    t.equal(engine.seen.length, 1, name)
  }
})

t.test('a search that fails costs nothing', async t => {
  const engine = await startEngine(t, response => response.writeHead(500).end())
  const { gateway, provider } = await startWebWorld(t, { engines: [engine.row] })
  provider.script('model', [SEARCHES, ANSWERS])
  const reply = await gateway.respond({
    model: MODEL,
    input: 'tea?',
    tools: [{ type: 'gateway:web_search' }],
  })
  t.match(await reply.json(), { usage: { cost: 0.00008 } })
})
