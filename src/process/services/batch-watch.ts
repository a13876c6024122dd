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

/** Batches that other instances accepted are found within this time. */
const CHECK_INTERVAL_MS = 2_000

export class BatchWatch {
  readonly #options: BatchWatchOptions
  #timer: Timer | null = null
  #checking: Promise<void> | null = null
  #isCheckRequested = false
  #isFailing = false
  #isOver = false

  constructor(options: BatchWatchOptions) {
    this.#options = options
  }

  /** Looks now, and from then on at intervals. */
  check(): void {
    if (this.#isOver) return
    if (this.#checking !== null) {
      this.#isCheckRequested = true
      return
    }
    this.#timer?.cancel()
    this.#checking = this.#check().finally(() => {
      this.#checking = null
      if (this.#isOver) return
      if (this.#isCheckRequested) {
        this.#isCheckRequested = false
        this.check()
      } else this.#timer = this.#options.clock.after(CHECK_INTERVAL_MS, () => this.check())
    })
  }

  /** Looks if the change may be a batch that was accepted. */
  invalidate({ kind }: Invalidation): void {
    if (kind === 'batches' || kind === 'all') this.check()
  }

  /** Resolves when no check is running any more. */
  async close(): Promise<void> {
    this.#isOver = true
    this.#timer?.cancel()
    await this.#checking
  }

  /** Never rejects. */
  async #check(): Promise<void> {
    const { store, log, onFound } = this.#options
    try {
      const batches = await store.batches.work.open()
      this.#isFailing = false
      if (batches.length === 0 || this.#isOver) return
      await onFound()
      this.#isOver = true
    } catch (error) {
      if (!this.#isFailing) log.fault('batches', 'cannot read open batches from the store', error)
      this.#isFailing = true
    }
  }
}
