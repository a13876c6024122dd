/** Compressed request bodies: each coding through real sockets of both fronts, and what a hostile one may not do. */
import { brotliCompressSync, deflateRawSync, deflateSync, gzipSync, zstdCompressSync } from 'node:zlib'
import t from 'tap'
import type { GatewayError } from '../../src/base/errors.ts'
import { decode } from '../../src/server/content-coding.ts'
import { startGateway } from '../support/gateway.ts'

const CODED: readonly (readonly [string, (bytes: Buffer) => Buffer])[] = [
  ['gzip', gzipSync],
  ['deflate', deflateSync],
  ['deflate', deflateRawSync],
  ['br', brotliCompressSync],
  ['zstd', zstdCompressSync],
]

const counter = (roomBytes = Number.POSITIVE_INFINITY) => {
  const memory = {
    bytes: 0,
    count(more: number): boolean {
      memory.bytes += more
      return memory.bytes <= roomBytes
    },
  }
  return memory
}
const codeOf = async (promise: Promise<unknown>): Promise<string> => {
  try {
    await promise
    return 'none'
  } catch (thrown) {
    return (thrown as GatewayError).code
  }
}

t.test('each coding comes back as it was, and is counted', async t => {
  const text = Buffer.from(JSON.stringify({ texts: Array.from({ length: 5_000 }, (_, at) => `text ${at}`) }))
  for (const [coding, encode] of CODED) {
    const memory = counter()
    const bytes = await decode(encode(text), coding, 1_000_000, memory)
    t.ok(text.equals(bytes), coding)
    t.equal(memory.bytes, text.length)
  }
})

t.test('a bomb, a cut body and a full memory end with their error, and nothing stays counted', async t => {
  const bomb = Buffer.alloc(50_000_000)
  for (const [coding, encode] of CODED) {
    const memory = counter()
    t.equal(await codeOf(decode(encode(bomb), coding, 100_000_000, memory)), 'payload_too_large', coding)
    t.equal(memory.bytes, 0)
    const full = counter(10)
    t.equal(await codeOf(decode(encode(Buffer.alloc(60_000, 'a')), coding, 1_000_000, full)), 'overloaded')
    t.equal(full.bytes, 0)
    // This library takes the end of the data for the end of a frame of zstd; what is cut is no JSON then.
    if (coding === 'zstd') continue
    const half = encode(Buffer.from('{"a":"some text that is long enough"}')).subarray(0, 20)
    const cut = counter()
    t.equal(await codeOf(decode(half, coding, 1_000_000, cut)), 'invalid_request', `${coding}, cut`)
    t.equal(cut.bytes, 0)
  }
})

t.test('the operation limits what a compressed body becomes', async t => {
  const memory = counter()
  const bytes = gzipSync(Buffer.from('x'.repeat(2_000)))
  t.equal(await codeOf(decode(bytes, 'gzip', 1_000, memory)), 'payload_too_large')
})

t.test('a client that compresses gets its answer, and others are told which codings there are', async t => {
  const gateway = await startGateway()
  t.teardown(gateway.close)
  const body = Buffer.from(JSON.stringify({ model: 'sim/echo', input: 'Hello, compressed' }))
  const post = async (path: string, coding: string, bytes: Buffer) =>
    await fetch(`${gateway.url}${path}`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${gateway.apiKey}`,
        'content-type': 'application/json',
        'content-encoding': coding,
      },
      body: bytes,
    })
  for (const [coding, encode] of CODED) {
    const reply = await post('/responses', coding, encode(body))
    t.equal(reply.status, 200, coding)
    t.match(await reply.text(), /Hello, compressed/)
  }
  t.equal((await post('/responses', 'identity', body)).status, 200)
  const refused = await post('/responses', 'compress', body)
  t.equal(refused.status, 415)
  t.match(await refused.text(), /gzip, deflate, br, zstd/)
  t.equal((await post('/responses', 'gzip', body)).status, 400, 'what is no gzip')
})

/** A batch in the form of each of the two operations. */
const BATCHES: readonly (readonly [path: string, status: number, body: object])[] = [
  [
    '/batches',
    202,
    {
      endpoint: '/v1/responses',
      model: 'sim/echo',
      completion_window: '24h',
      requests: Array.from({ length: 300 }, (_, at) => ({
        custom_id: `c${at}`,
        body: { input: `Hello ${at}` },
      })),
    },
  ],
  [
    '/messages/batches',
    200,
    {
      requests: Array.from({ length: 300 }, (_, at) => ({
        custom_id: `c${at}`,
        params: { model: 'sim/echo', max_tokens: 9, messages: [{ role: 'user', content: `Hello ${at}` }] },
      })),
    },
  ],
]

t.test('a batch may be compressed, within the same bounds; a file may not', async t => {
  const gateway = await startGateway({ batches: { maxBytes: 4_000_000 } })
  t.teardown(gateway.close)
  const post = async (path: string, coding: string, bytes: Buffer, type = 'application/json') => {
    const reply = await fetch(`${gateway.url}${path}`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${gateway.apiKey}`,
        'content-type': type,
        'content-encoding': coding,
      },
      body: bytes,
    })
    return { status: reply.status, text: await reply.text() }
  }
  for (const [path, status, body] of BATCHES) {
    const text = Buffer.from(JSON.stringify(body))
    for (const [coding, encode] of CODED) {
      const made = await post(path, coding, encode(text))
      t.equal(made.status, status, `${path}, ${coding}: ${made.text}`)
      t.match(made.text, /"id":"(msg)?batch_/, coding)
    }
    for (const [coding, encode] of CODED) {
      const bomb = await post(path, coding, encode(Buffer.alloc(50_000_000, ' ')))
      t.equal(bomb.status, 413, `${path}, ${coding}, too long: ${bomb.text}`)
      // A limit of the ratio, and one of the operation.
      const blanks = await post(path, coding, encode(Buffer.alloc(3_000_000, ' ')))
      t.equal(blanks.status, 413, `${path}, ${coding}, too well compressed: ${blanks.text}`)
      if (coding === 'zstd') continue
      const cut = await post(path, coding, encode(text).subarray(0, 200))
      t.equal(cut.status, 400, `${path}, ${coding}, cut: ${cut.text}`)
    }
    t.equal((await post(path, 'gzip', Buffer.from('no gzip'))).status, 400)
    t.equal((await post(path, 'compress', text)).status, 415)
  }
  const form = Buffer.from(
    '--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\nx\r\n--b--',
  )
  const file = await post('/files', 'gzip', gzipSync(form), 'multipart/form-data; boundary=b')
  t.equal(file.status, 415, file.text)
})
