/**
 * Places for links that are followed at the same time in one thread. Keys take turns, and one key has a quarter of the
 * places: servers of strangers may be as slow as they like. Serve threads.
 */
import type { Clock, Timer } from '../clock.ts'
import { type EndUserShare, FairQueue } from '../fairness/fair-queue.ts'

/** One link that waits for its place. The key has the share that an end user has elsewhere. */
interface WaitingLink {
  /** Hash of the API key. */
  readonly endUser: string
  readonly settle: (share: EndUserShare<WaitingLink> | null) => void
}

export interface PagePlacesOptions {
  readonly clock: Clock
  /** How long a link waits at most. */
  readonly waitMs: number
}

/** Each place may hold a whole page. */
const PLACES = 16
const PER_KEY = 4
/** Links of all keys that may wait; of the key with most of them the newest leaves. */
const WAITING_MAX = 256

export class PagePlaces {
  readonly #options: PagePlacesOptions
  readonly #queue = new FairQueue<WaitingLink>(WAITING_MAX)
  #free = PLACES

  constructor(options: PagePlacesOptions) {
    this.#options = options
  }

  /**
   * Resolves with the function that gives the place back, or with null for a link that waited too long. Rejects with
   * the reason of the signal.
   */
  enter(keyHash: string, signal: AbortSignal): Promise<(() => void) | null> {
    const { clock, waitMs } = this.#options
    const { promise, resolve, reject } = Promise.withResolvers<(() => void) | null>()
    let timer: Timer | null = null
    const abort = (): void => {
      this.#queue.remove(waiting)
      waiting.settle(null)
      reject(signal.reason as Error)
    }
    const waiting: WaitingLink = {
      endUser: keyHash,
      settle(share) {
        timer?.cancel()
        signal.removeEventListener('abort', abort)
        if (share === null && !signal.aborted) resolve(null)
        else if (share !== null) resolve(() => leave(share))
      },
    }
    const leave = (share: EndUserShare<WaitingLink>): void => {
      this.#free++
      this.#queue.ended(share)
      this.#start()
    }
    signal.throwIfAborted()
    signal.addEventListener('abort', abort, { once: true })
    timer = clock.after(waitMs, () => {
      this.#queue.remove(waiting)
      waiting.settle(null)
    })
    this.#queue.add(waiting)?.settle(null)
    this.#start()
    return promise
  }

  #start(): void {
    while (this.#free > 0) {
      const next = this.#queue.next(PER_KEY)
      if (next === null) return
      this.#free--
      next.entry.settle(next.share)
    }
  }
}
