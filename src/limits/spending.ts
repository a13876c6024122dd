/** What was spent and what there is, from the Store. Main thread; asked when a counter begins, and rarely after. */
import type { MicroUsd, PicoUsd } from '../money.ts'
import type { Store } from '../storage/store.ts'
import type { Spending } from './counters.ts'

/** Units of 1e-12 USD in one of 1e-9. */
const PICOS_PER_NANO = 1_000
/** Units of 1e-9 USD in one of 1e-6. */
const NANOS_PER_MICRO = 1_000

/** In units of 1e-9 USD, rounded up: the cheapest request counts for something. */
export function picoToNano(amount: PicoUsd): number {
  return Math.ceil(amount / PICOS_PER_NANO)
}

/** In units of 1e-9 USD. Beyond 9 million USD neighbours of some 1e-9 USD are no longer told apart. */
export function microToNano(amount: MicroUsd): number {
  return amount * NANOS_PER_MICRO
}

/** @param shipped resolves once all that this instance has spooled so far is in the Store, or cannot be now */
export function createSpending(
  store: Pick<Store, 'ledger' | 'credits'>,
  shipped: () => Promise<void>,
): Spending {
  return {
    async spent({ organizationId, keyHash, memberId, workspaceId, since, includeByok }) {
      await shipped()
      const sums = await store.ledger.usageSince({
        organizationId,
        since,
        ...(keyHash === null ? {} : { keyHash }),
        ...(memberId === undefined ? {} : { memberId }),
        ...(workspaceId === undefined ? {} : { workspaceId }),
      })
      const cost = includeByok ? sums.cost : sums.cost - sums.byokCost
      return Math.ceil(Number(cost) / PICOS_PER_NANO)
    },
    async credits(organizationId) {
      return microToNano(await store.credits.total(organizationId))
    },
  }
}
