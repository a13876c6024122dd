/**
 * Resources that failed recently. Other resources of the same key are tried before them. A resource is tried again
 * after a while, or if all of them have failed. Serve threads.
 */
import type { Clock } from '../../base/clock.ts'

const AVOIDANCE_MS = 30_000
/** Maximum for all keys together; the oldest failure is dropped. */
const FAILURES_MAX = 10_000

export class FailedResources {
  readonly #clock: Clock
  /** Monotonic times until which resources are avoided. By key and address, in the order in which they failed. */
  readonly #untilMs = new Map<string, number>()

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** The names in the order in which they are tried: those that failed recently come last, the oldest failure first. */
  order(key: string, names: readonly string[]): readonly string[] {
    const nowMs = this.#clock.monotonicMs()
    const recentlyFailed = names.filter(name => (this.#untilMs.get(idOf(key, name)) ?? 0) > nowMs)
    if (recentlyFailed.length === 0) return names
    const untilMs = (name: string): number => this.#untilMs.get(idOf(key, name)) ?? 0
    return [
      ...names.filter(name => !recentlyFailed.includes(name)),
      ...recentlyFailed.toSorted((a, b) => untilMs(a) - untilMs(b)),
    ]
  }

  note(key: string, name: string): void {
    const id = idOf(key, name)
    this.#untilMs.delete(id)
    this.#untilMs.set(id, this.#clock.monotonicMs() + AVOIDANCE_MS)
    for (const oldest of this.#untilMs.keys()) {
      if (this.#untilMs.size <= FAILURES_MAX) return
      this.#untilMs.delete(oldest)
    }
  }
}

function idOf(key: string, name: string): string {
  return `${key}\n${name}`
}
