/**
 * POST /embeddings through the pipeline of every exchange: guardrails, own credentials, failover, preferences, limits,
 * metadata, and one usage record whatever happens.
 */
import { request as httpRequest } from 'node:http'
import t, { type Test } from 'tap'
import { NO_RULES } from '../../src/protocol/management/guardrails.ts'
import { createVault } from '../../src/providers/credentials/vault.ts'
import { parseVaultKeys } from '../../src/providers/credentials/vault-keys.ts'
import { openStore } from '../../src/storage/open.ts'
import type { TestGateway } from '../support/gateway.ts'
import { addOrganization, caller } from '../support/management.ts'
import { credentialOf, sealedRecord } from '../support/own-keys.ts'
import {
  type AskedEmbeddings,
  type EmbeddingsProvider,
  properReply,
  startEmbeddingsProvider,
} from '../support/provider.ts'
import { startGuarded } from '../support/world.ts'

const EMBEDS = { outputModalities: ['embeddings'] }
/** USD for each token. */
const PRICED = { pricing: { prompt: '0.000001' } }
const TOKENS = 7

interface Answered {
  readonly status: number
  readonly headers: Headers
  readonly document: {
    readonly id: string
    readonly data: readonly { readonly embedding: readonly number[] }[]
    readonly model: string
    readonly provider: string
    readonly usage: Record<string, unknown>
    readonly error: { readonly message: string; readonly metadata: Record<string, unknown> }
    readonly gateway_metadata?: Record<string, unknown>
  }
}

interface World {
  readonly provider: EmbeddingsProvider
  readonly other: EmbeddingsProvider
  readonly gateway: TestGateway
  readonly guard: Awaited<ReturnType<typeof startGuarded>>['guard']
  embed(body: object, more?: { key?: string; headers?: Record<string, string> }): Promise<Answered>
  record(id: string): Promise<Record<string, unknown>>
  newKey(limit: number | null): Promise<string>
}

async function start(t: Test): Promise<World> {
  const provider = await startEmbeddingsProvider()
  const other = await startEmbeddingsProvider()
  const row = (slug: string, name: string, { url }: EmbeddingsProvider) => ({
    slug,
    name,
    format: 'openai-chat' as const,
    baseUrl: `${url}/v1`,
    apiKey: `key-of-${slug}`,
  })
  const { gateway, guard } = await startGuarded(t, {
    providers: [row('acme', 'Acme', provider), row('groq', 'Groq', other), row('openai', 'OpenAI', provider)],
    models: [
      { id: 'acme/vectors', ...EMBEDS, endpoints: [{ provider: 'acme', ...PRICED }] },
      {
        id: 'acme/both',
        ...EMBEDS,
        endpoints: [
          { provider: 'acme', ...PRICED },
          { provider: 'groq', pricing: { prompt: '0.000002' } },
        ],
      },
      {
        id: 'acme/pictures',
        ...EMBEDS,
        inputModalities: ['text', 'image'],
        endpoints: [{ provider: 'acme', ...PRICED }],
      },
      {
        id: 'acme/mixed',
        ...EMBEDS,
        endpoints: [
          { provider: 'acme', format: 'cohere-embeddings' },
          { provider: 'groq', supportedParameters: ['encoding_format'] },
        ],
      },
      { id: 'acme/unpriced', ...EMBEDS, endpoints: [{ provider: 'acme' }] },
      {
        id: 'acme/regional',
        ...EMBEDS,
        endpoints: [{ provider: 'acme' }, { provider: 'groq', region: 'europe' }],
      },
    ],
    regions: { europe: ['eu.localhost'], us: ['us.localhost'] },
    byok: { feePercent: 5 },
  })
  t.teardown(() => {
    provider.close()
    other.close()
  })
  return {
    provider,
    other,
    gateway,
    guard,
    async embed(body, { key = gateway.apiKey, headers = {} } = {}) {
      const answer = await fetch(`${gateway.url}/embeddings`, {
        method: 'POST',
        headers: {
          authorization: `Bearer ${key}`,
          'content-type': 'application/json',
          'x-gateway-metadata': 'enabled',
          ...headers,
        },
        body: JSON.stringify({ model: 'acme/vectors', input: 'a', ...body }),
      })
      return {
        status: answer.status,
        headers: answer.headers,
        document: (await answer.json()) as Answered['document'],
      }
    },
    async record(id) {
      const { data } = await caller(gateway.url, gateway.managementKey)('GET', `/generation?id=${id}`)
      return data
    },
    async newKey(limit) {
      const made = await caller(gateway.url, gateway.managementKey)('POST', '/keys', {
        name: 'limited',
        limit,
      })
      return String(made.document['key'])
    },
  }
}

const idOf = ({ headers }: Answered) => headers.get('x-generation-id') ?? ''
const email = (action: 'block' | 'redact' | 'flag') => ({
  contentFilterBuiltins: [{ slug: 'email' as const, action, scanScope: 'all_messages' as const }],
})
const TEXTS = ['nothing here', 'write to ann@example.com', 'or to bob@example.com today']

t.test('the reply and its record have the same tokens and cost', async t => {
  const { embed, record } = await start(t)
  const answered = await embed({ input: ['a', 'b'], user: 'somebody', session_id: 'session-1' })
  const { document } = answered
  t.match(document, {
    id: idOf(answered),
    model: 'acme/vectors',
    provider: 'Acme',
    usage: { is_byok: false },
  })
  t.same(
    document.data.map(({ embedding }) => embedding),
    [
      [0, 0.5],
      [1, 0.5],
    ],
  )
  t.same([document.usage['prompt_tokens'], document.usage['total_tokens']], [TOKENS, TOKENS])
  t.equal(document.usage['cost'], 7e-6)
  t.match(document.gateway_metadata, {
    requested: 'acme/vectors',
    strategy: 'direct',
    summary: 'available=1, selected=Acme',
    attempt: 1,
    attempts: [{ provider: 'Acme', model: 'acme/vectors', status: 200 }],
    timings_ms: { parse: Number, route: Number, encode: Number, upstream_first_byte: Number, stream: Number },
  })
  t.match(answered.headers.get('server-timing'), /route;dur=/)
  t.match(await record(document.id), {
    api_type: 'embeddings',
    upstream_id: 'emb-1',
    model: 'acme/vectors',
    provider_name: 'Acme',
    streamed: false,
    cancelled: false,
    outcome: 'completed',
    finish_reason: null,
    accounting: 'exact',
    tokens_prompt: TOKENS,
    tokens_completion: 0,
    total_cost: 7e-6,
    external_user: 'somebody',
    session_id: 'session-1',
    generation_time: null,
  })
})

t.test('without the header there is no metadata', async t => {
  const { embed } = await start(t)
  const { document, headers } = await embed({}, { headers: { 'x-gateway-metadata': 'off' } })
  t.notOk('gateway_metadata' in document)
  t.equal(headers.get('server-timing'), null)
})

t.test('a provider that tells no tokens is estimated, ids exactly', async t => {
  const { provider, embed, record } = await start(t)
  provider.answer = asked => {
    const { usage: _, ...json } = properReply(asked).json as Record<string, unknown>
    return { json }
  }
  const text = await embed({ input: ['four letters are a token', 'x'.repeat(400)] })
  t.equal(text.document.usage['prompt_tokens'], Math.ceil((24 + 400) / 4))
  t.match(await record(idOf(text)), { accounting: 'estimated', tokens_prompt: 106 })
  const ids = await embed({ input: [[1, 2, 3], [4]] })
  t.equal(ids.document.usage['prompt_tokens'], 4)
  t.equal(ids.document.usage['cost'], 4e-6)
})

t.test('usage that cannot be is corrected', async t => {
  const { provider, embed, record, gateway } = await start(t)
  provider.answer = asked => ({
    json: { ...(properReply(asked).json as object), usage: { prompt_tokens: 9e9, total_tokens: 9e9 } },
  })
  const answered = await embed({})
  t.ok(Number(answered.document.usage['prompt_tokens']) < 10_000)
  t.match(await record(idOf(answered)), { accounting: 'estimated' })
  const noticed = gateway.lines.filter(({ msg }) => /implausible usage/.test(String(msg)))
  t.match(noticed, [{ provider: 'acme', model: 'acme/vectors' }])
})

t.test('one log line tells model, provider and tokens, and no text', async t => {
  const { embed, gateway } = await start(t)
  const answered = await embed({ input: 'a secret text' })
  const line = gateway.lines.find(({ id }) => id === idOf(answered))
  t.match(line, {
    route: '/embeddings',
    status: 200,
    outcome: 'completed',
    model: 'acme/vectors',
    provider: 'acme',
    inputTokens: TOKENS,
    outputTokens: 0,
    attempts: 1,
  })
  t.notMatch(JSON.stringify(gateway.lines), /secret text/)
})

t.test('metrics count the request, its tokens and its record', async t => {
  const { embed, gateway } = await start(t)
  await embed({})
  await embed({ model: 'sim/echo' })
  const scrape = await gateway.serving.metrics.registry.metrics()
  t.match(scrape, /gateway_requests_total\{[^}]*route="\/embeddings"[^}]*outcome="completed"[^}]*\} 1\n/)
  t.match(scrape, /gateway_requests_total\{[^}]*route="\/embeddings"[^}]*outcome="refused"[^}]*\} 1\n/)
  t.match(scrape, new RegExp(`gateway_tokens_total\\{[^}]*input[^}]*acme/vectors[^}]*\\} ${TOKENS}\\n`))
  t.match(scrape, /gateway_usage_records_total\{[^}]*exact[^}]*\} 1\n/)
  t.match(scrape, /gateway_usage_records_total\{[^}]*none[^}]*\} 1\n/)
  t.notMatch(scrape, /gateway_time_to_first_token_seconds_count(?:\{[^}]*\})? [1-9]/)
})

// Guardrails

t.test('a guardrail redacts in each text, and the provider sees nothing else', async t => {
  const { provider, embed, guard } = await start(t)
  await guard(email('redact'))
  const { status, document } = await embed({ input: TEXTS })
  t.equal(status, 200)
  t.same(provider.asked.at(-1)?.body['input'], ['nothing here', 'write to [EMAIL]', 'or to [EMAIL] today'])
  t.match(document.gateway_metadata, {
    pipeline: [
      { type: 'guardrail', name: 'content-filter', data: { action: 'redacted', patterns: ['email'] } },
    ],
  })
  t.equal(document.data.length, 3)
  await embed({ input: TEXTS[1] })
  t.equal(provider.asked.at(-1)?.body['input'], 'write to [EMAIL]')
  const parts = TEXTS.slice(0, 2).map(text => ({ type: 'text', text }))
  await embed({ model: 'acme/pictures', input: [{ content: parts }] })
  t.same(provider.asked.at(-1)?.body['input'], [
    { content: [parts[0], { type: 'text', text: 'write to [EMAIL]' }] },
  ])
})

t.test('unknown fields are read by guardrails too', async t => {
  const { provider, embed, guard } = await start(t)
  await guard(email('redact'))
  await embed({ instruction: 'as ann@example.com would' })
  t.equal(provider.asked.at(-1)?.body['instruction'], 'as [EMAIL] would')
})

t.test('a guardrail blocks before any provider is asked, and the record says so', async t => {
  const { provider, embed, guard, record } = await start(t)
  await guard(email('block'))
  const answered = await embed({ input: TEXTS })
  t.equal(answered.status, 403)
  t.match(answered.document, {
    error: { message: 'Request blocked by content filter: [EMAIL]', metadata: { patterns: ['email'] } },
    gateway_metadata: { attempt: 0, endpoints: { total: 1 }, pipeline: [{ data: { action: 'blocked' } }] },
  })
  t.equal(provider.asked.length, 0)
  t.match(await record(idOf(answered)), {
    api_type: 'embeddings',
    outcome: 'failed',
    error: 'permission_denied',
    accounting: 'none',
    tokens_prompt: 0,
  })
})

t.test(
  'token ids cannot be read, so a guardrail on texts refuses them, even one that fails open',
  async t => {
    const { provider, embed, guard, gateway } = await start(t)
    await guard({ ...email('flag'), failMode: 'open' })
    for (const [input, path] of [
      [[1, 2], 'input'],
      [[[1], [2]], 'input[0]'],
    ] as const) {
      const { status, document } = await embed({ input })
      t.equal(status, 403)
      t.equal(
        document.error.message,
        `${path}: a guardrail on this API key checks texts and cannot read token ids: send the text`,
      )
    }
    t.equal(provider.asked.length, 0)
    t.match(
      await gateway.serving.metrics.registry.metrics(),
      /gateway_guardrail_decisions_total\{guardrail="all",action="refused_unchecked"\} 2\n/,
    )
    t.equal((await embed({ input: 'text' })).status, 200)
  },
)

t.test('a guardrail that only restricts lets token ids pass, and restricts', async t => {
  const { embed, guard } = await start(t)
  await guard({ ignoredModels: ['acme/both'] })
  t.equal((await embed({ input: [1, 2] })).status, 200)
  const { status, document } = await embed({ model: 'acme/both' })
  t.equal(status, 403)
  t.match(document.error.message, /does not allow any endpoint of acme\/both/)
})

t.test('a guardrail of one organization does not touch another', async t => {
  const { provider, embed, guard, gateway } = await start(t)
  await guard(email('block'))
  const second = await addOrganization(gateway.storageUrl, 'org_second')
  t.equal((await embed({ input: TEXTS })).status, 403)
  const answered = await embed({ input: TEXTS }, { key: second.apiKey })
  t.equal(answered.status, 200)
  t.same(provider.asked.at(-1)?.body['input'], TEXTS)
  const find = (key: string) => caller(gateway.url, key)('GET', `/generation?id=${idOf(answered)}`)
  t.equal((await find(second.managementKey)).status, 200)
  t.equal((await find(gateway.managementKey)).status, 404, 'nor does it see its record')
})

// Routing

const failing =
  (status: number, headers: Record<string, string> = {}) =>
  () => ({
    status,
    headers,
    json: { error: { message: 'scripted' } },
  })

t.test('a failure moves on to the next endpoint, and is billed where it was answered', async t => {
  const { provider, other, embed, record } = await start(t)
  for (const [n, status] of [429, 500, 503, 401, 404, 529].entries()) {
    provider.answer = failing(status)
    const answered = await embed({ model: 'acme/both' })
    t.equal(answered.status, 200)
    t.equal(answered.document.provider, 'Groq')
    t.equal(answered.document.usage['cost'], 14e-6)
    t.match(answered.document.gateway_metadata, {
      attempt: 2,
      attempts: [
        { provider: 'Acme', status },
        { provider: 'Groq', status: 200 },
      ],
    })
    t.equal(other.asked.length, n + 1)
    const { provider_responses: attempts } = await record(idOf(answered))
    t.match(attempts, [
      { provider_name: 'Acme', status },
      { provider_name: 'Groq', status: 200 },
    ])
  }
})

t.test('a broken reply moves on too, and costs nothing', async t => {
  const { provider, embed } = await start(t)
  for (const raw of ['{"data":[', '{"data":[{"index":0,"embedding":["x"]}]}', 'no json', '{"data":[]}']) {
    provider.answer = () => ({ raw })
    const { document } = await embed({ model: 'acme/both' })
    t.equal(document.provider, 'Groq', raw)
    t.equal(document.usage['cost'], 14e-6)
  }
})

t.test('a refused input is told at once', async t => {
  const { provider, other, embed } = await start(t)
  provider.answer = failing(400)
  const { status, document } = await embed({ model: 'acme/both' })
  t.equal(status, 400)
  t.match(document.error, { message: 'scripted', metadata: { provider_name: 'Acme', provider_status: 400 } })
  t.equal(other.asked.length, 0)
})

t.test('when every endpoint fails, the last failure is told, with the others and one record', async t => {
  const { provider, other, embed, record } = await start(t)
  provider.answer = failing(429, { 'retry-after': '9' })
  other.answer = failing(429, { 'retry-after': '4' })
  const limited = await embed({ model: 'acme/both' })
  t.equal(limited.status, 429)
  t.equal(limited.headers.get('retry-after'), '4')
  t.match(limited.document.error.metadata, { previous_errors: [{ provider: 'Acme', status: 429 }] })
  t.match(await record(idOf(limited)), { outcome: 'failed', accounting: 'none', total_cost: 0 })
  t.same(
    [await embed({ model: 'acme/both' }), provider.asked.length, other.asked.length].slice(1),
    [1, 1],
    'while they ask to wait, nobody is asked',
  )
  const mixed = await start(t)
  mixed.provider.answer = failing(429)
  mixed.other.answer = failing(500)
  t.equal((await mixed.embed({ model: 'acme/both' })).status, 502)
})

t.test('preferences of the caller order and exclude endpoints', async t => {
  const { provider, embed } = await start(t)
  const ask = async (preferences: object) =>
    (await embed({ model: 'acme/both', provider: preferences })).document
  t.equal((await ask({ order: ['groq'] })).provider, 'Groq')
  t.equal((await ask({ only: ['Groq'] })).provider, 'Groq')
  t.equal((await ask({ ignore: ['acme'] })).provider, 'Groq')
  t.equal((await ask({ sort: 'price' })).provider, 'Acme')
  t.match((await ask({ only: ['mistral'] })).error, {
    code: 404,
    metadata: { availability: { code: 'constraint_filtered' } },
  })
  t.match((await ask({ zdr: true })).error, { code: 404 })
  provider.answer = failing(500)
  t.match((await ask({ allow_fallbacks: false })).error, { code: 502 })
})

t.test('endpoints that cannot be told what is asked are left out', async t => {
  const { provider, other, embed } = await start(t)
  provider.answer = () => ({ json: { id: 'c', embeddings: { float: [[1, 2, 3]] }, meta: {} } })
  other.answer = properReply
  t.equal((await embed({ model: 'acme/mixed' })).document.provider, 'Acme')
  t.equal(
    (await embed({ model: 'acme/mixed', dimensions: 3 })).document.provider,
    'Acme',
    'the other makes one length',
  )
  t.equal(
    (await embed({ model: 'acme/mixed', input: [1, 2] })).document.provider,
    'Groq',
    'cohere reads no ids',
  )
  const refused = async (body: object) => {
    const { status, document } = await embed({ model: 'acme/mixed', ...body })
    t.equal(status, 400)
    return document.error.message
  }
  const image = [
    {
      content: [
        { type: 'text', text: 'a' },
        { type: 'image_url', image_url: { url: 'data:image/png;base64,AAAA' } },
      ],
    },
  ]
  t.equal(await refused({ input: image }), 'input[0].content[1]: acme/mixed does not accept images')
  t.equal(
    await refused({ input: [[1]], dimensions: 3 }),
    'dimensions: acme/mixed produces vectors of only one length',
  )
  t.equal(
    await refused({ input: [[1]], provider: { only: ['acme'] } }),
    'input[0]: acme/mixed does not accept token ids: send text',
  )
  t.match(
    await refused({ model: 'acme/vectors', input_type: 'query', provider: { require_parameters: true } }),
    /^input_type: acme\/vectors does not accept input_type at any endpoint/,
  )
  provider.answer = properReply
  t.equal((await embed({ model: 'acme/vectors', input_type: 'query' })).status, 200, 'it is only left out')
  t.equal((await embed({ model: 'acme/pictures', input: image })).status, 200)
})

t.test('the region of the host holds', async t => {
  const { gateway, other } = await start(t)
  const body = JSON.stringify({ model: 'acme/regional', input: 'a' })
  const headers = { authorization: `Bearer ${gateway.apiKey}`, 'content-type': 'application/json' }
  const statusAt = (host: string) =>
    new Promise<number | undefined>((resolve, reject) => {
      const options = {
        port: gateway.port,
        path: '/v1/embeddings',
        method: 'POST',
        headers: { ...headers, host },
      }
      const sent = httpRequest(options, reply => {
        reply.resume()
        reply.on('end', () => resolve(reply.statusCode))
      })
      sent.on('error', reject)
      sent.end(body)
    })
  t.equal(await statusAt('eu.localhost'), 200)
  t.equal(other.asked.length, 1)
  t.equal(await statusAt('us.localhost'), 404)
  t.equal(await statusAt('localhost'), 200)
  t.equal(other.asked.length, 1)
})

// Own credentials

t.test('a BYOK credential is used before the shared key, and only its fee is charged', async t => {
  const { provider, embed, gateway, record } = await start(t)
  const store = await openStore(gateway.storageUrl)
  t.teardown(() => store.close())
  const vault = createVault(parseVaultKeys(gateway.vaultKeys))
  const second = await addOrganization(gateway.storageUrl, 'org_second')
  const own = { organizationId: second.id, workspaceId: second.workspaceId }
  await store.credentials.add(sealedRecord(vault, credentialOf('acme', own), 'own-key-of-second'))
  const answered = await embed({}, { key: second.apiKey })
  t.equal(provider.asked.at(-1)?.headers.authorization, 'Bearer own-key-of-second')
  t.match(answered.document.usage, {
    is_byok: true,
    cost: 3.5e-7,
    cost_details: { upstream_inference_cost: 7e-6 },
  })
  t.match(answered.document.gateway_metadata, { is_byok: true })
  const find = await caller(gateway.url, second.managementKey)('GET', `/generation?id=${idOf(answered)}`)
  t.match(find.data, { is_byok: true, upstream_inference_cost: 7e-6 })
  await embed({})
  t.equal(
    provider.asked.at(-1)?.headers.authorization,
    'Bearer key-of-acme',
    'the first organization has none',
  )
  provider.answer = ({ headers }: AskedEmbeddings) => ({
    status: 401,
    json: { error: { message: `bad key ${headers.authorization?.slice(7)}` } },
  })
  const refused = await embed({}, { key: second.apiKey })
  t.equal(refused.status, 502)
  t.notMatch(JSON.stringify(refused.document), /own-key-of-second|key-of-acme/)
  t.match(await record(idOf(refused)), {}, 'the record is of the second organization')
})

// Limits

t.test('what a request costs is reserved before it is asked, and only that is spent', async t => {
  const { provider, embed, newKey, gateway } = await start(t)
  const key = await newKey(0.0001)
  const ask = (chars: number) => embed({ input: 'x'.repeat(chars) }, { key })
  t.equal((await ask(400)).status, 200, 'just as many tokens as can be paid')
  const dear = await ask(1_000)
  t.equal(dear.status, 402)
  t.match(dear.document.error.message, /spending limit of this API key/)
  const before = provider.asked.length
  t.equal(before, 1, 'nobody was asked')
  await gateway.shipper.ship()
  const spent = await caller(gateway.url, key)('GET', '/key')
  t.match(spent.data, { usage: 7e-6 })
  t.equal((await ask(360)).status, 200, 'the provider told fewer tokens than were reserved')
})

t.test('a dearer endpoint is not asked once the limit leaves too little for it', async t => {
  const { provider, other, embed, newKey } = await start(t)
  provider.answer = failing(500)
  const key = await newKey(0.00015)
  const { status } = await embed({ model: 'acme/both', input: 'x'.repeat(400) }, { key })
  t.equal(status, 502)
  t.equal(other.asked.length, 0)
})

t.test('an unknown price is left out for callers under a limit', async t => {
  const { embed, newKey } = await start(t)
  const key = await newKey(1)
  const { status, document } = await embed({ model: 'acme/unpriced' }, { key })
  t.equal(status, 403)
  t.match(document.error.message, /price of acme\/unpriced is not known/)
  const free = await embed({ model: 'acme/unpriced' })
  t.match(free.document.usage, { cost: 0, cost_details: { price_unknown: true } })
})

t.test('a budget of a guardrail holds', async t => {
  const { embed, guard } = await start(t)
  // In millionths of a dollar.
  await guard({ ...NO_RULES, limit: 50, resetInterval: 'daily' })
  t.equal((await embed({ input: 'x'.repeat(40) })).status, 200)
  const { status, document } = await embed({ input: 'x'.repeat(400) })
  t.equal(status, 403)
  t.match(document.error.message, /daily budget/)
})

t.test('the end user reaches the provider as a hash', async t => {
  const { provider, embed } = await start(t)
  await embed({ user: 'ann' })
  const user = String(provider.asked.at(-1)?.body['user'])
  t.ok(user.length > 10)
  t.notMatch(JSON.stringify(provider.asked.at(-1)?.body), /"ann"/)
  await embed({ session_id: 's', trace: { trace_id: 'x' }, provider: { sort: 'price' } })
  t.same(Object.keys(provider.asked.at(-1)?.body ?? {}).sort(), ['input', 'model'])
})

t.test('a session in the header is that of the record', async t => {
  const { embed, record } = await start(t)
  const answered = await embed({}, { headers: { 'x-session-id': 'from-header' } })
  t.match(await record(idOf(answered)), { session_id: 'from-header' })
})

t.test('a caller who leaves has one record, with what the provider bills', async t => {
  const { provider, gateway, record } = await start(t)
  provider.answer = () => () => undefined
  const asked = provider.nextAsked()
  const left = provider.nextLeft()
  const leave = new AbortController()
  const asking = fetch(`${gateway.url}/embeddings`, {
    method: 'POST',
    headers: { authorization: `Bearer ${gateway.apiKey}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'acme/vectors', input: 'x'.repeat(400) }),
    signal: leave.signal,
  })
  await asked
  leave.abort()
  await t.rejects(asking)
  await left
  const line = await lineOf(gateway, 'aborted')
  t.match(await record(String(line['id'])), {
    outcome: 'aborted',
    cancelled: true,
    accounting: 'estimated',
    tokens_prompt: 100,
    total_cost: 100e-6,
  })
})

/** Waits for the line of the next request that ended so. */
async function lineOf(gateway: TestGateway, outcome: string): Promise<Record<string, unknown>> {
  for (;;) {
    const line = gateway.lines.find(each => each['outcome'] === outcome)
    if (line !== undefined) return line
    await new Promise(resolve => setImmediate(resolve))
  }
}
