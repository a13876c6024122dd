/**
 * Searches usage records by their columns, newest first. One condition leads, by an index of its own; the others are
 * looked at record by record, in short statements and up to a bound, because an embedded database answers on the
 * thread that asks.
 */
import { type Expression, type ExpressionBuilder, type Kysely, type SqlBool, sql } from 'kysely'
import type { Tables } from '../tables.ts'
import type { SearchFilter, SearchPage } from '../usage.ts'
import { COLUMNS } from './usage-insert.ts'
import { recordOf } from './usage-record.ts'

/** Records that one statement looks at, and one call. */
const PART = 2_000
const LOOKED_AT_MAX = 100_000
/** As many dear records are found by their cost, and then sorted; more of them are met soon enough by their time. */
const DEAR_MAX = 2_000

type Where = (where: ExpressionBuilder<Tables, 'usage'>) => Expression<SqlBool>
type Place = NonNullable<SearchPage['last']>

export async function searchUsage(
  db: Kysely<Tables>,
  filter: SearchFilter,
  limit: number,
  rest: () => Promise<unknown>,
): Promise<SearchPage> {
  const { organizationId, before, since, until, minCost } = filter
  const dear = minCost === undefined ? null : await dearRecords(db, organizationId, minCost)
  const { leading, others } = conditions(filter, dear)
  const led = db
    .selectFrom('usage')
    .where(leading)
    .$if(since !== undefined, query => query.where('createdAt', '>=', since ?? ''))
    .$if(until !== undefined, query => query.where('createdAt', '<', until ?? ''))
    .orderBy('createdAt', 'desc')
    .orderBy('id', 'desc')
  const behind = ({ createdAt, id }: Place): Where => {
    return where => where(where.refTuple('createdAt', 'id'), '<', where.tuple(createdAt, id))
  }
  const records: SearchPage['records'][number][] = []
  let after: Place | undefined = before
  for (let lookedAt = 0; lookedAt < LOOKED_AT_MAX; lookedAt += PART) {
    const left = after === undefined ? led : led.where(behind(after))
    // The last record of this part: of an index alone, unlike the records themselves.
    const border: Place | undefined =
      others.length === 0
        ? undefined
        : await left
            .select(['id', 'createdAt'])
            .offset(PART - 1)
            .limit(1)
            .executeTakeFirst()
    const rows = await left
      .where(where => where.and(others.map(other => other(where))))
      .$if(border !== undefined, query =>
        query.where(where =>
          where(
            where.refTuple('createdAt', 'id'),
            '>=',
            where.tuple(border?.createdAt ?? '', border?.id ?? ''),
          ),
        ),
      )
      .select(COLUMNS)
      .limit(limit - records.length + 1)
      .execute()
    for (const row of rows) {
      if (records.length === limit) return { records, last: records.at(-1) ?? null }
      records.push(recordOf(row))
    }
    if (border === undefined) return { records, last: null }
    after = border
    await rest()
  }
  return { records, last: after ?? null }
}

/** Ids of the records that cost so much; null: these are many. */
async function dearRecords(
  db: Kysely<Tables>,
  organizationId: string,
  minCost: number,
): Promise<readonly string[] | null> {
  const rows = await db
    .selectFrom('usage')
    .select('id')
    .where('organizationId', '=', organizationId)
    .where('cost', '>=', minCost)
    .limit(DEAR_MAX + 1)
    .execute()
  return rows.length > DEAR_MAX ? null : rows.map(({ id }) => id)
}

interface Condition {
  /** As an index has it, beside the organization; null: none has. */
  readonly leading: Where | null
  /** Looked at record by record, and written so that no index of its own is taken for the one that leads. */
  readonly other: Where
  /** True if the leading form says all. */
  readonly isWhole: boolean
}

/** The condition that leads, the narrowest first, and what is to be looked at beside it. */
function conditions(
  filter: SearchFilter,
  dear: readonly string[] | null,
): { readonly leading: Where; readonly others: readonly Where[] } {
  const { organizationId, keyHash, workspaceId, model, provider, endUser, sessionId, outcomes, minCost } =
    filter
  const found: Condition[] = []
  const column = (name: 'sessionId' | 'endUser' | 'keyHash' | 'model', value: string | undefined): void => {
    if (value === undefined) return
    found.push({
      leading: where => where(name, '=', value),
      other: () => sql<SqlBool>`coalesce(${sql.ref(name)}, '') = ${value}`,
      isWhole: true,
    })
  }
  const few: Where = where =>
    dear === null || dear.length === 0 ? sql<SqlBool>`1 = 0` : where('id', 'in', dear)
  if (minCost !== undefined) {
    found.push({
      leading: dear === null ? null : few,
      other: () => sql<SqlBool>`cost + 0 >= ${minCost}`,
      isWhole: true,
    })
  }
  column('sessionId', sessionId)
  column('endUser', endUser)
  if (outcomes !== undefined) {
    found.push({
      // As in the index `usage_not_completed`.
      leading: outcomes.includes('completed') ? null : () => sql<SqlBool>`outcome <> 'completed'`,
      other: where => where('outcome', 'in', outcomes),
      isWhole: false,
    })
  }
  column('keyHash', keyHash)
  column('model', model)
  const isIn = (name: 'workspaceId' | 'provider', value: string | undefined): void => {
    if (value !== undefined) {
      found.push({ leading: null, other: where => where(name, '=', value), isWhole: false })
    }
  }
  isIn('workspaceId', workspaceId)
  isIn('provider', provider)
  const first = found.find(({ leading }) => leading !== null)
  const others = found.filter(each => each !== first || !each.isWhole).map(({ other }) => other)
  // These ids are of the organization. To name it again would let its index lead, which has all its records.
  if (dear !== null && first?.leading === few) return { leading: few, others }
  return {
    leading: where =>
      first?.leading == null
        ? where('organizationId', '=', organizationId)
        : where.and([where('organizationId', '=', organizationId), first.leading(where)]),
    others,
  }
}
