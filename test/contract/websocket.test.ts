/** Responses over WebSocket, against the whole gateway. */
import { connect } from 'node:net'
import t from 'tap'
import { grammarViolations } from '../support/event-grammar.ts'
import { parseEventStream, startGateway } from '../support/gateway.ts'
import { openSocket, type SocketEvent } from '../support/response-socket-client.ts'

const gateway = await startGateway()
t.teardown(() => gateway.close())
const { url, apiKey, managementKey } = gateway

const typesOf = (events: readonly SocketEvent[]) => events.map(({ type }) => type)

t.test('each message is a request, and each event of its answer a message', async t => {
  const socket = await openSocket(url, apiKey)
  t.teardown(() => socket.close())
  const fields = { model: 'sim/echo', input: 'One two three' }
  const first = await socket.ask(fields)
  const reply = await gateway.respond({ ...fields, stream: true })
  t.same(grammarViolations(first as never), [])
  t.same(typesOf(first), typesOf(parseEventStream(await reply.text()) as never), 'the events of a stream')
  t.match(first.at(-1), { type: 'response.completed', response: { status: 'completed', model: 'sim/echo' } })
  const second = await socket.ask({ ...fields, model: 'sim/chat-echo' })
  t.equal(second.at(-1)?.type, 'response.completed', 'the socket goes on')
})

t.test('a request that fails before its answer is told, and the socket stays open', async t => {
  const socket = await openSocket(url, apiKey)
  t.teardown(() => socket.close())
  const failing: readonly [string, unknown][] = [
    [JSON.stringify({ model: 'sim/echo', input: 'x' }), { status: 400, error: { code: 'invalid_request' } }],
    ['no json', { status: 400, error: { code: 'invalid_request' } }],
    ['', { status: 400, error: { code: 'invalid_request' } }],
    [
      JSON.stringify({
        type: 'response.create',
        model: 'sim/echo',
        input: 'x',
        previous_response_id: 'resp_1',
      }),
      { status: 400, error: { code: 'previous_response_not_found' } },
    ],
    [
      JSON.stringify({ type: 'response.create', model: 'sim/none', input: 'x' }),
      { status: 400, error: { message: /sim\/none/ } },
    ],
  ]
  for (const [text, expected] of failing) {
    socket.send(text)
    t.match(await socket.next(), { type: 'error', ...(expected as object) }, text)
  }
  const events = await socket.ask({ model: 'sim/echo', input: 'x' })
  t.equal(events.at(-1)?.type, 'response.completed')
})

t.test('one response is in flight per socket', async t => {
  const socket = await openSocket(url, apiKey)
  t.teardown(() => socket.close())
  const text = JSON.stringify({ type: 'response.create', model: 'sim/echo', input: 'x' })
  socket.send(text)
  socket.send(text)
  const events: SocketEvent[] = []
  for (let ends = 0; ends < 2; ) {
    const event = await socket.next()
    events.push(event)
    if (event.type === 'error' || event.type === 'response.completed') ends++
  }
  t.match(
    events.find(({ type }) => type === 'error'),
    { status: 409, error: { code: 'response_in_flight' } },
  )
  t.equal(events.filter(({ type }) => type === 'response.completed').length, 1)
})

t.test('a handshake without a key for inference is refused over HTTP', async t => {
  const statusOf = async (key: string): Promise<string> => {
    const { port } = new URL(url)
    return new Promise((resolve, reject) => {
      const client = connect(Number(port), '127.0.0.1', () =>
        client.write(
          `GET /v1/responses HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n${key}Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n`,
        ),
      )
      client.once('data', data => {
        resolve(data.toString().split('\r\n')[0] ?? '')
        client.destroy()
      })
      client.once('error', reject)
    })
  }
  t.match(await statusOf(''), /401/)
  t.match(await statusOf('Authorization: Bearer sk-gw-v1-wrong\r\n'), /401/)
  t.match(await statusOf(`Authorization: Bearer ${managementKey}\r\n`), /403/)
  t.match(await statusOf(`Authorization: Bearer ${apiKey}\r\n`), /101/)
})

t.test('binary messages and broken frames close the socket', async t => {
  const binary = await openSocket(url, apiKey)
  binary.send(new Uint8Array([1, 2, 3]))
  t.equal(await binary.closed, 1003)
  const large = await openSocket(url, apiKey)
  large.send('x'.repeat(4 * 1024 * 1024 + 1))
  t.not(await large.closed, 1000)
  const after = await openSocket(url, apiKey)
  t.teardown(() => after.close())
  t.equal((await after.ask({ model: 'sim/echo', input: 'x' })).at(-1)?.type, 'response.completed')
})

t.test('a client that closes ends its response at the provider', async t => {
  const socket = await openSocket(url, apiKey)
  socket.send(JSON.stringify({ type: 'response.create', model: 'sim/write-200-20', input: 'x' }))
  t.equal((await socket.next()).type, 'response.created')
  socket.close()
  await socket.closed
  t.pass()
})

t.test('fifty sockets ask forty times each, some leave in the middle, and a drain loses none', async t => {
  const own = await startGateway({ limits: { socketsPerKey: 64 } })
  t.teardown(() => own.close())
  const { server } = own.serving
  const tally = { asked: 0, ended: 0, refused: 0, left: 0 }
  let running = 0
  let draining: Promise<void> | null = null
  const drainNow = Promise.withResolvers<void>()
  const allLeft = Promise.withResolvers<void>()
  const client = async (at: number): Promise<void> => {
    const socket = await openSocket(own.url, own.apiKey)
    for (let turn = 0; turn < 40; turn++) {
      if (at % 10 === 9 && turn === 20) {
        socket.send(JSON.stringify({ type: 'response.create', model: 'sim/write-200-20', input: 'x' }))
        await socket.next()
        socket.close()
        await socket.closed
        if (++tally.left === 5) allLeft.resolve()
        return
      }
      tally.asked++
      running++
      const events = await socket.ask({ model: 'sim/echo', input: `${at} ${turn}` }).catch(() => null)
      running--
      const last = events?.at(-1)
      if (last?.type === 'response.completed') {
        tally.ended++
        const { output } = last['response'] as { output: { content: { text: string }[] }[] }
        t.equal(output[0]?.content[0]?.text.includes(`${at} ${turn}`), true, 'its own answer')
      } else tally.refused++
      if (at === 0 && turn === 30) {
        // A front may serve some connections sooner than others.
        await allLeft.promise
        drainNow.resolve()
      }
      // After the drain has begun, sockets without a response in flight are closed.
      if (draining !== null) {
        t.equal(await socket.closed, 1001, 'the close says that the gateway goes away')
        return
      }
    }
    socket.close()
    await socket.closed
  }
  const clients = Promise.all(Array.from({ length: 50 }, (_, at) => client(at)))
  await drainNow.promise
  draining = server.drain(60_000)
  await clients
  await draining
  t.equal(running, 0)
  t.equal(tally.left, 5)
  // A request that meets the closing socket was never begun; every other one has its whole answer.
  t.equal(tally.ended + tally.refused, tally.asked)
  t.equal(
    own.lines.filter(({ route, outcome }) => route === '/responses' && outcome === 'completed').length,
    tally.ended,
    'no answer that the gateway completed was lost',
  )
  t.comment(JSON.stringify(tally))
  t.equal(server.openConnections, 0)
  t.equal(server.openStreams, 0)
  t.equal(server.openRequests, 0)
})
