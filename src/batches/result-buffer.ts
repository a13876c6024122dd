/**
 * Buffers results for a few milliseconds, so that one transaction stores many. While the Store refuses them, they wait
 * in memory and are retried; no result is reported before it is stored. Batch thread.
 */
import type { Clock, Timer } from '../base/clock.ts'
import { GatewayError, INTERNAL_MESSAGE } from '../base/errors.ts'
import type { Log } from '../base/log/log.ts'
import { NO_USAGE } from '../protocol/management/batches.ts'
import type { BatchWork, HeldLine, LineResult, ReturnedLine } from '../storage/batches.ts'
import { isUnfit } from '../storage/store-error.ts'
import { failedLine } from './result-line.ts'

interface ResultBufferOptions {
  readonly work: Pick<BatchWork, 'finish' | 'giveBack'>
  readonly owner: string
  readonly clock: Clock
  readonly log: Pick<Log, 'fault' | 'notice'>
  /** Counts memory; a negative number frees it. */
  readonly countMemory: (bytes: number) => void
  /** Called with the results that were stored, without those that were dropped because of a newer claim. */
  readonly onStored: (results: readonly LineResult[]) => void
  /** Called when lines are back in the queue. */
  readonly onReturned: (lines: readonly ReturnedLine[]) => void
}

/** Results that arrive within this time share one transaction, and so one disk sync. */
const STORE_DELAY_MS = 10
/** Maximum per transaction, because other writers wait for it. */
const MAX_RESULTS_PER_WRITE = 200
const MAX_BYTES_PER_WRITE = 8 * 1024 * 1024
const RETRY_FIRST_MS = 100
const RETRY_MAX_MS = 5_000
/** Bytes of a character in memory. */
const CHAR_BYTES = 2

export class ResultBuffer {
  readonly #options: ResultBufferOptions
  #results: LineResult[] = []
  #returned: ReturnedLine[] = []
  #timer: Timer | null = null
  #running: Promise<void> | null = null
  /** Consecutive tries that the Store refused. */
  #refusals = 0
  /** Maximum results per transaction now; smaller after the Store refused the values of one of them. */
  #maxResults = MAX_RESULTS_PER_WRITE

  constructor(options: ResultBufferOptions) {
    this.#options = options
  }

  /** True while the Store refuses results: no more lines should be claimed. */
  get isStuck(): boolean {
    return this.#refusals > 0
  }

  get isEmpty(): boolean {
    return this.#results.length === 0 && this.#returned.length === 0
  }

  /** Lines whose result is not stored yet, and lines that are not back in the queue yet. */
  get lines(): readonly HeldLine[] {
    return [...this.#results, ...this.#returned]
  }

  /** True while results or returned lines of this batch wait. */
  has(batchId: string): boolean {
    const isOf = (line: HeldLine): boolean => line.batchId === batchId
    return this.#results.some(isOf) || this.#returned.some(isOf)
  }

  add(result: LineResult): void {
    this.#options.countMemory(bytesOf(result))
    this.#results.push(result)
    this.#scheduleStore(STORE_DELAY_MS)
  }

  /** Returns a line to the queue. */
  giveBack(line: ReturnedLine): void {
    this.#returned.push(line)
    this.#scheduleStore(STORE_DELAY_MS)
  }

  /** Stores what waits. Returns false if the Store refuses it. Never rejects. */
  async flush(): Promise<boolean> {
    while (!this.isEmpty) {
      await this.#store()
      if (this.isStuck) return false
    }
    return true
  }

  /** Discards waiting results. The leases of their lines end, and the lines are run again. */
  close(): void {
    this.#timer?.cancel()
  }

  #scheduleStore(delayMs: number): void {
    if (this.#running !== null) return
    this.#timer ??= this.#options.clock.after(delayMs, this.#onTimer)
  }

  readonly #onTimer = (): void => {
    this.#timer = null
    void this.#store()
  }

  #store(): Promise<void> {
    this.#timer?.cancel()
    this.#timer = null
    this.#running ??= this.#storeSome().finally(() => {
      this.#running = null
      if (this.isEmpty) return
      this.#scheduleStore(this.isStuck ? Math.min(RETRY_MAX_MS, RETRY_FIRST_MS * 2 ** this.#refusals) : 0)
    })
    return this.#running
  }

  async #storeSome(): Promise<void> {
    const { work, owner, log, countMemory, onStored, onReturned } = this.#options
    const results = this.#nextResults()
    const returned = this.#returned.slice(0, this.#maxResults)
    try {
      if (results.length > 0) {
        const storedResults = await work.finish(owner, results)
        this.#results.splice(0, results.length)
        this.#maxResults = MAX_RESULTS_PER_WRITE
        for (const result of results) countMemory(-bytesOf(result))
        onStored(storedResults)
      }
      if (returned.length > 0) {
        await work.giveBack(owner, returned)
        this.#returned.splice(0, returned.length)
        onReturned(returned)
      }
      if (this.#refusals > 0) log.notice('batches', 'storing batch results again')
      this.#refusals = 0
    } catch (error) {
      if (isUnfit(error) && results.length > 0 && this.#results[0] === results[0]) {
        this.#isolate(results, error)
        return
      }
      if (this.#refusals === 0)
        log.fault('batches', 'cannot store batch results; they are kept in memory', error)
      this.#refusals++
    }
  }

  #nextResults(): LineResult[] {
    const next: LineResult[] = []
    let bytes = 0
    for (const result of this.#results) {
      bytes += bytesOf(result)
      if (next.length > 0 && (next.length === this.#maxResults || bytes > MAX_BYTES_PER_WRITE)) break
      next.push(result)
    }
    return next
  }

  /**
   * One result that no database accepts must not block the others. It is found, and its line gets an error as its
   * result.
   */
  #isolate(results: readonly LineResult[], error: unknown): void {
    const [first] = results
    if (first === undefined) return
    if (results.length > 1) {
      this.#maxResults = Math.ceil(results.length / 2)
      return
    }
    this.#options.log.fault('batches', 'cannot store a batch result', error)
    this.#options.countMemory(-bytesOf(first))
    const failure = new GatewayError('internal', INTERNAL_MESSAGE)
    const replaced: LineResult = {
      ...first,
      outcome: 'failed',
      result: failedLine(failure),
      usage: NO_USAGE,
    }
    // Even the error was refused. The lease of the line ends, and it is run again.
    if (replaced.result === first.result) {
      this.#results.shift()
      return
    }
    this.#options.countMemory(bytesOf(replaced))
    this.#results[0] = replaced
  }
}

function bytesOf({ result }: LineResult): number {
  return CHAR_BYTES * result.length
}
