/** The request budget: how many requests may be sent, how many at a time, and until when. No request exceeds it. */
import type { Clock } from '../../base/clock.ts'

export interface ProveLimits {
  readonly requests: number
  /** Connections that are open at the same time. */
  readonly concurrency: number
  readonly seconds: number
}

/** A check needs more requests, connections or time than the budget has left. */
export class RationSpent extends Error {
  override readonly name = 'RationSpent'
}

export class Ration {
  readonly limits: ProveLimits
  readonly #clock: Clock
  readonly #startMs: number
  #sent = 0
  #open = 0

  constructor(limits: ProveLimits, clock: Clock) {
    this.limits = limits
    this.#clock = clock
    this.#startMs = clock.monotonicMs()
  }

  get sent(): number {
    return this.#sent
  }

  get remaining(): number {
    return this.limits.requests - this.#sent
  }

  get spentMs(): number {
    return this.#clock.monotonicMs() - this.#startMs
  }

  get leftMs(): number {
    return Math.max(0, this.limits.seconds * 1000 - this.spentMs)
  }

  /** Must be called before requests are sent. @throws RationSpent */
  spend(requests: number): void {
    if (requests > this.remaining) throw new RationSpent(`--requests ${this.limits.requests} is used up`)
    if (this.leftMs === 0) throw new RationSpent(`--seconds ${this.limits.seconds} have passed`)
    this.#sent += requests
  }

  /** Must be called before a connection is opened, and the returned function when it is closed. @throws RationSpent */
  connect(): () => void {
    if (this.#open >= this.limits.concurrency)
      throw new RationSpent(`needs more connections than --concurrency ${this.limits.concurrency}`)
    this.#open++
    let isOpen = true
    return () => {
      if (isOpen) this.#open--
      isOpen = false
    }
  }
}
