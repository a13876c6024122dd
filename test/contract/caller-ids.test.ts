/** Ids by which callers find a request again: X-Request-Id and traceparent, in answers, log lines and at providers. */
import { createServer, type IncomingHttpHeaders } from 'node:http'
import t from 'tap'
import { startGateway } from '../support/gateway.ts'
import { listening } from '../support/listening.ts'

const TRACE = '0af7651916cd43dd8448eb211c80319c'
const PARENT = `00-${TRACE}-b7ad6b7169203331-01`

const seen: IncomingHttpHeaders[] = []
const provider = createServer((request, response) => {
  seen.push(request.headers)
  request.resume()
  response.setHeader('content-type', 'application/json')
  const message = { role: 'assistant', content: 'x' }
  response.end(
    JSON.stringify({
      id: 'c1',
      choices: [{ index: 0, message, finish_reason: 'stop' }],
      usage: { prompt_tokens: 1000, completion_tokens: 2, total_tokens: 1002 },
    }),
  )
})
const { url } = await listening(provider, t)

const acme = {
  slug: 'acme',
  name: 'Acme',
  format: 'openai-chat' as const,
  baseUrl: url,
  apiKey: 'acme-key',
}
const gateway = await startGateway({
  providers: [acme, { ...acme, slug: 'friend', propagateTrace: true }],
  models: [
    ['acme/one', 'acme'],
    ['acme/two', 'friend'],
  ].map(([id, slug]) => ({
    id,
    name: 'One',
    contextLength: 8000,
    maxOutputTokens: 1000,
    inputModalities: ['text'],
    outputModalities: ['text'],
    endpoints: [{ provider: slug, pricing: { prompt: '0.000001', completion: '0.000002' } }],
  })) as never,
})
t.teardown(() => gateway.close())

async function ask(headers: Record<string, string>, body: object = {}) {
  const answer = await gateway.respond({ model: 'acme/one', input: 'hush', ...body }, { headers })
  await answer.text()
  const generation = answer.headers.get('x-generation-id') ?? ''
  const line = gateway.lines.find(each => each['id'] === generation) ?? {}
  return { status: answer.status, answered: answer.headers.get('x-request-id'), generation, line }
}

t.test("a caller's id of a request is answered and logged, and is not the id of the record", async t => {
  const { answered, generation, line } = await ask({ 'x-request-id': 'app-7f0c:1' })
  t.equal(answered, 'app-7f0c:1')
  t.match(generation, /^gen-/)
  t.match(line, { id: generation, requestId: 'app-7f0c:1' })
})

t.test('an unfit id is left out, and refused requests have theirs too', async t => {
  const { answered, generation, line } = await ask({ 'x-request-id': `sk-gw-v1-${'0'.repeat(64)}` })
  t.equal(answered, generation)
  t.notOk('requestId' in line)
  const refused = await fetch(`${gateway.url}/responses`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-request-id': 'no-key', traceparent: PARENT },
    body: '{}',
  })
  t.equal(refused.status, 401)
  t.equal(refused.headers.get('x-request-id'), 'no-key')
  await refused.text()
  t.match(
    gateway.lines.find(each => each['requestId'] === 'no-key'),
    { status: 401, trace_id: TRACE },
  )
})

t.test("a caller's trace goes on unchanged, and its id is in the log line", async t => {
  seen.length = 0
  const { line } = await ask({ traceparent: PARENT, tracestate: 'a=1', baggage: 'secret=1' })
  t.match(line, { trace_id: TRACE })
  t.equal(seen[0]?.['traceparent'], PARENT)
  t.notOk('tracestate' in (seen[0] ?? {}), 'its state may tell of the caller')
  t.notOk('baggage' in (seen[0] ?? {}))
  const { line: plain } = await ask({ traceparent: PARENT.toUpperCase() })
  t.notOk('trace_id' in plain, 'a malformed one is none')
  t.notOk('traceparent' in (seen[1] ?? {}))
  await ask({})
  t.notOk('traceparent' in (seen[2] ?? {}))
})

t.test(
  "a provider that takes part in the caller's trace gets its state too, if that is well-formed",
  async t => {
    const model = { model: 'acme/two' }
    seen.length = 0
    await ask({ traceparent: PARENT, tracestate: 'a=1, b@c=2', baggage: 'secret=1' }, model)
    t.match(seen[0], { traceparent: PARENT, tracestate: 'a=1,b@c=2' })
    t.notOk('baggage' in (seen[0] ?? {}))
    for (const headers of [{ tracestate: 'a=1' }, { traceparent: PARENT, tracestate: 'a=1,a=2' }, {}]) {
      seen.length = 0
      await ask(headers, model)
      t.notOk('tracestate' in (seen[0] ?? {}), JSON.stringify(headers))
    }
  },
)

t.test('a log line tells who asked, for whom, and at what cost', async t => {
  const { line } = await ask(
    { 'user-agent': 'OpenAI/JS 6.1', 'x-session-id': 's1' },
    { user: 'anna@example.org' },
  )
  t.match(line, { userAgent: 'OpenAI/JS', session: 's1', cost: 0.001004 })
  t.match(line['endUser'], /^\S{16,}$/)
  t.notMatch(JSON.stringify(line), 'anna')
  const again = await ask({}, { user: 'anna@example.org' })
  t.equal(again.line['endUser'], line['endUser'])
  const other = await ask({}, { user: 'bert@example.org' })
  t.not(other.line['endUser'], line['endUser'])
})

t.test('a log line tells why a request was refused here', async t => {
  const { status, line } = await ask({}, { temperature: 'hot' })
  t.equal(status, 400)
  t.match(line, { field: 'temperature', message: /temperature/, requestedModel: 'acme/one' })
})
