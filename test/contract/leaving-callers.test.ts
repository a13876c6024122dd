/** What a caller pays who leaves: what the provider bills, whether its usage comes in time or has to be estimated. */
import { once } from 'node:events'
import { connect } from 'node:net'
import t, { type Test } from 'tap'
import { startGateway } from '../support/gateway.ts'
import { until } from '../support/patience.ts'
import { TestClock } from '../support/test-clock.ts'
import { startToldProvider } from '../support/told-provider.ts'

const KOREAN = '안녕하세요'.repeat(4)
const USAGE = {
  prompt_tokens: 10,
  completion_tokens: 9_980,
  completion_tokens_details: { reasoning_tokens: 8_000 },
}
const turn = () => new Promise(resolve => setImmediate(resolve))

async function start(t: Test, onAbort: 'finish' | 'cancel' | null) {
  const provider = await startToldProvider(t)
  const clock = new TestClock()
  const pricing = { prompt: '0.000001', completion: '0.000014' }
  const own = await startGateway({
    clock,
    timeouts: { upstreamIdleMs: 3_600_000, requestMs: 3_600_000 },
    providers: [
      {
        slug: 'told',
        format: 'openai-chat',
        baseUrl: provider.baseUrl,
        ...(onAbort === null ? {} : { accounting: { onAbort } }),
      },
    ],
    models: [{ id: 'told/model', maxOutputTokens: 20_000, endpoints: [{ provider: 'told', pricing }] }],
  })
  t.teardown(() => own.close())
  const { server, metrics } = own.serving
  const recorded = async () => {
    const { values } = await metrics.usageRecords.get()
    return values.reduce((sum, { value }) => sum + value, 0)
  }
  return {
    clock,
    provider,
    server,
    /** A request on a socket of its own, of which one waits for `seen` in the answer. */
    async ask(more: object, seen: string) {
      const before = server.openConnections
      const socket = connect(own.port, '127.0.0.1')
      await once(socket, 'connect')
      const text = JSON.stringify({ model: 'told/model', input: 'Hi', stream: true, ...more })
      socket.write(
        `POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${own.apiKey}\r\n` +
          `Content-Type: application/json\r\nContent-Length: ${Buffer.byteLength(text)}\r\n\r\n${text}`,
      )
      let received = ''
      const reading = (async () => {
        if (seen === '') return
        for await (const chunk of socket.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
          received += chunk.toString('latin1')
          if (received.includes(seen)) return
        }
      })()
      return {
        seen: reading,
        /** Resolves when the gateway knows. */
        async leave() {
          socket.destroy()
          await until('the end of the connection', () => server.openConnections <= before)
        },
      }
    },
    recorded,
    /** The record of the only request, once it is there. */
    async record() {
      await until('the usage record', async () => (await recorded()) > 0)
      await own.shipper.ship()
      const activity = own.lines.find(line => line['outcome'] !== undefined)
      const headers = { authorization: `Bearer ${own.apiKey}` }
      const reply = await fetch(`${own.url}/generation?id=${String(activity?.['id'])}`, { headers })
      return ((await reply.json()) as { data: Record<string, unknown> }).data
    },
  }
}

/** A caller has left after the first words of its answer. */
async function left(t: Test, more: object) {
  const s = await start(t, null)
  const asked = await s.ask(more, 'output_text.delta')
  const reply = await s.provider.reply(0)
  reply.say({ content: KOREAN })
  await asked.seen
  await asked.leave()
  return { ...s, reply }
}

t.test('who leaves after the last word is charged what the provider told a little later', async t => {
  const { reply, ...s } = await left(t, { reasoning: { effort: 'high' } })
  t.equal(s.server.openRequests, 1, 'its place is kept')
  t.equal(reply.closed, false)
  reply.finish(USAGE)
  t.match(await s.record(), {
    outcome: 'aborted',
    cancelled: true,
    accounting: 'exact',
    tokens_prompt: 10,
    tokens_completion: 9_980,
    total_cost: 0.13973,
  })
})

t.test('a provider that is silent is listened to for two seconds; then script and effort tell', async t => {
  const { reply, ...s } = await left(t, { reasoning: { effort: 'high' } })
  s.clock.advance(1_999)
  await turn()
  t.equal(await s.recorded(), 0)
  s.clock.advance(1)
  await until('the end of the reply', () => reply.closed)
  t.match(await s.record(), {
    outcome: 'aborted',
    error: 'client_closed',
    accounting: 'estimated',
    tokens_prompt: 1,
    tokens_completion: 20 + 6_553,
    native_tokens_reasoning: 6_553,
  })
})

t.test('a provider that goes on is closed at its next word', async t => {
  const { reply, ...s } = await left(t, {})
  t.equal(reply.closed, false)
  reply.say({ content: 'word' })
  await until('the end of the reply', () => reply.closed)
  t.match(await s.record(), { outcome: 'aborted', accounting: 'estimated', tokens_completion: 21 })
})

t.test('before the first word it is closed at once', async t => {
  const s = await start(t, null)
  const asked = await s.ask({ reasoning: { effort: 'high' } }, '')
  const reply = await s.provider.reply(0)
  await asked.leave()
  await until('the end of the reply', () => reply.closed)
  t.match(await s.record(), {
    outcome: 'aborted',
    accounting: 'estimated',
    tokens_prompt: 1,
    tokens_completion: 0,
  })
})

t.test('where a provider is cancelled, nobody listens', async t => {
  const s = await start(t, 'cancel')
  const asked = await s.ask({}, 'output_text.delta')
  const reply = await s.provider.reply(0)
  reply.say({ content: KOREAN })
  await asked.seen
  await asked.leave()
  await until('the end of the reply', () => reply.closed)
  t.match(await s.record(), { outcome: 'aborted', accounting: 'estimated', tokens_completion: 20 })
})
