/**
 * The storage contract: domain records and the verbs on them. Rows and SQL never leave `storage/`.
 * Text may be any well-formed Unicode without NUL, which no engine keeps faithfully: callers refuse it before.
 */
import type { UsageFilter, UsageRecord, UsageTotals } from './usage.ts'

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
  readonly createdAt: string
  readonly updatedAt: string
}

export interface KeyStore {
  find(hash: string): Promise<KeyRecord | null>
  /** Adds the key; a hash that exists already is left as it is. Returns whether it was added. */
  add(record: KeyRecord): Promise<boolean>
  /** Newest first. */
  list(organizationId: string): Promise<readonly KeyRecord[]>
  count(): Promise<number>
}

export interface LedgerStore {
  /** Adds the records; one whose id is there already is left as it is. Returns how many were added. */
  add(records: readonly UsageRecord[]): Promise<number>
  /** Null when there is none of that id in that organization. */
  find(id: string, organizationId: string): Promise<UsageRecord | null>
  usageSince(filter: UsageFilter): Promise<UsageTotals>
}

export interface Store {
  readonly keys: KeyStore
  readonly ledger: LedgerStore
  close(): Promise<void>
}

/** The organization of the embedded mode, which has exactly one. */
export const DEFAULT_ORGANIZATION_ID = 'org_default'
export const DEFAULT_WORKSPACE_ID = 'ws_default'
