/** Compaction over real HTTP and WebSocket, at providers of every format: made, sealed, sent back, refused. */
import OpenAI from 'openai'
import t from 'tap'
import { createTextSeal } from '../../src/providers/credentials/sealed-text.ts'
import { parseVaultKeys } from '../../src/providers/credentials/vault-keys.ts'
import { grammarViolations } from '../support/event-grammar.ts'
import { parseEventStream, startGateway } from '../support/gateway.ts'
import { addOrganization } from '../support/management.ts'
import { FORMATS, parrotRows, speaking, startParrot } from '../support/provider.ts'
import { openSocket } from '../support/response-socket-client.ts'
import { startGuarded } from '../support/world.ts'

const parrot = await startParrot(t)
const gateway = await startGateway(parrotRows(parrot.url))
t.teardown(() => gateway.close())

interface Item {
  readonly type: string
  readonly id: string
  readonly role?: string
  readonly status?: string
  readonly encrypted_content?: string
  readonly content?: readonly { readonly text: string }[]
}

interface Told {
  readonly id: string
  readonly object: string
  readonly status: string
  readonly model: string
  readonly output: readonly Item[]
  readonly usage: { readonly input_tokens: number; readonly cost: number }
  readonly error?: { readonly message: string }
}

async function post(path: string, body: object, key = gateway.apiKey) {
  const reply = await fetch(`${gateway.url}${path}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  })
  return { status: reply.status, told: (await reply.json()) as Told }
}

const user = (content: string) => ({ type: 'message', role: 'user', content })
const TRIGGER = { type: 'compaction_trigger' }
const SECRET_WORDS = 'They want tea at four'
const TALK = [user('I want tea'), { type: 'message', role: 'assistant', content: 'When?' }, user('At four')]
const tools = [{ type: 'function', name: 'brew', parameters: { type: 'object', properties: {} } }]
const model = 'parrot/openai-chat'

async function summary(key = gateway.apiKey): Promise<Item> {
  parrot.parts = speaking(SECRET_WORDS)
  const { told } = await post('/responses', { model, input: [...TALK, TRIGGER] }, key)
  return told.output[0] as Item
}

for (const format of FORMATS) {
  t.test(`a trigger asks for one sealed item, and that is a user's message later (${format})`, async t => {
    const model = `parrot/${format}`
    parrot.parts = speaking(SECRET_WORDS)
    const body = {
      model,
      input: [...TALK, TRIGGER],
      tools,
      instructions: 'Serve tea',
      text: { verbosity: 'low' },
    }
    const { status, told } = await post('/responses', body)
    t.equal(status, 200)
    t.match(told, { object: 'response', status: 'completed', model, output: [{ type: 'compaction' }] })
    t.equal(told.output.length, 1)
    t.ok(told.usage.cost > 0)
    const [item] = told.output
    t.notMatch(JSON.stringify(told.output), /tea/)
    t.match(parrot.bodies.at(-1), /Write a summary/)
    t.match(parrot.bodies.at(-1), /brew/, 'its tools stay')
    const streamed = await gateway.respond({ ...body, stream: true })
    const events = parseEventStream(await streamed.text())
    t.same(grammarViolations(events), [])
    t.match(
      events.map(({ type }) => type),
      [
        'response.created',
        'response.in_progress',
        'response.output_item.added',
        'response.output_item.done',
        'response.completed',
      ],
    )
    parrot.parts = speaking('Four it is')
    const next = await post('/responses', { model, input: [user('I want tea'), item, user('Make it five')] })
    t.equal(next.status, 200)
    const sent = JSON.parse(parrot.bodies.at(-1) ?? '') as Record<string, unknown>
    const said = JSON.stringify(sent['messages'] ?? sent['input'] ?? sent['contents'])
    t.match(said, /Summary of the conversation up to here:.*They want tea at four/)
    t.notMatch(said, /"role":"(?:system|developer|assistant|model)"/, 'never more than the words of a user')
    t.notMatch(JSON.stringify(sent), /gw-summary/)
  })
}

t.test('over a WebSocket a trigger works the same, also for what the socket remembers', async t => {
  const socket = await openSocket(gateway.url, gateway.apiKey)
  t.teardown(() => socket.close())
  parrot.parts = speaking('When?')
  const first = await socket.ask({ model, input: 'I want tea' })
  parrot.parts = speaking(SECRET_WORDS)
  const events = await socket.ask({
    model,
    input: [TRIGGER],
    previous_response_id: (first.at(-1)?.['response'] as Told | undefined)?.id,
  })
  const last = events.at(-1)?.['response'] as Told
  t.match(last.output, [{ type: 'compaction' }])
  t.match(parrot.bodies.at(-1), /I want tea.*When\?.*Write a summary/s)
  const next = await socket.ask({ model, input: 'And now?', previous_response_id: last.id })
  t.equal(next.at(-1)?.type, 'response.completed')
  t.match(parrot.bodies.at(-1), /I want tea.*When\?.*They want tea at four.*And now\?/s)
})

t.test('POST /responses/compact answers what the official client expects', async t => {
  const client = new OpenAI({ apiKey: gateway.apiKey, baseURL: gateway.url, maxRetries: 0 })
  parrot.parts = speaking(SECRET_WORDS)
  const earlier = await summary()
  const input = [
    { type: 'message', role: 'developer', content: 'Be polite' },
    user(`too long ago ${'x '.repeat(200_000)}`),
    user('I want tea'),
    { type: 'reasoning', id: 'rs_1', summary: [] },
    { type: 'function_call', call_id: 'c1', name: 'brew', arguments: '{}' },
    { type: 'function_call_output', call_id: 'c1', output: 'done' },
    { type: 'message', role: 'assistant', content: 'Here' },
    earlier,
    { type: 'message', role: 'user', content: [{ type: 'input_text', text: 'Thanks' }] },
  ]
  const compacted = await client.responses.compact({ model, input, instructions: 'Serve tea' } as never)
  t.match(compacted, { object: 'response.compaction', id: /^gen-/, created_at: Number })
  t.ok(compacted.usage.input_tokens > 0)
  const output = compacted.output as unknown as readonly Item[]
  t.same(
    output.map(({ type, role, content }) => [type, role, content?.[0]?.text]),
    [
      ['message', 'user', 'I want tea'],
      ['message', 'user', 'Thanks'],
      ['compaction', undefined, undefined],
    ],
  )
  t.ok(output.every(({ id }) => typeof id === 'string' && id !== ''))
  t.same(new Set(output.slice(0, -1).map(({ status }) => status)), new Set(['completed']))
  t.match(parrot.bodies.at(-1), /They want tea at four/, 'an earlier summary is summed up too')
  parrot.parts = speaking('Yes')
  const next = await post('/responses', { model, input: [...output, user('Still there?')] })
  t.equal(next.status, 200)
  t.equal((await post('/responses/compact', { model, input: 'x', previous_response_id: 'r' })).status, 400)
})

t.test(
  'a threshold puts a summary into the answer, and the model reads that in place of the rest',
  async t => {
    parrot.parts = speaking(SECRET_WORDS)
    const long = user(`long ago ${'words '.repeat(2_000)}`)
    const management = [{ type: 'compaction', compact_threshold: 1_000 }]
    const developer = { type: 'message', role: 'developer', content: 'Be polite' }
    const body = { model, input: [developer, long, user('And now?')], context_management: management }
    const before = parrot.bodies.length
    const { status, told } = await post('/responses', body)
    t.equal(status, 200)
    t.same(
      told.output.map(({ type }) => type),
      ['compaction', 'message'],
    )
    t.equal(parrot.bodies.length, before + 2)
    const { messages } = JSON.parse(parrot.bodies.at(-1) ?? '') as {
      messages: { role: string; content: unknown }[]
    }
    t.match(messages, [
      { content: 'Be polite' },
      { role: 'user', content: /They want tea at four/ },
      { role: 'user', content: 'And now?' },
    ])
    const streamed = parseEventStream(await (await gateway.respond({ ...body, stream: true })).text())
    t.same(grammarViolations(streamed), [])
    await post('/responses', {
      model,
      input: [developer, long, user('And now?'), ...told.output, user('Next')],
    })
    t.notMatch(parrot.bodies.at(-1), /long ago/, 'it stands for all before it')
    t.match(parrot.bodies.at(-1), /Be polite.*They want tea at four.*Next/s)
    const asked = parrot.bodies.length
    await post('/responses', { model, input: 'short', context_management: management })
    t.equal(parrot.bodies.length, asked + 1, 'a short conversation costs one call')
    for (const bad of [
      [{ type: 'other' }],
      [{ type: 'compaction' }],
      [{ type: 'compaction', compact_threshold: 5 }],
    ]) {
      const refused = await post('/responses', { model, input: 'x', context_management: bad })
      t.match(refused, { status: 400, told: { error: { message: /^context_management\[0\]\./ } } })
    }
  },
)

t.test('the calls of the last turn stay with their results', async t => {
  parrot.parts = speaking(SECRET_WORDS)
  const call = (id: string) => ({ type: 'function_call', call_id: id, name: 'brew', arguments: '{}' })
  const result = (id: string) => ({ type: 'function_call_output', call_id: id, output: `done ${id}` })
  const input = [
    user('x '.repeat(4_000)),
    call('c1'),
    result('c1'),
    call('c2'),
    call('c3'),
    result('c2'),
    result('c3'),
  ]
  const management = [{ type: 'compaction', compact_threshold: 1_000 }]
  const { status } = await post('/responses', { model, input, tools, context_management: management })
  t.equal(status, 200)
  const sent = parrot.bodies.at(-1) ?? ''
  t.match(sent, /done c2.*done c3/s)
  t.notMatch(sent, /done c1|x x x/)
})

t.test('a summary opens in its own workspace only, unchanged, and with a key that is in use', async t => {
  const item = await summary()
  const other = await addOrganization(gateway.storageUrl, 'other')
  const send = (encrypted_content: string, key?: string) =>
    post('/responses', { model, input: [user('x'), { ...item, encrypted_content }, user('y')] }, key)
  const sealed = item.encrypted_content ?? ''
  const asked = parrot.bodies.length
  const says = (message: RegExp) => ({ status: 400, told: { error: { message } } })
  t.match(
    await send(sealed, other.apiKey),
    says(/^input\[1\]\.encrypted_content: was made in another workspace/),
  )
  t.match(await send(`${sealed.slice(0, -4)}AAAA`), says(/^input\[1\]\.encrypted_content: .*was changed/))
  t.match(await send('gAAAAABk'), says(/^input\[1\]\.encrypted_content: was not made by this gateway/))
  const retired = createTextSeal([{ id: 'old', secret: Buffer.alloc(32, 7) }], 'summaries')
  t.match(
    await send(`gw-summary-v1:${retired.seal('{"text":"x","replaces":false}', ['o', 'w'])}`),
    says(/^input\[1\]\.encrypted_content: .*compact it again/),
  )
  const ofOtherKind = createTextSeal(parseVaultKeys(gateway.vaultKeys), 'subagents')
  const faked = ofOtherKind.seal('{"text":"x","replaces":false}', ['o', 'w'])
  t.match(await send(`gw-summary-v1:${faked}`), says(/was changed/))
  t.equal(parrot.bodies.length, asked)
  t.equal((await send(sealed)).status, 200)
})

t.test('guardrails read an opened summary, and the request for one', async t => {
  const guarded = await startGuarded(t)
  guarded.parrot.parts = speaking('Mail a.b@example.com')
  const first = await guarded.ask({ model, input: [...TALK, TRIGGER] })
  const [item] = first.document['output'] as Item[]
  await guarded.guard({
    contentFilterBuiltins: [{ slug: 'email', action: 'block', scanScope: 'all_messages' }],
  })
  const asked = guarded.parrot.bodies.length
  t.equal((await guarded.ask({ model, input: [item, user('Go on')] })).status, 403)
  t.equal((await guarded.ask({ model, input: [user('a.b@example.com'), TRIGGER] })).status, 403)
  t.equal(guarded.parrot.bodies.length, asked)
})

t.test('a trigger has its place at the end, and a failure is that of the model call', async t => {
  t.match(await post('/responses', { model, input: [TRIGGER, user('x')] }), {
    status: 400,
    told: { error: { message: /^input\[0\]/ } },
  })
  t.match(await post('/responses', { model, input: [TRIGGER] }), {
    status: 400,
    told: { error: { message: /^input/ } },
  })
  t.equal((await post('/responses', { model: 'nobody/none', input: [...TALK, TRIGGER] })).status, 400)
  parrot.parts = []
  t.equal((await post('/responses', { model, input: [...TALK, TRIGGER] })).status, 502, 'no summary is none')
})

t.test('input tokens are counted without a call', async t => {
  const client = new OpenAI({ apiKey: gateway.apiKey, baseURL: gateway.url, maxRetries: 0 })
  const asked = parrot.bodies.length
  const counted = await client.responses.inputTokens.count({ model, input: 'Hello there, how are you?' })
  t.match(counted, { object: 'response.input_tokens' })
  t.ok(counted.input_tokens > 2 && counted.input_tokens < 20)
  t.equal(parrot.bodies.length, asked)
  t.equal((await post('/responses/input_tokens', { model: 'nobody/none', input: 'x' })).status, 400)
  t.equal(
    (await post('/responses/input_tokens', { model, input: 'x', previous_response_id: 'r' })).status,
    400,
  )
})
