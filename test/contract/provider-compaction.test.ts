/** Summaries that providers make themselves, over real HTTP: asked for, sealed, sent back to their maker alone. */
import { createServer } from 'node:http'
import OpenAI from 'openai'
import type { CompactedResponse } from 'openai/resources/responses/responses'
import t from 'tap'
import { createTextSeal } from '../../src/providers/credentials/sealed-text.ts'
import { grammarViolations } from '../support/event-grammar.ts'
import { parseEventStream, startGateway } from '../support/gateway.ts'
import { listening } from '../support/listening.ts'
import { addOrganization } from '../support/management.ts'
import { openSocket } from '../support/response-socket-client.ts'
import { startGuarded } from '../support/world.ts'

type Fields = Record<string, unknown>
interface Asked {
  readonly path: string
  readonly beta: string | undefined
  readonly body: Fields
}
const asked: Asked[] = []
/** The provider of the Messages API sums up, as it does from 50,000 tokens on. */
let isLong = true
/** The summary of the provider of the Messages API; null: it has failed. */
let said: string | null = 'They want tea at four'
/** What POST /responses/compact answers in place of a summary. */
let instead: object | null = null

const BLOB = 'gAAAAABopaquesummary'
const usage = { input_tokens: 900, output_tokens: 40, total_tokens: 940 }
const compaction = (id: string) => ({ type: 'compaction', id, encrypted_content: BLOB })
const message = (text: string) => ({
  type: 'message',
  id: 'msg_1',
  role: 'assistant',
  status: 'completed',
  content: [{ type: 'output_text', text, annotations: [] }],
})
const compacted = {
  id: 'resp_1',
  object: 'response.compaction',
  created_at: 1,
  output: [
    {
      id: 'msg_0',
      type: 'message',
      role: 'user',
      status: 'completed',
      content: [{ type: 'input_text', text: 'x' }],
    },
    compaction('cmp_1'),
  ],
  usage,
} as unknown as CompactedResponse

function reply(path: string, body: Fields): unknown {
  if (path.endsWith('/responses/compact')) return instead ?? compacted
  if (path.endsWith('/responses')) {
    const output = [
      ...(body['context_management'] === undefined ? [] : [compaction('cmp_2')]),
      message('Tea'),
    ]
    const response = { id: 'resp_2', object: 'response', status: 'completed', model: 'm', output, usage }
    return body['stream'] === true ? eventsOf(response) : response
  }
  const block = { type: 'compaction', content: said, encrypted_content: null }
  const { edits = [] } = (body['context_management'] ?? {}) as { edits?: readonly Fields[] }
  const pauses = edits[0]?.['pause_after_compaction'] === true
  const sums = edits.length > 0 && isLong
  const text = [{ type: 'text', text: pauses ? 'Four o’clock tea' : 'Tea' }]
  return {
    id: 'msg_1',
    type: 'message',
    role: 'assistant',
    model: 'm',
    content: sums ? (pauses ? [block] : [block, ...text]) : text,
    stop_reason: sums && pauses ? 'compaction' : 'end_turn',
    usage: { input_tokens: 5, output_tokens: 2 },
  }
}

function eventsOf(response: { readonly output: readonly Fields[] }): string {
  const events: Fields[] = [
    { type: 'response.created', response: { ...response, status: 'in_progress', output: [] } },
  ]
  for (const [at, item] of response.output.entries()) {
    events.push({ type: 'response.output_item.added', output_index: at, item })
    events.push({ type: 'response.output_item.done', output_index: at, item })
  }
  events.push({ type: 'response.completed', response })
  return events.map(event => `event: ${String(event['type'])}\ndata: ${JSON.stringify(event)}\n\n`).join('')
}

const server = createServer(async (request, response) => {
  let text = ''
  for await (const chunk of request.setEncoding('utf8')) text += String(chunk)
  const path = request.url ?? ''
  const body = JSON.parse(text) as Fields
  asked.push({ path, beta: request.headers['anthropic-beta'] as string | undefined, body })
  const told = reply(path, body)
  if (typeof told === 'string') response.writeHead(200, { 'content-type': 'text/event-stream' }).end(told)
  else response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(told))
})
const { url: at } = await listening(server, t)
const row = (slug: string, format: 'openai-responses' | 'anthropic-messages') =>
  ({ slug, name: slug, format, baseUrl: `${at}/${slug}`, apiKey: `sk-${slug}-0123456789abcdef` }) as const
const price = { pricing: { prompt: '0.0000001', completion: '0.0000004' } }
const rows = {
  // Providers fail on purpose here, one test after the other.
  routing: { breakerFailures: null },
  providers: [
    row('first', 'openai-responses'),
    { ...row('second', 'openai-responses'), compaction: 'own' as const },
    { ...row('third', 'anthropic-messages'), compaction: 'provider' as const },
    row('fourth', 'anthropic-messages'),
  ],
  models: [
    {
      id: 'acme/sums',
      endpoints: [
        { provider: 'first', ...price },
        { provider: 'second', ...price },
      ],
    },
    { id: 'acme/only', endpoints: [{ provider: 'first', ...price }] },
    { id: 'acme/off', compaction: 'own' as const, endpoints: [{ provider: 'first', ...price }] },
    { id: 'acme/claude', endpoints: [{ provider: 'third', ...price }] },
    { id: 'acme/plain-claude', endpoints: [{ provider: 'fourth', ...price }] },
  ],
}
const gateway = await startGateway({ ...rows, compaction: 'provider' })
t.teardown(() => gateway.close())
t.beforeEach(() => {
  asked.length = 0
  isLong = true
  said = 'They want tea at four'
  instead = null
})

interface Item {
  readonly type: string
  readonly id: string
  readonly encrypted_content: string
}
interface Told {
  readonly status: string
  readonly output: readonly Item[]
  readonly usage: { readonly input_tokens: number; readonly cost: number }
  readonly error?: { readonly message: string }
}

async function post(path: string, body: object, key = gateway.apiKey, url = gateway.url) {
  const reply = await fetch(`${url}${path}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  })
  return { status: reply.status, told: (await reply.json()) as Told }
}

const user = (content: string) => ({ type: 'message', role: 'user', content })
const TALK = [user('I want tea'), { type: 'message', role: 'assistant', content: 'When?' }, user('At four')]
const TRIGGER = { type: 'compaction_trigger' }
/** The conversation that the provider got. */
const inputOf = ({ body }: Asked = { path: '', beta: undefined, body: {} }): readonly Fields[] =>
  (body['input'] ?? body['messages'] ?? []) as Fields[]
const says = (status: number, message: RegExp) => ({ status, told: { error: { message } } })

async function sealedBy(model: string): Promise<Item> {
  const { told } = await post('/responses', { model, input: [...TALK, TRIGGER] })
  asked.length = 0
  return told.output[0] as Item
}

t.test('a trigger asks the provider, and its summary leaves sealed', async t => {
  const tools = [{ type: 'function', name: 'brew', parameters: { type: 'object', properties: {} } }]
  const { status, told } = await post('/responses', {
    model: 'acme/sums',
    input: [...TALK, TRIGGER],
    instructions: 'Serve tea',
    tools,
    prompt_cache_key: 'k',
  })
  t.equal(status, 200)
  t.match(told.output, [{ type: 'compaction', id: 'cmp_1', encrypted_content: /^gw-compaction-v1:/ }])
  t.notMatch(JSON.stringify(told), BLOB)
  t.equal(told.usage.input_tokens, 900)
  t.ok(told.usage.cost > 0)
  t.equal(asked.length, 1)
  t.equal(asked[0]?.path, '/first/responses/compact')
  const { body } = asked[0] as Asked
  t.same(Object.keys(body).sort(), ['input', 'instructions', 'model', 'prompt_cache_key'])
  t.equal((body['input'] as unknown[]).length, TALK.length, 'the task in words is not sent')
  t.not(body['prompt_cache_key'], 'k')
})

t.test('POST /responses/compact answers the official client in the same way', async t => {
  const client = new OpenAI({ apiKey: gateway.apiKey, baseURL: gateway.url, maxRetries: 0 })
  const answer = await client.responses.compact({ model: 'acme/sums', input: TALK } as never)
  t.match(answer, { object: 'response.compaction', usage: { input_tokens: 900 } })
  const output = answer.output as unknown as readonly (Item & { readonly role?: string })[]
  t.same(
    output.map(({ type, role }) => [type, role]),
    [
      ['message', 'user'],
      ['message', 'user'],
      ['compaction', undefined],
    ],
  )
  const next = await client.responses.create({
    model: 'acme/sums',
    input: [...output, user('Well?')] as never,
  })
  t.equal(next.output_text, 'Tea')
  t.match(asked.at(-1), { path: '/first/responses' })
  t.match(inputOf(asked.at(-1))[2], { type: 'compaction', encrypted_content: BLOB })
})

t.test('a summary goes to its maker alone, and 503 says where it was made', async t => {
  const item = await sealedBy('acme/sums')
  const input = [item, user('Well?')]
  const preferences = { order: ['second'] }
  t.equal((await post('/responses', { model: 'acme/sums', input, provider: preferences })).status, 200)
  t.same(
    asked.map(({ path }) => path),
    ['/first/responses'],
  )
  t.match(
    await post('/responses', { model: 'acme/sums', input, provider: { only: ['second'] } }),
    says(503, /^input\[0\]\.encrypted_content: only first can read this summary/),
  )
  t.match(await post('/responses', { model: 'acme/claude', input }), says(503, /only first/))
  t.equal(asked.length, 1, 'nobody else has seen it')
})

t.test('it opens in its workspace only, unchanged, as what it is, and with a key that is in use', async t => {
  const item = await sealedBy('acme/sums')
  const other = await addOrganization(gateway.storageUrl, 'other')
  const send = (encrypted_content: string, key?: string) =>
    post('/responses', { model: 'acme/sums', input: [user('x'), { ...item, encrypted_content }] }, key)
  const sealed = item.encrypted_content
  t.match(await send(sealed, other.apiKey), says(400, /^input\[1\]\.encrypted_content: was made in another/))
  t.match(await send(`${sealed.slice(0, -4)}AAAA`), says(400, /was changed/))
  t.match(await send(BLOB), says(400, /^input\[1\]\.encrypted_content: was not made by this gateway/))
  const asSummary = sealed.replace('gw-compaction-v1:', 'gw-summary-v1:')
  t.match(await send(asSummary), says(400, /was changed/), 'nor as a summary in words')
  const retired = createTextSeal([{ id: 'old', secret: Buffer.alloc(32, 7) }], 'summaries')
  const old = retired.seal('{"maker":"m","provider":"p","content":"c"}', ['o', 'w', 'provider'])
  t.match(
    await send(`gw-compaction-v1:${old}`),
    says(400, /^input\[1\]\.encrypted_content: .*compact it again/),
  )
  for (const bad of ['gw-compaction-v1:', 'gw-compaction-v1:x.y', 'gwm1.maker.blob'])
    t.match(await send(bad), says(400, /^input\[1\]\.encrypted_content: /))
  t.equal(asked.length, 0)
})

t.test('as a system message, or in a message, it is a text like any other', async t => {
  const { encrypted_content: sealed } = await sealedBy('acme/sums')
  const { status } = await post('/responses', {
    model: 'acme/sums',
    instructions: sealed,
    input: [{ type: 'message', role: 'system', content: sealed }, user(sealed)],
  })
  t.equal(status, 200)
  t.notMatch(JSON.stringify(asked), BLOB)
})

t.test('with a threshold the provider puts it into the answer, whole and streamed', async t => {
  const body = {
    model: 'acme/only',
    input: TALK,
    context_management: [{ type: 'compaction', compact_threshold: 2_000 }],
  }
  const { status, told } = await post('/responses', body)
  t.equal(status, 200)
  t.match(told.output, [{ type: 'compaction', encrypted_content: /^gw-compaction-v1:/ }, { type: 'message' }])
  t.same(asked[0]?.body['context_management'], body.context_management)
  const text = await (await gateway.respond({ ...body, stream: true })).text()
  t.notMatch(text, BLOB)
  const events = parseEventStream(text)
  t.same(grammarViolations(events), [])
  const done = events.findLast(({ type }) => type === 'response.output_item.done')
  t.ok(done)
  const completed = events.at(-1) as unknown as { response: Told }
  t.match(completed.response.output[0]?.encrypted_content, /^gw-compaction-v1:/)
  const next = await post('/responses', { model: 'acme/only', input: [...told.output, user('Well?')] })
  t.equal(next.status, 200)
  t.match(inputOf(asked.at(-1))[0], { type: 'compaction', encrypted_content: BLOB })
})

t.test('a model that not every provider sums up for is asked for its own summary', async t => {
  const long = user('words '.repeat(2_000))
  const context_management = [{ type: 'compaction', compact_threshold: 1_000 }]
  for (const model of ['acme/sums', 'acme/off', 'acme/plain-claude']) {
    asked.length = 0
    const { told } = await post('/responses', { model, input: [long, user('Well?')], context_management })
    t.match(told.output[0], { type: 'compaction', encrypted_content: /^gw-summary-v1:/ }, model)
    t.equal(asked.length, 2, model)
    t.ok(asked.every(({ path }) => !path.endsWith('/compact')))
    t.notMatch(JSON.stringify(asked), /"edits"/)
  }
})

t.test('Anthropic sums up where the row says so, and its summary comes back as its block', async t => {
  const item = await sealedBy('acme/claude')
  t.match(item.encrypted_content, /^gw-compaction-v1:/)
  const answer = await post('/responses', { model: 'acme/claude', input: [...TALK, TRIGGER] })
  t.equal(answer.status, 200)
  t.match(asked[0]?.beta, /compact-2026-01-12/)
  t.same(asked[0]?.body['context_management'], {
    edits: [
      {
        type: 'compact_20260112',
        trigger: { type: 'input_tokens', value: 50_000 },
        pause_after_compaction: true,
      },
    ],
  })
  asked.length = 0
  await post('/responses', { model: 'acme/claude', input: [item, user('Well?')] })
  t.match(asked[0]?.beta, /compact-2026-01-12/)
  t.match(inputOf(asked[0])[0], {
    role: 'assistant',
    content: [{ type: 'compaction', content: said }],
  })
  asked.length = 0
  const context_management = [{ type: 'compaction', compact_threshold: 90_000 }]
  const { told } = await post('/responses', { model: 'acme/claude', input: TALK, context_management })
  t.match(told.output, [{ type: 'compaction' }, { type: 'message' }])
  t.match(asked[0]?.body['context_management'], { edits: [{ trigger: { value: 90_000 } }] })
})

t.test('a conversation too short for Anthropic is summed up in words', async t => {
  isLong = false
  const item = await sealedBy('acme/claude')
  t.match(item.encrypted_content, /^gw-summary-v1:/)
  await post('/responses', { model: 'acme/claude', input: [item, user('Well?')] })
  t.match(JSON.stringify(asked), /Four o’clock tea/)
})

t.test('a summary that has failed is none', async t => {
  said = null
  t.equal((await post('/responses', { model: 'acme/claude', input: [...TALK, TRIGGER] })).status, 502)
  const context_management = [{ type: 'compaction', compact_threshold: 90_000 }]
  const { told } = await post('/responses', { model: 'acme/claude', input: TALK, context_management })
  t.equal(told.output[0]?.encrypted_content, '')
  asked.length = 0
  const next = await post('/responses', {
    model: 'acme/claude',
    input: [...TALK, ...told.output, user('So?')],
  })
  t.equal(next.status, 200)
  t.notMatch(JSON.stringify(asked[0]?.body['messages']), /compaction/)
  for (const bad of [
    {},
    { output: 7 },
    { output: [{ type: 'message' }] },
    [],
    { error: { message: 'no' } },
  ]) {
    instead = bad
    t.equal((await post('/responses', { model: 'acme/only', input: [...TALK, TRIGGER] })).status, 502)
  }
})

t.test('guardrails read what can be read of a summary', async t => {
  said = 'Mail a.b@example.com'
  const guarded = await startGuarded(t, rows)
  const first = await guarded.ask({ model: 'acme/claude', input: [...TALK, TRIGGER] })
  const [item] = first.document['output'] as Item[]
  t.match(item?.encrypted_content, /^gw-compaction-v1:/)
  asked.length = 0
  await guarded.guard({
    contentFilterBuiltins: [{ slug: 'email', action: 'block', scanScope: 'all_messages' }],
  })
  t.equal((await guarded.ask({ model: 'acme/claude', input: [item, user('Go on')] })).status, 403)
  t.equal(asked.length, 0)
})

t.test('a guardrail that rewrites a summary does not take it to another provider', async t => {
  said = 'Mail a.b@example.com'
  const guarded = await startGuarded(t, {
    ...rows,
    models: [
      ...rows.models,
      {
        id: 'acme/both',
        endpoints: [
          { provider: 'fourth', ...price },
          { provider: 'third', ...price },
        ],
      },
    ],
  })
  const first = await guarded.ask({ model: 'acme/claude', input: [...TALK, TRIGGER] })
  const [item] = first.document['output'] as Item[]
  asked.length = 0
  await guarded.guard({
    contentFilterBuiltins: [{ slug: 'email', action: 'redact', scanScope: 'all_messages' }],
  })
  t.equal((await guarded.ask({ model: 'acme/both', input: [item, user('Go on')] })).status, 200)
  t.same(
    asked.map(({ path }) => path),
    ['/third/messages'],
  )
  t.notMatch(JSON.stringify(asked[0]?.body), /example\.com/)
})

t.test('over a WebSocket a continued request repeats the id that it continues', async t => {
  const socket = await openSocket(gateway.url, gateway.apiKey)
  t.teardown(() => socket.close())
  const first = await socket.ask({ model: 'acme/only', input: [...TALK, TRIGGER] })
  const { id = '', output = [] } = (first.at(-1)?.['response'] ?? {}) as Partial<Told> & {
    readonly id?: string
  }
  t.match(output, [{ type: 'compaction', encrypted_content: /^gw-compaction-v1:/ }])
  const next = await socket.ask({ model: 'acme/only', input: 'Well?', previous_response_id: id })
  t.match(next.at(-1), { type: 'response.completed', response: { previous_response_id: id } })
  t.match(JSON.stringify(asked.at(-1)?.body['input']), BLOB)
})
