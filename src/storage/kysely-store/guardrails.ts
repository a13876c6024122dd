/** Guardrails in the database: the records, and which of them apply to a request. */
import { type Kysely, type Selectable, sql, type Transaction } from 'kysely'
import type { Engine } from '../engine.ts'
import {
  type AppliedGuardrail,
  GUARDRAIL_SCOPES,
  type GuardrailRecord,
  type GuardrailRules,
  type GuardrailScope,
  NO_RULES,
} from '../guardrails.ts'
import { ConflictError, type GuardrailAdministration } from '../store.ts'
import type { GuardrailsTable, Tables } from '../tables.ts'
import { flag } from './flag.ts'
import { COUNTED, pageOf } from './page.ts'

type GuardrailRow = Selectable<GuardrailsTable>
/** Values of columns that have to be met. */
type Matching = Partial<Pick<GuardrailRow, 'id' | 'organizationId' | 'workspaceId'>>

export function createGuardrailRecords(db: Kysely<Tables>, engine: Engine): GuardrailAdministration {
  const matching = (columns: Matching) => db.selectFrom('guardrails').where(where => where.and(columns))

  return {
    page(filter, page) {
      const listed = matching(filter).selectAll().orderBy('createdAt').orderBy('id')
      return pageOf(listed, matching(filter).select(COUNTED), page, recordOf)
    },
    async find(organizationId, id) {
      const row = await matching({ organizationId, id }).selectAll().executeTakeFirst()
      return row === undefined ? null : recordOf(row)
    },
    async add(record) {
      const { organizationId, workspaceId } = record
      return await db.transaction().execute(async transaction => {
        await engine.serialize(transaction, guardrailPlace(organizationId))
        if (workspaceId !== null) {
          const workspace = await transaction
            .selectFrom('workspaces')
            .select('id')
            .where(where => where.and({ organizationId, id: workspaceId }))
            .executeTakeFirst()
          if (workspace === undefined) return false
        }
        await insertGuardrail(transaction, record)
        return true
      })
    },
    async change(current, change, updatedAt) {
      const { organizationId, id, revision } = current
      const changed = { ...current, ...change, revision: revision + 1, updatedAt }
      const { numUpdatedRows } = await db
        .updateTable('guardrails')
        .set(rowOf(changed))
        .where(where => where.and({ organizationId, id, revision }))
        .executeTakeFirst()
      if (numUpdatedRows > 0n) return changed
      if ((await matching({ organizationId, id }).select('id').executeTakeFirst()) === undefined) return null
      throw new ConflictError('revision')
    },
    async remove(organizationId, id) {
      return await db.transaction().execute(async transaction => {
        await engine.serialize(transaction, guardrailPlace(organizationId))
        const { numDeletedRows } = await transaction
          .deleteFrom('guardrails')
          .where(where => where.and({ organizationId, id, isWorkspaceDefault: 0 }))
          .executeTakeFirst()
        return numDeletedRows > 0n
      })
    },
    async applying(organizationId, workspaceId, keyHash, memberId) {
      const assigned = (scope: GuardrailScope, column: 'keyHash' | 'memberId', assignee: string) =>
        scoped(db, scope)
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
      let query = assigned('api-key', 'keyHash', keyHash)
      if (memberId !== null) query = query.unionAll(assigned('member', 'memberId', memberId))
      if (workspaceId !== null) {
        query = query.unionAll(
          scoped(db, 'workspace').where(where =>
            where.and({ organizationId, workspaceId, isWorkspaceDefault: 1 }),
          ),
        )
      }
      const applied = (await query.execute()).map(
        ({ scope, ...row }): AppliedGuardrail => ({ scope, guardrail: recordOf(row) }),
      )
      return applied.sort((a, b) => GUARDRAIL_SCOPES.indexOf(a.scope) - GUARDRAIL_SCOPES.indexOf(b.scope))
    },
  }
}

/** Within which guardrails are added, removed and assigned one after the other. */
export function guardrailPlace(organizationId: string): string {
  return JSON.stringify(['guardrails', organizationId])
}

/** Adds a guardrail to its workspace, of which the caller knows that it is there. */
export async function insertGuardrail(
  transaction: Transaction<Tables>,
  record: GuardrailRecord,
): Promise<void> {
  await transaction.insertInto('guardrails').values(rowOf(record)).execute()
}

function scoped(db: Kysely<Tables>, scope: GuardrailScope) {
  return db
    .selectFrom('guardrails')
    .selectAll('guardrails')
    .select(sql<GuardrailScope>`cast(${sql.lit(scope)} as text)`.as('scope'))
}

function rowOf(record: GuardrailRecord): GuardrailRow {
  const {
    id,
    organizationId,
    workspaceId,
    isWorkspaceDefault,
    name,
    description,
    limit,
    resetInterval,
    includeByokInBudgets,
    revision,
    createdAt,
    updatedAt,
    ...rules
  } = record
  return {
    id,
    organizationId,
    workspaceId,
    isWorkspaceDefault: flag(isWorkspaceDefault),
    name,
    description,
    spendLimit: limit,
    resetInterval,
    includeByokInBudgets: flag(includeByokInBudgets),
    rules: JSON.stringify(rules satisfies GuardrailRules),
    revision,
    createdAt,
    updatedAt,
  }
}

function recordOf({
  spendLimit,
  isWorkspaceDefault,
  includeByokInBudgets,
  rules,
  ...same
}: GuardrailRow): GuardrailRecord {
  return {
    // What was written before a rule existed does not have it.
    ...NO_RULES,
    ...(JSON.parse(rules) as Partial<GuardrailRules>),
    ...same,
    limit: spendLimit === null ? null : Number(spendLimit),
    isWorkspaceDefault: isWorkspaceDefault !== 0,
    includeByokInBudgets: includeByokInBudgets !== 0,
  }
}
