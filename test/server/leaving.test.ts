/** Answers that are complete and still leaving: what of them waits for a slow reader is counted, and let go. */
import t, { type Test } from 'tap'
import type { Handler } from '../../src/api/operation.ts'
import type { ServerOptions } from '../../src/server/server.ts'
import { parseReplies, RawClient, request, turns } from '../support/raw-http.ts'
import { TestClock } from '../support/test-clock.ts'
import { INFERENCE, startFrontEnd } from './front-end.ts'

const MIB = 1024 * 1024
const TEXT = 'é'.repeat(8 * MIB)
/** With its quotes. */
const TEXT_BYTES = 16 * MIB + 2

const handlers: Readonly<Record<string, Handler>> = {
  json: (_request, reply) => reply.json(200, TEXT),
  small: (_request, reply) => reply.json(200, {}),
  stream: (_request, reply) => {
    reply.openStream(TEXT)
    reply.endStream('the end')
  },
  last: (_request, reply) => {
    reply.openStream('begun')
    reply.endStream(TEXT)
  },
}

async function start(t: Test, overrides: Partial<ServerOptions> = {}) {
  const front = await startFrontEnd(
    t,
    Object.entries(handlers).map(([name, handler]) => ({
      method: 'GET',
      path: `/${name}`,
      bodyLimitBytes: 0,
      key: 'inference',
      handler,
    })),
    overrides,
  )
  return {
    ...front,
    /** Asks, reads nothing of the answer, and waits until it is complete. */
    async leaving(path: string, headers: Readonly<Record<string, string>> = {}): Promise<RawClient> {
      const client = new RawClient(front.port)
      t.teardown(() => client.destroy())
      client.socket.pause()
      await client.send(request('GET', `/v1/${path}`, { Authorization: INFERENCE, ...headers }))
      await front.logged(front.lines.length + 1)
      return client
    },
    async letGo(): Promise<void> {
      while (front.server.load.bufferedBytes > 0) await turns(1)
      await turns(5)
      t.equal(front.server.load.bufferedBytes, 0, 'never less than nothing')
    },
  }
}

const headers = { Authorization: INFERENCE }

for (const path of ['json', 'stream', 'last']) {
  t.test(`a long answer (${path}) counts as held until its reader has taken it`, async t => {
    const front = await start(t)
    const client = await front.leaving(path)
    t.ok(front.server.load.bufferedBytes >= 16 * MIB, `${front.server.load.bufferedBytes} bytes`)
    t.equal(front.server.openRequests, 0)
    t.equal(front.server.openStreams, 0)
    client.socket.resume()
    await front.letGo()
    await client.until(text => parseReplies(text).length === 1)
    const body = parseReplies(client.text)[0]?.body ?? ''
    t.ok(body.includes(TEXT), 'whole')
    t.ok(path !== 'stream' || body.endsWith('the end'))
    t.ok(path !== 'json' || Buffer.byteLength(body) === TEXT_BYTES)
    await client.send(request('GET', '/v1/small', headers))
    await client.untilEnd('{}')
    t.equal(client.closed, false, 'its connection serves the next request')
    t.same(front.faults, [])
  })

  t.test(`a long answer (${path}) is let go when its reader leaves`, async t => {
    const front = await start(t)
    const clients = [await front.leaving(path), await front.leaving(path)]
    t.ok(front.server.load.bufferedBytes >= 32 * MIB)
    for (const client of clients) client.reset()
    await front.letGo()
    t.equal(front.lines.length, 2, 'each is told of once')
    t.same(
      front.lines.map(line => line.outcome),
      ['completed', 'completed'],
    )
    t.same(front.faults, [])
  })

  t.test(`a long answer (${path}) is let go when the server closes`, async t => {
    const front = await start(t)
    await front.leaving(path)
    front.server.close()
    await front.letGo()
    t.same(front.faults, [])
  })
}

t.test(
  'a long answer to a client that wants its connection closed is whole, and then it is closed',
  async t => {
    const front = await start(t)
    for (const slow of [true, false]) {
      const client = await front.leaving('json', { Connection: 'close' })
      t.ok(front.server.load.bufferedBytes >= 16 * MIB)
      if (slow) await turns(50)
      client.socket.resume()
      await client.untilClosed()
      const [reply] = parseReplies(client.text)
      t.equal(reply?.headers.get('connection'), 'close')
      t.equal(reply?.headers.get('content-length'), String(TEXT_BYTES))
      t.equal(reply?.body, JSON.stringify(TEXT))
      await front.letGo()
    }
    t.equal(front.server.openConnections, 0)
    t.same(front.faults, [])
  },
)

t.test('a server that drains waits for a long answer that is still leaving', async t => {
  // However long the reader takes, the time after which it would be cut off does not come.
  const front = await start(t, { clock: new TestClock() })
  const client = await front.leaving('json', { Connection: 'close' })
  const drained = front.server.drain(1_000)
  client.socket.resume()
  await Promise.all([drained, client.untilClosed()])
  t.equal(parseReplies(client.text)[0]?.body, JSON.stringify(TEXT))
  t.equal(front.server.load.bufferedBytes, 0)
})
