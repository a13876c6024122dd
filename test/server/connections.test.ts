/** Connections over real sockets: how many one address may have, and what is told of the refused ones. */
import { connect } from 'node:net'
import t, { type Test } from 'tap'
import { Peer } from '../../src/server/connections.ts'
import type { ServerOptions } from '../../src/server/server.ts'
import { parseReplies, RawClient, request, turns } from '../support/raw-http.ts'
import { TestClock } from '../support/test-clock.ts'
import { INFERENCE, startFrontEnd } from './front-end.ts'

const AUTH = { Authorization: INFERENCE }

async function start(t: Test, overrides: Partial<ServerOptions>) {
  const notices: { message: string; fields: unknown }[] = []
  const clock = new TestClock()
  const waiting: (() => void)[] = []
  const front = await startFrontEnd(
    t,
    [
      {
        method: 'GET',
        path: '/quick',
        bodyLimitBytes: 0,
        key: 'inference',
        handler: (_, reply) => reply.json(200, {}),
      },
      {
        method: 'GET',
        path: '/wait',
        bodyLimitBytes: 0,
        key: 'inference',
        handler: async (_, reply) => {
          await new Promise<void>(resolve => waiting.push(resolve))
          reply.json(200, {})
        },
      },
    ],
    {
      clock,
      log: {
        exchange: () => undefined,
        listening: () => undefined,
        notice: (_, message, fields) => notices.push({ message, fields }),
        fault: (_, message, error) => t.fail(`${message}: ${error}`),
      },
      ...overrides,
    },
  )
  const refused = async () => {
    const { values } = await front.metrics.connectionsRefused.get()
    return {
      limit: 0,
      address: 0,
      ...Object.fromEntries(values.map(({ labels, value }) => [labels.reason, value])),
    }
  }
  return {
    ...front,
    clock,
    notices,
    waiting,
    refused,
    async settled(open: number): Promise<void> {
      while (front.server.openConnections !== open) await turns(1)
    },
    /** The status of a request on a connection of its own; 0 when it was refused. */
    async ask(headers: Record<string, string> = {}, client = new RawClient(front.port)) {
      t.teardown(() => client.destroy())
      const before = parseReplies(client.text).length
      await client.send(request('GET', '/v1/quick', { ...AUTH, ...headers }))
      while (!client.closed && parseReplies(client.text).length === before) await turns(1)
      return { status: parseReplies(client.text)[before]?.status ?? 0, client }
    },
  }
}

/** A connection of another address of this machine. */
function fromAddress(t: Test, port: number, localAddress: string): Promise<void> {
  const socket = connect({ port, host: '127.0.0.1', localAddress })
  t.teardown(() => socket.destroy())
  return new Promise(resolve => socket.once('connect', () => resolve()))
}

t.test('an address has so many connections and no more, and another one is served', async t => {
  const front = await start(t, { connectionsPerAddress: 3 })
  const idle = [1, 2, 3].map(() => new RawClient(front.port))
  for (const client of idle) t.teardown(() => client.destroy())
  await front.settled(3)
  t.equal((await front.ask()).status, 0)
  await fromAddress(t, front.port, '127.0.0.2')
  await front.settled(4)
  idle[0]?.destroy()
  await front.settled(3)
  t.equal((await front.ask()).status, 200, 'one that was closed makes room at once')
  t.same(await front.refused(), { limit: 0, address: 1 })
})

t.test('what is refused is counted, and told once in ten seconds with the address', async t => {
  const front = await start(t, { connectionsPerAddress: 1 })
  const first = new RawClient(front.port)
  t.teardown(() => first.destroy())
  await front.settled(1)
  for (let n = 0; n < 3; n++) t.equal((await front.ask()).status, 0)
  t.same(front.notices, [
    {
      message: 'connections refused: an address is at its limit',
      fields: { reason: 'address', address: '127.0.0.1', refused: 1, open: 1 },
    },
  ])
  // The client keeps its connection; the library would have closed it.
  front.clock.advance(10_000)
  t.equal((await front.ask()).status, 0)
  t.match(front.notices[1], { fields: { refused: 3 } })
  t.same(await front.refused(), { limit: 0, address: 4 })
  t.equal((await front.metrics.openConnections.get()).values[0]?.value, 1)
})

t.test('connections over the limit of the thread are told of as well', async t => {
  const front = await start(t, { maxConnections: 1 })
  const first = new RawClient(front.port)
  t.teardown(() => first.destroy())
  await front.settled(1)
  t.equal((await front.ask()).status, 0)
  t.match(front.notices, [{ fields: { reason: 'limit' } }])
  t.same(await front.refused(), { limit: 1, address: 0 })
})

t.test('a connection counts while its requests run, and once however many it has', async t => {
  const front = await start(t, { connectionsPerAddress: 2 })
  const { client } = await front.ask()
  for (let n = 0; n < 5; n++) t.equal((await front.ask({}, client)).status, 200)
  const busy = new RawClient(front.port)
  t.teardown(() => busy.destroy())
  await busy.send(request('GET', '/v1/wait', AUTH))
  while (front.waiting.length === 0) await turns(1)
  front.clock.advance(60_000)
  // The first connection is still there, and idle for so long that the library would have closed it.
  t.equal((await front.ask({ Connection: 'close' })).status, 200)
  t.equal((await front.ask()).status, 200, 'a connection that is closed with its answer does not count')
  t.equal((await front.ask()).status, 0, 'a request that runs does')
})

t.test('trusted proxies have no cap', async t => {
  for (const trustedProxies of [['127.0.0.1'], ['10.0.0.0/8', '127.0.0.0/8']]) {
    const front = await start(t, { connectionsPerAddress: 1, trustedProxies })
    for (let n = 0; n < 5; n++) t.equal((await front.ask()).status, 200)
    t.same(await front.refused(), { limit: 0, address: 0 })
  }
})

t.test('a connection without a request counts until the library has closed it at the latest', async t => {
  const clock = new TestClock()
  const peer = new Peer(clock, true)
  const connections = () => peer.connections(clock.monotonicMs())
  peer.countOpened(clock.monotonicMs())
  peer.countBegin(clock.monotonicMs())
  t.equal(connections(), 1)
  clock.advance(60_000)
  t.equal(connections(), 1, 'a request may take its time')
  peer.countEnd(false)
  t.equal(connections(), 1)
  clock.advance(12_999)
  t.equal(connections(), 1)
  clock.advance(1)
  t.equal(connections(), 0)
  peer.countBegin(clock.monotonicMs())
  peer.countEnd(true)
  t.equal(connections(), 0)
})
