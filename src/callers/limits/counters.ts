/**
 * The contract of the counters that quotas use. A request reserves amounts of several counters at once, all or nothing,
 * and returns the unused part. Amounts are integers: requests, tokens, or units of 1e-9 USD. Types only.
 */

/** The start value of a money counter: the spending in the ledger since its period began. */
export interface Origin {
  readonly organizationId: string
  /** SHA-256 of the key; null for all keys of the organization. */
  readonly keyHash: string | null
  /** Only spending by keys of this member. */
  readonly memberId?: string
  /** Only spending in this workspace. */
  readonly workspaceId?: string
  /** ISO 8601 UTC, inclusive. */
  readonly since: string
  /** True if requests on the caller's own provider credentials count too. */
  readonly includeByok: boolean
}

export interface CounterEntry {
  /** Identifies the limit and its period: the next period is another counter. */
  readonly id: string
  /** Zero reserves nothing and always fits, even if the total is above the ceiling. */
  readonly amount: number
  /** The highest total allowed; null for the credits of the organization in `origin`. */
  readonly ceiling: number | null
  /** Null if the counter begins at zero. */
  readonly origin: Origin | null
  /** Wall-clock milliseconds from which on the counter is no longer used; infinite without a period. */
  readonly endsMs: number
}

/** The state of a counter before the call. */
export interface CounterRoom {
  /**
   * Used amounts without reserved ones. If several instances count on their own, amounts reserved by others count as
   * used.
   */
  readonly used: number
  /** Used and reserved amounts. */
  readonly total: number
  readonly ceiling: number
}

/** The result of a reservation. */
export interface ReserveResult {
  /** The first entry that did not fit, in which case nothing was reserved; null if everything was reserved. */
  readonly exceeded: number | null
  /** One for each entry. */
  readonly rooms: readonly CounterRoom[]
}

export interface Counters {
  /**
   * Reserves all amounts, or none. The same array names the reservation in `settle`. A promise only if the counters
   * have to be loaded or are in another thread.
   * @throws (or rejects) if the ledger has to be read and cannot be: nothing was reserved then.
   */
  reserve(entries: readonly CounterEntry[]): ReserveResult | Promise<ReserveResult>
  /**
   * Ends a reservation: `usedAmounts` is the used part of each amount, and may exceed it. Call it once per reservation. Never
   * throws.
   */
  settle(entries: readonly CounterEntry[], usedAmounts: readonly number[]): void
}

/** Spending and credits in the Store, in units of 1e-9 USD. */
export interface Spending {
  /** Sums all records of the ledger up to now. */
  sum(origin: Origin): Promise<number>
  /** Sums all credit entries. */
  credits(organizationId: string): Promise<number>
}
