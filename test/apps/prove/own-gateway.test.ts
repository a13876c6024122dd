/** Sluice itself keeps every promise that it asks of others, whatever its provider speaks. */
import t from 'tap'
import { waitingClock } from '../../../src/apps/commands/waiting-clock.ts'
import { FaultProvider, prove } from '../../../src/apps/prove/prove.ts'
import { startGateway } from '../../support/gateway.ts'
import { caller } from '../../support/management.ts'
import { proveOptions } from './options.ts'

for (const format of ['openai-chat', 'openai-responses'] as const) {
  t.test(`prove has no finding against this gateway in front of a provider of ${format}`, async t => {
    // A machine with much else to do is no reason for a finding.
    const provider = new FaultProvider(waitingClock, 20_000)
    await provider.listen(0)
    const row = { format, baseUrl: provider.url, apiKey: 'provider-key', continues: 'last-message' as const }
    const gateway = await startGateway({
      continueStreams: true,
      providers: [
        { slug: 'proved', name: 'Proved', ...row },
        { slug: 'again', name: 'Again', ...row },
      ],
      models: [
        {
          id: 'proved/m',
          name: 'M',
          contextLength: 128_000,
          maxOutputTokens: 16_384,
          endpoints: [{ provider: 'proved' }, { provider: 'again' }],
        },
      ] as never,
    })
    const { document } = await caller(gateway.url, gateway.managementKey)('POST', '/keys', { name: 'second' })
    t.teardown(async () => {
      await gateway.close()
      await provider.close()
    })
    const report = await prove(
      proveOptions({
        url: gateway.url,
        key: gateway.apiKey,
        model: 'proved/m',
        limits: { requests: 1_000, concurrency: 6, seconds: 600 },
        provider,
        secondKey: String(document['key']),
      }),
      { begins: () => undefined, onResult: () => undefined },
    )
    for (const { id, dialect, status, seen } of report.checks)
      t.not(status, 'fail', `${id} ${dialect}: ${seen}`)
    t.same(report.dialects, ['responses', 'chat'])
    t.same(
      report.checks
        .filter(
          ({ status, seen }) => status === 'skipped' && !seen.startsWith('the gateway asks this provider by'),
        )
        .map(({ id }) => id),
      ['chaos.restart', 'chaos.restart'],
    )
    t.same(
      report.checks.filter(({ status }) => status === 'warning').map(({ id }) => id),
      // Such a request is held unanswered until the connection is closed.
      ['framing.space-in-name'],
    )
  })
}

t.test('prove has no finding against this gateway with a model of its own, without a provider', async t => {
  const gateway = await startGateway()
  t.teardown(() => gateway.close())
  const report = await prove(
    proveOptions({
      url: gateway.url,
      key: gateway.apiKey,
      model: 'sim/echo',
      limits: { requests: 400, concurrency: 4, seconds: 600 },
      only: ['reply', 'stream', 'errors', 'sdk', 'chaos'],
    }),
    { begins: () => undefined, onResult: () => undefined },
  )
  for (const { id, dialect, status, seen } of report.checks)
    t.not(status, 'fail', `${id} ${dialect}: ${seen}`)
  t.match(
    report.checks.find(({ id }) => id === 'reply.call'),
    { status: 'skipped', seen: /^the model calls no functions/ },
  )
})
