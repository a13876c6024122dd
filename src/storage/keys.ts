/** Records of API keys and their secrets. Types only. */
import type { MicroUsd } from '../base/money.ts'

export type KeyKind = 'inference' | 'management'

/** The rights of a management key: to read; to make everyday changes; to do everything. */
export type KeyRole = 'viewer' | 'operator' | 'admin'

/** A stored API key: hashes of its secrets, never a secret itself. */
export interface KeyRecord {
  /** SHA-256 of its first secret, 64 lowercase hexadecimal characters. It names the key for good. */
  readonly hash: string
  readonly kind: KeyKind
  readonly name: string
  /** Masked form for display, e.g. `sk-gw-v1-abc...123`. */
  readonly label: string
  readonly organizationId: string
  readonly workspaceId: string | null
  readonly disabled: boolean
  /** ISO 8601 UTC; null: never. */
  readonly expiresAt: string | null
  /** When the secret ends by which the key was found; null: with the key. */
  readonly secretExpiresAt: string | null
  /** Spending limit for each period of `limitReset`, or in total; null: no limit. */
  readonly limit: MicroUsd | null
  readonly limitReset: LimitReset | null
  /** True if requests on own provider credentials count towards the limit. */
  readonly includeByokInLimit: boolean
  readonly creatorUserId: string | null
  /** Of a management key; null: `admin`. */
  readonly role: KeyRole | null
  /** Issuer and subject, with a space between, of who signed in to the console; null: somebody holds the key. */
  readonly identity: string | null
  /** True if the sampled flag of its requests decides on their traces. */
  readonly traceTrusted: boolean
  readonly createdAt: string
  readonly updatedAt: string
  /** When its newest secret was made; null: it has its first one. */
  readonly rotatedAt: string | null
}

/** One secret of a key. */
export interface KeySecret {
  /** SHA-256. */
  readonly hash: string
  /** Masked form for display. */
  readonly label: string
  readonly createdAt: string
  /** Null: it ends with the key. */
  readonly expiresAt: string | null
}

/** Period of a spending limit. Days begin at midnight UTC, weeks on Monday. */
export type LimitReset = 'daily' | 'weekly' | 'monthly'

/** Changes to a key; absent fields stay. */
export type KeyChange = Partial<
  Pick<
    KeyRecord,
    | 'name'
    | 'disabled'
    | 'expiresAt'
    | 'limit'
    | 'limitReset'
    | 'includeByokInLimit'
    | 'role'
    | 'traceTrusted'
  >
>
