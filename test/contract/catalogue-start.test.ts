/** The catalogue of a started gateway: lists of providers, imports, and changes while it runs. */
import { execFile } from 'node:child_process'
import { rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import t, { type Test } from 'tap'
import { createSim, type Sim } from '../../src/apps/simulator/simulator.ts'
import { type GatewayProcess, startGatewayProcess } from '../support/gateway-process.ts'
import { CLI, PRODUCT_ENVIRONMENT, PRODUCT_FLAGS } from '../support/product.ts'
import { eventually } from '../support/stream-probe.ts'
import { tempFolder } from '../support/temp-folder.ts'

const PATIENCE_MS = 30_000

async function sim(
  t: Test,
  options: Parameters<typeof createSim>[0] = {},
): Promise<{ sim: Sim; url: string }> {
  const sim = createSim(options)
  t.teardown(() => sim.close())
  return { sim, url: (await sim.listen()).url }
}

function settings(more: Record<string, unknown>): Record<string, unknown> {
  const folder = tempFolder('sluice-catalogue')
  return { storage: { url: `sqlite:${folder}/gateway.db` }, ...more }
}

async function ids({ url, apiKey }: GatewayProcess): Promise<string[]> {
  const reply = await fetch(`${url}/v1/models?output_modalities=all`, {
    headers: { authorization: `Bearer ${apiKey}` },
  })
  const { data } = (await reply.json()) as { data: { id: string }[] }
  return data.map(({ id }) => id)
}

async function ask({ url, apiKey }: GatewayProcess, body: Record<string, unknown>) {
  const reply = await fetch(`${url}/v1/responses`, {
    method: 'POST',
    headers: { authorization: `Bearer ${apiKey}`, 'content-type': 'application/json' },
    body: JSON.stringify({ input: 'hi', ...body }),
  })
  const document = (await reply.json()) as Record<string, Record<string, unknown>>
  return { status: reply.status, usage: document['usage'], document }
}

t.test('with one key and an address, a model of the provider answers with its price', async t => {
  const { sim: provider, url } = await sim(t)
  const gateway = await startGatewayProcess(
    t,
    settings({ providers: [{ slug: 'openai', baseUrl: `${url}/v1` }] }),
    {
      OPENAI_API_KEY: 'one-key',
    },
  )
  // A provider that was never asked before is asked before the gateway listens, but not waited for for long.
  t.ok(await eventually(async () => (await ids(gateway)).includes('openai/echo'), PATIENCE_MS))
  const { status, usage } = await ask(gateway, { model: 'openai/echo' })
  t.equal(status, 200)
  t.match(usage, {
    input_tokens: 1,
    output_tokens: 1,
    cost: 5e-7,
    cost_details: { upstream_inference_input_cost: 1e-7, upstream_inference_output_cost: 4e-7 },
  })
  t.notOk('price_unknown' in Object(usage?.['cost_details']))
  const unpriced = await ask(gateway, { model: 'openai/refuse' })
  t.match(
    unpriced.usage,
    { cost: 0, cost_details: { price_unknown: true } },
    'what nobody told stays unknown',
  )
  t.ok((await ids(gateway)).includes('openai/embed'))
  t.equal(
    provider.requests.find(({ path }) => path === '/v1/models')?.headers.authorization,
    'Bearer one-key',
  )
})

t.test('lists of providers outlive a restart, and follow the provider', async t => {
  let models = [{ id: 'echo', prices: null, contextLength: null as number | null }]
  const { sim: provider, url } = await sim(t, { models: () => models })
  const file = settings({
    providers: [{ slug: 'acme', format: 'openai-chat', baseUrl: url, apiKey: 'k' }],
    catalogue: { refreshMs: 1_000 },
  })
  const gateway = await startGatewayProcess(t, file)
  t.same(await ids(gateway), ['acme/echo'])
  models = [...models, { id: 'echo-2', prices: null, contextLength: 4_096 }]
  t.ok(await eventually(async () => (await ids(gateway)).includes('acme/echo-2'), PATIENCE_MS))
  models = []
  await gateway.stop()
  await provider.close()
  const again = await startGatewayProcess(t, file)
  t.same(await ids(again), ['acme/echo', 'acme/echo-2'], 'from the store: the provider is away')
})

t.test('a file of models is imported beside a running gateway', async t => {
  const { url } = await sim(t)
  const file = settings({
    providers: [{ slug: 'acme', format: 'openai-chat', baseUrl: url, apiKey: 'k' }],
    models: [{ id: 'many/*', endpoints: [{ provider: 'acme' }] }],
    defaultModel: 'many/echo',
  })
  const gateway = await startGatewayProcess(t, file)
  t.same(await ids(gateway), [], 'a star is no model')
  t.match((await ask(gateway, { model: 'many/echo' })).usage, {
    cost: 0,
    cost_details: { price_unknown: true },
  })
  t.match((await ask(gateway, { model: 'many/nothing' })).status, 502, 'the provider does not know it')
  t.match((await ask(gateway, {})).document, { model: 'many/echo' }, 'the default model')
  const folder = t.testdir({
    'gateway.yaml': JSON.stringify(file),
    'models.json': JSON.stringify({
      data: [
        {
          id: 'many/echo',
          name: 'Echo',
          created: 7,
          pricing: { prompt: '0.000001', completion: '0.000002' },
        },
        { id: 'acme/echo', pricing: { prompt: '0.000003', completion: '0' } },
        { id: 'nobody/echo', pricing: { prompt: '0.001', completion: '0.001' } },
      ],
    }),
    'bad.json': '{"data":[{"id":"no slash"}]}',
  })
  const run = promisify(execFile)
  const words = [...PRODUCT_FLAGS, CLI, 'models', 'import']
  const config = ['--config', join(folder, 'gateway.yaml')]
  const { stdout, stderr } = await run(process.execPath, [...words, join(folder, 'models.json'), ...config], {
    env: PRODUCT_ENVIRONMENT,
  })
  t.match(stdout, 'imported 3 models; 2 of them have a provider here')
  t.match(stderr, '3 models read, 3 of them with prices')
  t.ok(await eventually(async () => (await ids(gateway)).length === 2, PATIENCE_MS))
  t.same(await ids(gateway), ['many/echo', 'acme/echo'])
  t.match((await ask(gateway, { model: 'many/echo' })).usage, { cost: 0.000003 })
  t.match((await ask(gateway, { model: 'acme/echo' })).usage, { cost: 0.000003 })
  const refused = await run(process.execPath, [...words, join(folder, 'bad.json'), ...config], {
    env: PRODUCT_ENVIRONMENT,
  }).catch((error: { code: number; stderr: string }) => error)
  t.match(refused, { code: 1, stderr: /bad\.json: data\[0\]\.id: expected the form author\/name/ })
})

t.test(
  'a key in a file is replaced while a stream runs, which goes on; a file that is gone changes nothing',
  async t => {
    const { sim: provider, url } = await sim(t)
    const key = join(tempFolder('sluice-key'), 'acme.key')
    writeFileSync(key, 'first-key\n', { mode: 0o600 })
    const model = (id: string, upstreamModel: string) => ({
      id,
      endpoints: [{ provider: 'acme', upstreamModel }],
    })
    const gateway = await startGatewayProcess(
      t,
      settings({
        providers: [{ slug: 'acme', format: 'openai-chat', baseUrl: url, apiKeyFile: key }],
        models: [model('acme/echo', 'echo'), model('acme/slow', 'write-40-50')],
      }),
    )
    const isUsed = async (expected: string): Promise<boolean> => {
      if ((await ask(gateway, { model: 'acme/echo' })).status !== 200) return false
      return provider.requests.at(-1)?.headers.authorization === `Bearer ${expected}`
    }
    t.ok(await isUsed('first-key'))
    const stream = await fetch(`${gateway.url}/v1/responses`, {
      method: 'POST',
      headers: { authorization: `Bearer ${gateway.apiKey}`, 'content-type': 'application/json' },
      body: JSON.stringify({ model: 'acme/slow', stream: true, input: 'go' }),
    })
    const text = stream.text()
    writeFileSync(key, 'second-key\n')
    t.ok(await eventually(() => isUsed('second-key'), PATIENCE_MS))
    t.match(await text, /event: response\.completed/, 'the stream with the old key ends in order')
    rmSync(key)
    const told = 'configuration not reloaded: providers[0].apiKeyFile: cannot be read (ENOENT)'
    t.ok(await eventually(async () => gateway.stdout().includes(told), PATIENCE_MS))
    t.ok(await isUsed('second-key'))
    t.equal(gateway.stdout().includes('-key'), false, 'no key is logged')
    t.equal(await gateway.stop(), 0)
  },
)

t.test('providers and models change while a stream runs; a faulty file changes nothing', async t => {
  const { url } = await sim(t)
  const provider = { slug: 'acme', format: 'openai-chat', baseUrl: url, apiKey: 'k' }
  const model = (id: string) => ({ id, endpoints: [{ provider: 'acme', upstreamModel: 'echo' }] })
  const file = settings({
    providers: [provider],
    models: [{ id: 'acme/slow', endpoints: [{ provider: 'acme', upstreamModel: 'write-40-50' }] }],
  })
  const gateway = await startGatewayProcess(t, file)
  const reloaded = () => gateway.metric('gateway_config_last_reload_successful')
  const loadedAt = () => gateway.metric('gateway_config_last_reload_success_timestamp_seconds')
  const startedAt = await loadedAt()
  t.equal(await reloaded(), 1, 'the start counts')
  t.ok(Math.abs(Date.now() / 1000 - Number(startedAt)) < PATIENCE_MS / 1000)
  const stream = await fetch(`${gateway.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${gateway.apiKey}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'acme/slow', stream: true, messages: [{ role: 'user', content: 'go' }] }),
  })
  const text = stream.text()
  writeFileSync(gateway.configFile, JSON.stringify({ ...file, models: [model('acme/new')] }))
  t.ok(
    await eventually(async () => (await ids(gateway)).join() === 'acme/new', PATIENCE_MS),
    'seen by polling',
  )
  t.equal((await ask(gateway, { model: 'acme/new' })).status, 200)
  t.equal((await ask(gateway, { model: 'acme/slow' })).status, 400)
  t.match(await text, /data: \[DONE\]\s*$/, 'the stream of the removed model ends in order')
  writeFileSync(gateway.configFile, JSON.stringify({ ...file, models: [{ ...model('acme/bad'), oops: 1 }] }))
  process.kill(gateway.pid, 'SIGHUP')
  t.ok(
    await eventually(
      async () => gateway.stdout().includes('configuration not reloaded: models[0].oops: unknown setting'),
      PATIENCE_MS,
    ),
  )
  t.same(await ids(gateway), ['acme/new'])
  t.equal(await reloaded(), 0)
  const takenAt = Number(await loadedAt())
  t.ok(takenAt > Number(startedAt), 'the time of the reload before')
  for (const [spoil, fault] of [
    [() => writeFileSync(gateway.configFile, ''), 'is empty'],
    [() => rmSync(gateway.configFile), 'cannot be read (ENOENT)'],
  ] as const) {
    spoil()
    const told = `gateway.yaml: ${fault}`
    t.ok(await eventually(async () => gateway.stdout().includes(told), PATIENCE_MS), fault)
    t.same(await ids(gateway), ['acme/new'], fault)
    t.equal(await reloaded(), 0, fault)
  }
  writeFileSync(
    gateway.configFile,
    JSON.stringify({ ...file, models: [model('acme/third')], timeouts: { requestMs: 5_000 } }),
  )
  process.kill(gateway.pid, 'SIGHUP')
  t.ok(await eventually(async () => (await ids(gateway)).join() === 'acme/third', PATIENCE_MS))
  // The new catalogue serves before the line is written.
  const told = /"needRestart":"timeouts".*configuration reloaded/
  t.ok(await eventually(() => told.test(gateway.stdout()), PATIENCE_MS), 'the log tells it')
  t.equal(await reloaded(), 1)
  t.ok(Number(await loadedAt()) > takenAt)
  t.equal(await gateway.stop(), 0)
})
