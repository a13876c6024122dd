/**
 * Keeps explanations of requests: writes those of all threads into the Store in batches, and removes old ones. Main
 * thread. Explanations are there to help people and are not accounting data, so those that the Store refuses for too
 * long are dropped.
 */
import { type Clock, isoInstant, type Timer } from '../../base/clock.ts'
import type { Log } from '../../base/log/log.ts'
import type { ExplanationStore, NewExplanation } from '../../storage/ledger.ts'
import { isUnfit } from '../../storage/store-error.ts'

interface ExplanationKeeperOptions {
  readonly store: { readonly explanations: Pick<ExplanationStore, 'add' | 'prune' | 'pruneBeyond'> }
  readonly clock: Clock
  readonly log: Pick<Log, 'fault' | 'notice'>
}

/** Short, because people look for a request that has just failed. */
const WRITE_DELAY_MS = 500
const WRITE_AFTER_FAILURE_MS = 5_000
/** While the Store is away: some megabytes. */
const MAX_WAITING = 2_000
/** In one transaction: some milliseconds of the disk. */
const BATCH_SIZE = 200
const DAY_MS = 86_400_000
/** Maximum per organization and kind: a few megabytes. */
const MAX_PER_ORGANIZATION = 5_000
/** In this time all threads together add fewer explanations of one organization than are kept. */
const PRUNE_INTERVAL_MS = 60_000
/** Pause between two batches that are removed, so that other work of the thread comes first. */
const PAUSE_MS = 100

export class ExplanationKeeper {
  readonly #options: ExplanationKeeperOptions
  #waiting: NewExplanation[] = []
  #timer: Timer | null = null
  #pruning: Timer
  #running: Promise<void> = Promise.resolve()
  #isFailing = false
  #closed = false

  constructor(options: ExplanationKeeperOptions) {
    this.#options = options
    this.#pruning = options.clock.after(PRUNE_INTERVAL_MS, this.#prune)
  }

  /** Adds explanations of a thread. */
  add(explanations: readonly NewExplanation[]): void {
    this.#waiting.push(...explanations)
    const surplus = this.#waiting.length - MAX_WAITING
    if (surplus > 0) this.#waiting.splice(0, surplus)
    this.#schedule(WRITE_DELAY_MS)
  }

  /** Writes the remaining explanations. Call it after all threads have ended. */
  async close(): Promise<void> {
    this.#closed = true
    this.#timer?.cancel()
    this.#pruning.cancel()
    await this.#running
    await this.#writeAll()
  }

  #schedule(delayMs: number): void {
    if (this.#closed) return
    this.#timer ??= this.#options.clock.after(delayMs, () => {
      this.#timer = null
      this.#running = this.#running.then(() => this.#writeAll())
    })
  }

  async #writeAll(): Promise<void> {
    const { store, log } = this.#options
    while (this.#waiting.length > 0) {
      const batch = this.#waiting.splice(0, BATCH_SIZE)
      try {
        await store.explanations.add(batch)
        this.#isFailing = false
      } catch (error) {
        if (!this.#isFailing) log.fault('store', 'cannot store explanations of requests', error)
        this.#isFailing = true
        if (isUnfit(error)) continue
        this.#waiting.unshift(...batch)
        this.#schedule(WRITE_AFTER_FAILURE_MS)
        return
      }
    }
  }

  readonly #prune = (): void => {
    this.#running = this.#running.then(async () => {
      const hasMore = await this.#removeBatch()
      if (!this.#closed)
        this.#pruning = this.#options.clock.after(hasMore ? PAUSE_MS : PRUNE_INTERVAL_MS, this.#prune)
    })
  }

  /** True if there may be more to remove. */
  async #removeBatch(): Promise<boolean> {
    const { store, clock } = this.#options
    try {
      const expiredCount = await store.explanations.prune(isoInstant(clock.nowMs() - DAY_MS), BATCH_SIZE)
      const surplusCount = await store.explanations.pruneBeyond(MAX_PER_ORGANIZATION, BATCH_SIZE)
      return expiredCount === BATCH_SIZE || surplusCount === BATCH_SIZE
    } catch {
      // Failed writes already report an unavailable Store.
      return false
    }
  }
}
