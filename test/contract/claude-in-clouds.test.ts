/** Claude on Vertex (`rawPredict`) and by InvokeModel of Bedrock, over real HTTP, asked by the official client. */
import { createServer } from 'node:http'
import Anthropic from '@anthropic-ai/sdk'
import t from 'tap'
import { awsMessage } from '../support/aws-events.ts'
import { startGateway } from '../support/gateway.ts'
import { listening } from '../support/listening.ts'

type Fields = Record<string, unknown>
interface Asked {
  readonly path: string
  readonly headers: Readonly<Record<string, unknown>>
  readonly body: Fields
}
const asked: Asked[] = []
/** In the place of the next stream's end. */
let breaks = false

const usage = { input_tokens: 5, output_tokens: 2 }
const called = { type: 'tool_use', id: 'toolu_1', name: 'bash', input: { command: 'ls' } }
const message = {
  id: 'msg_1',
  type: 'message',
  role: 'assistant',
  model: 'claude',
  content: [{ type: 'text', text: 'Tea' }, called],
  stop_reason: 'tool_use',
  stop_sequence: null,
  usage,
}
const events: readonly Fields[] = [
  { type: 'message_start', message: { ...message, content: [], stop_reason: null } },
  { type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } },
  { type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: 'Tea' } },
  { type: 'content_block_stop', index: 0 },
  { type: 'content_block_start', index: 1, content_block: { ...called, input: {} } },
  {
    type: 'content_block_delta',
    index: 1,
    delta: { type: 'input_json_delta', partial_json: '{"command":"ls"}' },
  },
  { type: 'content_block_stop', index: 1 },
  { type: 'message_delta', delta: { stop_reason: 'tool_use', stop_sequence: null }, usage },
  { type: 'message_stop', 'amazon-bedrock-invocationMetrics': { inputTokenCount: 5 } },
]
const converse = {
  output: { message: { role: 'assistant', content: [{ text: 'By Converse' }] } },
  stopReason: 'end_turn',
  usage: { inputTokens: 5, outputTokens: 2, totalTokens: 7 },
}

const server = createServer(async (request, response) => {
  let text = ''
  for await (const chunk of request.setEncoding('utf8')) text += String(chunk)
  const path = request.url ?? ''
  asked.push({ path, headers: request.headers, body: JSON.parse(text) as Fields })
  const json = (value: unknown) =>
    void response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(value))
  if (path.endsWith('count-tokens:rawPredict')) json({ input_tokens: 42 })
  else if (path.endsWith('/converse')) json(converse)
  else if (path.endsWith(':rawPredict') || path.endsWith('/invoke')) json(message)
  else if (path.endsWith(':streamRawPredict')) {
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    response.end(
      events.map(event => `event: ${String(event['type'])}\ndata: ${JSON.stringify(event)}\n\n`).join(''),
    )
  } else if (path.endsWith('/invoke-with-response-stream')) {
    response.writeHead(200, { 'content-type': 'application/vnd.amazon.eventstream' })
    const chunks = events.map(event => {
      const bytes = Buffer.from(JSON.stringify(event)).toString('base64')
      return awsMessage('chunk', JSON.stringify({ bytes, p: 'abcd' }))
    })
    if (!breaks) response.end(Buffer.concat(chunks))
    else {
      const failure = awsMessage('exception:throttlingException', JSON.stringify({ message: 'Slow down' }))
      response.end(Buffer.concat([...chunks.slice(0, 3), failure]))
    }
  } else response.writeHead(404).end()
})
const { url: baseUrl } = await listening(server, t)
const gateway = await startGateway({
  providers: [
    {
      slug: 'vertex-of-the-test',
      format: 'anthropic-messages',
      baseUrl: `${baseUrl}/publishers/anthropic`,
      apiKey: 'sk-vertex-0123456789',
      auth: 'bearer',
      quirks: ['raw-predict'],
    },
    { slug: 'amazon-bedrock', baseUrl, apiKey: 'ABSK-bedrock-0123456789' },
  ],
  models: [
    {
      id: 'acme/vertex',
      endpoints: [{ provider: 'vertex-of-the-test', upstreamModel: 'claude-sonnet-4-5@20250929' }],
    },
    {
      id: 'acme/bedrock',
      endpoints: [{ provider: 'amazon-bedrock', upstreamModel: 'eu.anthropic.claude-sonnet-4-5-v1:0' }],
    },
    { id: 'acme/nova', endpoints: [{ provider: 'amazon-bedrock', upstreamModel: 'amazon.nova-pro-v1:0' }] },
  ],
})
t.teardown(() => gateway.close())
t.beforeEach(() => {
  asked.length = 0
  breaks = false
})

const client = new Anthropic({
  baseURL: gateway.url.replace(/\/v1$/, ''),
  apiKey: gateway.apiKey,
  maxRetries: 0,
})
const ASK = {
  max_tokens: 100,
  messages: [{ role: 'user' as const, content: 'Tea?' }],
  tools: [{ type: 'bash_20250124' as const, name: 'bash' as const }],
}
const BETAS = ['context-1m-2025-08-07', 'files-api-2025-04-14', 'oauth-2025-04-20']

t.test('Vertex has the model in the path and its version in the body', async t => {
  const whole = await client.beta.messages.create({
    model: 'acme/vertex',
    ...ASK,
    betas: BETAS,
    service_tier: 'auto',
    metadata: { user_id: 'u1' },
  })
  t.match(whole, {
    stop_reason: 'tool_use',
    content: [{ text: 'Tea' }, { name: 'bash', input: { command: 'ls' } }],
  })
  const [first] = asked
  t.equal(first?.path, '/publishers/anthropic/models/claude-sonnet-4-5@20250929:rawPredict')
  t.equal(first?.headers['authorization'], 'Bearer sk-vertex-0123456789')
  t.equal(first?.headers['anthropic-beta'], 'context-1m-2025-08-07', 'the flags that it takes')
  t.equal(first?.headers['anthropic-version'], undefined)
  t.match(first?.body, { anthropic_version: 'vertex-2023-10-16', max_tokens: 100, tools: ASK.tools })
  for (const name of ['model', 'service_tier', 'betas', 'anthropic_beta'])
    t.notOk(name in (first?.body ?? {}), name)
  const stream = client.beta.messages.stream({ model: 'acme/vertex', ...ASK })
  t.match(await stream.finalMessage(), { content: whole.content, stop_reason: 'tool_use' })
  t.equal(asked[1]?.path, '/publishers/anthropic/models/claude-sonnet-4-5@20250929:streamRawPredict')
  t.equal(asked[1]?.body['stream'], true)
})

t.test('Vertex is asked by clients of the other APIs too, and counts tokens', async t => {
  const reply = await gateway.respond({ model: 'acme/vertex', input: 'Tea?' })
  t.equal(reply.status, 200)
  t.match(await reply.json(), { output: [{ content: [{ text: 'Tea' }] }, { name: 'bash' }] })
  t.notOk('model' in (asked[0]?.body ?? {}))
  const { messages } = ASK
  const counted = await client.messages.countTokens({ model: 'acme/vertex', messages })
  t.equal(counted.input_tokens, 42)
  t.equal(asked[1]?.path, '/publishers/anthropic/models/count-tokens:rawPredict')
  t.match(asked[1]?.body, {
    anthropic_version: 'vertex-2023-10-16',
    model: 'claude-sonnet-4-5@20250929',
    messages: [{ role: 'user' }],
  })
})

t.test('Bedrock is asked by InvokeModel for what Converse has no form for', async t => {
  const whole = await client.beta.messages.create({
    model: 'acme/bedrock',
    ...ASK,
    betas: BETAS,
    metadata: { user_id: 'u1' },
  })
  t.match(whole, {
    stop_reason: 'tool_use',
    content: [{ text: 'Tea' }, { name: 'bash', input: { command: 'ls' } }],
  })
  t.match(whole.usage, { input_tokens: 5, output_tokens: 2 })
  const [first] = asked
  t.equal(first?.path, '/model/eu.anthropic.claude-sonnet-4-5-v1%3A0/invoke')
  t.equal(first?.headers['authorization'], 'Bearer ABSK-bedrock-0123456789')
  t.equal(first?.headers['anthropic-beta'], undefined)
  t.match(first?.body, {
    anthropic_version: 'bedrock-2023-05-31',
    anthropic_beta: ['context-1m-2025-08-07'],
    tools: ASK.tools,
  })
  for (const name of ['model', 'stream', 'metadata', 'betas']) t.notOk(name in (first?.body ?? {}), name)
  const stream = client.beta.messages.stream({ model: 'acme/bedrock', ...ASK })
  t.match(await stream.finalMessage(), { content: whole.content, stop_reason: 'tool_use' })
  t.equal(asked[1]?.path, '/model/eu.anthropic.claude-sonnet-4-5-v1%3A0/invoke-with-response-stream')
  const managed = await client.beta.messages.create({
    model: 'acme/bedrock',
    max_tokens: 100,
    messages: ASK.messages,
    context_management: { edits: [{ type: 'clear_tool_uses_20250919' }] },
    betas: ['context-management-2025-06-27'],
  })
  t.equal(managed.content.length, 2)
  t.match(asked[2]?.body, {
    context_management: { edits: [{ type: 'clear_tool_uses_20250919' }] },
    anthropic_beta: ['context-management-2025-06-27'],
  })
})

t.test('everything else goes by Converse, and models of others get functions', async t => {
  const { messages } = ASK
  const plain = await client.messages.create({ model: 'acme/bedrock', max_tokens: 100, messages })
  t.match(plain.content, [{ text: 'By Converse' }])
  await client.messages.create({ model: 'acme/nova', ...ASK })
  t.match(
    asked.map(({ path }) => path.slice(path.lastIndexOf('/'))),
    ['/converse', '/converse'],
  )
  t.match(asked[1]?.body, { toolConfig: { tools: [{ toolSpec: { name: 'bash' } }] } })
})

t.test('an exception in the stream of InvokeModel is a failure in the stream', async t => {
  breaks = true
  const stream = client.beta.messages.stream({ model: 'acme/bedrock', ...ASK })
  await t.rejects(stream.finalMessage(), /Slow down|rate_limit|overloaded/i)
})

t.test(
  'arguments that are streamed as they are written: the field at Vertex, the beta at Bedrock',
  async t => {
    const eager = { name: 'f', input_schema: { type: 'object' as const }, eager_input_streaming: true }
    const send = async (model: string, tools: readonly object[]) => {
      asked.length = 0
      await client.messages.create({ ...ASK, model, tools: tools as unknown as Anthropic.Tool[] })
      return asked[0] as Asked
    }
    const vertex = await send('acme/vertex', [eager])
    t.match(vertex.body['tools'], [{ name: 'f', eager_input_streaming: true }])
    // With a tool of the model's own it is InvokeModel, else Converse.
    const invoke = await send('acme/bedrock', [...ASK.tools, eager])
    t.match(invoke.path, /\/invoke$/)
    t.same(invoke.body['anthropic_beta'], ['fine-grained-tool-streaming-2025-05-14'])
    t.notMatch(JSON.stringify(invoke.body['tools']), 'eager_input_streaming')
    const byConverse = await send('acme/bedrock', [eager])
    t.match(byConverse.path, /\/converse$/)
    t.match(byConverse.body['additionalModelRequestFields'], {
      anthropic_beta: ['fine-grained-tool-streaming-2025-05-14'],
    })
    t.notMatch(JSON.stringify(byConverse.body), 'eager_input_streaming')
    for (const flag of [false, undefined]) {
      const { body } = await send('acme/bedrock', [...ASK.tools, { ...eager, eager_input_streaming: flag }])
      t.notMatch(JSON.stringify(body), /eager_input_streaming|fine-grained/)
    }
  },
)
