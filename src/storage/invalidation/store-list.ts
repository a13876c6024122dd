/** A short list of the Store that a thread keeps whole, and reads again when one of its records has changed. */
import type { Clock, Timer } from '../../base/clock.ts'
import type { Log } from '../../base/log/log.ts'

/** Delay before the next read after a failure. */
const RETRY_DELAY_MS = 1_000

interface StoreListDeps<Row> {
  readonly read: () => Promise<readonly Row[]>
  /** Called with each list that was read. */
  readonly onRead: (rows: readonly Row[]) => void
  /** The component of its log lines. */
  readonly component: Parameters<Log['fault']>[0]
  /** Logged when the Store fails. */
  readonly failure: string
  readonly clock: Pick<Clock, 'after'>
  readonly log: Pick<Log, 'fault'>
}

export class StoreList<Row> {
  readonly #deps: StoreListDeps<Row>
  #reading: Promise<void> | null = null
  #isStale = false
  #isFailing = false
  #isClosed = false
  /** The next read after a failure; null while none is scheduled. */
  #retry: Timer | null = null

  constructor(deps: StoreListDeps<Row>) {
    this.#deps = deps
  }

  /** Reads the list. Never rejects: until the Store answers, the last list stays in use. */
  refresh(): Promise<void> {
    this.#isStale = this.#reading !== null
    this.#reading ??= this.#read().finally(() => {
      this.#reading = null
      if (this.#isStale && !this.#isClosed) void this.refresh()
    })
    return this.#reading
  }

  close(): void {
    this.#isClosed = true
    this.#retry?.cancel()
  }

  async #read(): Promise<void> {
    const { read, onRead, component, failure, clock, log } = this.#deps
    // Otherwise each `refresh` during an outage would start a chain of retries of its own.
    this.#retry?.cancel()
    let rows: readonly Row[]
    try {
      rows = await read()
    } catch (error) {
      if (this.#isClosed) return
      if (!this.#isFailing) log.fault(component, failure, error)
      this.#isFailing = true
      this.#retry = clock.after(RETRY_DELAY_MS, () => void this.refresh())
      return
    }
    this.#isFailing = false
    if (!this.#isClosed) onRead(rows)
  }
}
