/** The ledger against the usage reports of providers: the comparison, the command, and the daily service. */
import { writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import type { AlertEvent } from '../../../src/process/alerts/alert-body.ts'
import { readCsv } from '../../../src/process/reconcile/reports.ts'
import { Reconciler } from '../../../src/process/services/reconciler.ts'
import { createCatalog } from '../../../src/providers/catalog.ts'
import { createTransports } from '../../../src/providers/upstream/egress.ts'
import { openStore } from '../../../src/storage/open.ts'
import { someUsage } from '../../storage/usage.ts'
import { startCommand } from '../../support/command-line.ts'
import { listening } from '../../support/listening.ts'
import { TestClock } from '../../support/test-clock.ts'

const ADMIN_KEY = 'sk-admin-canary-7d1f'
const DAY = '2026-01-02'
const NOON = `${DAY}T12:00:00.000Z`

/** What the servers of the providers count, and what they were asked. */
interface Reports {
  openAiTokens: number
  status: number
  readonly requests: string[]
}

/** The usage APIs of OpenAI, Anthropic and OpenRouter, as their references describe them. */
async function startReports(t: Test) {
  const reports: Reports = { openAiTokens: 1_000_000, status: 200, requests: [] }
  const server = createServer((request, response) => {
    const url = new URL(request.url ?? '', 'http://reports')
    reports.requests.push(`${url.pathname}?${url.searchParams}`)
    const { authorization, 'x-api-key': apiKey } = request.headers
    const isKeyed = authorization === `Bearer ${ADMIN_KEY}` || apiKey === ADMIN_KEY
    response.setHeader('content-type', 'application/json')
    response.statusCode = isKeyed ? reports.status : 401
    response.end(JSON.stringify(isKeyed ? documentOf(url, reports) : { error: `wrong key ${authorization}` }))
  })
  return { ...(await listening(server, t)), reports }
}

function documentOf({ pathname, searchParams }: URL, { openAiTokens }: Reports): object {
  const bucket = (results: readonly object[]) => ({ data: [{ object: 'bucket', results }], has_more: false })
  switch (pathname) {
    case '/openai/organization/usage/completions': {
      const isBatch = searchParams.get('batch') === 'true'
      const model = { object: 'organization.usage.completions.result', model: 'fast-2025-08-07' }
      const tokens = isBatch ? 200_000 : openAiTokens / 2
      const page = { ...model, input_tokens: tokens, input_cached_tokens: 0, output_tokens: 0 }
      // Two pages, as reports of many models have.
      if (isBatch || searchParams.get('page') === 'two') return bucket([page])
      return { ...bucket([page]), has_more: true, next_page: 'two' }
    }
    case '/openai/organization/usage/embeddings':
      return bucket([])
    case '/anthropic/organizations/usage_report/messages':
      return bucket([
        {
          model: 'careful-20250807',
          service_tier: 'standard',
          uncached_input_tokens: 1_000,
          cache_read_input_tokens: 2_000,
          cache_creation: { ephemeral_5m_input_tokens: 3_000, ephemeral_1h_input_tokens: 4_000 },
          output_tokens: 5_000,
        },
      ])
    case '/openrouter/activity':
      return {
        data: [{ date: DAY, model: 'acme/any', usage: 2.5, prompt_tokens: 10, completion_tokens: 20 }],
      }
    default:
      return { error: 'not found' }
  }
}

const PRICES = { prompt: '0.000001', completion: '0.00001' }

const rowsOf = (url: string) => ({
  providers: ['openai', 'anthropic', 'openrouter'].map(slug => ({
    slug,
    baseUrl: `${url}/${slug}`,
    apiKey: 'k',
    ...(slug === 'openrouter' ? { name: 'OpenRouter', format: 'openai-chat' } : {}),
  })),
  models: [
    { id: 'openai/fast', endpoints: [{ provider: 'openai', upstreamModel: 'fast', pricing: PRICES }] },
    {
      id: 'anthropic/careful',
      endpoints: [
        {
          provider: 'anthropic',
          upstreamModel: 'careful',
          pricing: { ...PRICES, inputCacheRead: '0.0000001', inputCacheWrite: '0.00000125' },
        },
      ],
    },
    { id: 'acme/any', endpoints: [{ provider: 'openrouter', upstreamModel: 'acme/any', pricing: PRICES }] },
  ],
})

const USD = 1e12

/** What the providers above billed, spread over organizations, and what callers paid with credentials of their own. */
const LEDGER = [
  { provider: 'openai', model: 'openai/fast', cost: 0.6 * USD, organizationId: 'org_1' },
  { provider: 'openai', model: 'openai/fast', cost: 0.5 * USD, organizationId: 'org_2' },
  { provider: 'openai', model: 'openai/fast', cost: 7 * USD, organizationId: 'org_2', isByok: true },
  // 1,000 + 0.2 of 1,000 + 1.25 of 7,000 and ten times 5,000 input tokens
  { provider: 'anthropic', model: 'anthropic/careful', cost: 0.05995 * USD, organizationId: 'org_1' },
  { provider: 'openrouter', model: 'acme/any', cost: 2.5 * USD, organizationId: 'service' },
]

async function world(t: Test) {
  const { url, reports } = await startReports(t)
  const folder = t.testdir({ 'admin.key': `${ADMIN_KEY}\n` })
  const storageUrl = `sqlite:${join(folder, 'gateway.db')}`
  const store = await openStore(storageUrl)
  t.teardown(() => store.close())
  await store.ledger.add(LEDGER.map(row => someUsage({ ...row, createdAt: NOON })))
  const keyFile = join(folder, 'admin.key')
  const rows = ['openai', 'anthropic', 'openrouter'].map(provider => ({ provider, keyFile }))
  const config = join(folder, 'gateway.json')
  writeFileSync(config, JSON.stringify({ ...rowsOf(url), storage: { url: storageUrl }, reconcile: rows }))
  const run = (...words: string[]) =>
    startCommand(t, ['reconcile', '--config', config, '--day', DAY, ...words], { cwd: folder }).ended
  return { url, reports, folder, store, rows, config, run }
}

t.test('a ledger that equals the reports of all providers has no drift', async t => {
  const { run, reports } = await world(t)
  const { code, stdout, stderr } = await run('--json')
  t.same([code, stderr], [0, ''])
  const results = stdout
    .trim()
    .split('\n')
    .map(line => JSON.parse(line))
  const rounded = (usd: number) => Math.round(usd * 1e6) / 1e6
  t.same(
    results.map(({ provider, day, reportedUsd, ledgerUsd, models }) => [
      provider,
      day,
      rounded(reportedUsd),
      rounded(ledgerUsd),
      models.map(({ model }: { model: string }) => model),
    ]),
    [
      ['openai', DAY, 1.1, 1.1, ['openai/fast']],
      ['anthropic', DAY, 0.05995, 0.05995, ['anthropic/careful']],
      ['openrouter', DAY, 2.5, 2.5, ['acme/any']],
    ],
  )
  for (const { drift } of results) t.ok(drift < 1e-9)
  const [first = ''] = reports.requests
  t.match(first, /start_time=1767312000&end_time=1767398400&bucket_width=1d/)
})

t.test('a report that differs is shown by model, and ends the command with 1', async t => {
  const { run, reports } = await world(t)
  reports.openAiTokens = 9_000_000
  const { code, stdout } = await run('--provider', 'openai')
  t.equal(code, 1)
  t.match(stdout, /^openai 2026-01-02: reported \$9\.10, ledger \$1\.10, drift 87\.91 %$/m)
  t.match(stdout, /^ {2}openai\/fast +9,200,000 .* \$9\.10 +\$1\.10 +87\.91 %$/m)
})

t.test('a refused key ends with 2 and the way out, and never shows the key', async t => {
  const { run, folder } = await world(t)
  writeFileSync(join(folder, 'admin.key'), 'sk-other-canary')
  const { code, stdout, stderr } = await run('--provider', 'openai')
  t.equal(code, 2)
  t.match(
    stderr,
    /openai 2026-01-02: the usage report cannot be read: the provider refused the key \(401\); .*administration key/,
  )
  t.notMatch(`${stdout}${stderr}`, /canary/)
})

t.test('a provider without a report has a CSV file instead', async t => {
  const { run, folder } = await world(t)
  const file = join(folder, 'usage.csv')
  writeFileSync(
    file,
    `\uFEFFModel,Date,Cost_USD,note\r\n"acme/any",${DAY},2.5,"one, ""two"""\r\nacme/any,2026-01-03,9,\r\n`,
  )
  t.match(await run('--provider', 'openrouter', '--csv', file), { code: 0, stderr: '' })
  writeFileSync(file, `date,model,input_tokens\n${DAY},acme/any,many\n`)
  await t.rejects(readCsv(file, DAY), /usage\.csv: line 2: input_tokens must be a whole number of tokens/)
  writeFileSync(file, 'date,amount\n')
  await t.rejects(readCsv(file, DAY), /the first line must name the column model/)
})

t.test('words that mean nothing are refused with the way out', async t => {
  const { run, config, folder } = await world(t)
  t.match(await run('--days', '0'), { code: 2, stderr: /--days: expects a number from 1 to 90/ })
  t.match(await run('--csv', 'x.csv'), { code: 2, stderr: /--csv: needs --provider/ })
  t.match(await run('--provider', 'acme'), { code: 1, stderr: /has no row for acme/ })
  writeFileSync(
    join(folder, 'bad.json'),
    JSON.stringify({
      providers: [
        { slug: 'own', name: 'Own', format: 'openai-chat', baseUrl: 'http://127.0.0.1:9', apiKey: 'k' },
      ],
      reconcile: [
        { provider: 'own', keyFile: 'x' },
        { provider: 'openai' },
        { provider: 'nobody', csvFile: 'x' },
      ],
    }),
  )
  const { code, stderr } = await startCommand(t, ['check', '--config', join(folder, 'bad.json')], {
    cwd: folder,
  }).ended
  t.equal(code, 2)
  t.match(
    stderr,
    /reconcile\[0\]: the gateway knows no usage report of this provider; set csvFile, or set report/,
  )
  t.match(stderr, /reconcile\[1\]: expected either keyFile/)
  t.match(stderr, /reconcile\[2\]\.provider: there is no provider of this name/)
  t.ok(config)
})

t.test(
  'once a day the service measures the drift, raises one alert for it, and forgets a report that fails',
  async t => {
    const { url, reports, store, rows } = await world(t)
    reports.openAiTokens = 9_000_000
    // Just before the report of the day is complete.
    const clock = new TestClock(Date.parse('2026-01-03T05:59:00.000Z'))
    const raised: AlertEvent[] = []
    const faults: unknown[] = []
    const log = {
      fault: (_: unknown, message: string) => void faults.push(message),
      notice: () => undefined,
      exchange: () => undefined,
    }
    const client = createTransports({ clock, log, proxies: { http: null, https: null, no: null } } as never)
    t.teardown(() => client.close())
    const catalog = createCatalog(rowsOf(url) as never)
    const reconciler = new Reconciler({
      rows: rows.slice(0, 1),
      ledger: store.ledger,
      catalog: () => catalog,
      client: () => client,
      raise: event => void raised.push(event),
      clock,
      log,
    })
    t.teardown(() => reconciler.close())
    await reconciler.check()
    t.match(
      reports.requests,
      Array.from({ length: 4 }, () => /start_time=1767225600/),
      'the day before, whose report is complete',
    )
    clock.jump(120_000)
    await reconciler.check()
    t.equal(Math.round((reconciler.drifts.get('openai') ?? 0) * 1e4), 8791)
    t.match(raised, [
      {},
      {
        type: 'ledger.drift',
        object: { kind: 'provider', id: 'openai' },
        window: DAY,
        data: { drift: 0.8791, drift_usd: 8, reported_usd: 9.1, ledger_usd: 1.1, largest: 'openai/fast' },
      },
    ])
    const before = reports.requests.length
    await reconciler.check()
    t.equal(reports.requests.length, before, 'a day is compared once')
    reports.status = 500
    clock.jump(86_400_000)
    await reconciler.check()
    await reconciler.check()
    t.equal(reconciler.drifts.size, 0)
    t.same(faults, ['cannot compare the ledger with the usage report of a provider'])
    reports.status = 200
    await reconciler.check()
    t.equal(reconciler.drifts.size, 1)
    t.notMatch(JSON.stringify([raised, faults]), /canary/)
  },
)
