/** Cache marks of the gateway: where they pay, and nowhere else. */
import { createServer } from 'node:http'
import t, { type Test } from 'tap'
import { startGateway } from '../support/gateway.ts'
import { listening } from '../support/listening.ts'

type Body = Record<string, unknown>
const asked: Body[] = []
const ANSWER = {
  id: 'msg_1',
  type: 'message',
  role: 'assistant',
  model: 'claude',
  content: [{ type: 'text', text: 'Done.' }],
  stop_reason: 'end_turn',
  usage: { input_tokens: 5, output_tokens: 2, cache_read_input_tokens: 30, cache_creation_input_tokens: 7 },
}
const CONVERSED = {
  output: { message: { role: 'assistant', content: [{ text: 'Done.' }] } },
  stopReason: 'end_turn',
  usage: { inputTokens: 5, outputTokens: 2, totalTokens: 7 },
}
const server = createServer(async (request, response) => {
  let text = ''
  for await (const chunk of request.setEncoding('utf8')) text += String(chunk)
  asked.push(JSON.parse(text) as Body)
  const answer = request.url?.endsWith('/converse') === true ? CONVERSED : ANSWER
  response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(answer))
})
const { url: baseUrl } = await listening(server, t)
const row = { format: 'anthropic-messages', baseUrl, apiKey: 'sk-ant-0123456789abcdef' } as const
const pricing = { prompt: '0.000003', completion: '0.000015', inputCacheRead: '0.0000003' }
const gateway = await startGateway({
  providers: [
    { slug: 'claudes', ...row },
    { slug: 'unmarked', ...row, promptCaching: 'off' },
    { slug: 'rocks', ...row, format: 'bedrock-converse' },
  ],
  models: [
    { id: 'acme/cached', endpoints: [{ provider: 'claudes', pricing }] },
    { id: 'acme/rock', endpoints: [{ provider: 'rocks', upstreamModel: 'anthropic.claude-x', pricing }] },
    { id: 'acme/nova', endpoints: [{ provider: 'rocks', upstreamModel: 'amazon.nova-x', pricing }] },
    { id: 'acme/model-off', promptCaching: 'off', endpoints: [{ provider: 'claudes', pricing }] },
    {
      id: 'acme/rock-off',
      promptCaching: 'off',
      endpoints: [{ provider: 'rocks', upstreamModel: 'anthropic.claude-x', pricing }],
    },
    { id: 'acme/off', endpoints: [{ provider: 'unmarked', pricing }] },
    { id: 'acme/uncached', endpoints: [{ provider: 'claudes', pricing: { prompt: '0.000003' } }] },
  ],
})
t.teardown(() => gateway.close())
t.beforeEach(() => {
  asked.length = 0
})

async function post(path: string, body: Body): Promise<Body> {
  const reply = await fetch(`${gateway.url}${path}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${gateway.apiKey}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  })
  t.equal(reply.status, 200, path)
  return asked.at(-1) ?? {}
}

const FUNCTION = { name: 'look', parameters: { type: 'object', properties: {} } }
const CHAT_TOOLS = [
  { type: 'function', function: { ...FUNCTION, name: 'first' } },
  { type: 'function', function: FUNCTION },
]
const LOOP = [
  { role: 'system', content: 'Be brief' },
  { role: 'user', content: 'Look twice' },
  {
    role: 'assistant',
    content: null,
    tool_calls: [{ id: 'call_1', type: 'function', function: { name: 'look', arguments: '{}' } }],
  },
  { role: 'tool', tool_call_id: 'call_1', content: 'Tea' },
]
const marks = (body: Body) => JSON.stringify(body).split('"cache_control"').length - 1
const MARK = { cache_control: { type: 'ephemeral' } }

t.test('a conversation that ends in the result of a tool is marked, whatever its dialect', async t => {
  const chat = await post('/chat/completions', { model: 'acme/cached', messages: LOOP, tools: CHAT_TOOLS })
  t.equal(marks(chat), 4)
  t.match(chat, {
    tools: [{ name: 'first' }, { name: 'look', ...MARK }],
    system: [{ type: 'text', text: 'Be brief', ...MARK }],
    messages: [
      { role: 'user', content: [{ type: 'text', text: 'Look twice', ...MARK }] },
      { role: 'assistant' },
      { role: 'user', content: [{ type: 'tool_result', ...MARK }] },
    ],
  })
  const input = [
    { role: 'user', content: 'Look' },
    { type: 'function_call', call_id: 'c1', name: 'look', arguments: '{}' },
    { type: 'function_call_output', call_id: 'c1', output: 'Tea' },
  ]
  const tools = [{ type: 'function', ...FUNCTION }]
  t.equal(
    marks(await post('/responses', { model: 'acme/cached', input, tools, instructions: 'Be brief' })),
    4,
  )
})

t.test('Bedrock gets points, where its model takes them', async t => {
  const POINT = { cachePoint: { type: 'default' } }
  const body = await post('/chat/completions', { model: 'acme/rock', messages: LOOP, tools: CHAT_TOOLS })
  t.match(body, {
    toolConfig: { tools: [{ toolSpec: {} }, { toolSpec: {} }, POINT] },
    system: [{ text: 'Be brief' }, POINT],
    messages: [
      { role: 'user', content: [{ text: 'Look twice' }, POINT] },
      { role: 'assistant' },
      { role: 'user', content: [{ toolResult: {} }, POINT] },
    ],
  })
  const single = await post('/chat/completions', { model: 'acme/rock', messages: LOOP.slice(0, 2) })
  t.notMatch(JSON.stringify(single), 'cachePoint')
  const nova = await post('/chat/completions', { model: 'acme/nova', messages: LOOP, tools: CHAT_TOOLS })
  t.match(nova, { system: [{}, POINT], messages: [{ content: [{}, POINT] }, {}, { content: [{}, POINT] }] })
  t.notMatch(JSON.stringify(nova['toolConfig']), 'cachePoint', 'Nova has none on tools')
  const off = await post('/chat/completions', { model: 'acme/rock-off', messages: LOOP, tools: CHAT_TOOLS })
  t.notMatch(JSON.stringify(off), 'cachePoint')
})

/** Four calls of one conversation: what `read` makes of each body begins with what it made of the body before. */
async function callInLoop(t: Test, model: string, read: (body: Body) => string): Promise<void> {
  const sent: string[] = []
  const conversation = [...LOOP]
  for (let turn = 2; turn < 6; turn++) {
    sent.push(read(await post('/chat/completions', { model, messages: conversation, tools: CHAT_TOOLS })))
    const call = { id: `call_${turn}`, type: 'function', function: { name: 'look', arguments: '{}' } }
    conversation.push(
      { role: 'assistant', content: null, tool_calls: [call] },
      { role: 'tool', tool_call_id: call.id, content: `Tea ${turn}` },
    )
  }
  for (const [at, text] of sent.entries())
    if (at > 0) t.ok(text.startsWith((sent[at - 1] ?? '').slice(0, -2)), `call ${at}`)
}

t.test('at Bedrock each call of a loop begins with what the call before had a point behind', async t => {
  const POINT = ',{"cachePoint":{"type":"default"}}'
  await callInLoop(t, 'acme/rock', body => {
    const text = JSON.stringify([body['toolConfig'], body['system'], body['messages']])
    t.equal(text.split(POINT).length - 1, 4, 'as many as it takes')
    return text.replaceAll(POINT, '')
  })
})

t.test('each call of a loop begins with what the call before has marked', async t => {
  await callInLoop(t, 'acme/cached', body => {
    t.equal(marks(body), 4)
    const text = JSON.stringify([body['tools'], body['system'], body['messages']])
    return text.replaceAll(/,"cache_control":\{[^}]*\}/g, '')
  })
})

t.test(
  'nothing is marked where it does not pay, where the caller has marked, or where it is off',
  async t => {
    const single = { model: 'acme/cached', messages: LOOP.slice(0, 2), tools: CHAT_TOOLS }
    t.equal(marks(await post('/chat/completions', single)), 0, 'one question')
    for (const model of ['acme/uncached', 'acme/off', 'acme/model-off'])
      t.equal(marks(await post('/chat/completions', { model, messages: LOOP, tools: CHAT_TOOLS })), 0, model)
    const own = {
      model: 'acme/cached',
      max_tokens: 100,
      messages: [
        { role: 'user', content: [{ type: 'text', text: 'Look', ...MARK }] },
        { role: 'assistant', content: [{ type: 'tool_use', id: 'c1', name: 'look', input: {} }] },
        { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'c1', content: 'Tea' }] },
      ],
    }
    const body = await post('/messages', own)
    t.equal(JSON.stringify(body['messages']), JSON.stringify(own.messages))
  },
)

t.test(
  'tokens that were read from a cache, written to it or neither are counted where there is one',
  async t => {
    const { promptCacheTokens } = gateway.serving.metrics
    const counts = async (model: string): Promise<number[]> => {
      const { values } = await promptCacheTokens.get()
      return ['read', 'write', 'uncached'].map(
        kind => values.find(({ labels }) => labels.model === model && labels.kind === kind)?.value ?? 0,
      )
    }
    const before = await counts('acme/cached')
    for (const model of ['acme/cached', 'acme/uncached'])
      await post('/chat/completions', { model, messages: LOOP, tools: CHAT_TOOLS })
    const after = await counts('acme/cached')
    t.same(
      after.map((tokens, at) => tokens - (before[at] ?? 0)),
      [30, 7, 5],
    )
    t.same(await counts('acme/uncached'), [0, 0, 0])
  },
)
