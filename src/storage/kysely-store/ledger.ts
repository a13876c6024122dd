/** The usage ledger and the credits in the database. */
import { type CompiledQuery, type Kysely, type Selectable, type SqlBool, sql } from 'kysely'
import type { CreditStore, LedgerStore } from '../store.ts'
import type { Tables, UsageTable } from '../tables.ts'
import type { ActivityFilter, UsageFilter, UsageRecord } from '../usage.ts'

type UsageRow = Selectable<UsageTable>

/** Rows per insert, largest first: few different statements, each compiled and prepared once. */
const BATCHES = [64, 8, 1] as const
/** Costs are summed in two halves, so that a 64-bit sum does not overflow at millions of dollars. */
const HALF = 1_000_000

export function createLedgerStore(db: Kysely<Tables>): LedgerStore {
  const matching = (filter: UsageFilter | ActivityFilter) => {
    const { organizationId, since, workspaceId, keyHash, endUser } = filter
    const memberId = 'memberId' in filter ? filter.memberId : undefined
    return db
      .selectFrom('usage')
      .where('createdAt', '>=', since)
      .where(where =>
        where.and({
          organizationId,
          ...(workspaceId === undefined ? {} : { workspaceId }),
          ...(keyHash === undefined ? {} : { keyHash }),
          ...(memberId === undefined ? {} : { memberId }),
          ...(endUser === undefined ? {} : { endUser }),
        }),
      )
  }

  const inserts = new Map<number, CompiledQuery>()
  /** Compiling a statement costs as much as running it, so each size is compiled once. */
  const insertOf = (rows: number): CompiledQuery => {
    const cached = inserts.get(rows)
    if (cached !== undefined) return cached
    const names = Object.fromEntries(COLUMNS.map(name => [name, ''])) as unknown as UsageRow
    const compiled = db
      .insertInto('usage')
      .values(Array.from({ length: rows }, () => names))
      .onConflict(conflict => conflict.column('id').doNothing())
      .compile()
    inserts.set(rows, compiled)
    return compiled
  }

  return {
    async add(records) {
      if (records.length === 0) return 0
      // One transaction is one wait for the disk.
      return db.transaction().execute(async transaction => {
        let added = 0
        for (let from = 0; from < records.length; ) {
          const size = BATCHES.find(rows => rows <= records.length - from) ?? 1
          const parameters = records.slice(from, from + size).flatMap(rowOf)
          const result = await transaction.executeQuery({ ...insertOf(size), parameters })
          added += Number(result.numAffectedRows ?? 0n)
          from += size
        }
        return added
      })
    },
    async find(id, organizationId) {
      const row = await db
        .selectFrom('usage')
        .select(COLUMNS)
        .where('id', '=', id)
        .where('organizationId', '=', organizationId)
        .executeTakeFirst()
      return row === undefined ? null : recordOf(row)
    },
    async usageSince(filter) {
      const { reasoningTokens, ...totals } = totalsOf(
        await matching(filter).select(SUMS).executeTakeFirstOrThrow(),
      )
      return totals
    },
    async activity(filter) {
      const date = sql<string>`substr(created_at, 1, 10)`
      const workspace = filter.byWorkspace ? sql<string | null>`workspace_id` : sql<null>`null`
      const rows = await matching(filter)
        .where('createdAt', '<', filter.until)
        .select(['model', 'provider', date.as('date'), workspace.as('workspaceId')])
        .select(SUMS)
        .groupBy([date, 'model', 'provider'])
        .$if(filter.byWorkspace, query => query.groupBy('workspaceId'))
        .orderBy(date, 'desc')
        // Engines differ in where they put null.
        .orderBy(sql`coalesce(model, '')`)
        .orderBy(sql`coalesce(provider, '')`)
        .$if(filter.byWorkspace, query => query.orderBy(sql`coalesce(workspace_id, '')`))
        .execute()
      return rows.map(({ date, model, provider, workspaceId, ...sums }) => {
        return { date, model, provider, workspaceId, ...totalsOf(sums) }
      })
    },
  }
}

const IS_BYOK = sql<SqlBool>`is_byok <> 0`
const SUMS = [
  asText(sql`count(*)`).as('requests'),
  sumOf(sql`input_tokens`).as('inputTokens'),
  sumOf(sql`output_tokens`).as('outputTokens'),
  sumOf(sql`reasoning_tokens`).as('reasoningTokens'),
  sumOf(sql`cost / ${sql.lit(HALF)}`).as('costHigh'),
  sumOf(sql`cost % ${sql.lit(HALF)}`).as('costLow'),
  sumOf(sql`case when ${IS_BYOK} then cost / ${sql.lit(HALF)} end`).as('byokHigh'),
  sumOf(sql`case when ${IS_BYOK} then cost % ${sql.lit(HALF)} end`).as('byokLow'),
] as const

function sumOf(value: ReturnType<typeof sql>) {
  return asText(sql`coalesce(sum(${value}), 0)`)
}

/** A sum may exceed a number, and engines return it in different types. */
function asText(value: ReturnType<typeof sql>) {
  return sql<string>`cast(${value} as text)`
}

type SumName =
  | 'requests'
  | 'inputTokens'
  | 'outputTokens'
  | 'reasoningTokens'
  | 'costHigh'
  | 'costLow'
  | 'byokHigh'
  | 'byokLow'

function totalsOf(sums: Readonly<Record<SumName, string>>) {
  const whole = (high: string, low: string): bigint => BigInt(high) * BigInt(HALF) + BigInt(low)
  return {
    requests: Number(sums.requests),
    inputTokens: BigInt(sums.inputTokens),
    outputTokens: BigInt(sums.outputTokens),
    reasoningTokens: BigInt(sums.reasoningTokens),
    cost: whole(sums.costHigh, sums.costLow),
    byokCost: whole(sums.byokHigh, sums.byokLow),
  }
}

/** In the order of the values from `rowOf`. */
const COLUMNS = [
  'id',
  'createdAt',
  'organizationId',
  'workspaceId',
  'keyHash',
  'memberId',
  'model',
  'provider',
  'endUser',
  'outcome',
  'accounting',
  'inputTokens',
  'outputTokens',
  'reasoningTokens',
  'cost',
  'isByok',
  'details',
] as const satisfies readonly (keyof UsageRow)[]

function rowOf(record: UsageRecord): (string | number | null)[] {
  const {
    id,
    createdAt,
    organizationId,
    workspaceId,
    keyHash,
    memberId,
    model,
    provider,
    endUser,
    outcome,
    accounting,
    inputTokens,
    outputTokens,
    reasoningTokens,
    cost,
    isByok,
    ...details
  } = record
  return [
    id,
    createdAt,
    organizationId,
    workspaceId,
    keyHash,
    memberId ?? null,
    model,
    provider,
    endUser,
    outcome,
    accounting,
    inputTokens,
    outputTokens,
    reasoningTokens,
    cost,
    Number(isByok),
    JSON.stringify(details),
  ]
}

function recordOf({ details, memberId, ...columns }: UsageRow): UsageRecord {
  return {
    ...(JSON.parse(details) as Omit<UsageRecord, keyof typeof columns | 'memberId'>),
    ...columns,
    ...(memberId === null ? {} : { memberId }),
    inputTokens: Number(columns.inputTokens),
    outputTokens: Number(columns.outputTokens),
    reasoningTokens: Number(columns.reasoningTokens),
    cost: Number(columns.cost),
    isByok: columns.isByok !== 0,
  }
}

export function createCreditStore(db: Kysely<Tables>): CreditStore {
  return {
    async add(entry) {
      const result = await db
        .insertInto('credits')
        .values(entry)
        .onConflict(conflict => conflict.columns(['organizationId', 'id']).doNothing())
        .executeTakeFirst()
      return (result.numInsertedOrUpdatedRows ?? 0n) > 0n
    },
    async find(organizationId, id) {
      const row = await db
        .selectFrom('credits')
        .selectAll()
        .where('organizationId', '=', organizationId)
        .where('id', '=', id)
        .executeTakeFirst()
      return row === undefined ? null : { ...row, amount: Number(row.amount) }
    },
    async total(organizationId) {
      const { total } = await db
        .selectFrom('credits')
        // As text, because the SQLite driver refuses to read a sum that exceeds a number.
        .select(sql<string>`cast(coalesce(sum(amount), 0) as text)`.as('total'))
        .where('organizationId', '=', organizationId)
        .executeTakeFirstOrThrow()
      return Number(total)
    },
  }
}
