/** The official client of the interface whose names ours follow, with nothing set but base URL and key. */
import { OpenRouter } from '@openrouter/sdk'
import t from 'tap'
import { startGateway } from '../support/gateway.ts'

/** A price in tiers, and one of everything that can have a price. */
const TIERED = {
  prompt: '0.000001',
  completion: '0.000002',
  image: '0.001',
  audio: '0.000003',
  internalReasoning: '0.000004',
  inputCacheWrite1h: '0.000005',
  overrides: [{ minPromptTokens: 200_000, prompt: '0.000006' }],
}

const gateway = await startGateway({
  providers: [{ slug: 'down', format: 'openai-chat', baseUrl: 'http://127.0.0.1:9/v1', apiKey: 'k' }],
  models: [
    { id: 'x/second', endpoints: [{ provider: 'down' }, { provider: 'sim', upstreamModel: 'echo' }] },
    {
      id: 'tiers/long',
      contextLength: 400_000,
      endpoints: [
        {
          provider: 'sim',
          upstreamModel: 'echo',
          region: 'us',
          zdr: true,
          serviceTier: 'flex',
          pricing: TIERED,
        },
      ],
    },
    {
      id: 'x/vectors',
      outputModalities: ['embeddings'],
      endpoints: [{ provider: 'sim', upstreamModel: 'embed' }],
    },
  ],
})
t.teardown(() => gateway.close())
const client = (apiKey: string) =>
  new OpenRouter({ apiKey, serverURL: gateway.url, retryConfig: { strategy: 'none' } })
const caller = client(gateway.apiKey)
const manager = client(gateway.managementKey)

t.test('a key reads what it may do', async t => {
  const { data } = await caller.apiKeys.getCurrentKeyMetadata()
  t.same(data.allowedDataRegions, ['global', 'europe', 'us'])
  t.match(data.freeModelDailyRequests, { used: 0 })
})

t.test('a generation is read, with its failed attempts', async t => {
  const reply = await gateway.respond({ model: 'x/second', input: 'hi' })
  const { id } = (await reply.json()) as { id: string }
  await gateway.shipper.ship()
  const { data } = await caller.generations.getGeneration({ id })
  t.match(data, { id, model: 'x/second', dataRegion: 'global' })
  t.equal(data.providerResponses?.length, 2)
})

t.test('workspaces are created and listed', async t => {
  const made = await manager.workspaces.create({
    createWorkspaceRequest: { name: 'Blue', slug: 'blue' },
  })
  t.match(made.data, { slug: 'blue', createdBy: null, isObservabilityBroadcastEnabled: false })
  const slugs: string[] = []
  for await (const page of await manager.workspaces.list()) {
    slugs.push(...page.result.data.map(workspace => workspace.slug))
  }
  t.ok(slugs.includes('blue'))
})

t.test('models are listed, counted and read', async t => {
  t.equal((await caller.models.get({ author: 'sim', slug: 'echo' })).data.id, 'sim/echo')
  const { count } = (await caller.models.count()).data
  let listed = 0
  for await (const page of await caller.models.list({ limit: 7 })) listed += page.result.data.length
  t.equal(listed, count)
  t.ok((await caller.endpoints.listZdrEndpoints()).data.length > 0)
})

t.test('every filter and order of models is understood, and endpoints are read', async t => {
  const { result } = await caller.models.list({
    sort: 'pricing-low-to-high',
    outputModalities: 'all',
    inputModalities: 'text',
    supportedParameters: 'tools',
    modelAuthors: 'tiers',
    providers: 'sim',
    context: 1,
    minPrice: 0,
    maxPrice: 10,
    minOutputPrice: 0,
    maxOutputPrice: 10,
    minAgeDays: 0,
    maxAgeDays: 100_000,
    zdr: 'true',
    region: 'us',
    q: 'long',
  })
  t.match(result.data, [
    {
      id: 'tiers/long',
      pricing: TIERED,
    },
  ])
  t.equal(result.data.length, 1)
  for (const sort of [
    'throughput-high-to-low',
    'latency-low-to-high',
    'coding-high-to-low',
    'newest',
  ] as const)
    t.ok((await caller.models.list({ sort, limit: 1 })).result.data.length === 1, sort)
  const { data } = await caller.endpoints.list({ author: 'tiers', slug: 'long' })
  t.match(data.endpoints, [
    { tag: 'sim/us/flex', modelId: 'tiers/long', uptimeLast30m: null, latencyLast30m: null },
  ])
  t.ok((await caller.models.listForUser({ bearer: gateway.apiKey })).result.data.length > 1)
})

t.test('embeddings are generated, and their models listed', async t => {
  const texts = await caller.embeddings.generate({
    requestBody: { model: 'sim/embed', input: ['one', 'two'], inputType: 'search_query', sessionId: 's' },
  })
  t.match(texts, {
    model: 'sim/embed',
    data: [{ index: 0 }, { index: 1 }],
    usage: { promptTokens: 2, isByok: false },
  })
  const ids = await caller.embeddings.generate({
    requestBody: { model: 'x/vectors', input: [1, 2, 3], encodingFormat: 'base64' },
  })
  t.match(ids, { data: [{ embedding: String }] })
  const listed: string[] = []
  for await (const page of await caller.embeddings.listModels()) {
    listed.push(...page.result.data.map(({ id }) => id))
  }
  t.same(listed.sort(), ['sim/embed', 'x/vectors'])
  await t.rejects(caller.embeddings.generate({ requestBody: { model: 'sim/echo', input: 'x' } }), {
    message: /sim\/echo generates text/,
  })
})
