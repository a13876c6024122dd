/**
 * Held share: how much of a shared limit each key holds, in bytes or slots. A key above its share has its next request
 * refused, and so has the key that holds the most when the limit is nearly reached; others are refused only when it is
 * reached. Of several organizations, those that hold most give way: first their keys that hold most, then all of them.
 * Pure; each call costs the same for any number of keys.
 */

/** Bounds of one room, in its own unit. */
interface HeldShareLimits {
  /** All keys together. */
  readonly total: number
  /** One key. */
  readonly perKey: number
}

/** An API key and its organization: what is taken for the key is held by both. */
export interface Holder {
  readonly hash: string
  readonly organizationId: string
}

/** The key of a caller. */
export function holderOf(caller: { readonly keyHash: string; readonly organizationId: string }): Holder {
  return { hash: caller.keyHash, organizationId: caller.organizationId }
}

/**
 * `key-full`: the key has its share, or holds most of a room that fills up: 429. `organization-full`: the keys of its
 * organization do: 429. `room-full`: others hold the room, and none of them more than its share: 503.
 */
type Taken = 'taken' | 'key-full' | 'organization-full' | 'room-full'

/** Above this part of the room the keys that hold most get nothing more: the rest is for the others. */
const PRESSURE_SHARE = 0.75
/** Above this part, no key of the organization that holds most gets more, if there are several. */
const TIGHT_SHARE = 0.875
/** Powers of two up to the largest integer. */
const SIZES = 54

function sizeOf(amount: number): number {
  return Math.floor(Math.log2(amount))
}

/** The amounts of all keys, or of all organizations. */
class Amounts {
  readonly #share: number
  /** Only of those that hold something. */
  readonly #amounts = new Map<string, number>()
  /** How many hold an amount between each power of two and the next. */
  readonly #countBySize: number[] = new Array(SIZES).fill(0)
  /** How many hold more than the share. Written here alone. */
  above = 0

  constructor(share: number) {
    this.#share = share
  }

  /** How many hold something. */
  get count(): number {
    return this.#amounts.size
  }

  of(name: string): number {
    return this.#amounts.get(name) ?? 0
  }

  /** Returns the change that was made: nobody holds less than nothing. */
  add(name: string, amount: number): number {
    const before = this.of(name)
    const after = Math.max(0, before + amount)
    if (before > 0) this.#count(before, -1)
    if (after > 0) {
      this.#count(after, 1)
      this.#amounts.set(name, after)
    } else this.#amounts.delete(name)
    return after - before
  }

  isLargest(name: string): boolean {
    const amount = this.of(name)
    if (amount <= 0) return false
    return this.#countBySize.findLastIndex(count => count > 0) === sizeOf(amount)
  }

  #count(amount: number, change: 1 | -1): void {
    const size = sizeOf(amount)
    if (amount > this.#share) this.above += change
    this.#countBySize[size] = (this.#countBySize[size] ?? 0) + change
  }
}

export class HeldShare {
  readonly limits: HeldShareLimits
  readonly #keys: Amounts
  readonly #organizations: Amounts
  /** The amount that all keys hold together. Written here alone. */
  used = 0

  constructor(limits: HeldShareLimits) {
    this.limits = limits
    this.#keys = new Amounts(limits.perKey)
    this.#organizations = new Amounts(limits.perKey)
  }

  /** Keys that hold something. */
  get keys(): number {
    return this.#keys.count
  }

  /** How many keys, and organizations if there are several, hold more than the share of a key. */
  get above(): number {
    return this.#keys.above + (this.#isOneOfSeveral ? this.#organizations.above : 0)
  }

  get #isOneOfSeveral(): boolean {
    return this.#organizations.count > 1
  }

  /** The amount of the key. */
  held({ hash }: Holder): number {
    return this.#keys.of(hash)
  }

  /** True if the room fills up, and the key has to give way. */
  holdsMost(holder: Holder): boolean {
    const { total } = this.limits
    return this.used > total * PRESSURE_SHARE && this.givesWay(holder, this.used > total * TIGHT_SHARE)
  }

  /**
   * True if the key holds something, and no key holds twice as much; of several organizations, only if none holds twice
   * as much as its own, and then for all its keys where little room is left.
   */
  givesWay(holder: Holder, isTight: boolean): boolean {
    if (!this.#isOneOfSeveral) return this.isLargest(holder)
    if (!this.#organizations.isLargest(holder.organizationId)) return false
    return isTight || this.isLargest(holder)
  }

  /** True if the key holds something, and no key holds twice as much. */
  isLargest({ hash }: Holder): boolean {
    return this.#keys.isLargest(hash)
  }

  /**
   * Takes so much for a key; with an amount of 0 it only asks whether the key may have more. `alone`: the first thing
   * that a key holds may be larger than its share.
   */
  take(holder: Holder, amount: number, alone = false): Taken {
    const wanted = this.held(holder) + amount
    if (wanted > this.limits.perKey && !(alone && wanted === amount)) return 'key-full'
    if (this.holdsMost(holder)) return this.isLargest(holder) ? 'key-full' : 'organization-full'
    if (this.used + amount > this.limits.total) return 'room-full'
    this.add(holder, amount)
    return 'taken'
  }

  /** Counts what a key holds already, whatever the limits say. */
  add({ hash, organizationId }: Holder, amount: number): void {
    const change = this.#keys.add(hash, amount)
    this.#organizations.add(organizationId, change)
    this.used += change
  }

  /** Gives back what was taken or added. */
  give(holder: Holder, amount: number): void {
    this.add(holder, -amount)
  }
}
