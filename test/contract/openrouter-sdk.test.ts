/** The official client of the interface whose names ours follow, with nothing set but base URL and key. */
import { OpenRouter } from '@openrouter/sdk'
import t from 'tap'
import { startGateway } from '../support/gateway.ts'

const gateway = await startGateway({
  providers: [{ slug: 'down', format: 'openai-chat', baseUrl: 'http://127.0.0.1:9/v1', apiKey: 'k' }],
  models: [
    { id: 'x/second', endpoints: [{ provider: 'down' }, { provider: 'sim', upstreamModel: 'echo' }] },
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
    message: /sim\/echo makes text/,
  })
})
