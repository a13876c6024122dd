/**
 * Spending and credits, read from the Store or summed from the ledger. Spending from credits and spending on the
 * caller's own credentials are separate.
 */
import type { MicroUsd, PicoUsd } from '../../base/money.ts'
import type { KeyRecord } from '../../protocol/management/keys.ts'
import type { Store } from '../../storage/store.ts'
import type { UsageTotals } from '../../storage/usage.ts'
import type { Origin, Spending } from './counters.ts'

/** Units of 1e-12 USD in one of 1e-9. */
const PICOS_PER_NANO = 1_000
/** Units of 1e-9 USD in one of 1e-6. */
const NANOS_PER_MICRO = 1_000

/** Converts to units of 1e-9 USD, rounded up, so that the cheapest request counts. */
export function picoToNano(amount: PicoUsd): number {
  return Math.ceil(amount / PICOS_PER_NANO)
}

/** Converts from units of 1e-9 USD. Exact up to 9,000 USD, beyond which it is the nearest number. */
export function nanoToPico(amount: number): PicoUsd {
  return amount * PICOS_PER_NANO
}

/** Converts to units of 1e-9 USD. Exact up to 9 million USD. */
export function microToNano(amount: MicroUsd): number {
  return amount * NANOS_PER_MICRO
}

/**
 * Reads spending for the counters. Main thread. Used when a counter is loaded, and rarely later.
 * @param ship resolves when all spooled records of this instance are in the Store, or cannot be stored now
 */
export function createSpending(
  store: Pick<Store, 'ledger' | 'credits'>,
  ship: () => Promise<void>,
): Spending {
  return {
    async sum(origin) {
      await ship()
      return Math.ceil(Number(await ledgerSum(store, origin)) / PICOS_PER_NANO)
    },
    async credits(organizationId) {
      return microToNano(await store.credits.total(organizationId))
    },
  }
}

/** The spending in the ledger with which a counter starts, in units of 1e-12 USD. */
export async function ledgerSum({ ledger }: Pick<Store, 'ledger'>, origin: Origin): Promise<bigint> {
  const { organizationId, keyHash, memberId, workspaceId, since, includeByok } = origin
  const { cost, byokCost } = await ledger.usageSince({
    organizationId,
    since,
    ...(keyHash === null ? {} : { keyHash }),
    ...(memberId === undefined ? {} : { memberId }),
    ...(workspaceId === undefined ? {} : { workspaceId }),
  })
  return includeByok ? cost : cost - byokCost
}

/** Units of 1e-12 USD in one unit of 1e-6 USD. */
export const PICOS_PER_MICRO = 1_000_000n
/** Parts of a percent: a fee percentage is rounded to whole parts. */
const FEE_PARTS = 1_000_000

type Costs = Pick<UsageTotals, 'cost' | 'byokCost'>

/**
 * The amount paid with credits, in units of 1e-12 USD. Requests on BYOK credentials cost only the fee, because the
 * provider bills the rest itself.
 */
export function chargeOf(sum: Costs, byokFeePercent: number): bigint {
  const fee = (sum.byokCost * BigInt(Math.round(byokFeePercent * FEE_PARTS))) / BigInt(100 * FEE_PARTS)
  return sum.cost - sum.byokCost + fee
}

/** The amount that counts towards the limit of a key, in units of 1e-12 USD; `sum` covers the limit's period. */
export function limitUsageOf(
  key: Pick<KeyRecord, 'includeByokInLimit'>,
  sum: Costs,
  byokFeePercent: number,
): bigint {
  return chargeOf(sum, byokFeePercent) + (key.includeByokInLimit ? sum.byokCost : 0n)
}
