/**
 * Guardrail records: stored rule sets for the requests of a workspace, a member or an API key. A null field sets no
 * rule. Pure.
 */
import { createHash } from 'node:crypto'
import type { MicroUsd } from '../base/money.ts'
import type {
  AllowedRegion,
  BuiltinSlug,
  FailMode,
  FilterAction,
  ResetInterval,
  ScanScope,
} from '../protocol/management/guardrails.ts'

/** A built-in detector with its action. */
export interface BuiltinFilter {
  readonly slug: BuiltinSlug
  readonly action: FilterAction
  readonly scanScope: ScanScope
}

/** A pattern that the user wrote. */
export interface CustomFilter {
  readonly pattern: string
  readonly action: FilterAction
  /** Replaces redacted text and names the pattern in records; null: the general label. */
  readonly label: string | null
}

/** Rules for the output of models, which is scanned in overlapping windows. */
export interface OutputRules {
  /** Each slug once. */
  readonly contentFilterBuiltins: readonly BuiltinFilter[]
  readonly contentFilters: readonly CustomFilter[]
  readonly windowBytes: number
  readonly overlapBytes: number
}

/** Requirement of zero data retention (ZDR), by the vendor of the model. */
export interface ZdrRules {
  readonly anthropic: boolean | null
  readonly openai: boolean | null
  readonly google: boolean | null
  readonly xai: boolean | null
  readonly other: boolean | null
}

/** The rules of a guardrail. */
export interface GuardrailRules {
  readonly allowedModels: readonly string[] | null
  readonly ignoredModels: readonly string[] | null
  readonly allowedProviders: readonly string[] | null
  readonly ignoredProviders: readonly string[] | null
  readonly enforceZdr: ZdrRules
  readonly enableFreeModelTraining: boolean | null
  readonly enableFreeModelPublication: boolean | null
  readonly enablePaidModelTraining: boolean | null
  /** Regions whose hosts may receive the requests. */
  readonly allowedDataRegions: readonly AllowedRegion[] | null
  /** For the input, as `contentFilters`; each slug once. */
  readonly contentFilterBuiltins: readonly BuiltinFilter[]
  readonly contentFilters: readonly CustomFilter[]
  readonly output: OutputRules | null
  /** Decides whether a request continues if its content could not be scanned. */
  readonly failMode: FailMode
}

export interface GuardrailRecord extends GuardrailRules {
  /** UUID. */
  readonly id: string
  readonly organizationId: string
  /** Null: of the whole organization. */
  readonly workspaceId: string | null
  /** True if it applies to its whole workspace, without assignment, as long as the workspace exists. */
  readonly isWorkspaceDefault: boolean
  readonly name: string
  readonly description: string | null
  /** Spending limit of each assignee within `resetInterval`; both or neither is null. */
  readonly limit: MicroUsd | null
  readonly resetInterval: ResetInterval | null
  readonly includeByokInBudgets: boolean
  /** Starts at 1 and grows with each change. Id and revision identify the compiled rules. */
  readonly revision: number
  readonly createdAt: string
  readonly updatedAt: string
}

/** Changes to a guardrail; absent fields stay. */
export type GuardrailChange = Partial<
  Omit<
    GuardrailRecord,
    'id' | 'organizationId' | 'workspaceId' | 'isWorkspaceDefault' | 'revision' | 'createdAt' | 'updatedAt'
  >
>

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

/** An owner of a budget: a member, or an API key alone. */
export interface BudgetOwner {
  readonly kind: AssigneeKind
  /** Hash of the API key, or id of the member. */
  readonly id: string
  /** Of the API key; null for members. */
  readonly name: string | null
}

export interface GuardrailAssignment {
  /** UUID. */
  readonly id: string
  readonly organizationId: string
  readonly guardrailId: string
  /** Hash of the API key, or id of the member. */
  readonly assignee: string
  /** Of the API key; null for members. */
  readonly keyName: string | null
  readonly keyLabel: string | null
  /** Id of the member whose management key made the assignment; null for a key without a member. */
  readonly assignedBy: string | null
  readonly createdAt: string
}

/** Rules that restrict nothing. */
export const NO_RULES: GuardrailRules = {
  allowedModels: null,
  ignoredModels: null,
  allowedProviders: null,
  ignoredProviders: null,
  enforceZdr: { anthropic: null, openai: null, google: null, xai: null, other: null },
  enableFreeModelTraining: null,
  enableFreeModelPublication: null,
  enablePaidModelTraining: null,
  allowedDataRegions: null,
  contentFilterBuiltins: [],
  contentFilters: [],
  output: null,
  failMode: 'closed',
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
    ...NO_RULES,
    id: defaultGuardrailId(organizationId, id),
    organizationId,
    workspaceId: id,
    isWorkspaceDefault: true,
    name: `Workspace ${id} Default`,
    description: null,
    limit: null,
    resetInterval: null,
    includeByokInBudgets: false,
    revision: 1,
    createdAt,
    updatedAt: createdAt,
  }
}
