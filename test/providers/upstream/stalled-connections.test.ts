/**
 * Servers and proxies that take a connection and say nothing while it is made: their callers go on in time, and no
 * socket stays behind.
 */
import { createServer, type Socket } from 'node:net'
import t, { type Test } from 'tap'
import { fileId } from '../../../src/base/ids.ts'
import { bytesSource } from '../../../src/features/files/contents.ts'
import { createS3Contents } from '../../../src/features/files/s3.ts'
import {
  createPageFetcher,
  type LinkRules,
  resolverOf,
} from '../../../src/providers/upstream/pages/fetch-page.ts'
import { openServiceFetch } from '../../../src/providers/upstream/pages/service-fetch.ts'
import { ReadTurns } from '../../../src/providers/upstream/read-turns.ts'
import { listening } from '../../support/listening.ts'
import { TestClock } from '../../support/test-clock.ts'

/** A server that answers the first bytes of each connection with a text, and says no more. */
async function startStalled(t: Test, answer = '') {
  let arrived: () => void = () => undefined
  const sockets: Socket[] = []
  const closed: Promise<unknown>[] = []
  /** Connections whose first bytes have come. */
  let heard = 0
  const server = createServer(socket => {
    sockets.push(socket)
    closed.push(new Promise(done => socket.once('close', done)))
    socket.on('error', () => undefined)
    let left = answer === '' ? 1 : 2
    socket.on('data', () => {
      if (left === 2) socket.write(answer)
      if (--left === 0) {
        heard++
        arrived()
      }
    })
  })
  const { port } = await listening(server)
  t.teardown(async () => {
    for (const socket of sockets) socket.destroy()
    await new Promise(done => server.close(done))
  })
  return {
    port,
    closed,
    async until(count: number) {
      while (heard < count) await new Promise<void>(done => (arrived = done))
    },
  }
}

/** Where it stalls: the answer of the server, and whether it is a proxy. */
const STALLS = {
  'in the handshake of TLS': { answer: '', isProxy: false },
  'as a proxy that is asked for a tunnel': { answer: '', isProxy: true },
  'behind a proxy, in the handshake of TLS': { answer: 'HTTP/1.1 200 OK\r\n\r\n', isProxy: true },
} as const

for (const [where, { answer, isProxy }] of Object.entries(STALLS)) {
  const setUp = async (t: Test) => {
    const server = await startStalled(t, answer)
    const address = isProxy ? 'https://127.0.0.1:1/' : `https://127.0.0.1:${server.port}/`
    const rules: LinkRules = {
      allowHttp: true,
      allowPrivate: true,
      ...(isProxy ? { proxyOf: () => `http://127.0.0.1:${server.port}` } : {}),
    }
    return { server, address, rules }
  }

  t.test(`a page whose server stalls ${where} ends at its deadline, or with who asked`, async t => {
    const { server, address, rules } = await setUp(t)
    const clock = new TestClock()
    const fetchPage = createPageFetcher({ ...rules, clock, maxBytes: 1_000, timeoutMs: 10_000 })
    const leaving = new AbortController()
    const terms = { types: ['text/html'], key: 'one' }
    const late = t.rejects(fetchPage(address, { ...terms, signal: new AbortController().signal }), {
      message: 'the link took too long to answer',
    })
    const left = t.rejects(fetchPage(address, { ...terms, signal: leaving.signal }), { message: 'left' })
    await server.until(2)
    leaving.abort(new Error('left'))
    await left
    clock.advance(10_000)
    await late
    await Promise.all(server.closed)
    t.equal(server.closed.length, 2, 'no socket is left')
    t.equal(clock.armed, 0)
  })

  t.test(
    `a fetch whose server stalls ${where} ends with who asked, and its socket with the fetch`,
    async t => {
      const { server, address, rules } = await setUp(t)
      const signal = new AbortController().signal
      const network = await openServiceFetch(
        rules,
        resolverOf(rules),
        {
          url: new URL(address),
          headers: {},
          turns: new ReadTurns(),
          maxRequests: 9,
          maxReplyBytes: 1_000,
          maxBytes: 1_000,
        },
        signal,
      )
      const leaving = new AbortController()
      const left = t.rejects(network.fetch(address, { method: 'POST', body: '{}', signal: leaving.signal }), {
        message: 'left',
      })
      await server.until(1)
      leaving.abort(new Error('left'))
      await left
      network.close()
      await Promise.all(server.closed)
      t.equal(server.closed.length, 1)
    },
  )
}

t.test('a bucket behind a proxy that opens no tunnel is given up', async t => {
  const server = await startStalled(t)
  const clock = new TestClock()
  const contents = createS3Contents(
    {
      bucket: 'b',
      prefix: '',
      region: 'r',
      endpoint: 'https://bucket.test',
      accessKeyId: 'a',
      secretAccessKey: 's',
    },
    { clock, proxyOf: () => `http://127.0.0.1:${server.port}` },
  )
  const put = t.rejects(contents.put(fileId(), bytesSource(Buffer.from('x'))), {
    code: 'service_unavailable',
  })
  await server.until(1)
  // A second try waits for the same silence.
  for (let tries = 0; tries < 2; tries++) {
    while (clock.armed === 0) await new Promise(setImmediate)
    clock.advance(30_000)
    await new Promise(setImmediate)
  }
  await put
  t.equal(clock.armed, 0)
})
