/**
 * A bounded cache with several owners: when it is full, it evicts the least recently used entry of the owner with the
 * most entries. So an owner that fills the cache loses its own entries. Pure; each call costs the same for any number
 * of owners.
 */

interface Entry<Value> {
  readonly owner: string
  readonly value: Value
}

export class SharedCache<Value> {
  readonly #maxEntries: number
  readonly #entries = new Map<string, Entry<Value>>()
  /** Keys of each owner, the least recently used first. */
  readonly #keys = new Map<string, Set<string>>()
  /** Owners whose number of entries is between each power of two and the next. */
  readonly #bySize: (Set<string> | undefined)[] = []

  /** @param maxEntries entries of all owners together */
  constructor(maxEntries: number) {
    this.#maxEntries = maxEntries
  }

  get size(): number {
    return this.#entries.size
  }

  get(key: string): Value | undefined {
    const entry = this.#entries.get(key)
    if (entry === undefined) return undefined
    const keys = this.#keys.get(entry.owner)
    keys?.delete(key)
    keys?.add(key)
    return entry.value
  }

  set(owner: string, key: string, value: Value): void {
    this.delete(key)
    this.#entries.set(key, { owner, value })
    const keys = this.#keys.get(owner) ?? new Set()
    this.#keys.set(owner, keys)
    keys.add(key)
    this.#move(owner, keys.size - 1, keys.size)
    if (this.#entries.size > this.#maxEntries) this.#makeRoom()
  }

  delete(key: string): void {
    const entry = this.#entries.get(key)
    if (entry === undefined) return
    this.#entries.delete(key)
    const { owner } = entry
    const keys = this.#keys.get(owner)
    if (keys === undefined) return
    keys.delete(key)
    this.#move(owner, keys.size + 1, keys.size)
    if (keys.size === 0) this.#keys.delete(owner)
  }

  /** None of the largest owners holds twice as much as another, so any of them can be chosen. */
  #makeRoom(): void {
    // Groups that were never used are holes in the array.
    const largest = this.#bySize.findLast(owners => owners !== undefined && owners.size > 0)
    const [owner = ''] = largest ?? []
    const [oldest] = this.#keys.get(owner) ?? []
    if (oldest !== undefined) this.delete(oldest)
  }

  #move(owner: string, before: number, after: number): void {
    const [sizeBefore, sizeAfter] = [sizeOf(before), sizeOf(after)]
    if (sizeBefore === sizeAfter) return
    this.#bySize[sizeBefore]?.delete(owner)
    if (after === 0) return
    const owners = this.#bySize[sizeAfter] ?? new Set()
    this.#bySize[sizeAfter] = owners
    owners.add(owner)
  }
}

/** -1 for 0 entries. */
function sizeOf(count: number): number {
  return count === 0 ? -1 : Math.floor(Math.log2(count))
}
