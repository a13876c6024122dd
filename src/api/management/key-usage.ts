/** Limit and usage fields of a key: sums from the ledger, which lags behind replies by about a second. */
import { LRUCache } from 'lru-cache'
import type { Clock } from '../../base/clock.ts'
import { microToUsd, sumToUsd } from '../../base/money.ts'
import { periodStart } from '../../callers/limits/periods.ts'
import { chargeOf, limitUsageOf, PICOS_PER_MICRO } from '../../callers/limits/spending.ts'
import type { KeyRecord, LimitReset } from '../../protocol/management/keys.ts'
import type { Store } from '../../storage/store.ts'
import type { UsageTotals } from '../../storage/usage.ts'

interface KeyUsageDeps {
  readonly store: Pick<Store, 'ledger'>
  readonly clock: Clock
  /** The charge for a request on a BYOK credential, in per cent of its catalogue price. */
  readonly byokFeePercent: number
}

interface Sums {
  readonly total: UsageTotals
  readonly daily: UsageTotals
  readonly weekly: UsageTotals
  readonly monthly: UsageTotals
}

/** How long sums are reused. The ledger lags by as much anyway. */
const SUMS_TTL_MS = 1_000
const MAX_CACHED_SUMS = 1_000

export class KeyUsage {
  readonly #deps: KeyUsageDeps
  readonly #recentSums: LRUCache<string, Promise<Sums>>

  constructor(deps: KeyUsageDeps) {
    this.#deps = deps
    this.#recentSums = new LRUCache({
      max: MAX_CACHED_SUMS,
      ttl: SUMS_TTL_MS,
      ttlResolution: 0,
      perf: { now: () => deps.clock.monotonicMs() },
    })
  }

  /** The limit and usage fields of a key. */
  async fields(key: KeyRecord) {
    return this.#toFields(key, await this.#sums(key))
  }

  /** Like `fields`, from sums that are at most a second old: for callers who may ask often. */
  async recentFields(key: KeyRecord) {
    let sums = this.#recentSums.get(key.hash)
    if (sums === undefined) {
      sums = this.#sums(key)
      this.#recentSums.set(key.hash, sums)
      sums.catch(() => this.#recentSums.delete(key.hash))
    }
    return this.#toFields(key, await sums)
  }

  async #sums(key: KeyRecord): Promise<Sums> {
    const { store, clock } = this.#deps
    const nowMs = clock.nowMs()
    const usageSince = (period: LimitReset | null): Promise<UsageTotals> =>
      store.ledger.usageSince({
        organizationId: key.organizationId,
        keyHash: key.hash,
        since: periodStart(period, nowMs),
      })
    const [total, daily, weekly, monthly] = await Promise.all([
      usageSince(null),
      usageSince('daily'),
      usageSince('weekly'),
      usageSince('monthly'),
    ])
    return { total, daily, weekly, monthly }
  }

  #toFields(key: KeyRecord, sums: Sums) {
    const { byokFeePercent } = this.#deps
    const charged = (sum: UsageTotals): number => sumToUsd(chargeOf(sum, byokFeePercent))
    const limitUsage = limitUsageOf(key, sums[key.limitReset ?? 'total'], byokFeePercent)
    return {
      limit: key.limit === null ? null : microToUsd(key.limit),
      limit_remaining: remaining(key, limitUsage),
      limit_reset: key.limitReset,
      include_byok_in_limit: key.includeByokInLimit,
      usage: charged(sums.total),
      usage_daily: charged(sums.daily),
      usage_weekly: charged(sums.weekly),
      usage_monthly: charged(sums.monthly),
      byok_usage: sumToUsd(sums.total.byokCost),
      byok_usage_daily: sumToUsd(sums.daily.byokCost),
      byok_usage_weekly: sumToUsd(sums.weekly.byokCost),
      byok_usage_monthly: sumToUsd(sums.monthly.byokCost),
    }
  }
}

/** At least zero: the last request of a period may exceed the limit. */
function remaining({ limit }: KeyRecord, limitUsage: bigint): number | null {
  if (limit === null) return null
  const unspent = BigInt(limit) * PICOS_PER_MICRO - limitUsage
  return unspent > 0n ? sumToUsd(unspent) : 0
}
