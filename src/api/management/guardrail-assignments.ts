/** Guardrail assignments: /guardrails/{id}/assignments/keys and /members, and the lists across all guardrails. */

import { isoInstant } from '../../base/clock.ts'
import { GatewayError, refuseField } from '../../base/errors.ts'
import {
  checkKeyAssignees,
  checkMemberAssignees,
  type GuardrailRecord,
} from '../../protocol/management/guardrails.ts'
import type { AssigneeKind, GuardrailAssignment } from '../../storage/guardrails.ts'
import type { AssignmentScope } from '../../storage/store.ts'
import type { Handler } from '../operation.ts'
import { audited } from './audit.ts'
import { findNamedGuardrail, toObject } from './guardrails.ts'
import { pageOf } from './paging.ts'
import type { ManagementParts } from './parts.ts'

/** The differences between assigning to keys and to members. */
export interface Assignees {
  readonly kind: AssigneeKind
  /** Reads the assignees from a body. Throws GatewayError `invalid_request`. */
  readonly read: (body: unknown) => readonly string[]
  readonly toDocument: (assignment: GuardrailAssignment) => object
}

/** A hundred member ids with every character escaped, with a margin. */
export const ASSIGNMENT_BODY_MAX_BYTES = 512 * 1024

export const KEY_ASSIGNEES: Assignees = {
  kind: 'api-key',
  read: body => checkKeyAssignees(body).key_hashes,
  toDocument: assignment => ({
    id: assignment.id,
    guardrail_id: assignment.guardrailId,
    key_hash: assignment.assignee,
    key_name: assignment.keyName,
    key_label: assignment.keyLabel,
    assigned_by: assignment.assignedBy,
    created_at: assignment.createdAt,
  }),
}

export const MEMBER_ASSIGNEES: Assignees = {
  kind: 'member',
  read: body => checkMemberAssignees(body).member_user_ids,
  toDocument: assignment => ({
    id: assignment.id,
    guardrail_id: assignment.guardrailId,
    user_id: assignment.assignee,
    organization_id: assignment.organizationId,
    assigned_by: assignment.assignedBy,
    created_at: assignment.createdAt,
  }),
}

export function listAllAssignments(
  { store: { guardrails } }: ManagementParts,
  { kind, toDocument }: Assignees,
): Handler {
  return async ({ key, query }, reply) => {
    const { items, total } = await guardrails.assignments(
      { organizationId: key.organizationId, kind },
      pageOf(query),
    )
    reply.json(200, { data: items.map(toDocument), total_count: total })
  }
}

export function listAssignments({ store }: ManagementParts, { kind, toDocument }: Assignees): Handler {
  return async (request, reply) => {
    const page = pageOf(request.query)
    const scope = scopeOf(await findNamedGuardrail(store, request), kind)
    const { items, total } = await store.guardrails.assignments(scope, page)
    reply.json(200, { data: items.map(toDocument), total_count: total })
  }
}

/** Assigns to all, or to none if a key is unknown. Replaces other guardrails that were assigned to the same. */
export function assign(deps: ManagementParts, { kind, read }: Assignees): Handler {
  const { store, changes, clock } = deps
  return async (request, reply) => {
    const assignees = read(request.body)
    const guardrail = await findNamedGuardrail(store, request)
    const { organizationId } = guardrail
    if (guardrail.isWorkspaceDefault) {
      throw refuseField(
        'id',
        'must not be the default guardrail of a workspace, which always applies to the whole workspace',
      )
    }
    if (kind === 'api-key') await checkKeys(store, guardrail, assignees)
    const origin = { assignedBy: request.key.creatorUserId, createdAt: isoInstant(clock.nowMs()) }
    const assignedCount = await audited(
      deps,
      request,
      'guardrail.assign',
      ({ guardrails }) => guardrails.assign(scopeOf(guardrail, kind), assignees, origin),
      count => (count === null ? null : toObject(guardrail)),
    )
    // Another request may have deleted it in the meantime.
    if (assignedCount === null) throw new GatewayError('not_found', 'Guardrail not found')
    changes.publish({ kind: 'guardrails', organizationId })
    reply.json(200, { assigned_count: assignedCount })
  }
}

/** Counts only assignees that had the guardrail. */
export function unassign(deps: ManagementParts, { kind, read }: Assignees): Handler {
  const { store, changes } = deps
  return async (request, reply) => {
    const assignees = read(request.body)
    const guardrail = await findNamedGuardrail(store, request)
    const unassignedCount = await audited(
      deps,
      request,
      'guardrail.unassign',
      ({ guardrails }) => guardrails.unassign(scopeOf(guardrail, kind), assignees),
      count => (count === 0 ? null : toObject(guardrail)),
    )
    if (unassignedCount > 0) changes.publish({ kind: 'guardrails', organizationId: guardrail.organizationId })
    reply.json(200, { unassigned_count: unassignedCount })
  }
}

/** @throws GatewayError `invalid_request` for a hash that is unknown or belongs to another organization. */
async function checkKeys(
  store: ManagementParts['store'],
  { organizationId, workspaceId }: GuardrailRecord,
  hashes: readonly string[],
): Promise<void> {
  const knownHashes = await store.keys.existing(organizationId, hashes, workspaceId ?? undefined)
  const index = hashes.findIndex(hash => !knownHashes.has(hash))
  if (index < 0) return
  const owner = workspaceId === null ? 'this account' : "the guardrail's workspace"
  throw refuseField(`key_hashes[${index}]`, `must be the hash of an API key of ${owner}`)
}

function scopeOf({ organizationId, id }: GuardrailRecord, kind: AssigneeKind): AssignmentScope {
  return { organizationId, guardrailId: id, kind }
}
