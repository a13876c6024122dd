/** The rules of resumable streams: who may read what, for how long, and how much is kept. */
import { once } from 'node:events'
import { connect } from 'node:net'
import OpenAI from 'openai'
import t, { type Test } from 'tap'
import { loadConfig } from '../../src/process/config/config.ts'
import type { Config } from '../../src/process/config/settings.ts'
import { createTranscripts } from '../../src/process/threads/transcripts.ts'
import { SLICE_BYTES } from '../../src/storage/transcripts/frame-log.ts'
import { READERS_MAX } from '../../src/storage/transcripts/transcripts.ts'
import { startGateway, type TestGatewayOptions } from '../support/gateway.ts'
import { addOrganization, caller } from '../support/management.ts'
import { until } from '../support/patience.ts'
import { startToldProvider } from '../support/provider.ts'
import { openSocket } from '../support/response-socket-client.ts'
import { ask, counted, idOf, numberOf, type Piece, readPiece, resume, textOf } from '../support/resumable.ts'
import { TestClock } from '../support/test-clock.ts'

const MODEL = 'told/model'
const USAGE = { prompt_tokens: 10, completion_tokens: 4 }
const WINDOW_MS = 120_000

interface Terms extends TestGatewayOptions {
  readonly kept?: Partial<Config['resume']>
  readonly keptByAll?: number
}

async function start(t: Test, { kept = {}, keptByAll, ...options }: Terms = {}) {
  const provider = await startToldProvider(t)
  const clock = new TestClock()
  const config = loadConfig([], {})
  const resume = { ...config.resume, ...kept }
  const maxBufferedBytes = keptByAll ?? config.limits.maxBufferedBytes
  const store = createTranscripts(
    { ...config, resume, limits: { ...config.limits, maxBufferedBytes } },
    clock,
  )
  const gateway = await startGateway({
    clock,
    transcripts: store,
    resume,
    timeouts: { upstreamIdleMs: 3_600_000, requestMs: 3_600_000, heartbeatMs: 15_000 },
    providers: [{ slug: 'told', format: 'openai-chat', baseUrl: provider.baseUrl }] as never,
    models: [
      {
        id: MODEL,
        maxOutputTokens: 10_000_000,
        endpoints: [{ provider: 'told', pricing: { completion: '0.000001' } }],
      },
    ] as never,
    ...options,
  })
  t.teardown(() => gateway.close())
  const { port, apiKey, serving } = gateway
  const mine = { port, apiKey }
  return {
    ...gateway,
    gateway,
    provider,
    clock,
    store,
    mine,
    outcomes: async () => {
      const { values } = await serving.metrics.resumes.get()
      const counted = Object.fromEntries(values.map(({ labels, value }) => [labels.outcome, value]))
      return { completed: 0, left: 0, cut: 0, refused: 0, ...counted }
    },
    /** A stream whose client has left after the first word; the model goes on. */
    async left(word = 'one ') {
      const piece = ask({ ...mine, model: MODEL, leaveAt: JSON.stringify(word) })
      const reply = await provider.reply(provider.replies.length)
      const before = serving.server.openConnections
      reply.say({ content: word })
      const first = await piece
      await until('the end of the connection', () => serving.server.openConnections < before)
      return { reply, first, id: idOf(first), last: numberOf(first.frames.at(-1) ?? '') }
    },
  }
}

const messageOf = ({ body }: Piece) => (JSON.parse(body) as { error: { message: string } }).error.message

t.test('the model goes on for a client that left, and who reads on gets the rest live', async t => {
  const s = await start(t)
  const { reply, first, id, last } = await s.left()
  t.equal(first.headers['x-gateway-resumable'], 'true')
  reply.say({ content: 'two ' })
  let seen = ''
  const reading = resume(id, last, { ...s.mine, onText: text => (seen = text) })
  await until('what was missed', () => seen.includes('two'))
  t.notMatch(seen, '"delta":"one "')
  reply.say({ content: 'three ' })
  await until('the live rest', () => seen.includes('three'))
  const beside = resume(id, null, s.mine)
  reply.say({ content: 'four' })
  reply.finish(USAGE)
  const second = await reading
  const whole = await beside
  t.ok(second.isDone && whole.isDone)
  t.equal(second.headers['x-generation-id'], id)
  t.ok(counted(whole.frames))
  t.same([...first.frames, ...second.frames], whole.frames)
  t.equal(textOf(whole.frames), 'one two three four')
  t.same(await s.outcomes(), { completed: 2, left: 0, cut: 0, refused: 0 })

  await s.shipper.ship()
  const { data } = await caller(s.url, s.apiKey)('GET', `/generation?id=${id}`)
  t.match(
    data,
    { accounting: 'exact', tokens_completion: 4, cancelled: false },
    'the bill is the whole reply',
  )
  const { list } = await caller(s.url, s.managementKey)('GET', '/generations')
  t.equal(list.length, 1, 'reading again is no generation')
})

t.test('without a reader for a whole window the stream is left', async t => {
  const s = await start(t)
  const { reply, id, last } = await s.left()
  s.clock.advance(WINDOW_MS - 1)
  const reading = resume(id, last, { ...s.mine, leaveAt: 'two' })
  reply.say({ content: 'two ' })
  await reading
  await until('the end of the reader', () => s.serving.server.openRequests === 1)
  s.clock.advance(WINDOW_MS - 1)
  t.equal(s.store.count, 1, 'a reader has begun the window anew')
  t.equal(reply.closed, false)
  s.clock.advance(1)
  await until('the end of the request', () => {
    if (!reply.closed) reply.say({ content: 'more ' })
    return s.serving.server.openRequests === 0
  })
  t.equal(s.store.count, 0)
  t.equal(s.store.bytes, 0)
  t.equal((await resume(id, last, s.mine)).status, 404)
  t.match(await s.outcomes(), { left: 1, refused: 1 })
  await s.shipper.ship()
  t.match((await caller(s.url, s.apiKey)('GET', `/generation?id=${id}`)).data, { cancelled: true })
})

t.test('only the key that asked can read it, as long as it is valid', async t => {
  const s = await start(t)
  const { reply, id, last } = await s.left()
  reply.finish(USAGE)
  const other = await addOrganization(s.storageUrl, 'org_other')
  const foreign = await resume(id, last, { port: s.port, apiKey: other.apiKey })
  const unknown = await resume('gen-1767323045-aaaaaaaaaaaaaaaaaaaa', last, s.mine)
  t.equal(foreign.status, 404)
  t.equal(unknown.status, 404)
  t.equal(foreign.body.replaceAll(id, ''), unknown.body, 'a foreign stream is as unknown as none')
  t.equal((await resume('x', null, s.mine)).status, 404)
  t.equal((await resume(id, last, { port: s.port, apiKey: s.managementKey })).status, 403)
  t.equal((await resume(id, last, { port: s.port, apiKey: 'none' })).status, 401)
  t.equal((await resume(id, last, s.mine)).status, 200)
  const manage = caller(s.url, s.managementKey)
  const { list } = await manage('GET', '/keys')
  const mine = list.find(({ name, label }) => name === 'test' && String(label).startsWith('sk-gw-v1'))
  t.equal((await manage('DELETE', `/keys/${mine?.['hash']}`)).status, 200)
  t.equal((await resume(id, last, s.mine)).status, 401)
})

t.test('what cannot be answered says why, and what to do', async t => {
  const s = await start(t)
  const { reply, id, last } = await s.left()
  reply.finish(USAGE)
  const whole = await resume(id, null, s.mine)
  const end = numberOf(whole.frames.at(-1) ?? '')
  const get = (query: string) => readPiece(`/responses/${id}${query}`, s.mine)
  const cases: readonly [string, RegExp][] = [
    ['', /^stream: must be true: responses are not stored/],
    ['?stream=false', /^stream: must be true/],
    ['?stream=yes', /^stream: must be true or false/],
    ['?stream=true&starting_after=two', /^starting_after: must be the number of the last event/],
    ['?stream=true&starting_after=-1', /^starting_after: must be/],
    ['?stream=true&starting_after=', /^starting_after: must be/],
    ['?stream=true&starting_after=1&starting_after=2', /^starting_after: must not be given twice/],
    [`?stream=true&starting_after=${end + 1}`, new RegExp(`^starting_after: must be at most ${end}, `)],
    ['?stream=true&starting_after=999999999999999', /^starting_after: must be at most/],
  ]
  for (const [query, message] of cases) {
    const piece = await get(query)
    t.equal(piece.status, 400, query)
    t.match(messageOf(piece), message)
  }
  const nothing = await resume(id, end, s.mine)
  t.same(
    [nothing.status, nothing.frames, nothing.isDone],
    [200, [], true],
    'after the last event comes the end',
  )
  t.same((await resume(id, last, s.mine)).frames, whole.frames.slice(last + 1))
  const head = await readPiece(`/responses/${id}?stream=true`, { ...s.mine, method: 'HEAD' })
  t.same([head.status, head.body], [200, ''])
})

t.test('the header is true or false, and only for streams', async t => {
  const { port, apiKey, store } = await start(t)
  const post = (path: string, value: string, body: object) =>
    readPiece(path, { port, apiKey, headers: { 'x-gateway-resumable': value }, body })
  const body = { model: 'sim/echo', input: 'Hi', stream: true }
  const messages = { model: 'sim/echo', max_tokens: 9, messages: [{ role: 'user', content: 'Hi' }] }
  for (const value of ['1', 'yes', '', 'true, true']) {
    const piece = await post('/responses', value, body)
    t.equal(piece.status, 400, value)
    t.match(messageOf(piece), /^X-Gateway-Resumable: must be true or false/)
  }
  const whole = await post('/responses', 'true', { ...body, stream: false })
  t.equal(whole.status, 400)
  t.match(messageOf(whole), /^X-Gateway-Resumable: works only with streams/)
  for (const path of ['/chat/completions', '/messages']) {
    const piece = await post(path, 'true', messages)
    t.equal(piece.status, 400, path)
    t.match(piece.body, /X-Gateway-Resumable: works only with streams/)
  }
  const plain = await post('/responses', 'false', body)
  t.equal(plain.status, 200)
  t.equal(plain.headers['x-gateway-resumable'], undefined)
  const refused = await post('/responses', 'true', { ...body, model: 'sim/none' })
  t.equal(refused.status, 400)
  t.equal(refused.headers['x-gateway-resumable'], undefined)
  await until('the end', () => store.count === 0)
  t.equal((await post('/responses', 'TRUE', body)).headers['x-gateway-resumable'], 'true')
  t.equal(store.count, 1)
})

t.test('a stream that outgrows its key can no longer be resumed, and goes on for its client', async t => {
  const s = await start(t, { kept: { maxBytesPerKey: 65_536 } })
  let seen = ''
  const asking = ask({ ...s.mine, model: MODEL, onText: text => (seen = text) })
  const reply = await s.provider.reply(0)
  for (let n = 0; n < 40; n++) reply.say({ content: 'x'.repeat(2_000) })
  await until('more than is kept', () => seen.length > 80_000)
  reply.finish(USAGE)
  const whole = await asking
  t.ok(whole.isDone && counted(whole.frames))
  t.equal(textOf(whole.frames).length, 80_000)
  const gone = await resume(idOf(whole), 3, s.mine)
  t.equal(gone.status, 410)
  t.match(messageOf(gone), /no room to keep it/)
  t.ok(s.store.bytes < 65_536)
  s.clock.advance(WINDOW_MS)
  t.equal(s.store.bytes, 0)
})

t.test('a stream that outgrows its key ends when its client has left', async t => {
  const s = await start(t, { kept: { maxBytesPerKey: 65_536 } })
  const { reply } = await s.left()
  await until('the end of the request', () => {
    if (!reply.closed) reply.say({ content: 'x'.repeat(4_000) })
    return s.serving.server.openRequests === 0
  })
  await until('the end of the reply', () => reply.closed)
})

t.test('the oldest finished streams of a key make room, and never those of another key', async t => {
  const s = await start(t, { kept: { maxBytesPerKey: 65_536 }, keptByAll: 150_000 })
  const other = await addOrganization(s.storageUrl, 'org_other')
  const long = 'word '.repeat(3_000)
  const by = async (apiKey: string) =>
    idOf(await ask({ port: s.port, apiKey, model: 'sim/echo', input: long.slice(0, 600) }))
  const theirs = await by(other.apiKey)
  const ids: string[] = []
  for (let n = 0; n < 8; n++) ids.push(await by(s.apiKey))
  const statuses: number[] = []
  for (const id of ids) statuses.push((await resume(id, null, s.mine)).status)
  const kept = statuses.indexOf(200)
  t.ok(kept > 0, 'the first ones are gone')
  t.ok(
    statuses.slice(kept).every(status => status === 200),
    'the last ones are there',
  )
  t.equal((await resume(theirs, null, { port: s.port, apiKey: other.apiKey })).status, 200)
  t.ok(s.store.bytes <= 150_000)
})

t.test('failures are told to who reads again', async t => {
  const s = await start(t)
  const broken = await s.left()
  broken.reply.break()
  const failed = await resume(broken.id, broken.last, s.mine)
  t.match(failed.frames.at(-1), /^event: response\.failed/)
  t.ok(failed.isDone)

  // Before the first word: the client has only the id.
  const unanswered = ask({ ...s.mine, model: MODEL, leaveAt: 'PROCESSING' })
  const reply = await s.provider.reply(1)
  s.clock.advance(15_000)
  const head = await unanswered
  await until('the end of the connection', () => s.serving.server.openConnections === 1)
  reply.break()
  const error = await resume(idOf(head), null, s.mine)
  t.match(error.frames.at(-1), /^event: error\ndata: \{"type":"error","sequence_number":0,/)
  t.ok(error.isDone)

  const refused = await ask({ ...s.mine, model: 'sim/fail-status-500' })
  t.equal((await resume(idOf(refused), null, s.mine)).status, 404, 'who got a status has nothing to resume')
})

t.test('a reader waits with heartbeats where the model is silent', async t => {
  const s = await start(t)
  const { reply, id, last } = await s.left()
  let seen = ''
  const reading = resume(id, last, { ...s.mine, onText: text => (seen = text) })
  await until('the head', () => seen !== '')
  s.clock.advance(15_000)
  await until('a heartbeat', () => seen.includes(': GATEWAY PROCESSING'))
  reply.finish(USAGE)
  t.ok((await reading).isDone)
})

t.test('who reads again is not held up by the first connection, which takes nothing any more', async t => {
  const s = await start(t, {
    limits: { maxBufferedBytes: 256 * 1024 * 1024 },
    kept: { maxBytesPerKey: 67_108_864 },
  })
  const socket = connect(s.port, '127.0.0.1')
  await once(socket, 'connect')
  const text = JSON.stringify({ model: MODEL, input: 'Hi', stream: true })
  socket.write(
    `POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${s.apiKey}\r\n` +
      'X-Gateway-Resumable: true\r\nContent-Type: application/json\r\n' +
      `Content-Length: ${text.length}\r\n\r\n${text}`,
  )
  const reply = await s.provider.reply(0)
  reply.say({ content: 'one ' })
  const [head] = (await once(socket, 'data')) as [Buffer]
  socket.pause()
  const id = /x-generation-id: (\S+)/i.exec(head.toString())?.[1] ?? ''
  t.not(id, '')
  // More than the kernel takes for a client that reads nothing.
  let said = 4
  await until('the first connection to hold the stream up', () => {
    // Each character takes six bytes in a frame; a reply may have four million of them.
    reply.say({ content: '\u0001'.repeat(5_000) })
    said += 5_000
    return said * 6 - s.store.bytes > 2_000_000
  })
  reply.finish(USAGE)
  const whole = await resume(id, null, s.mine)
  t.ok(whole.isDone && counted(whole.frames))
  t.equal(textOf(whole.frames).length, said)
  socket.destroy()
})

t.test('a slow reader gets one part after the other, and is cut when it takes none', async t => {
  const s = await start(t, { kept: { maxBytesPerKey: 67_108_864 }, timeouts: { stallMs: 10_000 } })
  const asking = ask({ ...s.mine, model: MODEL })
  const reply = await s.provider.reply(0)
  // Each character takes six bytes in a frame, so each frame comes in slices, and the last ones repeat the text:
  // 60 MB in all, more than any kernel takes for a client that reads nothing.
  for (let n = 0; n < 20; n++) reply.say({ content: '\u0001'.repeat(100_000) })
  reply.finish(USAGE)
  const whole = await asking
  const socket = connect(s.port, '127.0.0.1')
  await once(socket, 'connect')
  socket.write(
    `GET /v1/responses/${idOf(whole)}?stream=true HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${s.apiKey}\r\n\r\n`,
  )
  await once(socket, 'data')
  socket.pause()
  const { load } = s.serving.server
  await until('a slow reader', () => load.bufferedBytes > 0)
  t.ok(load.bufferedBytes <= SLICE_BYTES, `${load.bufferedBytes} bytes wait: a part of one frame`)
  s.clock.advance(10_000)
  await until('the end of the reader', () => s.serving.server.openRequests === 0)
  t.match(await s.outcomes(), { left: 1 })
  socket.destroy()
})

t.test('frames of megabytes come to a reader as they were', async t => {
  const s = await start(t, { kept: { maxBytesPerKey: 67_108_864 } })
  const asking = ask({ ...s.mine, model: MODEL })
  const reply = await s.provider.reply(0)
  for (let n = 0; n < 5; n++) reply.say({ content: `${n} \n`.repeat(100_000) })
  reply.finish(USAGE)
  const whole = await asking
  t.ok(whole.frames.some(frame => frame.length > 2_000_000))
  const again = await resume(idOf(whole), null, s.mine)
  t.ok(again.isDone && counted(again.frames))
  t.equal(again.frames.join(), whole.frames.join())
})

t.test(`a stream has ${READERS_MAX} readers at once`, async t => {
  const s = await start(t)
  const { reply, id, last } = await s.left()
  const seen = Array.from({ length: READERS_MAX }, () => '')
  const readers = seen.map((_, at) =>
    resume(id, last, {
      ...s.mine,
      onText: text => (seen[at] = text),
      ...(at === 0 ? { leaveAt: 'two' } : {}),
    }),
  )
  await until('all readers', () => s.serving.server.openRequests === 1 + READERS_MAX)
  const refused = await resume(id, last, s.mine)
  t.equal(refused.status, 429)
  t.match(refused.headers, { 'retry-after': '1' })
  t.match(messageOf(refused), 'close one of them first')
  reply.say({ content: 'two ' })
  await readers[0]
  await until('the end of the first', () => s.serving.server.openRequests === READERS_MAX)
  const next = resume(id, last, s.mine)
  reply.finish(USAGE)
  t.ok((await Promise.all([...readers.slice(1), next])).every(({ isDone }) => isDone))
  t.same(await s.outcomes(), { completed: READERS_MAX, left: 1, cut: 0, refused: 1 })
})

t.test('a stream that was left ends at the deadline of its request, and says so', async t => {
  const s = await start(t, { timeouts: { requestMs: 60_000, upstreamIdleMs: 3_600_000 } })
  const { id, last } = await s.left()
  s.clock.advance(60_000)
  await until('the end of the request', () => s.serving.server.openRequests === 0)
  const rest = await resume(id, last, s.mine)
  t.match(rest.frames.at(-1), /^event: response\.failed/)
  t.ok(rest.isDone)
})

t.test('a drain lets streams end that were left, and then ends them', async t => {
  const s = await start(t)
  const { id, last, reply } = await s.left()
  const other = await s.left('other ')
  let seen = ''
  const reading = resume(other.id, other.last, { ...s.mine, onText: text => (seen = text) })
  await until('the reader', () => seen !== '' || s.serving.server.openRequests === 3)
  const finishing = resume(id, last, s.mine)
  await until('both readers', () => s.serving.server.openRequests === 4)
  const draining = s.serving.server.drain(30_000)
  reply.finish(USAGE)
  t.ok((await finishing).isDone, 'it ends in its own time')
  await until('one stream and its reader', () => s.serving.server.openRequests === 2)
  s.clock.advance(30_000)
  const cut = await reading
  t.match(cut.frames.at(-1), /^event: response\.failed/)
  t.ok(cut.isDone)
  await until('the end of all', () => {
    s.clock.advance(100)
    return s.serving.server.openRequests === 0
  })
  s.clock.advance(5_000)
  await draining
})

t.test('a response over WebSocket can be read again over HTTP', async t => {
  const s = await start(t)
  const socket = await openSocket(s.url, s.apiKey, { 'X-Gateway-Resumable': 'true' })
  socket.send(JSON.stringify({ type: 'response.create', model: MODEL, input: 'Hi' }))
  const reply = await s.provider.reply(0)
  reply.say({ content: 'one ' })
  const created = await socket.next()
  const { id } = created['response'] as { id: string }
  socket.close()
  await socket.closed
  reply.say({ content: 'two' })
  reply.finish(USAGE)
  const whole = await resume(id, null, s.mine)
  t.ok(whole.isDone && counted(whole.frames))
  t.equal(textOf(whole.frames), 'one two')
})

t.test('the official SDK reads on with retrieve', async t => {
  const s = await start(t)
  const client = new OpenAI({ baseURL: s.url, apiKey: s.apiKey, maxRetries: 0 })
  const stream = await client.responses.create(
    { model: 'sim/echo', input: 'One two three four', stream: true },
    { headers: { 'X-Gateway-Resumable': 'true' } },
  )
  let id = ''
  let last = -1
  let text = ''
  for await (const event of stream) {
    if (event.type === 'response.created') id = event.response.id
    if (event.type === 'response.output_text.delta') text += event.delta
    last = event.sequence_number
    if (text !== '') break
  }
  t.not(text, 'One two three four')
  for await (const event of await client.responses.retrieve(id, { stream: true, starting_after: last })) {
    if (event.type === 'response.output_text.delta') text += event.delta
    t.equal(event.sequence_number, ++last)
  }
  t.equal(text, 'One two three four')
})

t.test('a stream with a proof is read again with the same proof', async t => {
  const s = await start(t)
  const headers = { 'x-gateway-proof': 'true', 'x-gateway-metadata': 'enabled' }
  const first = await ask({ ...s.mine, model: 'sim/echo', headers })
  t.ok(first.isDone && counted(first.frames))
  t.match(first.frames.at(-1), /"proof":/)
  const again = await resume(idOf(first), 3, s.mine)
  t.same(again.frames, first.frames.slice(4))
})
