/** Files of workspaces in the database; file-passages.ts stores their texts. */
import { type ExpressionBuilder, type Kysely, type Selectable, sql } from 'kysely'
import type { Engine } from '../engine.ts'
import type { FileRecord, FileStore, WorkspaceScope } from '../files.ts'
import type { FilesTable, Tables } from '../tables.ts'
import { createPassageStore, removePassages } from './file-passages.ts'
import { firstOf, inTransaction } from './rows.ts'

export function createFileStore(db: Kysely<Tables>, engine: Engine): FileStore {
  const visibleIn = (scope: WorkspaceScope) =>
    db.selectFrom('files').where(inWorkspace(scope)).where('status', '=', 'stored')

  return {
    ...createPassageStore(db, engine),
    open(file, room) {
      const { organizationId, workspaceId } = file
      return inTransaction(db, async transaction => {
        await engine.serialize(transaction, `files ${organizationId} ${workspaceId}`)
        const { count, bytes, last } = await transaction
          .selectFrom('files')
          .where(inWorkspace(file))
          .select([
            sql<number | string>`count(*)`.as('count'),
            sql<number | string | null>`sum(bytes)`.as('bytes'),
            sql<number | string | null>`max(number)`.as('last'),
          ])
          .executeTakeFirstOrThrow()
        if (Number(count) >= room.files) return 'files'
        if (Number(bytes ?? 0) + file.bytes > room.bytes) return 'bytes'
        await transaction
          .insertInto('files')
          .values({ ...file, number: Number(last ?? 0) + 1, status: 'arriving', text: 'none' })
          .execute()
        return null
      })
    },
    async complete(id, text) {
      const query = db
        .updateTable('files')
        .set({ status: 'stored', text })
        .where(eb => eb.and({ id, status: 'arriving' }))
        .returningAll()
      return await firstOf(query, recordOf)
    },
    async list({ purpose, nameContains, after, oldestFirst = false, ...scope }, limit) {
      let selection = visibleIn(scope)
      if (after !== undefined) {
        const last = await visibleIn(scope).select('number').where('id', '=', after).executeTakeFirst()
        if (last === undefined) return null
        selection = selection.where('number', oldestFirst ? '>' : '<', last.number)
      }
      if (purpose !== undefined) selection = selection.where('purpose', '=', purpose)
      if (nameContains !== undefined) selection = selection.where(nameCondition(nameContains))
      const rows = await selection
        .selectAll()
        .orderBy('number', oldestFirst ? 'asc' : 'desc')
        .limit(limit + 1)
        .execute()
      return { items: rows.slice(0, limit).map(recordOf), hasMore: rows.length > limit }
    },
    async find(scope, id) {
      return await firstOf(visibleIn(scope).selectAll().where('id', '=', id), recordOf)
    },
    async newest(scope, filename) {
      const query = visibleIn(scope)
        .selectAll()
        .where('filename', '=', filename)
        .orderBy('number', 'desc')
        .limit(1)
      return await firstOf(query, recordOf)
    },
    async remove(scope, id) {
      const { numUpdatedRows } = await db
        .updateTable('files')
        .set({ status: 'removed' })
        .where(inWorkspace(scope))
        .where(eb => eb.and({ id, status: 'stored' }))
        .executeTakeFirst()
      return numUpdatedRows > 0n
    },
    async leftovers(before, limit) {
      const rows = await db
        .selectFrom('files')
        .select('id')
        .where('status', '<>', 'stored')
        .where(({ or, eb, and }) =>
          or([
            eb('status', '=', 'removed'),
            and([eb('status', '=', 'arriving'), eb('createdAt', '<', before)]),
          ]),
        )
        .orderBy('createdAt')
        .limit(limit)
        .execute()
      return rows.map(({ id }) => id)
    },
    async forget(id) {
      // In the last transaction, because more passages may be added while the row exists.
      await removePassages(db, engine, id, transaction =>
        transaction.deleteFrom('files').where('id', '=', id).where('status', '<>', 'stored').execute(),
      )
    },
  }
}

/** The files of a removed workspace become invisible; their bytes are removed with the leftovers. */
export async function removeFilesOf(transaction: Kysely<Tables>, scope: WorkspaceScope): Promise<void> {
  await transaction.updateTable('files').set({ status: 'removed' }).where(inWorkspace(scope)).execute()
}

function inWorkspace({ organizationId, workspaceId }: WorkspaceScope) {
  return ({ and, eb }: ExpressionBuilder<Tables, 'files'>) =>
    and([eb('organizationId', '=', organizationId), eb('workspaceId', '=', workspaceId)])
}

/** The database folds both sides, because engines differ beyond ASCII: a name must contain at least its own letters. */
function nameCondition(part: string) {
  const pattern = `%${part.replaceAll(/[\\%_]/g, character => `\\${character}`)}%`
  return sql<boolean>`lower(filename) like lower(${pattern}) escape '\\'`
}

function recordOf({ status: _, number, bytes, ...fields }: Selectable<FilesTable>): FileRecord {
  return { ...fields, number: Number(number), bytes: Number(bytes) }
}
