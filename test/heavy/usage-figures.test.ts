/**
 * Figures of GET /activity, as the console asks for them and saves them as CSV, equal sums that this test adds up from
 * 100,000 records, in both engines. Each question has its figures, or is refused because they are too many.
 */
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { listActivity } from '../../src/api/management/account.ts'
import { documentOf } from '../../src/apps/console/documents.ts'
import { generateKey, keyRecord } from '../../src/callers/api-key.ts'
import { openStore } from '../../src/storage/open.ts'
import { lineOf } from '../../src/storage/spool/usage-line.ts'
import type { Store } from '../../src/storage/store.ts'
import { USAGE_DIMENSIONS, type UsageDimension, type UsageRecord } from '../../src/storage/usage.ts'
import { ODD_TEXT } from '../storage/records.ts'
import { postgresSchema, withoutPostgres } from '../support/postgres.ts'
import { TestClock } from '../support/test-clock.ts'
import { COMMON, FORMULA, ORGANIZATION, RARE, variedUsage } from './varied-usage.ts'

const RECORDS = Number(process.env['RECORDS'] ?? 100_000)
const DAY_MS = 86_400_000
const END_MS = Date.parse('2026-07-16T12:00:00.000Z')
const USAGE = { records: RECORDS, days: 400, endMs: END_MS, users: 40, sessions: 3_000, rarity: 4_000 }
/** Of one shipment. */
const BULK = 2_000
/** Rows of one answer. */
const ROWS_MAX = 10_000
const FEE_PERCENT = 5
/** More than there are different names of all dimensions: four of them make one exact number. */
const NAMES_MAX = 8_192
/** Questions between two lines that tell how far it is. */
const TOLD_EVERY = 250
const PAGE = '../../src/apps/console/page'
/** The figures of a file, in its order. */
const FIGURES = [
  'usage',
  'requests',
  'prompt_tokens',
  'completion_tokens',
  'reasoning_tokens',
  'byok_usage_inference',
] as const

type Cell = string | number | null
const { csvOf } = (await import(`${PAGE}/csv.js`)) as { csvOf(rows: readonly (readonly Cell[])[]): string }
const { tableOf } = (await import(`${PAGE}/usage/usage-table.js`)) as {
  tableOf(
    rows: readonly Row[],
    columns: readonly string[],
    names: { readonly keys: ReadonlyMap<string, object>; readonly workspaces: ReadonlyMap<string, object> },
  ): Cell[][]
}

const dayOf = (ms: number): string => new Date(ms).toISOString().slice(0, 10)
const TODAY = dayOf(END_MS)
const daysAgo = (days: number): string => dayOf(END_MS - days * DAY_MS)

interface Range {
  readonly first: string
  readonly last: string
  readonly query: Readonly<Record<string, string>>
}
const range = (first: string, last: string): Range => ({
  first,
  last,
  query: { start_date: first, end_date: last },
})
const RANGES: readonly Range[] = [
  { first: daysAgo(30), last: TODAY, query: {} },
  range(TODAY, TODAY),
  range(daysAgo(120), daysAgo(90)),
  range(daysAgo(399), daysAgo(200)),
  range('2020-01-01', '2030-01-01'),
  range('2020-01-01', '2020-12-31'),
]

interface Filter {
  readonly query: Readonly<Record<string, string>>
  readonly fits: (record: UsageRecord) => boolean
}
const FILTERS: readonly Filter[] = [
  { query: {}, fits: () => true },
  { query: { api_key_hash: COMMON.keyHash }, fits: each => each.keyHash === COMMON.keyHash },
  { query: { api_key_hash: RARE.keyHash }, fits: each => each.keyHash === RARE.keyHash },
  { query: { model: 'acme/model-7' }, fits: each => each.model === 'acme/model-7' },
  { query: { provider: RARE.provider }, fits: each => each.provider === RARE.provider },
  { query: { workspace_id: 'ws_3' }, fits: each => each.workspaceId === 'ws_3' },
  { query: { user_id: COMMON.endUser }, fits: each => each.endUser === COMMON.endUser },
  { query: { user_id: ODD_TEXT }, fits: each => each.endUser === ODD_TEXT },
  {
    query: { api_key_hash: COMMON.keyHash, model: COMMON.model, provider: 'provider-2' },
    fits: ({ keyHash, model, provider }) =>
      keyHash === COMMON.keyHash && model === COMMON.model && provider === 'provider-2',
  },
  {
    query: { api_key_hash: COMMON.keyHash, user_id: COMMON.endUser, workspace_id: COMMON.workspaceId },
    fits: ({ keyHash, endUser, workspaceId }) =>
      keyHash === COMMON.keyHash && endUser === COMMON.endUser && workspaceId === COMMON.workspaceId,
  },
]

/** The fields of a row by the dimension, and where a record has them. */
const DIMENSIONS: Readonly<
  Record<UsageDimension, { readonly field: string; readonly of: (record: UsageRecord) => string | null }>
> = {
  day: { field: 'date', of: record => record.createdAt.slice(0, 10) },
  model: { field: 'model', of: record => record.model },
  provider: { field: 'provider', of: record => record.provider },
  workspace: { field: 'workspace_id', of: record => record.workspaceId },
  key: { field: 'api_key_hash', of: record => record.keyHash },
  user: { field: 'user_id', of: record => record.endUser },
  session: { field: 'session_id', of: record => record.sessionId },
  agent: { field: 'agent_id', of: record => record.agent ?? null },
}
/** Requests that name none are in no sum by it. */
const NAMED_BY_CLIENTS: readonly UsageDimension[] = ['user', 'session', 'agent']

type Row = Readonly<Record<string, Cell>>
interface Sum {
  readonly names: readonly (string | null)[]
  requests: number
  inputTokens: number
  outputTokens: number
  reasoningTokens: number
  cost: bigint
  byok: bigint
  cacheRead: number
  cacheWrite: number
}

/** Asked before anything else holds up this thread. */
const skip = await withoutPostgres()

t.setTimeout(7_200_000)

t.test('SQLite', { timeout: 3_600_000 }, async t => {
  await figuresEqual(t, await openStore(`sqlite:${join(t.testdir({}), 'gateway.db')}`), async () => undefined)
})

t.test('PostgreSQL', { timeout: 3_600_000, skip }, async t => {
  const schema = await postgresSchema(t)
  await figuresEqual(t, await openStore(schema.url), async () => {
    // A server does that by itself after so many changes.
    await schema.client.query('analyze')
  })
})

async function figuresEqual(t: Test, store: Store, settle: () => Promise<unknown>): Promise<void> {
  t.teardown(() => store.close())
  const records = Array.from({ length: RECORDS }, (_, at) => variedUsage(at, USAGE))
  for (let from = 0; from < RECORDS; from += BULK) {
    const lines = records.slice(from, from + BULK).map(record => `${lineOf(record)}\n`)
    t.equal((await store.ledger.addLines(lines.join(''))).added, lines.length)
    // After a crash they are shipped once more.
    if (from % 20_000 === 0) t.equal((await store.ledger.addLines(lines.slice(0, 500).join(''))).added, 0)
  }
  await settle()
  const own = numbered(records.filter(({ organizationId }) => organizationId === ORGANIZATION))
  const all = questions()
  const answered = await askAll(t, store, all, own)
  t.comment(`${all.length} questions, ${answered} with figures, ${all.length - answered} refused as too many`)
  const days = await activityEquals(t, store, own)
  t.comment(`${days} questions by the day, as without dimensions`)

  // Totals stay when records are removed, sums of sessions do not.
  const kept = new Date(END_MS - 60 * DAY_MS).toISOString()
  while ((await store.ledger.prune(kept, 10_000)) > 0);
  await settle()
  const later = all.filter(({ dimensions }) => dimensions.length < 3)
  await askAll(t, store, later, own, kept)
  t.comment(`${later.length} questions once more, after records were removed`)
}

interface Question {
  readonly dimensions: readonly UsageDimension[]
  readonly range: Range
  readonly filter: Filter
}

/** Every one to three dimensions: over each range, and with each filter over one of them. */
function questions(): readonly Question[] {
  const sets: UsageDimension[][] = []
  for (const [one, first] of USAGE_DIMENSIONS.entries()) {
    sets.push([first])
    for (const [two, second] of USAGE_DIMENSIONS.entries()) {
      if (two <= one) continue
      sets.push([first, second])
      for (const third of USAGE_DIMENSIONS.slice(two + 1)) sets.push([third, first, second])
    }
  }
  const [whole, ...filters] = FILTERS
  if (whole === undefined) throw new Error('no filter')
  return sets.flatMap((dimensions, at) => [
    ...RANGES.map(range => ({ dimensions, range, filter: whole })),
    ...filters.map((filter, turn) => ({ dimensions, range: pick(RANGES, at + turn), filter })),
  ])
}

function pick<T>(list: readonly T[], at: number): T {
  const found = list[at % list.length]
  if (found === undefined) throw new Error('an empty list')
  return found
}

/** @param kept the time before which records are removed @returns how many were not refused */
async function askAll(
  t: Test,
  store: Store,
  all: readonly Question[],
  records: readonly Numbered[],
  kept = '',
): Promise<number> {
  const ask = asking(store)
  const names = { keys: new Map(), workspaces: new Map() }
  let answered = 0
  for (const [at, { dimensions, range, filter }] of all.entries()) {
    const isOfRecords = dimensions.includes('session') || dimensions.includes('agent')
    const sums = summed(
      records,
      dimensions,
      each =>
        isWithin(each, range) && filter.fits(each.record) && (!isOfRecords || each.record.createdAt >= kept),
    )
    const query = { dimensions: dimensions.join(','), ...range.query, ...filter.query }
    const name = JSON.stringify(query)
    const rows = await ask(query)
    if (typeof rows === 'string') {
      if (sums.length <= ROWS_MAX) t.fail(`${name}: ${rows}`)
      t.match(rows, 'too many rows for one answer')
    } else {
      answered++
      const expected = expectedRows(sums, dimensions)
      if (!isSame(rows, expected, dimensions)) t.same(inOrder(rows, dimensions), expected, name)
      isSorted(t, rows, name)
      const columns = USAGE_DIMENSIONS.filter(each => dimensions.includes(each))
      const file = readCsv(csvOf(tableOf(rows, columns, names)))
      if (JSON.stringify(file) !== JSON.stringify(expectedFile(rows, columns))) t.fail(`file of ${name}`)
    }
    if ((at + 1) % TOLD_EVERY === 0) t.comment(`${at + 1} of ${all.length} questions`)
  }
  t.ok(answered > all.length / 2, `${answered} of ${all.length} have figures`)
  return answered
}

/** Asks as the console does. @returns the message of a refusal, or the rows */
function asking(store: Store): (query: Readonly<Record<string, string>>) => Promise<string | readonly Row[]> {
  const clock = new TestClock(END_MS)
  const key = keyRecord(generateKey('management'), 'management', { name: 'figures', clock })
  const handler = listActivity({ store, clock, byokFeePercent: FEE_PERCENT, providerName: () => null })
  return async query => {
    try {
      const document = await documentOf(handler, key, new URLSearchParams(query), clock)
      return (document as { readonly data: readonly Row[] }).data
    } catch (error) {
      if (error instanceof Error && error.message.includes('too many')) return error.message
      throw error
    }
  }
}

/** A record with the day, the number of each of its names, and its cost, so that it is read once for all questions. */
interface Numbered {
  readonly record: UsageRecord
  readonly day: string
  /** 0: it has none. */
  readonly numbers: Readonly<Record<UsageDimension, number>>
  readonly cost: bigint
}

function numbered(records: readonly UsageRecord[]): readonly Numbered[] {
  const known = new Map<string, number>()
  const numberOf = (dimension: UsageDimension, record: UsageRecord): readonly [UsageDimension, number] => {
    const name = DIMENSIONS[dimension].of(record)
    if (name === null) return [dimension, 0]
    const place = `${dimension} ${name}`
    const number = known.get(place) ?? known.size + 1
    known.set(place, number)
    return [dimension, number]
  }
  return records.map(record => ({
    record,
    day: DIMENSIONS.day.of(record) ?? '',
    numbers: Object.fromEntries(
      USAGE_DIMENSIONS.map(dimension => numberOf(dimension, record)),
    ) as Numbered['numbers'],
    cost: BigInt(record.cost),
  }))
}

function isWithin({ day }: Numbered, { first, last }: Range): boolean {
  return day >= first && day <= last
}

/** @param fits says which records are in the sums */
function summed(
  records: readonly Numbered[],
  dimensions: readonly UsageDimension[],
  fits: (each: Numbered) => boolean,
): readonly Sum[] {
  const sums = new Map<number, Sum>()
  const needed = dimensions.filter(dimension => NAMED_BY_CLIENTS.includes(dimension))
  for (const each of records) {
    if (!fits(each)) continue
    const { record, numbers, cost } = each
    if (needed.some(dimension => numbers[dimension] === 0)) continue
    let place = 0
    for (const dimension of dimensions) place = place * NAMES_MAX + numbers[dimension]
    let sum = sums.get(place)
    if (sum === undefined) {
      sum = {
        names: dimensions.map(dimension => DIMENSIONS[dimension].of(record)),
        requests: 0,
        inputTokens: 0,
        outputTokens: 0,
        reasoningTokens: 0,
        cost: 0n,
        byok: 0n,
        cacheRead: 0,
        cacheWrite: 0,
      }
      sums.set(place, sum)
    }
    sum.requests++
    sum.inputTokens += record.inputTokens
    sum.outputTokens += record.outputTokens
    sum.reasoningTokens += record.reasoningTokens
    sum.cost += cost
    if (record.isByok) sum.byok += cost
    sum.cacheRead += record.cachedTokens
    sum.cacheWrite += record.cacheWriteTokens
  }
  return [...sums.values()]
}

/** The nearest number of US dollars. */
function usd(units: bigint): number {
  return Number(`${units / 10n ** 12n}.${String(units % 10n ** 12n).padStart(12, '0')}`)
}

function figuresOf(sum: Sum): Row {
  return {
    // A request on a BYOK credential costs the fee alone.
    usage: usd(sum.cost - sum.byok + (sum.byok * BigInt(FEE_PERCENT)) / 100n),
    byok_usage_inference: usd(sum.byok),
    requests: sum.requests,
    prompt_tokens: sum.inputTokens,
    completion_tokens: sum.outputTokens,
    reasoning_tokens: sum.reasoningTokens,
  }
}

function expectedRows(sums: readonly Sum[], dimensions: readonly UsageDimension[]): Row[] {
  const rows = sums.map(sum => {
    const names = Object.fromEntries(
      dimensions.flatMap((dimension, at) => {
        const name = sum.names[at] ?? null
        return [
          [DIMENSIONS[dimension].field, name] as const,
          ...(dimension === 'provider' ? [['provider_name', name] as const] : []),
        ]
      }),
    )
    return { ...names, ...figuresOf(sum) }
  })
  return inOrder(rows, dimensions)
}

function placeOf(row: Row, dimensions: readonly UsageDimension[]): string {
  return JSON.stringify(dimensions.map(dimension => row[DIMENSIONS[dimension].field]))
}

function inOrder(rows: readonly Row[], dimensions: readonly UsageDimension[]): Row[] {
  return rows
    .map(row => [placeOf(row, dimensions), row] as const)
    .sort(([one], [other]) => (one < other ? -1 : 1))
    .map(([, row]) => row)
}

/** Without the words of an assertion for each of many rows. */
function isSame(
  rows: readonly Row[],
  expected: readonly Row[],
  dimensions: readonly UsageDimension[],
): boolean {
  const textOf = (row: Row): string =>
    JSON.stringify(Object.entries(row).sort(([one], [other]) => (one < other ? -1 : 1)))
  const found = inOrder(rows, dimensions)
  return (
    found.length === expected.length && found.every((row, at) => textOf(row) === textOf(pick(expected, at)))
  )
}

/** The newest day first. */
function isSorted(t: Test, rows: readonly Row[], name: string): void {
  const days = rows.map(({ date = '' }) => String(date))
  if (days.some((day, at) => at > 0 && day > String(days[at - 1]))) t.fail(`order of ${name}`)
}

function expectedFile(rows: readonly Row[], columns: readonly UsageDimension[]): string[][] {
  const isNamed = (column: UsageDimension) => column === 'key' || column === 'workspace'
  const text = (value: Cell | undefined): string => {
    if (value === FORMULA) return `'${FORMULA}`
    return value === null || value === undefined ? '' : String(value)
  }
  const head = columns.flatMap(column => (isNamed(column) ? [column, `${column}_name`] : [column]))
  return [
    [...head, ...FIGURES],
    ...rows.map(row => [
      ...columns.flatMap(column => {
        const own = text(row[DIMENSIONS[column].field])
        return isNamed(column) ? [own, nameOf(column, own)] : [own]
      }),
      ...FIGURES.map(field => text(row[field])),
    ]),
  ]
}

/** Of a key or workspace that is gone. */
function nameOf(column: UsageDimension, id: string): string {
  return column === 'key' ? `${id.slice(0, 8)}… (deleted)` : id === '' ? '–' : id
}

/** Rows of a file by RFC 4180. */
function readCsv(text: string): string[][] {
  const rows: string[][] = []
  let row: string[] = []
  for (const [, quoted, plain = '', end] of text.matchAll(/(?:"((?:[^"]|"")*)"|([^",\r\n]*))(,|\r\n)/g)) {
    row.push(quoted === undefined ? plain : quoted.replaceAll('""', '"'))
    if (end === ',') continue
    rows.push(row)
    row = []
  }
  return rows
}

/** The older form: days of the last month, in rows of model and provider, also by workspace, session or agent. */
async function activityEquals(t: Test, store: Store, records: readonly Numbered[]): Promise<number> {
  const ask = asking(store)
  const groups: readonly (readonly [group: string, dimensions: readonly UsageDimension[]])[] = [
    ['', []],
    ['workspace', ['workspace']],
    ['session', ['session']],
    ['agent', ['agent']],
  ]
  const filters = FILTERS.filter(({ query }) => !('model' in query) && !('provider' in query))
  let asked = 0
  for (const [group, more] of groups) {
    const dimensions: readonly UsageDimension[] = ['day', 'model', 'provider', ...more]
    const isOfClients = group === 'session' || group === 'agent'
    for (const filter of filters) {
      for (const date of [undefined, TODAY, daysAgo(7), daysAgo(30)]) {
        const query = {
          ...(group === '' ? {} : { group_by: group }),
          ...(date === undefined ? {} : { date }),
          ...filter.query,
        }
        const within = { first: date ?? daysAgo(30), last: date ?? TODAY, query: {} }
        const sums = summed(records, dimensions, each => isWithin(each, within) && filter.fits(each.record))
        const expected = sums.map(sum => {
          const [day = '', model = null, provider = null, name = null] = sum.names
          return {
            date: day,
            model: model ?? '',
            model_permaslug: model ?? '',
            endpoint_id: model === null || provider === null ? '' : `${provider}/${model}`,
            provider_name: provider ?? '',
            ...figuresOf(sum),
            ...(group === 'workspace' ? { workspace_id: name } : {}),
            ...(group === 'session' ? { session_id: name } : {}),
            ...(group === 'agent' ? { agent_id: name } : {}),
            ...(isOfClients ? { cache_read_tokens: sum.cacheRead, cache_write_tokens: sum.cacheWrite } : {}),
          }
        })
        const rows = await ask(query)
        const sorted = (list: readonly Row[]) =>
          list.toSorted((one, other) => (keyOf(one) < keyOf(other) ? -1 : 1))
        t.same(sorted(rows as readonly Row[]), sorted(expected), JSON.stringify(query))
        asked++
      }
    }
  }
  return asked
}

function keyOf(row: Row): string {
  const { date, model, provider_name, workspace_id, session_id, agent_id } = row
  return JSON.stringify([date, model, provider_name, workspace_id, session_id, agent_id])
}
