/** From a client of the Messages API to a provider of it: the prompt arrives as it was written, on every call. */
import { createServer, type IncomingHttpHeaders } from 'node:http'
import t from 'tap'
import { startGateway } from '../support/gateway.ts'
import { listening } from '../support/listening.ts'

const KEY = 'sk-ant-0123456789abcdef'
type Body = Record<string, unknown> & { messages: unknown[]; system: unknown; tools?: unknown }
const asked: { readonly headers: IncomingHttpHeaders; readonly text: string; readonly body: Body }[] = []
let answer: { status: number; body: unknown; headers?: Record<string, string> } | null = null
const ANSWER = {
  id: 'msg_1',
  type: 'message',
  role: 'assistant',
  model: 'claude',
  content: [{ type: 'text', text: 'Done.' }],
  stop_reason: 'end_turn',
  usage: { input_tokens: 5, output_tokens: 2 },
}
const server = createServer(async (request, response) => {
  let text = ''
  for await (const chunk of request.setEncoding('utf8')) text += String(chunk)
  asked.push({ headers: request.headers, text, body: JSON.parse(text) as Body })
  const { status, body, headers = {} } = answer ?? { status: 200, body: ANSWER }
  response
    .writeHead(status, { 'content-type': 'application/json', ...headers })
    .end(typeof body === 'string' ? body : JSON.stringify(body))
})
const { url: baseUrl } = await listening(server, t)
const gateway = await startGateway({
  alignment: { evaluator: { model: 'sim/judge' }, hipaaWorkspaces: [], timeoutMs: 5_000 },
  providers: [
    { slug: 'claudes', name: 'Claudes', format: 'anthropic-messages', baseUrl, apiKey: KEY },
    { slug: 'chats', name: 'Chats', format: 'openai-chat', baseUrl, apiKey: KEY },
    { slug: 'rocks', name: 'Rocks', format: 'bedrock-converse', baseUrl, apiKey: KEY },
  ],
  models: [
    { id: 'claudes/one', endpoints: [{ provider: 'claudes' }] },
    { id: 'chats/one', endpoints: [{ provider: 'chats' }] },
    { id: 'rocks/one', endpoints: [{ provider: 'rocks', upstreamModel: 'anthropic.claude-x' }] },
  ],
})
t.teardown(() => gateway.close())
t.beforeEach(() => {
  asked.length = 0
  answer = null
})

async function send(body: object, headers: Record<string, string> = {}) {
  const reply = await fetch(`${gateway.url}/messages`, {
    method: 'POST',
    headers: { 'x-api-key': gateway.apiKey, 'content-type': 'application/json', ...headers },
    body: JSON.stringify({ model: 'claudes/one', max_tokens: 100, ...body }),
  })
  return {
    status: reply.status,
    headers: reply.headers,
    body: (await reply.json()) as Record<string, unknown>,
  }
}
const last = (): Body => asked.at(-1)?.body as Body

const MARK = { type: 'ephemeral' }
const SYSTEM = [
  { type: 'text', text: 'x-anthropic-billing-header: cc_version=2.1; cc_entrypoint=cli;' },
  { type: 'text', text: 'You are an agent.', cache_control: { type: 'ephemeral', ttl: '1h' } },
  { type: 'text', text: 'Be brief.', cache_control: MARK },
]
const TOOLS = [
  { name: 'Read', description: 'Reads a file', input_schema: { properties: { path: {} }, type: 'object' } },
]
/** A conversation of an agent, by turns: each has what the client adds. */
const TURNS: readonly (readonly object[])[] = [
  [
    { role: 'user', content: [{ type: 'text', text: 'Read it' }] },
    { role: 'system', content: [{ type: 'text', text: 'It is Monday.', cache_control: MARK }] },
  ],
  [
    {
      role: 'assistant',
      content: [
        { type: 'thinking', thinking: 'Where is it?', signature: 'c2lnbmVk'.repeat(8) },
        { type: 'text', text: 'I read it.' },
        { name: 'Read', type: 'tool_use', input: { path: 'a.txt', more: { depth: 1 } }, id: 'toolu_1' },
      ],
    },
    {
      role: 'user',
      content: [
        {
          tool_use_id: 'toolu_1',
          type: 'tool_result',
          content: [{ type: 'text', text: 'Tea' }],
          is_error: false,
        },
        { type: 'text', text: 'A reminder' },
      ],
    },
    { role: 'system', content: 'It is still Monday.' },
  ],
  [
    { role: 'assistant', content: 'It says tea.' },
    { role: 'user', content: [{ type: 'text', text: 'Thanks', cache_control: MARK }] },
  ],
]

t.test('system messages keep their place, and blocks their members, order and marks', async t => {
  await send({ system: SYSTEM, tools: TOOLS, messages: TURNS.slice(0, 2).flat() })
  const { messages, system } = last()
  t.same(
    messages.map(message => (message as { role: string }).role),
    ['user', 'system', 'assistant', 'user', 'system'],
  )
  t.equal(JSON.stringify(messages.slice(0, 4)), JSON.stringify(TURNS.slice(0, 2).flat().slice(0, 4)))
  t.equal(JSON.stringify(system), JSON.stringify(SYSTEM))
})

t.test('the prompt of each call begins with the bytes of the one before', async t => {
  const conversation: object[] = []
  let before: { head: string; messages: string } | null = null
  for (const turn of TURNS) {
    conversation.push(...turn)
    await send({ system: SYSTEM, tools: TOOLS, messages: conversation })
    const { tools, system, messages } = last()
    const now = { head: JSON.stringify([tools, system]), messages: JSON.stringify(messages).slice(0, -1) }
    if (before !== null) {
      t.equal(now.head, before.head)
      t.equal(now.messages.slice(0, before.messages.length), before.messages)
    }
    before = now
  }
  t.equal(asked.length, TURNS.length)
})

t.test(
  'a conversation that grows over the size at which its own bytes go on has the same prefix',
  async t => {
    const long = Array.from({ length: 40 }, (_, at) => [
      { role: 'user', content: [{ text: `${at} ${'x'.repeat(900)} é`, type: 'text' }] },
      { role: 'assistant', content: [{ text: `${at} ok`, type: 'text' }] },
    ]).flat()
    const texts: string[] = []
    for (let turns = 1; turns <= long.length; turns += 2) {
      await send({ messages: long.slice(0, turns) })
      texts.push(/"messages":\[(.*?)\](?:,"[a-z_]+":|\}$)/s.exec(asked.at(-1)?.text ?? '')?.[1] ?? '')
    }
    for (const [at, text] of texts.entries()) {
      const [before = ''] = at === 0 ? [] : [texts[at - 1]]
      if (!text.startsWith(before)) t.fail(`call ${at}`)
    }
    t.ok((texts.at(-1)?.length ?? 0) > 32_000)
  },
)

t.test('marks of the caller go to the provider as they are, more than four too', async t => {
  const marked = [1, 2, 3, 4, 5, 6].map(each => ({ type: 'text', text: `${each}`, cache_control: MARK }))
  await send({ messages: [{ role: 'user', content: marked }] })
  t.equal(JSON.stringify(last().messages), JSON.stringify([{ role: 'user', content: marked }]))
})

t.test('what a plugin adds stands behind the system prompt of the caller', async t => {
  await send({
    system: SYSTEM,
    messages: TURNS[0],
    plugins: [{ id: 'alignment', rules: ['Say nothing of "coffee"'] }],
  })
  const { system, messages } = last()
  t.equal(JSON.stringify((system as unknown[]).slice(0, 3)), JSON.stringify(SYSTEM))
  t.match(
    (system as unknown[]).slice(3),
    [{ type: 'text', text: /rules.*coffee/s }],
    'it has added something',
  )
  t.equal(JSON.stringify(messages.slice(0, 1)), JSON.stringify(TURNS[0]?.slice(0, 1)))
})

t.test('flags go on in their order, to Bedrock only those that it takes', async t => {
  const betas = 'zeta-1:x,alpha-2025-01-01,context-1m-2025-08-07'
  await send({ messages: TURNS[0] }, { 'anthropic-beta': betas, 'anthropic-workspace-id': 'wrkspc_1' })
  t.match(asked[0]?.headers, { 'anthropic-beta': betas })
  t.equal(asked[0]?.headers['anthropic-workspace-id'], undefined, 'it belongs to another account')
  t.notMatch(asked[0]?.text, 'wrkspc_1')
  await send({ model: 'rocks/one', messages: [{ role: 'user', content: 'x' }] }, { 'anthropic-beta': betas })
  t.match(last(), { additionalModelRequestFields: { anthropic_beta: ['context-1m-2025-08-07'] } })
  t.notMatch(asked.at(-1)?.text, /zeta|alpha/)
})

t.test('refusals have the words and the type of the provider', async t => {
  const words = `messages.1: \`tool_use\` ids were found\nwithout ${'x'.repeat(1_500)} ${KEY}`
  const said = words.replace(KEY, '')
  for (const [status, type, ours] of [
    [400, 'invalid_request_error', 400],
    [413, 'request_too_large', 413],
    [422, 'invalid_request_error', 422],
    [429, 'rate_limit_error', 429],
    [500, 'api_error', 502],
    [529, 'overloaded_error', 529],
  ] as const) {
    answer = { status, body: { type: 'error', error: { type, message: words } } }
    const refused = await send({ messages: TURNS[0] })
    const error = refused.body['error'] as { type: string; message: string }
    t.equal(refused.status, ours, JSON.stringify(refused.body).slice(0, 300))
    t.equal(error.type, type)
    t.ok(error.message.startsWith(said.trimEnd()), error.message.slice(-80))
    t.notMatch(error.message, KEY)
    t.equal(refused.headers.get('x-should-retry'), null)
  }
  answer = { status: 400, body: { error: { type: 'invalid_request_error', message: 'y'.repeat(5_000) } } }
  const cut = (await send({ messages: TURNS[0] })).body['error'] as { message: string }
  t.equal(cut.message.length, 2_001)
})

t.test(
  'what the provider refuses the gateway is no fault of the caller, and not to be tried again',
  async t => {
    const refusals = [
      [401, 'authentication_error'],
      [402, 'billing_error'],
      [403, 'permission_error'],
      [404, 'not_found_error'],
    ] as const
    for (const [status, type] of refusals) {
      answer = { status, body: { type: 'error', error: { type, message: 'No' } } }
      const refused = await send({ messages: TURNS[0] })
      t.equal(refused.status, 502, JSON.stringify(refused.body).slice(0, 300))
      t.equal(refused.headers.get('x-should-retry'), 'false')
      t.match(refused.body, { error: { type: 'api_error' } })
    }
  },
)

t.test('a prompt that is too long is told in the words that clients of this API act upon', async t => {
  const long = "This model's maximum context length is 16384 tokens. However, you requested 122946 tokens."
  answer = { status: 400, body: { error: { message: long, code: 'context_length_exceeded' } } }
  t.match(await send({ model: 'chats/one', messages: [{ role: 'user', content: 'x' }] }), {
    status: 400,
    body: {
      error: { type: 'invalid_request_error', message: 'prompt is too long: 122946 tokens > 16384 maximum' },
    },
  })
  answer = { status: 400, body: { message: 'Input is too long for requested model.' } }
  t.match(await send({ model: 'rocks/one', messages: [{ role: 'user', content: 'x' }] }), {
    body: { error: { message: /^prompt is too long: .*capability_rejected: prompt_too_long\)$/ } },
  })
  const own = 'input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease it'
  answer = { status: 400, body: { type: 'error', error: { type: 'invalid_request_error', message: own } } }
  t.match(await send({ messages: TURNS[0] }), { body: { error: { message: own } } })
})
