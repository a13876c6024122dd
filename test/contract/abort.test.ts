/** A client that leaves takes the upstream with it, at every stage. */
import { once } from 'node:events'
import { connect } from 'node:net'
import tap, { type Test } from 'tap'
import { simModel } from '../../src/apps/simulator/rows.ts'
import { TRANSPORTS } from '../../src/protocol/provider.ts'
import { startGateway, type TestGateway } from '../support/gateway.ts'

const ROUNDS = 24
/** Of 5 ms each that our event loop saw pass: a machine that stands still meanwhile counts for one. */
const LIMIT_TICKS = 50
const TICK_MS = 5

/** Never over while a test looks. */
const ENDLESS = simModel('write-100000-20', 'openai-responses')

/** Sends a request on a socket of its own and waits for `seen` to show up in the answer. */
async function ask(gateway: TestGateway, body: Record<string, unknown>, seen: string) {
  const socket = connect(gateway.port, '127.0.0.1')
  await once(socket, 'connect')
  const text = JSON.stringify(body)
  socket.write(
    `POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${gateway.apiKey}\r\n` +
      `Content-Type: application/json\r\nContent-Length: ${Buffer.byteLength(text)}\r\n\r\n${text}`,
  )
  if (seen === '') return socket
  let received = ''
  for await (const chunk of socket.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
    received += chunk.toString('latin1')
    if (received.includes(seen)) break
  }
  return socket
}

async function closesUpstream(
  t: Test,
  gateway: TestGateway,
  body: Record<string, unknown>,
  seen: string,
): Promise<void> {
  const delays: number[] = []
  let ticks = 0
  const ticking = setInterval(() => ticks++, TICK_MS)
  t.teardown(() => clearInterval(ticking))
  for (let round = 0; round < ROUNDS; round++) {
    const { closedEarly, requests } = gateway.sim.state
    const socket = await ask(gateway, body, seen)
    await gateway.sim.until(state => state.requests > requests)
    const leftAt = ticks
    socket.destroy()
    await gateway.sim.until(state => state.closedEarly > closedEarly)
    delays.push(ticks - leftAt)
  }
  const inTime = delays.filter(delay => delay <= LIMIT_TICKS).length
  const sorted = delays.toSorted((a, b) => a - b)
  t.equal(inTime, ROUNDS)
  t.comment(
    `${inTime}/${ROUNDS} upstream closes within ${LIMIT_TICKS} ticks, median ${sorted[ROUNDS / 2]}, slowest ${sorted.at(-1)}`,
  )
}

for (const transport of TRANSPORTS) {
  tap.test(transport, async t => {
    const gateway = await startGateway({ models: [ENDLESS], transport })
    t.teardown(() => gateway.close())
    t.test('in mid-stream', t =>
      closesUpstream(t, gateway, { model: ENDLESS.id, input: 'go', stream: true }, 'output_text.delta'),
    )
    t.test('before the response headers', t =>
      closesUpstream(t, gateway, { model: 'sim/fail-no-headers', input: 'go', stream: true }, ''),
    )
    t.test('before the first token', t =>
      closesUpstream(t, gateway, { model: 'sim/chat-fail-no-first-token', input: 'go', stream: true }, ''),
    )
    t.test('while waiting for a whole answer', t =>
      closesUpstream(t, gateway, { model: 'sim/messages-fail-no-headers', input: 'go' }, ''),
    )

    t.test('afterwards nothing is left open', async t => {
      await gateway.sim.until(state => state.openReplies === 0)
      t.equal(gateway.serving.server.openRequests, 0)
      t.equal(gateway.serving.server.openStreams, 0)
    })
  })
}
