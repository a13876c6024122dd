/**
 * The money of shadows: the quota of a call that the budget of a rollout pays. What a call may cost at most is taken
 * from the budget before it, and what it did not cost is given back after it. The Store keeps the budget, so it holds for
 * all instances, and over restarts: what a call reserved in a process that was killed counts as spent.
 */
import type { Clock } from '../../base/clock.ts'
import { GatewayError } from '../../base/errors.ts'
import type { Log } from '../../base/log/log.ts'
import type { PicoUsd } from '../../base/money.ts'
import { reservedPrice } from '../../callers/limits/demand.ts'
import type { Quota } from '../../callers/limits/quota.ts'
import type { RolloutStore, ShadowedRollout } from '../../storage/rollouts.ts'

export interface PursesDeps {
  readonly store: { readonly rollouts: Pick<RolloutStore, 'reserveShadow' | 'settleShadow'> }
  readonly clock: Pick<Clock, 'monotonicMs'>
  readonly log: Pick<Log, 'fault'>
}

/** The quota of one call. */
export interface Purse extends Quota {
  /** True if the budget does not suffice for the call. */
  readonly isRefused: boolean
  /** Milliseconds that the reservation took. */
  readonly waitedMs: number
  /** Resolves when the Store has what the call cost. Never rejects. */
  readonly settled: Promise<void>
}

export class Purses {
  readonly #deps: PursesDeps
  /** Calls of this thread that have reserved something. */
  #open = 0

  constructor(deps: PursesDeps) {
    this.#deps = deps
  }

  /** `shadows`: how many shadows the call is, 0 or 1. */
  open(of: ShadowedRollout, budget: PicoUsd, shadows: number): Purse {
    const { store, clock, log } = this.#deps
    let isRefused = false
    let waitedMs = 0
    let settled: Promise<void> = Promise.resolve()
    return {
      get isRefused() {
        return isRefused
      },
      get waitedMs() {
        return waitedMs
      },
      get settled() {
        return settled
      },
      limits: () => true,
      limitsMoney: () => true,
      admit: async (_, { offers }) => {
        const maxPrice = Math.max(...offers.map(offer => reservedPrice(offer, offer.maxTokens)))
        const askedMs = clock.monotonicMs()
        isRefused = !(await store.rollouts.reserveShadow(of, maxPrice, budget, this.#open === 0))
        waitedMs = clock.monotonicMs() - askedMs
        if (isRefused) throw new GatewayError('payment_required', 'The budget of shadows does not suffice')
        this.#open++
        let isOpen = true
        return {
          allowance: null,
          settle: ({ cost }) => {
            if (!isOpen) return
            isOpen = false
            this.#open--
            settled = store.rollouts
              .settleShadow(of, maxPrice, cost, shadows)
              .catch((error: unknown) =>
                log.fault(
                  'rollouts',
                  'the cost of a shadow stays as reserved: the store cannot keep it',
                  error,
                ),
              )
          },
        }
      },
    }
  }
}
