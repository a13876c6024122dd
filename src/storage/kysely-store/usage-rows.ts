/**
 * Usage records as rows: inserts them, and reads them again. Ids that exist are skipped, and new records alone are
 * counted. An embedded database gets parameters, since its own reading of JSON takes longer; a server gets one JSON
 * text, which this thread need not read.
 */
import { type CompiledQuery, type Kysely, type Selectable, sql, type Transaction } from 'kysely'
import { type UsageLine, wholeRecord } from '../spool/usage-line.ts'
import type { Tables, UsageTable } from '../tables.ts'
import type { UsageRecord } from '../usage.ts'
import { type AlikeUsage, alike } from './usage-totals.ts'

type UsageRow = Selectable<UsageTable>

/** In the order of the values from `rowOf`. */
export const COLUMNS = [
  'id',
  'createdAt',
  'organizationId',
  'workspaceId',
  'keyHash',
  'memberId',
  'model',
  'provider',
  'endUser',
  'sessionId',
  'agent',
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

/** Fields of a record that are columns; the others are its details. */
const FIELDS: ReadonlySet<string> = new Set(COLUMNS.filter(name => name !== 'inTotals' && name !== 'details'))

/** Rows per insert, largest first: few different statements, each compiled and prepared once. */
const BATCHES = [64, 8, 1] as const

/** For a database whose transactions are the only writer. */
type InsertRecords = (
  transaction: Transaction<Tables>,
  records: readonly UsageLine[],
) => Promise<readonly AlikeUsage[]>

export function createInsertRecords(db: Kysely<Tables>): InsertRecords {
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

  return async (transaction, records) => {
    const last = await sql<{ row: number | null }>`select max(rowid) as row from usage`.execute(transaction)
    let added = 0
    for (let from = 0; from < records.length; ) {
      const size = BATCHES.find(rows => rows <= records.length - from) ?? 1
      const parameters: (string | number | null)[] = []
      for (const record of records.slice(from, from + size)) parameters.push(...rowOf(record))
      const { numAffectedRows } = await transaction.executeQuery({ ...insertOf(size), parameters })
      added += Number(numAffectedRows)
      from += size
    }
    if (added === records.length) return alike(records)
    // Some were here before. Naming the new ones each time would cost more than the rare second look.
    const { rows } = await sql<{ id: string }>`
      select id from usage where rowid > ${last.rows[0]?.row ?? 0}
    `.execute(transaction)
    const fresh = new Set(rows.map(({ id }) => id))
    // Of two records with one id the first is stored.
    return alike(records.filter(({ id }) => fresh.delete(id)))
  }
}

function rowOf(record: UsageLine): (string | number | null)[] {
  const details: Record<string, unknown> = {}
  for (const name in record) if (!FIELDS.has(name)) details[name] = record[name as keyof UsageLine]
  return [
    record.id,
    record.createdAt,
    record.organizationId,
    record.workspaceId ?? null,
    record.keyHash,
    record.memberId ?? null,
    record.model ?? null,
    record.provider ?? null,
    record.endUser ?? null,
    record.sessionId ?? null,
    record.agent ?? null,
    record.outcome,
    record.accounting,
    record.inputTokens,
    record.outputTokens,
    record.reasoningTokens ?? 0,
    record.cost,
    record.isByok === true ? 1 : 0,
    1,
    JSON.stringify(details),
  ]
}

/**
 * Inserts the records of a JSON array, in PostgreSQL.
 * @throws the error of the database, also if one of them is no record
 */
export async function insertJson(
  transaction: Transaction<Tables>,
  json: string,
): Promise<readonly AlikeUsage[]> {
  const { rows } = await sql<Omit<AlikeUsage, 'sums'> & { sums: string[] }>`
    with added as (
      insert into usage (
        id, created_at, organization_id, workspace_id, key_hash, member_id, model, provider, end_user, session_id, agent,
        outcome, accounting, input_tokens, output_tokens, reasoning_tokens, cost, is_byok, in_totals, details
      )
      select
        r ->> 'id', r ->> 'createdAt', r ->> 'organizationId', r ->> 'workspaceId', r ->> 'keyHash',
        r ->> 'memberId', r ->> 'model', r ->> 'provider', r ->> 'endUser', r ->> 'sessionId', r ->> 'agent',
        r ->> 'outcome', r ->> 'accounting',
        (r ->> 'inputTokens')::bigint, (r ->> 'outputTokens')::bigint,
        coalesce((r ->> 'reasoningTokens')::bigint, 0), (r ->> 'cost')::bigint,
        coalesce((r ->> 'isByok')::boolean, false)::integer, 1, (r - ${sql.lit(`{${[...FIELDS].join(',')}}`)}::text[])::text
      from jsonb_array_elements(${json}::jsonb) as records (r)
      on conflict (id) do nothing
      returning *
    )
    select
      organization_id, substr(created_at, 1, 10) as day, key_hash, member_id, workspace_id, model, provider, end_user,
      array[
        count(*), sum(input_tokens), sum(output_tokens), sum(reasoning_tokens), sum(cost / 1000000),
        sum(cost % 1000000), sum(is_byok * (cost / 1000000)), sum(is_byok * (cost % 1000000))
      ]::text[] as sums
    from added
    group by 1, 2, 3, 4, 5, 6, 7, 8
  `.execute(transaction)
  return rows
}

/** The usage record of a row. */
export function recordOf({
  details,
  memberId,
  inTotals,
  sessionId,
  agent,
  ...columns
}: UsageRow): UsageRecord {
  return wholeRecord({
    ...(JSON.parse(details) as Partial<UsageLine>),
    ...columns,
    ...(memberId === null ? {} : { memberId }),
    ...(sessionId === null ? {} : { sessionId }),
    ...(agent === null ? {} : { agent }),
    inputTokens: Number(columns.inputTokens),
    outputTokens: Number(columns.outputTokens),
    reasoningTokens: Number(columns.reasoningTokens),
    cost: Number(columns.cost),
    isByok: columns.isByok !== 0,
  })
}
