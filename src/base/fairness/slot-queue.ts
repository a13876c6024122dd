/**
 * A bounded number of slots for concurrent work, such as connections to one server. Keys take turns, and one key gets
 * only part of the slots, so that a slow server does not block others.
 */
import { type EndUserShare, FairQueue } from './fair-queue.ts'

interface SlotQueueOptions {
  readonly clock: { after(ms: number, act: () => void): { cancel(): void } }
  readonly slots: number
  /** Slots of one key. */
  readonly perKey: number
  /** Maximum wait for a slot. */
  readonly waitMs: number
}

/** A caller that waits for a slot. Its key has the share that an end user has in FairQueue. */
interface WaitingCaller {
  /** Hash of the API key. */
  readonly endUser: string
  readonly settle: (share: EndUserShare<WaitingCaller> | null) => void
}

/** Maximum of waiting callers. Above it, the newest caller of the key with the most callers leaves. */
const MAX_WAITING_CALLERS = 256
const NO_SIGNAL = new AbortController().signal

export class SlotQueue {
  readonly #options: SlotQueueOptions
  readonly #queue = new FairQueue<WaitingCaller>(MAX_WAITING_CALLERS)
  #freeSlots: number

  constructor(options: SlotQueueOptions) {
    this.#options = options
    this.#freeSlots = options.slots
  }

  /** True if the key has as many slots as it may have. */
  isFull(keyHash: string): boolean {
    return this.#queue.runningOf(keyHash) >= this.#options.perKey
  }

  /**
   * Resolves with the function that releases the slot, or with null if the wait or the queue was too long. Rejects with
   * the reason of the signal if it fires during the wait.
   * @throws the reason of a signal that has already fired
   */
  enter(keyHash: string, signal: AbortSignal = NO_SIGNAL): Promise<(() => void) | null> {
    const { clock, waitMs } = this.#options
    const { promise, resolve, reject } = Promise.withResolvers<(() => void) | null>()
    let timer: { cancel(): void } | null = null
    const abort = (): void => {
      this.#queue.remove(waitingCaller)
      waitingCaller.settle(null)
      reject(signal.reason as Error)
    }
    const waitingCaller: WaitingCaller = {
      endUser: keyHash,
      settle(share) {
        timer?.cancel()
        signal.removeEventListener('abort', abort)
        if (share === null && !signal.aborted) resolve(null)
        else if (share !== null) resolve(() => leave(share))
      },
    }
    const leave = (share: EndUserShare<WaitingCaller>): void => {
      this.#freeSlots++
      this.#queue.countEnd(share)
      this.#start()
    }
    signal.throwIfAborted()
    if (signal !== NO_SIGNAL) signal.addEventListener('abort', abort, { once: true })
    timer = clock.after(waitMs, () => {
      this.#queue.remove(waitingCaller)
      waitingCaller.settle(null)
    })
    this.#queue.add(waitingCaller)?.settle(null)
    this.#start()
    return promise
  }

  #start(): void {
    while (this.#freeSlots > 0) {
      const next = this.#queue.next(this.#options.perKey)
      if (next === null) return
      this.#freeSlots--
      next.entry.settle(next.share)
    }
  }
}
