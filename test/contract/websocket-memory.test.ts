/** Sockets remember their last responses: requests that continue one, lanes, and requests that ask for nothing. */
import t, { type Test } from 'tap'
import { LargeTurns } from '../../src/server/admission/large-body-queue.ts'
import { parseEventStream, startGateway } from '../support/gateway.ts'
import { parrotRows, pieces, speaking, startParrot, startToldProvider } from '../support/provider.ts'
import { openSocket, type SocketClient, type SocketEvent } from '../support/response-socket-client.ts'
import { TestClock } from '../support/test-clock.ts'
import { startGuarded } from '../support/world.ts'

const parrot = await startParrot(t)
const gateway = await startGateway(parrotRows(parrot.url))
t.teardown(() => gateway.close())

const MODEL = 'parrot/openai-responses'
const user = (content: string) => ({ type: 'message', role: 'user', content })

async function open(t: Test, url = gateway.url, key = gateway.apiKey): Promise<SocketClient> {
  const socket = await openSocket(url, key)
  t.teardown(() => socket.close())
  return socket
}

interface Response {
  readonly id: string
  readonly output: readonly { readonly type: string; readonly call_id?: string }[]
}

const responseOf = (events: readonly SocketEvent[]) => events.at(-1)?.['response'] as Response
const idOf = (events: readonly SocketEvent[]) => responseOf(events).id

interface SentItem {
  readonly type?: string
  readonly role?: string
  readonly content?: unknown
}

/** Texts of the items that the provider was sent last, with their roles. */
function sent(): readonly string[] {
  const body = JSON.parse(parrot.bodies.at(-1) ?? '{}') as { input: string | readonly SentItem[] }
  if (typeof body.input === 'string') return [`user: ${body.input}`]
  return body.input.map(({ type, role, content }) => {
    const text = Array.isArray(content)
      ? content.map(part => (part as { text: string }).text).join('')
      : content
    return `${role ?? type}: ${text ?? ''}`
  })
}

t.test('a request that names the last response sends its new items only', async t => {
  const socket = await open(t)
  parrot.parts = speaking('first answer')
  const first = await socket.ask({ model: MODEL, input: [user('one')], instructions: 'Be brief' })
  parrot.parts = speaking('second answer')
  const second = await socket.ask({ model: MODEL, input: 'two', previous_response_id: idOf(first) })
  t.equal(second.at(-1)?.type, 'response.completed')
  for (const { response } of second as readonly { response?: { previous_response_id: unknown } }[])
    if (response !== undefined) t.equal(response.previous_response_id, idOf(first))
  t.equal((responseOf(first) as { previous_response_id?: unknown }).previous_response_id, null)
  t.same(sent(), ['user: one', 'assistant: first answer', 'user: two'])
  t.notMatch(parrot.bodies.at(-1), 'Be brief', 'instructions belong to their own request')
  await socket.ask({ model: MODEL, input: [user('three')], previous_response_id: idOf(second) })
  t.same(sent(), [
    'user: one',
    'assistant: first answer',
    'user: two',
    'assistant: second answer',
    'user: three',
  ])
  const old = await socket.ask({ model: MODEL, input: 'x', previous_response_id: idOf(first) })
  t.match(old, [{ type: 'error', status: 400, error: { code: 'previous_response_not_found' } }])
})

t.test('reasoning and calls are part of what is remembered', async t => {
  const socket = await open(t)
  parrot.parts = [
    { kind: 'reasoning', form: 'text', pieces: pieces('let me think') },
    { kind: 'call', name: 'look', custom: false, pieces: pieces('{"at":1}') },
  ]
  const tools = [{ type: 'function', name: 'look', parameters: { type: 'object' } }]
  const first = await socket.ask({ model: MODEL, input: 'Look', tools })
  const { output } = responseOf(first)
  const call = output.find(({ type }) => type === 'function_call')
  parrot.parts = speaking('seen')
  const second = await socket.ask({
    model: MODEL,
    tools,
    previous_response_id: idOf(first),
    input: [{ type: 'function_call_output', call_id: call?.call_id, output: 'a cat' }],
  })
  t.equal(second.at(-1)?.type, 'response.completed')
  t.match(JSON.parse(parrot.bodies.at(-1) ?? '').input, [
    { role: 'user' },
    { type: 'reasoning' },
    { type: 'function_call', name: 'look', arguments: '{"at":1}', call_id: call?.call_id },
    { type: 'function_call_output', output: 'a cat' },
  ])
})

t.test('200 turns of an agent send the bytes of their new items alone', async t => {
  const socket = await open(t)
  parrot.parts = speaking('done')
  let previous: string | null = null
  let sentBytes = 0
  const begins = parrot.bodies.length
  for (let turn = 0; turn < 200; turn++) {
    const input = [user(`turn ${turn} ${'x'.repeat(200)}`)]
    sentBytes += JSON.stringify(input).length
    previous = idOf(await socket.ask({ model: MODEL, input, previous_response_id: previous }))
  }
  const asked = parrot.bodies.slice(begins)
  t.equal(asked.length, 200)
  t.equal(sent().length, 399)
  const wholeBytes = asked.reduce((sum, body) => sum + body.length, 0)
  t.comment(`${sentBytes} bytes of new items in place of ${wholeBytes}`)
  t.ok(sentBytes * 50 < wholeBytes)
})

t.test('nobody continues the response of another socket, nor of this one by HTTP', async t => {
  const [socket, other] = [await open(t), await open(t)]
  parrot.parts = speaking('mine')
  const first = await socket.ask({ model: MODEL, input: 'one' })
  const refused = { type: 'error', status: 400, error: { code: 'previous_response_not_found' } }
  t.match(await other.ask({ model: MODEL, input: 'two', previous_response_id: idOf(first) }), [refused])
  const reply = await gateway.respond({ model: MODEL, input: 'two', previous_response_id: idOf(first) })
  t.equal(reply.status, 400)
  t.equal(
    (await socket.ask({ model: MODEL, input: 'x', previous_response_id: idOf(first) })).at(-1)?.type,
    'response.completed',
  )
  for (const id of [7, {}, '']) {
    t.match(await socket.ask({ model: MODEL, input: 'two', previous_response_id: id }), [refused])
  }
})

t.test('a turn that fails forgets the response that it continued', async t => {
  const socket = await open(t)
  parrot.parts = speaking('kept')
  const first = await socket.ask({ model: MODEL, input: 'one' })
  const bad = await socket.ask({
    model: MODEL,
    input: 'two',
    temperature: 'hot',
    previous_response_id: idOf(first),
  })
  t.match(bad, [{ type: 'error', status: 400 }])
  const again = await socket.ask({ model: MODEL, input: 'two', previous_response_id: idOf(first) })
  t.match(again, [{ type: 'error', error: { code: 'previous_response_not_found' } }])
  const second = await socket.ask({ model: MODEL, input: 'one' })
  const alone = await socket.ask({ model: MODEL, input: 'bad', temperature: 'hot' })
  t.equal(alone.at(-1)?.type, 'error')
  const third = await socket.ask({ model: MODEL, input: 'two', previous_response_id: idOf(second) })
  t.equal(third.at(-1)?.type, 'response.completed', 'a failure that continued nothing forgets nothing')
})

t.test('guardrails see the whole conversation each time', async t => {
  const guarded = await startGuarded(t)
  const socket = await open(t, guarded.gateway.url, guarded.gateway.apiKey)
  const first = await socket.ask({ model: MODEL, input: 'mail a.b@example.com' })
  await guarded.guard({
    contentFilterBuiltins: [{ slug: 'email', action: 'block', scanScope: 'all_messages' }],
  })
  const second = await socket.ask({ model: MODEL, input: 'go on', previous_response_id: idOf(first) })
  t.match(second.at(-1), { type: 'error', status: 403 })
  t.equal(guarded.parrot.bodies.length, 1)
})

t.test('a request that asks for nothing calls nobody, costs nothing, and can be continued', async t => {
  const socket = await open(t)
  const before = parrot.bodies.length
  const empty = await socket.ask({
    model: MODEL,
    input: [user('the task')],
    instructions: 'x',
    generate: false,
  })
  t.match(empty, [
    { type: 'response.created', sequence_number: 0, response: { status: 'in_progress', model: MODEL } },
    {
      type: 'response.completed',
      sequence_number: 1,
      response: { status: 'completed', output: [], usage: { input_tokens: 0, output_tokens: 0, cost: 0 } },
    },
  ])
  t.equal(empty.length, 2)
  t.equal(parrot.bodies.length, before)
  await gateway.shipper.ship()
  const found = await fetch(`${gateway.url}/generation?id=${idOf(empty)}`, {
    headers: { authorization: `Bearer ${gateway.apiKey}` },
  })
  t.equal(found.status, 404, 'it leaves no usage record')
  parrot.parts = speaking('yes')
  const next = await socket.ask({ model: MODEL, input: [user('begin')], previous_response_id: idOf(empty) })
  t.equal(next.at(-1)?.type, 'response.completed')
  t.same(sent(), ['user: the task', 'user: begin'])
  for (const input of [[], null, undefined]) {
    const opened = await socket.ask({ model: MODEL, input, generate: false })
    const begun = await socket.ask({ model: MODEL, input: 'begin', previous_response_id: idOf(opened) })
    t.equal(begun.at(-1)?.type, 'response.completed')
    t.same(sent(), ['user: begin'])
  }
  const unknown = await socket.ask({ model: 'nobody/none', input: 'x', generate: false })
  t.match(unknown, [{ type: 'error', status: 400, error: { message: /nobody\/none/ } }])
  const wrong = await socket.ask({ model: MODEL, input: 5, generate: false })
  t.match(wrong, [{ type: 'error', status: 400, error: { message: /^input: / } }])
  const text = await (
    await gateway.respond({ model: MODEL, input: 'x', generate: false, stream: true })
  ).text()
  t.same(
    parseEventStream(text).map(({ type }) => type),
    ['response.created', 'response.completed'],
  )
  t.match(await (await gateway.respond({ model: MODEL, input: 'x', generate: false })).json(), { output: [] })
  t.equal(parrot.bodies.length, before + 4)
})

t.test('a note about a response needs no answer', async t => {
  const socket = await open(t)
  parrot.parts = speaking('fine')
  socket.send(JSON.stringify({ type: 'response.processed', response_id: 'resp_1' }))
  const events = await socket.ask({ model: MODEL, input: 'x' })
  t.equal(events[0]?.type, 'response.created')
  socket.send(JSON.stringify({ type: 'response.unknown', note: 'response.processed' }))
  t.match(await socket.next(), { type: 'error', status: 400 })
})

/** Reads events until so many responses have ended. */
async function ends(socket: SocketClient, count: number): Promise<readonly SocketEvent[]> {
  const events: SocketEvent[] = []
  for (let left = count; left > 0; ) {
    const event = await socket.next()
    events.push(event)
    if (/^(?:error|response\.(?:completed|incomplete|failed))$/.test(event.type)) left--
  }
  return events
}

/** A socket to a gateway whose model says what the test tells it to. */
async function openTold(t: Test) {
  const provider = await startToldProvider(t)
  const own = await startGateway({
    providers: [{ slug: 'told', format: 'openai-chat', baseUrl: provider.baseUrl }] as never,
    models: [{ id: 'told/model', endpoints: [{ provider: 'told' }] }] as never,
  })
  t.teardown(() => own.close())
  const socket = await open(t, own.url, own.apiKey)
  return { provider, socket }
}

t.test('messages of lanes wait in their order, and each event names its lane', async t => {
  const { provider, socket } = await openTold(t)
  const send = (lane: string, input: unknown, more = {}) =>
    socket.send(
      JSON.stringify({ type: 'response.create', stream_id: lane, model: 'told/model', input, ...more }),
    )
  send('a', 'first')
  const reply = await provider.reply(0)
  for (let at = 0; at < 9; at++) send(`b${at}`, `later ${at}`)
  t.match(await ends(socket, 1).then(events => events.at(-1)), {
    type: 'error',
    status: 409,
    stream_id: 'b8',
    error: { code: 'response_in_flight' },
  })
  provider.onReply = each => {
    each.say({ content: 'ok' })
    each.finish(null)
  }
  reply.say({ content: 'one' })
  reply.finish(null)
  const events = await ends(socket, 9)
  const lanes = events.map(({ stream_id }) => stream_id)
  t.same([...new Set(lanes)], ['a', 'b0', 'b1', 'b2', 'b3', 'b4', 'b5', 'b6', 'b7'], 'one after the other')
  t.same(
    provider.replies.map(({ body }) => (body['messages'] as { content: string }[])[0]?.content),
    ['first', ...Array.from({ length: 8 }, (_, at) => `later ${at}`)],
  )
  const lastOf = (lane: string) => idOf(events.filter(({ stream_id }) => stream_id === lane))
  send('fork', 'apart', { previous_response_id: lastOf('a') })
  send('a', 'on', { previous_response_id: lastOf('a') })
  t.match(
    (await ends(socket, 2)).map(({ type }) => type).filter(type => type === 'response.completed').length,
    2,
  )
  const messages = provider.replies.slice(-2).map(({ body }) => body['messages'])
  t.match(messages, [
    [{ content: 'first' }, { content: 'one' }, { content: 'apart' }],
    [{ content: 'first' }, { content: 'one' }, { content: 'on' }],
  ])
  send('', 'x')
  t.match(await socket.next(), { type: 'error', error: { message: /^stream_id: / } })
  socket.send('{"type":"response.create","stream_id":"z","model":5}')
  t.match(await socket.next(), { type: 'error', status: 400, stream_id: 'z' })
})

t.test('an incomplete response may be continued', async t => {
  const { provider, socket } = await openTold(t)
  provider.onReply = each => {
    each.say({ content: 'half' })
    each.finish(null, 'length')
  }
  const first = await socket.ask({ model: 'told/model', input: 'one' })
  t.equal(first.at(-1)?.type, 'response.incomplete')
  await socket.ask({ model: 'told/model', input: 'two', previous_response_id: idOf(first) })
  t.match(provider.replies[1]?.body['messages'], [
    { content: 'one' },
    { content: 'half' },
    { content: 'two' },
  ])
})

t.test('after 60 minutes a socket says so and closes', async t => {
  const clock = new TestClock()
  const own = await startGateway({ clock })
  t.teardown(() => own.close())
  const socket = await openSocket(own.url, own.apiKey)
  for (let minute = 0; minute < 120; minute++) {
    clock.advance(30_000)
    socket.send(JSON.stringify({ type: 'response.create', model: 'nobody/none', input: 'x' }))
    const event = await socket.next()
    if ((event['error'] as { code: string }).code === 'websocket_connection_limit_reached') break
  }
  t.equal(await socket.closed, 1001)
})

t.test(
  'a short message that continues a long conversation waits for its turn as a large body does',
  async t => {
    const turns = t.capture(LargeTurns.prototype, 'enter', LargeTurns.prototype.enter)
    const socket = await open(t)
    parrot.parts = speaking('noted')
    const first = await socket.ask({ model: MODEL, input: [user('x'.repeat(600_000))] })
    const second = await socket.ask({
      model: MODEL,
      input: [user('y'.repeat(600_000))],
      previous_response_id: idOf(first),
    })
    t.equal(turns().length, 1, 'together they are large')
    await socket.ask({ model: MODEL, input: 'another question', stream_id: 'b' })
    t.equal(turns().length, 0, 'a message that continues nothing')
    const third = await socket.ask({ model: MODEL, input: 'so?', previous_response_id: idOf(second) })
    t.equal(third.at(-1)?.type, 'response.completed')
    t.equal(turns().length, 1, 'a short one that names the conversation')
    socket.send(
      `{"type":"response.create","model":"${MODEL}","input":"?","previous_response\\u005fid":"${idOf(third)}"}`,
    )
    let last = ''
    while (last !== 'response.completed') last = (await socket.next()).type
    t.equal(turns().length, 1, 'in any spelling')
  },
)
