/** A client that leaves takes the upstream with it, at every stage. */

import { once } from 'node:events'
import { connect } from 'node:net'
import t, { type Test } from 'tap'
import { startGateway } from '../support/gateway.ts'

const ROUNDS = 100
const LIMIT_MS = 250

const gateway = await startGateway()
t.teardown(() => gateway.close())

/** Sends a request on a socket of its own and waits for `seen` to show up in the answer. */
async function ask(body: Record<string, unknown>, seen: string) {
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

async function closesUpstream(t: Test, body: Record<string, unknown>, seen: string): Promise<void> {
  const delays: number[] = []
  for (let round = 0; round < ROUNDS; round++) {
    const { closedEarly, requests } = gateway.sim.state
    const socket = await ask(body, seen)
    await gateway.sim.until(state => state.requests > requests)
    const leftMs = performance.now()
    socket.destroy()
    await gateway.sim.until(state => state.closedEarly > closedEarly)
    delays.push((gateway.sim.disconnects.at(-1)?.atMs ?? Number.NaN) - leftMs)
  }
  const inTime = delays.filter(delay => delay <= LIMIT_MS).length
  const sorted = delays.toSorted((a, b) => a - b)
  t.equal(inTime, ROUNDS)
  t.comment(
    `${inTime}/${ROUNDS} upstream closes within ${LIMIT_MS} ms, median ${sorted[ROUNDS / 2]?.toFixed(1)} ms, slowest ${sorted.at(-1)?.toFixed(1)} ms`,
  )
}

t.test('in mid-stream', t =>
  closesUpstream(t, { model: 'sim/write-200-20', input: 'go', stream: true }, 'output_text.delta'),
)
t.test('before the response headers', t =>
  closesUpstream(t, { model: 'sim/fail-no-headers', input: 'go', stream: true }, ''),
)
t.test('before the first token', t =>
  closesUpstream(t, { model: 'sim/chat-fail-no-first-token', input: 'go', stream: true }, ''),
)
t.test('while waiting for a whole answer', t =>
  closesUpstream(t, { model: 'sim/messages-fail-no-headers', input: 'go' }, ''),
)

t.test('afterwards nothing is left open', async t => {
  await gateway.sim.until(state => state.openReplies === 0)
  t.equal(gateway.serving.server.openRequests, 0)
  t.equal(gateway.serving.server.openStreams, 0)
})
