/**
 * The money of shadows: the quota of a call that the budget of a rollout pays. The highest possible cost of a call is
 * taken from the budget before it, and the unused part is given back after it. The Store keeps the budget, for all
 * instances and over restarts: the reservation of a process that was killed counts as spent.
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
  /** Resolves when the Store has the cost of the call. Never rejects. */
  readonly whenSettled: Promise<void>
}

export class Purses {
  readonly #deps: PursesDeps
  /** Calls of this thread that have reserved something. */
  #open = 0

  constructor(deps: PursesDeps) {
    this.#deps = deps
  }

  /** `shadows`: 1 for the call of a shadow, 0 for the call of the judge. */
  open(rollout: ShadowedRollout, budget: PicoUsd, shadows: number): Purse {
    const { store, clock, log } = this.#deps
    let isRefused = false
    let waitedMs = 0
    let settling: Promise<void> = Promise.resolve()
    return {
      get isRefused() {
        return isRefused
      },
      get waitedMs() {
        return waitedMs
      },
      get whenSettled() {
        return settling
      },
      limits: () => true,
      limitsMoney: () => true,
      admit: async (_, { offers }) => {
        const maxPrice = Math.max(...offers.map(offer => reservedPrice(offer, offer.maxTokens)))
        const startedMs = clock.monotonicMs()
        isRefused = !(await store.rollouts.reserveShadow(rollout, maxPrice, budget, this.#open === 0))
        waitedMs = clock.monotonicMs() - startedMs
        if (isRefused) throw new GatewayError('payment_required', 'The budget of shadows does not suffice')
        this.#open++
        let isOpen = true
        return {
          allowance: null,
          settle: ({ cost }) => {
            if (!isOpen) return
            isOpen = false
            this.#open--
            settling = store.rollouts
              .settleShadow(rollout, maxPrice, cost, shadows)
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
