/**
 * Counters behind quotas: the contract. A request takes from several at once, all or nothing, and gives back what it
 * did not use. Amounts are integers: requests, tokens, or units of 1e-9 USD. Types only.
 */

/** Where a counter of money begins: with what the ledger says was spent since the beginning of its period. */
export interface Origin {
  readonly organizationId: string
  /** SHA-256 of the key; null: all keys of the organization. */
  readonly keyHash: string | null
  /** Only what keys of this member spent. */
  readonly memberId?: string
  /** Only what was spent in this workspace. */
  readonly workspaceId?: string
  /** ISO 8601 UTC, inclusive. */
  readonly since: string
  /** Whether requests on own provider credentials count. */
  readonly includeByok: boolean
}

export interface CounterEntry {
  /** What is counted and in which period: another period is another counter. */
  readonly id: string
  readonly amount: number
  /** Refused when the amount leads beyond it; null: the credits of the organization in `origin`. */
  readonly ceiling: number | null
  /** Null: the counter begins at zero. */
  readonly origin: Origin | null
  /** Wall clock, milliseconds: from then on nobody asks for this counter; infinite for one without a period. */
  readonly endsMs: number
}

/** Which entry did not fit; nothing was taken. */
export interface Refusal {
  readonly index: number
  /** What was counted before, running reservations included. */
  readonly total: number
  readonly ceiling: number
}

export interface Counters {
  /**
   * Takes all amounts, or none. Null: taken; the same array names the reservation in `give`. A promise only when
   * something has to be waited for.
   * @throws (or rejects) when the ledger would have to be read and cannot be: nothing was taken.
   */
  take(entries: readonly CounterEntry[]): Refusal | null | Promise<Refusal | null>
  /** Ends a reservation: of each amount taken, this was used, which may be more. Once for each. Never throws. */
  give(entries: readonly CounterEntry[], used: readonly number[]): void
}

/** What has been spent and what there is, in units of 1e-9 USD; read from the Store. */
export interface Spending {
  /** By all records of the ledger up to now. */
  spent(origin: Origin): Promise<number>
  /** The sum of all credit entries. */
  credits(organizationId: string): Promise<number>
}
