/** Explanations of requests in the database. */
import type { Kysely, SelectQueryBuilder } from 'kysely'
import type { Engine } from '../engine.ts'
import type { ExplanationStore } from '../ledger.ts'
import type { Tables } from '../tables.ts'
import { inRelaxedTransaction } from './rows.ts'

/** Rows per statement; databases limit the number of parameters. */
const STATEMENT_ROWS_MAX = 100

export function createExplanationStore(db: Kysely<Tables>, engine: Engine): ExplanationStore {
  return {
    async add(explanations) {
      if (explanations.length === 0) return
      await inRelaxedTransaction(db, engine, async transaction => {
        for (let start = 0; start < explanations.length; start += STATEMENT_ROWS_MAX) {
          const rows = explanations
            .slice(start, start + STATEMENT_ROWS_MAX)
            .map(explanation => ({ ...explanation, isPlain: Number(explanation.isPlain) }))
          await transaction
            .insertInto('explanations')
            .values(rows)
            .onConflict(conflict => conflict.column('id').doNothing())
            .execute()
        }
      })
    },
    async find(id, organizationId, limit) {
      return await db
        .selectFrom('explanations')
        .select(['id', 'organizationId', 'document'])
        .where(eb => eb.or([eb('id', '=', id), eb('requestId', '=', id)]))
        .$if(organizationId !== null, query => query.where('organizationId', '=', organizationId ?? ''))
        .orderBy('createdAt', 'desc')
        .orderBy('id', 'desc')
        .limit(limit)
        .execute()
    },
    async prune(before, limit) {
      let removedCount = 0
      let kind = await nextKind(db, undefined)
      while (kind !== undefined && removedCount < limit) {
        const oldIds = explanationsOfKind(db, kind)
          .select('id')
          .where('createdAt', '<', before)
          .orderBy('createdAt')
          .limit(limit - removedCount)
        removedCount += await remove(db, oldIds)
        kind = await nextKind(db, kind)
      }
      return removedCount
    },
    async pruneBeyond(maxPerKind, limit) {
      let removedCount = 0
      let kind = await nextKind(db, undefined)
      while (kind !== undefined && removedCount < limit) {
        const explanations = explanationsOfKind(db, kind)
        const oldestToKeep = await explanations
          .select(['createdAt', 'id'])
          .orderBy('createdAt', 'desc')
          .orderBy('id', 'desc')
          .offset(maxPerKind - 1)
          .limit(1)
          .executeTakeFirst()
        if (oldestToKeep !== undefined) {
          const { createdAt, id } = oldestToKeep
          const oldIds = explanations
            .select('id')
            .where(eb => eb(eb.refTuple('createdAt', 'id'), '<', eb.tuple(createdAt, id)))
            .orderBy('createdAt')
            .limit(limit - removedCount)
          removedCount += await remove(db, oldIds)
        }
        kind = await nextKind(db, kind)
      }
      return removedCount
    },
  }
}

/** A group of explanations with a common limit. */
interface ExplanationKind {
  readonly organizationId: string
  readonly isPlain: number
}

/** The next kind in index order. */
async function nextKind(
  db: Kysely<Tables>,
  after: ExplanationKind | undefined,
): Promise<ExplanationKind | undefined> {
  return await db
    .selectFrom('explanations')
    .select(['organizationId', 'isPlain'])
    .$if(after !== undefined, query =>
      query.where(where =>
        where(
          where.refTuple('organizationId', 'isPlain'),
          '>',
          where.tuple(after?.organizationId ?? '', after?.isPlain ?? 0),
        ),
      ),
    )
    .orderBy('organizationId')
    .orderBy('isPlain')
    .limit(1)
    .executeTakeFirst()
}

function explanationsOfKind(db: Kysely<Tables>, { organizationId, isPlain }: ExplanationKind) {
  return db.selectFrom('explanations').where(eb => eb.and({ organizationId, isPlain }))
}

async function remove(
  db: Kysely<Tables>,
  ids: SelectQueryBuilder<Tables, 'explanations', { id: string }>,
): Promise<number> {
  const { numDeletedRows } = await db.deleteFrom('explanations').where('id', 'in', ids).executeTakeFirst()
  return Number(numDeletedRows)
}
