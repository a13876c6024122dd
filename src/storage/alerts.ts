/** Alerts and their deliveries, which all instances share. Types only. */

/** An alert for one receiver. */
export interface AlertDelivery {
  /** The same on every instance that detects the event. */
  readonly alertId: string
  /** Name of the receiver. It does not contain its address. */
  readonly receiver: string
  readonly type: string
  /** Kind and id of the object that the alert is about. */
  readonly object: string
  /** JSON. A repeated delivery sends the same text. */
  readonly body: string
  /** ISO 8601 UTC. */
  readonly createdAt: string
}

/** A delivery that a sender has claimed until its lease ends. */
export interface ClaimedDelivery {
  readonly alertId: string
  readonly receiver: string
  readonly body: string
  /** Number of earlier claims. */
  readonly tries: number
}

export interface AlertStore {
  /** Adds the delivery, due at once. Returns false if this alert was already raised for this receiver. */
  add(delivery: AlertDelivery, nowMs: number): Promise<boolean>
  /**
   * Claims up to `limit` due deliveries of these receivers for `leaseMs`; no other instance gets them until then.
   * Deliveries that are due after `latestMs` are also claimed, because such a time comes from a clock that was wrong.
   */
  claim(
    receivers: readonly string[],
    terms: {
      /** Unix milliseconds, as `latestMs`. */
      readonly nowMs: number
      readonly latestMs: number
      readonly leaseMs: number
      readonly limit: number
    },
  ): Promise<readonly ClaimedDelivery[]>
  /** Ends a delivery (null), or schedules the next try for `dueMs`. */
  settle(alertId: string, receiver: string, dueMs: number | null): Promise<void>
  /** True if this alert was already raised, for any receiver. */
  wasRaised(alertId: string): Promise<boolean>
  /** The newest alert of these types about an object. */
  latest(
    types: readonly string[],
    object: string,
  ): Promise<{ readonly id: string; readonly type: string } | null>
  /**
   * API keys that are not disabled and expire after `from` and not after `to` (ISO 8601 UTC), the next ones first: up
   * to `maxPerOrganization` of each organization, and up to `limit` together. Without keys of console sessions.
   */
  expiringKeys(
    from: string,
    to: string,
    maxPerOrganization: number,
    limit: number,
  ): Promise<readonly ExpiringKey[]>
  /** API keys with a limit above 0, in the order of their hashes, after this hash. */
  budgetKeys(after: string, limit: number): Promise<readonly BudgetKey[]>
  /**
   * Removes deliveries older than `before` (ISO 8601 UTC), of up to `limit` alerts. Returns the number of deliveries.
   */
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
