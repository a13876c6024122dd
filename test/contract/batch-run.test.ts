/** Batches over HTTP, run by the batch thread of the product: from the request to the results. */
import t from 'tap'
import { BatchClient, newDatabaseUrl, startLineProvider } from '../support/batch-client.ts'
import { startGatewayProcess } from '../support/gateway-process.ts'
import { caller } from '../support/management.ts'
import type { LineReplied } from '../support/provider.ts'
import { eventually } from '../support/stream-probe.ts'

const PATIENCE_MS = 60_000

t.test('a batch that was accepted is run, and its results and sums are there', async t => {
  const { provider, settings } = await startLineProvider(t, text => (text === 'bad' ? { status: 400 } : {}))
  const gateway = await startGatewayProcess(t, settings)
  const client = new BatchClient(gateway.url, gateway.apiKey)
  const { id, status } = await client.create(['a', 'bad', 'c'])
  t.equal(status, 'validating')
  const batch = await client.ended(id)
  t.match(batch, {
    status: 'completed',
    request_counts: { total: 3, completed: 2, failed: 1 },
    usage: { cost: 0.000034 },
    error: null,
    results: [
      {
        custom_id: 'line-0',
        response: { status_code: 200, body: { choices: [{ message: { content: 'a' } }] } },
        error: null,
      },
      { custom_id: 'line-1', response: null, error: { error_type: 'invalid_request' } },
      { custom_id: 'line-2', error: null },
    ],
  })
  t.equal(provider.calls, 3)
  // Another thread has written the record; it is in the database within a second.
  const ask = caller(`${gateway.url}/v1`, gateway.apiKey)
  const path = `/generation?id=${batch.results?.[0]?.response?.request_id}`
  t.ok(await eventually(async () => (await ask('GET', path)).status === 200, PATIENCE_MS))
  t.match((await ask('GET', path)).data, { total_cost: 0.000017, streamed: false })
  t.ok(
    await eventually(async () => {
      const lines = (outcome: string) => gateway.metric('gateway_batch_items_total', { outcome })
      return (await lines('completed')) === 2 && (await lines('failed')) === 1
    }, PATIENCE_MS),
  )
  t.ok(
    await eventually(
      async () => (await gateway.metric('gateway_batches', { status: 'completed' })) === 1,
      PATIENCE_MS,
    ),
  )
  t.equal(await gateway.stop(), 0)
})

t.test('a batch whose provider is down says why it waits, everywhere, until it is back', async t => {
  let isDown = true
  const { settings } = await startLineProvider(t, () => (isDown ? { status: 503 } : {}))
  const storageUrl = newDatabaseUrl()
  const gateway = await startGatewayProcess(t, { ...settings, storage: { url: storageUrl } })
  const client = new BatchClient(gateway.url, gateway.apiKey)
  const { id, waiting } = await client.create(Array.from({ length: 20 }, (_, at) => `line ${at}`))
  t.equal(waiting, null)
  const waits = await client.until(id, batch => batch.waiting !== null)
  t.match(waits, { status: 'in_progress', waiting: { reason: 'provider_unavailable' } })
  t.ok(Number.isInteger(waits.waiting?.since))
  const ask = caller(`${gateway.url}/v1`, gateway.apiKey)
  t.match((await ask('GET', '/batches')).text, '"waiting":{"reason":"provider_unavailable","since":')
  isDown = false
  const ran = await client.until(id, batch => batch.waiting === null)
  t.ok(ran.request_counts.completed > 0, 'a request ran')
  t.match(await client.ended(id), { status: 'completed', waiting: null })
})

t.test(
  'a cancelled batch ends at once: calls to providers are closed, what had finished is there',
  async t => {
    const held = Promise.withResolvers<LineReplied>()
    const { provider, settings } = await startLineProvider(t, text => (text === 'held' ? held.promise : {}))
    const gateway = await startGatewayProcess(t, settings)
    const client = new BatchClient(gateway.url, gateway.apiKey)
    const { id } = await client.create(['a', 'held', 'held'])
    await client.until(id, ({ request_counts }) => request_counts.completed === 1)
    t.ok(await eventually(async () => provider.running === 2, PATIENCE_MS))
    t.match(await client.cancel(id), { status: /^cancell/ })
    const batch = await client.ended(id)
    t.match(batch, { status: 'cancelled', request_counts: { total: 3, completed: 1, failed: 0 } })
    t.match(batch.results, [{ custom_id: 'line-0' }])
    t.equal(batch.results?.length, 1)
    t.equal(provider.left, 2)
    held.resolve({})
  },
)

t.test('a gateway that is stopped puts its lines back, and the next one runs them', async t => {
  const held = Promise.withResolvers<LineReplied>()
  const { provider, settings } = await startLineProvider(t, (text, nth) =>
    text.startsWith('held') && nth === 1 ? held.promise : {},
  )
  const environment = { DATABASE_URL: newDatabaseUrl() }
  const short = { ...settings, timeouts: { drainMs: 200 } }
  const first = await startGatewayProcess(t, short, environment)
  const { id } = await new BatchClient(first.url, first.apiKey).create(['a', 'held 1', 'held 2'])
  t.ok(await eventually(async () => provider.running === 2, PATIENCE_MS))
  t.equal(await first.stop(), 0)
  t.equal(provider.left, 2, 'their calls are closed')
  const second = await startGatewayProcess(t, short, { ...environment, GATEWAY_API_KEY: first.apiKey })
  const batch = await new BatchClient(second.url, first.apiKey).ended(id)
  t.match(batch, {
    status: 'completed',
    request_counts: { completed: 3, failed: 0 },
    usage: { cost: 0.000051 },
  })
  t.equal(provider.calls, 5)
  held.resolve({})
})
