/** Percentiles of recent values, in bounded sketches. Pure. */
import { LogCollapsingLowestDenseDDSketch as Sketch } from '@datadog/sketches-js'
import type { Percentiles } from '../endpoint-figures.ts'

const SLOT_MS = 60_000
const SLOTS = 5
/** A percentile is accurate to 2 %, from a millisecond to the ten minutes of a request, in about 350 bins. */
const ACCURACY = { relativeAccuracy: 0.02, binLimit: 512 }
/** Minimum time between two computations of percentiles, however many requests an endpoint gets. */
const FRESH_MS = 1_000

interface Slot {
  readonly number: number
  readonly sketch: Sketch
}

export class RecentValues {
  readonly #slotMs: number
  readonly #slotsMax: number
  /** Newest last. */
  readonly #slots: Slot[] = []
  #known: Percentiles | null = null
  #knownMs = Number.NEGATIVE_INFINITY

  /** Default: the last five minutes. */
  constructor(slotMs = SLOT_MS, slots = SLOTS) {
    this.#slotMs = slotMs
    this.#slotsMax = slots
  }

  /** Values that are not positive numbers are ignored. @param weight of the value, relative to others with weight 1 */
  add(nowMs: number, value: number, weight = 1): void {
    if (!(value > 0 && value < Number.POSITIVE_INFINITY)) return
    const number = Math.floor(nowMs / this.#slotMs)
    let last = this.#slots.at(-1)
    if (last === undefined || last.number < number) {
      last = { number, sketch: new Sketch(ACCURACY) }
      this.#slots.push(last)
      this.#forget(number)
    }
    last.sketch.accept(value, weight)
  }

  /** Null if nothing was measured recently. */
  percentiles(nowMs: number): Percentiles | null {
    if (nowMs - this.#knownMs < FRESH_MS) return this.#known
    this.#forget(Math.floor(nowMs / this.#slotMs))
    this.#knownMs = nowMs
    this.#known = this.#slots.length === 0 ? null : percentilesOf(this.#slots)
    return this.#known
  }

  #forget(number: number): void {
    while ((this.#slots[0]?.number ?? number) <= number - this.#slotsMax) this.#slots.shift()
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
