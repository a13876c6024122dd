/** Turns the ledger's sums into charges: the one place that separates credits from own credentials. Pure. */
import type { KeyRecord } from '../storage/store.ts'
import type { UsageTotals } from '../storage/usage.ts'

/** Units of 1e-12 USD in one of 1e-6. */
export const PICOS_PER_MICRO = 1_000_000n
/** A fee is rounded to this part of a percent. */
const PARTS = 1_000_000

type Costs = Pick<UsageTotals, 'cost' | 'byokCost'>

/**
 * The amount paid with credits, in units of 1e-12 USD. Requests on own credentials cost only the fee, because the
 * provider bills the rest itself.
 */
export function chargeOf(sum: Costs, byokFeePercent: number): bigint {
  const fee = (sum.byokCost * BigInt(Math.round(byokFeePercent * PARTS))) / BigInt(100 * PARTS)
  return sum.cost - sum.byokCost + fee
}

/** The amount that counts towards the limit of a key, in units of 1e-12 USD; `sum` is of the limit's period. */
export function limitUsageOf(
  key: Pick<KeyRecord, 'includeByokInLimit'>,
  sum: Costs,
  byokFeePercent: number,
): bigint {
  return chargeOf(sum, byokFeePercent) + (key.includeByokInLimit ? sum.byokCost : 0n)
}
