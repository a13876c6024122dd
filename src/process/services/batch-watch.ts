/**
 * Looks for open batches, and starts the batch thread for the first one: most gateways never have any, and the thread
 * takes 35 MB. Main thread.
 */
import type { Clock, Timer } from '../../base/clock.ts'
import type { Log } from '../../base/log/log.ts'
import type { Invalidation } from '../../storage/invalidation/bus.ts'
import type { Store } from '../../storage/store.ts'

interface BatchWatchOptions {
  readonly store: { readonly batches: { readonly work: Pick<Store['batches']['work'], 'open'> } }
  readonly clock: Clock
  readonly log: Pick<Log, 'fault'>
  /** Starts the thread if there is an open batch. If it rejects, the next check tries again. */
  readonly onFound: () => Promise<void>
}

/** Batches that other instances accepted are found after this. */
const INTERVAL_MS = 2_000

export class BatchWatch {
  readonly #options: BatchWatchOptions
  #timer: Timer | null = null
  #looking: Promise<void> | null = null
  #again = false
  #failing = false
  #over = false

  constructor(options: BatchWatchOptions) {
    this.#options = options
  }

  /** Looks now, and from then on at intervals. */
  check(): void {
    if (this.#over) return
    if (this.#looking !== null) {
      this.#again = true
      return
    }
    this.#timer?.cancel()
    this.#looking = this.#check().finally(() => {
      this.#looking = null
      if (this.#over) return
      if (this.#again) {
        this.#again = false
        this.check()
      } else this.#timer = this.#options.clock.after(INTERVAL_MS, () => this.check())
    })
  }

  /** Looks if the change may be a batch that was accepted. */
  invalidate({ kind }: Invalidation): void {
    if (kind === 'batches' || kind === 'all') this.check()
  }

  /** Resolves when no check is running any more. */
  async close(): Promise<void> {
    this.#over = true
    this.#timer?.cancel()
    await this.#looking
  }

  /** Never rejects. */
  async #check(): Promise<void> {
    const { store, log, onFound } = this.#options
    try {
      const batches = await store.batches.work.open()
      this.#failing = false
      if (batches.length === 0 || this.#over) return
      await onFound()
      this.#over = true
    } catch (error) {
      if (!this.#failing) log.fault('batches', 'cannot read open batches from the store', error)
      this.#failing = true
    }
  }
}
