/**
 * Held share: how much of a shared limit each key holds, in bytes or slots. A key above its share has its next request
 * refused, and so has the key that holds the most when the limit is nearly reached; others are refused only when it is
 * reached. If there are several organizations, those that hold most are refused first: first their keys that hold most,
 * then all of them. Pure; each call costs the same for any number of keys.
 */

/** The limits of one resource, in its own unit. */
interface HeldShareLimits {
  /** Limit of all keys together. */
  readonly total: number
  /** Limit of one key. */
  readonly perKey: number
}

/** An API key and its organization. An amount of the key counts for both. */
export interface Holder {
  readonly hash: string
  readonly organizationId: string
}

/** The holder for a caller's key. */
export function holderOf(caller: { readonly keyHash: string; readonly organizationId: string }): Holder {
  return { hash: caller.keyHash, organizationId: caller.organizationId }
}

/**
 * `key-full`: the key has reached its share, or holds most of a nearly full limit: 429. `organization-full`: the keys
 * of its organization hold most of it: 429. `room-full`: the amount does not fit, for neither of these reasons: 503.
 */
type ShareOutcome = 'taken' | 'key-full' | 'organization-full' | 'room-full'

/** Above this part of the limit, keys that hold most are refused, so that the rest is left for others. */
const PRESSURE_SHARE = 0.75
/** Above this part, all keys of the organization that holds most are refused, if there are several organizations. */
const TIGHT_SHARE = 0.875
/** Powers of two up to the largest integer. */
const SIZES = 54

function sizeOf(amount: number): number {
  return Math.floor(Math.log2(amount))
}

/** The amounts of all keys, or of all organizations. */
class Amounts {
  readonly #share: number
  /** Contains only holders with an amount above 0. */
  readonly #amounts = new Map<string, number>()
  /** Number of holders whose amount is between each power of two and the next. */
  readonly #countBySize: number[] = new Array(SIZES).fill(0)
  /** Number of holders above the share. Written only here. */
  above = 0

  constructor(share: number) {
    this.#share = share
  }

  /** Number of holders with an amount above 0. */
  get count(): number {
    return this.#amounts.size
  }

  of(name: string): number {
    return this.#amounts.get(name) ?? 0
  }

  /** Returns the change that was made: an amount never falls below 0. */
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
  /** The sum of all keys. Written only here. */
  used = 0

  constructor(limits: HeldShareLimits) {
    this.limits = limits
    this.#keys = new Amounts(limits.perKey)
    this.#organizations = new Amounts(limits.perKey)
  }

  /** Number of keys that hold something. */
  get keys(): number {
    return this.#keys.count
  }

  /** Number of keys above the share; with several organizations, plus the number of organizations above it. */
  get above(): number {
    return this.#keys.above + (this.#isOneOfSeveral ? this.#organizations.above : 0)
  }

  get #isOneOfSeveral(): boolean {
    return this.#organizations.count > 1
  }

  /** The amount that the key holds. */
  amountOf({ hash }: Holder): number {
    return this.#keys.of(hash)
  }

  /** True if the limit is nearly reached, and the key must be refused. */
  holdsMost(holder: Holder): boolean {
    const { total } = this.limits
    return this.used > total * PRESSURE_SHARE && this.givesWay(holder, this.used > total * TIGHT_SHARE)
  }

  /**
   * True if the key must make room: it is among the largest. If there are several organizations, this is true only if
   * its own is among the largest, and then for all its keys when little is left (`isTight`).
   */
  givesWay(holder: Holder, isTight: boolean): boolean {
    if (!this.#isOneOfSeveral) return this.isLargest(holder)
    if (!this.#organizations.isLargest(holder.organizationId)) return false
    return isTight || this.isLargest(holder)
  }

  /**
   * True if the key holds something between the same two powers of two as the largest key: none holds twice as much.
   */
  isLargest({ hash }: Holder): boolean {
    return this.#keys.isLargest(hash)
  }

  /**
   * Reserves an amount for a key. With an amount of 0 it only checks if the key may have more. `mayExceed`: the first
   * amount of a key may exceed its share.
   */
  reserve(holder: Holder, amount: number, mayExceed = false): ShareOutcome {
    const total = this.amountOf(holder) + amount
    if (total > this.limits.perKey && !(mayExceed && total === amount)) return 'key-full'
    if (this.holdsMost(holder)) return this.isLargest(holder) ? 'key-full' : 'organization-full'
    if (this.used + amount > this.limits.total) return 'room-full'
    this.add(holder, amount)
    return 'taken'
  }

  /** Adds an amount that a key holds already, without checking the limits. */
  add({ hash, organizationId }: Holder, amount: number): void {
    const change = this.#keys.add(hash, amount)
    this.#organizations.add(organizationId, change)
    this.used += change
  }

  /** Releases an amount that was reserved or added. */
  release(holder: Holder, amount: number): void {
    this.add(holder, -amount)
  }
}
