/** POST /messages/count_tokens: counted by the provider where its API can, else estimated. */
import { createServer, type IncomingHttpHeaders } from 'node:http'
import t from 'tap'
import { startGateway } from '../support/gateway.ts'
import { listening } from '../support/listening.ts'

interface Asked {
  readonly url: string
  readonly headers: IncomingHttpHeaders
  readonly body: Record<string, unknown>
}

const asked: Asked[] = []
/** What the provider answers; by default its count. */
let answer: { status: number; body: unknown } | null = null
const COUNTS: readonly (readonly [RegExp, object])[] = [
  [/count_tokens$/, { input_tokens: 101 }],
  [/:countTokens$/, { totalTokens: 102 }],
  [/count-tokens$/, { inputTokens: 103 }],
]
const server = createServer(async (request, response) => {
  let text = ''
  for await (const chunk of request.setEncoding('utf8')) text += String(chunk)
  const url = request.url ?? ''
  asked.push({ url, headers: request.headers, body: JSON.parse(text) as Record<string, unknown> })
  const counted = COUNTS.find(([path]) => path.test(url))?.[1] ?? { error: 'no such path' }
  const { status, body } = answer ?? { status: 200, body: counted }
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body))
})
const { url: at } = await listening(server, t)

const row = (
  slug: string,
  format: 'anthropic-messages' | 'google-gemini' | 'bedrock-converse' | 'openai-chat',
) => ({ slug, name: slug, format, baseUrl: `${at}/${slug}`, apiKey: 'key-of-provider' }) as const
const gateway = await startGateway({
  providers: [
    row('claudes', 'anthropic-messages'),
    row('geminis', 'google-gemini'),
    { ...row('vertexes', 'google-gemini'), quirks: ['counts-contents'] },
    row('rocks', 'bedrock-converse'),
    row('chats', 'openai-chat'),
  ],
  models: ['claudes', 'geminis', 'vertexes', 'rocks', 'chats'].map(provider => ({
    id: `${provider}/one`,
    maxOutputTokens: 4096,
    endpoints: [{ provider, upstreamModel: provider === 'rocks' ? 'anthropic.claude-x' : 'one' }],
  })),
})
t.teardown(() => gateway.close())

const WHOLE = {
  system: 'Be brief',
  messages: [{ role: 'user', content: 'How long is this?' }],
  tools: [{ name: 'look', input_schema: { type: 'object', properties: {} } }],
}

async function count(model: string, more: object = {}) {
  const reply = await fetch(`${gateway.url}/messages/count_tokens`, {
    method: 'POST',
    headers: {
      'x-api-key': gateway.apiKey,
      'content-type': 'application/json',
      'anthropic-beta': 'one-1,two-2',
    },
    body: JSON.stringify({ model, ...WHOLE, ...more }),
  })
  const by = reply.headers.get('x-gateway-counted-by')
  return { status: reply.status, by, body: (await reply.json()) as Record<string, unknown> }
}

t.beforeEach(() => {
  asked.length = 0
  answer = null
})

t.test('a provider of the Messages API counts the message that it would get', async t => {
  const thinking = { type: 'enabled', budget_tokens: 2000 }
  t.same(await count('claudes/one', { thinking, stream: true }), {
    status: 200,
    by: 'provider',
    body: { input_tokens: 101 },
  })
  const [{ url, headers, body } = asked[0] as Asked] = asked
  t.equal(url, '/claudes/messages/count_tokens')
  t.match(headers, { 'x-api-key': 'key-of-provider', 'anthropic-beta': 'one-1,two-2' })
  t.same(
    Object.keys(body).sort(),
    ['messages', 'model', 'system', 'thinking', 'tools'],
    'what it refuses stays out',
  )
  t.match(body, { model: 'one', system: 'Be brief', thinking })
})

t.test('Gemini counts a whole request, Vertex its parts', async t => {
  t.match(await count('geminis/one'), { by: 'provider', body: { input_tokens: 102 } })
  t.equal(asked[0]?.url, '/geminis/models/one:countTokens')
  t.match(asked[0]?.body, { generateContentRequest: { model: 'models/one', contents: [{ role: 'user' }] } })
  t.match(await count('vertexes/one'), { by: 'provider', body: { input_tokens: 102 } })
  t.match(asked[1]?.body, { contents: [{ role: 'user' }], systemInstruction: {}, tools: [{}] })
  t.notOk('toolConfig' in (asked[1]?.body ?? {}))
})

t.test('Bedrock counts a conversation of Converse', async t => {
  t.match(await count('rocks/one'), { by: 'provider', body: { input_tokens: 103 } })
  t.equal(asked[0]?.url, '/rocks/model/anthropic.claude-x/count-tokens')
  t.match(asked[0]?.body, {
    input: { converse: { messages: [{ role: 'user' }], system: [{}], toolConfig: {} } },
  })
  t.notMatch(JSON.stringify(asked[0]?.body), /inferenceConfig|maxTokens/)
})

t.test('where nobody counts the number is an estimate that says so', async t => {
  const estimate = { status: 200, by: 'estimate', body: { input_tokens: Number, estimated: true } }
  t.match(await count('chats/one'), estimate)
  t.equal(asked.length, 0)
  for (const told of [
    { status: 404, body: { error: 'none' } },
    { status: 500, body: 'x' },
    { status: 200, body: { input_tokens: -4 } },
    { status: 200, body: [] },
  ]) {
    answer = told
    t.match(await count('claudes/one'), estimate, JSON.stringify(told))
  }
  t.equal(asked.length, 4, 'nobody is asked twice')
})

t.test('counting leaves no usage record, and refuses what the message would be refused for', async t => {
  await count('claudes/one')
  await gateway.shipper.ship()
  const { data } = (await (
    await fetch(`${gateway.url}/generations`, {
      headers: { authorization: `Bearer ${gateway.managementKey}` },
    })
  ).json()) as { data: unknown[] }
  t.same(data, [])
  t.ok((await count('nobody/none')).status >= 400)
  t.match(await count('claudes/one', { messages: [{ role: 'user', content: 5 }] }), { status: 400 })
  t.equal(asked.length, 1)
})
