/**
 * A bounded queue with weighted shares for end users. The next slot goes to the user with the fewest running requests,
 * and among those to the one with the fewest starts, both relative to the weight: asking more often does not increase a
 * user's share. Pure.
 */

/** An entry that waits, for an end user; null: for none, and all of these have one share. */
export interface QueueEntry {
  readonly endUser: string | null
}

/** One end user of a queue. */
export interface EndUserShare<Entry> {
  readonly waiting: Entry[]
  /** Starts per round; 1 until it is known. */
  weight: number
  /** Number of its entries that were removed from the queue to run, and have not ended. */
  running: number
  /** Virtual time of its next start, counted in rounds of the users. */
  startsAt: number
}

/** Maximum credit, in rounds, of a user without requests for a while. */
const CREDIT_ROUNDS = 1

export class FairQueue<Entry extends QueueEntry> {
  readonly #maxWaiting: number
  /** Shares of users with entries that wait, run, or started in this round. */
  readonly #shares = new Map<string | null, EndUserShare<Entry>>()
  /** Written only here. */
  length = 0
  #running = 0
  #now = 0

  /** @param maxWaiting above this number of waiting entries, `add` returns the one that has to leave */
  constructor(maxWaiting: number) {
    this.#maxWaiting = maxWaiting
  }

  /** True if the queue can be dropped: nothing waits, and no entry of it runs. */
  get isIdle(): boolean {
    return this.length === 0 && this.#running === 0
  }

  /** Number of a user's entries that run. */
  runningOf(endUser: string | null): number {
    return this.#shares.get(endUser)?.running ?? 0
  }

  /**
   * Adds an entry. If the queue is too long then, removes and returns the entry that must leave: the newest of the user
   * with the most entries relative to its weight. Otherwise null.
   */
  add(entry: Entry): Entry | null {
    let share = this.#shares.get(entry.endUser)
    if (share === undefined) {
      share = { waiting: [], weight: 1, running: 0, startsAt: this.#now }
      this.#shares.set(entry.endUser, share)
    }
    // A user with an empty queue has no saved turns.
    if (share.waiting.length === 0) share.startsAt = Math.max(share.startsAt, this.#now)
    share.waiting.push(entry)
    this.length++
    if (this.length <= this.#maxWaiting) return null
    let largest = share
    for (const other of this.#shares.values()) if (excessOf(other) > excessOf(largest)) largest = other
    this.length--
    return largest.waiting.pop() ?? null
  }

  /** Sets the weight of a user who has a share. */
  weigh(endUser: string | null, weight: number): void {
    const share = this.#shares.get(endUser)
    if (share !== undefined) share.weight = weight
  }

  /** Removes an entry that no longer waits. */
  remove(entry: Entry): void {
    const waitingEntries = this.#shares.get(entry.endUser)?.waiting ?? []
    const index = waitingEntries.indexOf(entry)
    if (index === -1) return
    waitingEntries.splice(index, 1)
    this.length--
  }

  /**
   * Removes the next entry, which counts as running until `countEnd` with its user's share; null if none may start.
   * @param maxRunning a user with this many running entries must wait
   */
  next(
    maxRunning = Number.POSITIVE_INFINITY,
  ): { readonly entry: Entry; readonly share: EndUserShare<Entry> } | null {
    let minWeight = Number.POSITIVE_INFINITY
    let totalWeight = 0
    for (const [endUser, share] of this.#shares) {
      const isWaiting = share.waiting.length > 0
      if (!isWaiting && share.running === 0 && share.startsAt <= this.#now) {
        this.#shares.delete(endUser)
        continue
      }
      totalWeight += share.weight
      if (isWaiting) minWeight = Math.min(minWeight, share.weight)
    }
    let chosenShare: EndUserShare<Entry> | null = null
    for (const share of this.#shares.values()) {
      if (share.waiting.length === 0 || share.running >= maxRunning) continue
      if (chosenShare === null || comesBefore(share, chosenShare, minWeight)) chosenShare = share
    }
    const entry = chosenShare?.waiting.shift()
    if (chosenShare === null || entry === undefined) return null
    // A round is over when each user could start as many entries as its weight.
    this.#now = Math.max(this.#now + 1 / totalWeight, chosenShare.startsAt - CREDIT_ROUNDS)
    chosenShare.startsAt += 1 / chosenShare.weight
    chosenShare.running++
    this.#running++
    this.length--
    return { entry, share: chosenShare }
  }

  /** Call it when a started entry has ended. */
  countEnd(share: EndUserShare<Entry>): void {
    share.running--
    this.#running--
  }
}

function excessOf({ waiting, weight }: EndUserShare<unknown>): number {
  return waiting.length / weight
}

/** @param minWeight the smallest weight among waiting users */
function comesBefore(share: EndUserShare<unknown>, other: EndUserShare<unknown>, minWeight: number): boolean {
  const [level, otherLevel] = [levelOf(share, minWeight), levelOf(other, minWeight)]
  return level === otherLevel ? share.startsAt < other.startsAt : level < otherLevel
}

/**
 * A whole number, so that with few slots the starts decide: otherwise a user with a small weight would hardly ever have
 * the lowest level.
 */
function levelOf({ running, weight }: EndUserShare<unknown>, minWeight: number): number {
  return Math.floor((running * minWeight) / weight)
}
