/** Explanations of requests in the database. */
import type { Kysely, SelectQueryBuilder } from 'kysely'
import type { Engine } from '../engine.ts'
import type { ExplanationStore } from '../ledger.ts'
import type { Tables } from '../tables.ts'
import { inRelaxedTransaction } from './rows.ts'

/** Rows per statement; databases limit the number of parameters. */
const ROWS_MAX = 100

export function createExplanationStore(db: Kysely<Tables>, engine: Engine): ExplanationStore {
  return {
    async add(explanations) {
      if (explanations.length === 0) return
      await inRelaxedTransaction(db, engine, async transaction => {
        for (let at = 0; at < explanations.length; at += ROWS_MAX) {
          const rows = explanations.slice(at, at + ROWS_MAX)
          await transaction
            .insertInto('explanations')
            .values(
              rows.map(({ id, organizationId, requestId, createdAt, isPlain, document }) => ({
                id,
                organizationId,
                requestId,
                createdAt,
                isPlain: Number(isPlain),
                document,
              })),
            )
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
      let removed = 0
      let kind = await nextKind(db, undefined)
      while (kind !== undefined && removed < limit) {
        const old = ofKind(db, kind)
          .select('id')
          .where('createdAt', '<', before)
          .orderBy('createdAt')
          .limit(limit - removed)
        removed += await remove(db, old)
        kind = await nextKind(db, kind)
      }
      return removed
    },
    async pruneBeyond(most, limit) {
      let removed = 0
      let kind = await nextKind(db, undefined)
      while (kind !== undefined && removed < limit) {
        const ofThisKind = ofKind(db, kind)
        const oldestKept = await ofThisKind
          .select(['createdAt', 'id'])
          .orderBy('createdAt', 'desc')
          .orderBy('id', 'desc')
          .offset(most - 1)
          .limit(1)
          .executeTakeFirst()
        if (oldestKept !== undefined) {
          const { createdAt, id } = oldestKept
          const old = ofThisKind
            .select('id')
            .where(eb => eb(eb.refTuple('createdAt', 'id'), '<', eb.tuple(createdAt, id)))
            .orderBy('createdAt')
            .limit(limit - removed)
          removed += await remove(db, old)
        }
        kind = await nextKind(db, kind)
      }
      return removed
    },
  }
}

/** A group of explanations with a common limit. */
interface Kind {
  readonly organizationId: string
  readonly isPlain: number
}

/** The next kind in index order. */
async function nextKind(db: Kysely<Tables>, after: Kind | undefined): Promise<Kind | undefined> {
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

function ofKind(db: Kysely<Tables>, { organizationId, isPlain }: Kind) {
  return db.selectFrom('explanations').where(eb => eb.and({ organizationId, isPlain }))
}

async function remove(
  db: Kysely<Tables>,
  ids: SelectQueryBuilder<Tables, 'explanations', { id: string }>,
): Promise<number> {
  const { numDeletedRows } = await db.deleteFrom('explanations').where('id', 'in', ids).executeTakeFirst()
  return Number(numDeletedRows)
}
