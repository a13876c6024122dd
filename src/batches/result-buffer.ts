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
  /** Counts memory; negative when it is free again. */
  readonly hold: (bytes: number) => void
  /** Called with results that the Store has taken, and with how many of them were not overtaken. */
  readonly onStored: (results: readonly LineResult[]) => void
  /** Called when lines that went back to the queue are there. */
  readonly onReturned: (lines: readonly ReturnedLine[]) => void
}

/** Results of so long share one transaction, which is one wait for the disk. */
const GATHER_MS = 10
/** Of one transaction: it holds other writers up for some milliseconds. */
const STORED_AT_ONCE = 200
const BYTES_AT_ONCE = 8 * 1024 * 1024
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
  /** Tries in a row that the Store refused. */
  #refusals = 0
  /** Fewer after the Store refused the values of one of them. */
  #atOnce = STORED_AT_ONCE

  constructor(options: ResultBufferOptions) {
    this.#options = options
  }

  /** True while the Store refuses results: no further lines should be claimed. */
  get isStuck(): boolean {
    return this.#refusals > 0
  }

  get isEmpty(): boolean {
    return this.#results.length === 0 && this.#returned.length === 0
  }

  /** Lines whose end is not stored yet. */
  get lines(): readonly HeldLine[] {
    return [...this.#results, ...this.#returned]
  }

  /** True while something of this batch waits. */
  holds(batchId: string): boolean {
    const isOf = (line: HeldLine): boolean => line.batchId === batchId
    return this.#results.some(isOf) || this.#returned.some(isOf)
  }

  add(result: LineResult): void {
    this.#options.hold(bytesOf(result))
    this.#results.push(result)
    this.#soon(GATHER_MS)
  }

  /** Puts a line back into the queue. */
  giveBack(line: ReturnedLine): void {
    this.#returned.push(line)
    this.#soon(GATHER_MS)
  }

  /** Stores what waits. False: the Store refuses it. Never rejects. */
  async flush(): Promise<boolean> {
    while (!this.isEmpty) {
      await this.#store()
      if (this.isStuck) return false
    }
    return true
  }

  /** Waiting results are lost to this process; the leases of the lines end, and they are run again. */
  close(): void {
    this.#timer?.cancel()
  }

  #soon(delayMs: number): void {
    if (this.#running !== null) return
    this.#timer ??= this.#options.clock.after(delayMs, this.#due)
  }

  readonly #due = (): void => {
    this.#timer = null
    void this.#store()
  }

  #store(): Promise<void> {
    this.#timer?.cancel()
    this.#timer = null
    this.#running ??= this.#storeSome().finally(() => {
      this.#running = null
      if (this.isEmpty) return
      this.#soon(this.isStuck ? Math.min(RETRY_MAX_MS, RETRY_FIRST_MS * 2 ** this.#refusals) : 0)
    })
    return this.#running
  }

  async #storeSome(): Promise<void> {
    const { work, owner, log, hold, onStored, onReturned } = this.#options
    const results = this.#nextResults()
    const returned = this.#returned.slice(0, this.#atOnce)
    try {
      if (results.length > 0) {
        const stored = await work.finish(owner, results)
        this.#results.splice(0, results.length)
        this.#atOnce = STORED_AT_ONCE
        for (const result of results) hold(-bytesOf(result))
        onStored(stored)
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
      if (next.length > 0 && (next.length === this.#atOnce || bytes > BYTES_AT_ONCE)) break
      next.push(result)
    }
    return next
  }

  /** One result that no database takes must not hold up the others: it is found, and its line has failed. */
  #isolate(results: readonly LineResult[], error: unknown): void {
    const [first] = results
    if (first === undefined) return
    if (results.length > 1) {
      this.#atOnce = Math.ceil(results.length / 2)
      return
    }
    this.#options.log.fault('batches', 'cannot store a batch result', error)
    this.#options.hold(-bytesOf(first))
    const failure = new GatewayError('internal', INTERNAL_MESSAGE)
    const replaced: LineResult = {
      ...first,
      outcome: 'failed',
      result: failedLine(failure),
      usage: NO_USAGE,
    }
    // Not even that: the lease of the line ends, and it is run again.
    if (replaced.result === first.result) {
      this.#results.shift()
      return
    }
    this.#options.hold(bytesOf(replaced))
    this.#results[0] = replaced
  }
}

function bytesOf({ result }: LineResult): number {
  return CHAR_BYTES * result.length
}
