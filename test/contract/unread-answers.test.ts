/** Readers who take nothing, against the whole gateway: their own key is refused, and nobody else. */
import { once } from 'node:events'
import { connect } from 'node:net'
import t from 'tap'
import { startGateway } from '../support/gateway.ts'
import { addOrganization } from '../support/management.ts'
import { until } from '../support/patience.ts'
import { startToldProvider } from '../support/provider.ts'

const SHARE_BYTES = 16 * 1024

t.test('what one reader does not take counts for its key', async t => {
  const provider = await startToldProvider(t)
  const gateway = await startGateway({
    limits: { bytesInFlightPerKey: SHARE_BYTES },
    providers: [{ slug: 'told', format: 'openai-chat', baseUrl: provider.baseUrl }] as never,
    models: [{ id: 'told/model', maxOutputTokens: 10_000_000, endpoints: [{ provider: 'told' }] }] as never,
  })
  t.teardown(() => gateway.close())
  const { url, port, apiKey, serving, storageUrl } = gateway
  const other = await addOrganization(storageUrl, 'other')
  const ask = (key: string) =>
    fetch(`${url}/responses`, {
      method: 'POST',
      headers: { Authorization: `Bearer ${key}`, 'Content-Type': 'application/json' },
      body: JSON.stringify({ model: 'sim/echo', input: 'Hi' }),
    })
  const unreadBytes = async (): Promise<number> =>
    (await serving.metrics.unreadBytes.get()).values[0]?.value ?? 0

  const reader = connect(port, '127.0.0.1')
  await once(reader, 'connect')
  const body = JSON.stringify({ model: 'told/model', input: 'Hi', stream: true })
  reader.write(
    `POST /v1/responses HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${apiKey}\r\n` +
      `Content-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
  )
  const reply = await provider.reply(0)
  reply.say({ content: 'one ' })
  await once(reader, 'data')
  reader.pause()
  await until('bytes that wait', async () => {
    if ((await unreadBytes()) > SHARE_BYTES) return true
    // Each character takes six bytes in a frame. More than any kernel takes for a reader.
    reply.say({ content: '\u0001'.repeat(5_000) })
    return false
  })
  const refused = await ask(apiKey)
  t.equal(refused.status, 429)
  t.equal(refused.headers.get('retry-after'), '1')
  t.match(await refused.json(), {
    error: {
      message: /have not read \d+ bytes of their answers/,
      metadata: { limit: 'limits.bytesInFlightPerKey' },
    },
  })
  t.equal((await ask(other.apiKey)).status, 200, 'other keys go on')
  reader.destroy()
  await until('the end of the stream', async () => (await unreadBytes()) === 0)
  t.equal((await ask(apiKey)).status, 200)
})
