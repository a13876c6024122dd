/** Acceptance on PostgreSQL, as on SQLite, and through two gateways on one database. */
import t from 'tap'
import { openStore } from '../../src/storage/open.ts'
import { batchBody, batchCaller, endBatch, requestsOf } from '../support/batch-calls.ts'
import { startGateway } from '../support/gateway.ts'
import { postgresSchema, withoutPostgres } from '../support/postgres.ts'

const skip = await withoutPostgres()

t.test('a batch is made, shown with its results, and deleted on PostgreSQL', { skip }, async t => {
  const { url: storageUrl } = await postgresSchema(t)
  const gateway = await startGateway({ storageUrl })
  t.teardown(() => gateway.close())
  const call = batchCaller(gateway.url, gateway.apiKey)
  const requests: readonly { custom_id: string; body: object }[] = [
    { custom_id: 'é 😀', body: { input: '\u0000 "quoted" \u2028' } },
    { custom_id: "'; drop table batches --", body: { input: '\\u0000' } },
    ...requestsOf(2_500),
  ]
  const body = batchBody(requests)
  const made = await call('POST', '/batches', body, { 'idempotency-key': 'k' })
  t.equal(made.status, 202)
  t.match(made.document, { status: 'validating', request_counts: { total: 2_502 } })
  t.equal((await call('POST', '/batches', body, { 'idempotency-key': 'k' })).text, made.text)
  t.equal((await call('POST', '/batches', batchBody(), { 'idempotency-key': 'k' })).status, 422)
  const repeated = await call('POST', '/batches', batchBody([...requests, requests[1] ?? {}]))
  t.equal(repeated.status, 400)
  t.match(repeated.message, /^requests\[2502\].custom_id: must be unique/)
  const store = await openStore(storageUrl)
  t.teardown(() => store.close())
  const id = String(made.document['id'])
  const lines = await store.batches.work.uncheckedLines(id, { limit: 3 })
  t.same(
    lines.map(line => [line.customId, line.body]),
    requests.slice(0, 3).map(({ custom_id: customId, body: asked }) => [customId, JSON.stringify(asked)]),
  )
  await endBatch(storageUrl, id)
  const { document } = await call('GET', `/batches/${id}`)
  t.same(
    (document['results'] as { custom_id: string }[]).map(result => result.custom_id),
    requests.map(({ custom_id: customId }) => customId),
  )
  t.equal((await call('DELETE', `/batches/${id}`)).status, 200)
  t.same((await call('GET', '/batches')).document['data'], [])
})

t.test('two gateways on one database make one batch of one idempotency key', { skip }, async t => {
  const { url: storageUrl } = await postgresSchema(t)
  const gateways = [await startGateway({ storageUrl }), await startGateway({ storageUrl })] as const
  t.teardown(() => Promise.all(gateways.map(gateway => gateway.close())))
  const { apiKey } = gateways[0]
  const body = batchBody(requestsOf(50))
  const answers = await Promise.all(
    Array.from({ length: 40 }, (_, at) => {
      const { url } = gateways[at % 2] ?? gateways[0]
      return batchCaller(url, apiKey)('POST', '/batches', body, { 'idempotency-key': 'k' })
    }),
  )
  const made = answers.filter(({ status }) => status === 202)
  t.ok(made.length > 0)
  t.equal(new Set(made.map(({ text }) => text)).size, 1)
  t.same(
    answers.filter(({ status }) => status !== 202 && status !== 409).map(({ text }) => text),
    [],
  )
  for (const { url } of gateways) {
    const { document } = await batchCaller(url, apiKey)('GET', '/batches')
    t.equal((document['data'] as unknown[]).length, 1)
  }
})
