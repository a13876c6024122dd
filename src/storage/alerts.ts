/** Alerts and their deliveries, which all instances share. Types only. */

/** An alert for one receiver. */
export interface AlertDelivery {
  /** The same on every instance that sees the event. */
  readonly alertId: string
  /** Name of the receiver that says nothing about its address. */
  readonly receiver: string
  readonly type: string
  /** Kind and id of what it is about. */
  readonly object: string
  /** JSON; a repetition of the delivery sends the same. */
  readonly body: string
  /** ISO 8601 UTC. */
  readonly createdAt: string
}

/** A delivery that its taker has until its lease ends. */
export interface TakenDelivery {
  readonly alertId: string
  readonly receiver: string
  readonly body: string
  /** How often it was taken before. */
  readonly tries: number
}

export interface AlertStore {
  /** Adds the delivery, due at once. False: this alert was raised for this receiver before. */
  add(delivery: AlertDelivery, nowMs: number): Promise<boolean>
  /**
   * Takes up to `limit` due deliveries of these receivers for `leaseMs`; nobody else gets them meanwhile. Those that
   * would be due only after `latestMs` are due too: a clock that was ahead said so.
   */
  take(
    receivers: readonly string[],
    terms: {
      /** Unix milliseconds, as `latestMs`. */
      readonly nowMs: number
      readonly latestMs: number
      readonly leaseMs: number
      readonly limit: number
    },
  ): Promise<readonly TakenDelivery[]>
  /** Ends a delivery (null), or has it tried again from `dueMs`. */
  settle(alertId: string, receiver: string, dueMs: number | null): Promise<void>
  /** True if this alert was raised before, for whatever receiver. */
  isKnown(alertId: string): Promise<boolean>
  /** The newest alert of these types about an object. */
  latest(
    types: readonly string[],
    object: string,
  ): Promise<{ readonly id: string; readonly type: string } | null>
  /**
   * API keys that are not disabled and expire after `from` and not after `to` (ISO 8601 UTC), the next ones first: of
   * each organization up to `most`, and up to `limit` in all.
   */
  expiringKeys(from: string, to: string, most: number, limit: number): Promise<readonly ExpiringKey[]>
  /** API keys with a limit above 0 whose hash comes after this one, in the order of their hashes. */
  budgetKeys(after: string, limit: number): Promise<readonly BudgetKey[]>
  /** Removes those, delivered or not, from before a time (ISO 8601 UTC). Returns their number. */
  prune(before: string, limit: number): Promise<number>
}

interface BudgetKey {
  readonly hash: string
  readonly organizationId: string
}

interface ExpiringKey {
  readonly hash: string
  readonly name: string
  readonly workspaceId: string | null
  readonly expiresAt: string
}
