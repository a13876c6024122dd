/** Small shared records of the public interface. Pure. */
import type { MicroUsd, PicoUsd } from '../money.ts'

/** Who is asking, as far as the pipeline needs to know. */
export interface Caller {
  /** SHA-256 of the API key, lowercase hexadecimal. */
  readonly keyHash: string
  readonly organizationId: string
  readonly workspaceId: string | null
  /** Whom the API key was made for; null: nobody in particular. */
  readonly memberId: string | null
  /** What the key may spend by itself; null: no limit of its own. */
  readonly limit: SpendingLimit | null
}

export interface SpendingLimit {
  readonly amount: MicroUsd
  /** The period after which it begins anew; null: never. */
  readonly reset: 'daily' | 'weekly' | 'monthly' | null
  /** Whether what runs on own provider credentials counts. */
  readonly includeByok: boolean
}

/** A guardrail's limit for the spending of a member or an API key within a period. */
export interface Budget {
  readonly guardrailId: string
  /** Name of the guardrail, for error messages. */
  readonly name: string
  readonly scope: 'workspace' | 'member' | 'api-key'
  /** Workspace of the guardrail; null: spending in the whole organization counts. */
  readonly workspaceId: string | null
  readonly amount: MicroUsd
  readonly reset: 'daily' | 'weekly' | 'monthly'
  /** True: requests on own provider credentials count too. */
  readonly includeByok: boolean
}

/** What an exchange came to, by its usage record. */
export interface Spent {
  readonly cost: PicoUsd
  readonly isByok: boolean
  /** Input and output. */
  readonly tokens: number
}

/** What was set aside for an admitted request. */
export interface Reservation {
  /** To be called when the exchange is over, however it ended; later calls do nothing. Never throws. */
  settle(spent: Spent): void
}

/**
 * How a usage record came by its tokens: told by the provider, estimated from the text because the provider never
 * told, or none, because nothing was delivered.
 */
export type Accounting = 'exact' | 'estimated' | 'none'
