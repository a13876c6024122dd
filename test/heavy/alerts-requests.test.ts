/** Alerts of requests, providers and load, each caused on a running gateway: it fires, and ends with its cause. */
import t from 'tap'
import { type GatewayProcess, NO_SHEDDING, startGatewayProcess } from '../support/gateway-process.ts'
import { moodyProvider } from '../support/provider.ts'
import { openProbe, type Probe, pause } from '../support/stream-probe.ts'
import { watchAlerts } from './alert-watch.ts'
import { missingTools } from './prometheus.ts'

t.setTimeout(1_200_000)

const missing = missingTools()
const skip = missing.length > 0 && process.env['CI'] !== 'true' ? `${missing.join(' and ')} not found` : false

/** Requests of these lanes, one after the other in each, until what it returns is called. */
function load(gateway: GatewayProcess, body: object, lanes: number, pauseMs: number): () => Promise<void> {
  let isOver = false
  const lane = async () => {
    while (!isOver) {
      await openProbe({ input: 'Hi', stream: true, ...body }, gateway).result
      await pause(pauseMs)
    }
  }
  const ended = Promise.all(Array.from({ length: lanes }, lane))
  return async () => {
    isOver = true
    await ended
  }
}

t.test('providers that fail', { skip }, async t => {
  const [alpha, beta] = [await moodyProvider(t), await moodyProvider(t)]
  const gateway = await startGatewayProcess(t, {
    limits: NO_SHEDDING,
    providers: [
      { slug: 'alpha', format: 'openai-chat', baseUrl: alpha.url, apiKey: 'none' },
      { slug: 'beta', format: 'openai-chat', baseUrl: beta.url, apiKey: 'none' },
    ],
    models: [
      { id: 'm/alone', endpoints: [{ provider: 'alpha', pricing: {} }] },
      { id: 'm/both', endpoints: ['alpha', 'beta'].map(provider => ({ provider, pricing: {} })) },
    ],
  })
  const watch = await watchAlerts(t, gateway.adminUrl)
  const stop = load(gateway, { model: 'm/both', provider: { order: ['alpha', 'beta'] } }, 2, 50)

  Object.assign(alpha.mood, { status: 503, half: true })
  await watch.fires(t, 'SluiceUpstreamFailing', { provider: 'alpha' })
  t.match(
    gateway.stdout(),
    /"failedAttempts":\[\{"provider":"alpha".*"status":503/,
    'the log names the attempts',
  )
  Object.assign(alpha.mood, { status: 429 })
  await watch.fires(t, 'SluiceUpstreamRateLimited', { provider: 'alpha' })
  await watch.ends(t, 'SluiceUpstreamFailing')
  Object.assign(alpha.mood, { status: 200 })
  await watch.ends(t, 'SluiceUpstreamRateLimited')
  await stop()

  const stopAlone = load(gateway, { model: 'm/alone' }, 2, 50)
  Object.assign(alpha.mood, { status: 503, half: false })
  await watch.fires(t, 'SluiceUpstreamOutage', { provider: 'alpha' })
  await watch.fires(t, 'SluiceErrorBudgetBurnsFast')
  await watch.fires(t, 'SluiceErrorBudgetBurnsSlowly')
  Object.assign(alpha.mood, { status: 200 })
  for (const name of ['SluiceUpstreamOutage', 'SluiceErrorBudgetBurnsFast', 'SluiceErrorBudgetBurnsSlowly'])
    await watch.ends(t, name)
  await stopAlone()
})

t.test('a model that is slow', { skip }, async t => {
  const { url, mood } = await moodyProvider(t)
  const gateway = await startGatewayProcess(t, {
    limits: NO_SHEDDING,
    providers: [{ slug: 'alpha', format: 'openai-chat', baseUrl: url, apiKey: 'none' }],
    models: [{ id: 'm/alone', endpoints: [{ provider: 'alpha', pricing: {} }] }],
  })
  const watch = await watchAlerts(t, gateway.adminUrl)
  const stopFast = load(gateway, { model: 'm/alone' }, 1, 100)
  const before = async () =>
    (await watch.prometheus.ask('gateway_model_time_to_first_token_seconds_count offset 15s')).length > 0
  while (!(await before())) await pause(500)
  await stopFast()
  mood.lateMs = 11_000
  const stopSlow = load(gateway, { model: 'm/alone' }, 20, 100)
  await watch.fires(t, 'SluiceFirstTokenSlow')
  await watch.fires(t, 'SluiceModelSlow', { provider: 'alpha', model: 'm/alone' })
  mood.lateMs = 0
  await watch.ends(t, 'SluiceFirstTokenSlow')
  await watch.ends(t, 'SluiceModelSlow')
  await stopSlow()
})

t.test('more than a gateway can do', { skip }, async t => {
  const gateway = await startGatewayProcess(t, {
    limits: { ...NO_SHEDDING, maxInFlight: 4 },
    simulator: { enabled: true },
    models: ['write-40-50', 'write-100000-50'].map(upstreamModel => ({
      id: `m/${upstreamModel}`,
      endpoints: [{ provider: 'sim', upstreamModel, pricing: {} }],
    })),
  })
  const watch = await watchAlerts(t, gateway.adminUrl)

  const stop = load(gateway, { model: 'm/write-40-50' }, 12, 100)
  await watch.fires(t, 'SluiceTurnsRequestsAway', { reason: 'in_flight' })
  await stop()
  await watch.ends(t, 'SluiceTurnsRequestsAway')

  const endless = openProbe({ model: 'm/write-100000-50', input: 'Write', stream: true }, gateway)
  await watch.fires(t, 'SluiceStreamsStuck')
  endless.abort()
  await endless.result
  await watch.ends(t, 'SluiceStreamsStuck')

  // Its processor is taken from it for most of the time, as by other programs.
  let isStarved = true
  const starving = (async () => {
    while (isStarved) {
      process.kill(gateway.pid, 'SIGSTOP')
      await pause(300)
      process.kill(gateway.pid, 'SIGCONT')
      await pause(60)
    }
  })()
  await watch.fires(t, 'SluiceEventLoopLags', { thread: 'serve-0' })
  isStarved = false
  await starving
  await watch.ends(t, 'SluiceEventLoopLags')
})

t.test('hardly any file descriptors', { skip }, async t => {
  const limit = 256
  const gateway = await startGatewayProcess(
    t,
    {
      simulator: { enabled: true },
      limits: NO_SHEDDING,
      models: [
        { id: 'm/endless', endpoints: [{ provider: 'sim', upstreamModel: 'write-100000-200', pricing: {} }] },
      ],
    },
    {},
    limit,
  )
  const watch = await watchAlerts(t, gateway.adminUrl)
  const probes: Probe[] = []
  // Each has a connection of its client and one to its provider.
  while (gateway.descriptors() < 0.85 * limit && probes.length < limit / 2) {
    probes.push(openProbe({ model: 'm/endless', input: 'Write', stream: true }, gateway))
    await pause(20)
  }
  t.comment(`${gateway.descriptors()} of ${limit} descriptors are open with ${probes.length} streams`)
  await watch.fires(t, 'SluiceFileDescriptorsLow')
  for (const probe of probes) probe.abort()
  await Promise.all(probes.map(probe => probe.result))
  await watch.ends(t, 'SluiceFileDescriptorsLow')
})
