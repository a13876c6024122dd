/**
 * Sums over usage records per owner and day, updated in the transaction that adds the records. Reading costs one row
 * per day, whatever the number of records. Totals are kept when records are removed.
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
export interface AlikeUsage {
  readonly organizationId: string
  readonly day: string
  readonly keyHash: string
  readonly memberId: string | null
  readonly workspaceId: string | null
  readonly model: string | null
  readonly provider: string | null
  /** Null also if no provider was called. */
  readonly endUser: string | null
  /** In the order of SUMMED; texts are integers. */
  readonly sums: readonly (number | string)[]
}

const PLACE = [
  'organizationId',
  'kind',
  'owner',
  'day',
  'keyHash',
  'workspaceId',
  'model',
  'provider',
] as const satisfies readonly (keyof UsageTotalsTable)[]
const SUMMED = [
  'requests',
  'inputTokens',
  'outputTokens',
  'reasoningTokens',
  'costHigh',
  'costLow',
  'byokHigh',
  'byokLow',
] as const satisfies readonly (keyof UsageTotalsTable)[]

type Part = 'keyHash' | 'workspaceId' | 'model' | 'provider'

interface Kind {
  readonly kind: TotalKind
  /** Null: the record is not in totals of this kind. */
  readonly ownerOf: (usage: AlikeUsage) => string | null
  /** Columns that separate the sums of one owner and day. */
  readonly parts: readonly Part[]
}

const KINDS: readonly Kind[] = [
  { kind: 'key', ownerOf: usage => usage.keyHash, parts: [] },
  { kind: 'key-models', ownerOf: usage => usage.keyHash, parts: ['workspaceId', 'model', 'provider'] },
  { kind: 'member', ownerOf: usage => usage.memberId, parts: ['workspaceId'] },
  { kind: 'organization', ownerOf: () => '', parts: [] },
  { kind: 'organization-models', ownerOf: () => '', parts: ['workspaceId', 'model', 'provider'] },
  {
    kind: 'user-models',
    ownerOf: usage => usage.endUser,
    parts: ['keyHash', 'workspaceId', 'model', 'provider'],
  },
]

/** A sum of integers up to MAX_SAFE_INTEGER would overflow 64 bits, so costs are summed in two halves. */
const HALF = 1_000_000
/** Rows per statement, largest first. There are few different statements, and each is compiled once. */
const BATCHES = [32, 8, 1] as const

interface Total {
  readonly place: readonly string[]
  readonly sums: bigint[]
}

/** Adds records to the totals, in the transaction that stores them. Returns their number. */
type AddTotals = (transaction: Transaction<Tables>, alike: readonly AlikeUsage[]) => Promise<number>

export function createAddTotals(db: Kysely<Tables>): AddTotals {
  const upserts = new Map<number, CompiledQuery>()
  const upsertOf = (rows: number): CompiledQuery => {
    const cached = upserts.get(rows)
    if (cached !== undefined) return cached
    const empty = Object.fromEntries([...PLACE, ...SUMMED].map(name => [name, ''])) as never
    const compiled = db
      .insertInto('usageTotals')
      .values(Array.from({ length: rows }, () => empty))
      .onConflict(conflict =>
        conflict
          .columns([...PLACE])
          .doUpdateSet(row =>
            Object.fromEntries(
              SUMMED.map(name => [
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

  return async (transaction, alike) => {
    const totals = totalsOf(alike)
    for (let from = 0; from < totals.length; ) {
      const size = BATCHES.find(rows => rows <= totals.length - from) ?? 1
      const parameters = totals.slice(from, from + size).flatMap(({ place, sums }) => [...place, ...sums])
      await transaction.executeQuery({ ...upsertOf(size), parameters })
      from += size
    }
    return alike.reduce((sum, { sums }) => sum + Number(sums[0]), 0)
  }
}

/** This many sums of the largest count are still exact. */
const ALIKE_MAX = 4_096

/** Groups the records that go to the same totals, which is most of a batch. */
export function alike(records: Iterable<CountedUsage>): readonly AlikeUsage[] {
  const found: AlikeUsage[] = []
  const open = new Map<string, number[]>()
  for (const record of records) {
    const { createdAt, organizationId, keyHash, inputTokens, outputTokens, cost } = record
    const { workspaceId = null, memberId = null, model = null, provider = null } = record
    const endUser = isUnasked(record) ? null : (record.endUser ?? null)
    const day = dayOf(createdAt)
    // NUL is a safe separator: no text of a record contains it.
    const totalsKey = `${day}\0${organizationId}\0${keyHash}\0${orNothing(memberId)}\0${orNothing(workspaceId)}`
    const group = `${totalsKey}\0${orNothing(model)}\0${orNothing(provider)}\0${orNothing(endUser)}`
    let sums = open.get(group)
    if (sums === undefined || sums[0] === ALIKE_MAX) {
      sums = [0, 0, 0, 0, 0, 0, 0, 0]
      open.set(group, sums)
      found.push({ organizationId, day, keyHash, memberId, workspaceId, model, provider, endUser, sums })
    }
    const high = Math.floor(cost / HALF)
    const low = cost - high * HALF
    const byok = record.isByok === true ? 1 : 0
    addTo(sums, 0, 1)
    addTo(sums, 1, inputTokens)
    addTo(sums, 2, outputTokens)
    addTo(sums, 3, record.reasoningTokens ?? 0)
    addTo(sums, 4, high)
    addTo(sums, 5, low)
    addTo(sums, 6, byok * high)
    addTo(sums, 7, byok * low)
  }
  return found
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

/** A text for null that no other text equals. */
function orNothing(text: string | null): string {
  return text === null ? '' : `=${text}`
}

function addTo(sums: number[], at: number, value: number): void {
  sums[at] = (sums[at] ?? 0) + value
}

/**
 * All instances sort totals in the same way. Otherwise instances that add to the same totals at once could deadlock.
 */
function totalsOf(alike: readonly AlikeUsage[]): readonly Total[] {
  const totals = new Map<string, Total>()
  for (const usage of alike) {
    const added = usage.sums.map(BigInt)
    for (const { kind, ownerOf, parts } of KINDS) {
      const owner = ownerOf(usage)
      if (owner === null) continue
      const part = (name: Part): string => (parts.includes(name) ? (usage[name] ?? '') : '')
      const keyParts = [
        usage.organizationId,
        kind,
        owner,
        usage.day,
        part('keyHash'),
        part('workspaceId'),
        part('model'),
        part('provider'),
      ]
      const key = JSON.stringify(keyParts)
      const total = totals.get(key)
      if (total === undefined) totals.set(key, { place: keyParts, sums: [...added] })
      else for (const [at, value] of added.entries()) total.sums[at] = (total.sums[at] ?? 0n) + value
    }
  }
  return [...totals].sort(([one], [other]) => (one < other ? -1 : 1)).map(([, total]) => total)
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
    .select(SUMS)
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
  const within = {
    ...(workspaceId === undefined ? {} : { workspaceId }),
    ...(keyHash === undefined || endUser === undefined ? {} : { keyHash }),
  }
  const workspace = byWorkspace ? sql<string>`workspace_id` : sql<string>`''`
  const found: ActivityRow[] = []
  let until = dayOf(filter.until)
  for (;;) {
    const { day } = await totals
      .where('day', '>=', dayOf(filter.since))
      .where('day', '<', until)
      .select(({ fn }) => fn.max('day').as('day'))
      .executeTakeFirstOrThrow()
    if (day === null) return found
    const rows = await totals
      .where('day', '=', day)
      .where(eb => eb.and(within))
      .select(['model', 'provider', workspace.as('workspaceId')])
      .select(SUMS)
      .groupBy(['model', 'provider'])
      .$if(byWorkspace, query => query.groupBy('workspaceId'))
      .orderBy('model')
      .orderBy('provider')
      .$if(byWorkspace, query => query.orderBy('workspaceId'))
      .execute()
    for (const { model, provider, workspaceId, ...sums } of rows) {
      found.push({
        date: day,
        model: orNull(model),
        provider: orNull(provider),
        workspaceId: orNull(workspaceId),
        ...sumsOf(sums),
      })
    }
    until = day
    await pause()
  }
}

/**
 * The totals of one provider and day by model, over all organizations. Reads them one by one, because only the
 * organization finds the rows of a day without reading all others.
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
      .select(SUMS)
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

function orNull(text: string): string | null {
  return text === '' ? null : text
}

/** Exact sums of totals, read by `sumsOf`. */
export const SUMS = [
  asText('requests').as('requests'),
  asText('inputTokens').as('inputTokens'),
  asText('outputTokens').as('outputTokens'),
  asText('reasoningTokens').as('reasoningTokens'),
  asText('costHigh').as('costHigh'),
  asText('costLow').as('costLow'),
  asText('byokHigh').as('byokHigh'),
  asText('byokLow').as('byokLow'),
] as const

/** A sum may exceed a number, and engines return it in different types. */
function asText(name: (typeof SUMMED)[number]) {
  return sql<string>`cast(coalesce(sum(${sql.ref(name)}), 0) as text)`
}

/** Integers from the texts that SUMS selects. */
export function sumsOf(sums: Readonly<Record<(typeof SUMMED)[number], string>>) {
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
