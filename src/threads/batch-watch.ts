/**
 * Looks for open batches as long as the batch thread has had none, with nothing in memory but the Store: most gateways
 * have none most of the time. Batch thread.
 */
import type { Clock, Timer } from '../clock.ts'
import type { Log } from '../log/log.ts'
import type { Store } from '../storage/store.ts'

export interface BatchWatchOptions {
  readonly open: () => Promise<Pick<Store, 'batches' | 'close'>>
  readonly clock: Clock
  readonly log: Pick<Log, 'fault'>
  /** Called once, when there is an open batch; the Store is closed by then. Another look follows if it rejects. */
  readonly onFound: () => Promise<void>
}

/** Batches that other instances accepted are found after this. */
const INTERVAL_MS = 2_000

export class BatchWatch {
  readonly #options: BatchWatchOptions
  #store: Pick<Store, 'batches' | 'close'> | null = null
  #timer: Timer | null = null
  #looking: Promise<void> | null = null
  #again = false
  #failing = false
  #over = false

  constructor(options: BatchWatchOptions) {
    this.#options = options
  }

  /** Opens the Store. @throws StoreError */
  async prepare(): Promise<void> {
    this.#store ??= await this.#options.open()
  }

  /** Looks now, and from then on at intervals. */
  look(): void {
    if (this.#over) return
    if (this.#looking !== null) {
      this.#again = true
      return
    }
    this.#timer?.cancel()
    this.#looking = this.#look().finally(() => {
      this.#looking = null
      if (this.#over) return
      if (this.#again) {
        this.#again = false
        this.look()
      } else this.#timer = this.#options.clock.after(INTERVAL_MS, () => this.look())
    })
  }

  async close(): Promise<void> {
    this.#over = true
    this.#timer?.cancel()
    await this.#looking
    await this.#store?.close()
    this.#store = null
  }

  /** Never rejects. */
  async #look(): Promise<void> {
    const { log, onFound } = this.#options
    try {
      await this.prepare()
      const batches = (await this.#store?.batches.work.open()) ?? []
      this.#failing = false
      if (batches.length === 0 || this.#over) return
      await this.#store?.close()
      this.#store = null
      await onFound()
      this.#over = true
    } catch (error) {
      if (!this.#failing) log.fault('batches cannot be looked for', error)
      this.#failing = true
    }
  }
}
