/** Batches that batch services run: the real runner, a real database, and the services of the simulated provider. */
import { createServer } from 'node:http'
import t from 'tap'
import type { SimLineFault } from '../../../src/apps/simulator/batch-jobs.ts'
import { BATCH_FORMATS } from '../../../src/protocol/provider.ts'
import { listening } from '../../support/listening.ts'
import { cancel, ends, liveCalls, startServed, textsOf } from './served-world.ts'

for (const format of BATCH_FORMATS) {
  t.test(`a batch is run by the service of a provider that speaks ${format}`, async t => {
    const { world, sim } = await startServed(t, format)
    const { id } = await world.put({ model: 'served/echo', lines: ['one', 'two', 'three'] })
    const batch = await ends(world, id, 'completed')
    t.match(batch, { total: 3, completed: 3, failed: 0, service: { provider: 'served' } })
    const results = await world.results(id)
    t.same(textsOf(results), ['one', 'two', 'three'])
    t.equal(liveCalls(sim), 0)
    t.equal(sim.batches.jobs.size, 1)
    const records = await world.records()
    t.same(
      records.map(record => record.id).sort(),
      results.map(({ document }) => document.response?.request_id).sort(),
    )
    // One word each way, at half of the prices.
    const record = {
      provider: 'served',
      accounting: 'exact',
      inputTokens: 1,
      outputTokens: 1,
      cost: 1_500_000,
    }
    t.match(records, Array(3).fill(record))
    t.match(batch.usage, {
      inputTokens: 3,
      outputTokens: 3,
      cost: '4500000',
      upstream: { prompt: '3000000', completions: '6000000' },
    })
    t.match(results[0]?.document.response?.body, { usage: { cost: 0.0000015 } })
    t.match(await world.store.batches.jobs.ofBatch(id), [
      { provider: 'served', credentialId: null, lines: 3 },
    ])
    await world.until(async () => (await world.store.batches.jobs.openJobs()).length === 0)
    const logged = world.lines.filter(({ route }) => route === 'batch/chat/completions')
    t.equal(logged.length, 3, 'one line of the log for each')
  })
}

t.test('each line has its own end: errors, gaps, repetitions, garbage, in any order', async t => {
  const served = await startServed(t)
  const faults: (SimLineFault | null)[] = [
    null,
    'error',
    'twice',
    'garbage',
    'foreign',
    'missing',
    'overloaded',
    null,
  ]
  served.fault = { line: at => faults[at] ?? null, reversed: true }
  const { world, sim } = served
  const { id } = await world.put({ model: 'served/echo', lines: faults.map((_, at) => `text ${at}`) })
  // What gave no result makes another job, at which all goes well.
  await world.reaches(id, 'in_progress')
  await world.until(() => sim.batches.jobs.size === 1, 100)
  served.fault = null
  const batch = await ends(world, id, 'completed')
  t.match(batch, { completed: 7, failed: 1 })
  const results = await world.results(id)
  t.same(
    textsOf(results).map((text, at) => text ?? results[at]?.document.error?.error_type),
    ['text 0', 'invalid_request', 'text 2', 'text 3', 'text 4', 'text 5', 'text 6', 'text 7'],
  )
  t.match(results[1]?.document.error, { message: 'Simulated failure', type: 'invalid_request_error' })
  t.equal(liveCalls(sim), 0)
  const jobs = await world.store.batches.jobs.ofBatch(id)
  t.same(
    jobs.map(({ lines }) => lines),
    [8, 3],
    'lines without a result make another job',
  )
  const records = await world.records()
  t.equal(records.filter(({ outcome }) => outcome === 'completed').length, 7)
  t.equal(new Set(records.map(record => record.id)).size, records.length)
})

t.test('a line that never gets a result fails after three tries', async t => {
  const served = await startServed(t)
  served.fault = { line: at => (at === 0 ? 'missing' : null) }
  const { world, sim } = served
  const { id } = await world.put({ model: 'served/echo', lines: ['gone', 'here'] })
  const batch = await ends(world, id, 'completed')
  t.match(batch, { completed: 1, failed: 1 })
  t.match((await world.results(id))[0]?.document.error, {
    message: 'The batch service gave no result for this request',
    error_type: 'provider_unavailable',
  })
  t.equal(sim.batches.jobs.size, 3)
})

t.test('what a service cannot run alone is run by the gateway, in the same batch', async t => {
  const { world, sim } = await startServed(t)
  const tool = { messages: [{ role: 'user', content: 'three' }], tools: [{ type: 'gateway:datetime' }] }
  const { id } = await world.put({ model: 'served/echo', lines: ['one', 'two', tool, 'four'] })
  t.match(await ends(world, id, 'completed'), { completed: 4, failed: 0 })
  t.same(textsOf(await world.results(id)), ['one', 'two', 'three', 'four'])
  t.equal(liveCalls(sim), 1)
  t.match(await world.store.batches.jobs.ofBatch(id), [{ lines: 3 }])
  const costs = (await world.records()).map(({ cost }) => cost).toSorted((a, b) => a - b)
  t.same(costs, [1_500_000, 1_500_000, 1_500_000, 3_000_000], 'at the prices of the gateway')
})

t.test('the gateway runs batches that may go to another provider too', async t => {
  const endpoints = ['served', 'acme'].map(provider => ({
    provider,
    upstreamModel: 'echo',
    format: 'openai-chat',
    pricing: { prompt: '0.000001', completion: '0.000002' },
  }))
  const { world, sim } = await startServed(t, 'openai-chat', {
    models: [{ id: 'both/echo', endpoints }] as never,
  })
  const both = await world.put({ model: 'both/echo', lines: ['one'] })
  t.equal((await ends(world, both.id, 'completed')).service, null)
  t.equal(sim.batches.jobs.size, 0)
  const only = { only: ['served'], allowFallbacks: true }
  const one = await world.put({
    model: 'both/echo',
    lines: ['one', { messages: [{ role: 'user', content: 'x' }], provider: { only: ['served'] } }],
    preferences: only,
  })
  t.match(await ends(world, one.id, 'completed'), { service: { provider: 'served' }, completed: 2 })
  t.equal(sim.batches.jobs.size, 1)
  const other = await world.put({
    model: 'both/echo',
    lines: ['one'],
    preferences: { ...only, only: ['acme'] },
  })
  t.equal((await ends(world, other.id, 'completed')).service, null)
})

t.test('a job that the service refuses or fails as a whole fails its lines with its error', async t => {
  for (const [fault, error] of [
    [{ status: 400 }, { error_type: 'invalid_request', message: 'Simulated failure' }],
    [{ status: 401 }, { error_type: 'provider_unavailable', message: /refused the gateway's key/ }],
    [{ end: 'failed' }, { error_type: 'invalid_request', message: 'Simulated failure' }],
  ] as const) {
    const served = await startServed(t)
    served.fault = fault
    const { id } = await served.world.put({ model: 'served/echo', lines: ['one', 'two'] })
    t.match(await ends(served.world, id, 'completed'), { completed: 0, failed: 2 })
    const results = await served.world.results(id)
    t.match(
      results.map(({ document }) => document.error),
      [error, error],
    )
    const records = await served.world.records()
    t.match(records, Array(2).fill({ outcome: 'failed', accounting: 'none', cost: 0 }))
    t.equal(liveCalls(served.sim), 0)
  }
})

t.test('a service that is down or busy is asked again until it takes the job', async t => {
  const FAULTS = [{ status: 503 }, { status: 429 }, { end: 'busy' }] as const
  const takesAfter = async (fault: (typeof FAULTS)[number]) => {
    const served = await startServed(t)
    served.fault = fault
    const { world, sim } = served
    const { id } = await world.put({ model: 'served/echo', lines: ['one', 'two'] })
    await world.reaches(id, 'in_progress')
    const asked = () =>
      sim.requests.filter(({ path, method }) => method === 'POST' && path === '/v1/batches').length
    // A third failure of a service that says nothing of waiting would be the last.
    await world.until(() => asked() >= ('status' in fault && fault.status === 503 ? 2 : 4), 500)
    t.same(await world.results(id), [])
    served.fault = null
    t.match(await ends(world, id, 'completed'), { completed: 2, failed: 0 })
    t.equal(liveCalls(sim), 0)
    t.equal((await world.records()).length, 2, 'waiting leaves no record')
  }
  await Promise.all(FAULTS.map(takesAfter))
})

t.test('after three jobs that the service did not get, the lines run as live requests', async t => {
  const served = await startServed(t)
  served.fault = { status: 503 }
  const { world, sim } = served
  const { id } = await world.put({ model: 'served/echo', lines: ['one', 'two'] })
  t.match(await ends(world, id, 'completed'), { completed: 2, failed: 0, service: { provider: 'served' } })
  t.same(textsOf(await world.results(id)), ['one', 'two'])
  t.equal(liveCalls(sim), 2)
  t.equal(sim.batches.jobs.size, 0)
  t.equal((await world.store.batches.jobs.ofBatch(id)).length, 3)
  const records = await world.records()
  t.equal(records.length, 2, 'each line once')
  const other = await world.put({
    model: 'served/echo',
    lines: ['three'],
    preferences: { only: null, allowFallbacks: false },
  })
  await world.until(async () => (await world.store.batches.jobs.ofBatch(other.id)).length >= 5, 100)
  t.equal(liveCalls(sim), 2, 'unless the batch has no fallbacks')
  served.fault = null
  t.match(await ends(world, other.id, 'completed'), { completed: 1 })
  t.equal(liveCalls(sim), 2)
})

t.test('polling a service that is away for a while changes nothing', async t => {
  const served = await startServed(t)
  const { world, sim } = served
  const { id } = await world.put({ model: 'served/echo', lines: ['one'] })
  await world.reaches(id, 'in_progress')
  await world.until(() => sim.batches.jobs.size === 1, 100)
  const port = Number(new URL(served.url).port)
  await sim.close()
  await world.until(
    () => world.lines.some(({ msg }) => msg === 'provider batch service is not answering'),
    100,
  )
  await sim.listen(port)
  t.match(await ends(world, id, 'completed'), { completed: 1 })
})

t.test('a cancelled batch is cancelled at its service, and has what had ended', async t => {
  for (const format of BATCH_FORMATS) {
    const served = await startServed(t, format)
    served.fault = { polls: Number.POSITIVE_INFINITY, done: 2 }
    const { world, sim } = served
    const { id } = await world.put({ model: 'served/echo', lines: ['one', 'two', 'three', 'four'] })
    await world.reaches(id, 'in_progress')
    await world.until(() => sim.batches.jobs.size === 1, 100)
    await cancel(world, id)
    t.match(await ends(world, id, 'cancelled'), { completed: 2, failed: 0 }, format)
    t.same(textsOf(await world.results(id)), ['one', 'two'])
    t.match([...sim.batches.jobs.values()], [{ end: 'cancelled' }])
    t.same(await world.store.batches.jobs.openJobs(), [])
    t.equal((await world.records()).length, 2)
  }
})

t.test('a batch that is cancelled before its job is made leaves nothing at the service', async t => {
  const { world, sim } = await startServed(t)
  const { id } = await world.put({ model: 'served/echo', lines: ['one', 'two'] })
  await world.reaches(id, 'in_progress')
  await cancel(world, id)
  t.match(await ends(world, id, 'cancelled'), { completed: 0, failed: 0 })
  t.equal(sim.batches.jobs.size, 0)
})

t.test('a batch that expires is cancelled at its service, and has what had ended', async t => {
  const served = await startServed(t)
  served.fault = { polls: Number.POSITIVE_INFINITY, done: 1 }
  const { world, sim } = served
  const expiresAt = new Date(world.clock.nowMs() + 120_000).toISOString()
  const { id } = await world.put({ model: 'served/echo', lines: ['one', 'two', 'three'], expiresAt })
  t.match(await ends(world, id, 'expired'), { completed: 1, failed: 0 })
  t.same(textsOf(await world.results(id)), ['one'])
  t.match([...sim.batches.jobs.values()], [{ end: 'cancelled' }])
})

t.test('lines that a service did not run in its own time fail as too late', async t => {
  const served = await startServed(t)
  served.fault = { end: 'expired', done: 1 }
  const { world } = served
  const { id } = await world.put({ model: 'served/echo', lines: ['one', 'two'] })
  t.match(await ends(world, id, 'completed'), { completed: 1, failed: 1 })
  t.match((await world.results(id))[1]?.document.error, {
    error_type: 'timeout',
    message: 'The batch service did not run this request in time',
  })
})

t.test('a service that never answers is given up some time after the end of the batch', async t => {
  const served = await startServed(t)
  served.fault = { polls: Number.POSITIVE_INFINITY }
  const { world, sim } = served
  const { id } = await world.put({ model: 'served/echo', lines: ['one'] })
  await world.reaches(id, 'in_progress')
  await world.until(() => sim.batches.jobs.size === 1, 100)
  await sim.close()
  const startMs = world.clock.nowMs()
  await cancel(world, id)
  await world.until(async () => (await world.batch(id)).status === 'cancelled', 1_000)
  t.ok(world.clock.nowMs() - startMs >= 900_000)
  t.match(
    world.lines.find(({ msg }) => msg === 'provider batch job finished'),
    { outcome: 'given_up' },
  )
})

t.test('large batches make several jobs, none too large', async t => {
  const { world, sim } = await startServed(t)
  const text = 'x'.repeat(3 * 1024 * 1024)
  const { id } = await world.put({
    model: 'served/echo',
    lines: Array.from({ length: 8 }, (_, at) => `${at} ${text}`),
  })
  t.match(await ends(world, id, 'completed'), { completed: 8, failed: 0 })
  const sizes = [...sim.batches.jobs.values()].map(({ lines }) => lines.length)
  t.equal(
    sizes.reduce((sum, size) => sum + size, 0),
    8,
  )
  t.ok(
    sizes.every(size => size <= 5),
    `${sizes}`,
  )
  t.equal(liveCalls(sim), 0)
})

t.test('a service that takes jobs and never answers does not hold up those of other services', async t => {
  let asked = 0
  const stuck = createServer(() => asked++)
  const { port } = await listening(stuck, t)
  const format = 'openai-chat'
  const { world } = await startServed(t, format, {
    providers: [
      {
        slug: 'stuck',
        name: 'Stuck',
        format,
        baseUrl: `http://127.0.0.1:${port}/v1`,
        apiKey: 'shared-key',
        batch: true,
      },
    ] as never,
    models: [
      { id: 'stuck/echo', endpoints: [{ provider: 'stuck', upstreamModel: 'echo', format }] },
    ] as never,
  })
  for (const line of ['one', 'two', 'three']) await world.put({ model: 'stuck/echo', lines: [line] })
  await world.until(() => asked > 0, 100)
  const { id } = await world.put({ model: 'served/echo', lines: ['other'] })
  t.match(await ends(world, id, 'completed'), { completed: 1 })
  t.equal(asked, 1)
})
