/** Counts an endpoint's replies with tool calls: those whose calls a client can run, and faulty ones. Pure. */

/** After this time a reply counts half: an endpoint that nobody asks is judged anew after some minutes. */
const HALF_LIFE_MS = 150_000
/** Fewer replies say too little. */
const CALLS_MIN = 10
/** A greater share of faulty ones puts an endpoint behind the others. */
const FAULTY_MAX = 0.1

export class CallWindow {
  #good = 0
  #faulty = 0
  #countedMs: number

  constructor(nowMs: number) {
    this.#countedMs = nowMs
  }

  add(nowMs: number, good: number, faulty: number): void {
    this.#age(nowMs)
    this.#good += good
    this.#faulty += faulty
  }

  /** The share of good replies; null: there were too few lately. */
  share(nowMs: number): number | null {
    this.#age(nowMs)
    const calls = this.#good + this.#faulty
    // Ten replies at once have aged by some milliseconds when they are looked at.
    return Math.round(calls) < CALLS_MIN ? null : this.#good / calls
  }

  /** True if too many are faulty. */
  isPoor(nowMs: number): boolean {
    return this.#faulty > 0 && (this.share(nowMs) ?? 1) < 1 - FAULTY_MAX
  }

  #age(nowMs: number): void {
    if (nowMs <= this.#countedMs) return
    const left = 0.5 ** ((nowMs - this.#countedMs) / HALF_LIFE_MS)
    this.#good *= left
    this.#faulty *= left
    this.#countedMs = nowMs
  }
}
