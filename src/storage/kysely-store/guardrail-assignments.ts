/** In the database: to which API keys and members guardrails are assigned. */
import { randomUUID } from 'node:crypto'
import type { Kysely, Transaction } from 'kysely'
import type { Engine } from '../engine.ts'
import type { AssigneeKind, GuardrailAssignment } from '../guardrails.ts'
import type { GuardrailAssignments } from '../store.ts'
import type { Tables } from '../tables.ts'
import { guardrailPlace } from './guardrails.ts'
import { COUNTED, pageOf } from './page.ts'

const COLUMNS = { 'api-key': 'keyHash', member: 'memberId' } as const satisfies Record<AssigneeKind, string>

export function createGuardrailAssignments(db: Kysely<Tables>, engine: Engine): GuardrailAssignments {
  return {
    assignments({ organizationId, kind, guardrailId }, page) {
      const matched = db
        .selectFrom('guardrailAssignments as assignment')
        .where('assignment.organizationId', '=', organizationId)
        .where(`assignment.${COLUMNS[kind]}`, 'is not', null)
        .$if(guardrailId !== undefined, query =>
          query.where('assignment.guardrailId', '=', guardrailId ?? ''),
        )
      const listed = matched
        .leftJoin('apiKeys', 'apiKeys.hash', 'assignment.keyHash')
        .selectAll('assignment')
        .select(['apiKeys.name as keyName', 'apiKeys.label as keyLabel'])
        .orderBy('assignment.createdAt')
        .orderBy('assignment.id')
      return pageOf(
        listed,
        matched.select(COUNTED),
        page,
        ({ keyHash, memberId, ...same }): GuardrailAssignment => ({
          ...same,
          assignee: keyHash ?? memberId ?? '',
        }),
      )
    },
    async assign({ organizationId, guardrailId, kind }, assignees, { assignedBy, createdAt }) {
      const column = COLUMNS[kind]
      return await db.transaction().execute(async transaction => {
        await engine.serialize(transaction, guardrailPlace(organizationId))
        const guardrail = await transaction
          .selectFrom('guardrails')
          .select('workspaceId')
          .where(where => where.and({ organizationId, id: guardrailId, isWorkspaceDefault: 0 }))
          .executeTakeFirst()
        if (guardrail === undefined) return null
        const distinct = [...new Set(assignees)]
        const known =
          kind === 'member'
            ? distinct
            : await keysAmong(transaction, engine, organizationId, guardrail.workspaceId, distinct)
        if (known.length === 0) return 0
        // What they had before makes room; what is as it should be stays as it is.
        await transaction
          .deleteFrom('guardrailAssignments')
          .where('organizationId', '=', organizationId)
          .where(column, 'in', known)
          .where('guardrailId', '!=', guardrailId)
          .execute()
        const rows = known.map(assignee => ({
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
        return known.length
      })
    },
    async unassign({ organizationId, guardrailId, kind }, assignees) {
      if (assignees.length === 0) return 0
      const { numDeletedRows } = await db
        .deleteFrom('guardrailAssignments')
        .where('organizationId', '=', organizationId)
        .where('guardrailId', '=', guardrailId)
        .where(COLUMNS[kind], 'in', assignees)
        .executeTakeFirst()
      return Number(numDeletedRows)
    },
  }
}

/** Those that are API keys of the organization, and of the workspace when there is one; none goes before the end. */
async function keysAmong(
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
    .where(where => where.and({ organizationId, ...(workspaceId === null ? {} : { workspaceId }) }))
    .where('hash', 'in', hashes)
    // SQLite has one writer at a time, and no such words.
    .$if(engine.name === 'postgres', query => query.forKeyShare())
    .execute()
  return rows.map(row => row.hash)
}
