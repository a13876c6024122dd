/** Percentiles of recent values, in bounded sketches. Pure. */
import { LogCollapsingLowestDenseDDSketch as Sketch } from '@datadog/sketches-js'
import type { Percentiles } from '../endpoint-figures.ts'

const SLOT_MS = 60_000
const SLOT_COUNT = 5
/** A percentile is accurate to 2 %, from a millisecond to the ten minutes of a request, in about 350 bins. */
const SKETCH_OPTIONS = { relativeAccuracy: 0.02, binLimit: 512 }
/** Minimum time between two computations of percentiles, however many requests an endpoint gets. */
const CACHE_MS = 1_000

interface Slot {
  readonly number: number
  readonly sketch: Sketch
}

export class RecentValues {
  readonly #slotMs: number
  readonly #slotsMax: number
  /** Newest last. */
  readonly #slots: Slot[] = []
  #cached: Percentiles | null = null
  #cachedMs = Number.NEGATIVE_INFINITY

  /** Default: the last five minutes. */
  constructor(slotMs = SLOT_MS, slots = SLOT_COUNT) {
    this.#slotMs = slotMs
    this.#slotsMax = slots
  }

  /** Values that are not positive numbers are ignored. @param weight of the value, relative to others with weight 1 */
  add(nowMs: number, value: number, weight = 1): void {
    if (!(value > 0 && value < Number.POSITIVE_INFINITY)) return
    const slotNumber = Math.floor(nowMs / this.#slotMs)
    let newest = this.#slots.at(-1)
    if (newest === undefined || newest.number < slotNumber) {
      newest = { number: slotNumber, sketch: new Sketch(SKETCH_OPTIONS) }
      this.#slots.push(newest)
      this.#forget(slotNumber)
    }
    newest.sketch.accept(value, weight)
  }

  /** Null if nothing was measured recently. */
  percentiles(nowMs: number): Percentiles | null {
    if (nowMs - this.#cachedMs < CACHE_MS) return this.#cached
    this.#forget(Math.floor(nowMs / this.#slotMs))
    this.#cachedMs = nowMs
    this.#cached = this.#slots.length === 0 ? null : percentilesOf(this.#slots)
    return this.#cached
  }

  #forget(number: number): void {
    while ((this.#slots[0]?.number ?? number) <= number - this.#slotsMax) this.#slots.shift()
  }
}

function percentilesOf(slots: readonly Slot[]): Percentiles {
  const merged = new Sketch(SKETCH_OPTIONS)
  for (const { sketch } of slots) merged.merge(sketch)
  return {
    p50: merged.getValueAtQuantile(0.5),
    p75: merged.getValueAtQuantile(0.75),
    p90: merged.getValueAtQuantile(0.9),
    p99: merged.getValueAtQuantile(0.99),
  }
}
