/** Answers tell what is left of a limit, and a request waits for money that running ones have reserved. */
import { createServer } from 'node:http'
import t, { type Test } from 'tap'
import { MAX_WAITING_PER_KEY } from '../../src/callers/limits/reservation-wait.ts'
import { startGateway, type TestGateway } from '../support/gateway.ts'
import { listening } from '../support/listening.ts'
import { caller } from '../support/management.ts'
import { startToldProvider } from '../support/provider.ts'
import { TestClock } from '../support/test-clock.ts'

const ASK = { model: 'sim/echo', input: 'Hello', max_output_tokens: 50 }

async function started(t: Test, options: Parameters<typeof startGateway>[0]): Promise<TestGateway> {
  const gateway = await startGateway(options)
  t.teardown(() => gateway.close())
  return gateway
}

async function post(gateway: TestGateway, path: string, body: object, apiKey = gateway.apiKey) {
  const reply = await fetch(`${gateway.url}${path}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${apiKey}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  })
  return { status: reply.status, headers: Object.fromEntries(reply.headers), text: await reply.text() }
}

t.test('a limit of tokens is told on every answer, in the words of each API', async t => {
  const clock = new TestClock(Date.parse('2026-03-11T12:00:15.000Z'))
  const gateway = await started(t, {
    clock,
    quotas: { requestsPerMinute: 100, tokensPerMinute: 10_000, nodes: 1 },
  })
  const messages = { model: 'sim/echo', max_tokens: 50, messages: [{ role: 'user', content: 'Hello' }] }
  for (const stream of [false, true]) {
    const { status, headers } = await post(gateway, '/responses', { ...ASK, stream })
    t.equal(status, 200)
    t.match(headers, {
      'x-ratelimit-limit-requests': '100',
      'x-ratelimit-limit-tokens': '10000',
      'x-ratelimit-remaining-tokens': /^9\d{3}$/,
      'x-ratelimit-reset-tokens': '45s',
    })
    const own = await post(gateway, '/messages', { ...messages, stream })
    t.match(own.headers, {
      'anthropic-ratelimit-requests-limit': '100',
      'anthropic-ratelimit-tokens-limit': '10000',
      'anthropic-ratelimit-tokens-remaining': /^9\d{3}$/,
      'anthropic-ratelimit-tokens-reset': '2026-03-11T12:01:00.000Z',
    })
    t.notOk(Object.keys(own.headers).some(name => name.startsWith('x-ratelimit')))
  }
  const embedded = await post(gateway, '/embeddings', { model: 'sim/embed', input: 'Hello' })
  t.match(embedded.headers, { 'x-ratelimit-limit-tokens': '10000' })
  const refused = await post(gateway, '/messages', { ...messages, max_tokens: 20_000 })
  t.equal(refused.status, 429)
  t.match(refused.headers, {
    'anthropic-ratelimit-tokens-limit': '10000',
    'anthropic-ratelimit-tokens-reset': '2026-03-11T12:01:00.000Z',
    'x-ratelimit-limit-tokens': '10000',
  })
})

t.test('without a limit of tokens nothing is told of one', async t => {
  const gateway = await started(t, {})
  const { headers } = await post(gateway, '/responses', ASK)
  t.notOk(Object.keys(headers).some(name => name.includes('ratelimit-')))
})

t.test("a provider's own limits are told for own credentials only, and those of the gateway win", async t => {
  let status = 200
  const server = createServer((request, response) => {
    request.resume().on('end', () => {
      response.writeHead(status, {
        'content-type': 'application/json',
        'x-ratelimit-limit-requests': '7',
        'x-ratelimit-remaining-requests': '3',
        'x-ratelimit-limit-project-tokens': '900',
        'anthropic-ratelimit-input-tokens-remaining': '12',
        'x-ratelimit-note': 'see {"other": "things"}',
        'x-secret': 'hidden',
      })
      const message = { role: 'assistant', content: 'Hi' }
      const usage = { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 }
      const choices = [{ index: 0, finish_reason: 'stop', message }]
      const said = status === 200 ? { id: 'c', choices, usage } : { error: { message: 'Slow down' } }
      response.end(JSON.stringify(said))
    })
  })
  const { url: baseUrl } = await listening(server, t)
  for (const requestsPerMinute of [null, 100]) {
    status = 200
    const gateway = await started(t, {
      quotas: { requestsPerMinute, tokensPerMinute: null, nodes: 1 },
      providers: [{ slug: 'groq', format: 'openai-chat', baseUrl, apiKey: 'sk-shared-0123456789' }],
      models: [{ id: 'acme/limited', endpoints: [{ provider: 'groq' }] }],
    })
    const ask = { model: 'acme/limited', input: 'Hello' }
    const shared = await post(gateway, '/responses', ask)
    t.equal(shared.status, 200)
    t.equal(shared.headers['x-ratelimit-limit-project-tokens'], undefined)
    status = 429
    t.equal((await post(gateway, '/responses', ask)).headers['x-ratelimit-limit-project-tokens'], undefined)
    const manage = caller(gateway.url, gateway.managementKey)
    const made = await manage('POST', '/byok', { provider: 'groq', key: 'sk-own-0123456789abcdef' })
    t.equal(made.status, 201)
    for (const next of [200, 429]) {
      status = next
      const own = await post(gateway, '/responses', { ...ask, provider: { allow_fallbacks: false } })
      t.equal(own.status, next, own.text)
      t.match(own.headers, {
        'x-ratelimit-limit-project-tokens': '900',
        'anthropic-ratelimit-input-tokens-remaining': '12',
        'x-ratelimit-limit-requests': requestsPerMinute === null ? '7' : '100',
      })
      t.equal(own.headers['x-ratelimit-note'], undefined)
      t.equal(own.headers['x-secret'], undefined)
    }
  }
})

/** Resolves as soon as it is so. */
async function until(isSo: () => boolean): Promise<void> {
  while (!isSo()) await new Promise(resolve => setImmediate(resolve))
}

/** A key that can pay for one request at a time. `ask` sends one. */
async function dearWorld(t: Test) {
  const clock = new TestClock()
  const provider = await startToldProvider(t)
  const gateway = await started(t, {
    clock,
    providers: [{ slug: 'told', format: 'openai-chat', baseUrl: provider.baseUrl, apiKey: 'k' }],
    models: [
      {
        id: 'told/dear',
        endpoints: [{ provider: 'told', pricing: { prompt: '0', completion: '0.0001' } }],
      },
    ],
  })
  const manage = caller(gateway.url, gateway.managementKey)
  const { document } = await manage('POST', '/keys', { name: 'limited', limit: 1 })
  const apiKey = String(document['key'])
  const body = { model: 'told/dear', input: 'x', max_output_tokens: 9_000 }
  return { clock, provider, ask: () => post(gateway, '/responses', body, apiKey) }
}

t.test('requests wait for what running ones have reserved, so many of a key', async t => {
  const { clock, provider, ask } = await dearWorld(t)
  const usage = { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 }
  const answers: number[] = []
  const answered = () => ask().then(({ status }) => void answers.push(status))
  const first = answered()
  await until(() => provider.replies.length === 1)
  const waiting = Array.from({ length: MAX_WAITING_PER_KEY + 1 }, answered)
  await until(() => answers.length === 1)
  t.same(answers, [429], 'one more than may wait is refused at once')
  provider.onReply = reply => reply.whole('Hi', usage)
  provider.replies[0]?.whole('Hi', usage)
  await first
  for (let served = 2; served < MAX_WAITING_PER_KEY + 2; served++) {
    clock.advance(200)
    await until(() => answers.length > served)
  }
  await Promise.all(waiting)
  t.same(new Set(answers.slice(1)), new Set([200]), 'and the others are served, one after another')
  t.equal(answers.length, MAX_WAITING_PER_KEY + 2)
})

t.test('after five seconds the request is refused', async t => {
  const { clock, provider, ask } = await dearWorld(t)
  const first = ask()
  await until(() => provider.replies.length === 1)
  let refused: { readonly status: number; readonly text: string } | null = null
  const second = ask().then(reply => {
    refused = reply
  })
  const sinceMs = clock.monotonicMs()
  while (refused === null) {
    clock.advance(10)
    await new Promise(resolve => setImmediate(resolve))
  }
  await second
  t.ok(clock.monotonicMs() - sinceMs >= 5_000)
  t.match(refused, { status: 429, text: /reserved for requests that are still running/ })
  provider.replies[0]?.whole('Hi', { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 })
  t.equal((await first).status, 200)
})
