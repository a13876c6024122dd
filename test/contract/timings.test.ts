/** Where the time of an exchange went, as a client that asks for it and as Prometheus see it. */
import t from 'tap'
import { SIM_SLUG, simModel } from '../../src/apps/simulator/rows.ts'
import { STAGES } from '../../src/base/metrics/stages.ts'
import { parseEventStream, startGateway, type TestGateway } from '../support/gateway.ts'
import { parseScrape } from '../support/metrics.ts'
import { ScriptedProvider } from '../support/provider.ts'

const ASKING = { headers: { 'x-gateway-metadata': 'enabled' } }
const SLOW = simModel('fail-slow-first-token-50', 'openai-chat')
const FALLING_BACK = {
  ...simModel('echo', 'openai-chat'),
  id: `${SIM_SLUG}/second-is-better`,
  endpoints: ['fail-status-503', 'echo'].flatMap(name => simModel(name, 'openai-chat').endpoints),
}

interface Metadata {
  readonly timings_ms: Readonly<Record<string, number>>
}

function metadataIn(events: readonly { readonly type: string }[]): Metadata | undefined {
  const last = events.at(-1) as { response?: { gateway_metadata?: Metadata } } | undefined
  return last?.response?.gateway_metadata
}

async function stageSeconds(gateway: TestGateway): Promise<Map<string, { count: number; sum: number }>> {
  const samples = parseScrape(await gateway.serving.metrics.registry.metrics())
  const value = (name: string, stage: string) =>
    samples.find(sample => sample.name === name && sample.labels['stage'] === stage)?.value ?? 0
  return new Map(
    STAGES.map(stage => [
      stage,
      {
        count: value('gateway_overhead_seconds_count', stage),
        sum: value('gateway_overhead_seconds_sum', stage),
      },
    ]),
  )
}

t.test('stage timings', async t => {
  const gateway = await startGateway({ models: [SLOW, FALLING_BACK] })
  t.teardown(() => gateway.close())
  const finished = async (count: number) => {
    // The last stage is over a moment after the client has read the end.
    while (gateway.lines.filter(line => line['msg'] === 'exchange').length < count)
      await new Promise(resolve => setImmediate(resolve))
  }
  let exchanges = 0

  await t.test('a stream tells every stage that it has left, in milliseconds', async t => {
    const started = performance.now()
    const reply = await gateway.respond({ model: SLOW.id, input: 'Hi', stream: true }, ASKING)
    const timings = metadataIn(parseEventStream(await reply.text()))?.timings_ms ?? {}
    const wholeMs = performance.now() - started
    await finished(++exchanges)
    t.same(
      Object.keys(timings),
      STAGES.filter(
        stage =>
          !['queue', 'guard', 'admit', 'failover', 'judge', 'tools'].includes(stage) && stage !== 'flush',
      ),
    )
    for (const [stage, ms] of Object.entries(timings)) {
      t.ok(ms >= 0 && ms < wholeMs, `${stage} ${ms}`)
      t.match(String(ms), /^\d+(\.\d{1,3})?$/)
    }
    // How much of the wait is in which of the two, is up to when we came to read the provider's headers.
    const { upstream_first_byte = 0, first_token = 0 } = timings
    t.ok(upstream_first_byte + first_token >= 45, 'the provider let us wait for the first token')
    const sum = Object.values(timings).reduce((total, ms) => total + ms, 0)
    t.ok(sum <= wholeMs)
    t.ok(sum >= 45)
    t.equal(reply.headers.get('server-timing'), null, 'a stream has sent its headers by then')
  })

  await t.test('a whole answer has them as a header as well', async t => {
    const reply = await gateway.respond({ model: 'sim/echo', input: 'Hi' }, ASKING)
    const { gateway_metadata } = (await reply.json()) as { gateway_metadata: Metadata }
    await finished(++exchanges)
    const header = reply.headers.get('server-timing') ?? ''
    const told = Object.fromEntries(
      header.split(', ').map(entry => {
        const [, stage = '', ms] = /^([a-z_]+);dur=([\d.]+)$/.exec(entry) ?? []
        return [stage, Number(ms)]
      }),
    )
    t.same(told, gateway_metadata.timings_ms)
    t.ok('auth' in told && 'route' in told && 'upstream_first_byte' in told)
  })

  await t.test('without the metadata header nothing is told', async t => {
    const reply = await gateway.respond({ model: 'sim/echo', input: 'Hi' })
    t.equal(reply.headers.get('server-timing'), null)
    t.notMatch(await reply.text(), 'timings_ms')
    const stream = await gateway.respond({ model: 'sim/echo', input: 'Hi', stream: true })
    t.notMatch(await stream.text(), 'timings_ms')
    exchanges += 2
    await finished(exchanges)
  })

  await t.test('what a failed first attempt took is failover', async t => {
    const reply = await gateway.respond({ model: FALLING_BACK.id, input: 'Hi', stream: true }, ASKING)
    const timings = metadataIn(parseEventStream(await reply.text()))?.timings_ms ?? {}
    await finished(++exchanges)
    t.ok((timings['failover'] ?? 0) > 0)
  })

  await t.test('a failure tells how far the exchange came', async t => {
    const reply = await gateway.respond({ model: 'sim/chat-fail-status', input: 'Hi' }, ASKING)
    t.equal(reply.status, 502)
    const { gateway_metadata } = (await reply.json()) as { gateway_metadata: Metadata }
    await finished(++exchanges)
    t.ok('upstream_first_byte' in gateway_metadata.timings_ms)
    t.notOk('first_token' in gateway_metadata.timings_ms)
  })

  await t.test('each exchange is observed once per stage, and its stages add up to its duration', async t => {
    await gateway.respond({ model: 'no/such', input: 'Hi' }).then(reply => reply.text())
    await gateway.respond({ model: 1 }).then(reply => reply.text())
    exchanges += 2
    await finished(exchanges)
    const stages = await stageSeconds(gateway)
    const VALID = exchanges - 1
    t.equal(stages.get('parse')?.count, VALID, 'a request that is not valid is no exchange')
    t.equal(stages.get('auth')?.count, VALID)
    t.equal(stages.get('route')?.count, VALID)
    t.equal(stages.get('encode')?.count, VALID - 1, 'one found no model')
    t.equal(stages.get('failover')?.count, 1)
    t.equal(stages.get('flush')?.count, VALID - 2, 'and one failed before the end')
    const all = [...stages.values()].reduce((total, { sum }) => total + sum, 0)
    const lines = gateway.lines.filter(
      line => line['msg'] === 'exchange' && line['error'] !== 'invalid_request',
    )
    const durations = lines.reduce((total, line) => total + Number(line['durationMs']), 0)
    // The log rounds to a tenth of a millisecond.
    t.ok(Math.abs(all * 1000 - durations) <= 0.05 * lines.length + 0.001, `${all * 1000} and ${durations}`)
  })
})

t.test('each plugin has a figure of its own for the exchanges in which it had something to do', async t => {
  const provider = new ScriptedProvider()
  const endpoint = (upstreamModel: string) => ({
    provider: 'acme',
    upstreamModel,
    supportedParameters: ['response_format'],
    pricing: { prompt: '0', completion: '0' },
  })
  const gateway = await startGateway({
    providers: [
      {
        slug: 'acme',
        name: 'Acme',
        format: 'openai-chat',
        baseUrl: await provider.listen(),
        apiKey: 'x',
      },
    ],
    models: [
      { id: 'acme/model', name: 'Model', endpoints: [endpoint('model')] },
      { id: 'acme/small', name: 'Small', contextLength: 2_048, endpoints: [endpoint('small')] },
    ],
  })
  t.teardown(async () => {
    await gateway.close()
    await provider.close()
  })
  const ask = async (body: object, status = 200) => {
    for (const model of ['model', 'small']) provider.script(model, [{ text: '{a: 1}' }])
    const reply = await gateway.respond({ model: 'acme/model', input: 'Hi', ...body })
    t.equal(reply.status, status, await reply.text())
  }
  const counts = async () => {
    const samples = parseScrape(await gateway.serving.metrics.registry.metrics())
    return Object.fromEntries(
      samples
        .filter(({ name }) => name === 'gateway_plugin_seconds_count')
        .map(({ labels, value }) => [labels['plugin'], value]),
    )
  }
  const object = { text: { format: { type: 'json_object' } } }

  await t.test('none for a request without plugins, nor where they find nothing to do', async t => {
    await ask({})
    // Context compression is on for a model with so small a context.
    await ask({ model: 'acme/small' })
    await ask({ plugins: [{ id: 'response-healing' }] })
    await ask({ plugins: [{ id: 'file-parser' }] })
    t.same(await counts(), {})
  })

  await t.test('one for each exchange that it worked on', async t => {
    for (let at = 0; at < 2; at++) await ask({ ...object, plugins: [{ id: 'response-healing' }] })
    t.same(await counts(), { 'response-healing': 2 })
    const input = Array.from({ length: 30 }, () => ({ role: 'user', content: 'word '.repeat(100) }))
    await ask({ model: 'acme/small', input, plugins: [{ id: 'context-compression' }, { id: 'web-fetch' }] })
    await ask({ model: 'gateway/free' })
    t.same(await counts(), { 'response-healing': 2, 'context-compression': 1, 'web-fetch': 1, free: 1 })
  })

  await t.test('one for a request that it refused', async t => {
    await ask({ plugins: [{ id: 'moderation' }] }, 400)
    t.match(await counts(), { moderation: 1 })
  })
})
