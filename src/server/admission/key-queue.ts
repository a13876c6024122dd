/**
 * Requests that exceed the limit of their API key. They wait, queued by end user, until one of the key's running
 * requests ends. Hot path.
 */
import type { Clock, Timer } from '../../base/clock.ts'
import type { GatewayError } from '../../base/errors.ts'
import { type EndUserShare, FairQueue, type QueueEntry } from '../../base/fairness/fair-queue.ts'
import type { Metrics } from '../../base/metrics/metrics.ts'
import type { QueueOutcome } from '../../base/metrics/table.ts'

export interface QueueLimits {
  /** Open requests that a key may have, including streams. */
  readonly openPerKey: number
  /** Requests that may wait for another request of their key to end; 0: none. */
  readonly waitingPerKey: number
  /** Maximum time that each of these requests may wait. */
  readonly waitMs: number
}

/** The shares of end users when a key is at its limit. */
export interface WeightsOfEndUsers {
  /** A promise only if the store has to be read; it may reject. */
  of(organizationId: string, user: string): number | Promise<number>
}

export interface KeyQueueDeps {
  readonly clock: Clock
  readonly metrics: Pick<Metrics, 'queuedRequests' | 'queueWait'>
  /** Absent: all end users have the same weight. */
  readonly weights?: WeightsOfEndUsers
}

/** The slot of a request in its key's share, as the queue of waiting requests sees it. */
export interface QueueSlot {
  /** Set while it waits. */
  waiting: WaitingRequest | null
  /** Called when the request gets its slot. */
  open(endUser: EndUserShare<WaitingRequest> | null): void
}

/** The share of a key, as its queue sees it. */
export interface QueuedShare {
  open: number
  /** Null if nothing waits now or waited recently. */
  queue: FairQueue<WaitingRequest> | null
}

/** A request that waits until another request of its key ends. */
export interface WaitingRequest extends QueueEntry {
  readonly slot: QueueSlot
  readonly sinceMs: number
  readonly timer: Timer
  start(): void
  refuse(reason: GatewayError): void
}

/** The queues of all keys of one thread. */
export class KeyQueue {
  readonly #limits: QueueLimits
  readonly #deps: KeyQueueDeps
  /** Creates the refusal for a key at its limit; `more` continues its message. */
  readonly #createRefusal: (more?: string) => GatewayError

  constructor(limits: QueueLimits, deps: KeyQueueDeps, createRefusal: (more?: string) => GatewayError) {
    this.#limits = limits
    this.#deps = deps
    this.#createRefusal = createRefusal
  }

  /**
   * Gives a request its slot. Returns null if one was free. Otherwise the promise resolves when the request gets a
   * slot, and rejects when it no longer waits. A request without an end user waits only if others do.
   * @param organizationId of the end user; null if there is none
   * @throws GatewayError `rate_limit_exceeded`
   */
  wait(
    slot: QueueSlot,
    share: QueuedShare,
    endUser: string | null,
    organizationId: string | null,
  ): Promise<void> | null {
    const { openPerKey, waitingPerKey, waitMs } = this.#limits
    if (share.open < openPerKey) {
      slot.open(null)
      return null
    }
    if (endUser === null && (share.queue?.length ?? 0) === 0) throw this.#createRefusal()
    share.queue ??= new FairQueue(waitingPerKey)
    const { promise, resolve, reject } = Promise.withResolvers<void>()
    const { clock, metrics } = this.#deps
    const waitingRequest: WaitingRequest = {
      endUser,
      slot,
      sinceMs: clock.monotonicMs(),
      timer: clock.after(waitMs, () => {
        share.queue?.remove(waitingRequest)
        this.#endWait(waitingRequest, 'expired')
        reject(this.#createRefusal(`, and none of them ended within ${waitMs} ms`))
      }),
      start: resolve,
      refuse: reject,
    }
    slot.waiting = waitingRequest
    metrics.queuedRequests.inc()
    const displacedRequest = share.queue.add(waitingRequest)
    if (endUser !== null && organizationId !== null) this.#weigh(share.queue, organizationId, endUser)
    if (displacedRequest !== null) {
      this.#endWait(displacedRequest, 'refused')
      displacedRequest.refuse(
        this.#createRefusal(` and ${waitingPerKey} waiting ones, most of them from this end user`),
      )
    }
    return promise
  }

  /** Sets the weight of an end user in the queue once it is known: no request waits for the store, which may fail. */
  #weigh(queue: FairQueue<WaitingRequest>, organizationId: string, endUser: string): void {
    const weight = this.#deps.weights?.of(organizationId, endUser)
    if (typeof weight === 'number') queue.weigh(endUser, weight)
    else
      weight?.then(
        storedWeight => queue.weigh(endUser, storedWeight),
        () => undefined,
      )
  }

  /** Call it when a request of the key has ended: the next waiting request takes its slot. */
  startNext(share: QueuedShare): void {
    const next = share.open < this.#limits.openPerKey ? (share.queue?.next() ?? null) : null
    if (next === null) {
      if (share.queue?.isIdle === true) share.queue = null
      return
    }
    const { entry } = next
    this.#endWait(entry, 'started')
    entry.slot.open(next.share)
    entry.start()
  }

  /** Ends the wait of a request that is given up. */
  giveUp(waiting: WaitingRequest, share: QueuedShare, reason: GatewayError): void {
    share.queue?.remove(waiting)
    this.#endWait(waiting, 'left')
    waiting.refuse(reason)
  }

  #endWait({ slot, timer, sinceMs }: WaitingRequest, outcome: QueueOutcome): void {
    const { clock, metrics } = this.#deps
    timer.cancel()
    slot.waiting = null
    metrics.queuedRequests.dec()
    metrics.queueWait.observe({ outcome }, (clock.monotonicMs() - sinceMs) / 1000)
  }
}
