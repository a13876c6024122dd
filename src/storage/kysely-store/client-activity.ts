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
const PART = 500

type Sums = { -readonly [Name in keyof ClientActivityRow]: ClientActivityRow[Name] }

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
  const found = new Map<string, Sums>()
  const onRecord = (record: ClientRecord): boolean => {
    const name = record[filter.by]
    if (name !== null) add(found, record, name)
    return true
  }
  return (await readClientRecords(db, filter, onRecord, pause)) ? [...found.values()].sort(inOrder) : null
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
  const within = {
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
  for (let read = 0; ; ) {
    // The last record of this part, matching or not. Otherwise a filter with few hits would read the whole ledger.
    const border = await sessionRows
      .where(between(first, after))
      .select(['id', 'createdAt'])
      .offset(PART - 1)
      .limit(1)
      .executeTakeFirst()
    const rows = await sessionRows
      .where(between(border ?? first, after))
      .where(eb => eb.and(within))
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
    read += rows.length
    if (read > CLIENT_RECORDS_MAX) return false
    for (const row of rows) if (!onRecord(row)) return false
    if (border === undefined) return true
    after = border
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

function add(found: Map<string, Sums>, row: ClientRecord, name: string): void {
  const { model, provider } = row
  const date = row.createdAt.slice(0, 10)
  const group = JSON.stringify([date, name, model, provider])
  let sums = found.get(group)
  if (sums === undefined) {
    const none = {
      requests: 0,
      inputTokens: 0n,
      outputTokens: 0n,
      reasoningTokens: 0n,
      cost: 0n,
      byokCost: 0n,
    }
    sums = { date, name, model, provider, ...none, cacheReadTokens: 0n, cacheWriteTokens: 0n }
    found.set(group, sums)
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
function inOrder(one: Sums, other: Sums): number {
  if (one.date !== other.date) return one.date < other.date ? 1 : -1
  return one.cost === other.cost ? 0 : one.cost < other.cost ? 1 : -1
}
