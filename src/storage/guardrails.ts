/** Scopes and assignments of guardrails, and the default guardrail of a workspace. Pure. */
import { createHash } from 'node:crypto'
import { GUARDRAIL, type GuardrailRecord } from '../protocol/management/guardrails.ts'

/** Scopes by which a guardrail applies, from the broadest to the narrowest. */
export const GUARDRAIL_SCOPES = ['workspace', 'member', 'api-key'] as const
export type GuardrailScope = (typeof GUARDRAIL_SCOPES)[number]

/** A guardrail that applies to a request. */
export interface AppliedGuardrail {
  readonly scope: GuardrailScope
  readonly guardrail: GuardrailRecord
}

/** Kinds of assignees. A member is the user for whom API keys were created: their `creatorUserId`. */
export type AssigneeKind = Exclude<GuardrailScope, 'workspace'>

/** The member or API key that a budget limits. */
export interface BudgetOwner {
  readonly kind: AssigneeKind
  /** Hash of the API key, or id of the member. */
  readonly id: string
  /** The name of the API key; null for members. */
  readonly name: string | null
}

export interface GuardrailAssignment {
  /** UUID. */
  readonly id: string
  readonly organizationId: string
  readonly guardrailId: string
  /** Hash of the API key, or id of the member. */
  readonly assignee: string
  /** The name of the API key; null for members. */
  readonly keyName: string | null
  readonly keyLabel: string | null
  /** Id of the member whose management key made the assignment; null if that key belongs to no member. */
  readonly assignedBy: string | null
  readonly createdAt: string
}

/** The id of a workspace's default guardrail: a stable UUID (version 8) derived from both ids. */
export function defaultGuardrailId(organizationId: string, workspaceId: string): string {
  const digest = createHash('sha256')
    .update(JSON.stringify(['default guardrail', organizationId, workspaceId]))
    .digest()
  digest.writeUInt8((digest.readUInt8(6) & 0x0f) | 0x80, 6)
  digest.writeUInt8((digest.readUInt8(8) & 0x3f) | 0x80, 8)
  const hex = digest.toString('hex')
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20, 32)].join(
    '-',
  )
}

/** The default guardrail of a new workspace, without rules. */
export function defaultGuardrail(workspace: {
  readonly organizationId: string
  readonly id: string
  readonly createdAt: string
}): GuardrailRecord {
  const { organizationId, id, createdAt } = workspace
  return {
    ...GUARDRAIL.initial,
    id: defaultGuardrailId(organizationId, id),
    organizationId,
    workspaceId: id,
    isWorkspaceDefault: true,
    name: `Workspace ${id} Default`,
    createdAt,
    updatedAt: createdAt,
  }
}
