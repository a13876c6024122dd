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
const PART = 2_000
const LOOKED_AT_MAX = 100_000
/**
 * If there are at most this many matching costs, records are found by cost and then sorted. If there are more,
 * searching by time finds them soon enough.
 */
const DEAR_MAX = 2_000

type Where = (where: ExpressionBuilder<Tables, 'usage'>) => Expression<SqlBool>
type Place = NonNullable<SearchPage['last']>

export async function searchUsage(
  db: Kysely<Tables>,
  { name }: Engine,
  filter: SearchFilter,
  limit: number,
  pause: () => Promise<unknown>,
): Promise<SearchPage> {
  const { organizationId, before, since, until, minCost } = filter
  const dear = minCost === undefined ? null : await dearRecords(db, organizationId, minCost)
  const { leading, index, others } = conditions(filter, dear)
  // SQLite has no statistics here. It would often use the index of all records instead of the chosen one.
  const usage =
    name === 'sqlite' && index !== null
      ? sql<UsageTable>`usage`.as<'usage'>(sql`usage indexed by ${sql.ref(index)}`)
      : ('usage' as const)
  const led = db.selectFrom(usage).where(leading).orderBy('createdAt', 'desc').orderBy('id', 'desc')
  const records: SearchPage['records'][number][] = []
  let after = older(before, beginningOf(until))
  const first = beginningOf(since)
  for (let lookedAt = 0; lookedAt < LOOKED_AT_MAX; lookedAt += PART) {
    // The last record of this part. Only the index is read, not the records.
    const border: Place | undefined =
      others.length === 0
        ? undefined
        : await led
            .where(between(first, after))
            .select(['id', 'createdAt'])
            .offset(PART - 1)
            .limit(1)
            .executeTakeFirst()
    const rows = await led
      .where(between(border ?? first, after))
      .where(eb => eb.and(others.map(other => other(eb))))
      .select(COLUMNS)
      .limit(limit - records.length + 1)
      .execute()
    for (const row of rows) {
      if (records.length === limit) return { records, last: records.at(-1) ?? null }
      records.push(recordOf(row))
    }
    if (border === undefined) return { records, last: null }
    after = border
    await pause()
  }
  return { records, last: after ?? null }
}

/** The position before the first record of this time. */
function beginningOf(time: string | undefined): Place | undefined {
  return time === undefined ? undefined : { createdAt: time, id: '' }
}

function older(one: Place | undefined, other: Place | undefined): Place | undefined {
  if (one === undefined || other === undefined) return one ?? other
  return one.createdAt < other.createdAt ? one : other
}

/**
 * Selects records from the first position to the one before the last. Each end is compared as one tuple: with two
 * conditions, an engine may scan from the wrong end. The time is compared as well, because PostgreSQL can estimate how
 * many records lie between two times, but assumes a third of the table for tuples and would read all of it.
 */
export function between(first: Place | undefined, last: Place | undefined): Where {
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
async function dearRecords(
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
    .limit(DEAR_MAX + 1)
    .execute()
  return rows.length > DEAR_MAX ? null : rows.map(({ id }) => id)
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
  readonly other: Where
  /** True if the index condition covers the whole filter. */
  readonly isWhole: boolean
}

/** The condition with the best index, the narrowest first, and the conditions that are checked record by record. */
function conditions(
  filter: SearchFilter,
  dear: readonly string[] | null,
): { readonly leading: Where; readonly index: string | null; readonly others: readonly Where[] } {
  const { organizationId, keyHash, workspaceId, model, provider, endUser, sessionId, outcomes, minCost } =
    filter
  const found: Condition[] = []
  const column = (name: keyof typeof COLUMN_INDEXES, value: string | undefined): void => {
    if (value === undefined) return
    found.push({
      leading: eb => eb(name, '=', value),
      index: COLUMN_INDEXES[name],
      other: () => sql<SqlBool>`coalesce(${sql.ref(name)}, '') = ${value}`,
      isWhole: true,
    })
  }
  const few: Where = where =>
    dear === null || dear.length === 0 ? sql<SqlBool>`1 = 0` : where('id', 'in', dear)
  if (minCost !== undefined) {
    found.push({
      leading: dear === null ? null : few,
      index: null,
      other: () => sql<SqlBool>`cost + 0 >= ${minCost}`,
      isWhole: true,
    })
  }
  column('sessionId', sessionId)
  column('endUser', endUser)
  if (outcomes !== undefined) {
    found.push({
      // The same condition as the index `usage_not_completed`.
      leading: outcomes.includes('completed') ? null : () => sql<SqlBool>`outcome <> 'completed'`,
      index: 'usage_not_completed',
      other: eb => eb('outcome', 'in', outcomes),
      isWhole: false,
    })
  }
  column('keyHash', keyHash)
  column('model', model)
  const isIn = (name: 'workspaceId' | 'provider', value: string | undefined): void => {
    if (value !== undefined) {
      found.push({ leading: null, index: null, other: eb => eb(name, '=', value), isWhole: false })
    }
  }
  isIn('workspaceId', workspaceId)
  isIn('provider', provider)
  const first = found.find(({ leading }) => leading !== null)
  const others = found.filter(each => each !== first || !each.isWhole).map(({ other }) => other)
  // These ids belong to the organization. Repeating that condition would make the engine use its index, which contains
  // all records.
  if (dear !== null && first?.leading === few) return { leading: few, index: null, others }
  return {
    index: first === undefined ? 'usage_by_organization' : first.index,
    leading: where =>
      first?.leading == null
        ? where('organizationId', '=', organizationId)
        : where.and([where('organizationId', '=', organizationId), first.leading(where)]),
    others,
  }
}
