/**
 * Usage records as rows: inserts them, and reads them back. Existing ids are skipped, and only new records are counted.
 * An embedded database gets parameters, because it is slower at parsing JSON; a server gets one JSON text, which this
 * thread need not parse.
 */
import { type Kysely, type Selectable, sql, type Transaction } from 'kysely'
import type { Engine } from '../engine.ts'
import { type UsageLine, type Writable, wholeRecord } from '../spool/usage-line.ts'
import type { Tables, UsageTable } from '../tables.ts'
import type { UsageRecord } from '../usage.ts'
import { groupUsage, type UsageGroup } from './usage-totals.ts'

type UsageRow = Selectable<UsageTable>

/** In the order of the values of `rowOf`. */
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

/** Fields of a record that have a column. The others are stored in `details`. */
const COLUMN_FIELDS: ReadonlySet<string> = new Set(
  COLUMNS.filter(name => name !== 'inTotals' && name !== 'details'),
)

/** Records that are inserted between two pauses: a few milliseconds of work. */
const RECORDS_PER_PAUSE = 256

/** Inserts within the current transaction: the database has one writer at a time, and each handle one transaction. */
type InsertRecords = (records: readonly UsageLine[]) => Promise<readonly UsageGroup[]>

/**
 * One statement per row. A statement with many rows makes SQLite copy every page that it changes, in case a row fails;
 * this was two thirds of all writes.
 * @param pause lets other work run between statements
 */
export function createInsertRecords(
  db: Kysely<Tables>,
  runEach: NonNullable<Engine['runEach']>,
  pause: () => Promise<unknown>,
): InsertRecords {
  const { sql: insert } = db
    .insertInto('usage')
    .values(Object.fromEntries(COLUMNS.map(name => [name, ''])) as unknown as UsageRow)
    .onConflict(conflict => conflict.column('id').doNothing())
    .compile()
  return async records => {
    const newRecords: UsageLine[] = []
    for (let start = 0; start < records.length; start += RECORDS_PER_PAUSE) {
      if (start > 0) await pause()
      const part = records.slice(start, start + RECORDS_PER_PAUSE)
      const changes = runEach(insert, part.map(rowOf))
      for (const [index, record] of part.entries()) if (changes[index] !== 0) newRecords.push(record)
    }
    return groupUsage(newRecords)
  }
}

function rowOf(record: UsageLine): (string | number | null)[] {
  const details: Record<string, unknown> = {}
  for (const name in record) if (!COLUMN_FIELDS.has(name)) details[name] = record[name as keyof UsageLine]
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
 * Inserts the records of a JSON array in PostgreSQL.
 * @throws the error of the database, also if an element is not a record
 */
export async function insertJson(
  transaction: Transaction<Tables>,
  json: string,
): Promise<readonly UsageGroup[]> {
  const { rows } = await sql<Omit<UsageGroup, 'sums'> & { sums: string[] }>`
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
        coalesce((r ->> 'isByok')::boolean, false)::integer, 1, (r - ${sql.lit(`{${[...COLUMN_FIELDS].join(',')}}`)}::text[])::text
      from jsonb_array_elements(${json}::jsonb) as records (r)
      on conflict (id) do nothing
      returning *
    )
    select
      organization_id, substr(created_at, 1, 10) as day, key_hash, member_id, workspace_id, model, provider,
      case when provider is null and cost = 0 then null else end_user end as end_user,
      array[
        count(*), sum(input_tokens), sum(output_tokens), sum(reasoning_tokens), sum(cost / 1000000),
        sum(cost % 1000000), sum(is_byok * (cost / 1000000)), sum(is_byok * (cost % 1000000))
      ]::text[] as sums
    from added
    group by 1, 2, 3, 4, 5, 6, 7, 8
  `.execute(transaction)
  return rows
}

/** The usage record of a row. Field by field, because a plan reads 100,000 of them. */
export function recordOf(row: UsageRow): UsageRecord {
  const { memberId, sessionId, agent } = row
  const line: Writable<UsageLine> = {
    ...(JSON.parse(row.details) as Partial<UsageLine>),
    id: row.id,
    createdAt: row.createdAt,
    organizationId: row.organizationId,
    workspaceId: row.workspaceId,
    keyHash: row.keyHash,
    model: row.model,
    provider: row.provider,
    endUser: row.endUser,
    outcome: row.outcome,
    accounting: row.accounting,
    inputTokens: Number(row.inputTokens),
    outputTokens: Number(row.outputTokens),
    reasoningTokens: Number(row.reasoningTokens),
    cost: Number(row.cost),
    isByok: row.isByok !== 0,
  }
  if (memberId !== null) line.memberId = memberId
  if (sessionId !== null) line.sessionId = sessionId
  if (agent !== null) line.agent = agent
  return wholeRecord(line)
}
