/** Batches over HTTP whose requests end in every way: each has its own error, and the counts are right. */
import t from 'tap'
import { BATCH_MODEL, BatchClient, type BatchDocument, startLineProvider } from '../support/batch-client.ts'
import { startGatewayProcess } from '../support/gateway-process.ts'
import { caller } from '../support/management.ts'
import type { LineReplied } from '../support/provider.ts'

const never = new Promise<LineReplied>(() => undefined)
const say = (content: unknown) => ({ messages: [{ role: 'user', content }] })

/** What the provider does for a text, and how its request ends; null: it is answered. */
const REPLIES: Readonly<Record<string, readonly [errorType: string | null, tries: number]>> = {
  'answer 1': [null, 1],
  'answer 2': [null, 1],
  'slow and good': [null, 1],
  'fails once with 500': [null, 2],
  'fails once with 429': [null, 2],
  'refused with 400': ['invalid_request', 1],
  'refused with 413': ['payload_too_large', 1],
  'refused with 422': ['unprocessable', 1],
  'refused with 401': ['provider_unavailable', 1],
  'refused with 404': ['provider_unavailable', 1],
  'limited with 429': ['rate_limit_exceeded', 3],
  'down with 500': ['provider_unavailable', 3],
  'down with 503': ['provider_overloaded', 3],
  'down with 529': ['provider_overloaded', 3],
  breaks: ['provider_unavailable', 3],
  silent: ['timeout', 3],
}

/** Bodies that nobody is asked about, with the error that names their field. */
const MALFORMED: readonly (readonly [body: object, errorType: string, message: RegExp])[] = [
  [{}, 'invalid_request', /^messages: /],
  [{ messages: 'hi' }, 'invalid_request', /^messages: /],
  [say(7), 'invalid_request', /^messages\[0\]\.content: /],
  [{ ...say('x'), stream: true }, 'invalid_request', /^stream: /],
  [{ ...say('x'), n: 2 }, 'invalid_request', /^n: /],
  [{ ...say('x'), temperature: 9 }, 'invalid_request', /^temperature: /],
  [{ ...say('x'), model: 5 }, 'invalid_request', /^model: /],
  [JSON.parse(`{"messages":${'['.repeat(1_000)}${']'.repeat(1_000)}}`), 'invalid_request', /./],
]

/** On a busy machine a request that was sent once may be late, and is sent again. */
const isSent = (times: number, tries: number): boolean => times >= tries && times <= 3

t.test('good, malformed, failing and slow requests of one batch each end as they would alone', async t => {
  const held = Promise.withResolvers<LineReplied>()
  const { provider, settings } = await startLineProvider(t, (text, nth) => {
    if (text === 'slow and good') return held.promise
    if (text === 'silent') return never
    if (text === 'breaks') return { breaks: true }
    const status = Number(/\d{3}$/.exec(text)?.[0] ?? 200)
    return text.startsWith('fails once') && nth > 1 ? {} : { status }
  })
  const gateway = await startGatewayProcess(t, {
    ...settings,
    // Lines that fail on purpose would hold up the others.
    routing: { breakerFailures: null },
    timeouts: { upstreamHeadersMs: 2_000 },
  })
  const texts = Object.keys(REPLIES)
  const requests = [
    ...texts.map(text => ({ custom_id: text, body: say(text) })),
    ...MALFORMED.map(([body], at) => ({ custom_id: `malformed ${at}`, body })),
  ]
  // Neighbours end in different ways.
  const mixed = requests.toSorted((a, b) => (JSON.stringify(a) < JSON.stringify(b) ? -1 : 1))
  const client = new BatchClient(gateway.url, gateway.apiKey)
  const { id } = await client.create([], { requests: mixed })
  await client.until(id, ({ request_counts: { completed, failed } }) => completed > 0 && failed > 5)
  t.match(await client.find(id), { status: 'in_progress', results: null }, 'the slow one is waited for')
  held.resolve({})
  const batch = await client.ended(id)
  const answered = Object.values(REPLIES).filter(([errorType]) => errorType === null).length
  const { total, completed, failed } = batch.request_counts
  t.same([batch.status, batch.error], ['completed', null])
  t.same({ total, completed, failed }, { total: mixed.length, completed: answered, failed: total - answered })
  t.equal(completed + failed, total)
  const results = batch.results ?? []
  t.same(
    results.map(({ custom_id }) => custom_id),
    mixed.map(({ custom_id }) => custom_id),
    'in the order of the requests',
  )
  for (const { custom_id, response, error } of results) {
    t.equal((response === null) !== (error === null), true, `${custom_id} has one of both`)
    const malformed = MALFORMED[Number(/^malformed (\d+)$/.exec(custom_id)?.[1] ?? -1)]
    const [errorType, tries] =
      malformed === undefined ? (REPLIES[custom_id] ?? ['none', -1]) : [malformed[1], 0]
    t.equal(error?.error_type ?? null, errorType, `${custom_id}: ${error?.message}`)
    if (malformed !== undefined) t.match(error?.message, malformed[2])
    else t.ok(isSent(provider.asked.get(custom_id) ?? 0, tries), `${custom_id} was sent ${tries} times`)
    if (response !== null)
      t.match(response, { status_code: 200, body: { choices: [{ message: { content: custom_id } }] } })
  }
  t.equal(new Set(results.map(one => one.id)).size, total)
  t.match(batch.usage, { cost: (answered * 17) / 1_000_000 })
})

t.test('a malformed request names fields of the endpoint of its batch', async t => {
  const { settings } = await startLineProvider(t)
  const gateway = await startGatewayProcess(t, {
    ...settings,
    models: [
      ...settings.models,
      { id: 'acme/vectors', outputModalities: ['embeddings'], endpoints: [{ provider: 'acme' }] },
    ],
  })
  const ask = caller(`${gateway.url}/v1`, gateway.apiKey)
  const client = new BatchClient(gateway.url, gateway.apiKey)
  const cases: readonly (readonly [endpoint: string, good: object, bad: object, param: string])[] = [
    ['/v1/responses', { input: 'x' }, { input: [{ role: 'user', content: 5 }] }, 'input[0].content'],
    ['/v1/chat/completions', say('x'), say(5), 'messages[0].content'],
    ['/v1/messages', { max_tokens: 9, ...say('x') }, say('x'), 'max_tokens'],
    ['/v1/messages', { max_tokens: 9, ...say('x') }, { max_tokens: 9, ...say('x'), thread: {} }, 'thread'],
    ['/v1/embeddings', { input: 'x' }, { input: ['x', 5] }, 'input[1]'],
  ]
  for (const [endpoint, good, bad, param] of cases) {
    const { status, text, document } = await ask('POST', '/batches', {
      endpoint,
      model: endpoint === '/v1/embeddings' ? 'acme/vectors' : BATCH_MODEL,
      requests: [
        { custom_id: 'good', body: good },
        { custom_id: 'bad', body: bad },
      ],
    })
    t.equal(status, 202, text)
    const batch: BatchDocument = await client.ended(String(document['id']))
    const bad1 = batch.results?.[1]
    t.match(
      bad1,
      { custom_id: 'bad', response: null, error: { param, error_type: 'invalid_request' } },
      endpoint,
    )
    t.ok(bad1?.error?.message.startsWith(`${param}: `), endpoint)
    // The provider of this test speaks chat completions only.
    if (endpoint !== '/v1/embeddings')
      t.match(batch.results?.[0], { response: { status_code: 200 } }, endpoint)
  }
})
