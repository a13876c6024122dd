/**
 * The requests of one thread: load shedding, the share of each key, and the abort of all requests in a drain. Hot path.
 */
import { GatewayError, RETRY_AFTER_SECONDS } from '../../base/errors.ts'
import { HeldShare, type Holder } from '../../base/fairness/held-share.ts'
import type { Exchange } from '../../exchange/exchange.ts'
import type { AdmissionDeps, AdmittedRequest } from './admitted-request.ts'
import { type KeyLimits, KeyShares, type KeySlot } from './key-shares.ts'
import { Load, type LoadLimits, type OverloadReason } from './load.ts'
import type { RefusedKeys } from './refused-keys.ts'

/** The part of the buffer limit that unread answers may hold; each key has a share of it. */
const UNREAD_SHARE = 0.5

/** The running requests of one thread, by API key. */
export interface KeyedRequests {
  /** Adds the hashes of inference keys that have open requests. */
  openKeys(hashes: Set<string>): void
  /** Ends all open requests of a key, which has lost a right. */
  endKey(hash: string, reason: GatewayError): void
  /** Requests with an inference key whose exchange has begun. */
  runningRequests(): readonly RunningRequest[]
}

/** An open request whose key may lose a right. */
export interface RunningRequest {
  readonly keyHash: string | null
  readonly running: Exchange | undefined
  /** See `AdmittedRequest`. */
  revoke(reason: GatewayError): void
}

/** The requests of one thread: sheds new requests when the thread is busy, and ends all requests in a drain. */
export class AdmissionControl implements KeyedRequests {
  readonly deps: AdmissionDeps
  readonly load: Load
  /** Keys that limits have just refused. */
  readonly refused: RefusedKeys
  readonly shares: KeyShares
  /** Bytes of answers that clients have not read. */
  readonly #unread: HeldShare
  /** A request is added as soon as its head was accepted, and removed when it is over. */
  readonly open = new OpenRequests<AdmittedRequest>()

  constructor(deps: AdmissionDeps, limits: LoadLimits & KeyLimits) {
    this.deps = deps
    this.shares = new KeyShares(limits, deps)
    this.refused = this.shares.refused
    this.load = new Load(limits, deps.clock)
    this.#unread = new HeldShare({
      total: limits.maxBufferedBytes * UNREAD_SHARE,
      perKey: limits.bytesInFlightPerKey,
    })
  }

  /**
   * The error for one more request, which is counted as shed; null if there is room, or if the key decides (`enter`).
   * Call it before doing any work for the request.
   */
  shed(): GatewayError | null {
    const reason = this.load.overloadReason(this.open.size)
    if (reason === null) return null
    // Keys that cause the overload are refused once they are known; other keys are not refused.
    const isByKeys = reason === 'in_flight' || this.load.byKey.keys > 0
    return isByKeys && this.load.hasSlack(this.open.size) ? null : this.#overloaded(reason)
  }

  /**
   * Counts bytes of answers that wait for their readers, and of messages that are not requests yet; a negative number
   * frees them. Without a key only documents are long, and all requests for one share its bytes, so they are no load.
   */
  holdUnread(bytes: number, key: Holder | null): void {
    this.deps.metrics.unreadBytes.inc(bytes)
    if (key === null) return
    this.load.count(bytes)
    this.#unread.add(key, bytes)
    this.load.byKey.add(key, bytes)
  }

  /**
   * Gives a request a slot in the share of its key; call it before the body is read. `mayWait`: see `KeyShares`.
   * @throws GatewayError `rate_limit_exceeded` if the key has no room, `service_unavailable` if too many requests run
   * or the event loop is late, because of the key
   */
  enter(key: Holder, announcedBytes: number, mayWait: boolean): KeySlot {
    if (this.#unread.used > 0) this.#refuseUnread(key)
    const { overload } = this.load
    const isTight = overload !== null && this.load.isTight(this.open.size)
    if (overload === 'buffered' && this.load.byKey.givesWay(key, isTight)) throw this.#heldByKey(key)
    const slot = this.shares.enter(key, announcedBytes, mayWait)
    const isOverByKey = overload === 'in_flight' && slot.givesWay(isTight)
    if (!isOverByKey && !(this.load.isLate && slot.usesMuchTime)) return slot
    slot.leave()
    throw this.#overloaded(isOverByKey ? 'in_flight' : 'lag')
  }

  #heldByKey(key: Holder): GatewayError {
    const { byKey } = this.load
    const largest = byKey.isLargest(key)
      ? `this API key hold one of the largest shares (${byKey.amountOf(key)} bytes)`
      : "this API key's organization hold one of the largest shares"
    return this.shares.refusal(
      'key_held',
      'maxBufferedBytes',
      `All requests together hold more memory than allowed, and those of ${largest}: wait for some of them to end`,
    )
  }

  /** @throws GatewayError `rate_limit_exceeded` if clients of the key have left too much unread */
  #refuseUnread(key: Holder): void {
    const outcome = this.#unread.reserve(key, 0)
    if (outcome !== 'key-full' && outcome !== 'organization-full') return
    const culprit =
      outcome === 'key-full'
        ? `this API key have not read ${this.#unread.amountOf(key)} bytes of their answers, or not ended their messages`
        : "this API key's organization hold most of the unread answers and incomplete messages in the gateway"
    throw this.shares.refusal(
      'key_unread',
      'bytesInFlightPerKey',
      `Clients of ${culprit}: read or end them, or close the connections`,
    )
  }

  #overloaded(reason: OverloadReason): GatewayError {
    this.deps.metrics.shed.inc({ reason })
    this.load.shed++
    return new GatewayError('service_unavailable', 'The gateway is overloaded', {
      retryAfterSeconds: RETRY_AFTER_SECONDS.moment,
      limit: 'load',
    })
  }

  abortAll(reason: GatewayError): void {
    for (const request of this.open.toArray()) request.abort(reason)
  }

  openKeys(hashes: Set<string>): void {
    for (const { keyHash } of this.open.toArray()) if (keyHash !== null) hashes.add(keyHash)
  }

  runningRequests(): readonly RunningRequest[] {
    return this.open.toArray().filter(({ running, keyHash }) => running !== undefined && keyHash !== null)
  }

  endKey(hash: string, reason: GatewayError): void {
    for (const request of this.open.toArray()) if (request.keyHash === hash) request.revoke(reason)
  }

  /** Gives up requests that did not react to their abort. */
  giveUpAll(): void {
    for (const request of this.open.toArray()) request.giveUp()
  }
}

/** An entry of the linked list. Only `OpenRequests` writes these fields. */
export interface ListEntry<T> {
  earlier: T | null
  later: T | null
}

/**
 * The open requests of a thread, as a linked list. It is not a `Set`, because V8 gives a growing `Set` a new table and
 * links the old table to it: an old table that has reached the old generation keeps the requests in all later tables
 * alive until the next full collection.
 */
export class OpenRequests<T extends ListEntry<T>> {
  #first: T | null = null
  #last: T | null = null
  /** Written only here. */
  size = 0
  /** Number of entries added so far. Written only here. */
  added = 0
  /** Called after each removal; null: nobody waits for one. */
  onRemoved: (() => void) | null = null

  /** Adds an entry that is not in any list. */
  add(entry: T): void {
    entry.earlier = this.#last
    if (this.#last === null) this.#first = entry
    else this.#last.later = entry
    this.#last = entry
    this.size++
    this.added++
  }

  /** Removes an entry. Does nothing if it is not in the list. */
  remove(entry: T): void {
    const { earlier, later } = entry
    if (earlier === null && this.#first !== entry) return
    if (earlier === null) this.#first = later
    else earlier.later = later
    if (later === null) this.#last = earlier
    else later.earlier = earlier
    entry.earlier = null
    entry.later = null
    this.size--
    this.onRemoved?.()
  }

  /** The current entries, in order of arrival. */
  toArray(): T[] {
    const entries: T[] = []
    for (let entry = this.#first; entry !== null; entry = entry.later) entries.push(entry)
    return entries
  }
}
