/** Idempotency-Key of POST /batches: one batch, however often and from wherever it is asked for. */
import t from 'tap'
import { batchBody, batchCaller, endBatch, requestsOf } from '../support/batch-calls.ts'
import { startGateway } from '../support/gateway.ts'
import { addOrganization, caller } from '../support/management.ts'
import { TestClock } from '../support/test-clock.ts'

const AT_ONCE = 500
const clock = new TestClock()
const gateway = await startGateway({ clock })
t.teardown(() => gateway.close())
const call = batchCaller(gateway.url, gateway.apiKey)
const post = (body: string, key: string) => call('POST', '/batches', body, { 'idempotency-key': key })

t.test('the same request again is answered as the first was, whatever has become of the batch', async t => {
  const body = batchBody(requestsOf(2))
  const first = await post(body, 'once')
  t.equal(first.status, 202)
  t.equal(first.headers.get('idempotent-replayed'), null)
  clock.advance(3_600_000)
  for (let round = 0; round < 2; round++) {
    const again = await post(body, 'once')
    t.equal(again.status, 202)
    t.equal(again.headers.get('idempotent-replayed'), 'true')
    t.equal(again.text, first.text)
    if (round === 0) await endBatch(gateway.storageUrl, String(first.document['id']))
  }
})

t.test('another body under the key is 422, and the batch stays', async t => {
  const first = await post(batchBody(), 'other-body')
  for (const body of [batchBody(requestsOf(2)), `${batchBody()} `, '{', '']) {
    const answer = await post(body, 'other-body')
    t.equal(answer.status, 422)
    t.match(answer.document, {
      error: {
        code: 422,
        message: 'Idempotency-Key: already used with another body: send the same body, or use another key',
        metadata: { error_type: 'unprocessable' },
      },
    })
  }
  t.equal((await post(batchBody(), 'other-body')).text, first.text)
})

t.test('what was refused leaves the key free', async t => {
  for (const body of [
    '{',
    batchBody(undefined, { model: 'sim/none' }),
    batchBody([...requestsOf(2), ...requestsOf(1)]),
  ]) {
    t.equal((await post(body, 'free')).status, 400)
  }
  const answer = await post(batchBody(), 'free')
  t.equal(answer.status, 202)
  t.equal(answer.headers.get('idempotent-replayed'), null)
})

t.test('a key belongs to an API key', async t => {
  const mine = await post(batchBody(), 'shared')
  const { document } = await caller(gateway.url, gateway.managementKey)('POST', '/keys', { name: 'second' })
  const { apiKey } = await addOrganization(gateway.storageUrl, 'org_idempotency')
  for (const key of [String(document['key']), apiKey]) {
    const theirs = await batchCaller(gateway.url, key)('POST', '/batches', batchBody(requestsOf(3)), {
      'idempotency-key': 'shared',
    })
    t.equal(theirs.status, 202)
    t.not(theirs.document['id'], mine.document['id'])
  }
})

t.test('the key of a deleted batch is free', async t => {
  const first = await post(batchBody(), 'deleted')
  await endBatch(gateway.storageUrl, String(first.document['id']))
  t.equal((await call('DELETE', `/batches/${first.document['id']}`)).status, 200)
  const next = await post(batchBody(), 'deleted')
  t.equal(next.headers.get('idempotent-replayed'), null)
  t.not(next.document['id'], first.document['id'])
})

t.test('a key has 1 to 255 visible characters', async t => {
  for (const key of [
    'k',
    'k'.repeat(255),
    'with blanks within',
    "'; drop table batches --",
    'null',
    '~!@#$%^&*()',
  ]) {
    t.equal((await post(batchBody(), key)).status, 202, key.slice(0, 30))
  }
  for (const key of ['', 'k'.repeat(256), 'é', 'a\u0001']) {
    const { status, message } = await post(batchBody(), key).catch(() => ({
      status: 400,
      message: 'Idempotency-Key: ',
    }))
    t.equal(status, 400, encodeURIComponent(key.slice(0, 30)))
    t.match(message, /^Idempotency-Key: /)
  }
})

t.test(`${AT_ONCE} requests at once with one key make one batch`, async t => {
  const { apiKey } = await addOrganization(gateway.storageUrl, 'org_at_once')
  const own = batchCaller(gateway.url, apiKey)
  const body = batchBody(requestsOf(20))
  const ask = () => own('POST', '/batches', body, { 'idempotency-key': 'at once' })
  const answers = await Promise.all(Array.from({ length: AT_ONCE }, ask))
  const counts = new Map<number, number>()
  for (const { status } of answers) counts.set(status, (counts.get(status) ?? 0) + 1)
  t.comment(JSON.stringify([...counts]))
  const made = answers.filter(({ status }) => status === 202)
  t.ok(made.length > 0)
  t.equal(new Set(made.map(({ text }) => text)).size, 1, 'all that succeeded are the same')
  t.equal(
    made.filter(({ headers }) => headers.get('idempotent-replayed') === null).length,
    1,
    'one of them made it',
  )
  for (const { status, headers, document } of answers) {
    if (status === 202) continue
    t.equal(status, 409)
    t.equal(headers.get('retry-after'), '1')
    t.match(document, { error: { code: 409, metadata: { error_type: 'precondition_failed' } } })
  }
  const { document } = await own('GET', '/batches?limit=100')
  t.equal((document['data'] as unknown[]).length, 1)
  t.equal((await ask()).headers.get('idempotent-replayed'), 'true')
})
