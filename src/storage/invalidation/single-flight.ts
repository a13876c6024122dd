/** Single flight: concurrent loads of the same name share one promise, so that the store is read once. */

interface Flight<Value> {
  readonly owner: string | null
  readonly result: Promise<Value>
}

export class SingleFlight<Value> {
  readonly #flights = new Map<string, Flight<Value>>()
  #active = 0

  /** Number of running loads, including dropped ones, which still use the store. */
  get active(): number {
    return this.#active
  }

  /** The running load of this name. */
  find(name: string): Promise<Value> | undefined {
    return this.#flights.get(name)?.result
  }

  /**
   * Joins the running load of this name, or starts one.
   * @param load `isCurrent` turns false when the name is dropped: this result may be outdated and must not be cached
   * @param owner for `dropOwner`
   */
  run(
    name: string,
    load: (isCurrent: () => boolean) => Promise<Value>,
    owner: string | null = null,
  ): Promise<Value> {
    const flight = this.#flights.get(name)
    if (flight !== undefined) return flight.result
    const isCurrent = (): boolean => this.#flights.get(name)?.result === result
    const loading = load(isCurrent)
    this.#active++
    const result: Promise<Value> = loading.finally(() => {
      this.#active--
      if (isCurrent()) this.#flights.delete(name)
    })
    this.#flights.set(name, { owner, result })
    return result
  }

  /** Makes the next `run` of this name start a new load. Callers of the running load still get its result. */
  drop(name: string): void {
    this.#flights.delete(name)
  }

  /** Drops every load that was started with this owner. */
  dropOwner(owner: string): void {
    for (const [name, flight] of this.#flights) if (flight.owner === owner) this.#flights.delete(name)
  }

  dropAll(): void {
    this.#flights.clear()
  }
}
