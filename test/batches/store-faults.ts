/** Faults of stores that come and go while a program runs: some calls in a row, or all of them. */
import type { Store } from '../../src/storage/store.ts'
import { awayError, failingStore, type StoreFault } from '../support/failing-store.ts'

/** `before`: nothing was done. `after`: it was done, and the answer was lost. */
export type FaultMode = 'before' | 'after'

interface Outage {
  readonly from: number
  readonly until: number
  readonly mode: FaultMode
}

export class StoreFaults {
  /** Calls of verbs so far. */
  calls = 0
  /** Those that failed, in their order. */
  readonly failed: string[] = []
  #outage: Outage | null = null

  /** Fails the n-th call from now, from 1, and those that follow it, `count` in all. */
  failAt(n: number, mode: FaultMode, count = 1): void {
    const from = this.calls + n
    this.#outage = { from, until: from + count, mode }
  }

  /** Fails all calls from now. */
  failAll(): void {
    this.failAt(1, 'before', Number.POSITIVE_INFINITY)
  }

  heal(): void {
    this.#outage = null
  }

  /** The same store, with the faults. */
  between(store: Store): Store {
    return failingStore(store, ({ verb }) => this.#faultOf(verb)).store
  }

  #faultOf(verb: string): StoreFault | null {
    const number = ++this.calls
    const outage = this.#outage
    if (outage === null || number < outage.from || number >= outage.until) return null
    this.failed.push(verb)
    return { error: awayError(), tookEffect: outage.mode === 'after' }
  }
}
