/** Records each turn of a thread's event loop and each pause of its garbage collector, without making the loop spin. */
import {
  constants,
  type NodeGCPerformanceDetail,
  type PerformanceEntry,
  PerformanceObserver,
  performance,
} from 'node:perf_hooks'

/** From the end of one poll to the end of the next, without waiting. */
export interface Turn {
  /** Of the monotonic clock, in microseconds; profiles of V8 have the same one. */
  readonly endMicros: number
  /** Without the time in which the loop waited. */
  readonly activeMicros: number
  /** CPU of the thread. */
  readonly cpuMicros: number
}

export interface Pause {
  readonly kind: string
  readonly micros: number
}

export interface Watched {
  readonly turns: readonly Turn[]
  readonly pauses: readonly Pause[]
}

type CollectorEntry = PerformanceEntry & { readonly detail: NodeGCPerformanceDetail }

const KINDS: Readonly<Record<number, string>> = {
  [constants.NODE_PERFORMANCE_GC_MINOR]: 'young generation',
  [constants.NODE_PERFORMANCE_GC_MAJOR]: 'old generation',
  [constants.NODE_PERFORMANCE_GC_INCREMENTAL]: 'step of the old generation',
  [constants.NODE_PERFORMANCE_GC_WEAKCB]: 'weak callbacks',
}

export class TurnWatch {
  #turns: Turn[] = []
  #pauses: Pause[] = []
  #runs = false
  #atMicros = 0
  #idleMs = 0
  #cpuMicros = 0
  readonly #observer = new PerformanceObserver(list => {
    for (const { detail, duration } of list.getEntries() as CollectorEntry[])
      this.#pauses.push({ kind: KINDS[detail.kind ?? 0] ?? 'other', micros: duration * 1000 })
  })

  start(): void {
    this.#runs = true
    this.#observer.observe({ entryTypes: ['gc'] })
    this.#mark()
    this.#next()
  }

  take(): Watched {
    this.#runs = false
    this.#observer.disconnect()
    const watched = { turns: this.#turns, pauses: this.#pauses }
    this.#turns = []
    this.#pauses = []
    return watched
  }

  /** An immediate without a reference runs after each poll, and keeps none from waiting. */
  #next(): void {
    setImmediate(() => {
      if (!this.#runs) return
      const before = { at: this.#atMicros, idle: this.#idleMs, cpu: this.#cpuMicros }
      this.#mark()
      this.#turns.push({
        endMicros: this.#atMicros,
        activeMicros: Math.max(0, this.#atMicros - before.at - (this.#idleMs - before.idle) * 1000),
        cpuMicros: this.#cpuMicros - before.cpu,
      })
      this.#next()
    }).unref()
  }

  #mark(): void {
    this.#atMicros = Number(process.hrtime.bigint() / 1000n)
    this.#idleMs = performance.eventLoopUtilization().idle
    const { user, system } = process.threadCpuUsage()
    this.#cpuMicros = user + system
  }
}
