/**
 * Sums over the usage records of one time span, for a chart. They are read in short statements, because an embedded
 * database runs on the calling thread.
 */
import { type Kysely, sql } from 'kysely'
import { FAILURES } from '../../base/errors.ts'
import type { Engine } from '../engine.ts'
import type { Tables } from '../tables.ts'
import type { SpanFilter, SpanTotals } from '../usage.ts'
import { COLUMNS, recordOf } from './usage-rows.ts'

/** Records per statement. */
const STATEMENT_RECORDS = 5_000
/** Failures that are the caller's fault if no provider was called. */
const CALLER_FAULT_CODES = Object.entries(FAILURES).flatMap(([code, { status }]) =>
  status < 500 ? [code] : [],
)

/** @param samples number of latest requests whose times to the first token are returned */
export async function readSpan(
  db: Kysely<Tables>,
  { name }: Engine,
  { organizationId, since, until }: SpanFilter,
  samples: number,
  pause: () => Promise<unknown>,
): Promise<SpanTotals> {
  const detail = (field: string) =>
    name === 'postgres'
      ? sql<string | null>`details::json ->> ${sql.lit(field)}`
      : sql<string | null>`json_extract(details, ${sql.lit(`$.${field}`)})`
  const isRequest = sql<boolean>`${detail('parent')} is null`
  const isFailure = sql<boolean>`outcome = 'failed'
    and (provider is not null or coalesce(${detail('error')}, '') not in (${sql.join(CALLER_FAULT_CODES)}))`
  const between = (from: string, to: string) =>
    db
      .selectFrom('usage')
      .where('organizationId', '=', organizationId)
      .where('createdAt', '>=', from)
      .where('createdAt', '<', to)
  let [requests, failed, cost] = [0, 0, 0n]
  for (let from = since; from < until; await pause()) {
    const endOfPart = await between(from, until)
      .select('createdAt')
      .orderBy('createdAt')
      .orderBy('id')
      .offset(STATEMENT_RECORDS)
      .limit(1)
      .executeTakeFirst()
    // Records with the same time stay in one part.
    const to = endOfPart === undefined || endOfPart.createdAt === from ? until : endOfPart.createdAt
    const sums = await between(from, to)
      .select([
        sql<number | string | null>`sum(case when ${isRequest} then 1 else 0 end)`.as('requests'),
        sql<number | string | null>`sum(case when ${isRequest} and ${isFailure} then 1 else 0 end)`.as(
          'failed',
        ),
        sql<string>`cast(coalesce(sum(cost), 0) as text)`.as('cost'),
      ])
      .executeTakeFirstOrThrow()
    requests += Number(sums.requests ?? 0)
    failed += Number(sums.failed ?? 0)
    cost += BigInt(sums.cost)
    from = to
  }
  const rows =
    requests === 0
      ? []
      : await between(since, until)
          .select(COLUMNS)
          .where(isRequest)
          .orderBy('createdAt', 'desc')
          .orderBy('id', 'desc')
          .limit(samples)
          .execute()
  return {
    requests,
    failed,
    cost,
    firstTokenMs: rows
      .map(recordOf)
      .flatMap(({ latencyMs, generationMs }) =>
        generationMs === null ? [] : [Math.max(0, latencyMs - generationMs)],
      ),
  }
}
