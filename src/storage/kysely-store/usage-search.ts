/**
 * Searches usage records by their columns, newest first. One condition uses an index; the others are checked record by
 * record, in short statements and up to a bound, because an embedded database runs on the calling thread.
 */
import { type Expression, type ExpressionBuilder, type Kysely, type SqlBool, sql } from 'kysely'
import type { Engine } from '../engine.ts'
import type { Tables, UsageTable } from '../tables.ts'
import type { SearchFilter, SearchPage } from '../usage.ts'
import { COLUMNS, recordOf } from './usage-rows.ts'

/** Maximum records per statement, and per call. */
const PAGE_RECORDS = 2_000
const SEARCHED_RECORDS_MAX = 100_000
/**
 * If at most this many records have the minimum cost, they are found by cost and then sorted. If there are more,
 * searching by time finds them soon enough.
 */
const COSTLY_RECORDS_MAX = 2_000

type Where = (where: ExpressionBuilder<Tables, 'usage'>) => Expression<SqlBool>
type Position = NonNullable<SearchPage['last']>

export async function searchUsage(
  db: Kysely<Tables>,
  { name }: Engine,
  filter: SearchFilter,
  limit: number,
  pause: () => Promise<unknown>,
): Promise<SearchPage> {
  const { organizationId, before, since, until, minCost } = filter
  const costlyIds = minCost === undefined ? null : await findCostlyIds(db, organizationId, minCost)
  const { leading, index, recordChecks } = conditions(filter, costlyIds)
  // SQLite has no statistics here. It would often use the index of all records instead of the chosen one.
  const usage =
    name === 'sqlite' && index !== null
      ? sql<UsageTable>`usage`.as<'usage'>(sql`usage indexed by ${sql.ref(index)}`)
      : ('usage' as const)
  const indexedQuery = db.selectFrom(usage).where(leading).orderBy('createdAt', 'desc').orderBy('id', 'desc')
  const records: SearchPage['records'][number][] = []
  let after = earlierPosition(before, startPosition(until))
  const first = startPosition(since)
  for (let searchedCount = 0; searchedCount < SEARCHED_RECORDS_MAX; searchedCount += PAGE_RECORDS) {
    // The last record of this page. Only the index is read, not the records.
    const lastOfPage: Position | undefined =
      recordChecks.length === 0
        ? undefined
        : await indexedQuery
            .where(between(first, after))
            .select(['id', 'createdAt'])
            .offset(PAGE_RECORDS - 1)
            .limit(1)
            .executeTakeFirst()
    const rows = await indexedQuery
      .where(between(lastOfPage ?? first, after))
      .where(eb => eb.and(recordChecks.map(check => check(eb))))
      .select(COLUMNS)
      .limit(limit - records.length + 1)
      .execute()
    for (const row of rows) {
      if (records.length === limit) return { records, last: records.at(-1) ?? null }
      records.push(recordOf(row))
    }
    if (lastOfPage === undefined) return { records, last: null }
    after = lastOfPage
    await pause()
  }
  return { records, last: after ?? null }
}

/** The position before the first record of this time. */
function startPosition(time: string | undefined): Position | undefined {
  return time === undefined ? undefined : { createdAt: time, id: '' }
}

function earlierPosition(a: Position | undefined, b: Position | undefined): Position | undefined {
  if (a === undefined || b === undefined) return a ?? b
  return a.createdAt < b.createdAt ? a : b
}

/**
 * Selects records from the first position to the one before the last. Each end is compared as one tuple: with two
 * conditions, an engine may scan from the wrong end. The time is compared as well, because PostgreSQL can estimate how
 * many records lie between two times, but assumes a third of the table for tuples and would read all of it.
 */
export function between(first: Position | undefined, last: Position | undefined): Where {
  return eb => {
    const position = eb.refTuple('createdAt', 'id')
    const from =
      first === undefined
        ? []
        : [eb('createdAt', '>=', first.createdAt), eb(position, '>=', eb.tuple(first.createdAt, first.id))]
    const to =
      last === undefined
        ? []
        : [eb('createdAt', '<=', last.createdAt), eb(position, '<', eb.tuple(last.createdAt, last.id))]
    return eb.and([...from, ...to])
  }
}

/** Ids of the records with at least this cost; null: there are many. */
async function findCostlyIds(
  db: Kysely<Tables>,
  organizationId: string,
  minCost: number,
): Promise<readonly string[] | null> {
  const rows = await db
    .selectFrom('usage')
    .select('id')
    .where('organizationId', '=', organizationId)
    // The same condition as the index `usage_by_cost`.
    .where(sql<boolean>`cost > 0`)
    .where('cost', '>=', minCost)
    .limit(COSTLY_RECORDS_MAX + 1)
    .execute()
  return rows.length > COSTLY_RECORDS_MAX ? null : rows.map(({ id }) => id)
}

/** Columns with an index that a search can use. */
const COLUMN_INDEXES = {
  sessionId: 'usage_of_session',
  endUser: 'usage_by_end_user',
  keyHash: 'usage_by_key',
  model: 'usage_by_model',
} as const

interface Condition {
  /** The condition in the form of an index, without the organization; null: no index. */
  readonly leading: Where | null
  /** The index to use; null: the primary key. */
  readonly index: string | null
  /**
   * A condition that is checked record by record, written so that the engine does not use its index instead of the
   * chosen one.
   */
  readonly recordCheck: Where
  /** True if the index condition needs no further check. */
  readonly coversFilter: boolean
}

/** The condition with the best index, the narrowest first, and the conditions that are checked record by record. */
function conditions(
  filter: SearchFilter,
  costlyIds: readonly string[] | null,
): { readonly leading: Where; readonly index: string | null; readonly recordChecks: readonly Where[] } {
  const { organizationId, keyHash, workspaceId, model, provider, endUser, sessionId, outcomes, minCost } =
    filter
  const candidates: Condition[] = []
  const addColumn = (name: keyof typeof COLUMN_INDEXES, value: string | undefined): void => {
    if (value === undefined) return
    candidates.push({
      leading: eb => eb(name, '=', value),
      index: COLUMN_INDEXES[name],
      recordCheck: () => sql<SqlBool>`coalesce(${sql.ref(name)}, '') = ${value}`,
      coversFilter: true,
    })
  }
  const isCostly: Where = where =>
    costlyIds === null || costlyIds.length === 0 ? sql<SqlBool>`1 = 0` : where('id', 'in', costlyIds)
  if (minCost !== undefined) {
    candidates.push({
      leading: costlyIds === null ? null : isCostly,
      index: null,
      recordCheck: () => sql<SqlBool>`cost + 0 >= ${minCost}`,
      coversFilter: true,
    })
  }
  addColumn('sessionId', sessionId)
  addColumn('endUser', endUser)
  if (outcomes !== undefined) {
    candidates.push({
      // The same condition as the index `usage_not_completed`.
      leading: outcomes.includes('completed') ? null : () => sql<SqlBool>`outcome <> 'completed'`,
      index: 'usage_not_completed',
      recordCheck: eb => eb('outcome', 'in', outcomes),
      coversFilter: false,
    })
  }
  addColumn('keyHash', keyHash)
  addColumn('model', model)
  const addUnindexed = (name: 'workspaceId' | 'provider', value: string | undefined): void => {
    if (value !== undefined) {
      candidates.push({
        leading: null,
        index: null,
        recordCheck: eb => eb(name, '=', value),
        coversFilter: false,
      })
    }
  }
  addUnindexed('workspaceId', workspaceId)
  addUnindexed('provider', provider)
  const leadingCondition = candidates.find(({ leading }) => leading !== null)
  const recordChecks = candidates
    .filter(condition => condition !== leadingCondition || !condition.coversFilter)
    .map(({ recordCheck }) => recordCheck)
  // These ids belong to the organization. Repeating that condition would make the engine use its index, which contains
  // all records.
  if (costlyIds !== null && leadingCondition?.leading === isCostly)
    return { leading: isCostly, index: null, recordChecks }
  return {
    index: leadingCondition === undefined ? 'usage_by_organization' : leadingCondition.index,
    leading: where =>
      leadingCondition?.leading == null
        ? where('organizationId', '=', organizationId)
        : where.and([where('organizationId', '=', organizationId), leadingCondition.leading(where)]),
    recordChecks,
  }
}
