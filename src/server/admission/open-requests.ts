/**
 * The open requests of a thread, as a linked list. It is not a `Set`, because V8 gives a growing `Set` a new table and
 * links the old table to it: an old table that has reached the old generation keeps the requests in all later tables
 * alive until the next full collection. Hot path.
 */

/** A member of the chain. Only the chain itself writes these fields. */
export interface Chained<T> {
  earlier: T | null
  later: T | null
}

export class OpenRequests<T extends Chained<T>> {
  #first: T | null = null
  #last: T | null = null
  /** Written only here. */
  size = 0
  /** Number of members added so far. Written only here. */
  added = 0

  /** Adds a member that is not in any chain. */
  add(one: T): void {
    one.earlier = this.#last
    if (this.#last === null) this.#first = one
    else this.#last.later = one
    this.#last = one
    this.size++
    this.added++
  }

  /** Removes a member. Does nothing if it is not in the chain. */
  remove(one: T): void {
    const { earlier, later } = one
    if (earlier === null && this.#first !== one) return
    if (earlier === null) this.#first = later
    else earlier.later = later
    if (later === null) this.#last = earlier
    else later.earlier = earlier
    one.earlier = null
    one.later = null
    this.size--
  }

  /** All current members, in order of arrival. */
  all(): T[] {
    const all: T[] = []
    for (let one = this.#first; one !== null; one = one.later) all.push(one)
    return all
  }
}
