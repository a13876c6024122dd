/** Percentiles of the values of the last five minutes, in a bounded sketch. Pure. */
import { LogCollapsingLowestDenseDDSketch as Sketch } from '@datadog/sketches-js'

/** Shares of the values that are asked for, as preferences name them. */
export interface Percentiles {
  readonly p50: number
  readonly p75: number
  readonly p90: number
  readonly p99: number
}

const SLOT_MS = 60_000
const SLOTS = 5
/** A percentile is right within 2 %, from a millisecond to the ten minutes of a request, in about 350 bins. */
const ACCURACY = { relativeAccuracy: 0.02, binLimit: 512 }
/** Percentiles of a busy endpoint are not computed anew for each request. */
const FRESH_MS = 1_000

interface Slot {
  readonly number: number
  readonly sketch: Sketch
}

export class RecentValues {
  /** The newest last; at most five. */
  readonly #slots: Slot[] = []
  #known: Percentiles | null = null
  #knownMs = Number.NEGATIVE_INFINITY

  /** Values that are no positive number are left out. */
  add(nowMs: number, value: number): void {
    if (!(value > 0 && value < Number.POSITIVE_INFINITY)) return
    const number = Math.floor(nowMs / SLOT_MS)
    let last = this.#slots.at(-1)
    if (last === undefined || last.number < number) {
      last = { number, sketch: new Sketch(ACCURACY) }
      this.#slots.push(last)
      this.#forget(number)
    }
    last.sketch.accept(value)
  }

  /** Null: nothing was measured in the last five minutes. */
  percentiles(nowMs: number): Percentiles | null {
    if (nowMs - this.#knownMs < FRESH_MS) return this.#known
    this.#forget(Math.floor(nowMs / SLOT_MS))
    this.#knownMs = nowMs
    this.#known = this.#slots.length === 0 ? null : percentilesOf(this.#slots)
    return this.#known
  }

  #forget(number: number): void {
    while ((this.#slots[0]?.number ?? number) <= number - SLOTS) this.#slots.shift()
  }
}

function percentilesOf(slots: readonly Slot[]): Percentiles {
  const all = new Sketch(ACCURACY)
  for (const { sketch } of slots) all.merge(sketch)
  return {
    p50: all.getValueAtQuantile(0.5),
    p75: all.getValueAtQuantile(0.75),
    p90: all.getValueAtQuantile(0.9),
    p99: all.getValueAtQuantile(0.99),
  }
}
