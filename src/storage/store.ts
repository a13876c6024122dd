/**
 * The storage contract: domain records and the verbs on them. Rows and SQL never leave `storage/`.
 * Text may be any well-formed Unicode without NUL, which no engine keeps faithfully: callers refuse it before.
 */
import type { MicroUsd } from '../money.ts'
import type {
  AppliedGuardrail,
  AssigneeKind,
  GuardrailAssignment,
  GuardrailChange,
  GuardrailRecord,
} from './guardrails.ts'
import type { ActivityFilter, ActivityRow, UsageFilter, UsageRecord, UsageTotals } from './usage.ts'

export type KeyKind = 'inference' | 'management'

/** An API key as it is stored: never the key itself, only its SHA-256. */
export interface KeyRecord {
  /** SHA-256 of the key, 64 lowercase hexadecimal characters. */
  readonly hash: string
  readonly kind: KeyKind
  readonly name: string
  /** Masked form for people, e.g. `sk-gw-v1-abc...123`. */
  readonly label: string
  readonly organizationId: string
  readonly workspaceId: string | null
  readonly disabled: boolean
  /** ISO 8601 UTC; null: never. */
  readonly expiresAt: string | null
  /** What it may spend within one period of `limitReset`, or ever; null: no limit of its own. */
  readonly limit: MicroUsd | null
  readonly limitReset: LimitReset | null
  /** Whether what runs on own provider credentials counts towards the limit. */
  readonly includeByokInLimit: boolean
  readonly creatorUserId: string | null
  readonly createdAt: string
  readonly updatedAt: string
}

/** Days begin at midnight UTC, weeks on Monday. */
export type LimitReset = 'daily' | 'weekly' | 'monthly'

/** What may be changed of a key; what is absent stays. */
export type KeyChange = Partial<
  Pick<KeyRecord, 'name' | 'disabled' | 'expiresAt' | 'limit' | 'limitReset' | 'includeByokInLimit'>
>

/** A part of a list, and how many there are in all. */
export interface Page<Item> {
  readonly items: readonly Item[]
  readonly total: number
}

export interface PageRequest {
  readonly offset: number
  readonly limit: number
}

export interface KeyStore {
  find(hash: string): Promise<KeyRecord | null>
  /** Adds the key; a hash that exists already is left as it is. Returns whether it was added. */
  add(record: KeyRecord): Promise<boolean>
  /** Newest first. */
  list(organizationId: string): Promise<readonly KeyRecord[]>
  count(): Promise<number>
}

/** Every verb is bound to an organization: what belongs to another one is as unknown as what never was. */
export interface KeyAdministration {
  page(
    filter: {
      readonly organizationId: string
      readonly workspaceId?: string
      readonly includeDisabled: boolean
    },
    page: PageRequest,
  ): Promise<Page<KeyRecord>>
  findIn(organizationId: string, hash: string): Promise<KeyRecord | null>
  /** The changed record; null when there is none. */
  change(
    organizationId: string,
    hash: string,
    change: KeyChange,
    updatedAt: string,
  ): Promise<KeyRecord | null>
  /** Whether there was one. What it used stays in the ledger. */
  remove(organizationId: string, hash: string): Promise<boolean>
  /** Which of these hashes are keys of the organization, and of the workspace when one is named. */
  known(organizationId: string, hashes: readonly string[], workspaceId?: string): Promise<ReadonlySet<string>>
}

export interface WorkspaceRecord {
  /** `ws_default` or a random UUID. */
  readonly id: string
  readonly organizationId: string
  readonly name: string
  /** Unique within the organization. */
  readonly slug: string
  readonly description: string | null
  readonly createdAt: string
  readonly updatedAt: string
}

export interface WorkspaceStore {
  page(organizationId: string, page: PageRequest): Promise<Page<WorkspaceRecord>>
  find(organizationId: string, id: string): Promise<WorkspaceRecord | null>
  findBySlug(organizationId: string, slug: string): Promise<WorkspaceRecord | null>
  /** Added with its default guardrail. @throws ConflictError `slug` when the organization has one of that slug. */
  add(record: WorkspaceRecord): Promise<void>
  /** @throws ConflictError `slug` */
  change(
    organizationId: string,
    id: string,
    change: Partial<Pick<WorkspaceRecord, 'name' | 'slug' | 'description'>>,
    updatedAt: string,
  ): Promise<WorkspaceRecord | null>
  /**
   * Whether there was one. Its inference keys are disabled, its credentials wiped and its guardrails removed in the
   * same transaction; hashes and ids of the first two are told so that caches can drop them. Management keys belong to
   * the organization and go on.
   */
  remove(
    organizationId: string,
    id: string,
    updatedAt: string,
  ): Promise<{ readonly keyHashes: readonly string[]; readonly credentialIds: readonly string[] } | null>
}

export interface EndUserRecord {
  readonly organizationId: string
  readonly user: string
  readonly isActive: boolean
  readonly createdAt: string
  readonly updatedAt: string
}

export interface EndUserStore {
  /** Oldest first. `user` filters exactly. */
  page(
    filter: { readonly organizationId: string; readonly user?: string; readonly includeInactive: boolean },
    page: PageRequest,
  ): Promise<Page<EndUserRecord>>
  find(organizationId: string, user: string): Promise<EndUserRecord | null>
  /** Whether it was added; false when registered already, active or not. */
  add(record: EndUserRecord): Promise<boolean>
  setActive(
    organizationId: string,
    user: string,
    isActive: boolean,
    updatedAt: string,
  ): Promise<EndUserRecord | null>
}

export type DeclaredRegion = 'global' | 'europe' | 'us'

/** A provider credential as it is stored: the key itself only sealed (credentials/vault.ts). */
export interface CredentialRecord {
  /** UUID. */
  readonly id: string
  readonly organizationId: string
  readonly workspaceId: string
  /** Slug. */
  readonly provider: string
  readonly name: string | null
  /** Masked form for people. */
  readonly label: string
  /** Sealed key material. */
  readonly sealed: SealedSecret
  readonly disabled: boolean
  readonly isRequired: boolean
  readonly isFallback: boolean
  readonly isByokOnly: boolean
  /** Ascending order of trying within workspace and provider. */
  readonly sortOrder: number
  /** Null: no restriction. */
  readonly allowedApiKeyHashes: readonly string[] | null
  readonly allowedModels: readonly string[] | null
  readonly allowedUserIds: readonly string[] | null
  readonly declaredRegion: DeclaredRegion | null
  readonly declaredZdr: boolean | null
  readonly createdAt: string
  readonly updatedAt: string
}

/** Envelope encryption: a data key of its own, wrapped by a master key of the ring. All binary parts base64. */
export interface SealedSecret {
  /** Version of the form; 1. */
  readonly v: number
  /** Id of the master key that wrapped the data key. */
  readonly keyId: string
  /** The wrapped data key: nonce, ciphertext and tag in one. */
  readonly wrapped: string
  /** The key material: nonce, ciphertext and tag in one. */
  readonly box: string
}

/** What may be changed of a credential; what is absent stays. `sealed` and `label` change together. */
export type CredentialChange = Partial<
  Omit<CredentialRecord, 'id' | 'organizationId' | 'workspaceId' | 'provider' | 'createdAt' | 'updatedAt'>
>

export interface CredentialStore {
  /** By provider and sort order. */
  page(
    filter: { readonly organizationId: string; readonly workspaceId: string; readonly provider?: string },
    page: PageRequest,
  ): Promise<Page<CredentialRecord>>
  find(organizationId: string, id: string): Promise<CredentialRecord | null>
  /** Stored with the next sort order of its workspace and provider, which it returns; the one given is ignored. */
  add(record: CredentialRecord): Promise<CredentialRecord>
  /**
   * The changed record; null when there is none, or when it no longer has what it is `seen` with: what may be said
   * together has been checked against that.
   */
  change(
    organizationId: string,
    id: string,
    change: CredentialChange,
    updatedAt: string,
    seen?: Pick<CredentialRecord, 'isRequired' | 'isFallback' | 'isByokOnly' | 'declaredRegion'>,
  ): Promise<CredentialRecord | null>
  /** Whether there was one; its key material is overwritten before the row goes. */
  remove(organizationId: string, id: string): Promise<boolean>
  /** All of a workspace, disabled ones too, by provider and sort order: what routing works with. */
  ofWorkspace(organizationId: string, workspaceId: string): Promise<readonly CredentialRecord[]>
  /** How many credentials each master key wraps; ids of keys that are gone too. */
  countByKeyId(): Promise<ReadonlyMap<string, number>>
  /** Up to `limit` credentials that other keys than this wrap. */
  notWrappedBy(keyId: string, limit: number): Promise<readonly CredentialRecord[]>
  /** Replaces the sealed form when it still is `before`; whether it did. */
  reseal(id: string, before: SealedSecret, after: SealedSecret): Promise<boolean>
}

/** An entry of the account's credits: bought, granted or taken back. */
export interface CreditEntry {
  /** Unique within the organization. */
  readonly id: string
  readonly organizationId: string
  readonly amount: MicroUsd
  readonly note: string | null
  readonly createdAt: string
}

export interface CreditStore {
  /** Adds the entry; one whose id is there already is left as it is. Returns whether it was added. */
  add(entry: CreditEntry): Promise<boolean>
  find(organizationId: string, id: string): Promise<CreditEntry | null>
  /** Sum of all entries; 0 for an organization without any. */
  total(organizationId: string): Promise<MicroUsd>
}

/** Every verb is bound to an organization, as those of keys. */
export interface GuardrailAdministration {
  /** Oldest first, default ones too. */
  page(
    filter: { readonly organizationId: string; readonly workspaceId?: string },
    page: PageRequest,
  ): Promise<Page<GuardrailRecord>>
  find(organizationId: string, id: string): Promise<GuardrailRecord | null>
  /** Whether it was added; false when its workspace is not there. */
  add(record: GuardrailRecord): Promise<boolean>
  /**
   * Changes the guardrail as it was read; null when it is there no more.
   * @throws ConflictError `revision` when it was changed since.
   */
  change(
    current: GuardrailRecord,
    change: GuardrailChange,
    updatedAt: string,
  ): Promise<GuardrailRecord | null>
  /** Whether there was one, not the default of a workspace. Its assignments go with it. */
  remove(organizationId: string, id: string): Promise<boolean>
  /**
   * What holds for a request, from the broadest scope to the narrowest: the default of the workspace, and what is
   * assigned to the member and the key. One that belongs to another workspace does not apply.
   */
  applying(
    organizationId: string,
    workspaceId: string | null,
    keyHash: string,
    memberId: string | null,
  ): Promise<readonly AppliedGuardrail[]>
}

/** What is assigned to whom: one guardrail at most to each API key and each member. With a key its assignment goes. */
export interface GuardrailAssignments {
  /** Oldest first; of one guardrail or of all. */
  assignments(
    filter: {
      readonly organizationId: string
      readonly kind: AssigneeKind
      readonly guardrailId?: string
    },
    page: PageRequest,
  ): Promise<Page<GuardrailAssignment>>
  /**
   * Assigns the guardrail in place of what they had. How many of them have it now: what is no key of the organization
   * and of the guardrail's workspace is passed over. Null when there is no such guardrail, or it is a default one.
   */
  assign(
    to: AssignmentPlace,
    assignees: readonly string[],
    by: Pick<GuardrailAssignment, 'assignedBy' | 'createdAt'>,
  ): Promise<number | null>
  /** How many of them had it. */
  unassign(from: AssignmentPlace, assignees: readonly string[]): Promise<number>
}

export interface AssignmentPlace {
  readonly organizationId: string
  readonly guardrailId: string
  readonly kind: AssigneeKind
}

/** A value that has to be unique exists already, or what was to be changed is not as it was read. */
export class ConflictError extends Error {
  override readonly name = 'ConflictError'
  readonly field: string

  constructor(field: string) {
    super(`${field} is in conflict`)
    this.field = field
  }
}

export interface LedgerStore {
  /** Adds the records; one whose id is there already is left as it is. Returns how many were added. */
  add(records: readonly UsageRecord[]): Promise<number>
  /** Null when there is none of that id in that organization. */
  find(id: string, organizationId: string): Promise<UsageRecord | null>
  usageSince(filter: UsageFilter): Promise<UsageTotals>
  /** One row per day (UTC), model and provider, newest day first; what GET /activity shows. */
  activity(filter: ActivityFilter): Promise<readonly ActivityRow[]>
}

export interface Store {
  readonly keys: KeyStore & KeyAdministration
  readonly workspaces: WorkspaceStore
  readonly endUsers: EndUserStore
  readonly credentials: CredentialStore
  readonly credits: CreditStore
  readonly guardrails: GuardrailAdministration & GuardrailAssignments
  readonly ledger: LedgerStore
  close(): Promise<void>
}

/** The organization of the embedded mode, which has exactly one. */
export const DEFAULT_ORGANIZATION_ID = 'org_default'
export const DEFAULT_WORKSPACE_ID = 'ws_default'

/** The message is fit for the operator and free of credentials, and of all that came from a URL with credentials. */
export class StoreError extends Error {
  override readonly name = 'StoreError'
  /** Short, from the system or the database, or `schema` when its schema is not for us; null when there is none. */
  readonly code: string | null

  constructor(message: string, code: string | null = null, options?: ErrorOptions) {
    super(message, options)
    this.code = code
  }
}

/** What a database that comes back does not cure: who we are, what is asked for, and a schema that is not ours. */
const LASTING = new Set(['28000', '28P01', '3D000', '42501', 'schema'])

/** Whether a storage cannot be used now, but may be later without anybody changing anything here. */
export function isAway(error: unknown): error is StoreError {
  return error instanceof StoreError && !LASTING.has(error.code ?? '')
}

/** The `code` of an error of the system or of a database. */
export function codeOf(error: unknown): string | null {
  const code: unknown = error instanceof Error ? Reflect.get(error, 'code') : undefined
  return typeof code === 'string' ? code : null
}
