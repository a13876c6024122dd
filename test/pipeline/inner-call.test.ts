/** Questions of the gateway itself: a real catalogue and client, a scripted provider. */
import t, { type Test } from 'tap'
import { systemClock } from '../../src/base/clock.ts'
import { GatewayError } from '../../src/base/errors.ts'
import { createLog } from '../../src/base/log/log.ts'
import { createMetrics } from '../../src/base/metrics/metrics.ts'
import { mergeGuardrails, type PolicyRestrictions } from '../../src/features/guardrails/policy.ts'
import { createAsk } from '../../src/pipeline/inner-call.ts'
import { type Restrictions, restrictionsOf } from '../../src/pipeline/routing/restrictions.ts'
import type { Caller } from '../../src/protocol/records.ts'
import { createCatalog } from '../../src/providers/catalog.ts'
import { createDirectTransport } from '../../src/providers/upstream/client/direct-transport.ts'
import { SERVICE_ORGANIZATION_ID, type UsageRecord } from '../../src/storage/usage.ts'
import { ScriptedProvider, type ScriptedReply } from '../support/provider.ts'
import { TestClock } from '../support/test-clock.ts'
import { plainCalls } from './routing.ts'

const CALLER: Caller = { keyHash: 'k', organizationId: 'o', workspaceId: 'w', memberId: null, limit: null }

async function start(t: Test, ...replies: ScriptedReply[]) {
  const provider = new ScriptedProvider()
  const baseUrl = await provider.listen()
  provider.script('side', replies)
  const clock = new TestClock()
  const log = createLog('silent', { write: () => undefined })
  const client = createDirectTransport({ clock: systemClock, log })
  const records: UsageRecord[] = []
  const endpoint = { provider: 'acme', upstreamModel: 'side', pricing: { prompt: '1', completion: '1' } }
  const world: { restrictions: Restrictions | null } = { restrictions: null }
  const guarded: Caller[] = []
  const ask = createAsk({
    guard: {
      restrictions(caller) {
        guarded.push(caller)
        return world.restrictions
      },
    },
    catalog: createCatalog({
      providers: [{ slug: 'acme', name: 'Acme', format: 'openai-chat', baseUrl, apiKey: 'x' }],
      models: [
        {
          id: 'acme/side',
          name: 'Side',
          endpoints: [endpoint, { ...endpoint, upstreamModel: 'kept', zdr: true }],
        },
      ],
      onAbort: 'cancel',
    }),
    ...plainCalls(clock, records),
    client,
    clock,
    log,
    metrics: createMetrics(),
  })
  t.teardown(async () => {
    await client.close()
    await provider.close()
  })
  const parent = new AbortController()
  const terms = {
    parent: {
      id: 'gen-1-parent',
      caller: CALLER,
      signal: parent.signal,
      held: { bytes: 0, count: () => true },
    },
    deadlineMs: 1_000,
  }
  const asking = () => ask({ model: 'acme/side', input: 'Hi' }, terms)
  return { provider, clock, records, parent, world, guarded, ask: asking }
}

t.test('an answer comes whole, and is accounted to the service', async t => {
  const { ask, clock, records } = await start(t, { text: 'Hello' })
  t.match(await ask(), { status: 'completed', output: [{ content: [{ text: 'Hello' }] }] })
  t.match(records, [
    {
      organizationId: SERVICE_ORGANIZATION_ID,
      keyHash: '',
      workspaceId: null,
      parent: 'gen-1-parent',
      model: 'acme/side',
      outcome: 'completed',
      inputTokens: 7,
    },
  ])
  t.equal(clock.armed, 0, 'no deadline is left behind')
})

t.test('a failure of the provider is thrown', async t => {
  const { ask, records } = await start(t, { status: 500 })
  await t.rejects(ask(), { code: 'provider_unavailable' })
  t.match(records, [{ outcome: 'failed', accounting: 'none' }])
})

t.test('after its deadline the question is given up', async t => {
  const { ask, clock, provider, records } = await start(t, { hangs: true })
  const asking = ask()
  await provider.until(({ asked }) => asked.length === 1)
  clock.advance(1_000)
  await t.rejects(asking, { code: 'deadline_exceeded' })
  await provider.until(({ left }) => left === 1)
  t.match(records, [{ outcome: 'failed', error: 'deadline_exceeded' }])
})

t.test('it ends with the exchange it is asked for', async t => {
  const { ask, clock, parent, provider, records } = await start(t, { hangs: true })
  const gone = new GatewayError('client_closed', 'gone')
  const asking = ask()
  await provider.until(({ asked }) => asked.length === 1)
  parent.abort(gone)
  await t.rejects(asking, gone)
  await provider.until(({ left }) => left === 1)
  await t.rejects(ask(), gone)
  t.equal(provider.asked.length, 1, 'what is over asks nothing')
  t.equal(records.length, 2)
  t.equal(clock.armed, 0)
})

t.test('it goes only where guardrails let the data of the caller go it is asked for', async t => {
  const { ask, provider, world, guarded, records } = await start(t)
  provider.script('kept', [{ text: 'Hello' }])
  const ruled = (rules: Partial<PolicyRestrictions>) =>
    restrictionsOf({ ...mergeGuardrails([]).restrictions, ...rules })
  world.restrictions = ruled({ paidModelTraining: false, allowedModels: ['acme/other'] })
  t.match(await ask(), { status: 'completed' })
  t.same(
    provider.asked.map(({ model }) => model),
    ['kept'],
  )
  t.same(guarded, [CALLER])
  t.match(records, [{ organizationId: SERVICE_ORGANIZATION_ID }])
  world.restrictions = ruled({ ignoredProviders: ['acme'] })
  await t.rejects(ask(), { code: 'permission_denied', message: /guardrail:ignored_providers/ })
  t.equal(provider.asked.length, 1)
})
