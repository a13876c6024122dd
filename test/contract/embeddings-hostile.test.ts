/**
 * Providers of embeddings that are broken or hostile, and large replies that are neither: every caller gets a
 * documented end, one record is left, and nothing stays in memory.
 */
import type { ServerResponse } from 'node:http'
import t, { type Test } from 'tap'
import { startGateway, type TestGateway } from '../support/gateway.ts'
import { NO_SHEDDING } from '../support/gateway-process.ts'
import { type AskedEmbeddings, properReply, startEmbeddingsProvider } from '../support/provider.ts'
import { turns } from '../support/raw-http.ts'
import { FAULTS } from '../support/sim-faults.ts'
import { TestClock } from '../support/test-clock.ts'

const KEY = 'key-0123456789abcdef0123456789abcdef'
const SILENCE_MS = 5_000
const REQUEST_MS = 60_000

async function start(t: Test, clock?: TestClock) {
  const provider = await startEmbeddingsProvider()
  const gateway = await startGateway({
    // They are made to fail on purpose.
    routing: { breakerFailures: null },
    limits: NO_SHEDDING,
    ...(clock === undefined ? {} : { clock }),
    timeouts: { upstreamHeadersMs: SILENCE_MS, upstreamIdleMs: SILENCE_MS, requestMs: REQUEST_MS },
    providers: [
      { slug: 'acme', name: 'Acme', format: 'openai-chat', baseUrl: `${provider.url}/v1`, apiKey: KEY },
    ],
    models: [
      { id: 'acme/vectors', outputModalities: ['embeddings'], endpoints: [{ provider: 'acme' }] },
      ...Object.keys(FAULTS).map(kind => ({
        id: `faulty/${kind}`,
        outputModalities: ['embeddings'],
        endpoints: [{ provider: 'sim', upstreamModel: `fail-${kind}` }],
      })),
    ],
  })
  t.teardown(async () => {
    await gateway.close()
    provider.close()
  })
  const embed = async (body: object) => {
    const answer = await fetch(`${gateway.url}/embeddings`, {
      method: 'POST',
      headers: { authorization: `Bearer ${gateway.apiKey}`, 'content-type': 'application/json' },
      body: JSON.stringify({ model: 'acme/vectors', input: 'a', ...body }),
    })
    const text = await answer.text()
    return { status: answer.status, text, document: JSON.parse(text) as Document }
  }
  return { provider, gateway, embed }
}

interface Document {
  readonly data: readonly { readonly index: number; readonly embedding: string | readonly number[] }[]
  readonly error: { readonly message: string; readonly metadata: Record<string, unknown> }
}

async function nothingHeld({ serving }: TestGateway): Promise<void> {
  while (serving.server.openRequests > 0 || serving.server.load.bufferedBytes > 0) await turns(1)
}

/** Sends a head, and then the piece again and again as far as the reader takes it. */
const pouring =
  (head: string, piece: string, maxBytes = 100_000_000) =>
  () =>
  (response: ServerResponse): void => {
    const bytes = Buffer.from(piece)
    let sent = 0
    const more = (): void => {
      while (!response.destroyed) {
        if (sent > maxBytes) {
          response.end()
          return
        }
        sent += bytes.length
        if (!response.write(bytes)) {
          response.once('drain', more)
          return
        }
      }
    }
    response.on('error', () => undefined)
    response.writeHead(200, { 'content-type': 'application/json' })
    response.write(head)
    more()
  }

const one = (vector: string) => `{"data":[{"index":0,"embedding":${vector}}],"usage":{"prompt_tokens":1}}`

const BROKEN: Readonly<Record<string, readonly [raw: string, says: RegExp]>> = {
  nothing: ['', /not JSON/],
  page: ['<html>', /not JSON/],
  null: ['null', /not an object/],
  'a text': ['"vectors"', /not an object/],
  'a list': ['[[1,2]]', /not an object/],
  'no data': ['{}', /without vectors/],
  'data as an object': ['{"data":{"0":[1]}}', /without vectors/],
  'too few': ['{"data":[]}', /0 vectors for 1 inputs/],
  'too many': ['{"data":[{"embedding":[1]},{"embedding":[2]}]}', /2 vectors for 1 inputs/],
  'wrong index': ['{"data":[{"index":1,"embedding":[1]}]}', /do not match the inputs/],
  'negative index': ['{"data":[{"index":-1,"embedding":[1]}]}', /do not match the inputs/],
  'huge index': ['{"data":[{"index":1e300,"embedding":[1]}]}', /do not match the inputs/],
  'empty vector': [one('[]'), /not a vector/],
  'vector of null': [one('null'), /not a vector/],
  'vector of a number': [one('1'), /not a vector/],
  'vector of an object': [one('{"0":1}'), /not a vector/],
  'texts as numbers': [one('["1"]'), /not a vector/],
  NaN: [one('[1,NaN]'), /finite/],
  'infinite numbers': [one('[-1e400]'), /finite/],
  'a null among numbers': [one('[1,null]'), /finite/],
  'a vector in a vector': [one('[[1,2]]'), /not a vector/],
  'base64 of no numbers': [one('"AAAAAAA="'), /finite/],
  'base64 of NaN': [one('"AADAfw=="'), /finite/],
  'no base64': [one('"<script>"'), /finite/],
  'a cut list': ['{"data":[{"index":0,"embedding":[1,2', /not JSON/],
  'a cut text': ['{"data":[{"index":0,"embedding":"AA', /not JSON/],
  'more behind': [`${one('[1]')}{}`, /not JSON/],
  'deep brackets': ['['.repeat(200_000), /too deeply/],
  'deep objects': ['{"a":'.repeat(5_000), /too deeply/],
  'many objects': [`{"data":[${'{},'.repeat(300_000)}{}]}`, /too many elements/],
  'a long vector': [one(`[${'1,'.repeat(20_000)}1]`), /too long/],
  'a very long vector': [one(`[${'1,'.repeat(400_000)}1]`), /too long/],
  'a very long text': [one(`"${'A'.repeat(1_000_000)}"`), /too long/],
  'many vectors': [`{"data":[],"x":[${'[1],'.repeat(50_000)}1]}`, /too many vectors/],
}

t.test('a broken reply is a documented failure, with one record and nothing kept', async t => {
  const { provider, gateway, embed } = await start(t)
  for (const [name, [raw, says]] of Object.entries(BROKEN)) {
    provider.answer = () => ({ raw })
    const { status, document } = await embed({})
    t.equal(status, 502, name)
    t.match(document.error, {
      message: says,
      metadata: { provider_name: 'Acme', error_type: 'provider_unavailable' },
    })
    await nothingHeld(gateway)
  }
  const { values } = await gateway.serving.metrics.usageRecords.get()
  const records = values.reduce((sum, { value }) => sum + value, 0)
  t.equal(records, Object.keys(BROKEN).length)
  provider.answer = properReply
  t.equal((await embed({})).status, 200, 'the next one is served')
})

t.test('a reply that is not JSON is told with its status and media type, and nothing else of it', async t => {
  const { provider, embed } = await start(t)
  const long = 'x'.repeat(65)
  for (const [type, told] of [
    ['text/html; charset=utf-8; note=canary', 'content type text/html'],
    ['Application/vnd.acme+xml', 'content type Application/vnd.acme+xml'],
    [`text/${long}`, 'no usable content type'],
    ['canary <b>', 'no usable content type'],
    [null, 'no usable content type'],
  ] as const) {
    provider.answer = () => response => {
      response.writeHead(203, type === null ? {} : { 'content-type': type })
      response.end('<html>canary')
    }
    const { status, document, text } = await embed({})
    t.equal(status, 502)
    t.equal(
      document.error.message,
      `The provider sent something that is not JSON (status 203, ${told})`,
      `${type}`,
    )
    t.notMatch(text, 'canary')
  }
})

t.test('replies without end are ended', async t => {
  const { provider, gateway, embed } = await start(t)
  const cases: Readonly<Record<string, readonly [ReturnType<typeof pouring>, number]>> = {
    brackets: [pouring('', '['.repeat(65_536)), 502],
    numbers: [pouring('{"data":[{"embedding":[1', ',1'.repeat(30_000)), 502],
    digits: [pouring('{"data":[{"embedding":[1', '1'.repeat(60_000)), 502],
    vectors: [pouring('{"data":[', `{"embedding":[${'1,'.repeat(999)}1]},`), 502],
    texts: [pouring('{"data":[', '"",'.repeat(20_000)), 502],
    'a text': [pouring('{"x":"', 'a b '.repeat(16_000)), 502],
    blanks: [pouring('{"data":[', ' '.repeat(65_536)), 502],
    'blanks behind a bracket': [pouring('{"data":[', '\n'.repeat(65_536), 80_000_000), 502],
    'large vectors': [pouring('{"data":[', `"${'AAAA'.repeat(100_000)}",`), 422],
  }
  for (const [name, [answer, expected]] of Object.entries(cases)) {
    provider.answer = answer
    const { status, text } = await embed({ input: ['a', 'b'] })
    t.equal(status, expected, `${name}: ${text.slice(0, 200)}`)
    await nothingHeld(gateway)
  }
})

t.test('what a provider may do wrong over HTTP ends as for any other request', async t => {
  const { embed, gateway } = await start(t)
  const silent = new Set([
    'no-headers',
    'no-first-token',
    'stall',
    'drip',
    'slow-headers',
    'slow-first-token',
  ])
  for (const kind of Object.keys(FAULTS).filter(each => !silent.has(each))) {
    const { status, text } = await embed({ model: `faulty/${kind}` })
    // Even its proper replies are no vectors.
    t.equal(status, 502, `${kind}: ${text.slice(0, 200)}`)
    await nothingHeld(gateway)
  }
})

t.test('a provider that falls silent is not waited for beyond its limits', async t => {
  const clock = new TestClock()
  const { provider, embed } = await start(t, clock)
  for (const before of ['', '{"data":[{"index":0,"embedding":[1,']) {
    const sent = Promise.withResolvers<void>()
    provider.answer = () => response => {
      if (before === '') sent.resolve()
      else {
        response.writeHead(200, { 'content-type': 'application/json' })
        response.write(before, () => sent.resolve())
      }
    }
    const left = provider.nextLeft()
    const asking = embed({})
    await sent.promise
    await passing(clock, asking)
    const { status, document } = await asking
    t.equal(status, 524)
    t.equal(document.error.metadata['reason'], 'timeout')
    await left
  }
})

/** Lets the limit of silence pass until the request is over: the head may still be on its way. */
async function passing(clock: TestClock, asking: Promise<unknown>): Promise<void> {
  let over = false
  void asking.finally(() => {
    over = true
  })
  while (!over) {
    clock.advance(SILENCE_MS)
    await turns(20)
  }
}

t.test('a key that the provider repeats reaches nobody', async t => {
  const { provider, embed, gateway } = await start(t)
  const proper = properReply as (asked: AskedEmbeddings) => { json: unknown }
  provider.answer = asked => ({ json: { ...(proper(asked).json as object), id: KEY } })
  const { status, text } = await embed({})
  t.equal(status, 200)
  t.notMatch(text, KEY)
  provider.answer = () => ({ json: { error: { message: `the key ${KEY} is fine`, code: KEY } } })
  t.notMatch((await embed({})).text, KEY)
  provider.answer = () => ({ status: 400, json: { error: { message: `the key ${KEY} is fine` } } })
  t.notMatch((await embed({})).text, KEY)
  t.notMatch(JSON.stringify(gateway.lines), KEY)
})

t.test('fields of a reply that nobody asked for go nowhere', async t => {
  const { provider, embed } = await start(t)
  provider.answer = () => ({
    raw: '{"__proto__":{"data":1},"constructor":1,"extra":"<b>","data":[{"index":0,"embedding":[1],"text":"echo","__proto__":{}}],"usage":{"prompt_tokens":-5,"x":"y"}}',
  })
  const { status, text, document } = await embed({})
  t.equal(status, 200)
  t.same(document.data, [{ object: 'embedding', index: 0, embedding: [1] }])
  t.notMatch(text, /extra|echo|proto|"x"/)
})

t.test('vectors of several lengths, or of another one than was asked for, are no result', async t => {
  const { provider, embed } = await start(t)
  provider.answer = () => ({ json: { data: [{ embedding: [1, 2] }, { embedding: [1] }] } })
  t.match((await embed({ input: ['a', 'b'] })).document.error.message, 'vectors of different lengths')
  provider.answer = properReply
  t.equal((await embed({ dimensions: 2 })).status, 200)
  t.match((await embed({ dimensions: 3 })).document.error.message, 'vectors of 2 dimensions, not 3')
})

/** Numbers with all digits of a float32, as providers write them. */
const vectorOf = (dimensions: number, seed: number) =>
  Array.from({ length: dimensions }, (_, at) => Math.fround(Math.sin(at + seed) / 37))
const inBase64 = (vector: readonly number[]) =>
  Buffer.from(new Float32Array(vector).buffer).toString('base64')

t.test('a reply of a thousand large vectors arrives whole, in both encodings, in its order', async t => {
  const { provider, gateway, embed } = await start(t)
  const [count, dimensions] = [1_000, 768]
  const input = Array.from({ length: count }, (_, at) => `text ${at}`)
  const vectors = input.map((_, at) => vectorOf(dimensions, at))
  const places = input.map((_, at) => (at * 7) % count)
  for (const sent of ['float', 'base64']) {
    provider.answer = () => ({
      json: {
        data: places.map(index => ({
          index,
          embedding: sent === 'float' ? vectors[index] : inBase64(vectors[index] ?? []),
        })),
        usage: { prompt_tokens: 3_000, total_tokens: 3_000 },
      },
    })
    for (const encoding_format of ['float', 'base64']) {
      const { status, document } = await embed({ input, encoding_format })
      t.equal(status, 200)
      const expected = vectors.map(vector => (encoding_format === 'float' ? vector : inBase64(vector)))
      const wrong = document.data.findIndex(
        ({ index, embedding }, at) => index !== at || String(embedding) !== String(expected[at]),
      )
      t.same([document.data.length, wrong], [count, -1], `${sent} -> ${encoding_format}`)
      await nothingHeld(gateway)
    }
  }
})

t.test('a client that leaves while a large reply arrives leaves nothing', async t => {
  const { provider, gateway } = await start(t)
  const input = Array.from({ length: 1_500 }, (_, at) => `text ${at}`)
  const vector = vectorOf(1_024, 1)
  const sent = Promise.withResolvers<void>()
  provider.answer = () => response => {
    response.writeHead(200, { 'content-type': 'application/json' })
    response.end(JSON.stringify({ data: input.map((_, index) => ({ index, embedding: vector })) }), () =>
      sent.resolve(),
    )
  }
  const leave = new AbortController()
  const asking = fetch(`${gateway.url}/embeddings`, {
    method: 'POST',
    headers: { authorization: `Bearer ${gateway.apiKey}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'acme/vectors', input }),
    signal: leave.signal,
  })
  await sent.promise
  leave.abort()
  await t.rejects(asking)
  await nothingHeld(gateway)
  const { values } = await gateway.serving.metrics.usageRecords.get()
  t.equal(
    values.reduce((sum, { value }) => sum + value, 0),
    1,
  )
})
