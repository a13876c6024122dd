/** What the ledger's sums mean for balances and limits: the one place that tells credits from own credentials. Pure. */
import type { KeyRecord } from '../storage/store.ts'
import type { UsageTotals } from '../storage/usage.ts'

/** Units of 1e-12 USD in one of 1e-6. */
export const PICOS_PER_MICRO = 1_000_000n
/** Parts of a percent that a fee may have. */
const PARTS = 1_000_000

type Costs = Pick<UsageTotals, 'cost' | 'byokCost'>

/**
 * What was paid with credits, in units of 1e-12 USD: of what ran on own credentials the fee alone, because the
 * provider bills the rest itself.
 */
export function chargedOf(sum: Costs, byokFeePercent: number): bigint {
  const fee = (sum.byokCost * BigInt(Math.round(byokFeePercent * PARTS))) / BigInt(100 * PARTS)
  return sum.cost - sum.byokCost + fee
}

/** What counts towards the limit of a key, in units of 1e-12 USD; `sum` is of the period of its limit. */
export function countedOf(
  key: Pick<KeyRecord, 'includeByokInLimit'>,
  sum: Costs,
  byokFeePercent: number,
): bigint {
  return chargedOf(sum, byokFeePercent) + (key.includeByokInLimit ? sum.byokCost : 0n)
}
