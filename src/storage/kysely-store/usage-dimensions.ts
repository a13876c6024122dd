/**
 * Sums over usage by any dimensions and range of days. They come from the totals, which are kept when records are
 * removed; sums by session or agent come from the records that name one. An embedded database runs on the calling
 * thread, so each statement is small, and `pause` lets other work run between statements.
 */
import { type Kysely, sql } from 'kysely'
import type { Tables } from '../tables.ts'
import type { DimensionFilter, DimensionRow, UsageDimension } from '../usage.ts'
import { type ClientRecord, readClientRecords } from './client-activity.ts'
import { isUnasked, modelTotals, SUM_SELECTION, sumsOf } from './usage-totals.ts'

/** Maximum rows of one answer. A year of 20 models is 7,300. */
const DIMENSION_ROWS_MAX = 10_000
/** Maximum keys or end users that one answer reads: each takes a statement of its own. */
const OWNERS_MAX = 10_000
/** Days per statement. */
const STATEMENT_DAYS = 31
const DAY_MS = 86_400_000

/** Columns of the totals. A key or an end user is the owner of its own totals. */
const TOTAL_COLUMNS = { day: 'day', model: 'model', provider: 'provider', workspace: 'workspaceId' } as const

interface Column {
  readonly dimension: UsageDimension
  readonly name: (typeof TOTAL_COLUMNS)[keyof typeof TOTAL_COLUMNS] | 'keyHash'
}

/** Null: one answer would need too many rows, keys, end users or records. */
export async function readDimensions(
  db: Kysely<Tables>,
  filter: DimensionFilter,
  pause: () => Promise<unknown>,
): Promise<readonly DimensionRow[] | null> {
  const rows = new SummedRows(filter.dimensions)
  const { dimensions, keyHash, endUser } = filter
  const isOfClient = dimensions.includes('session') || dimensions.includes('agent')
  const isComplete = isOfClient
    ? await addRecords(db, filter, rows, pause)
    : endUser === undefined && dimensions.includes('user')
      ? await addOwners(db, 'user-models', filter, rows, pause)
      : endUser === undefined && keyHash === undefined && dimensions.includes('key')
        ? await addOwners(db, 'key-models', filter, rows, pause)
        : await addTotals(db, filter, rows, pause)
  return isComplete ? rows.sorted() : null
}

async function addRecords(
  db: Kysely<Tables>,
  filter: DimensionFilter,
  rows: SummedRows,
  pause: () => Promise<unknown>,
): Promise<boolean> {
  const { dimensions, model, provider, endUser } = filter
  const isOfUsers = dimensions.includes('user') || endUser !== undefined
  const onRecord = (record: ClientRecord): boolean => {
    if (dimensions.includes('session') && record.sessionId === null) return true
    if (dimensions.includes('agent') && record.agent === null) return true
    if (dimensions.includes('user') && record.endUser === null) return true
    // Same rule as in the totals.
    if (isOfUsers && isUnasked(record)) return true
    if (model !== undefined && record.model !== model) return true
    if (provider !== undefined && record.provider !== provider) return true
    const cost = BigInt(record.cost)
    return rows.add(valuesOfRecord(record), {
      requests: 1,
      inputTokens: BigInt(record.inputTokens),
      outputTokens: BigInt(record.outputTokens),
      reasoningTokens: BigInt(record.reasoningTokens),
      cost,
      byokCost: record.isByok === 0 ? 0n : cost,
    })
  }
  return await readClientRecords(db, filter, onRecord, pause)
}

function valuesOfRecord(record: ClientRecord): Values {
  return {
    day: record.createdAt.slice(0, 10),
    model: record.model,
    provider: record.provider,
    workspace: record.workspaceId,
    key: record.keyHash,
    user: record.endUser,
    session: record.sessionId,
    agent: record.agent,
  }
}

/** Reads one key or end user after the other, in index order. */
async function addOwners(
  db: Kysely<Tables>,
  kind: 'key-models' | 'user-models',
  filter: DimensionFilter,
  rows: SummedRows,
  pause: () => Promise<unknown>,
): Promise<boolean> {
  let owner = ''
  for (let owners = 0; ; owners++) {
    const next = await db
      .selectFrom('usageTotals')
      .select(({ fn }) => fn.min('owner').as('owner'))
      .where(eb => eb.and({ organizationId: filter.organizationId, kind }))
      .where('owner', '>', owner)
      .executeTakeFirstOrThrow()
    if (next.owner === null) return true
    owner = next.owner
    const ownerColumn = kind === 'key-models' ? { keyHash: owner } : { endUser: owner }
    if (owners === OWNERS_MAX || !(await addTotals(db, { ...filter, ...ownerColumn }, rows, pause)))
      return false
  }
}

async function addTotals(
  db: Kysely<Tables>,
  filter: DimensionFilter,
  rows: SummedRows,
  pause: () => Promise<unknown>,
): Promise<boolean> {
  const { dimensions, keyHash, endUser, workspaceId, model, provider } = filter
  const totals = modelTotals(db, filter)
  const filtered = totals
    .where(where =>
      where.and({
        ...(workspaceId === undefined ? {} : { workspaceId }),
        ...(model === undefined ? {} : { model }),
        ...(provider === undefined ? {} : { provider }),
        ...(keyHash === undefined || endUser === undefined ? {} : { keyHash }),
      }),
    )
    .select(SUM_SELECTION)
  const columns = dimensions.flatMap((dimension): Column[] => {
    if (dimension === 'session' || dimension === 'agent' || dimension === 'user') return []
    if (dimension !== 'key') return [{ dimension, name: TOTAL_COLUMNS[dimension] }]
    // The owner of a key's own totals is the key.
    return endUser === undefined ? [] : [{ dimension, name: 'keyHash' }]
  })
  const grouped = filtered
    .$if(columns.length > 0, query =>
      query.select(columns.map(({ name, dimension }) => sql<string>`${sql.ref(name)}`.as(dimension))),
    )
    .$if(columns.length > 0, query => query.groupBy(columns.map(({ name }) => sql.ref(name))))
  const { first, last } = await totals
    .where('day', '>=', filter.since.slice(0, 10))
    .where('day', '<', filter.until.slice(0, 10))
    .select(({ fn }) => [fn.min('day').as('first'), fn.max('day').as('last')])
    .executeTakeFirstOrThrow()
  await pause()
  if (first === null || last === null) return true
  for (let start = first; start <= last; start = daysAfter(start)) {
    const until = daysAfter(start)
    const sums = await grouped
      .where('day', '>=', start)
      .where('day', '<', until < filter.until ? until : filter.until.slice(0, 10))
      .execute()
    for (const row of sums) {
      // Without grouping columns there is one row even if nothing was used.
      if (row.requests === '0') continue
      const values: Values = { key: keyHash ?? null, user: endUser ?? null }
      for (const { dimension } of columns) {
        values[dimension] = nullIfEmpty((row as unknown as Record<string, string>)[dimension])
      }
      if (!rows.add(values, sumsOf(row))) return false
    }
    await pause()
  }
  return true
}

function daysAfter(day: string): string {
  return new Date(Date.parse(`${day}T00:00:00.000Z`) + STATEMENT_DAYS * DAY_MS).toISOString().slice(0, 10)
}

function nullIfEmpty(text: string | undefined): string | null {
  return text === undefined || text === '' ? null : text
}

type Values = { [Dimension in UsageDimension]?: string | null }
type Sums = Omit<DimensionRow, 'values'>

/** Rows grouped by the values of their dimensions. */
class SummedRows {
  readonly #dimensions: readonly UsageDimension[]
  readonly #rows = new Map<string, { -readonly [Name in keyof DimensionRow]: DimensionRow[Name] }>()

  constructor(dimensions: readonly UsageDimension[]) {
    this.#dimensions = dimensions
  }

  /** Returns false if there are too many rows. */
  add(recordValues: Values, sums: Sums): boolean {
    const texts = this.#dimensions.map(dimension => recordValues[dimension] ?? null)
    const group = JSON.stringify(texts)
    const row = this.#rows.get(group)
    if (row === undefined) {
      const values = Object.fromEntries(this.#dimensions.map((dimension, index) => [dimension, texts[index]]))
      this.#rows.set(group, { ...sums, values })
      return this.#rows.size <= DIMENSION_ROWS_MAX
    }
    row.requests += sums.requests
    row.inputTokens += sums.inputTokens
    row.outputTokens += sums.outputTokens
    row.reasoningTokens += sums.reasoningTokens
    row.cost += sums.cost
    row.byokCost += sums.byokCost
    return true
  }

  /** Newest day first; within a day the highest cost first. */
  sorted(): readonly DimensionRow[] {
    return [...this.#rows.values()].sort((a, b) => {
      const [day = '', otherDay = ''] = [a.values.day ?? '', b.values.day ?? '']
      if (day !== otherDay) return day < otherDay ? 1 : -1
      return a.cost === b.cost ? b.requests - a.requests : a.cost < b.cost ? 1 : -1
    })
  }
}
