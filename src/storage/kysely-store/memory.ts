/** The memory of tools in the database. */
import type { ExpressionBuilder, Kysely } from 'kysely'
import type { Engine } from '../engine.ts'
import type { MemoryScope, MemoryStore, WorkspaceScope } from '../files.ts'
import type { Tables } from '../tables.ts'
import { inTransaction, ROW_COUNT } from './rows.ts'

export function createMemoryStore(db: Kysely<Tables>, engine: Engine): MemoryStore {
  return {
    async find(scope, key) {
      const row = await db
        .selectFrom('memory')
        .select(['key', 'value', 'updatedAt'])
        .where(inScope(scope))
        .where('key', '=', key)
        .executeTakeFirst()
      return row ?? null
    },
    async list(scope, limit) {
      return await db
        .selectFrom('memory')
        .select(['key', 'value', 'updatedAt'])
        .where(inScope(scope))
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
          .where(inScope(scope))
          .where('key', '=', entry.key)
          .executeTakeFirst()
        if (numUpdatedRows > 0n) return true
        const countQuery = transaction
          .selectFrom('memory')
          .select(ROW_COUNT)
          .where(eb => eb.and({ organizationId, workspaceId }))
        const workspaceRows = await countQuery.executeTakeFirstOrThrow()
        const ownerRows = await countQuery.where('endUser', '=', endUser).executeTakeFirstOrThrow()
        if (Number(workspaceRows.counted) >= room.perWorkspace || Number(ownerRows.counted) >= room.perOwner)
          return false
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
        .where(inScope(scope))
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

function inScope({ organizationId, workspaceId, endUser }: MemoryScope) {
  return ({ and, eb }: ExpressionBuilder<Tables, 'memory'>) =>
    and([
      eb('organizationId', '=', organizationId),
      eb('workspaceId', '=', workspaceId),
      eb('endUser', '=', endUser),
    ])
}
