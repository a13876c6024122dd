/** Requests that are sent again under their idempotency key: one run, one bill, the same answer for all of them. */
import Anthropic from '@anthropic-ai/sdk'
import { GoogleGenAI } from '@google/genai'
import OpenAI from 'openai'
import t, { type Test } from 'tap'
import { loadConfig } from '../../src/process/config/config.ts'
import type { Config } from '../../src/process/config/settings.ts'
import { createTranscripts } from '../../src/process/threads/transcripts.ts'
import { startGateway, type TestGatewayOptions } from '../support/gateway.ts'
import { addKey, caller } from '../support/management.ts'
import { until } from '../support/patience.ts'
import { startToldProvider } from '../support/provider.ts'
import { openSocket } from '../support/response-socket-client.ts'
import { idOf, type Piece, readPiece } from '../support/resumable.ts'
import { TestClock } from '../support/test-clock.ts'

const MODEL = 'told/model'
const OTHER_MODEL = 'told/other'
const USAGE = { prompt_tokens: 10, completion_tokens: 4 }
const KEY = 'order-4711/try'
const REPLAYED = 'x-gateway-replayed'

interface Terms extends TestGatewayOptions {
  readonly kept?: Partial<Config['resume']>
  readonly keptByAll?: number
}

async function start(t: Test, { kept = {}, keptByAll, ...options }: Terms = {}) {
  const provider = await startToldProvider(t)
  const clock = new TestClock()
  const config = loadConfig([], {})
  const resume = { ...config.resume, ...kept }
  const limits = { ...config.limits, maxBufferedBytes: keptByAll ?? config.limits.maxBufferedBytes }
  const store = createTranscripts({ ...config, resume, limits }, clock)
  const pricing = { completion: '0.000001' }
  const model = (id: string) => ({
    id,
    maxOutputTokens: 10_000_000,
    endpoints: [{ provider: 'told', pricing }],
  })
  const gateway = await startGateway({
    clock,
    transcripts: store,
    resume,
    timeouts: { upstreamIdleMs: 3_600_000, requestMs: 3_600_000, heartbeatMs: 15_000 },
    providers: [{ slug: 'told', format: 'openai-chat', baseUrl: provider.baseUrl }] as never,
    models: [model(MODEL), model(OTHER_MODEL)] as never,
    ...options,
  })
  t.teardown(() => gateway.close())
  const { port, apiKey, serving, shipper } = gateway
  const ask = (more: Partial<Parameters<typeof readPiece>[1]> & { readonly fields?: object } = {}) => {
    const { fields, headers, ...rest } = more
    return readPiece('/responses', {
      port,
      apiKey,
      headers: { 'idempotency-key': KEY, ...headers },
      body: { model: MODEL, input: 'Hi', ...fields },
      ...rest,
    })
  }
  return {
    ...gateway,
    provider,
    clock,
    store,
    ask,
    open: () => serving.server.openRequests,
    async generations() {
      await shipper.ship()
      return (await caller(gateway.url, gateway.managementKey)('GET', '/generations')).list
    },
    async replays() {
      const { values } = await serving.metrics.replays.get()
      const counted = Object.fromEntries(values.map(({ labels, value }) => [labels.outcome, value]))
      return { completed: 0, left: 0, cut: 0, refused: 0, ...counted }
    },
  }
}

const messageOf = ({ body }: Piece) => (JSON.parse(body) as { error: { message: string } }).error.message

t.test('a whole answer is given again as it was, for one bill', async t => {
  const s = await start(t)
  const first = s.ask()
  ;(await s.provider.reply(0)).whole('four words for you', USAGE)
  const whole = await first
  t.equal(whole.status, 200)
  t.equal(whole.headers[REPLAYED], undefined)
  for (const body of [
    { model: MODEL, input: 'Hi' },
    { model: MODEL, input: 'Hi' },
  ]) {
    const again = await s.ask({ body, headers: { 'x-stainless-retry-count': '1', 'x-request-id': 'again' } })
    t.equal(again.status, 200)
    t.equal(again.body, whole.body)
    t.equal(again.headers[REPLAYED], 'true')
    t.equal(idOf(again), idOf(whole), 'the same generation')
    t.equal(again.headers['content-type'], whole.headers['content-type'])
    t.equal(again.headers['x-request-id'], 'again', 'of the request itself')
  }
  t.equal(s.provider.replies.length, 1)
  t.equal((await s.generations()).length, 1)
  t.same(await s.replays(), { completed: 2, left: 0, cut: 0, refused: 0 })
  const lines = s.lines.filter(({ route }) => route === '/responses')
  t.same(
    lines.map(({ replayOf }) => replayOf),
    [undefined, idOf(whole), idOf(whole)],
  )
})

t.test('white space does not make another request; a member, their order and the stream mode do', async t => {
  const s = await start(t)
  const first = s.ask()
  ;(await s.provider.reply(0)).whole('once', USAGE)
  const whole = await first
  const spaced = await fetch(`${s.url}/responses`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${s.apiKey}`,
      'content-type': 'application/json; charset=utf-8',
      'idempotency-key': KEY,
    },
    body: `{\n  "model" : "${MODEL}",\t"input":"\\u0048i" }\n`,
  })
  t.equal(await spaced.text(), whole.body)
  for (const body of [
    { model: MODEL, input: 'Ho' },
    { input: 'Hi', model: MODEL },
    { model: OTHER_MODEL, input: 'Hi' },
    { model: MODEL, input: 'Hi', stream: true },
    { model: MODEL, input: 'Hi', stream: false },
  ]) {
    const other = await s.ask({ body })
    t.equal(other.status, 409, JSON.stringify(body))
    t.match(other.body, 'idempotency_key_reused')
    t.match(messageOf(other), /belongs to another request of this API key: send that request unchanged/)
    t.equal(other.headers[REPLAYED], undefined)
  }
  const elsewhere = await readPiece('/chat/completions', {
    port: s.port,
    apiKey: s.apiKey,
    headers: { 'idempotency-key': KEY },
    body: { model: MODEL, input: 'Hi' },
  })
  t.equal(elsewhere.status, 409, 'another path')
  t.equal(s.provider.replies.length, 1)
})

t.test(
  'a request to the host of a region is another one: it must not get an answer from elsewhere',
  async t => {
    const s = await start(t, { regions: { europe: ['eu.localhost'], us: [] } })
    const first = s.ask()
    ;(await s.provider.reply(0)).whole('once', USAGE)
    t.equal((await first).status, 200)
    const inRegion = await s.ask({ headers: { host: 'eu.localhost' } })
    t.equal(inRegion.status, 409)
    t.match(inRegion.body, 'idempotency_key_reused')
  },
)

t.test('requests attach to the running answer, streamed and whole', async t => {
  const s = await start(t)
  for (const stream of [true, false]) {
    const headers = { 'idempotency-key': `running ${stream}`.replace(' ', '-') }
    const number = s.provider.replies.length
    const first = s.ask({ fields: { stream }, headers })
    const reply = await s.provider.reply(number)
    const before = s.open()
    const others = [1, 2, 3].map(() => s.ask({ fields: { stream }, headers }))
    await until('the others', () => s.open() === before + 3)
    if (stream) {
      reply.say({ content: 'one ' })
      reply.say({ content: 'two' })
      reply.finish(USAGE)
    } else reply.whole('one two', USAGE)
    const whole = await first
    for (const other of await Promise.all(others)) {
      t.equal(other.status, 200)
      t.equal(other.headers[REPLAYED], 'true')
      t.same(other.frames, whole.frames)
      if (!stream) t.equal(other.body, whole.body)
      t.equal(other.isDone, whole.isDone)
      t.equal(idOf(other), idOf(whole))
    }
    t.equal(s.provider.replies.length, number + 1)
  }
  t.equal((await s.generations()).length, 2)
})

t.test('a client that left comes back to a running answer within ten seconds, and not after', async t => {
  const s = await start(t)
  const leave = async (text: string) => {
    const cut = s.ask({ fields: { stream: true }, leaveAt: text })
    const reply = await s.provider.reply(s.provider.replies.length)
    reply.say({ content: `${text} ` })
    await cut
    await until('the end of the client', () => s.serving.server.openConnections === 0)
    return reply
  }
  const reply = await leave('one')
  s.clock.advance(9_999)
  const back = s.ask({ fields: { stream: true }, leaveAt: 'two' })
  await until('the reader', () => s.open() === 2)
  reply.say({ content: 'two ' })
  t.equal((await back).headers[REPLAYED], 'true')
  await until('the end of the reader', () => s.open() === 1)
  s.clock.advance(9_999)
  t.equal(reply.closed, false, 'the time begins with the last reader that left')
  s.clock.advance(1)
  await until('the end of the run', () => {
    if (!reply.closed) reply.say({ content: 'more ' })
    return s.open() === 0
  })
  await until('the end of the call', () => reply.closed)
  const next = s.ask({ fields: { stream: true } })
  const second = await s.provider.reply(1)
  second.say({ content: 'anew' })
  second.finish(USAGE)
  const whole = await next
  t.equal(whole.headers[REPLAYED], undefined, 'what nobody waited for is a new run')
  t.match(whole.body, 'anew')
  const generations = await s.generations()
  t.same(generations.map(({ cancelled }) => cancelled).sort(), [false, true])
})

t.test('an answer whose client left before it came is finished, kept and paid for once', async t => {
  const s = await start(t)
  const gone = new AbortController()
  const first = s.respond(
    { model: MODEL, input: 'Hi' },
    { headers: { 'idempotency-key': KEY }, signal: gone.signal },
  )
  const reply = await s.provider.reply(0)
  gone.abort()
  await t.rejects(first)
  await until('the end of the client', () => s.serving.server.openConnections === 0)
  reply.whole('late', USAGE)
  await until('the end of the run', () => s.open() === 0)
  const again = await s.ask()
  t.equal(again.status, 200)
  t.match(again.body, 'late')
  t.equal(again.headers[REPLAYED], 'true')
  t.match(await s.generations(), [{ outcome: 'completed', accounting: 'exact', tokens_completion: 4 }])
})

t.test('failures that would come again are kept; others are for those who wait', async t => {
  const s = await start(t)
  for (const status of [400, 413, 422]) {
    const headers = { 'idempotency-key': `kept-${status}` }
    const number = s.provider.replies.length
    const first = s.ask({ headers })
    ;(await s.provider.reply(number)).answer({ status, message: 'No' })
    const failed = await first
    const again = await s.ask({ headers })
    t.equal(failed.status, status)
    t.same([again.status, again.body], [failed.status, failed.body])
    t.equal(again.headers[REPLAYED], 'true')
    t.equal(s.provider.replies.length, number + 1)
  }
  const invalid = {
    body: { model: MODEL, input: 'Hi', temperature: 'warm' },
    headers: { 'idempotency-key': 'bad' },
  }
  const refused = await s.ask(invalid)
  t.equal(refused.status, 400)
  const repeated = await s.ask(invalid)
  t.same([repeated.body, repeated.headers[REPLAYED]], [refused.body, 'true'])

  for (const status of [429, 500, 503]) {
    const headers = { 'idempotency-key': `lost-${status}` }
    const number = s.provider.replies.length
    const first = s.ask({ headers })
    const reply = await s.provider.reply(number)
    const before = s.open()
    const attached = s.ask({ headers })
    await until('the other', () => s.open() === before + 1)
    reply.answer({ status, message: 'No' })
    const failed = await first
    const same = await attached
    t.same([same.status, same.body, same.headers[REPLAYED]], [failed.status, failed.body, 'true'])
    t.equal(same.headers['retry-after'], failed.headers['retry-after'])
    const next = s.ask({ headers })
    ;(await s.provider.reply(number + 1)).whole('better', USAGE)
    const better = await next
    t.equal(better.status, 200)
    t.equal(better.headers[REPLAYED], undefined, `${status} is a new run`)
  }
})

t.test('a stream that broke is a new run', async t => {
  const s = await start(t)
  let seen = ''
  const first = s.ask({ fields: { stream: true }, onText: text => (seen = text) })
  const reply = await s.provider.reply(0)
  reply.say({ content: 'half' })
  await until('the half', () => seen.includes('half'))
  reply.break()
  t.match((await first).body, 'response.failed')
  const next = s.ask({ fields: { stream: true } })
  const second = await s.provider.reply(1)
  second.say({ content: 'whole' })
  second.finish(USAGE, 'length')
  const incomplete = await next
  t.match(incomplete.body, 'response.incomplete')
  const again = await s.ask({ fields: { stream: true } })
  t.same(again.frames, incomplete.frames, 'an incomplete answer is finished')
  t.equal(s.provider.replies.length, 2)
})

t.test(
  'answers are kept for their time, within the memory, the oldest go first, and running ones stay',
  async t => {
    const s = await start(t, { idempotency: { keepSeconds: 60 }, kept: { maxBytesPerKey: 65_536 } })
    const run = async (name: string, bytes: number) => {
      const number = s.provider.replies.length
      const first = s.ask({ headers: { 'idempotency-key': name } })
      ;(await s.provider.reply(number)).whole('x'.repeat(bytes), USAGE)
      return await first
    }
    const isKept = async (name: string) => {
      const number = s.provider.replies.length
      s.provider.onReply = reply => reply.whole('anew', USAGE)
      const { status, headers } = await s.ask({ headers: { 'idempotency-key': name } })
      s.provider.onReply = () => undefined
      t.equal(status, 200)
      const isReplayed = headers[REPLAYED] === 'true'
      t.equal(s.provider.replies.length, isReplayed ? number : number + 1)
      return isReplayed
    }
    await run('short', 10)
    s.clock.advance(59_999)
    t.ok(await isKept('short'))
    s.clock.advance(1)
    t.notOk(await isKept('short'))
    const running = s.ask({ headers: { 'idempotency-key': 'running' } })
    const reply = await s.provider.reply(s.provider.replies.length)
    await run('first', 20_000)
    await run('second', 20_000)
    await run('third', 20_000)
    t.ok(await isKept('third'))
    t.ok(await isKept('second'))
    reply.whole('still there', USAGE)
    const ended = await running
    t.equal((await s.ask({ headers: { 'idempotency-key': 'running' } })).body, ended.body)
    t.notOk(await isKept('first'), 'the oldest has gone')
  },
)

t.test('an answer that comes in many slices is given again as it was', async t => {
  const s = await start(t)
  const text = 'wörd €😀 '.repeat(30_000)
  for (const stream of [true, false]) {
    const headers = { 'idempotency-key': `large-${stream}` }
    const number = s.provider.replies.length
    const first = s.ask({ fields: { stream }, headers })
    const reply = await s.provider.reply(number)
    if (stream) {
      reply.say({ content: text })
      reply.finish(USAGE)
    } else reply.whole(text, USAGE)
    const whole = await first
    t.match(whole, { status: 200 })
    const again = await s.ask({ fields: { stream }, headers })
    t.equal(again.headers[REPLAYED], 'true')
    t.ok(again.body === whole.body && again.body.includes(text))
  }
})

t.test('another API key has names of its own', async t => {
  const s = await start(t)
  const first = s.ask()
  ;(await s.provider.reply(0)).whole('for me', USAGE)
  await first
  const other = await addKey(s.storageUrl)
  const foreign = s.ask({ apiKey: other, body: { model: MODEL, input: 'Another' } })
  ;(await s.provider.reply(1)).whole('for them', USAGE)
  const answer = await foreign
  t.equal(answer.status, 200)
  t.match(answer.body, 'for them')
  t.equal(answer.headers[REPLAYED], undefined)
})

t.test('a key that is no key, and one beside another promise, are refused', async t => {
  const s = await start(t)
  for (const key of ['', 'two words', 'x'.repeat(256), 'naïve']) {
    const { status, body } = await s.ask({
      headers: { 'idempotency-key': Buffer.from(key).toString('latin1') },
    })
    t.equal(status, 400, key)
    t.match(body, 'Idempotency-Key: must be 1 to 255 visible ASCII characters')
  }
  const both = await s.ask({ fields: { stream: true }, headers: { 'x-gateway-resumable': 'true' } })
  t.equal(both.status, 400)
  t.match(messageOf(both), /Idempotency-Key: does not go with X-Gateway-Resumable/)
  t.equal(s.provider.replies.length, 0)
})

t.test('an answer that nobody may keep is not kept, and the request says so', async t => {
  const s = await start(t, {
    models: [
      {
        id: MODEL,
        endpoints: [{ provider: 'told', zdr: true, trains: false, pricing: { completion: '0.000001' } }],
      },
    ] as never,
  })
  for (const provider of [{ zdr: true }, { data_collection: 'deny' }]) {
    for (const round of [1, 2]) {
      const number = s.provider.replies.length
      const asked = s.ask({ fields: { provider }, headers: { 'x-gateway-metadata': 'enabled' } })
      ;(await s.provider.reply(number)).whole('secret', USAGE)
      const { status, headers, body } = await asked
      t.equal(status, 200, `${JSON.stringify(provider)} ${round}`)
      t.equal(headers[REPLAYED], undefined)
      t.equal(headers['x-gateway-changed'], '1')
      const { gateway_metadata: metadata } = JSON.parse(body)
      t.match(metadata.pipeline, [
        { type: 'translation', data: { changes: [{ field: 'header:Idempotency-Key', action: 'dropped' }] } },
      ])
    }
  }
  t.equal(s.store.count, 0)
})

t.test('a replay needs a valid key and the rights of the day; a spent limit does not matter', async t => {
  const s = await start(t)
  const manage = caller(s.url, s.managementKey)
  const created = await manage('POST', '/keys', { name: 'poor', limit: 0.000_004 })
  const poor = String(created.document['key'])
  const { hash } = created.data as { hash: string }
  const first = s.ask({ apiKey: poor, fields: { max_output_tokens: 4 } })
  ;(await s.provider.reply(0)).whole('four words for you', USAGE)
  t.equal((await first).status, 200)
  const more = await s.ask({
    apiKey: poor,
    fields: { max_output_tokens: 4 },
    headers: { 'idempotency-key': 'another' },
  })
  t.equal(more.status, 402, 'the limit is spent')
  const again = () => s.ask({ apiKey: poor, fields: { max_output_tokens: 4 } })
  t.equal((await again()).status, 200)
  const guardrail = await manage('POST', '/guardrails', { name: 'others', allowed_models: [OTHER_MODEL] })
  t.equal(guardrail.status, 201, guardrail.text)
  const assigned = await manage('POST', `/guardrails/${guardrail.data['id']}/assignments/keys`, {
    key_hashes: [hash],
  })
  t.equal(assigned.status, 200, assigned.text)
  const forbidden = await again()
  t.equal(forbidden.status, 403)
  t.match(messageOf(forbidden), /guardrail on this API key does not allow any endpoint of told\/model/)
  t.equal((await manage('PATCH', `/keys/${hash}`, { disabled: true })).status, 200)
  t.equal((await again()).status, 401)
  t.equal(s.provider.replies.length, 1)
})

t.test('requests a minute count replays', async t => {
  const s = await start(t, { quotas: { requestsPerMinute: 2 } })
  const first = s.ask()
  ;(await s.provider.reply(0)).whole('once', USAGE)
  t.equal((await first).status, 200)
  t.equal((await s.ask()).status, 200)
  const third = await s.ask()
  t.equal(third.status, 429)
  t.equal(third.headers[REPLAYED], undefined)
})

t.test('an answer larger than the memory of a key is for its first request alone', async t => {
  const s = await start(t, { kept: { maxBytesPerKey: 65_536 } })
  const first = s.ask({ fields: { stream: true } })
  const reply = await s.provider.reply(0)
  reply.say({ content: 'x'.repeat(100_000) })
  await until(
    'no room',
    async () => (await s.ask({ fields: { stream: true }, leaveAt: 'xxx' })).status === 410,
  )
  t.match(messageOf(await s.ask({ fields: { stream: true } })), /no room to keep the answer/)
  reply.finish(USAGE)
  const whole = await first
  t.ok(whole.isDone)
  const next = s.ask({ fields: { stream: true } })
  const second = await s.provider.reply(1)
  second.say({ content: 'short' })
  second.finish(USAGE)
  t.equal((await next).headers[REPLAYED], undefined)
})

t.test('the header of a handshake is for no message', async t => {
  const s = await start(t)
  const socket = await openSocket(s.url, s.apiKey, { 'Idempotency-Key': KEY })
  for (const number of [0, 1]) {
    const asked = socket.ask({ model: MODEL, input: 'Hi' })
    const reply = await s.provider.reply(number)
    reply.say({ content: `answer ${number}` })
    reply.finish(USAGE)
    t.equal((await asked).at(-1)?.type, 'response.completed')
  }
  socket.close()
  t.equal(s.provider.replies.length, 2)
})

t.test('the official clients and all operations get the answer again', async t => {
  const gateway = await startGateway()
  t.teardown(() => gateway.close())
  const { url, apiKey, port } = gateway
  const openai = new OpenAI({ baseURL: url, apiKey, maxRetries: 0 })
  const anthropic = new Anthropic({ baseURL: url.replace(/\/v1$/, ''), apiKey, maxRetries: 0 })
  const google = new GoogleGenAI({ apiKey, httpOptions: { baseUrl: url.replace(/\/v1$/, '') } })
  const all = async (stream: AsyncIterable<unknown>) => {
    const events: unknown[] = []
    for await (const event of stream) events.push(event)
    return events
  }
  const messages = [{ role: 'user' as const, content: 'Hello there' }]
  let number = 0
  const twice = async (name: string, send: (headers: Record<string, string>) => Promise<unknown>) => {
    const headers = { 'Idempotency-Key': `sdk-${number++}` }
    const before = gateway.sim.state.requests
    const first = await send(headers)
    t.same(await send(headers), first, name)
    t.equal(gateway.sim.state.requests, before + 1, name)
  }
  for (const prefix of ['', 'chat-', 'messages-', 'gemini-']) {
    const model = `sim/${prefix}echo`
    await twice(`responses ${model}`, async headers => {
      const { _request_id: _, ...response } = await openai.responses.create(
        { model, input: 'Hello' },
        { headers },
      )
      return response
    })
    await twice(`responses stream ${model}`, async headers =>
      all(await openai.responses.create({ model, input: 'Hello', stream: true }, { headers })),
    )
    await twice(`chat ${model}`, async headers => {
      const { _request_id: _, ...rest } = await openai.chat.completions.create(
        { model, messages },
        { headers },
      )
      return rest
    })
    await twice(`chat stream ${model}`, async headers =>
      all(await openai.chat.completions.create({ model, messages, stream: true }, { headers })),
    )
    await twice(`messages ${model}`, headers =>
      anthropic.messages.create({ model, max_tokens: 100, messages }, { headers }),
    )
    await twice(`messages stream ${model}`, headers =>
      all(anthropic.messages.stream({ model, max_tokens: 100, messages }, { headers })),
    )
    const config = (headers: Record<string, string>) => ({ httpOptions: { headers } })
    await twice(`gemini ${model}`, async headers => {
      const { sdkHttpResponse: _, ...rest } = await google.models.generateContent({
        model,
        contents: 'Hello',
        config: config(headers),
      })
      return { ...rest }
    })
    await twice(`gemini stream ${model}`, async headers => {
      const chunks = await all(
        await google.models.generateContentStream({ model, contents: 'Hello', config: config(headers) }),
      )
      return chunks.map(chunk => {
        const { sdkHttpResponse: _, ...rest } = chunk as { sdkHttpResponse: unknown }
        return { ...rest }
      })
    })
  }
  await twice('embeddings', async headers => {
    const { data, model } = await openai.embeddings.create(
      { model: 'sim/embed', input: 'Hello' },
      { headers },
    )
    return { data, model }
  })
  for (const query of ['', '?alt=json']) {
    const path = `/models/sim/gemini-echo:streamGenerateContent${query}`
    const body = { contents: [{ parts: [{ text: 'Hello' }] }] }
    await twice(`gemini array ${query}`, async headers => {
      const reply = await fetch(`http://127.0.0.1:${port}/v1beta${path}`, {
        method: 'POST',
        headers: { 'x-goog-api-key': apiKey, 'content-type': 'application/json', ...headers },
        body: JSON.stringify(body),
      })
      return [reply.headers.get('content-type'), JSON.parse(await reply.text())]
    })
  }
  for (const verb of ['embedContent', 'batchEmbedContents']) {
    const content = { parts: [{ text: 'Hello' }] }
    const body =
      verb === 'embedContent' ? { content } : { requests: [{ model: 'models/sim/embed', content }] }
    await twice(verb, async headers => {
      const reply = await fetch(`http://127.0.0.1:${port}/v1beta/models/sim/embed:${verb}`, {
        method: 'POST',
        headers: { 'x-goog-api-key': apiKey, 'content-type': 'application/json', ...headers },
        body: JSON.stringify(body),
      })
      t.equal(reply.status, 200)
      return await reply.json()
    })
  }
})
