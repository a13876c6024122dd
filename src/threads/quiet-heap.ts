/**
 * Runs garbage collection when a thread has become idle. V8 keeps the memory that startup or a load took, some 30 MB
 * per thread, as long as nothing is allocated; a collection in a quiet moment releases it. Only the young generation is
 * collected: a full collection discards compiled code, which makes the next load one and a half times as expensive.
 * Every thread.
 */
import v8 from 'node:v8'
import { runInNewContext } from 'node:vm'
import type { Clock, Timer } from '../clock.ts'

interface QuietHeapOptions {
  readonly clock: Clock
  /** True while nobody waits for the thread, because a collection stops it for some milliseconds. */
  readonly isIdle: () => boolean
  /** Called at the beginning of each quiet period. Default: nothing. */
  readonly onQuiet?: () => void
  /** Bytes in use. Default: of this thread. */
  readonly usedBytes?: () => number
  /** Default: a collection of the young generation of this thread. */
  readonly collect?: () => void
}

const SAMPLE_MS = 1_000
/**
 * Numbers of quiet samples after which to collect. Two collections, because V8 learns the rate of allocation from them:
 * if the rate was low before one, V8 shrinks the heap some seconds later.
 */
const COLLECTIONS_AT: readonly number[] = [8, 10]
/** The heap of a quiet thread grows only through timers and metrics. */
const QUIET_BYTES = 256 * 1024

export class QuietHeap {
  readonly #options: Required<QuietHeapOptions>
  #timer: Timer | null = null
  #usedBytes = 0
  /** Quiet samples in a row since the last busy one. */
  #quiet = 0

  constructor(options: QuietHeapOptions) {
    this.#options = { onQuiet: () => undefined, usedBytes: heapBytes, collect: collectGarbage, ...options }
    this.#sample()
  }

  close(): void {
    this.#timer?.cancel()
  }

  /** Collects at the beginning of each quiet period. */
  #sample(): void {
    const { clock, isIdle, onQuiet, usedBytes, collect } = this.#options
    const bytes = usedBytes()
    const isQuiet = isIdle() && Math.abs(bytes - this.#usedBytes) < QUIET_BYTES
    this.#quiet = isQuiet ? this.#quiet + 1 : 0
    const collects = COLLECTIONS_AT.includes(this.#quiet)
    if (collects) collect()
    if (this.#quiet === COLLECTIONS_AT[0]) onQuiet()
    this.#usedBytes = collects ? usedBytes() : bytes
    this.#timer = clock.after(SAMPLE_MS, () => this.#sample())
  }
}

function heapBytes(): number {
  return v8.getHeapStatistics().used_heap_size
}

/** Once it is running, V8 exposes its collector only to new contexts. */
function collectGarbage(): void {
  v8.setFlagsFromString('--expose-gc')
  const collect = runInNewContext('gc') as (options: { type: 'minor' }) => void
  v8.setFlagsFromString('--no-expose-gc')
  collect({ type: 'minor' })
}
