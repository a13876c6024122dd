/** The usage ledger in the database. */
import { type Kysely, type Selectable, sql } from 'kysely'
import type { LedgerStore } from '../store.ts'
import type { Tables, UsageTable } from '../tables.ts'
import type { UsageRecord } from '../usage.ts'

/** Rows per statement: 14 parameters each, far below what engines take (32,766 and 65,535). */
const BATCH_ROWS = 200
/** Costs are summed in two halves, so that no engine's 64-bit sum overflows for millions of dollars. */
const HALF = 1_000_000

export function createLedgerStore(db: Kysely<Tables>): LedgerStore {
  return {
    async add(records) {
      let added = 0
      for (let from = 0; from < records.length; from += BATCH_ROWS) {
        const result = await db
          .insertInto('usage')
          .values(records.slice(from, from + BATCH_ROWS).map(rowOf))
          .onConflict(conflict => conflict.column('id').doNothing())
          .executeTakeFirst()
        added += Number(result.numInsertedOrUpdatedRows ?? 0n)
      }
      return added
    },
    async find(id, organizationId) {
      const row = await db
        .selectFrom('usage')
        .selectAll()
        .where('id', '=', id)
        .where('organizationId', '=', organizationId)
        .executeTakeFirst()
      return row === undefined ? null : recordOf(row)
    },
    async usageSince({ organizationId, since, workspaceId, keyHash, endUser }) {
      let query = db
        .selectFrom('usage')
        .select([
          // As text: a sum may be more than a number holds, and engines differ in how they give it.
          sql<string>`cast(count(*) as text)`.as('requests'),
          sql<string>`cast(coalesce(sum(input_tokens), 0) as text)`.as('inputTokens'),
          sql<string>`cast(coalesce(sum(output_tokens), 0) as text)`.as('outputTokens'),
          sql<string>`cast(coalesce(sum(cost / ${sql.lit(HALF)}), 0) as text)`.as('costHigh'),
          sql<string>`cast(coalesce(sum(cost % ${sql.lit(HALF)}), 0) as text)`.as('costLow'),
        ])
        .where('organizationId', '=', organizationId)
        .where('createdAt', '>=', since)
      if (workspaceId !== undefined) query = query.where('workspaceId', '=', workspaceId)
      if (keyHash !== undefined) query = query.where('keyHash', '=', keyHash)
      if (endUser !== undefined) query = query.where('endUser', '=', endUser)
      const sums = await query.executeTakeFirstOrThrow()
      return {
        requests: Number(sums.requests),
        inputTokens: BigInt(sums.inputTokens),
        outputTokens: BigInt(sums.outputTokens),
        cost: BigInt(sums.costHigh) * BigInt(HALF) + BigInt(sums.costLow),
      }
    },
  }
}

function rowOf(record: UsageRecord): Selectable<UsageTable> {
  const {
    id,
    createdAt,
    organizationId,
    workspaceId,
    keyHash,
    model,
    provider,
    endUser,
    outcome,
    accounting,
    inputTokens,
    outputTokens,
    cost,
    ...details
  } = record
  return {
    id,
    createdAt,
    organizationId,
    workspaceId,
    keyHash,
    model,
    provider,
    endUser,
    outcome,
    accounting,
    inputTokens,
    outputTokens,
    cost,
    details: JSON.stringify(details),
  }
}

function recordOf(row: Selectable<UsageTable>): UsageRecord {
  const { details, inputTokens, outputTokens, cost, ...columns } = row
  return {
    ...(JSON.parse(details) as Omit<UsageRecord, keyof typeof columns>),
    ...columns,
    inputTokens: Number(inputTokens),
    outputTokens: Number(outputTokens),
    cost: Number(cost),
  }
}
