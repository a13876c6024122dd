/**
 * Watches budgets: checks keys that have spent money, one organization after another, and raises a bounded number of
 * alerts for each. If there are too many keys to remember, the rest are read from the Store, so that no key is missed.
 * Main thread.
 */
import { type Clock, isoInstant } from '../../base/clock.ts'
import { periodStart } from '../../callers/limits/periods.ts'
import { limitUsageOf, PICOS_PER_MICRO } from '../../callers/limits/spending.ts'
import type { Store } from '../../storage/store.ts'
import { type AlertEvent, alertId } from './alert-body.ts'

/** A key that was used, by its organization. */
export interface UsedKey {
  readonly hash: string
  readonly organizationId: string
}

interface BudgetWatchOptions {
  readonly store: Pick<Store, 'keys' | 'ledger' | 'alerts'>
  /** Returns true if the event is new and will cause an alert. */
  readonly raise: (event: AlertEvent) => boolean
  /** Name of this instance. */
  readonly node: string
  readonly byokFeePercent: number
  readonly clock: Clock
}

/** Maximum keys per check. */
const MAX_KEYS_PER_CHECK = 200
/** Maximum keys that wait for a check; further ones are found by reading all keys with a limit. */
const MAX_WAITING_PER_ORGANIZATION = 1_000
const MAX_WAITING_KEYS = 20_000
/** Alerts per organization and hour, so that thousands of tiny budgets do not flood a receiver. */
const MAX_ALERTS_PER_HOUR = 20
const BUDGET_STEPS = [
  { share: 80, type: 'budget.80' },
  { share: 100, type: 'budget.100' },
] as const
type BudgetType = (typeof BUDGET_STEPS)[number]['type']

/** One organization in one hour. */
interface RaisedAlerts {
  /** Ids of alerts. */
  readonly alertIds: Set<string>
  /** Hashes of the keys whose alerts exceeded the limit, by type. */
  readonly suppressedKeys: Map<BudgetType, Set<string>>
}

export class BudgetWatch {
  readonly #options: BudgetWatchOptions
  /** Hashes by organization; the one that has waited longest is first. */
  readonly #waitingKeys = new Map<string, Set<string>>()
  #waitingCount = 0
  /**
   * The last hash that was read from the Store; null: nothing is being read. The first pass reads all keys: an ended
   * process may not have checked the keys whose spending it shipped, and a used-up key is no longer used.
   */
  #readUpTo: string | null = ''
  /** True if more keys did not fit since this pass began. */
  #isRereadNeeded = false
  #hour = ''
  readonly #alertsOfHour = new Map<string, RaisedAlerts>()

  constructor(options: BudgetWatchOptions) {
    this.#options = options
  }

  noteUsed(keys: readonly UsedKey[]): void {
    for (const { hash, organizationId } of keys) {
      const hashes = this.#waitingKeys.get(organizationId) ?? new Set()
      if (hashes.has(hash)) continue
      if (hashes.size === MAX_WAITING_PER_ORGANIZATION || this.#waitingCount === MAX_WAITING_KEYS) {
        if (this.#readUpTo === null) this.#readUpTo = ''
        else this.#isRereadNeeded = true
        continue
      }
      hashes.add(hash)
      this.#waitingCount++
      this.#waitingKeys.set(organizationId, hashes)
    }
  }

  /** Checks some keys. Rejects if the Store does: the unchecked keys wait again. */
  async check(): Promise<void> {
    this.#turnHour()
    const keys = this.#next()
    try {
      for (let key = keys[0]; key !== undefined; key = keys[0]) {
        await this.#check(key)
        keys.shift()
      }
    } catch (error) {
      this.noteUsed(keys)
      throw error
    }
    if (this.#readUpTo !== null) await this.#read(this.#readUpTo)
  }

  /** One key of each organization in turn. */
  #next(): UsedKey[] {
    const keys: UsedKey[] = []
    while (keys.length < MAX_KEYS_PER_CHECK) {
      const [first] = this.#waitingKeys
      if (first === undefined) break
      const [organizationId, hashes] = first
      const [hash = ''] = hashes
      hashes.delete(hash)
      this.#waitingCount--
      this.#waitingKeys.delete(organizationId)
      if (hashes.size > 0) this.#waitingKeys.set(organizationId, hashes)
      keys.push({ hash, organizationId })
    }
    return keys
  }

  /** Looks at the next keys of all that have a limit. */
  async #read(after: string): Promise<void> {
    const keys = await this.#options.store.alerts.budgetKeys(after, MAX_KEYS_PER_CHECK)
    for (const key of keys) {
      await this.#check(key)
      this.#readUpTo = key.hash
    }
    if (keys.length === MAX_KEYS_PER_CHECK) return
    this.#readUpTo = this.#isRereadNeeded ? '' : null
    this.#isRereadNeeded = false
  }

  async #check({ hash, organizationId }: UsedKey): Promise<void> {
    const { store, clock, byokFeePercent } = this.#options
    const key = await store.keys.find(hash)
    if (key === null || key.limit === null || key.limit === 0) return
    const since = periodStart(key.limitReset, clock.nowMs())
    const sums = await store.ledger.usageSince({ organizationId, since, keyHash: hash })
    const usage = limitUsageOf(key, sums, byokFeePercent)
    const limit = BigInt(key.limit) * PICOS_PER_MICRO
    for (const { share, type } of BUDGET_STEPS) {
      if (usage * 100n < limit * BigInt(share)) continue
      const event: AlertEvent = {
        type,
        object: { kind: 'key', id: hash, name: key.name, workspaceId: key.workspaceId },
        window: `${since} ${key.limit}`,
        data: {
          limit_usd: key.limit / 1e6,
          spent_usd: Number(usage / PICOS_PER_MICRO) / 1e6,
          limit_reset: key.limitReset,
        },
      }
      // An alert that was already raised does not count in this hour.
      const id = alertId(event)
      if (!(await store.alerts.wasRaised(id))) this.#announce(organizationId, type, event, id)
    }
  }

  #announce(organizationId: string, type: BudgetType, event: AlertEvent, id: string): void {
    let alerts = this.#alertsOfHour.get(organizationId)
    if (alerts === undefined) {
      alerts = { alertIds: new Set(), suppressedKeys: new Map() }
      this.#alertsOfHour.set(organizationId, alerts)
    }
    // The alert may not be in the Store yet.
    if (alerts.alertIds.has(id)) return
    if (alerts.alertIds.size < MAX_ALERTS_PER_HOUR) {
      if (this.#options.raise(event)) alerts.alertIds.add(id)
      return
    }
    const hashes = alerts.suppressedKeys.get(type) ?? new Set()
    hashes.add(event.object.id)
    alerts.suppressedKeys.set(type, hashes)
  }

  /**
   * When a new hour begins, reports how many alerts of the last one exceeded the limit, and checks their keys again.
   */
  #turnHour(): void {
    const hour = isoInstant(this.#options.clock.nowMs()).slice(0, 13)
    if (hour === this.#hour) return
    const { raise, node } = this.#options
    for (const [id, { suppressedKeys }] of this.#alertsOfHour)
      for (const [type, hashes] of suppressedKeys) {
        raise({
          type,
          object: { kind: 'organization', id, name: id, workspaceId: null },
          // Each instance has its own left-out alerts.
          window: `${this.#hour} ${node}`,
          data: { left_out: hashes.size },
        })
        this.noteUsed([...hashes].map(hash => ({ hash, organizationId: id })))
      }
    this.#alertsOfHour.clear()
    this.#hour = hour
  }
}
