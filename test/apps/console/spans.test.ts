/** Charts of the last hours: sums by steps over the ledger, in both engines. */
import t, { type Test } from 'tap'
import { createSpans } from '../../../src/apps/console/spans.ts'
import { openStore } from '../../../src/storage/open.ts'
import type { Store } from '../../../src/storage/store.ts'
import type { UsageRecord } from '../../../src/storage/usage.ts'
import { someKey } from '../../storage/records.ts'
import { someUsage } from '../../storage/usage.ts'
import { postgresSchema, withoutPostgres } from '../../support/postgres.ts'
import { TestClock } from '../../support/test-clock.ts'

const NOW = Date.parse('2026-01-02T12:34:56.000Z')
const key = someKey()

interface Shown {
  readonly step_seconds: number
  readonly first: number
  readonly last: number
  readonly spans: readonly {
    readonly from: number
    readonly seconds: number
    readonly requests: number
    readonly failed: number
    readonly cost: number
    readonly p50: number | null
    readonly p95: number | null
  }[]
}

t.test('SQLite', t => spansContract(t, () => openStore('sqlite::memory:')))

t.test('PostgreSQL', { skip: await withoutPostgres() }, async t => {
  const schema = await postgresSchema(t)
  await spansContract(t, () => openStore(schema.url))
})

async function spansContract(t: Test, open: () => Promise<Store>): Promise<void> {
  const store = await open()
  t.teardown(() => store.close())
  const clock = new TestClock(NOW)
  const reads: string[] = []
  const view = createSpans({
    store: {
      ledger: {
        span(filter, samples) {
          reads.push(filter.since)
          return store.ledger.span(filter, samples)
        },
      },
    },
    clock,
  })
  const shown = async (hours: string) => (await view(key, new URLSearchParams({ hours }))) as Shown
  const at = (time: string, fields: Partial<UsageRecord> = {}) =>
    someUsage({ createdAt: `2026-01-02T${time}Z`, cost: 0, latencyMs: 900, generationMs: 600, ...fields })
  const usd = 1_000_000_000_000

  await t.test('each step has its requests, failures, cost and first token; others are left out', async t => {
    const failed = { outcome: 'failed', generationMs: null } as const
    await store.ledger.add([
      at('12:00:00.000', { cost: usd }),
      at('12:00:59.999', { cost: 2 * usd, latencyMs: 1_500, generationMs: 500 }),
      at('12:00:10.000', { cost: usd / 2, parent: 'gen-x' }),
      at('12:00:20.000', { ...failed, error: 'provider_unavailable' }),
      at('12:00:30.000', { ...failed, error: 'invalid_request', provider: null }),
      at('12:00:40.000', { ...failed, error: 'service_unavailable', provider: null }),
      at('12:00:50.000', { outcome: 'aborted' }),
      at('12:01:00.000'),
      at('12:00:30.000', { organizationId: 'org_2' }),
      at('12:34:50.000'),
      at('00:10:00.000'),
    ])
    const hour = await shown('1')
    t.match(hour, {
      step_seconds: 60,
      first: Date.parse('2026-01-02T11:35:00Z') / 1000,
      last: Date.parse('2026-01-02T12:34:00Z') / 1000,
    })
    t.same(
      hour.spans.map(({ from, ...span }) => ({ ...span, at: new Date(from * 1000).toISOString() })),
      [
        {
          at: '2026-01-02T12:00:00.000Z',
          seconds: 60,
          requests: 6,
          failed: 2,
          cost: 3.5,
          p50: 300,
          p95: 1_000,
        },
        { at: '2026-01-02T12:01:00.000Z', seconds: 60, requests: 1, failed: 0, cost: 0, p50: 300, p95: 300 },
        { at: '2026-01-02T12:34:00.000Z', seconds: 56, requests: 1, failed: 0, cost: 0, p50: 300, p95: 300 },
      ],
    )
    const sums = ({ spans }: Shown) => spans.reduce((sum, { requests }) => sum + requests, 0)
    t.match(await shown('6'), { step_seconds: 300, spans: [{ requests: 7 }, { requests: 1 }] })
    const day = await shown('24')
    t.equal(day.step_seconds, 900)
    t.equal((day.last - day.first) / 900 + 1, 96)
    t.equal(sums(day), 9)
  })

  await t.test('what is over is read once, and what may still change each time', async t => {
    await shown('1')
    reads.length = 0
    await store.ledger.add([at('12:34:55.000')])
    t.match((await shown('1')).spans.at(-1), { requests: 2 })
    t.same(reads, ['2026-01-02T12:32:00.000Z', '2026-01-02T12:33:00.000Z', '2026-01-02T12:34:00.000Z'])
    clock.advance(600_001)
    reads.length = 0
    await shown('1')
    t.equal(reads.length, 60, 'what was late is found then')
  })

  await t.test('a step of more records than one statement looks at has them all, once', async t => {
    const many = Array.from({ length: 10_100 }, (_, n) =>
      // Two of each moment, so that a part can end between them.
      at(`09:${String(Math.floor(n / 2) % 60).padStart(2, '0')}:07.000`, {
        organizationId: 'org_3',
        cost: 3,
      }),
    )
    await store.ledger.add(many)
    const filter = {
      organizationId: 'org_3',
      since: '2026-01-02T09:00:00.000Z',
      until: '2026-01-02T10:00:00.000Z',
    }
    t.match(await store.ledger.span(filter, 128), { requests: 10_100, failed: 0, cost: 30_300n })
    const within = { ...filter, since: '2026-01-02T09:10:00.000Z', until: '2026-01-02T09:11:00.000Z' }
    t.equal(
      (await store.ledger.span(within, 128)).requests,
      many.filter(({ createdAt }) => createdAt.includes('T09:10')).length,
    )
  })

  await t.test('other ranges are refused by name', async t => {
    await t.rejects(shown('2'), { message: 'hours: must be one of 1, 6, 24' })
  })
}
