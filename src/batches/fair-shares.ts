/**
 * Divides free slots fairly: first among keys, then among the batches of each key. A large batch does not hold up a
 * small one, and no customer holds up another. Pure.
 */

/** A batch with lines that may be run. */
export interface Sharer {
  /** Id of the batch. */
  readonly id: string
  /** Hash of its API key. */
  readonly keyHash: string
  /** The provider lane that it uses; see `roomOf`. */
  readonly lane: string
  /** Slots that it has. */
  readonly heldSlots: number
  /** Maximum of further slots that it can use. */
  readonly maxSlots: number
}

interface Share {
  readonly sharer: Sharer
  granted: number
}

/**
 * Gives each free slot to the key with the fewest slots, and within it to the batch with the fewest. The first one wins
 * a tie. `roomOf`: free slots of a lane. Returns the slots by batch, without batches that get none.
 */
export function shareOut(
  sharers: readonly Sharer[],
  free: number,
  roomOf: (lane: string) => number,
): ReadonlyMap<string, number> {
  const keys = new Map<string, { held: number; shares: Share[] }>()
  const rooms = new Map<string, number>()
  for (const sharer of sharers) {
    const key = keys.get(sharer.keyHash) ?? { held: 0, shares: [] }
    key.held += sharer.heldSlots
    key.shares.push({ sharer, granted: 0 })
    keys.set(sharer.keyHash, key)
    if (!rooms.has(sharer.lane)) rooms.set(sharer.lane, roomOf(sharer.lane))
  }
  const canTake = ({ sharer, granted: grantedSlots }: Share): boolean =>
    grantedSlots < sharer.maxSlots && (rooms.get(sharer.lane) ?? 0) > 0
  const granted = new Map<string, number>()
  for (let remaining = free; remaining > 0; remaining--) {
    let chosenKey: { held: number; shares: Share[] } | null = null
    for (const [hash, key] of keys) {
      if (chosenKey !== null && chosenKey.held <= key.held) continue
      if (key.shares.some(canTake)) chosenKey = key
      // All its lines have slots, or its lanes are full, and this cannot change during this call.
      else keys.delete(hash)
    }
    if (chosenKey === null) break
    const share = chosenKey.shares
      .filter(canTake)
      .reduce((smallest, share) => (total(share) < total(smallest) ? share : smallest))
    const { id, lane } = share.sharer
    share.granted++
    chosenKey.held++
    rooms.set(lane, (rooms.get(lane) ?? 0) - 1)
    granted.set(id, share.granted)
  }
  return granted
}

function total({ sharer, granted: slots }: Share): number {
  return sharer.heldSlots + slots
}

/** Maximum concurrent checks of batches: the pool of long tasks has two workers, and gives a key one of them. */
const MAX_CHECKS = 2

/** Decides whose batches are checked next: one batch per key, and the key that has waited longest first. */
export class CheckTurns {
  readonly #running = new Set<string>()
  /** The latest turn of each key with open batches. */
  #lastTurns = new Map<string, number>()
  #turn = 0

  /** The batches in the order of their keys' last turns, the oldest turn first; otherwise in their own order. */
  inTurn<Batch extends { readonly record: { readonly keyHash: string } }>(batches: Iterable<Batch>): Batch[] {
    const sorted = [...batches]
    const open = new Set(sorted.map(({ record }) => record.keyHash))
    this.#lastTurns = new Map([...this.#lastTurns].filter(([keyHash]) => open.has(keyHash)))
    const turnOf = ({ record }: Batch): number => this.#lastTurns.get(record.keyHash) ?? 0
    return sorted.sort((first, second) => turnOf(first) - turnOf(second))
  }

  /** Returns true if the key may check a batch now. The caller must then leave this turn at the end. */
  enter(keyHash: string): boolean {
    if (this.#running.size >= MAX_CHECKS || this.#running.has(keyHash)) return false
    this.#running.add(keyHash)
    this.#lastTurns.set(keyHash, ++this.#turn)
    return true
  }

  leave(keyHash: string): void {
    this.#running.delete(keyHash)
  }
}
