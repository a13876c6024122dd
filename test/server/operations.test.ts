/** What rows of the table may ask of the server: raw bodies, streams of any content, no key, HEAD, a dialect. */
import t from 'tap'
import { GatewayError } from '../../src/base/errors.ts'
import type { Dialect } from '../../src/dialects/dialect.ts'
import { bodyReader } from '../support/body-reader.ts'
import { responsesDialect } from '../support/dialects.ts'
import { exchange, parseReplies, RawClient, request, turns } from '../support/raw-http.ts'
import { INFERENCE, openOperation, operation, rawOperation, startFrontEnd } from './front-end.ts'

const AUTH = { Authorization: INFERENCE }
const MIB = 1024 * 1024
/** One read takes what the kernel holds before the library looks at a pause: a few megabytes. */
const READ_MAX_BYTES = 16 * MIB

function upload(body: Buffer, headers: Record<string, string> = {}): Buffer {
  const head = request('POST', '/v1/upload', {
    ...AUTH,
    'Content-Type': 'application/jsonl',
    'Content-Length': String(body.length),
    ...headers,
  })
  return Buffer.concat([Buffer.from(head, 'latin1'), body])
}

t.test('a raw body arrives in chunks of any content type, with the client held back', async t => {
  let most = 0
  let total = 0
  const slow = Promise.withResolvers<void>()
  const uploads = rawOperation('/upload', 100 * MIB, async (handled, reply) => {
    await handled.body.read(
      bodyReader(async chunk => {
        if (total === 0) await slow.promise
        total += chunk.length
        most = Math.max(most, front.server.load.bufferedBytes)
      }),
    )
    reply.json(200, { total, announced: handled.body.contentLength })
  })
  const front = await startFrontEnd(t, [], { operations: [uploads] })
  const client = new RawClient(front.port)
  t.teardown(() => client.destroy())
  const sent = client.send(upload(Buffer.alloc(64 * MIB, 'x')))
  while (front.server.load.bufferedBytes === 0) await turns(1)
  await turns(100)
  t.ok(front.server.load.bufferedBytes < READ_MAX_BYTES, 'what its handler does not take is not read')
  slow.resolve()
  await sent
  await client.until(text => text.includes('}'))
  t.match(parseReplies(client.text)[0]?.body, `{"total":${64 * MIB},"announced":${64 * MIB}}`)
  t.ok(most < READ_MAX_BYTES, `at most ${most} bytes were held`)
  t.equal(front.server.load.bufferedBytes, 0)
  // The connection is in step: the next upload is another request.
  await client.send(upload(Buffer.from('next')))
  await client.until(text => parseReplies(text).length === 2)
  t.match(parseReplies(client.text)[1]?.body, `"announced":4`)
})

t.test('a raw body may be chunked or empty, and has its limit', async t => {
  const seen: (number | null)[] = []
  const front = await startFrontEnd(t, [], {
    operations: [
      rawOperation('/upload', 10, async ({ body }, reply) => {
        let text = ''
        seen.push(body.contentLength)
        await body.read(
          bodyReader(chunk => {
            text += Buffer.from(chunk).toString()
          }),
        )
        reply.json(200, { text })
      }),
    ],
  })
  const post = (headers: Record<string, string>, body: string) =>
    exchange(front.port, request('POST', '/v1/upload', { ...AUTH, ...headers }, body))
  const chunked = { 'Transfer-Encoding': 'chunked', 'Content-Type': 'text/plain' }
  t.equal((await post(chunked, '2\r\nab\r\n1\r\nc\r\n0\r\n\r\n'))?.body, '{"text":"abc"}')
  t.equal((await post({ 'Content-Length': '0' }, ''))?.body, '{"text":""}')
  t.same(seen, [null, 0])
  t.equal((await post({ 'Content-Length': '11', 'Content-Type': 'a/b' }, '12345678901'))?.status, 413)
  const long = await post(chunked, 'b\r\n12345678901\r\n0\r\n\r\n')
  t.equal(long?.status, 413)
  t.equal(long?.headers.get('connection'), 'close')
  t.equal((await post({ 'Content-Length': '1', 'Content-Encoding': 'compress' }, 'x'))?.status, 415)
  t.equal(
    (await exchange(front.port, request('POST', '/v1/upload', { 'Content-Length': '1' }, 'x')))?.status,
    401,
  )
  t.equal(front.server.load.bufferedBytes, 0)
})

t.test('the reading of a raw body ends when the client leaves', async t => {
  const reading = Promise.withResolvers<unknown>()
  const front = await startFrontEnd(t, [], {
    operations: [
      rawOperation('/upload', 100, async ({ body }) => {
        await body.read(bodyReader()).catch(reading.resolve)
      }),
    ],
  })
  const client = new RawClient(front.port)
  await client.send(upload(Buffer.from('half')).subarray(0, -2))
  while (front.server.openRequests === 0) await turns(1)
  await turns(5)
  client.destroy()
  t.match(await reading.promise, { code: 'client_closed' })
  await front.logged(1)
  t.equal(front.lines[0]?.outcome, 'aborted')
})

t.test('a stream of any content arrives byte by byte as it was written, also by a slow reader', async t => {
  const bytes = Buffer.alloc(300_000, 'sluice\0\r\n\n')
  const rounds = 200
  const download = operation({
    method: 'GET',
    path: '/download',
    bodyLimitBytes: 0,
    key: 'inference',
    async handler(_request, reply) {
      let drained: (() => void) | null = null
      reply.onProgress(isDrained => {
        if (isDrained) drained?.()
      })
      let flowing = reply.openStream('', 'application/octet-stream')
      for (let round = 0; round < rounds; round++) {
        if (!flowing) {
          stalls++
          await new Promise<void>(resolve => {
            drained = resolve
          })
        }
        flowing = reply.writeStream(bytes)
        most = Math.max(most, front.server.load.bufferedBytes)
      }
      reply.endStream('the end')
    },
  })
  let stalls = 0
  let most = 0
  const front = await startFrontEnd(t, [], { operations: [download] })
  const client = new RawClient(front.port)
  t.teardown(() => client.destroy())
  client.socket.pause()
  await client.send(request('GET', '/v1/download', AUTH))
  while (stalls === 0) await turns(1)
  client.socket.resume()
  await client.untilEnd('the end\r\n0\r\n\r\n')
  const [reply] = parseReplies(client.text)
  t.equal(reply?.headers.get('content-type'), 'application/octet-stream')
  t.notOk(reply?.headers.has('x-accel-buffering'))
  t.equal(reply?.body.length, rounds * bytes.length + 'the end'.length)
  t.ok(reply?.body === `${bytes.toString('latin1').repeat(rounds)}the end`, 'every byte')
  t.ok(most <= bytes.length, `at most ${most} bytes waited here`)
  t.equal(front.server.load.bufferedBytes, 0)
  await front.logged(1)
  t.equal(front.lines[0]?.outcome, 'completed')
})

t.test('an operation without a key lets everybody in', async t => {
  const open = openOperation('/open', (handled, reply) => reply.json(200, { key: handled.key }))
  const front = await startFrontEnd(t, [], { operations: [open] })
  for (const headers of [{}, AUTH, { Authorization: 'Bearer nobody' }]) {
    const reply = await exchange(front.port, request('GET', '/v1/open', headers))
    t.equal(reply?.body, '{"key":null}')
  }
})

t.test('HEAD has the status and headers of GET, and no body', async t => {
  const stream = openOperation('/stream', (_request, reply) => {
    reply.openStream('chunk', 'text/csv')
    reply.writeStream('more')
    reply.endStream('last')
  })
  const plain = openOperation('/plain', (_request, reply) => reply.json(200, { text: 'grüße' }))
  const failing = openOperation('/failing', () => {
    throw new GatewayError('not_found', 'Nothing here')
  })
  const broken = openOperation('/broken', () => {
    throw new Error('bug')
  })
  const front = await startFrontEnd(t, [], { operations: [plain, stream, failing, broken] })
  for (const path of ['/v1/plain', '/v1/stream', '/v1/failing', '/v1/broken', '/v1/none']) {
    const client = new RawClient(front.port)
    await client.send(request('HEAD', path))
    await client.until(text => text.includes('\r\n\r\n'))
    await turns(5)
    t.ok(client.text.endsWith('\r\n\r\n'), path)
    const [head] = parseReplies(client.text, ['HEAD'])
    const get = await exchange(front.port, request('GET', path))
    t.equal(head?.status, get?.status, path)
    const changing = new Set(['date', 'x-request-id', 'transfer-encoding'])
    const fixed = (headers?: ReadonlyMap<string, string>) =>
      [...(headers ?? [])].filter(([name]) => !changing.has(name)).toSorted()
    t.same(fixed(head?.headers), fixed(get?.headers), path)
    client.destroy()
  }
})

t.test('every answer names its request; of an inference operation it is the generation id', async t => {
  const row = { method: 'GET', bodyLimitBytes: 0 } as const
  const front = await startFrontEnd(t, [
    {
      ...row,
      path: '/generate',
      key: 'inference',
      handler: (handled, reply) => reply.json(200, { id: handled.context.id }),
    },
    {
      ...row,
      path: '/read',
      key: 'any',
      handler: (handled, reply) => reply.json(200, { id: handled.context.id }),
    },
  ])
  const ids = new Set<string>()
  for (const [line, generates] of [
    [request('GET', '/v1/generate', AUTH), true],
    [request('GET', '/v1/generate'), true],
    [request('OPTIONS', '/v1/generate'), true],
    [request('GET', '/v1/read', AUTH), false],
    [request('GET', '/v1/none', AUTH), false],
    [request('BREW', '/v1/read'), false],
  ] as const) {
    const reply = await exchange(front.port, line)
    const id = reply?.headers.get('x-request-id') ?? ''
    t.match(id, /^gen-\d+-\w+$/, line)
    t.equal(reply?.headers.get('x-generation-id'), generates ? id : undefined, line)
    t.match(reply?.headers.get('access-control-expose-headers'), 'X-Request-Id')
    if (reply?.status === 200) t.equal(JSON.parse(reply.body).id, id)
    ids.add(id)
  }
  t.equal(ids.size, 6)
  t.same(new Set(front.lines.map(({ id }) => id)), ids, 'the log has the same')
})

t.test('what fails before the handler is told in the envelope of the dialect', async t => {
  const dialect: Dialect = {
    ...responsesDialect,
    failure: (error, { id }) => ({ type: 'error', request: id, status: error.status }),
  }
  const row = operation({
    method: 'POST',
    path: '/speak',
    bodyLimitBytes: 10,
    key: 'inference',
    handler: () => {
      throw new GatewayError('permission_denied', 'no')
    },
  })
  const front = await startFrontEnd(t, [], { operations: [{ ...row, dialect } as typeof row] })
  const json = { 'Content-Type': 'application/json' }
  for (const [line, status] of [
    [request('POST', '/v1/speak', { ...json, 'Content-Length': '2' }, '{}'), 401],
    [request('POST', '/v1/speak', { ...json, ...AUTH, 'Content-Length': '20' }), 413],
    [request('POST', '/v1/speak', { ...AUTH, 'Content-Length': '2' }, '{}'), 415],
    [request('POST', '/v1/speak', { ...json, ...AUTH, 'Content-Length': '2' }, '{"'), 400],
    [request('GET', '/v1/speak', AUTH), 405],
    [request('POST', '/v1/speak', { ...json, ...AUTH, 'Content-Length': '2' }, '{}'), 403],
  ] as const) {
    const reply = await exchange(front.port, line)
    const expected = { type: 'error', request: reply?.headers.get('x-request-id'), status }
    t.same(JSON.parse(reply?.body ?? ''), expected)
  }
  const other = await exchange(front.port, request('GET', '/v1/none'))
  t.match(JSON.parse(other?.body ?? ''), { error: { code: 404 } })
})
