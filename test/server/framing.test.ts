import t from 'tap'
import { exchange, parseReplies, RawClient, request, turns } from '../support/raw-http.ts'
import { TestClock } from '../support/test-clock.ts'
import { differs, isRefused, VECTORS_OTHERWISE } from './differences.ts'
import { SMUGGLED, VECTORS, type Vector } from './framing-vectors.ts'
import { type FrontEnd, INFERENCE, type Row, startFrontEnd } from './front-end.ts'

interface Witness {
  readonly clock: TestClock
  readonly routes: readonly Row[]
  /** Canary headers of what was handled, in order. */
  readonly canaries: (string | undefined)[]
}

function witness(): Witness {
  const canaries: (string | undefined)[] = []
  const route = (method: Row['method'], path: string): Row => ({
    method,
    path,
    bodyLimitBytes: 1024,
    key: 'inference',
    handler(request, reply) {
      canaries.push(request.headers.get('x-canary'))
      reply.json(200, { handled: request.body ?? null })
    },
  })
  return {
    routes: [
      route('GET', '/echo'),
      route('POST', '/echo'),
      route('DELETE', '/echo'),
      route('GET', '/smuggled'),
    ],
    canaries,
    clock: new TestClock(),
  }
}

/** For what has to come; it is a fault when it does not. */
const PATIENCE_MS = 30_000

interface Expected {
  /** An answer or the end of the connection has to come. Otherwise the server may also wait for more bytes. */
  readonly ends: boolean
  /** After an answer the connection has to be closed. */
  readonly closes: boolean
}

/** Methods of the requests whose answers have no body; see `parseReplies`. */
const methodsOf = ([first]: readonly string[]): readonly string[] => [first?.split(' ')[0] ?? '']

const answeredTo = (segments: readonly string[], text: string): boolean =>
  parseReplies(text, methodsOf(segments)).some(({ status }) => status >= 200)

/** Sends the segments one by one, waits for what has to come, and lets everything happen that can. */
async function play(
  front: FrontEnd,
  segments: readonly string[],
  expected: Expected,
  clock: TestClock,
): Promise<RawClient> {
  const { server } = front
  while (server.openRequests > 0) await turns(1)
  const client = new RawClient(front.port)
  const limit = AbortSignal.timeout(PATIENCE_MS)
  const until = async (came: () => boolean) => {
    while (!client.closed && !came() && !limit.aborted) await turns(1)
  }
  for (const [index, segment] of segments.entries()) {
    await client.send(segment)
    // In one piece with the next segment it may be read differently.
    const isLast = index === segments.length - 1
    if (expected.ends && !isLast)
      await until(() => server.openRequests > 0 || answeredTo(segments, client.text))
    await turns(4)
  }
  if (expected.ends) await until(() => answeredTo(segments, client.text))
  // Both ends run in this process: what has not moved after so many turns waits for more bytes.
  for (let turn = 0; turn < 30 && !client.closed; turn++) await turns(1)
  if (expected.closes && answeredTo(segments, client.text)) await client.untilCut(clock)
  return client
}

/** What a vector did that it must not, empty when all is well. */
function judge(
  vector: Vector,
  segments: readonly string[],
  client: RawClient,
  canaries: readonly (string | undefined)[],
): string[] {
  const replies = parseReplies(client.text, methodsOf(segments)).filter(reply => reply.status >= 200)
  const status = replies[0]?.status ?? 0
  const faults: string[] = []
  const { statuses, handled } = vector
  // What comes with a second request behind it may be dropped together with it, unanswered and unhandled.
  const dropped = segments.length === 1 && status === 0 && client.closed && canaries.length === 0
  if (!statuses.includes(status) && !dropped && !isRefused(status, canaries.length))
    faults.push(`answered ${status}`)
  if (canaries.includes(undefined)) faults.push('handled what was hidden')
  if (canaries.length > handled) faults.push(`handled ${canaries.length}`)
  // The parser's own refusal of what follows is the end of the connection, not an answer to a request.
  if (replies.slice(1).some(reply => reply.status < 400)) faults.push('answered twice')
  if (status > 0 && !vector.mayStayOpen && !client.closed) faults.push('left open')
  return faults
}

/** Whole, and cut where the body begins. */
function segmentations(bytes: string): readonly (readonly string[])[] {
  const bodyAt = bytes.indexOf('\r\n\r\n') + 4
  if (bodyAt === 3 || bodyAt === bytes.length) return [[bytes]]
  return [[bytes], [bytes.slice(0, bodyAt), bytes.slice(bodyAt)]]
}

t.test('no request can hide behind another', async t => {
  const { routes, canaries, clock } = witness()
  const front = await startFrontEnd(t, routes, { clock })
  const wrong: string[] = []
  let played = 0
  for (const listed of VECTORS) {
    const vector = { ...listed, ...VECTORS_OTHERWISE.get(listed.name) }
    for (const segments of vector.pipelines ? [[vector.bytes]] : segmentations(vector.bytes)) {
      played++
      canaries.length = 0
      const expected = { ends: !vector.statuses.includes(0), closes: !vector.mayStayOpen }
      const client = await play(front, segments, expected, clock)
      const faults = judge(vector, segments, client, canaries)
      if (faults.length > 0) wrong.push(`${vector.name} in ${segments.length}: ${faults.join(', ')}`)
      client.destroy()
    }
  }
  t.same(wrong, [])
  t.same(front.faults, [])
  t.ok(VECTORS.length >= 200, `${VECTORS.length} vectors`)
  t.comment(`${VECTORS.length} vectors, played ${played} times`)
  canaries.length = 0
  t.equal((await exchange(front.port, request('GET', '/v1/echo', { Authorization: INFERENCE })))?.status, 200)
})

t.test('closing after every answer leaves nothing of a request whose headers were hidden', async t => {
  const { routes, canaries, clock } = witness()
  const front = await startFrontEnd(t, routes, { clock, closeAfterReply: true })
  const hiding = `GET /v1/echo HTTP/1.1\r\nHost: gateway.test\r\nAuthorization: ${INFERENCE}\r\nX-Canary: 1\r\n: b\r\nContent-Length: ${SMUGGLED.length}\r\n\r\n`
  const client = await play(front, [hiding, SMUGGLED], { ends: true, closes: true }, clock)
  // The other front sees through it, and refuses.
  t.same(canaries, differs('a header without a name, a preamble of a proxy') ? [] : ['1'])
  t.ok(client.closed)
  t.equal(parseReplies(client.text)[0]?.headers.get('connection'), 'close')
})

t.test('a preamble that claims another address changes nothing', async t => {
  const { routes, canaries, clock } = witness()
  const front = await startFrontEnd(t, routes, { clock })
  const preamble = Buffer.from(
    '0d0a0d0a000d0a515549540a2111000c060606067f0000010050 0050'.replaceAll(' ', ''),
    'hex',
  )
  const asked = request('GET', '/v1/echo', { Authorization: INFERENCE, 'X-Canary': '1' })
  const segments = [preamble.toString('latin1') + asked]
  const client = await play(front, segments, { ends: true, closes: false }, clock)
  t.same(canaries, differs('a header without a name, a preamble of a proxy') ? [] : ['1'])
  t.notMatch(client.text, '6.6.6.6')
  client.destroy()
})

t.test('a chunked body is refused where it is not allowed', async t => {
  const { routes, canaries, clock } = witness()
  const front = await startFrontEnd(t, routes, { clock, allowChunked: false })
  const headers = {
    Authorization: INFERENCE,
    'Content-Type': 'application/json',
    'Transfer-Encoding': 'chunked',
  }
  const segments = [request('POST', '/v1/echo', headers), `2\r\n{}\r\n0\r\n\r\n${SMUGGLED}`]
  const client = await play(front, segments, { ends: true, closes: true }, clock)
  t.equal(parseReplies(client.text)[0]?.status, 411)
  t.ok(client.closed)
  t.same(canaries, [])
})

t.test('a request may be cut anywhere after its request line', async t => {
  const { routes, canaries, clock } = witness()
  const front = await startFrontEnd(t, routes, { clock })
  const base = { Authorization: INFERENCE, 'X-Canary': '1' }
  const json = { ...base, 'Content-Type': 'application/json; charset=utf-8' }
  const body = Buffer.from('{"a":["\\"}",{"b":"ü"}]}').toString('latin1')
  const shapes = [
    request('GET', '/v1/echo?a=b', base),
    request('POST', '/v1/echo', { ...json, 'Content-Length': String(body.length) }, body),
    request(
      'POST',
      '/v1/echo',
      { ...json, 'Transfer-Encoding': 'chunked' },
      '3\r\n{"a\r\n4\r\n":1}\r\n0\r\n\r\n',
    ),
    request('DELETE', '/v1/echo', { ...base, Connection: 'close' }),
  ]
  let cuts = 0
  const wrong: string[] = []
  for (const shape of shapes) {
    for (let at = shape.indexOf('\r\n') + 2; at < shape.length; at++) {
      cuts++
      const client = new RawClient(front.port)
      await client.send(shape.slice(0, at))
      await turns(2)
      await client.send(shape.slice(at))
      await client.until(text => parseReplies(text).length > 0)
      const status = parseReplies(client.text)[0]?.status
      if (status !== 200) wrong.push(`${shape.slice(0, 12)} cut at ${at}: ${status}`)
      client.destroy()
    }
  }
  t.same(wrong, [])
  t.equal(canaries.length, cuts)
  t.comment(`${cuts} cuts`)
})

t.test('a request may arrive byte by byte after its request line', async t => {
  const { routes, clock } = witness()
  const front = await startFrontEnd(t, routes, { clock })
  const whole = request(
    'POST',
    '/v1/echo',
    { Authorization: INFERENCE, 'Content-Type': 'application/json', 'Content-Length': '7' },
    '{"a":1}',
  )
  const client = new RawClient(front.port)
  const lineEnd = whole.indexOf('\r\n') + 2
  await client.send(whole.slice(0, lineEnd))
  for (const byte of whole.slice(lineEnd)) {
    await client.send(byte)
    await turns(1)
  }
  await client.until(text => parseReplies(text).length > 0)
  t.equal(parseReplies(client.text)[0]?.body, '{"handled":{"a":1}}')
  client.destroy()
})

t.test(
  'a head may be longer than the library takes by itself, with room for the headers of proxies',
  async t => {
    const { routes, clock } = witness()
    const front = await startFrontEnd(t, routes, { clock })
    const ask = (bytes: number) =>
      exchange(
        front.port,
        request('GET', '/v1/echo', { Authorization: INFERENCE, 'X-Long': 'a'.repeat(bytes) }),
      )
    t.equal((await ask(15_000))?.status, 200)
    t.equal((await ask(17_000))?.status, 431)
  },
)

t.test('a healthy connection serves one request after another', async t => {
  const { routes, canaries, clock } = witness()
  const front = await startFrontEnd(t, routes, { clock })
  const client = new RawClient(front.port)
  for (let count = 1; count <= 20; count++) {
    await client.send(request('GET', '/v1/echo', { Authorization: INFERENCE, 'X-Canary': String(count) }))
    await client.until(text => parseReplies(text).length === count)
  }
  t.equal(canaries.length, 20)
  t.notOk(client.closed)
  client.destroy()
})
