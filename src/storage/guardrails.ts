/**
 * Records of guardrails: stored rule sets for the requests of a workspace, a member or an API key. A field that is null
 * rules nothing. Pure.
 */
import { createHash } from 'node:crypto'
import type { MicroUsd } from '../money.ts'
import type {
  AllowedRegion,
  BuiltinSlug,
  FailMode,
  FilterAction,
  ResetInterval,
  ScanScope,
} from '../protocol/guardrails.ts'

/** A detector of the gateway's own. */
export interface BuiltinFilter {
  readonly slug: BuiltinSlug
  readonly action: FilterAction
  readonly scanScope: ScanScope
}

/** A pattern of the user's own. */
export interface CustomFilter {
  readonly pattern: string
  readonly action: FilterAction
  /** What redaction puts in its place, and how records name it; null: the general one. */
  readonly label: string | null
}

/** What is looked for in what a model says, in windows that overlap. */
export interface OutputRules {
  /** Each slug once. */
  readonly contentFilterBuiltins: readonly BuiltinFilter[]
  readonly contentFilters: readonly CustomFilter[]
  readonly windowBytes: number
  readonly overlapBytes: number
}

/** Whether providers have to keep nothing, by the vendor of the model. */
export interface ZdrRules {
  readonly anthropic: boolean | null
  readonly openai: boolean | null
  readonly google: boolean | null
  readonly xai: boolean | null
  readonly other: boolean | null
}

export interface GuardrailRules {
  readonly allowedModels: readonly string[] | null
  readonly ignoredModels: readonly string[] | null
  readonly allowedProviders: readonly string[] | null
  readonly ignoredProviders: readonly string[] | null
  readonly enforceZdr: ZdrRules
  readonly enableFreeModelTraining: boolean | null
  readonly enableFreeModelPublication: boolean | null
  readonly enablePaidModelTraining: boolean | null
  /** By which hosts requests have to come. */
  readonly allowedDataRegions: readonly AllowedRegion[] | null
  /** Each slug once; like the next it looks at the input. */
  readonly contentFilterBuiltins: readonly BuiltinFilter[]
  readonly contentFilters: readonly CustomFilter[]
  readonly output: OutputRules | null
  /** Whether a request goes on when its content could not be looked at. */
  readonly failMode: FailMode
}

export interface GuardrailRecord extends GuardrailRules {
  /** UUID. */
  readonly id: string
  readonly organizationId: string
  /** Null: of the whole organization. */
  readonly workspaceId: string | null
  /** Applies to its whole workspace, unassigned, for as long as there is the workspace. */
  readonly isWorkspaceDefault: boolean
  readonly name: string
  readonly description: string | null
  /** What each of those it applies to may spend within `resetInterval`; both or neither is null. */
  readonly limit: MicroUsd | null
  readonly resetInterval: ResetInterval | null
  readonly includeByokInBudgets: boolean
  /** From 1, one more with each change: with the id it names what was compiled from the rules. */
  readonly revision: number
  readonly createdAt: string
  readonly updatedAt: string
}

/** What may be changed of a guardrail; what is absent stays. */
export type GuardrailChange = Partial<
  Omit<
    GuardrailRecord,
    'id' | 'organizationId' | 'workspaceId' | 'isWorkspaceDefault' | 'revision' | 'createdAt' | 'updatedAt'
  >
>

/** By what a guardrail applies, from the broadest to the narrowest. */
export const GUARDRAIL_SCOPES = ['workspace', 'member', 'api-key'] as const
export type GuardrailScope = (typeof GUARDRAIL_SCOPES)[number]

export interface AppliedGuardrail {
  readonly scope: GuardrailScope
  readonly guardrail: GuardrailRecord
}

/** Whom a guardrail is assigned to. A member is whom API keys are made for: their `creatorUserId`. */
export type AssigneeKind = Exclude<GuardrailScope, 'workspace'>

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
  /** Id of the member whose management key did it; null when that is of nobody. */
  readonly assignedBy: string | null
  readonly createdAt: string
}

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

/** The id of a workspace's default guardrail: a UUID (version 8) made of both ids, the same for ever. */
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

/** The default guardrail that a workspace begins with, which rules nothing. */
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
