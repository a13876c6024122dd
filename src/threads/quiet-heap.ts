/**
 * Runs garbage collection when a thread has become idle. V8 keeps the memory that startup or a load took, some 10 MB
 * per thread, as long as nothing is allocated; a collection in a quiet moment returns it to the system. Every thread.
 */
import v8 from 'node:v8'
import type { Clock, Timer } from '../clock.ts'

interface QuietHeapOptions {
  readonly clock: Clock
  /** Milliseconds without load after which to collect. */
  readonly quietMs: number
  /** True while nobody waits for the thread, because a collection stops it for some tens of milliseconds. */
  readonly isIdle: () => boolean
  /** Called at the beginning of each quiet period. Default: nothing. */
  readonly onQuiet?: () => void
  /** Bytes in use. Default: of this thread. */
  readonly usedBytes?: () => number
  /** Default: a collection of this thread. */
  readonly collect?: () => void
}

/** Samples of a quiet period before the collection. */
const QUIET_SAMPLES = 8
/** The heap of a quiet thread grows only through timers and metrics, by no more than this between two samples. */
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

  /** Collects once in each quiet period. A heap that shrinks is quiet too: the collection itself makes it shrink. */
  #sample(): void {
    const { clock, quietMs, isIdle, onQuiet, usedBytes, collect } = this.#options
    const bytes = usedBytes()
    this.#quiet = isIdle() && bytes - this.#usedBytes < QUIET_BYTES ? this.#quiet + 1 : 0
    if (this.#quiet === QUIET_SAMPLES) {
      collect()
      onQuiet()
    }
    this.#usedBytes = bytes
    this.#timer = clock.after(quietMs / QUIET_SAMPLES, () => this.#sample())
  }
}

function heapBytes(): number {
  return v8.getHeapStatistics().used_heap_size
}

/**
 * Collects the garbage of this thread and returns free pages to the system. Does nothing if Node was started without
 * `--expose-gc`, as `bin/sluice.js` starts it: that flag belongs to the whole process, so no thread may set it later.
 */
export function collectGarbage(): void {
  globalThis.gc?.({ type: 'major', flavor: 'last-resort' })
}
