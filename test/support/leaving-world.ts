/** Callers who leave while a provider is at work. */
import { once } from 'node:events'
import { connect } from 'node:net'
import type { Test } from 'tap'
import { startGateway } from './gateway.ts'
import { until } from './patience.ts'
import { startToldProvider } from './provider.ts'
import { TestClock } from './test-clock.ts'

export const turn = () => new Promise(resolve => setImmediate(resolve))

/** A provider that the test plays, a gateway whose clock the test moves, and callers who may leave. */
export async function startLeaving(t: Test, onAbort: 'finish' | 'cancel' | 'drain' | null, row: object = {}) {
  const provider = await startToldProvider(t)
  const clock = new TestClock()
  const pricing = { prompt: '0.000001', completion: '0.000014' }
  const own = await startGateway({
    clock,
    timeouts: { upstreamHeadersMs: 3_600_000, upstreamIdleMs: 3_600_000, requestMs: 3_600_000 },
    providers: [
      {
        slug: 'told',
        format: 'openai-chat',
        baseUrl: provider.baseUrl,
        ...(onAbort === null ? {} : { accounting: { onAbort } }),
      },
    ],
    models: [
      { id: 'told/model', maxOutputTokens: 20_000, endpoints: [{ provider: 'told', pricing, ...row }] },
    ],
  })
  t.teardown(() => own.close())
  const { server, metrics } = own.serving
  const recorded = async () => {
    const { values } = await metrics.usageRecords.get()
    return values.reduce((sum, { value }) => sum + value, 0)
  }
  return {
    gateway: own,
    clock,
    provider,
    server,
    /** A request on a socket of its own, of which one waits for `seen` in the answer. */
    async ask(more: object, seen: string, path = '/v1/responses', key = own.apiKey) {
      const before = server.openConnections
      const socket = connect(own.port, '127.0.0.1')
      await once(socket, 'connect')
      const usual = path === '/v1/responses' ? { model: 'told/model', input: 'Hi', stream: true } : {}
      const text = JSON.stringify({ ...usual, ...more })
      socket.write(
        `POST ${path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${key}\r\n` +
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
    /** The output tokens of all requests. */
    async outputTokens() {
      const { values } = await metrics.tokens.get()
      return values.reduce((sum, { labels, value }) => (labels.direction === 'output' ? sum + value : sum), 0)
    },
    /** The record of the only request, once it is there. */
    async record(key = own.apiKey) {
      await until('the usage record', async () => (await recorded()) > 0)
      await own.shipper.ship()
      const activity = own.lines.findLast(line => line['outcome'] !== undefined)
      const headers = { authorization: `Bearer ${key}` }
      const reply = await fetch(`${own.url}/generation?id=${String(activity?.['id'])}`, { headers })
      return ((await reply.json()) as { data: Record<string, unknown> }).data
    },
  }
}
