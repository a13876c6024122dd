/** The usage ledger and the credits in the database. */
import { setImmediate as turn } from 'node:timers/promises'
import { type Kysely, sql, type Transaction } from 'kysely'
import type { Engine } from '../engine.ts'
import type { LedgerStore } from '../ledger.ts'
import { parseLines, type UsageLine } from '../spool/usage-line.ts'
import type { CreditStore } from '../store.ts'
import type { Tables } from '../tables.ts'
import { readClientActivity } from './client-activity.ts'
import { firstOf, inTransaction } from './rows.ts'
import { readDimensions } from './usage-dimensions.ts'
import { COLUMNS, createInsertRecords, insertJson, recordOf } from './usage-rows.ts'
import { searchUsage } from './usage-search.ts'
import { readSpan } from './usage-span.ts'
import {
  createAddTotals,
  groupUsage,
  readActivity,
  readProviderDay,
  sumUsage,
  type UsageGroup,
} from './usage-totals.ts'

/** Records that a scan reads at once: few, so that they are garbage while they are young. */
const SCAN_PAGE_RECORDS = 1_000

export function createLedgerStore(db: Kysely<Tables>, engine: Engine): LedgerStore {
  const addTotals = createAddTotals(db)
  const { runEach } = engine
  const insertRecords = runEach === null ? null : createInsertRecords(db, runEach, turn)
  /** One transaction, so that the disk is synced once. */
  const addNew = (insert: (transaction: Transaction<Tables>) => Promise<readonly UsageGroup[]>) =>
    inTransaction(db, async transaction => addTotals(transaction, await insert(transaction)))
  const add = async (records: readonly UsageLine[]): Promise<number> =>
    records.length === 0
      ? 0
      : await addNew(transaction =>
          insertRecords === null ? insertJson(transaction, JSON.stringify(records)) : insertRecords(records),
        )

  return {
    add,
    async addLines(lines) {
      if (insertRecords === null) {
        const json = `[${lines.trim().replaceAll(/\n+/g, ',')}]`
        try {
          return { added: await addNew(transaction => insertJson(transaction, json)), invalidLines: 0 }
        } catch (error) {
          const { records, invalidLines } = parseLines(lines)
          if (invalidLines === 0) throw error
          return { added: await add(records), invalidLines }
        }
      }
      const { records, invalidLines } = parseLines(lines)
      return { added: await add(records), invalidLines }
    },
    async find(id, organizationId) {
      const query = db
        .selectFrom('usage')
        .select(COLUMNS)
        .where(eb => eb.and({ id, organizationId }))
      return await firstOf(query, recordOf)
    },
    async findOfAny(id) {
      return await firstOf(db.selectFrom('usage').select(COLUMNS).where('id', '=', id), recordOf)
    },
    async latest({ organizationId, keyHash, before }, limit) {
      const rows = await db
        .selectFrom('usage')
        .select(COLUMNS)
        .where(eb => eb.and({ organizationId, ...(keyHash === undefined ? {} : { keyHash }) }))
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
    async scan(since, visit) {
      let organizationId = ''
      for (;;) {
        // The index has one organization after the other.
        const next = await db
          .selectFrom('usage')
          .select(({ fn }) => fn.min('organizationId').as('organizationId'))
          .where('organizationId', '>', organizationId)
          .executeTakeFirst()
        if (next?.organizationId == null) return
        organizationId = next.organizationId
        let after = { createdAt: since, id: '' }
        for (;;) {
          const rows = await db
            .selectFrom('usage')
            .select(COLUMNS)
            .where('organizationId', '=', organizationId)
            .where(where =>
              where(where.refTuple('createdAt', 'id'), '>', where.tuple(after.createdAt, after.id)),
            )
            .orderBy('createdAt')
            .orderBy('id')
            .limit(SCAN_PAGE_RECORDS)
            .execute()
          visit(rows.map(recordOf))
          const last = rows.at(-1)
          if (last === undefined || rows.length < SCAN_PAGE_RECORDS) break
          after = last
          await turn()
        }
      }
    },
    usageSince: filter => sumUsage(db, filter),
    activity: filter => readActivity(db, filter, turn),
    providerDay: (provider, day) => readProviderDay(db, provider, day),
    clientActivity: filter => readClientActivity(db, filter, turn),
    byDimensions: filter => readDimensions(db, filter, turn),
    search: (filter, limit) => searchUsage(db, engine, filter, limit, turn),
    span: (filter, samples) => readSpan(db, engine, filter, samples, turn),
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
        const uncountedRecords = rows.filter(({ inTotals }) => inTotals === 0).map(recordOf)
        await addTotals(transaction, groupUsage(uncountedRecords))
        const last = rows.at(-1)
        if (last === undefined || rows.length < limit) await transaction.deleteFrom('usageFill').execute()
        else await transaction.updateTable('usageFill').set({ afterId: last.id }).execute()
        return { counted: uncountedRecords.length, upTo: last?.createdAt ?? null }
      })
    },
    async prune(before, limit) {
      const progress = await db.selectFrom('usageFill').select('afterId').executeTakeFirst()
      if (progress !== undefined) return 0
      let organizationId = ''
      let removedCount = 0
      while (removedCount < limit) {
        // Records are found by organization and age. The index gives one organization after the other.
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
              .limit(limit - removedCount),
          )
          .executeTakeFirst()
        removedCount += Number(numDeletedRows)
      }
      return removedCount
    },
    async pruneUnasked(recordsMax, limit) {
      const progress = await db.selectFrom('usageFill').select('afterId').executeTakeFirst()
      if (progress !== undefined) return 0
      let owner: UnaskedOwner | undefined
      let removedCount = 0
      while (removedCount < limit) {
        owner = await nextUnasked(db, owner)
        if (owner === undefined) break
        removedCount += await removeUnasked(db, owner, recordsMax, limit - removedCount)
      }
      return removedCount
    },
  }
}

/** A workspace with records of requests that reached no provider; '' for keys without a workspace. */
interface UnaskedOwner {
  readonly organizationId: string
  readonly workspaceId: string
}

/** The same condition as the index `usage_unasked`. */
const REACHED_NO_PROVIDER = sql<boolean>`provider is null and cost = 0`
const WORKSPACE = sql<string>`coalesce(workspace_id, '')`

async function nextUnasked(
  db: Kysely<Tables>,
  after: UnaskedOwner | undefined,
): Promise<UnaskedOwner | undefined> {
  return await db
    .selectFrom('usage')
    .select(['organizationId', WORKSPACE.as('workspaceId')])
    .where(REACHED_NO_PROVIDER)
    .$if(after !== undefined, query =>
      query.where(
        sql<boolean>`(organization_id, ${WORKSPACE}) > (${after?.organizationId}, ${after?.workspaceId})`,
      ),
    )
    .orderBy('organizationId')
    .orderBy(WORKSPACE)
    .limit(1)
    .executeTakeFirst()
}

async function removeUnasked(
  db: Kysely<Tables>,
  { organizationId, workspaceId }: UnaskedOwner,
  recordsMax: number,
  limit: number,
): Promise<number> {
  const ownRecords = db
    .selectFrom('usage')
    .where(REACHED_NO_PROVIDER)
    .where('organizationId', '=', organizationId)
    .where(WORKSPACE, '=', workspaceId)
  const oldestToKeep = await ownRecords
    .select('createdAt')
    .orderBy('createdAt', 'desc')
    .offset(recordsMax - 1)
    .limit(1)
    .executeTakeFirst()
  if (oldestToKeep === undefined) return 0
  const oldIds = ownRecords
    .select('id')
    .where('createdAt', '<', oldestToKeep.createdAt)
    .orderBy('createdAt')
    .limit(limit)
  const { numDeletedRows } = await db.deleteFrom('usage').where('id', 'in', oldIds).executeTakeFirst()
  return Number(numDeletedRows)
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
        .where(eb => eb.and({ organizationId, id }))
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
