/** A provider is taken out of service by the command, in all threads, and everybody who looks is told. */
import { dirname } from 'node:path'
import t from 'tap'
import { runCommand } from '../support/command-line.ts'
import { startConsoleWorld } from '../support/console-world.ts'
import { until } from '../support/patience.ts'

t.test('sluice providers pauses, lists and resumes; readiness, metrics, log and console tell', async t => {
  const { gateway, managementKey, manage, admin, respond } = await startConsoleWorld(
    t,
    {},
    { GATEWAY_SERVE_THREADS: '2' },
  )
  const cwd = dirname(gateway.configFile)
  const sluice = (...words: string[]) =>
    runCommand(t, [...words, '--url', gateway.url], {
      cwd,
      environment: { GATEWAY_MANAGEMENT_KEY: managementKey },
    })
  const ready = async () => (await (await fetch(`${gateway.adminUrl}/readyz`)).json()) as object
  t.match(await sluice('providers', 'paused'), { code: 0, stdout: 'All providers are in service.\n' })
  t.same(await ready(), { status: 'ready' })
  t.match(await sluice('providers', 'pause', 'sim', '--for', '5x'), {
    code: 2,
    stderr: /--for: expects a time/,
  })
  t.match(await sluice('providers', 'pause', 'none', '--for', '5m'), {
    code: 1,
    stderr: /no provider with this slug/,
  })
  const viewer = (await manage('POST', '/keys', { name: 'viewer', role: 'viewer' })).document['key']
  t.match(await sluice('providers', 'pause', 'sim', '--for', '5m', '--key', String(viewer)), {
    code: 1,
    stderr: /needs a management key with the role operator or admin, but this key has the role viewer/,
  })
  t.match(await sluice('providers', 'pause', 'sim', '--for', '5m', '--key', 'sk-gw-mgmt-wrong'), {
    code: 1,
    stderr: /does not accept the key .*: pass another one with --key KEY or GATEWAY_MANAGEMENT_KEY/,
  })
  t.match(await sluice('providers', 'pause', 'sim', '--for', '2h', '--reason', 'incident 4711'), {
    code: 0,
    stdout: /^sim is out of service until \d{4}-\d\d-\d\dT[\d:.]+Z\.\n$/,
  })
  for (let n = 0; n < 20; n++) {
    const { status } = await respond({ model: 'test/falls-back', input: 'Hi' })
    t.ok(status === 502 || status === 503, `only the endpoint that is down is left: ${status}`)
  }
  t.match(await respond({ model: 'sim/echo', input: 'Hi' }), { status: 503, text: /out of service/ })
  t.same(await ready(), { status: 'ready', paused_providers: ['sim'] })
  t.equal(await gateway.metric('gateway_provider_paused', { provider: 'sim' }), 1)
  t.match(await sluice('providers', 'paused'), { code: 0, stdout: /sim +\S+ +\S+ +incident 4711/ })
  const models = await admin('/console/data/models?filter=falls-back')
  t.match(await models.json(), { data: [{ endpoints: [{ provider: 'down' }, { condition: 'paused' }] }] })
  t.match(await (await admin('/console/data/summary')).text(), /sim is out of service/)
  t.equal((await admin('/console/data/api/pauses')).status, 200)
  t.match(
    await (await admin('/console/data/api/providers/sim%2Fx/resume', { method: 'POST' })).text(),
    /not paused/,
  )

  t.match(await sluice('providers', 'resume', 'sim'), { code: 0, stdout: 'sim is in service again.\n' })
  await until('it is so', async () => (await respond({ model: 'sim/echo', input: 'Hi' })).status === 200)
  t.equal(await gateway.metric('gateway_provider_paused'), 0)
  t.match(await sluice('providers', 'resume', 'sim'), { code: 1, stderr: /is not paused/ })
  const lines = gateway
    .stdout()
    .split('\n')
    .filter(line => /"msg":"a (?:paused )?provider is|"msg":"a paused/.test(line))
  t.equal(lines.length, 2, 'one line for each change, whatever the number of threads')
  t.match(lines[0], /"provider":"sim".*"msg":"a provider is paused: no request goes to it"/)
  t.match(lines[1], /"msg":"a paused provider is in service again"/)
  t.match(
    gateway.stdout(),
    /"provider":"down".*"msg":"circuit breaker opened: the endpoint fails, and is left out"/,
  )
  const { list } = await manage('GET', '/audit')
  t.match(
    list.map(({ action }) => action),
    ['provider.resume', 'provider.pause', 'key.create'],
  )
})
