/**
 * One page of metrics from all threads. Counts of a thread that died, or does not answer now, stay in the sums:
 * a total that falls would be read as a restart and counted twice by whoever takes rates of it. Main thread.
 */
import { AggregatorRegistry, Registry } from 'prom-client'
import type { MetricSnapshot } from './messages.ts'
import type { ProcessMetrics } from './process-metrics.ts'

export interface ScrapedThread {
  /** Null when the thread does not answer in time. */
  metrics(): Promise<MetricSnapshot | null>
}

export class Scraper {
  readonly #process: ProcessMetrics
  /** Those that run or are being started; what is missing from it is told as `down`. */
  readonly #threads: readonly ScrapedThread[]
  readonly #expected: number
  /** The counts each thread last told, and of those that are gone. */
  readonly #counts = new Map<ScrapedThread, MetricSnapshot>()
  #gone: MetricSnapshot = []
  #running: Promise<string> | null = null

  /** `threads` is looked at anew for each page; `expected` is how many there ought to be. */
  constructor(process: ProcessMetrics, threads: readonly ScrapedThread[], expected: number) {
    this.#process = process
    this.#threads = threads
    this.#expected = expected
  }

  /** Prometheus text. Whoever asks while one page is being made gets the same: scrapers do not add up. */
  page(): Promise<string> {
    this.#running ??= this.#collect().finally(() => {
      this.#running = null
    })
    return this.#running
  }

  /** Takes what a thread told unasked, e.g. before it ends. */
  note(thread: ScrapedThread, snapshot: MetricSnapshot): void {
    this.#counts.set(thread, snapshot.filter(isCount))
  }

  async #collect(): Promise<string> {
    const threads = [...this.#threads]
    const snapshots = await Promise.all(threads.map(thread => thread.metrics()))
    const gauges: MetricSnapshot[] = []
    for (const [index, thread] of threads.entries()) {
      const snapshot = snapshots[index] ?? null
      if (snapshot === null) continue
      this.note(thread, snapshot)
      gauges.push(snapshot.filter(metric => !isCount(metric)))
    }
    await this.#retire()
    const up = gauges.length
    this.#process.threads.set({ state: 'up' }, up)
    this.#process.threads.set({ state: 'silent' }, threads.length - up)
    this.#process.threads.set({ state: 'down' }, Math.max(0, this.#expected - threads.length))
    const serving = sum([this.#gone, ...this.#counts.values(), ...gauges])
    return (await Promise.all([this.#process.registry, serving].map(registry => registry.metrics()))).join(
      '\n',
    )
  }

  /** Folds the counts of threads that are no more into one. */
  async #retire(): Promise<void> {
    const lost = [...this.#counts.keys()].filter(thread => !this.#threads.includes(thread))
    if (lost.length === 0) return
    const snapshots = lost.map(thread => this.#counts.get(thread) ?? [])
    for (const thread of lost) this.#counts.delete(thread)
    this.#gone = await sum([this.#gone, ...snapshots]).getMetricsAsJSON()
  }
}

function sum(snapshots: readonly MetricSnapshot[]): Registry {
  const told = snapshots.filter(snapshot => snapshot.length > 0)
  // The library's own sum of nothing fails.
  return told.length === 0
    ? new Registry()
    : AggregatorRegistry.aggregate(told.map(snapshot => [...snapshot]))
}

/** Only counts outlive their thread: a gauge is what is now. */
function isCount(metric: MetricSnapshot[number]): boolean {
  // The library's types call the kind a number; its values are words.
  const kind = String(metric.type)
  return kind === 'counter' || kind === 'histogram'
}
