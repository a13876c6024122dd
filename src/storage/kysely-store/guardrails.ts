/** Guardrails in the database: the records, their assignments, and which of them apply to a request. */
import { randomUUID } from 'node:crypto'
import { type Kysely, type Selectable, sql, type Transaction } from 'kysely'
import { GUARDRAIL, type GuardrailRecord } from '../../protocol/management/guardrails.ts'
import type { Engine } from '../engine.ts'
import {
  type AppliedGuardrail,
  type AssigneeKind,
  type BudgetOwner,
  GUARDRAIL_SCOPES,
  type GuardrailAssignment,
  type GuardrailScope,
} from '../guardrails.ts'
import {
  ConflictError,
  DEFAULT_WORKSPACE_ID,
  type GuardrailAdministration,
  type GuardrailAssignments,
} from '../store.ts'
import type { GuardrailsTable, Tables } from '../tables.ts'
import { cellsOf, firstOf, inTransaction, pageOf, ROW_COUNT, recordOf } from './rows.ts'

type GuardrailRow = Selectable<GuardrailsTable>
/** Columns and the values they must have. */
type Matching = Partial<Pick<GuardrailRow, 'id' | 'organizationId' | 'workspaceId'>>

export function createGuardrailRecords(db: Kysely<Tables>, engine: Engine): GuardrailAdministration {
  const selectMatching = (columns: Matching) => db.selectFrom('guardrails').where(eb => eb.and(columns))

  return {
    page(filter, page) {
      const selection = selectMatching(filter).selectAll().orderBy('createdAt').orderBy('id')
      return pageOf(selection, selectMatching(filter).select(ROW_COUNT), page, guardrailOf)
    },
    async find(organizationId, id) {
      return await firstOf(selectMatching({ organizationId, id }).selectAll(), guardrailOf)
    },
    async add(record) {
      const { organizationId, workspaceId } = record
      return await inTransaction(db, async transaction => {
        await engine.serialize(transaction, guardrailLock(organizationId))
        if (workspaceId !== null) {
          const workspace = await transaction
            .selectFrom('workspaces')
            .select('id')
            .where(eb => eb.and({ organizationId, id: workspaceId }))
            .executeTakeFirst()
          if (workspace === undefined) return false
        }
        await insertGuardrail(transaction, record)
        return true
      })
    },
    async change(current, change, updatedAt) {
      const { organizationId, id, revision } = current
      const changedRecord = { ...current, ...change, revision: revision + 1, updatedAt }
      const { numUpdatedRows } = await db
        .updateTable('guardrails')
        .set(cellsOf(GUARDRAIL, changedRecord))
        .where(eb => eb.and({ organizationId, id, revision }))
        .executeTakeFirst()
      if (numUpdatedRows > 0n) return changedRecord
      if ((await selectMatching({ organizationId, id }).select('id').executeTakeFirst()) === undefined)
        return null
      throw new ConflictError('revision')
    },
    async remove(organizationId, id) {
      return await inTransaction(db, async transaction => {
        await engine.serialize(transaction, guardrailLock(organizationId))
        const { numDeletedRows } = await transaction
          .deleteFrom('guardrails')
          .where(eb => eb.and({ organizationId, id, isWorkspaceDefault: 0 }))
          .executeTakeFirst()
        return numDeletedRows > 0n
      })
    },
    async guardrailsFor(organizationId, workspaceId, keyHash, memberId) {
      const assignedGuardrails = (scope: GuardrailScope, column: 'keyHash' | 'memberId', assignee: string) =>
        selectWithScope(db, scope)
          .where('guardrails.organizationId', '=', organizationId)
          .where('guardrails.isWorkspaceDefault', '=', 0)
          .where(where =>
            where.or([
              where('guardrails.workspaceId', 'is', null),
              where('guardrails.workspaceId', '=', workspaceId),
            ]),
          )
          .where('guardrails.id', 'in', from =>
            from
              .selectFrom('guardrailAssignments')
              .select('guardrailId')
              .where('guardrailAssignments.organizationId', '=', organizationId)
              .where(`guardrailAssignments.${column}`, '=', assignee),
          )
      let query = assignedGuardrails('api-key', 'keyHash', keyHash)
      if (memberId !== null) query = query.unionAll(assignedGuardrails('member', 'memberId', memberId))
      if (workspaceId !== null) {
        query = query.unionAll(
          selectWithScope(db, 'workspace').where(where =>
            where.and({ organizationId, workspaceId, isWorkspaceDefault: 1 }),
          ),
        )
      }
      const applied = (await query.execute()).map(
        ({ scope, ...row }): AppliedGuardrail => ({ scope, guardrail: guardrailOf(row) }),
      )
      return applied.sort((a, b) => GUARDRAIL_SCOPES.indexOf(a.scope) - GUARDRAIL_SCOPES.indexOf(b.scope))
    },
  }
}

/** The lock name that makes adding, removing and assigning guardrails run one after the other. */
export function guardrailLock(organizationId: string): string {
  return JSON.stringify(['guardrails', organizationId])
}

/** Adds a guardrail. Its workspace must exist. */
export async function insertGuardrail(
  transaction: Transaction<Tables>,
  record: GuardrailRecord,
): Promise<void> {
  await transaction.insertInto('guardrails').values(cellsOf(GUARDRAIL, record)).execute()
}

function selectWithScope(db: Kysely<Tables>, scope: GuardrailScope) {
  return db
    .selectFrom('guardrails')
    .selectAll('guardrails')
    .select(sql<GuardrailScope>`cast(${sql.lit(scope)} as text)`.as('scope'))
}

function guardrailOf(row: GuardrailRow): GuardrailRecord {
  return recordOf(GUARDRAIL, row)
}

const ASSIGNEE_COLUMNS = { 'api-key': 'keyHash', member: 'memberId' } as const satisfies Record<
  AssigneeKind,
  string
>

/** An empty column with the type that a union needs. */
const NULL_TEXT = sql<string | null>`cast(null as text)`

export function createGuardrailAssignments(db: Kysely<Tables>, engine: Engine): GuardrailAssignments {
  return {
    assignments({ organizationId, kind, guardrailId }, page) {
      const matched = db
        .selectFrom('guardrailAssignments as assignment')
        .where('assignment.organizationId', '=', organizationId)
        .where(`assignment.${ASSIGNEE_COLUMNS[kind]}`, 'is not', null)
        .$if(guardrailId !== undefined, query =>
          query.where('assignment.guardrailId', '=', guardrailId ?? ''),
        )
      const selection = matched
        .leftJoin('apiKeys', 'apiKeys.hash', 'assignment.keyHash')
        .selectAll('assignment')
        .select(['apiKeys.name as keyName', 'apiKeys.label as keyLabel'])
        .orderBy('assignment.createdAt')
        .orderBy('assignment.id')
      return pageOf(
        selection,
        matched.select(ROW_COUNT),
        page,
        ({ keyHash, memberId, ...fields }): GuardrailAssignment => ({
          ...fields,
          assignee: keyHash ?? memberId ?? '',
        }),
      )
    },
    async assignedCounts(organizationId, guardrailIds) {
      if (guardrailIds.length === 0) return new Map()
      const rows = await db
        .selectFrom('guardrailAssignments')
        .where('organizationId', '=', organizationId)
        .where('guardrailId', 'in', guardrailIds)
        .select('guardrailId')
        .select(ROW_COUNT)
        .groupBy('guardrailId')
        .execute()
      return new Map(rows.map(({ guardrailId, counted }) => [guardrailId, Number(counted)]))
    },
    async assign({ organizationId, guardrailId, kind }, assignees, { assignedBy, createdAt }) {
      const column = ASSIGNEE_COLUMNS[kind]
      return await inTransaction(db, async transaction => {
        await engine.serialize(transaction, guardrailLock(organizationId))
        const guardrail = await transaction
          .selectFrom('guardrails')
          .select('workspaceId')
          .where(eb => eb.and({ organizationId, id: guardrailId, isWorkspaceDefault: 0 }))
          .executeTakeFirst()
        if (guardrail === undefined) return null
        const uniqueAssignees = [...new Set(assignees)]
        const validAssignees =
          kind === 'member'
            ? uniqueAssignees
            : await existingKeys(transaction, engine, organizationId, guardrail.workspaceId, uniqueAssignees)
        if (validAssignees.length === 0) return 0
        // Replaces earlier assignments; an assignment of this guardrail stays unchanged.
        await transaction
          .deleteFrom('guardrailAssignments')
          .where('organizationId', '=', organizationId)
          .where(column, 'in', validAssignees)
          .where('guardrailId', '!=', guardrailId)
          .execute()
        const rows = validAssignees.map(assignee => ({
          id: randomUUID(),
          organizationId,
          guardrailId,
          keyHash: kind === 'api-key' ? assignee : null,
          memberId: kind === 'member' ? assignee : null,
          assignedBy,
          createdAt,
        }))
        await transaction
          .insertInto('guardrailAssignments')
          .values(rows)
          .onConflict(conflict => conflict.doNothing())
          .execute()
        return validAssignees.length
      })
    },
    async budgetOwners({ organizationId, id, workspaceId, isWorkspaceDefault }, page) {
      const assignees = db
        .selectFrom('guardrailAssignments as assignment')
        .leftJoin('apiKeys', 'apiKeys.hash', 'assignment.keyHash')
        .select([
          'assignment.keyHash as keyHash',
          'assignment.memberId as memberId',
          'apiKeys.name as name',
          'assignment.createdAt as since',
        ])
        .where('assignment.organizationId', '=', organizationId)
        .where('assignment.guardrailId', '=', id)
      const inWorkspace = db
        .selectFrom('apiKeys')
        .where(eb => eb.and({ organizationId, kind: 'inference' }))
        // A key without a workspace belongs to the default one.
        .where(eb => eb.fn.coalesce('workspaceId', eb.val(DEFAULT_WORKSPACE_ID)), '=', workspaceId)
      const keyOwners = inWorkspace
        .where('creatorUserId', 'is', null)
        .select(['hash as keyHash', 'creatorUserId as memberId', 'name', 'createdAt as since'])
      const memberOwners = inWorkspace
        .where('creatorUserId', 'is not', null)
        .select(({ fn }) => [
          NULL_TEXT.as('keyHash'),
          'creatorUserId as memberId',
          NULL_TEXT.as('name'),
          fn.min('createdAt').as('since'),
        ])
        .groupBy('creatorUserId')
      const owners = db.selectFrom(
        (isWorkspaceDefault ? memberOwners.unionAll(keyOwners) : assignees).as('owner'),
      )
      return await pageOf(
        owners.selectAll().orderBy('since').orderBy('keyHash').orderBy('memberId'),
        owners.select(ROW_COUNT),
        page,
        ({ keyHash, memberId, name }): BudgetOwner =>
          keyHash === null
            ? { kind: 'member', id: memberId ?? '', name: null }
            : { kind: 'api-key', id: keyHash, name },
      )
    },
    async unassign({ organizationId, guardrailId, kind }, assignees) {
      if (assignees.length === 0) return 0
      const { numDeletedRows } = await db
        .deleteFrom('guardrailAssignments')
        .where(eb => eb.and({ organizationId, guardrailId }))
        .where(ASSIGNEE_COLUMNS[kind], 'in', assignees)
        .executeTakeFirst()
      return Number(numDeletedRows)
    },
  }
}

/**
 * The API keys among these hashes that belong to the organization, and to the workspace if it is not null. They cannot
 * be removed before the commit.
 */
async function existingKeys(
  transaction: Transaction<Tables>,
  engine: Engine,
  organizationId: string,
  workspaceId: string | null,
  hashes: readonly string[],
): Promise<readonly string[]> {
  if (hashes.length === 0) return []
  const rows = await transaction
    .selectFrom('apiKeys')
    .select('hash')
    .where(eb => eb.and({ organizationId, ...(workspaceId === null ? {} : { workspaceId }) }))
    .where('hash', 'in', hashes)
    // SQLite allows one writer at a time and has no such clause.
    .$if(engine.name === 'postgres', query => query.forKeyShare())
    .execute()
  return rows.map(row => row.hash)
}
