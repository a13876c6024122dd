/**
 * The storage contract: domain records, the operations on them, and their errors. Rows and SQL never leave `storage/`.
 * Text may be any well-formed Unicode without NUL. Not every engine can store NUL, so callers must refuse it first.
 */
import type { MicroUsd } from '../base/money.ts'
import type { Credential } from '../protocol/management/byok.ts'
import type { GuardrailChange, GuardrailRecord } from '../protocol/management/guardrails.ts'
import type { KeyChange, KeyRecord } from '../protocol/management/keys.ts'
import type {
  EndUserChange,
  EndUserRecord,
  WorkspaceChange,
  WorkspaceRecord,
} from '../protocol/management/management.ts'
import type { AlertStore } from './alerts.ts'
import type { AuditEntry, AuditRecord } from './audit.ts'
import type { CaptureStore } from './captures.ts'
import type { CatalogueStore } from './catalogue.ts'
import type { FileStore, MemoryStore } from './files.ts'
import type { AppliedGuardrail, AssigneeKind, BudgetOwner, GuardrailAssignment } from './guardrails.ts'
import type { ExplanationStore, LedgerStore } from './ledger.ts'
import type { PauseStore } from './pauses.ts'
import type { RolloutStore } from './rollouts.ts'
import type { BatchStore } from './service-jobs.ts'

/** A part of a list, with the length of the whole list. */
export interface Page<Item> {
  readonly items: readonly Item[]
  readonly total: number
}

export interface PageRequest {
  readonly offset: number
  readonly limit: number
}

/** One secret of a key. */
export interface KeySecret {
  /** SHA-256 of the secret. */
  readonly hash: string
  /** Masked form for display. */
  readonly label: string
  readonly createdAt: string
  /** Null: it expires with the key. */
  readonly expiresAt: string | null
}

/** API keys of all organizations, for authentication and start-up. */
export interface KeyStore {
  /** The key that has, or had, a secret with this hash. The record contains label and expiry of that secret. */
  find(hash: string): Promise<KeyRecord | null>
  /** Adds the key. Returns false and changes nothing if a key or secret with its hash exists. */
  add(record: KeyRecord): Promise<boolean>
  /** Newest first. */
  list(organizationId: string): Promise<readonly KeyRecord[]>
  count(): Promise<number>
  /** True if a key or secret of this hash was deleted. */
  wasRemoved(hash: string): Promise<boolean>
  /** Removes the keys of console sessions that expired before a time. */
  removeSessions(before: string): Promise<void>
}

/** Administration of the keys of one organization; keys of other organizations count as unknown. */
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
  /** Returns the changed record; null if it does not exist. */
  change(
    organizationId: string,
    hash: string,
    change: KeyChange,
    updatedAt: string,
  ): Promise<KeyRecord | null>
  /**
   * Adds a secret to the key. The existing secrets expire at `endsAt`, unless they already expire earlier. Expired ones
   * are removed, except the first one, which is the key's id. Returns null if the key does not exist.
   * @throws ConflictError `secrets` if the key would have more than `maxSecrets` valid secrets
   */
  rotate(
    organizationId: string,
    hash: string,
    secret: Pick<KeySecret, 'hash' | 'label' | 'createdAt'>,
    endsAt: string,
    maxSecrets: number,
  ): Promise<KeyRecord | null>
  /** Secrets of the key that are valid at a time, newest first; empty if the key does not exist. */
  secrets(organizationId: string, hash: string, now: string): Promise<readonly KeySecret[]>
  /** Returns true if the key existed. Its usage stays in the ledger, and its hashes are kept for `wasRemoved`. */
  remove(organizationId: string, hash: string): Promise<boolean>
  /** The hashes of this list that are keys of the organization, and of the workspace if it is set. */
  existing(
    organizationId: string,
    hashes: readonly string[],
    workspaceId?: string,
  ): Promise<ReadonlySet<string>>
}

export interface WorkspaceStore {
  page(organizationId: string, page: PageRequest): Promise<Page<WorkspaceRecord>>
  find(organizationId: string, id: string): Promise<WorkspaceRecord | null>
  findBySlug(organizationId: string, slug: string): Promise<WorkspaceRecord | null>
  /** Adds the workspace and its default guardrail. @throws ConflictError `slug` if the slug exists. */
  add(record: WorkspaceRecord): Promise<void>
  /** @throws ConflictError `slug` */
  change(
    organizationId: string,
    id: string,
    change: WorkspaceChange,
    updatedAt: string,
  ): Promise<WorkspaceRecord | null>
  /**
   * Removes the workspace; null if it does not exist. One transaction also disables its inference keys, wipes its
   * credentials and memory, and removes its guardrails and files. Returns the hashes and credential ids, for cache
   * invalidation. Management keys belong to the organization and stay valid.
   */
  remove(
    organizationId: string,
    id: string,
    updatedAt: string,
  ): Promise<{ readonly keyHashes: readonly string[]; readonly credentialIds: readonly string[] } | null>
}

export interface EndUserStore {
  /** Oldest first. `user` is an exact match. */
  page(
    filter: { readonly organizationId: string; readonly user?: string; readonly includeInactive: boolean },
    page: PageRequest,
  ): Promise<Page<EndUserRecord>>
  find(organizationId: string, user: string): Promise<EndUserRecord | null>
  /** Returns false if the user is already registered, active or inactive. */
  add(record: EndUserRecord): Promise<boolean>
  /** Null: the user does not exist. */
  change(
    organizationId: string,
    user: string,
    change: EndUserChange,
    updatedAt: string,
  ): Promise<EndUserRecord | null>
}

/** A stored provider credential; its key is sealed (providers/credentials/vault.ts). */
export interface CredentialRecord extends Credential {
  /** Sealed key material. */
  readonly sealed: SealedSecret
}

/** Envelope encryption: a data key for each secret, wrapped by a master key. Binary parts are base64. */
export interface SealedSecret {
  /** Version of this format; 1. */
  readonly v: number
  /** Id of the master key that wrapped the data key. */
  readonly keyId: string
  /** The wrapped data key: nonce, ciphertext and tag, concatenated. */
  readonly wrapped: string
  /** The key material: nonce, ciphertext and tag, concatenated. */
  readonly box: string
}

/** Changes to a credential; absent fields keep their value. `sealed`, `keyRevision` and `label` change together. */
export type CredentialChange = Partial<
  Omit<CredentialRecord, 'id' | 'organizationId' | 'workspaceId' | 'provider' | 'createdAt' | 'updatedAt'>
>

export interface CredentialStore {
  /** Ordered by provider and sort order. */
  page(
    filter: { readonly organizationId: string; readonly workspaceId: string; readonly provider?: string },
    page: PageRequest,
  ): Promise<Page<CredentialRecord>>
  find(organizationId: string, id: string): Promise<CredentialRecord | null>
  /**
   * Adds the credential with the next sort order of its workspace and provider; its own order is ignored.
   * @throws ConflictError `workspace_id` if the workspace already has `maxCredentials` credentials
   */
  add(record: CredentialRecord, maxCredentials?: number): Promise<CredentialRecord>
  /**
   * Returns the changed record. Null if it does not exist, or differs from `validated`: the fields against which the
   * caller has validated the change.
   */
  change(
    organizationId: string,
    id: string,
    change: CredentialChange,
    updatedAt: string,
    validated?: Pick<
      CredentialRecord,
      'isRequired' | 'isFallback' | 'isByokOnly' | 'declaredRegion' | 'keyRevision'
    >,
  ): Promise<CredentialRecord | null>
  /** Returns true if it existed. Its key material is overwritten before the row is deleted. */
  remove(organizationId: string, id: string): Promise<boolean>
  /** All credentials of a workspace, including disabled ones, by provider and sort order: for routing. */
  ofWorkspace(organizationId: string, workspaceId: string): Promise<readonly CredentialRecord[]>
  /** Number of credentials for each master key that wraps them, including removed master keys. */
  countByKeyId(): Promise<ReadonlyMap<string, number>>
  /** Up to `limit` credentials that are wrapped by another master key. */
  notWrappedBy(keyId: string, limit: number): Promise<readonly CredentialRecord[]>
  /** Replaces the sealed form if it is still `before`. Returns true if it did. */
  reseal(id: string, before: SealedSecret, after: SealedSecret): Promise<boolean>
}

/** A change to the credits of an account: bought, granted or withdrawn. */
export interface CreditEntry {
  /** Unique within the organization. */
  readonly id: string
  readonly organizationId: string
  readonly amount: MicroUsd
  readonly note: string | null
  readonly createdAt: string
}

export interface CreditStore {
  /** Adds the entry. Returns false and changes nothing if its id exists. */
  add(entry: CreditEntry): Promise<boolean>
  find(organizationId: string, id: string): Promise<CreditEntry | null>
  /** The sum of all entries; 0 if there are none. */
  total(organizationId: string): Promise<MicroUsd>
}

/** Guardrails of one organization; guardrails of other organizations count as unknown. */
export interface GuardrailAdministration {
  /** Oldest first, including default guardrails. */
  page(
    filter: { readonly organizationId: string; readonly workspaceId?: string },
    page: PageRequest,
  ): Promise<Page<GuardrailRecord>>
  find(organizationId: string, id: string): Promise<GuardrailRecord | null>
  /** Returns false if its workspace does not exist. */
  add(record: GuardrailRecord): Promise<boolean>
  /**
   * Changes the guardrail `current`; null if it no longer exists.
   * @throws ConflictError `revision` if it was changed after it was read.
   */
  change(
    current: GuardrailRecord,
    change: GuardrailChange,
    updatedAt: string,
  ): Promise<GuardrailRecord | null>
  /** Removes the guardrail and its assignments. False if it does not exist, or is the default of a workspace. */
  remove(organizationId: string, id: string): Promise<boolean>
  /**
   * The guardrails for a request, from the broadest scope to the narrowest: the default of the workspace, then those
   * assigned to the member and to the key. A guardrail of another workspace does not apply.
   */
  guardrailsFor(
    organizationId: string,
    workspaceId: string | null,
    keyHash: string,
    memberId: string | null,
  ): Promise<readonly AppliedGuardrail[]>
}

/** Assignments of guardrails: at most one per API key and member. Removing a key removes its assignment. */
export interface GuardrailAssignments {
  /** Assignments of one guardrail or of all, oldest first. */
  assignments(
    filter: {
      readonly organizationId: string
      readonly kind: AssigneeKind
      readonly guardrailId?: string
    },
    page: PageRequest,
  ): Promise<Page<GuardrailAssignment>>
  /** Number of keys and members of each guardrail. Guardrails without assignees are missing. */
  assignedCounts(
    organizationId: string,
    guardrailIds: readonly string[],
  ): Promise<ReadonlyMap<string, number>>
  /**
   * Assigns the guardrail and replaces earlier assignments. Returns the number of assignees that have it now; keys
   * outside the organization or the guardrail's workspace are skipped. Null if the guardrail does not exist or is a
   * default one.
   */
  assign(
    to: AssignmentScope,
    assignees: readonly string[],
    by: Pick<GuardrailAssignment, 'assignedBy' | 'createdAt'>,
  ): Promise<number | null>
  /**
   * Owners of budgets of this guardrail, oldest first: its assignees. For a default guardrail: each member with keys in
   * its workspace, and each key there without a member.
   */
  budgetOwners(
    guardrail: Pick<GuardrailRecord, 'organizationId' | 'id' | 'workspaceId' | 'isWorkspaceDefault'>,
    page: PageRequest,
  ): Promise<Page<BudgetOwner>>
  /** Returns the number of assignees that had the guardrail. */
  unassign(from: AssignmentScope, assignees: readonly string[]): Promise<number>
}

/** A guardrail and a kind of assignees. */
export interface AssignmentScope {
  readonly organizationId: string
  readonly guardrailId: string
  readonly kind: AssigneeKind
}

/** A unique value exists already, or a record was changed after it was read. */
export class ConflictError extends Error {
  override readonly name = 'ConflictError'
  readonly field: string

  constructor(field: string) {
    super(`${field} is in conflict`)
    this.field = field
  }
}

export interface AuditStore {
  /** Newest first. */
  page(organizationId: string, page: PageRequest): Promise<Page<AuditRecord>>
  /** Removes up to `limit` records older than `before` (ISO 8601 UTC). Returns their number. */
  prune(before: string, limit: number): Promise<number>
}

/** The configuration of the last start or reload. */
export interface ConfigurationStore {
  /** @param document JSON without secrets; replaces the earlier one */
  put(document: string, updatedAt: string): Promise<void>
  /** Null: no gateway has started on this database. */
  find(): Promise<string | null>
}

/** All groups of operations. */
export interface StoreVerbs {
  readonly alerts: AlertStore
  readonly explanations: ExplanationStore
  readonly keys: KeyStore & KeyAdministration
  readonly workspaces: WorkspaceStore
  readonly endUsers: EndUserStore
  readonly credentials: CredentialStore
  readonly credits: CreditStore
  readonly guardrails: GuardrailAdministration & GuardrailAssignments
  readonly ledger: LedgerStore
  readonly audit: AuditStore
  readonly batches: BatchStore
  readonly captures: CaptureStore
  readonly catalogue: CatalogueStore
  readonly configurations: ConfigurationStore
  readonly files: FileStore
  readonly memory: MemoryStore
  readonly pauses: PauseStore
  readonly rollouts: RolloutStore
}

export interface Store extends StoreVerbs {
  /**
   * Makes changes and stores their audit record in one transaction. `change` gets operations that work in this
   * transaction, and must await nothing else. If `entryOf` returns null, nothing was changed and no record is stored.
   */
  audited<T>(change: (verbs: StoreVerbs) => Promise<T>, entryOf: (result: T) => AuditEntry | null): Promise<T>
  /** Rejects with StoreError if the database does not answer, or is read-only. */
  probe(): Promise<void>
  close(): Promise<void>
}

/** The only organization of the embedded mode. */
export const DEFAULT_ORGANIZATION_ID = 'org_default'
export const DEFAULT_WORKSPACE_ID = 'ws_default'
