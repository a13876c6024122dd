/** The memory of tools in the database. */
import type { ExpressionBuilder, Kysely } from 'kysely'
import type { Engine } from '../engine.ts'
import type { MemoryScope, MemoryStore, WorkspaceScope } from '../files.ts'
import type { Tables } from '../tables.ts'
import { COUNTED, inTransaction } from './rows.ts'

export function createMemoryStore(db: Kysely<Tables>, engine: Engine): MemoryStore {
  return {
    async find(scope, key) {
      const row = await db
        .selectFrom('memory')
        .select(['key', 'value', 'updatedAt'])
        .where(inPlace(scope))
        .where('key', '=', key)
        .executeTakeFirst()
      return row ?? null
    },
    async list(scope, limit) {
      return await db
        .selectFrom('memory')
        .select(['key', 'value', 'updatedAt'])
        .where(inPlace(scope))
        .orderBy('key')
        .limit(limit)
        .execute()
    },
    write(scope, entry, room) {
      const { organizationId, workspaceId, endUser } = scope
      return inTransaction(db, async transaction => {
        await engine.serialize(transaction, `memory ${organizationId} ${workspaceId}`)
        const { numUpdatedRows } = await transaction
          .updateTable('memory')
          .set({ value: entry.value, updatedAt: entry.updatedAt })
          .where(inPlace(scope))
          .where('key', '=', entry.key)
          .executeTakeFirst()
        if (numUpdatedRows > 0n) return true
        const counting = transaction
          .selectFrom('memory')
          .select(COUNTED)
          .where(eb => eb.and({ organizationId, workspaceId }))
        const all = await counting.executeTakeFirstOrThrow()
        const ofPlace = await counting.where('endUser', '=', endUser).executeTakeFirstOrThrow()
        if (Number(all.counted) >= room.ofWorkspace || Number(ofPlace.counted) >= room.ofPlace) return false
        await transaction
          .insertInto('memory')
          .values({ organizationId, workspaceId, endUser, ...entry })
          .execute()
        return true
      })
    },
    async remove(scope, key) {
      const { numDeletedRows } = await db
        .deleteFrom('memory')
        .where(inPlace(scope))
        .where('key', '=', key)
        .executeTakeFirst()
      return numDeletedRows > 0n
    },
  }
}

export async function removeMemoryOf(
  transaction: Kysely<Tables>,
  { organizationId, workspaceId }: WorkspaceScope,
): Promise<void> {
  await transaction
    .deleteFrom('memory')
    .where(eb => eb.and({ organizationId, workspaceId }))
    .execute()
}

function inPlace({ organizationId, workspaceId, endUser }: MemoryScope) {
  return ({ and, eb }: ExpressionBuilder<Tables, 'memory'>) =>
    and([
      eb('organizationId', '=', organizationId),
      eb('workspaceId', '=', workspaceId),
      eb('endUser', '=', endUser),
    ])
}
