/**
 * Places for calls of engines in one thread. A customer may have as many as are free, so that one alone gets half of
 * them, two get a third each, and a place is left for everybody who comes. Pure.
 */
export class EnginePlaces {
  readonly #most: number
  #taken = 0
  /** By organization; only those that have places. */
  readonly #held = new Map<string, number>()

  constructor(most: number) {
    this.#most = most
  }

  /** Takes a place, which has to be left. False: there is none for this customer. */
  take(organizationId: string): boolean {
    const held = this.#held.get(organizationId) ?? 0
    if (held >= this.#most - this.#taken) return false
    this.#taken++
    this.#held.set(organizationId, held + 1)
    return true
  }

  leave(organizationId: string): void {
    this.#taken--
    const held = (this.#held.get(organizationId) ?? 0) - 1
    if (held > 0) this.#held.set(organizationId, held)
    else this.#held.delete(organizationId)
  }
}
