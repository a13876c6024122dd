/** The server tool web_fetch and the plugin web-fetch over HTTP. */
import type { RequestListener } from 'node:http'
import t, { type Test } from 'tap'
import type { StreamEvent } from '../../src/protocol/events.ts'
import type { ResponseResource } from '../../src/protocol/response.ts'
import { grammarViolations } from '../support/event-grammar.ts'
import { parseEventStream } from '../support/gateway.ts'
import { writePdf } from '../support/pdf.ts'
import type { ScriptedReply } from '../support/provider.ts'
import { MODEL, serve, startEngine, startWebWorld, type WebWorldOptions } from '../support/world.ts'

const TOOL = { type: 'gateway:web_fetch' }
const reads = (url: string): ScriptedReply => ({
  calls: [{ name: 'web_fetch', arguments: JSON.stringify({ url }) }],
})
const ANSWERS: ScriptedReply = { text: 'Read.' }

const PAGES: Readonly<Record<string, RequestListener>> = {
  '/html': (_request, response) => {
    response.writeHead(200, { 'content-type': 'text/html; charset=iso-8859-1' })
    response.end(Buffer.from('<title>Caf\xe9</title><h1>T\xe9a</h1><p>words\x01</p>', 'latin1'))
  },
  '/json': (_request, response) => {
    response.writeHead(200, { 'content-type': 'application/json' }).end('{"a":1}')
  },
  '/pdf': (_request, response) => {
    response.writeHead(200, { 'content-type': 'application/pdf' })
    response.end(writePdf({ pages: ['first page', 'second page'] }))
  },
  '/picture': (_request, response) => {
    response.writeHead(200, { 'content-type': 'image/png' }).end('x')
  },
  '/missing': (_request, response) => {
    response.writeHead(404, { 'content-type': 'text/html' }).end('no')
  },
  '/large': (_request, response) => {
    response.writeHead(200, { 'content-type': 'text/plain' }).end('x'.repeat(1_000_001))
  },
  '/long': (_request, response) => {
    response.writeHead(200, { 'content-type': 'text/plain' }).end('word '.repeat(1_000))
  },
  '/away': (_request, response) => {
    response.writeHead(302, { location: 'http://localhost:1/x' }).end()
  },
}

async function start(t: Test, options: WebWorldOptions = {}) {
  const pages = await serve(t, (request, response) => PAGES[request.url ?? '']?.(request, response))
  const world = await startWebWorld(t, { allowPrivate: true, ...options })
  const run = async (urls: readonly string[], parameters = {}, fields = {}) => {
    world.provider.asked.length = 0
    world.provider.script('model', [...urls.map(reads), ANSWERS])
    const reply = await world.gateway.respond({
      model: MODEL,
      input: 'x',
      tools: [{ ...TOOL, parameters }],
      ...fields,
    })
    const response = (await reply.json()) as ResponseResource
    const results = world.provider.asked.slice(1).map(({ body }) => {
      const messages = body['messages'] as readonly { role: string; content: string }[]
      return JSON.parse(messages.findLast(({ role }) => role === 'tool')?.content ?? '') as Record<
        string,
        unknown
      >
    })
    return { status: reply.status, response, results }
  }
  return { ...world, pages, run }
}

t.test('pages, JSON and PDFs are read for the model', async t => {
  const { run, pages } = await start(t)
  const { response, results } = await run(['/html', '/json', '/pdf'].map(path => `${pages.url}${path}`))
  t.match(results, [
    {
      url: `${pages.url}/html`,
      title: 'Café',
      content: '## Téa\n\nwords',
      status: 'completed',
      retrieved_at: /^20.*Z$/,
    },
    { content: '{"a":1}' },
    { content: 'first page\n\nsecond page' },
  ])
  t.match(response.output[0], {
    type: 'gateway:web_fetch',
    status: 'completed',
    url: `${pages.url}/html`,
    title: 'Café',
    content: '## Téa\n\nwords',
    httpStatus: 200,
  })
  t.match(response.usage, { server_tool_use_details: { tool_calls_executed: 3, web_search_requests: 0 } })
  t.equal(pages.seen[0]?.headers['authorization'], undefined)
})

t.test('failures are results with their reason', async t => {
  const { run, pages } = await start(t)
  const { response, results } = await run(
    ['/missing', '/picture', '/large']
      .map(path => `${pages.url}${path}`)
      .concat('nonsense', 'http://127.0.0.1:1/'),
  )
  t.match(results, [
    { url: `${pages.url}/missing`, status: 'failed', error: 'HTTP 404: Not Found' },
    { status: 'failed', error: 'the address does not lead to a page, text, JSON, XML or PDF' },
    { status: 'failed', error: 'the link answered with more than 1000000 bytes' },
    { status: 'failed', error: /^url: must be a complete web address/ },
    { status: 'failed', error: 'the link cannot be reached' },
  ])
  t.match(response.output[0], { status: 'incomplete', httpStatus: 404, error: 'HTTP 404: Not Found' })
})

t.test('domains, uses and length are limited, redirects included', async t => {
  const { run, pages } = await start(t)
  const url = `${pages.url}/long`
  const cut = await run([url], { max_content_tokens: 5 })
  t.equal(cut.results[0]?.['content'], 'word word word word \n[The page was cut here]')
  const once = await run([url, url], { max_uses: 1 })
  t.match(once.results[1], {
    status: 'failed',
    error: 'web_fetch may be used at most 1 times in this request',
  })
  const blocked = await run([url, `${pages.url}/html`], { blocked_domains: ['127.0.0.1/long'] })
  t.match(blocked.results, [{ error: 'the request does not allow this domain' }, { status: 'completed' }])
  const away = await run([`${pages.url}/away`], { allowed_domains: ['127.0.0.1'] })
  t.match(away.results[0], { error: 'the link leads to a domain that this request does not allow' })
})

t.test('private addresses stay unknown by default, also those that a search has found', async t => {
  const engine = await startEngine(t)
  const { run, pages, provider, gateway } = await start(t, { allowPrivate: false, engines: [engine.row] })
  const inside = [
    `${pages.url}/html`,
    `https://127.0.0.1:${pages.port}/html`,
    'http://169.254.169.254/latest/meta-data/',
    `http://[::ffff:7f00:1]:${pages.port}/`,
    `http://localhost:${pages.port}/`,
  ]
  const { results } = await run(inside)
  for (const result of results)
    t.match(result, { status: 'failed', error: /^the link (?:leads to|does not lead to|cannot)/ })
  engine.results = inside.map(url => ({ url, text: `read ${url}` }))
  provider.script('model', [
    { calls: [{ name: 'web_search', arguments: '{"query":"x"}' }] },
    ...inside.map(reads),
    ANSWERS,
  ])
  const reply = await gateway.respond({
    model: MODEL,
    input: 'x',
    tools: [{ type: 'gateway:web_search' }, TOOL],
  })
  const { output } = (await reply.json()) as ResponseResource
  t.equal(output.filter(item => 'error' in item).length, inside.length)
  t.equal(pages.seen.length, 0)
})

t.test('an engine of ours fetches where it is named, and is charged', async t => {
  const engine = await startEngine(t)
  engine.results = [{ url: 'https://a.test/', title: 'A', text: 'by the engine' }]
  const { run } = await start(t, { engines: [engine.row] })
  const { results, response } = await run(['https://a.test/'], { engine: 'exa' })
  t.match(results[0], { title: 'A', content: 'by the engine', status: 'completed' })
  t.ok(((response.usage as { cost?: number } | undefined)?.cost ?? 0) > 0.001)
  const missing = await run(['https://a.test/'], { engine: 'firecrawl' })
  t.equal(missing.status, 400)
  t.match(missing.response, {
    error: { message: /^tools\[0\]\.parameters\.engine: the firecrawl engine is not configured/ },
  })
})

t.test('streamed, the item shows its address while it is read', async t => {
  const { provider, gateway, pages } = await start(t)
  provider.script('model', [reads(`${pages.url}/html`), ANSWERS])
  const reply = await gateway.respond({ model: MODEL, input: 'x', stream: true, tools: [TOOL] })
  const events = parseEventStream(await reply.text())
  t.same(grammarViolations(events), [])
  t.match(
    events.find(({ type }) => type === 'response.output_item.added'),
    { item: { type: 'gateway:web_fetch', status: 'in_progress', url: `${pages.url}/html` } },
  )
  const { response } = events.at(-1) as StreamEvent & { response: ResponseResource }
  t.equal(response.status, 'completed')
})

t.test('the plugin web-fetch offers the tool with its settings', async t => {
  const { run, pages, provider } = await start(t)
  const { results, response } = await run(
    [`${pages.url}/html`, `${pages.url}/json`],
    {},
    { tools: [], plugins: [{ id: 'web-fetch', max_uses: 1, max_content_tokens: 1 }] },
  )
  t.match(provider.asked[0]?.body, { tools: [{ function: { name: 'web_fetch' } }] })
  t.match(results, [{ content: '## T\n[The page was cut here]' }, { status: 'failed' }])
  t.equal(response.output[0]?.type, 'gateway:web_fetch')
})

t.test('the tool of the Messages API is served at providers of other APIs', async t => {
  const pages = await serve(t, (request, response) => PAGES[request.url ?? '']?.(request, response))
  const { gateway, provider } = await startWebWorld(t, { allowPrivate: true })
  provider.script('model', [reads(`${pages.url}/json`), ANSWERS])
  const reply = await fetch(`${gateway.url}/messages`, {
    method: 'POST',
    headers: { authorization: `Bearer ${gateway.apiKey}`, 'content-type': 'application/json' },
    body: JSON.stringify({
      model: MODEL,
      max_tokens: 99,
      messages: [{ role: 'user', content: 'Read it' }],
      tools: [{ type: 'web_fetch_20250910', name: 'web_fetch', max_uses: 2 }],
      tool_choice: { type: 'auto' },
    }),
  })
  const answer = (await reply.json()) as { content?: readonly { type: string }[] }
  t.match(answer.content, [
    { type: 'server_tool_use', name: 'web_fetch' },
    { type: 'web_fetch_tool_result', content: { type: 'web_fetch_result' } },
    { type: 'text', text: 'Read.' },
  ])
  t.match(provider.asked[0]?.body, { tools: [{ function: { name: 'web_fetch' } }] })
})
