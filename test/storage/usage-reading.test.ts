/** Sums by dimensions and searches, over a ledger of 100,000 records, in both engines. */
import t, { type Test } from 'tap'
import type { LedgerStore } from '../../src/storage/ledger.ts'
import { openStore } from '../../src/storage/open.ts'
import type {
  DimensionFilter,
  SearchFilter,
  UsageDimension,
  UsageOutcome,
  UsageRecord,
} from '../../src/storage/usage.ts'
import { postgresSchema, withoutPostgres } from '../support/postgres.ts'
import type { Opened } from './contract.ts'
import { ODD_TEXT } from './records.ts'
import { someUsage } from './usage.ts'

const RECORDS = 100_000
/** Of one call of `add`. */
const BULK = 5_000
const DAY_MS = 86_400_000
const START_MS = Date.parse('2025-01-01T00:00:00.000Z')
/** More than a year: sums are read in parts of months. */
const DAYS = 400
const ORGANIZATION = 'org_1'

/** Asked before anything else holds up this thread. */
const skip = await withoutPostgres()

t.test('SQLite', t => readingContract(t, () => openStore('sqlite::memory:')))

t.test('PostgreSQL', { skip }, async t => {
  const schema = await postgresSchema(t)
  await (await openStore(schema.url)).close()
  await readingContract(t, async () => {
    await schema.reset()
    return await openStore(schema.url)
  })
})

async function readingContract(t: Test, open: Opened): Promise<void> {
  const opened: Opened = async test => {
    const store = await open(test)
    test.teardown(() => store.close())
    return store
  }
  await t.test('sums by dimensions, and searches, equal the ledger of 100,000 records', async t => {
    const { ledger } = await opened(t)
    const records = someRecords()
    for (let from = 0; from < RECORDS; from += BULK) await ledger.add(records.slice(from, from + BULK))
    await ledger.add([someUsage({ organizationId: 'org_2', cost: 77 })])
    await sumsEqual(t, ledger, records)
    await searchesEqual(t, ledger, records)
  })

  await t.test('sums that are too many for one answer are refused, not cut', async t => {
    const { ledger } = await opened(t)
    const named = Array.from({ length: 10_001 }, (_, at) => someUsage({ model: `acme/${at}` }))
    for (let from = 0; from < named.length; from += BULK) await ledger.add(named.slice(from, from + BULK))
    const days = { organizationId: ORGANIZATION, since: '2026-01-01', until: '2026-01-02' }
    t.equal(await ledger.byDimensions({ ...days, dimensions: ['model'] }), null)
    const whole = await ledger.byDimensions({ ...days, dimensions: ['day'] })
    t.match(whole, [{ values: { day: '2026-01-01' }, requests: named.length }])
    t.same(await ledger.byDimensions({ ...days, dimensions: ['day'], organizationId: ODD_TEXT }), [])
  })

  await t.test('requests for which nobody was asked leave no totals of their end users', async t => {
    const { ledger } = await opened(t)
    const unasked = { model: null, provider: null, cost: 0 }
    await ledger.add([
      ...Array.from({ length: 50 }, (_, at) => someUsage({ ...unasked, endUser: `stranger-${at}` })),
      someUsage({ ...unasked, endUser: 'known' }),
      someUsage({ endUser: 'known', cost: 7 }),
      someUsage({ model: null, provider: null, cost: 2, endUser: 'known' }),
    ])
    const days = { organizationId: ORGANIZATION, since: '2026-01-01', until: '2026-01-02' }
    const byUser = (await ledger.byDimensions({ ...days, dimensions: ['user'] })) ?? []
    t.match(byUser, [{ values: { user: 'known' }, requests: 2, cost: 9n }])
    t.equal(byUser.length, 1)
    const whole = await ledger.byDimensions({ ...days, dimensions: ['day'] })
    t.match(whole, [{ requests: 53, cost: 9n }], 'they count for their key and organization')
    const ofKnown = {
      organizationId: ORGANIZATION,
      since: '2026-01-01',
      until: '2026-01-02',
      endUser: 'known',
    }
    t.match(await ledger.activity({ ...ofKnown, byWorkspace: false }), [{ requests: 1 }, { requests: 1 }])
  })

  await t.test('a search with few hits looks at a part of the ledger, and goes on from there', async t => {
    const { ledger } = await opened(t)
    const at = (second: number) => new Date(START_MS + second * 1_000).toISOString()
    const many = Array.from({ length: 9_000 }, (_, second) => someUsage({ createdAt: at(second) }))
    const rare = someUsage({ createdAt: at(1), provider: 'rare' })
    for (let from = 0; from < many.length; from += BULK) await ledger.add(many.slice(from, from + BULK))
    await ledger.add([rare])
    const found = await ledger.search({ organizationId: ORGANIZATION, provider: 'rare' }, 10)
    t.same(found, { records: [rare], last: null })
    t.same(await ledger.search({ organizationId: ORGANIZATION, provider: 'none' }, 10), {
      records: [],
      last: null,
    })
  })
}

/** Reproducible, with every dimension absent now and then. */
function someRecords(): UsageRecord[] {
  let seed = 42
  const below = (most: number): number => {
    seed = (Math.imul(seed, 1_664_525) + 1_013_904_223) >>> 0
    return Math.floor((seed / 2 ** 32) * most)
  }
  const orNull = (text: string): string | null => (below(10) === 0 ? null : text)
  const outcomes: readonly UsageOutcome[] = ['failed', 'aborted', 'incomplete']
  return Array.from({ length: RECORDS }, (_, at) => {
    const model = orNull(`acme/model-${below(12)}`)
    return someUsage({
      id: `gen-${String(at).padStart(8, '0')}`,
      createdAt: new Date(START_MS + Math.floor((at / RECORDS) * DAYS * DAY_MS)).toISOString(),
      keyHash: below(20).toString(16).padStart(64, 'a'),
      workspaceId: orNull(`ws_${below(3)}`),
      model,
      provider: model === null ? null : `provider-${below(4)}`,
      endUser: below(20) === 0 ? (below(50) === 0 ? ODD_TEXT : `user-${below(200)}`) : null,
      sessionId: below(5) === 0 ? `session-${below(100)}` : null,
      ...(below(8) === 0 ? { agent: `agent-${below(10)}` } : {}),
      outcome: below(20) === 0 ? (outcomes[below(3)] ?? 'failed') : 'completed',
      inputTokens: below(100_000),
      outputTokens: below(5_000),
      reasoningTokens: below(1_000),
      cost: below(500) === 0 ? 5e12 + below(1e6) : below(3) === 0 ? 0 : below(1e9),
      isByok: below(4) === 0,
    })
  })
}

const VALUE: Readonly<Record<UsageDimension, (record: UsageRecord) => string | null>> = {
  day: record => record.createdAt.slice(0, 10),
  model: record => record.model,
  provider: record => record.provider,
  workspace: record => record.workspaceId,
  key: record => record.keyHash,
  user: record => record.endUser,
  session: record => record.sessionId,
  agent: record => record.agent ?? null,
}

async function sumsEqual(t: Test, ledger: LedgerStore, records: readonly UsageRecord[]): Promise<void> {
  const all = {
    organizationId: ORGANIZATION,
    since: '2025-01-01T00:00:00.000Z',
    until: '2027-01-01T00:00:00.000Z',
  }
  const aKey = '7'.padStart(64, 'a')
  const asked: readonly DimensionFilter[] = [
    { ...all, dimensions: ['day'] },
    { ...all, dimensions: ['model'] },
    { ...all, dimensions: ['key'] },
    { ...all, dimensions: ['workspace', 'provider'] },
    { ...all, dimensions: ['day', 'key'] },
    { ...all, dimensions: ['key', 'model', 'provider', 'workspace'] },
    { ...all, dimensions: ['user'] },
    { ...all, dimensions: ['user', 'day', 'key'] },
    { ...all, dimensions: ['user', 'model'], keyHash: aKey },
    { ...all, dimensions: ['user', 'key', 'provider'], endUser: ODD_TEXT },
    { ...all, dimensions: ['session'] },
    { ...all, dimensions: ['session', 'user'] },
    { ...all, dimensions: ['agent', 'key'] },
    { ...all, dimensions: ['session', 'model', 'provider'] },
    { ...all, dimensions: ['key', 'model'], keyHash: aKey },
    { ...all, dimensions: ['key', 'day'], endUser: 'user-7' },
    { ...all, dimensions: ['model'], endUser: ODD_TEXT },
    { ...all, dimensions: ['day'], model: 'acme/model-3', workspaceId: 'ws_1' },
    { ...all, dimensions: ['key'], provider: 'provider-2' },
    {
      ...all,
      dimensions: ['day', 'model', 'provider', 'workspace', 'key'],
      since: '2025-03-30T00:00:00.000Z',
      until: '2025-05-02T00:00:00.000Z',
      provider: 'provider-1',
    },
  ]
  for (const filter of asked) {
    const rows = await ledger.byDimensions(filter)
    const name = JSON.stringify(filter)
    if (rows === null) {
      t.fail(`too many rows: ${name}`)
      continue
    }
    const found = new Map(rows.map(({ values, ...sums }) => [placeOf(filter, values), sums]))
    t.equal(found.size, rows.length, 'each combination once')
    t.same(found, summed(filter, records), name)
  }
}

function placeOf(
  { dimensions }: DimensionFilter,
  values: Readonly<Partial<Record<string, string | null>>>,
): string {
  return JSON.stringify(dimensions.map(dimension => values[dimension] ?? null))
}

/** The same sums, record by record. */
function summed(filter: DimensionFilter, records: readonly UsageRecord[]) {
  const { dimensions, since, until, keyHash, endUser, workspaceId, model, provider } = filter
  const sums = new Map<
    string,
    Record<'inputTokens' | 'outputTokens' | 'reasoningTokens' | 'cost' | 'byokCost', bigint> & {
      requests: number
    }
  >()
  for (const record of records) {
    if (record.createdAt < since || record.createdAt >= until) continue
    if (keyHash !== undefined && record.keyHash !== keyHash) continue
    if (endUser !== undefined && record.endUser !== endUser) continue
    if (workspaceId !== undefined && record.workspaceId !== workspaceId) continue
    if (model !== undefined && record.model !== model) continue
    if (provider !== undefined && record.provider !== provider) continue
    const isOfUsers = dimensions.includes('user') || endUser !== undefined
    if (isOfUsers && record.provider === null && record.cost === 0) continue
    const values = dimensions.map(dimension => [dimension, VALUE[dimension](record)] as const)
    const isNamed = values.every(
      ([name, value]) => value !== null || !(['session', 'agent', 'user'] as string[]).includes(name),
    )
    if (!isNamed) continue
    const place = placeOf(filter, Object.fromEntries(values))
    const sum = sums.get(place) ?? {
      requests: 0,
      inputTokens: 0n,
      outputTokens: 0n,
      reasoningTokens: 0n,
      cost: 0n,
      byokCost: 0n,
    }
    sum.requests++
    sum.inputTokens += BigInt(record.inputTokens)
    sum.outputTokens += BigInt(record.outputTokens)
    sum.reasoningTokens += BigInt(record.reasoningTokens)
    sum.cost += BigInt(record.cost)
    if (record.isByok) sum.byokCost += BigInt(record.cost)
    sums.set(place, sum)
  }
  return sums
}

async function searchesEqual(t: Test, ledger: LedgerStore, records: readonly UsageRecord[]): Promise<void> {
  const newest = records.toReversed()
  const organizationId = ORGANIZATION
  const asked: readonly SearchFilter[] = [
    { organizationId },
    { organizationId, model: 'acme/model-5' },
    { organizationId, endUser: ODD_TEXT },
    { organizationId, endUser: 'user-8', outcomes: ['completed'] },
    { organizationId, sessionId: 'session-42', model: 'acme/model-1' },
    { organizationId, outcomes: ['aborted'] },
    { organizationId, outcomes: ['failed', 'completed'], provider: 'provider-3' },
    { organizationId, minCost: 5e12 },
    { organizationId, minCost: 5e12 + 500_000, workspaceId: 'ws_2', model: 'acme/model-2' },
    { organizationId, minCost: 900_000_000 },
    { organizationId, keyHash: '3'.padStart(64, 'a'), minCost: 1 },
    {
      organizationId,
      since: '2025-06-01T12:00:00.000Z',
      until: '2025-06-02T00:00:00.000Z',
      model: 'acme/model-5',
    },
    { organizationId, minCost: 8e12 },
  ]
  for (const filter of asked) {
    const name = JSON.stringify(filter)
    const expected = newest.filter(record => fits(filter, record)).slice(0, 60)
    const found: UsageRecord[] = []
    let before: SearchFilter['before']
    for (let page = 0; page < 3; page++) {
      const { records: more, last } = await ledger.search(
        before === undefined ? filter : { ...filter, before },
        20,
      )
      found.push(...more)
      if (last === null) break
      before = last
    }
    t.same(
      found.map(({ id }) => id),
      expected.map(({ id }) => id),
      name,
    )
    t.same(found[0] ?? null, expected[0] ?? null, 'whole records')
  }
}

function fits(filter: SearchFilter, record: UsageRecord): boolean {
  const { keyHash, workspaceId, model, provider, endUser, sessionId, outcomes, minCost, since, until } =
    filter
  return (
    (keyHash === undefined || record.keyHash === keyHash) &&
    (workspaceId === undefined || record.workspaceId === workspaceId) &&
    (model === undefined || record.model === model) &&
    (provider === undefined || record.provider === provider) &&
    (endUser === undefined || record.endUser === endUser) &&
    (sessionId === undefined || record.sessionId === sessionId) &&
    (outcomes === undefined || outcomes.includes(record.outcome)) &&
    (minCost === undefined || record.cost >= minCost) &&
    (since === undefined || record.createdAt >= since) &&
    (until === undefined || record.createdAt < until)
  )
}
