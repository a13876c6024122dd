/**
 * Held share: how much of a shared limit each key holds, in bytes or slots. A key above its share has its next request
 * refused, and so has the key that holds the most when the limit is nearly reached; others are refused only when it is
 * reached. Pure; each call costs the same for any number of keys.
 */

/** Bounds of one room, in its own unit. */
interface HeldShareLimits {
  /** All keys together. */
  readonly total: number
  /** One key. */
  readonly perKey: number
}

/**
 * `key-full`: the key has its share, or holds most of a room that fills up: 429. `room-full`: others hold the room, and
 * none of them more than its share: 503.
 */
type Taken = 'taken' | 'key-full' | 'room-full'

/** Above this part of the room the keys that hold most get nothing more: the rest is for the others. */
const PRESSURE_SHARE = 0.75
/** Powers of two up to the largest integer. */
const SIZES = 54

function sizeOf(amount: number): number {
  return Math.floor(Math.log2(amount))
}

export class HeldShare {
  readonly limits: HeldShareLimits
  /** Only of keys that hold something. */
  readonly #amounts = new Map<string, number>()
  /** How many keys hold an amount between each power of two and the next. */
  readonly #keysBySize: number[] = new Array(SIZES).fill(0)
  /** The amount that all keys hold together. Written here alone. */
  used = 0
  #keysAbove = 0

  constructor(limits: HeldShareLimits) {
    this.limits = limits
  }

  /** Keys that hold something. */
  get keys(): number {
    return this.#amounts.size
  }

  /** Keys that hold more than their share. */
  get keysAbove(): number {
    return this.#keysAbove
  }

  held(key: string): number {
    return this.#amounts.get(key) ?? 0
  }

  /** True if the room fills up, and no key holds twice as much as this one. */
  holdsMost(key: string): boolean {
    return this.used > this.limits.total * PRESSURE_SHARE && this.isLargest(key)
  }

  /** True if the key holds something, and no key holds twice as much. */
  isLargest(key: string): boolean {
    const amount = this.held(key)
    if (amount <= 0) return false
    return this.#keysBySize.findLastIndex(keys => keys > 0) === sizeOf(amount)
  }

  /**
   * Takes so much for a key; with an amount of 0 it only asks whether the key may have more. `alone`: the first thing
   * that a key holds may be larger than its share.
   */
  take(key: string, amount: number, alone = false): Taken {
    const wanted = this.held(key) + amount
    if (wanted > this.limits.perKey && !(alone && wanted === amount)) return 'key-full'
    if (this.holdsMost(key)) return 'key-full'
    if (this.used + amount > this.limits.total) return 'room-full'
    this.add(key, amount)
    return 'taken'
  }

  /** Counts what a key holds already, whatever the limits say. */
  add(key: string, amount: number): void {
    const before = this.held(key)
    const after = Math.max(0, before + amount)
    this.used += after - before
    if (before > 0) this.#countKey(before, -1)
    if (after > 0) {
      this.#countKey(after, 1)
      this.#amounts.set(key, after)
    } else this.#amounts.delete(key)
  }

  /** Gives back what was taken or added. */
  give(key: string, amount: number): void {
    this.add(key, -amount)
  }

  #countKey(amount: number, change: 1 | -1): void {
    const size = sizeOf(amount)
    if (amount > this.limits.perKey) this.#keysAbove += change
    this.#keysBySize[size] = (this.#keysBySize[size] ?? 0) + change
  }
}
