/** The usage ledger and the credits in the database. */
import { setImmediate as turn } from 'node:timers/promises'
import { type CompiledQuery, type Kysely, type Selectable, sql } from 'kysely'
import type { Engine } from '../engine.ts'
import type { CreditStore, LedgerStore } from '../store.ts'
import type { Tables, UsageTable } from '../tables.ts'
import type { UsageRecord } from '../usage.ts'
import { inTransaction } from './rows.ts'
import { createAddTotals, readActivity, sumUsage } from './usage-totals.ts'

type UsageRow = Selectable<UsageTable>

/** Rows per insert, largest first: few different statements, each compiled and prepared once. */
const BATCHES = [64, 8, 1] as const

export function createLedgerStore(db: Kysely<Tables>, engine: Engine): LedgerStore {
  const addTotals = createAddTotals(db)
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
      .returning('id')
      .compile()
    inserts.set(rows, compiled)
    return compiled
  }

  return {
    async add(records) {
      if (records.length === 0) return 0
      const offered = new Map<string, UsageRecord>()
      // Of two records with one id the first is stored.
      for (const record of records) if (!offered.has(record.id)) offered.set(record.id, record)
      // One transaction is one wait for the disk.
      return await inTransaction(db, async transaction => {
        const added: UsageRecord[] = []
        for (let from = 0; from < records.length; ) {
          const size = BATCHES.find(rows => rows <= records.length - from) ?? 1
          const parameters = records.slice(from, from + size).flatMap(rowOf)
          const { rows } = await transaction.executeQuery({ ...insertOf(size), parameters })
          for (const { id } of rows as readonly { readonly id: string }[]) {
            const record = offered.get(id)
            if (record !== undefined) added.push(record)
          }
          from += size
        }
        await addTotals(transaction, added)
        return added.length
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
    async latest({ organizationId, keyHash, before }, limit) {
      const rows = await db
        .selectFrom('usage')
        .select(COLUMNS)
        .where(where => where.and({ organizationId, ...(keyHash === undefined ? {} : { keyHash }) }))
        .$if(before !== undefined, query =>
          query.where(where =>
            where(
              where.refTuple('createdAt', 'id'),
              '<',
              where.tuple(before?.createdAt ?? '', before?.id ?? ''),
            ),
          ),
        )
        .orderBy('createdAt', 'desc')
        .orderBy('id', 'desc')
        .limit(limit)
        .execute()
      return rows.map(recordOf)
    },
    usageSince: filter => sumUsage(db, filter),
    activity: filter => readActivity(db, filter, turn),
    async fillTotals(limit) {
      return await inTransaction(db, async transaction => {
        await engine.serialize(transaction, 'usage-fill')
        const state = await transaction.selectFrom('usageFill').select('afterId').executeTakeFirst()
        if (state === undefined) return null
        const rows = await transaction
          .selectFrom('usage')
          .select(COLUMNS)
          .where('id', '>', state.afterId)
          .orderBy('id')
          .limit(limit)
          .execute()
        const missing = rows.filter(({ inTotals }) => inTotals === 0).map(recordOf)
        await addTotals(transaction, missing)
        const last = rows.at(-1)
        if (last === undefined || rows.length < limit) await transaction.deleteFrom('usageFill').execute()
        else await transaction.updateTable('usageFill').set({ afterId: last.id }).execute()
        return { counted: missing.length, upTo: last?.createdAt ?? null }
      })
    },
    async prune(before, limit) {
      const filling = await db.selectFrom('usageFill').select('afterId').executeTakeFirst()
      if (filling !== undefined) return 0
      let organizationId = ''
      let removed = 0
      while (removed < limit) {
        // Records are found by organization and age: the index leads from one organization to the next.
        const next = await db
          .selectFrom('usage')
          .select(({ fn }) => fn.min('organizationId').as('organizationId'))
          .where('organizationId', '>', organizationId)
          .executeTakeFirstOrThrow()
        if (next.organizationId === null) break
        organizationId = next.organizationId
        const { numDeletedRows } = await db
          .deleteFrom('usage')
          .where('id', 'in', from =>
            from
              .selectFrom('usage')
              .select('id')
              .where('organizationId', '=', organizationId)
              .where('createdAt', '<', before)
              .orderBy('createdAt')
              .limit(limit - removed),
          )
          .executeTakeFirst()
        removed += Number(numDeletedRows)
      }
      return removed
    },
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
  'inTotals',
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
    1,
    JSON.stringify(details),
  ]
}

function recordOf({ details, memberId, inTotals, ...columns }: UsageRow): UsageRecord {
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
