import t, { type Test } from 'tap'
import type { Listing } from '../../src/api/models/models.ts'
import { GatewayError } from '../../src/base/errors.ts'
import { createMetrics } from '../../src/base/metrics/metrics.ts'
import type { ClientRequest } from '../../src/exchange/exchange.ts'
import type { Outcome, Sink } from '../../src/pipeline/answer/sink.ts'
import type { Gateway } from '../../src/pipeline/respond.ts'
import type { StreamEvent } from '../../src/protocol/events.ts'
import type { GatewayMetadata, ResponseResource } from '../../src/protocol/response.ts'
import type { ServerOptions } from '../../src/server/server.ts'
import { INFERENCE, MANAGEMENT, startFrontEnd } from '../server/front-end.ts'
import { allOperations } from '../support/operations.ts'
import { exchange, parseReplies, RawClient, request, turns } from '../support/raw-http.ts'
import { TestClock } from '../support/test-clock.ts'

const LISTING: Listing = {
  models: query => ({
    json: JSON.stringify({ data: [{ id: 'acme/fast-1' }], asked: [...query] }),
    etag: null,
  }),
  count: () => ({}),
  model: () => null,
  inGoogleShape: () => ({ models: [] }),
  googleModel: () => null,
  zeroRetention: () => ({ json: '{}', etag: null }),
  endpoints: id => (id === 'acme/fast-1:free' ? { data: { id } } : null),
  providers: () => ({ data: [{ slug: 'acme' }] }),
}
const HEARTBEAT_MS = 15_000
const STALL_MS = 10_000

type Script = (call: ClientRequest, sink: Sink) => Outcome | Promise<Outcome>

/** The front end over a pipeline that does as it is told. */
async function start(t: Test, script: Script, overrides: Partial<ServerOptions> = {}) {
  const clock = new TestClock()
  const metrics = createMetrics()
  const calls: ClientRequest[] = []
  const gateway: Gateway = {
    async respond(call, sink) {
      calls.push(call)
      return script(call, sink)
    },
    answerEmpty() {
      throw new Error('not asked for')
    },
    embed: () => Promise.reject(new Error('not asked for')),
    count: () => Promise.reject(new Error('not asked for')),
    permits: () => Promise.reject(new Error('not asked for')),
  }
  const operations = await allOperations(t, {
    gateway,
    listing: LISTING,
    stream: { heartbeatMs: HEARTBEAT_MS, stallMs: STALL_MS, clock, metrics },
    clock,
  })
  const front = await startFrontEnd(t, [], { operations, clock, metrics, ...overrides })
  return { ...front, clock, calls }
}

function ask(fields: Record<string, unknown> = {}, headers: Record<string, string> = {}): string {
  const body = JSON.stringify({ model: 'acme/fast-1', input: 'Hello', ...fields })
  const length = { 'Content-Length': String(Buffer.byteLength(body)) }
  return request(
    'POST',
    '/v1/responses',
    { Authorization: INFERENCE, 'Content-Type': 'application/json', ...length, ...headers },
    body,
  )
}

/** A client that has asked and whose request has reached the pipeline. */
async function connect(
  front: { port: number; calls: readonly ClientRequest[] },
  bytes = ask({ stream: true }),
): Promise<RawClient> {
  const before = front.calls.length
  const client = new RawClient(front.port)
  await client.send(bytes)
  while (front.calls.length === before && !client.closed) await turns(1)
  return client
}

function delta(number: number, text = `token ${number}`): StreamEvent {
  return {
    type: 'response.output_text.delta',
    sequence_number: number,
    item_id: 'msg_1',
    output_index: 0,
    content_index: 0,
    delta: text,
    logprobs: [],
  }
}

function completed(number: number, id = 'gen-1'): StreamEvent {
  return {
    type: 'response.completed',
    sequence_number: number,
    response: { id, status: 'completed' } as ResponseResource,
  }
}

/** What a reader of event streams makes of a body: data by event, comments. */
function readStream(body: string): { events: { event: string; data: string }[]; comments: string[] } {
  const events: { event: string; data: string }[] = []
  const comments: string[] = []
  let [event, data] = ['', '']
  for (const line of body.split('\n')) {
    if (line === '') {
      if (data !== '') events.push({ event, data })
      event = ''
      data = ''
    } else if (line.startsWith(':')) comments.push(line)
    else if (line.startsWith('event: ')) event = line.slice(7)
    else if (line.startsWith('data: ')) data += line.slice(6)
    else throw new Error(`not a line of an event stream: ${line}`)
  }
  return { events, comments }
}

/** A promise and the way to keep it. */
function signal<Value = void>() {
  return Promise.withResolvers<Value>()
}

const METADATA = { strategy: 'direct' } as GatewayMetadata

t.test('one JSON document', async t => {
  t.test('is the final object of the exchange', async t => {
    const front = await start(t, (call, sink) => {
      t.equal(sink.live, false)
      sink.write(delta(0))
      sink.write(completed(1, call.context.id))
      sink.end()
      return {
        answered: true,
        summary: { model: 'acme/fast-1', provider: 'acme', inputTokens: 3, outputTokens: 4, attempts: 1 },
      }
    })
    const reply = await exchange(front.port, ask())
    t.equal(reply?.status, 200)
    t.equal(reply?.headers.get('content-type'), 'application/json')
    const document = JSON.parse(reply?.body ?? '')
    t.equal(document.id, reply?.headers.get('x-generation-id'))
    await front.logged(1)
    t.match(front.lines[0], {
      id: document.id,
      route: '/responses',
      status: 200,
      outcome: 'completed',
      model: 'acme/fast-1',
      provider: 'acme',
      inputTokens: 3,
    })
  })

  t.test('a refusal is the envelope, with routing metadata only when asked for', async t => {
    const error = new GatewayError('rate_limit_exceeded', 'busy', { retryAfterSeconds: 3 })
    const front = await start(t, () => ({ answered: false, error, metadata: METADATA }))
    for (const stream of [false, true]) {
      const plain = await exchange(front.port, ask({ stream }))
      t.equal(plain?.status, 429)
      t.equal(plain?.headers.get('retry-after'), '3')
      t.match(plain?.headers.get('x-generation-id'), /^gen-/)
      t.notOk('gateway_metadata' in JSON.parse(plain?.body ?? ''))
      const told = await exchange(front.port, ask({ stream }, { 'X-Gateway-Metadata': 'enabled' }))
      t.same(JSON.parse(told?.body ?? '').gateway_metadata, METADATA)
    }
    t.equal(front.server.openStreams, 0)
    t.equal(front.clock.armed, 0)
  })

  t.test('an exchange that ends without its object is our fault', async t => {
    const front = await start(t, (_call, sink) => {
      sink.end()
      return { answered: true }
    })
    t.equal((await exchange(front.port, ask()))?.status, 500)
  })
})

t.test('what the pipeline is told', async t => {
  const front = await start(t, (_call, sink) => {
    sink.write(completed(0))
    return { answered: true }
  })
  const called = async (fields: Record<string, unknown>, headers: Record<string, string>) => {
    t.equal((await exchange(front.port, ask(fields, headers)))?.status, 200)
    return front.calls.at(-1)
  }

  t.test('who is asking', async t => {
    t.same((await called({}, {}))?.caller, {
      keyHash: 'a'.repeat(64),
      organizationId: 'org_default',
      rates: null,
      loops: null,
      caching: null,
      workspaceId: 'ws_default',
      memberId: null,
      limit: null,
    })
  })

  t.test('whether routing metadata is wanted', async t => {
    for (const name of ['X-Gateway-Metadata', 'x-gateway-experimental-metadata', 'X-OpenRouter-Metadata']) {
      t.equal((await called({}, { [name]: 'enabled' }))?.withMetadata, true, name)
      t.equal((await called({}, { [name]: 'ENABLED' }))?.withMetadata, true, name)
      for (const value of ['disabled', '', 'yes', 'enabled, enabled'])
        t.equal((await called({}, { [name]: value }))?.withMetadata, false)
    }
    t.equal((await called({}, {}))?.withMetadata, false)
    t.equal(
      (await called({}, { 'X-Gateway-Metadata': 'disabled', 'X-OpenRouter-Metadata': 'enabled' }))
        ?.withMetadata,
      false,
    )
  })

  t.test('the session of the header, unless the body names one', async t => {
    t.equal((await called({}, { 'X-Session-Id': 's1' }))?.request.session_id, 's1')
    t.equal((await called({ session_id: 's2' }, { 'X-Session-Id': 's1' }))?.request.session_id, 's2')
    t.equal((await called({}, {}))?.request.session_id, undefined)
    t.equal((await exchange(front.port, ask({}, { 'X-Session-Id': 's'.repeat(257) })))?.status, 400)
  })

  t.test('nothing, when the request is none', async t => {
    const before = front.calls.length
    const refusals: readonly (readonly [string, number])[] = [
      [ask({ input: 5 }), 400],
      [ask({ previous_response_id: 'x' }), 400],
      [ask({ stream: 'yes' }), 400],
      [ask({}, { Authorization: MANAGEMENT }), 403],
      [ask({}, { Authorization: 'Bearer x' }), 401],
    ]
    for (const [bytes, status] of refusals) t.equal((await exchange(front.port, bytes))?.status, status)
    t.equal(front.calls.length, before)
  })
})

t.test('an event stream', async t => {
  t.test('has its frames, its end and its headers', async t => {
    const front = await start(t, (_call, sink) => {
      t.equal(sink.live, true)
      sink.write(delta(0, 'a\r\nevent: forged\n\ndata: \u2028ü\u{1f600}'))
      sink.write(completed(1))
      sink.end()
      return { answered: true }
    })
    const reply = await exchange(front.port, ask({ stream: true }))
    t.equal(reply?.status, 200)
    t.equal(reply?.headers.get('content-type'), 'text/event-stream; charset=utf-8')
    t.equal(reply?.headers.get('cache-control'), 'no-cache, no-transform')
    t.equal(reply?.headers.get('x-accel-buffering'), 'no')
    t.match(reply?.headers.get('x-generation-id'), /^gen-/)
    t.equal(new Set(reply?.headerNames).size, reply?.headerNames.length)
    const { events } = readStream(reply?.body ?? '')
    t.same(
      events.map(({ event }) => event),
      ['response.output_text.delta', 'response.completed', ''],
    )
    t.equal(JSON.parse(events[0]?.data ?? '').delta, 'a\r\nevent: forged\n\ndata: \u2028ü\u{1f600}')
    t.equal(events[2]?.data, '[DONE]')
    await front.logged(1)
    t.match(front.lines[0], { status: 200, outcome: 'completed', route: '/responses' })
    t.equal((await front.metrics.streamChunks.get()).values[0]?.value, 2)
    t.ok(((await front.metrics.streamBytes.get()).values[0]?.value ?? 0) > 200)
    t.equal((await front.metrics.openStreams.get()).values[0]?.value, 0)
    t.equal(front.clock.armed, 0)
  })

  for (const chunkFlush of [false, true]) {
    const name = chunkFlush ? 'line end of its chunk included' : 'and nothing behind it'
    t.test(`shows each event, ${name}, before the next is written`, async t => {
      const sinks = signal<Sink>()
      const over = signal<Outcome>()
      const script: Script = (_call, sink) => {
        sinks.resolve(sink)
        return over.promise
      }
      const front = await start(t, script, { chunkFlush })
      const client = await connect(front)
      const sink = await sinks.promise
      for (let number = 0; number < 5; number++) {
        sink.write(delta(number))
        const end = chunkFlush ? '\n\n\r\n3\r\n:\n\n' : '}\n\n'
        await client.until(text => text.includes(`"sequence_number":${number},`) && text.endsWith(end))
        t.equal(front.server.openStreams, 1)
      }
      sink.end()
      over.resolve({ answered: true })
      await client.until(text => parseReplies(text).length === 1)
      t.equal(front.server.openStreams, 0)
      client.destroy()
    })
  }

  t.test('is kept alive by comments when nothing is said, and only then', async t => {
    const sinks = signal<Sink>()
    const over = signal<Outcome>()
    const front = await start(t, (_call, sink) => {
      sinks.resolve(sink)
      return over.promise
    })
    const client = await connect(front)
    const sink = await sinks.promise
    const comments = () => client.text.split(': GATEWAY PROCESSING\n\n').length - 1
    front.clock.advance(HEARTBEAT_MS - 1)
    await turns(5)
    t.equal(client.text, '')
    front.clock.advance(1)
    await client.until(() => comments() === 1)
    t.match(client.text, /^HTTP\/1\.1 200 OK/)
    front.clock.advance(HEARTBEAT_MS)
    await client.until(() => comments() === 2)
    front.clock.advance(10_000)
    sink.write(delta(0))
    front.clock.advance(HEARTBEAT_MS - 1)
    await turns(5)
    t.equal(comments(), 2, 'an event puts the next comment off')
    front.clock.advance(1)
    await client.until(() => comments() === 3)
    sink.end()
    over.resolve({ answered: true })
    await client.until(text => parseReplies(text).length === 1)
    t.equal(readStream(parseReplies(client.text)[0]?.body ?? '').comments.length, 3)
    client.destroy()
    await front.logged(1)
    t.equal(front.clock.armed, 0)
    t.equal((await front.metrics.streamChunks.get()).values[0]?.value, 1, 'comments are no events')
  })

  t.test('tells a failure in the stream once a comment has left', async t => {
    for (const [error, message] of [
      [new GatewayError('upstream_timeout', 'too slow'), 'too slow'],
      [new GatewayError('internal', 'a secret'), 'Internal Server Error'],
    ] as const) {
      const over = signal<Outcome>()
      const front = await start(t, () => over.promise)
      const client = await connect(front)
      front.clock.advance(HEARTBEAT_MS)
      over.resolve({ answered: false, error, metadata: null })
      await client.until(text => parseReplies(text).length === 1)
      const [reply] = parseReplies(client.text)
      t.equal(reply?.status, 200)
      const { events } = readStream(reply?.body ?? '')
      t.same(JSON.parse(events[0]?.data ?? ''), {
        type: 'error',
        sequence_number: 0,
        code: error.errorType,
        message,
        param: null,
      })
      t.equal(events[0]?.event, 'error')
      t.equal(events[1]?.data, '[DONE]')
      await front.logged(1)
      t.match(front.lines[0], { status: 200, outcome: 'failed', error: error.code })
      client.destroy()
    }
  })

  t.test('stops for a reader that is slow, and goes on when it reads', async t => {
    const TEXT = 'x'.repeat(64 * 1024)
    const stalled = signal()
    let [sent, stops, resumed] = [0, 0, 0]
    const front = await start(t, async (_call, sink) => {
      const TOTAL = 400
      await new Promise<void>(resolve => {
        const pump = (): void => {
          while (sent < TOTAL) {
            if (!sink.write(delta(sent++, TEXT))) {
              stops++
              stalled.resolve()
              return
            }
          }
          resolve()
        }
        sink.onDrain(() => {
          resumed++
          pump()
        })
        pump()
      })
      sink.write(completed(sent))
      sink.end()
      return { answered: true }
    })
    const client = new RawClient(front.port)
    client.socket.pause()
    await client.send(ask({ stream: true }))
    await stalled.promise
    // The kernel may move what waits into the buffers of the other end, and so take some more.
    let atStall: number
    do {
      atStall = sent
      await turns(20)
    } while (sent !== atStall)
    t.ok(atStall < 400, `stopped after ${atStall} events`)
    t.equal(resumed, stops - 1, 'nothing goes on before the reader reads')
    client.socket.resume()
    await client.untilEnd('\r\n0\r\n\r\n')
    const { events } = readStream(parseReplies(client.text)[0]?.body ?? '')
    t.equal(events.length, 402)
    t.ok(events.slice(0, 400).every(({ data }, index) => JSON.parse(data).sequence_number === index))
    t.equal(sent, 400)
    t.ok(resumed >= 1 && resumed <= stops + 1, `stopped ${stops} times, resumed ${resumed} times`)
    t.same(front.faults, [])
    client.destroy()
  })

  t.test('sends what waits for a slow reader without waiting for the next event', async t => {
    const sinks = signal<Sink>()
    const over = signal<Outcome>()
    const front = await start(t, (_call, sink) => {
      sinks.resolve(sink)
      return over.promise
    })
    const client = new RawClient(front.port)
    client.socket.pause()
    await client.send(ask({ stream: true }))
    const sink = await sinks.promise
    let number = 0
    while (sink.write(delta(number, 'y'.repeat(64 * 1024)))) number++
    const drained = signal()
    sink.onDrain(drained.resolve)
    client.socket.resume()
    await drained.promise
    await client.untilEnd('\r\n:\n\n')
    t.match(
      client.text.slice(-70_000),
      `"sequence_number":${number},`,
      'the last event came while all was quiet',
    )
    sink.end()
    over.resolve({ answered: true })
    await client.untilEnd('\r\n0\r\n\r\n')
    client.destroy()
  })

  t.test('drops a reader that takes nothing for too long', async t => {
    const stalled = signal()
    const front = await start(t, async (call, sink) => {
      let number = 0
      while (sink.write(delta(number, 'z'.repeat(64 * 1024)))) number++
      stalled.resolve()
      await new Promise<void>(resolve => call.context.signal.addEventListener('abort', () => resolve()))
      return { answered: true }
    })
    const client = new RawClient(front.port)
    client.socket.pause()
    await client.send(ask({ stream: true }))
    await stalled.promise
    front.clock.advance(STALL_MS - 1)
    t.equal(front.server.openStreams, 1)
    t.equal(front.calls[0]?.context.signal.aborted, false, 'nor is it sent comments')
    front.clock.advance(1)
    t.equal(front.calls[0]?.context.signal.aborted, true)
    t.equal(front.server.openStreams, 0)
    await front.logged(1)
    t.match(front.lines[0], { outcome: 'aborted', status: 499 })
    t.equal(front.clock.armed, 0)
    client.destroy()
  })

  t.test('drops a reader when a pipeline does not stop for it', async t => {
    const front = await start(t, async (call, sink) => {
      for (let number = 0; number < 2000 && !call.context.signal.aborted; number++) {
        sink.write(delta(number, 'w'.repeat(64 * 1024)))
        if (number % 50 === 0) await turns(1)
      }
      t.equal(call.context.signal.aborted, true)
      return { answered: true }
    })
    const client = new RawClient(front.port)
    client.socket.pause()
    await client.send(ask({ stream: true }))
    await front.logged(1)
    t.equal(front.lines[0]?.outcome, 'aborted')
    client.destroy()
  })

  t.test('breaks off where the pipeline fails against all rules, and keeps no timer', async t => {
    for (const before of [0, 1]) {
      const front = await start(t, async (_call, sink) => {
        if (before === 1) sink.write(delta(0))
        await turns(1)
        throw new Error('never rejects')
      })
      const client = new RawClient(front.port)
      await client.send(ask({ stream: true }))
      await front.logged(1)
      if (before === 0) await client.until(text => parseReplies(text).length === 1)
      else await client.untilClosed()
      t.match(client.text, before === 0 ? /^HTTP\/1.1 500 / : /^HTTP\/1.1 200 .*"token 0"/s)
      t.notMatch(client.text, /\r\n0\r\n\r\n$/, 'it has no proper end')
      t.equal(front.clock.armed, 0)
      t.equal(front.faults.length, 1)
      client.destroy()
    }
  })

  t.test('ends the work when the client leaves', async t => {
    const CLIENTS = 50
    const front = await start(t, async (call, sink) => {
      sink.write(delta(0))
      await new Promise<void>(resolve => call.context.signal.addEventListener('abort', () => resolve()))
      t.equal(sink.write(delta(1)), true, 'what is written to nobody is no back-pressure')
      sink.end()
      return { answered: true }
    })
    const clients = Array.from({ length: CLIENTS }, () => new RawClient(front.port))
    for (const client of clients) await client.send(ask({ stream: true }))
    for (const client of clients) await client.until(text => text.includes('token 0'))
    t.equal(front.server.openStreams, CLIENTS)
    for (const [index, client] of clients.entries()) {
      if (index % 3 === 0) client.socket.end()
      else if (index % 3 === 1) client.destroy()
      else client.reset()
    }
    await front.logged(CLIENTS)
    t.ok(front.calls.every(call => (call.context.signal.reason as GatewayError).code === 'client_closed'))
    t.equal(front.server.openStreams, 0)
    t.equal((await front.metrics.openStreams.get()).values[0]?.value, 0)
    t.equal(front.server.openRequests, 0)
    t.equal(front.clock.armed, 0)
    t.same(front.faults, [])
  })

  t.test('after a chunked request takes nothing more from its connection', async t => {
    const front = await start(t, (_call, sink) => {
      sink.write(completed(0))
      sink.end()
      return { answered: true }
    })
    const body = JSON.stringify({ model: 'acme/fast-1', input: 'Hello', stream: true })
    const head = request('POST', '/v1/responses', {
      Authorization: INFERENCE,
      'Content-Type': 'application/json',
      'Transfer-Encoding': 'chunked',
    })
    const client = new RawClient(front.port)
    await client.send(`${head}${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`)
    await client.until(text => parseReplies(text).length === 1)
    const [reply] = parseReplies(client.text)
    t.equal(reply?.headers.get('connection'), 'close')
    t.equal(readStream(reply?.body ?? '').events.at(-1)?.data, '[DONE]')
    await client.send(ask())
    await turns(20)
    t.equal(front.calls.length, 1)
    t.equal(parseReplies(client.text).length, 1)
    client.destroy()
  })

  t.test('is complete for a client that wants its connection closed', async t => {
    const front = await start(t, (_call, sink) => {
      sink.write(completed(0))
      sink.end()
      return { answered: true }
    })
    const client = await connect(front, ask({ stream: true }, { Connection: 'close' }))
    await client.untilClosed()
    t.equal(readStream(parseReplies(client.text)[0]?.body ?? '').events.at(-1)?.data, '[DONE]')
  })
})

t.test('what can be asked for', async t => {
  const front = await start(t, () => ({ answered: true }))
  const get = async (path: string, key = INFERENCE) => {
    const reply = await exchange(front.port, request('GET', path, { Authorization: key }))
    return { status: reply?.status, document: JSON.parse(reply?.body ?? '') }
  }
  for (const key of [INFERENCE, MANAGEMENT]) {
    t.same(await get('/v1/models?sort=price', key), {
      status: 200,
      document: { data: [{ id: 'acme/fast-1' }], asked: [['sort', 'price']] },
    })
    t.equal((await get('/api/v1/providers', key)).document.data[0].slug, 'acme')
  }
  t.same(await get('/v1/models/acme/fast-1:free/endpoints'), {
    status: 200,
    document: { data: { id: 'acme/fast-1:free' } },
  })
  t.equal((await get('/v1/models/acme/none/endpoints')).status, 404)
  t.equal((await get('/v1/models', 'Bearer x')).status, 401)
})
