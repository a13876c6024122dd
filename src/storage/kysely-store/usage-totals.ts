/**
 * Sums over usage records per owner and day, updated in the transaction that adds the records. Reading costs a row per
 * day, or per day and model, whatever the number of records. Totals are kept when records are removed.
 */
import { type CompiledQuery, type Kysely, sql, type Transaction } from 'kysely'
import type { UsageLine } from '../spool/usage-line.ts'
import type { Tables, TotalKind, UsageTotalsTable } from '../tables.ts'
import type { ActivityFilter, ActivityRow, ProviderDayRow, UsageFilter, UsageTotals } from '../usage.ts'

/** The fields of a record that totals are made of. */
type CountedUsage = Pick<
  UsageLine,
  | 'createdAt'
  | 'organizationId'
  | 'workspaceId'
  | 'keyHash'
  | 'memberId'
  | 'model'
  | 'provider'
  | 'endUser'
  | 'inputTokens'
  | 'outputTokens'
  | 'reasoningTokens'
  | 'cost'
  | 'isByok'
>

/** Sums over records that go to the same totals. */
export interface UsageGroup {
  readonly organizationId: string
  readonly day: string
  readonly keyHash: string
  readonly memberId: string | null
  readonly workspaceId: string | null
  readonly model: string | null
  readonly provider: string | null
  /** Null also if no provider was called. */
  readonly endUser: string | null
  /** In the order of SUM_COLUMNS; texts are integers. */
  readonly sums: readonly (number | string)[]
}

const KEY_COLUMNS = [
  'organizationId',
  'kind',
  'owner',
  'day',
  'keyHash',
  'workspaceId',
  'model',
  'provider',
] as const satisfies readonly (keyof UsageTotalsTable)[]
const SUM_COLUMNS = [
  'requests',
  'inputTokens',
  'outputTokens',
  'reasoningTokens',
  'costHigh',
  'costLow',
  'byokHigh',
  'byokLow',
] as const satisfies readonly (keyof UsageTotalsTable)[]

type SplitColumn = 'keyHash' | 'workspaceId' | 'model' | 'provider'

interface TotalDefinition {
  readonly kind: TotalKind
  /** Null: the record is not in totals of this kind. */
  readonly ownerOf: (usage: UsageGroup) => string | null
  /** Columns that separate the sums of one owner and day. */
  readonly splitBy: readonly SplitColumn[]
}

const TOTAL_KINDS: readonly TotalDefinition[] = [
  { kind: 'key', ownerOf: usage => usage.keyHash, splitBy: [] },
  { kind: 'key-models', ownerOf: usage => usage.keyHash, splitBy: ['workspaceId', 'model', 'provider'] },
  { kind: 'member', ownerOf: usage => usage.memberId, splitBy: ['workspaceId'] },
  { kind: 'organization', ownerOf: () => '', splitBy: [] },
  { kind: 'organization-models', ownerOf: () => '', splitBy: ['workspaceId', 'model', 'provider'] },
  {
    kind: 'user-models',
    ownerOf: usage => usage.endUser,
    splitBy: ['keyHash', 'workspaceId', 'model', 'provider'],
  },
]

/** A sum of integers up to MAX_SAFE_INTEGER would overflow 64 bits, so costs are summed in two halves. */
const COST_SPLIT = 1_000_000
/** Rows per statement, largest first. There are few different statements, and each is compiled once. */
const STATEMENT_ROWS = [32, 8, 1] as const

interface Total {
  readonly keyParts: readonly string[]
  readonly sums: bigint[]
}

/** Adds records to the totals, in the transaction that stores them. Returns their number. */
type AddTotals = (transaction: Transaction<Tables>, groups: readonly UsageGroup[]) => Promise<number>

export function createAddTotals(db: Kysely<Tables>): AddTotals {
  const upserts = new Map<number, CompiledQuery>()
  const upsertOf = (rows: number): CompiledQuery => {
    const cached = upserts.get(rows)
    if (cached !== undefined) return cached
    const empty = Object.fromEntries([...KEY_COLUMNS, ...SUM_COLUMNS].map(name => [name, ''])) as never
    const compiled = db
      .insertInto('usageTotals')
      .values(Array.from({ length: rows }, () => empty))
      .onConflict(conflict =>
        conflict
          .columns([...KEY_COLUMNS])
          .doUpdateSet(row =>
            Object.fromEntries(
              SUM_COLUMNS.map(name => [
                name,
                sql`${row.ref(`usageTotals.${name}`)} + ${row.ref(`excluded.${name}`)}`,
              ]),
            ),
          ),
      )
      .compile()
    upserts.set(rows, compiled)
    return compiled
  }

  return async (transaction, groups) => {
    const totals = totalsOf(groups)
    for (let start = 0; start < totals.length; ) {
      const size = STATEMENT_ROWS.find(rows => rows <= totals.length - start) ?? 1
      const parameters = totals
        .slice(start, start + size)
        .flatMap(({ keyParts, sums }) => [...keyParts, ...sums])
      await transaction.executeQuery({ ...upsertOf(size), parameters })
      start += size
    }
    return groups.reduce((sum, { sums }) => sum + Number(sums[0]), 0)
  }
}

/** Maximum records of a group. The sum of as many of the largest counts is still exact. */
const GROUP_RECORDS_MAX = 4_096

/** Groups records that go to the same totals; most records of a batch do. */
export function groupUsage(records: Iterable<CountedUsage>): readonly UsageGroup[] {
  const groups: UsageGroup[] = []
  const openGroups = new Map<string, number[]>()
  for (const record of records) {
    const { createdAt, organizationId, keyHash, inputTokens, outputTokens, cost } = record
    const { workspaceId = null, memberId = null, model = null, provider = null } = record
    const endUser = isUnasked(record) ? null : (record.endUser ?? null)
    const day = dayOf(createdAt)
    // NUL is a safe separator: no text of a record contains it.
    const totalsKey = `${day}\0${organizationId}\0${keyHash}\0${groupText(memberId)}\0${groupText(workspaceId)}`
    const group = `${totalsKey}\0${groupText(model)}\0${groupText(provider)}\0${groupText(endUser)}`
    let sums = openGroups.get(group)
    if (sums === undefined || sums[0] === GROUP_RECORDS_MAX) {
      sums = [0, 0, 0, 0, 0, 0, 0, 0]
      openGroups.set(group, sums)
      groups.push({ organizationId, day, keyHash, memberId, workspaceId, model, provider, endUser, sums })
    }
    const high = Math.floor(cost / COST_SPLIT)
    const low = cost - high * COST_SPLIT
    const byok = record.isByok === true ? 1 : 0
    addAt(sums, 0, 1)
    addAt(sums, 1, inputTokens)
    addAt(sums, 2, outputTokens)
    addAt(sums, 3, record.reasoningTokens ?? 0)
    addAt(sums, 4, high)
    addAt(sums, 5, low)
    addAt(sums, 6, byok * high)
    addAt(sums, 7, byok * low)
  }
  return groups
}

/**
 * True if no provider was called, so that the request cost nothing. Such requests are in no total of an end user:
 * totals are kept for ever, and a key may name another end user in each request.
 */
export function isUnasked({
  provider,
  cost,
}: {
  readonly provider?: string | null | undefined
  readonly cost: number | bigint | string
}): boolean {
  return provider == null && Number(cost) === 0
}

/** A text for null that differs from every other text. */
function groupText(text: string | null): string {
  return text === null ? '' : `=${text}`
}

function addAt(sums: number[], index: number, value: number): void {
  sums[index] = (sums[index] ?? 0) + value
}

/**
 * All instances sort totals in the same way. Otherwise instances that add to the same totals at once could deadlock.
 */
function totalsOf(groups: readonly UsageGroup[]): readonly Total[] {
  const totals = new Map<string, Total>()
  for (const usage of groups) {
    const values = usage.sums.map(BigInt)
    for (const { kind, ownerOf, splitBy } of TOTAL_KINDS) {
      const owner = ownerOf(usage)
      if (owner === null) continue
      const columnText = (name: SplitColumn): string => (splitBy.includes(name) ? (usage[name] ?? '') : '')
      const keyParts = [
        usage.organizationId,
        kind,
        owner,
        usage.day,
        columnText('keyHash'),
        columnText('workspaceId'),
        columnText('model'),
        columnText('provider'),
      ]
      const key = JSON.stringify(keyParts)
      const total = totals.get(key)
      if (total === undefined) totals.set(key, { keyParts, sums: [...values] })
      else
        for (const [index, value] of values.entries()) total.sums[index] = (total.sums[index] ?? 0n) + value
    }
  }
  return [...totals].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, total]) => total)
}

/** The day (YYYY-MM-DD) of an ISO 8601 time; '' for the beginning of time. */
function dayOf(time: string): string {
  return time.slice(0, 10)
}

export async function sumUsage(db: Kysely<Tables>, filter: UsageFilter): Promise<UsageTotals> {
  const { organizationId, since, keyHash, memberId, workspaceId } = filter
  const [kind, owner]: [TotalKind, string] =
    keyHash !== undefined
      ? ['key', keyHash]
      : memberId !== undefined
        ? ['member', memberId]
        : ['organization', '']
  const row = await db
    .selectFrom('usageTotals')
    .where(where =>
      where.and({ organizationId, kind, owner, ...(workspaceId === undefined ? {} : { workspaceId }) }),
    )
    .where('day', '>=', dayOf(since))
    .select(SUM_SELECTION)
    .executeTakeFirstOrThrow()
  const { reasoningTokens, ...totals } = sumsOf(row)
  return totals
}

/** The totals by model: of an end user, otherwise of a key, otherwise of the whole organization. */
export function modelTotals(
  db: Kysely<Tables>,
  { organizationId, keyHash, endUser }: Pick<ActivityFilter, 'organizationId' | 'keyHash' | 'endUser'>,
) {
  const [kind, owner]: [TotalKind, string] =
    endUser !== undefined
      ? ['user-models', endUser]
      : keyHash !== undefined
        ? ['key-models', keyHash]
        : ['organization-models', '']
  return db.selectFrom('usageTotals').where(eb => eb.and({ organizationId, kind, owner }))
}

/**
 * Reads the days one by one, newest first. An embedded database runs on the calling thread, and `pause` lets other work
 * run between the days.
 */
export async function readActivity(
  db: Kysely<Tables>,
  filter: ActivityFilter,
  pause: () => Promise<unknown>,
): Promise<readonly ActivityRow[]> {
  const { workspaceId, keyHash, endUser, byWorkspace } = filter
  const totals = modelTotals(db, filter)
  const conditions = {
    ...(workspaceId === undefined ? {} : { workspaceId }),
    ...(keyHash === undefined || endUser === undefined ? {} : { keyHash }),
  }
  const workspace = byWorkspace ? sql<string>`workspace_id` : sql<string>`''`
  const activity: ActivityRow[] = []
  let until = dayOf(filter.until)
  for (;;) {
    const { day } = await totals
      .where('day', '>=', dayOf(filter.since))
      .where('day', '<', until)
      .select(({ fn }) => fn.max('day').as('day'))
      .executeTakeFirstOrThrow()
    if (day === null) return activity
    const rows = await totals
      .where('day', '=', day)
      .where(eb => eb.and(conditions))
      .select(['model', 'provider', workspace.as('workspaceId')])
      .select(SUM_SELECTION)
      .groupBy(['model', 'provider'])
      .$if(byWorkspace, query => query.groupBy('workspaceId'))
      .orderBy('model')
      .orderBy('provider')
      .$if(byWorkspace, query => query.orderBy('workspaceId'))
      .execute()
    for (const { model, provider, workspaceId, ...sums } of rows) {
      activity.push({
        date: day,
        model: nullIfEmpty(model),
        provider: nullIfEmpty(provider),
        workspaceId: nullIfEmpty(workspaceId),
        ...sumsOf(sums),
      })
    }
    until = day
    await pause()
  }
}

/**
 * The totals of one provider and day by model, over all organizations. Reads organization by organization, because the
 * primary key begins with the organization.
 */
export async function readProviderDay(
  db: Kysely<Tables>,
  provider: string,
  day: string,
): Promise<readonly ProviderDayRow[]> {
  const sums = new Map<string, ProviderDayRow>()
  let organizationId: string | null = ''
  for (;;) {
    const next: { id: string | null } = await db
      .selectFrom('usageTotals')
      .where('organizationId', '>', organizationId)
      .select(({ fn }) => fn.min('organizationId').as('id'))
      .executeTakeFirstOrThrow()
    organizationId = next.id
    if (organizationId === null) return [...sums.values()]
    const rows = await modelTotals(db, { organizationId })
      .where(eb => eb.and({ provider, day }))
      .select('model')
      .select(SUM_SELECTION)
      .groupBy('model')
      .execute()
    for (const { model, ...texts } of rows) {
      const recordSums = sumsOf(texts)
      const before = sums.get(model)
      sums.set(model, {
        model,
        requests: recordSums.requests + (before?.requests ?? 0),
        inputTokens: recordSums.inputTokens + (before?.inputTokens ?? 0n),
        outputTokens: recordSums.outputTokens + (before?.outputTokens ?? 0n),
        cost: recordSums.cost - recordSums.byokCost + (before?.cost ?? 0n),
      })
    }
  }
}

function nullIfEmpty(text: string): string | null {
  return text === '' ? null : text
}

/** Exact sums of totals, read by `sumsOf`. */
export const SUM_SELECTION = [
  sumAsText('requests').as('requests'),
  sumAsText('inputTokens').as('inputTokens'),
  sumAsText('outputTokens').as('outputTokens'),
  sumAsText('reasoningTokens').as('reasoningTokens'),
  sumAsText('costHigh').as('costHigh'),
  sumAsText('costLow').as('costLow'),
  sumAsText('byokHigh').as('byokHigh'),
  sumAsText('byokLow').as('byokLow'),
] as const

/** A sum may exceed a number, and engines return it in different types. */
function sumAsText(name: (typeof SUM_COLUMNS)[number]) {
  return sql<string>`cast(coalesce(sum(${sql.ref(name)}), 0) as text)`
}

/** Integers from the texts that SUM_SELECTION selects. */
export function sumsOf(sums: Readonly<Record<(typeof SUM_COLUMNS)[number], string>>) {
  const joinHalves = (high: string, low: string): bigint => BigInt(high) * BigInt(COST_SPLIT) + BigInt(low)
  return {
    requests: Number(sums.requests),
    inputTokens: BigInt(sums.inputTokens),
    outputTokens: BigInt(sums.outputTokens),
    reasoningTokens: BigInt(sums.reasoningTokens),
    cost: joinHalves(sums.costHigh, sums.costLow),
    byokCost: joinHalves(sums.byokHigh, sums.byokLow),
  }
}
