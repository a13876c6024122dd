/**
 * Sums over usage records that name a session or an agent. There are too many names for totals, so the records are
 * read: in pages, because an embedded database runs on the calling thread, and up to a bound.
 */
import type { Kysely } from 'kysely'
import type { Tables } from '../tables.ts'
import type { ClientActivityFilter, ClientActivityRow } from '../usage.ts'
import { between } from './usage-search.ts'

/** Maximum of records that one query may read. */
const CLIENT_RECORDS_MAX = 100_000
/** Records per statement. */
const PAGE_RECORDS = 500

type ActivitySums = { -readonly [Name in keyof ClientActivityRow]: ClientActivityRow[Name] }

/** Fields of a record that have no column. */
interface Details {
  readonly cachedTokens?: number
  readonly cacheWriteTokens?: number
}

/** @param pause lets other work run between two pages */
export async function readClientActivity(
  db: Kysely<Tables>,
  filter: ClientActivityFilter,
  pause: () => Promise<unknown>,
): Promise<readonly ClientActivityRow[] | null> {
  const groups = new Map<string, ActivitySums>()
  const onRecord = (record: ClientRecord): boolean => {
    const name = record[filter.by]
    if (name !== null) add(groups, record, name)
    return true
  }
  return (await readClientRecords(db, filter, onRecord, pause))
    ? [...groups.values()].sort(compareRows)
    : null
}

/**
 * Calls `onRecord` with each record that names a session or an agent, newest first, until it returns false.
 * @returns false if there are more than CLIENT_RECORDS_MAX records, or `onRecord` returned false
 */
export async function readClientRecords(
  db: Kysely<Tables>,
  { organizationId, since, until, workspaceId, keyHash, endUser }: Omit<ClientActivityFilter, 'by'>,
  onRecord: (record: ClientRecord) => boolean,
  pause: () => Promise<unknown>,
): Promise<boolean> {
  const conditions = {
    ...(workspaceId === undefined ? {} : { workspaceId }),
    ...(keyHash === undefined ? {} : { keyHash }),
    ...(endUser === undefined ? {} : { endUser }),
  }
  // The same condition as the index `usage_by_session`.
  const sessionRows = db
    .selectFrom('usage')
    .where('organizationId', '=', organizationId)
    .where(eb => eb.or([eb('sessionId', 'is not', null), eb('agent', 'is not', null)]))
    .orderBy('createdAt', 'desc')
    .orderBy('id', 'desc')
  const first = { createdAt: since, id: '' }
  let after = { createdAt: until, id: '' }
  for (let readCount = 0; ; ) {
    // The last record of this page, whether it matches or not. Otherwise a filter with few matches would read the whole
    // ledger.
    const lastOfPage = await sessionRows
      .where(between(first, after))
      .select(['id', 'createdAt'])
      .offset(PAGE_RECORDS - 1)
      .limit(1)
      .executeTakeFirst()
    const rows = await sessionRows
      .where(between(lastOfPage ?? first, after))
      .where(eb => eb.and(conditions))
      .select([
        'id',
        'createdAt',
        'keyHash',
        'workspaceId',
        'model',
        'provider',
        'sessionId',
        'agent',
        'endUser',
        'details',
      ])
      .select(['inputTokens', 'outputTokens', 'reasoningTokens', 'cost', 'isByok'])
      .execute()
    readCount += rows.length
    if (readCount > CLIENT_RECORDS_MAX) return false
    for (const row of rows) if (!onRecord(row)) return false
    if (lastOfPage === undefined) return true
    after = lastOfPage
    await pause()
  }
}

/** A record that names a session or an agent. */
export interface ClientRecord {
  readonly createdAt: string
  readonly keyHash: string
  readonly workspaceId: string | null
  readonly model: string | null
  readonly provider: string | null
  readonly sessionId: string | null
  readonly agent: string | null
  readonly endUser: string | null
  readonly details: string
  readonly inputTokens: number | bigint | string
  readonly outputTokens: number | bigint | string
  readonly reasoningTokens: number | bigint | string
  readonly cost: number | bigint | string
  readonly isByok: number
}

function add(groups: Map<string, ActivitySums>, row: ClientRecord, name: string): void {
  const { model, provider } = row
  const date = row.createdAt.slice(0, 10)
  const group = JSON.stringify([date, name, model, provider])
  let sums = groups.get(group)
  if (sums === undefined) {
    const zeroSums = {
      requests: 0,
      inputTokens: 0n,
      outputTokens: 0n,
      reasoningTokens: 0n,
      cost: 0n,
      byokCost: 0n,
    }
    sums = { date, name, model, provider, ...zeroSums, cacheReadTokens: 0n, cacheWriteTokens: 0n }
    groups.set(group, sums)
  }
  const { cachedTokens = 0, cacheWriteTokens = 0 } = JSON.parse(row.details) as Details
  const cost = BigInt(row.cost)
  sums.requests++
  sums.inputTokens += BigInt(row.inputTokens)
  sums.outputTokens += BigInt(row.outputTokens)
  sums.reasoningTokens += BigInt(row.reasoningTokens)
  sums.cost += cost
  if (row.isByok !== 0) sums.byokCost += cost
  sums.cacheReadTokens += BigInt(cachedTokens)
  sums.cacheWriteTokens += BigInt(cacheWriteTokens)
}

/** Newest day first; within a day the highest cost first. */
function compareRows(a: ActivitySums, b: ActivitySums): number {
  if (a.date !== b.date) return a.date < b.date ? 1 : -1
  return a.cost === b.cost ? 0 : a.cost < b.cost ? 1 : -1
}
