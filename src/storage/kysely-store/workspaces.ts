/** Workspaces and registered end users in the database. */
import type { Kysely, Selectable } from 'kysely'
import {
  END_USER,
  type EndUserRecord,
  WORKSPACE,
  type WorkspaceRecord,
} from '../../protocol/management/management.ts'
import type { Engine } from '../engine.ts'
import { defaultGuardrail } from '../guardrails.ts'
import { ConflictError, type EndUserStore, type WorkspaceStore } from '../store.ts'
import type { EndUsersTable, Tables, WorkspacesTable } from '../tables.ts'
import { credentialLock, wipeCredentials } from './credentials.ts'
import { removeFilesOf } from './files.ts'
import { guardrailLock, insertGuardrail } from './guardrails.ts'
import { removeMemoryOf } from './memory.ts'
import { cellsOf, firstOf, inTransaction, pageOf, ROW_COUNT, recordOf } from './rows.ts'

export function createWorkspaceStore(db: Kysely<Tables>, engine: Engine): WorkspaceStore {
  const workspacesOf = (organizationId: string) =>
    db.selectFrom('workspaces').where('organizationId', '=', organizationId)

  return {
    page(organizationId, page) {
      // Oldest first.
      const selection = workspacesOf(organizationId).selectAll().orderBy('createdAt').orderBy('id')
      return pageOf(selection, workspacesOf(organizationId).select(ROW_COUNT), page, workspaceOf)
    },
    async find(organizationId, id) {
      return await firstOf(workspacesOf(organizationId).where('id', '=', id).selectAll(), workspaceOf)
    },
    async findBySlug(organizationId, slug) {
      return await firstOf(workspacesOf(organizationId).where('slug', '=', slug).selectAll(), workspaceOf)
    },
    async add(record) {
      await inTransaction(db, async transaction => {
        const result = await transaction
          .insertInto('workspaces')
          .values(cellsOf(WORKSPACE, record))
          .onConflict(conflict => conflict.columns(['organizationId', 'slug']).doNothing())
          .executeTakeFirst()
        if ((result.numInsertedOrUpdatedRows ?? 0n) === 0n) throw new ConflictError('slug')
        await insertGuardrail(transaction, defaultGuardrail(record))
      })
    },
    async change(organizationId, id, change, updatedAt) {
      try {
        const query = db
          .updateTable('workspaces')
          .set({ ...cellsOf(WORKSPACE, change), updatedAt })
          .where(eb => eb.and({ organizationId, id }))
          .returningAll()
        return await firstOf(query, workspaceOf)
      } catch (error) {
        // The slug is the only unique column that can change here.
        throw engine.isDuplicate(error) ? new ConflictError('slug') : error
      }
    },
    async remove(organizationId, id, updatedAt) {
      const removal = await inTransaction(db, async transaction => {
        // The locks keep credentials and guardrails from being added in the meantime.
        await engine.serialize(transaction, credentialLock(organizationId, id))
        await engine.serialize(transaction, guardrailLock(organizationId))
        const { numDeletedRows } = await transaction
          .deleteFrom('workspaces')
          .where(eb => eb.and({ organizationId, id }))
          .executeTakeFirst()
        if (numDeletedRows === 0n) return null
        const keys = await transaction
          .updateTable('apiKeys')
          .set({ disabled: 1, updatedAt })
          .where(eb => eb.and({ organizationId, workspaceId: id }))
          // Management keys belong to the organization, which would be locked out without them.
          .where('kind', '=', 'inference')
          .returning('hash')
          .execute()
        await transaction
          .deleteFrom('guardrailAssignments')
          .where('keyHash', 'in', from =>
            from
              .selectFrom('apiKeys')
              .select('hash')
              .where(eb => eb.and({ organizationId, workspaceId: id, kind: 'inference' })),
          )
          .execute()
        await removeFilesOf(transaction, { organizationId, workspaceId: id })
        await removeMemoryOf(transaction, { organizationId, workspaceId: id })
        const credentialIds = await wipeCredentials(transaction, { organizationId, workspaceId: id })
        return { keyHashes: keys.map(key => key.hash), credentialIds }
      })
      if (removal !== null && removal.credentialIds.length > 0) await engine.purge(db)
      return removal
    },
  }
}

function workspaceOf(row: Selectable<WorkspacesTable>): WorkspaceRecord {
  return recordOf(WORKSPACE, row)
}

export function createEndUserStore(db: Kysely<Tables>): EndUserStore {
  return {
    page({ organizationId, user, includeInactive }, page) {
      const columns = {
        organizationId,
        ...(user === undefined ? {} : { endUser: user }),
        ...(includeInactive ? {} : { isActive: 1 }),
      }
      const query = db.selectFrom('endUsers').where(eb => eb.and(columns))
      const selection = query.selectAll().orderBy('createdAt').orderBy('endUser')
      return pageOf(selection, query.select(ROW_COUNT), page, endUserOf)
    },
    async find(organizationId, user) {
      const query = db
        .selectFrom('endUsers')
        .selectAll()
        .where(eb => eb.and({ organizationId, endUser: user }))
      return await firstOf(query, endUserOf)
    },
    async add(record) {
      const result = await db
        .insertInto('endUsers')
        .values(cellsOf(END_USER, record))
        .onConflict(conflict => conflict.columns(['organizationId', 'endUser']).doNothing())
        .executeTakeFirst()
      return (result.numInsertedOrUpdatedRows ?? 0n) > 0n
    },
    async change(organizationId, user, change, updatedAt) {
      const query = db
        .updateTable('endUsers')
        .set({ ...cellsOf(END_USER, change), updatedAt })
        .where(eb => eb.and({ organizationId, endUser: user }))
        .returningAll()
      return await firstOf(query, endUserOf)
    },
  }
}

function endUserOf(row: Selectable<EndUsersTable>): EndUserRecord {
  return recordOf(END_USER, row)
}
