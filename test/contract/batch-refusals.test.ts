/** POST /batches refuses what it cannot run, with every status of the interface, and leaves nothing of it. */
import { readdirSync } from 'node:fs'
import { dirname, join } from 'node:path'
import t, { type Test } from 'tap'
import { openStore } from '../../src/storage/open.ts'
import { batchBody, batchCaller, requestsOf } from '../support/batch-calls.ts'
import { startGateway } from '../support/gateway.ts'
import { type Answered, addOrganization, caller } from '../support/management.ts'
import { exchange, RawClient, request, turns } from '../support/raw-http.ts'

const MAX_BYTES = 100_000
const gateway = await startGateway({
  batches: { maxBytes: MAX_BYTES },
  models: [
    {
      id: 'acme/priced',
      endpoints: [
        { provider: 'sim', upstreamModel: 'echo', pricing: { prompt: '0.001', completion: '0.001' } },
      ],
    },
    { id: 'acme/keyless', endpoints: [{ provider: 'acme' }] },
    { id: 'acme/european', endpoints: [{ provider: 'sim', upstreamModel: 'echo', region: 'europe' }] },
  ] as never,
  providers: [
    { slug: 'acme', format: 'openai-chat', baseUrl: 'http://127.0.0.1:9', auth: 'bearer' },
  ] as never,
  regions: { europe: ['eu.localhost'], us: ['us.localhost'] },
})
t.teardown(() => gateway.close())
const call = batchCaller(gateway.url, gateway.apiKey)
const manage = caller(gateway.url, gateway.managementKey)
const store = await openStore(gateway.storageUrl)
t.teardown(() => store.close())

async function newKey(fields: object = {}): Promise<{ key: string; hash: string }> {
  const { document } = await manage('POST', '/keys', { name: 'test', ...fields })
  return { key: String(document['key']), hash: String((document['data'] as { hash: string }).hash) }
}

/** Nothing of a refused batch is seen, on the disk or in the list. */
async function assertNothing(t: Test, name: string, seen: number): Promise<void> {
  const { document } = await call('GET', '/batches?limit=100')
  t.equal((document['data'] as unknown[]).length, seen, name)
  t.same(readdirSync(join(dirname(gateway.storageUrl.slice('sqlite:'.length)), 'uploads')), [], name)
}

t.test('a malformed body is 400 in the envelope, small or large, and names its place', async t => {
  const bodies: readonly (readonly [body: string, message: RegExp])[] = [
    ['', /^The request body is empty$/],
    ['{', /^body: is not valid JSON: the body ends too early \(line 1, byte 1\)$/],
    ['[]', /^body: must be an object$/],
    ['{"endpoint":"/v1/responses"}', /^requests: is required and must be an array$/],
    [batchBody([]), /^requests: must have at least 1 element$/],
    [batchBody(undefined, { endpoint: '/v1/images' }), /^endpoint: must be one of \/v1\/responses, /],
    [batchBody(undefined, { completion_window: '48h' }), /^completion_window: must be 24h or null$/],
    [batchBody(undefined, { callback_url: 'https://example.com' }), /^callback_url: is not offered/],
    [batchBody(undefined, { colour: {} }), /^colour: is not a known field; the known ones are endpoint, /],
    [batchBody(undefined, { metadata: {} }), /^metadata: is allowed only in batches with input_file_id/],
    [
      batchBody(undefined, { input_file_id: 'x' }),
      /^input_file_id: must not be given together with requests/,
    ],
    [batchBody(undefined, { model: undefined }), /^model: is required/],
    [batchBody(undefined, { model: 5 }), /^model: must be null or a string of .* broken Unicode$/],
    [batchBody([{ body: {} }]), /^requests\[0\].custom_id: is required/],
    [batchBody([{ custom_id: 'a' }]), /^requests\[0\].body: is required/],
    [
      batchBody([...requestsOf(3), { custom_id: 'request-1', body: {} }]),
      /^requests\[3\].custom_id: must be unique/,
    ],
    [
      batchBody([{ custom_id: 'a', body: {}, url: '/v1/responses' }]),
      /^requests\[0\].url: is not a known field/,
    ],
  ]
  const padding = ' '.repeat(60_000)
  for (const [body, message] of bodies) {
    for (const padded of [
      body,
      padding + body,
      body === '' ? padding : body.replace(/^(.)/, `$1${padding}`),
    ]) {
      const answer = await call('POST', '/batches', padded)
      t.equal(answer.status, 400, String(message))
      if (padded === body) t.match(answer.message, message)
      t.match(answer.document, { error: { code: 400, metadata: { error_type: 'invalid_request' } } })
      t.notMatch(answer.text, /example\.com|48h|images/, 'what was sent is not repeated')
    }
  }
  await assertNothing(t, 'malformed', 0)
})

t.test('a body that ends early is refused wherever it ends', async t => {
  const body = batchBody(requestsOf(3), { provider: { only: ['sim'] } })
  for (let length = 1; length < body.length; length += 17) {
    const answer = await call('POST', '/batches', body.slice(0, length))
    t.equal(answer.status, 400, String(length))
    t.match(answer.message, /too early/)
  }
  await assertNothing(t, 'cut', 0)
})

t.test('nested bombs, and requests in very great number, end in time', async t => {
  const bomb = `{"endpoint":"/v1/responses","model":"sim/echo","requests":[{"custom_id":"a","body":${'{"a":'.repeat(15_000)}`
  t.equal((await call('POST', '/batches', bomb)).status, 400)
  const deep = `{"endpoint":"/v1/responses","model":"sim/echo","requests":[{"custom_id":"a","body":{"a":${'['.repeat(45_000)}${']'.repeat(45_000)}}}]}`
  const accepted = await call('POST', '/batches', deep)
  t.equal(accepted.status, 202, 'a body too deep to run fails later, and alone')
  t.equal((await call('POST', '/batches', '['.repeat(90_000))).status, 400)
  t.equal((await call('POST', '/batches', `{"a":${'1'.repeat(90_000)}}`)).status, 400)
  t.equal((await call('POST', '/batches', `{"${'a'.repeat(90_000)}":1}`)).status, 400)
})

t.test('models: unknown 400, two 422, not servable 404', async t => {
  const unknown = await call('POST', '/batches', batchBody(undefined, { model: 'sim/ecoh' }))
  t.equal(unknown.status, 400)
  t.match(unknown.message, /^sim\/ecoh is not a valid model ID: did you mean sim\/echo\?/)
  t.match(unknown.document, { error: { metadata: { availability: { code: 'model_not_found' } } } })
  const two = await call(
    'POST',
    '/batches',
    batchBody(
      [
        { custom_id: 'a', body: { model: 'sim/echo' } },
        { custom_id: 'b', body: { model: 'sim/refuse' } },
      ],
      { model: undefined },
    ),
  )
  t.equal(two.status, 422)
  t.match(two.document, {
    error: {
      code: 422,
      message: /^requests\[1\].body.model: must be the same/,
      metadata: { error_type: 'unprocessable' },
    },
  })
  t.equal(
    (await call('POST', '/batches', batchBody([{ custom_id: 'a', body: { model: 'sim/refuse' } }]))).status,
    422,
  )
  const elsewhere = await call('POST', '/batches', batchBody(undefined, { provider: { only: ['groq'] } }))
  t.equal(elsewhere.status, 404)
  t.match(elsewhere.document, {
    error: { metadata: { availability: { excluded_by: ['allowed_providers'] } } },
  })
  t.equal((await call('POST', '/batches', batchBody(undefined, { model: 'acme/keyless' }))).status, 404)
})

t.test('the region of the host holds for a batch', async t => {
  const post = (host: string, model: string) => {
    const body = batchBody(undefined, { model })
    const headers = {
      Host: host,
      Authorization: `Bearer ${gateway.apiKey}`,
      'Content-Type': 'application/json',
      'Content-Length': String(Buffer.byteLength(body)),
    }
    return exchange(gateway.port, request('POST', '/v1/batches', headers, body))
  }
  const european = await post('eu.localhost', 'acme/european')
  t.equal(european?.status, 202)
  t.equal((await post('us.localhost', 'acme/european'))?.status, 404)
  t.equal((await post('eu.localhost', 'sim/echo'))?.status, 404)
  const { id } = JSON.parse(european?.body ?? '') as { id: string }
  t.match(await store.batches.find('org_default', 'ws_default', id), { dataRegion: 'europe' })
})

t.test('guardrails forbid models and providers with 403, also to batches', async t => {
  const { key, hash } = await newKey()
  const own = batchCaller(gateway.url, key)
  const rule = async (fields: object): Promise<Answered> => {
    const made = await manage('POST', '/guardrails', { name: 'test', ...fields })
    await manage('POST', `/guardrails/${made.data['id']}/assignments/keys`, { key_hashes: [hash] })
    return made
  }
  t.equal((await own('POST', '/batches', batchBody())).status, 202)
  for (const fields of [{ allowed_models: ['acme/priced'] }, { ignored_providers: ['sim'] }]) {
    const { data } = await rule(fields)
    const refused = await own('POST', '/batches', batchBody())
    t.equal(refused.status, 403, JSON.stringify(fields))
    t.match(refused.document, { error: { code: 403, metadata: { error_type: 'permission_denied' } } })
    await manage('DELETE', `/guardrails/${data['id']}`)
  }
  t.equal((await own('POST', '/batches', batchBody())).status, 202)
})

t.test('spent money is 402, and money that running requests reserve is no reason', async t => {
  const { key } = await newKey({ limit: 0.0001 })
  const own = batchCaller(gateway.url, key)
  const refused = await own('POST', '/batches', batchBody(undefined, { model: 'acme/priced' }))
  t.equal(refused.status, 402)
  t.match(refused.document, { error: { code: 402, metadata: { error_type: 'payment_required' } } })
  const { key: rich } = await newKey({ limit: 1000 })
  t.equal(
    (await batchCaller(gateway.url, rich)('POST', '/batches', batchBody(undefined, { model: 'acme/priced' })))
      .status,
    202,
  )
})

t.test('the greatest body is taken, and one byte more is 413, announced or not', async t => {
  const body = (bytes: number) => {
    const text = batchBody()
    return text + ' '.repeat(bytes - text.length)
  }
  const chunked = (text: string) => new Blob([text]).stream()
  t.equal((await call('POST', '/batches', body(MAX_BYTES))).status, 202)
  t.equal((await call('POST', '/batches', chunked(body(MAX_BYTES)))).status, 202)
  for (const large of [
    body(MAX_BYTES + 1),
    chunked(body(MAX_BYTES + 1)),
    body(MAX_BYTES * 50),
    chunked(body(MAX_BYTES * 50)),
  ]) {
    const answer = await call('POST', '/batches', large)
    t.equal(answer.status, 413)
    t.match(answer.document, { error: { code: 413, metadata: { error_type: 'payload_too_large' } } })
    t.match(answer.message, `the limit is ${MAX_BYTES} bytes`)
  }
  // Before any of it was sent.
  const early = await exchange(
    gateway.port,
    request('POST', '/v1/batches', {
      Authorization: `Bearer ${gateway.apiKey}`,
      'Content-Type': 'application/json',
      'Content-Length': String(MAX_BYTES + 1),
    }),
  )
  t.equal(early?.status, 413)
})

t.test('other media types are 415, and a wrong method is 405', async t => {
  for (const type of ['text/plain', 'application/x-ndjson', 'multipart/form-data; boundary=x', '']) {
    const { status } = await call('POST', '/batches', batchBody(), { 'content-type': type })
    t.equal(status, 415, type)
  }
  t.equal((await call('POST', '/batches', batchBody(), { 'content-encoding': 'compress' })).status, 415)
  t.equal((await call('POST', '/batches', batchBody(), { 'content-encoding': 'gzip' })).status, 400)
  const put = await call('PUT', '/batches', batchBody())
  t.equal(put.status, 405)
  t.equal(put.headers.get('allow'), 'POST, GET, HEAD, OPTIONS')
})

t.test('a key that has four batches arriving gets 429 for the fifth', async t => {
  const { apiKey } = await addOrganization(gateway.storageUrl, 'org_many')
  const head = request('POST', '/v1/batches', {
    Authorization: `Bearer ${apiKey}`,
    'Content-Type': 'application/json',
    'Content-Length': '1000',
  })
  const own = batchCaller(gateway.url, apiKey)
  // The first batch of a thread starts workers, which may take longer than a body may stand still.
  t.equal((await own('POST', '/batches', batchBody())).status, 202)
  const open = Array.from({ length: 4 }, () => new RawClient(gateway.port))
  for (const client of open) await client.send(`${head}{`)
  let fifth = await own('POST', '/batches', batchBody())
  // The four may still be on their way.
  while (fifth.status === 202 && open.every(({ bytes }) => bytes === 0))
    fifth = await own('POST', '/batches', batchBody())
  t.equal(fifth.status, 429)
  t.equal(fifth.headers.get('retry-after'), '1')
  t.match(fifth.document, { error: { code: 429, metadata: { error_type: 'rate_limit_exceeded' } } })
  t.equal((await call('POST', '/batches', batchBody())).status, 202, 'other keys are not concerned')
  for (const client of open) client.destroy()
  let next = await own('POST', '/batches', batchBody())
  while (next.status === 429) {
    await turns(5)
    next = await own('POST', '/batches', batchBody())
  }
  t.equal(next.status, 202)
})

t.test('a client that leaves amid its body leaves nothing', async t => {
  const { apiKey } = await addOrganization(gateway.storageUrl, 'org_leaving')
  const body = batchBody(requestsOf(100))
  const head = request('POST', '/v1/batches', {
    Authorization: `Bearer ${apiKey}`,
    'Content-Type': 'application/json',
    'Content-Length': String(body.length),
    'Idempotency-Key': 'leaving',
  })
  for (const sent of [0, 1, body.length - 1]) {
    const client = new RawClient(gateway.port)
    const before = gateway.lines.length
    await client.send(head + body.slice(0, sent))
    await turns(20)
    client.destroy()
    while (!gateway.lines.slice(before).some(line => line['route'] === '/batches')) await turns(1)
    t.match(
      gateway.lines.slice(before).find(line => line['route'] === '/batches'),
      { outcome: 'aborted', status: 499 },
    )
  }
  const own = batchCaller(gateway.url, apiKey)
  t.same((await own('GET', '/batches')).document['data'], [])
  t.same(readdirSync(join(dirname(gateway.storageUrl.slice('sqlite:'.length)), 'uploads')), [])
  t.equal((await own('POST', '/batches', body, { 'idempotency-key': 'leaving' })).status, 202)
})

t.test('no failure was a fault of ours', async t => {
  t.same(
    gateway.lines.filter(({ level, status }) => status === 500 || level === 'fatal'),
    [],
  )
})
