/**
 * Each API key's share of one thread: open requests, bytes in flight, event-loop time. Requests of a key above its
 * share are refused before their bodies are read, or wait in a queue by end user; other keys are not affected. Hot
 * path: a few additions per request.
 */
import type { Clock } from '../../base/clock.ts'
import { GatewayError, RETRY_AFTER_SECONDS } from '../../base/errors.ts'
import type { EndUserShare } from '../../base/fairness/fair-queue.ts'
import type { Holder } from '../../base/fairness/held-share.ts'
import type { Metrics } from '../../base/metrics/metrics.ts'
import {
  KeyQueue,
  type KeyQueueDeps,
  type QueuedShare,
  type QueueLimits,
  type QueueSlot,
  type WaitingRequest,
} from './key-queue.ts'
import { type LargeBodies, LargeTurns } from './large-body-queue.ts'
import { REFUSED_BYTES, RefusedKeys } from './refused-keys.ts'

/** Limits of one key in one thread. */
export interface KeyLimits extends QueueLimits {
  /**
   * Bytes of request bodies that a key may have in flight. A single body always fits. The same number of answer bytes
   * may wait for their readers.
   */
  readonly bytesInFlightPerKey: number
}

interface KeySharesDeps extends Pick<KeyQueueDeps, 'clock' | 'weights'> {
  readonly metrics: Pick<Metrics, 'shed'> & KeyQueueDeps['metrics']
}

/** Half-life of spent time: overload is caused by recent work. */
const HALF_LIFE_MS = 2_000
/** A key that recently spent less counts as inactive. */
const ACTIVE_MIN_SPENT_MS = 1
/** Time for which the mean over all keys is reused. */
const MEAN_MAX_AGE_MS = 250
/** Time for which a key without open requests still counts as active, because clients pause between two requests. */
const INACTIVE_AFTER_MS = 1_000
/** The mean is also computed, and inactive keys are removed, each time this many requests have arrived. */
const REQUESTS_PER_SWEEP = 1_000
/** A body of this size or more blocks the event loop for milliseconds, and waits for its turn. */
export const LARGE_BODY_BYTES = 1024 * 1024
/** A larger body is not read just to determine its end user. */
const WAITING_MAX_BYTES = 256 * 1024

const LIMIT_NAMES = {
  key_open: 'open_requests_of_key',
  key_bytes: 'bytes_of_key',
  key_unread: 'unread_answers_of_key',
  key_held: 'bytes_of_key',
} as const

/** The keys of one organization. */
interface OrganizationShare {
  readonly id: string
  /** How many of its keys are tracked. */
  keys: number
  /** Open requests of all of them. */
  open: number
}

/** The share of one key. */
interface KeyShare extends QueuedShare {
  readonly hash: string
  readonly organization: OrganizationShare
  bytes: number
  /** Bytes of bodies of requests that have no slot yet; counted only for keys that were just refused. */
  earlyBytes: number
  /** Requests without a slot: their bodies are being read, or they wait. */
  lateRequests: number
  /** Milliseconds of the event loop as of `spentAtMs`, when it was last charged. */
  spentMs: number
  spentAtMs: number
  /** Its large bodies; null until there was one. */
  large: LargeBodies | null
}

function spentBy({ spentMs, spentAtMs }: KeyShare, nowMs: number): number {
  return spentMs === 0 ? 0 : spentMs * 0.5 ** ((nowMs - spentAtMs) / HALF_LIFE_MS)
}

function charge(share: KeyShare, ms: number, nowMs: number): void {
  share.spentMs = spentBy(share, nowMs) + ms
  share.spentAtMs = nowMs
}

/** The keys that have, or recently had, open requests in one thread, and their organizations. */
export class KeyShares {
  readonly limits: KeyLimits
  readonly #deps: KeySharesDeps
  readonly #largeTurns: LargeTurns
  /** Requests that wait for a slot. */
  readonly queue: KeyQueue
  /** Keyed by hash of the key. */
  readonly #shares = new Map<string, KeyShare>()
  /** The organizations of the shares, keyed by id. */
  readonly #organizations = new Map<string, OrganizationShare>()
  /** Keys that limits have just refused: they may have few bytes in flight. */
  readonly refused: RefusedKeys
  #entered = 0
  #meanMs = 0
  /** The largest numbers of open requests, as last counted. */
  #maxOpenOfKey = 0
  #maxOpenOfOrganization = 0
  #meanAtMs = Number.NEGATIVE_INFINITY

  constructor(limits: KeyLimits, deps: KeySharesDeps) {
    this.limits = limits
    this.#deps = deps
    this.#largeTurns = new LargeTurns(deps.clock)
    this.refused = new RefusedKeys(deps.clock)
    this.queue = new KeyQueue(limits, deps, more => this.fullError(more))
  }

  /** Number of keys that are tracked. */
  get size(): number {
    return this.#shares.size
  }

  /**
   * Counts one more request of a key, and the announced bytes of its body. `mayWait`: if the key has no slot for it
   * yet, it waits in `KeySlot.wait` before any work.
   * @throws GatewayError `rate_limit_exceeded` if the key has no room for it
   */
  enter(key: Holder, announcedBytes: number, mayWait = false): KeySlot {
    if (++this.#entered % REQUESTS_PER_SWEEP === 0) this.#sweep()
    const share = this.#shares.get(key.hash) ?? this.#newShare(key)
    const isLate = share.open >= this.limits.openPerKey
    if (isLate && !(mayWait && this.#mayReadBody(share, announcedBytes))) throw this.fullError()
    const slot = new KeySlot(this, share, this.#deps.clock, isLate)
    slot.add(announcedBytes)
    if (isLate) share.lateRequests++
    else {
      share.open++
      share.organization.open++
    }
    return slot
  }

  /**
   * Counts bytes of a body of a key that was just refused, before its request has a slot; a negative number frees
   * them. `ownBytes`: bytes of the request that were counted before.
   * @throws GatewayError `rate_limit_exceeded` if the key has no room for them
   */
  addEarly(key: Holder, bytes: number, ownBytes: number): void {
    const share = this.#shares.get(key.hash) ?? this.#newShare(key)
    if (bytes > 0 && !this.hasRoomFor(share, bytes, ownBytes)) throw this.tooManyBytesError(share)
    share.earlyBytes += bytes
  }

  /** True if the key may have this many more bytes in flight. `ownBytes`: bytes of the same request counted before. */
  hasRoomFor(share: KeyShare, bytes: number, ownBytes: number): boolean {
    const currentBytes = share.bytes + share.earlyBytes
    if (currentBytes <= ownBytes) return true
    const limit = this.limits.bytesInFlightPerKey
    const isRefused = this.refused.size > 0 && this.refused.has(share.hash)
    return currentBytes + bytes <= (isRefused ? Math.min(limit, REFUSED_BYTES) : limit)
  }

  tooManyBytesError({ hash }: KeyShare): GatewayError {
    const { bytesInFlightPerKey } = this.limits
    return this.refusal(
      'key_bytes',
      'bytesInFlightPerKey',
      bytesInFlightPerKey > REFUSED_BYTES && this.refused.has(hash)
        ? `A limit has just refused requests of this API key: until one is answered, it may have ${REFUSED_BYTES} bytes of requests in flight`
        : `This API key has reached its limit of ${bytesInFlightPerKey} bytes of requests in flight`,
    )
  }

  /** Charges a key for time of the event loop that belongs to no request. */
  charge(key: Holder, ms: number): void {
    const share = this.#shares.get(key.hash) ?? this.#newShare(key)
    charge(share, ms, this.#deps.clock.monotonicMs())
  }

  #newShare({ hash, organizationId }: Holder): KeyShare {
    const share: KeyShare = {
      hash,
      organization: this.#organizationOf(organizationId),
      open: 0,
      bytes: 0,
      earlyBytes: 0,
      lateRequests: 0,
      queue: null,
      spentMs: 0,
      spentAtMs: Number.NEGATIVE_INFINITY,
      large: null,
    }
    this.#shares.set(hash, share)
    return share
  }

  /** The organization of one more key. */
  #organizationOf(id: string): OrganizationShare {
    let organization = this.#organizations.get(id)
    if (organization === undefined) {
      organization = { id, keys: 0, open: 0 }
      this.#organizations.set(id, organization)
    }
    organization.keys++
    return organization
  }

  /** True if the body of one more request may be read to learn its end user: as many are read at once as may wait. */
  #mayReadBody(share: KeyShare, announcedBytes: number): boolean {
    return announcedBytes <= WAITING_MAX_BYTES && share.lateRequests < 2 * this.limits.waitingPerKey
  }

  fullError(more = ''): GatewayError {
    return this.refusal(
      'key_open',
      'openPerKey',
      `This API key has reached its limit of ${this.limits.openPerKey} open requests${more}`,
    )
  }

  /** The mean use of the event loop by each recently active key, in milliseconds. */
  meanMs(nowMs: number): number {
    if (nowMs - this.#meanAtMs > MEAN_MAX_AGE_MS) this.#sweep()
    return this.#meanMs
  }

  /**
   * True if no key has twice as many open requests. With several organizations, no other one may have twice as many as
   * the key's own; if few slots are left, only this second condition counts.
   */
  givesWay({ open, organization }: KeyShare, isTight: boolean, nowMs: number): boolean {
    if (nowMs - this.#meanAtMs > MEAN_MAX_AGE_MS) this.#sweep()
    const isOneOfSeveral = this.#organizations.size > 1
    if (isOneOfSeveral && 2 * organization.open <= this.#maxOpenOfOrganization) return false
    return (isOneOfSeveral && isTight) || 2 * open > this.#maxOpenOfKey
  }

  /** Resolves when a large body of the key may be handled. */
  beginTurn(share: KeyShare): Promise<void> {
    share.large ??= { waiting: [], pauseEndsMs: 0, isAlone: () => this.#isAlone(share) }
    return this.#largeTurns.enter(share.large)
  }

  endTurn({ large }: KeyShare): void {
    if (large !== null) this.#largeTurns.end(large)
  }

  #isAlone(share: KeyShare): boolean {
    const sinceMs = this.#deps.clock.monotonicMs() - INACTIVE_AFTER_MS
    for (const other of this.#shares.values()) {
      if (other !== share && (other.open > 0 || other.spentAtMs > sinceMs)) return false
    }
    return true
  }

  refusal(
    reason: 'key_open' | 'key_bytes' | 'key_unread' | 'key_held',
    limit: keyof KeyLimits | 'maxBufferedBytes',
    message: string,
  ): GatewayError {
    this.#deps.metrics.shed.inc({ reason })
    return new GatewayError('rate_limit_exceeded', `${message} (limits.${limit})`, {
      retryAfterSeconds: RETRY_AFTER_SECONDS.moment,
      metadata: { limit: `limits.${limit}` },
      limit: LIMIT_NAMES[reason],
    })
  }

  /** Removes inactive keys and organizations, and computes mean and maximum of the others. */
  #sweep(): void {
    const nowMs = this.#deps.clock.monotonicMs()
    let total = 0
    let keys = 0
    this.#maxOpenOfKey = 0
    this.#maxOpenOfOrganization = 0
    for (const [hash, share] of this.#shares) {
      const { open, organization } = share
      this.#maxOpenOfKey = Math.max(this.#maxOpenOfKey, open)
      this.#maxOpenOfOrganization = Math.max(this.#maxOpenOfOrganization, organization.open)
      const spentMs = spentBy(share, nowMs)
      if (spentMs >= ACTIVE_MIN_SPENT_MS) {
        total += spentMs
        keys++
      } else if (
        open === 0 &&
        share.lateRequests === 0 &&
        share.earlyBytes === 0 &&
        nowMs - share.spentAtMs >= INACTIVE_AFTER_MS
      ) {
        this.#shares.delete(hash)
        if (--organization.keys === 0) this.#organizations.delete(organization.id)
      }
    }
    this.#meanMs = keys === 0 ? 0 : total / keys
    this.#meanAtMs = nowMs
  }
}

/** The slot of one request in the share of its key. */
export class KeySlot implements QueueSlot {
  readonly #shares: KeyShares
  readonly #share: KeyShare
  readonly #clock: Clock
  #bytes = 0
  /** True while it is the turn of this request's large body. */
  #hasTurn = false
  #hasLeft = false
  /** True while the request has to `wait` before any work: it does not count as open yet. */
  isLate: boolean
  /** The share of the end user for whom it waited; null if it did not wait. */
  #endUser: EndUserShare<WaitingRequest> | null = null
  /** Set while it waits. */
  waiting: WaitingRequest | null = null

  constructor(shares: KeyShares, share: KeyShare, clock: Clock, isLate: boolean) {
    this.#shares = shares
    this.#share = share
    this.#clock = clock
    this.isLate = isLate
  }

  /** See `KeyQueue.wait`; call it once, for a request that is late. */
  wait(endUser: string | null, organizationId: string | null = null): Promise<void> | null {
    return this.#shares.queue.wait(this, this.#share, endUser, organizationId)
  }

  /** Called when the request gets its slot. */
  open(endUser: EndUserShare<WaitingRequest> | null): void {
    this.isLate = false
    this.#endUser = endUser
    const share = this.#share
    share.lateRequests--
    share.open++
    share.organization.open++
  }

  /** Ends the wait, if there is one, with this reason. */
  giveUp(reason: GatewayError): void {
    if (this.waiting !== null) this.#shares.queue.giveUp(this.waiting, this.#share, reason)
  }

  /** True if the key uses at least as much of the event loop as the mean of all keys. */
  get usesMuchTime(): boolean {
    const nowMs = this.#clock.monotonicMs()
    return spentBy(this.#share, nowMs) >= this.#shares.meanMs(nowMs)
  }

  /** See `KeyShares.givesWay`. */
  givesWay(isTight: boolean): boolean {
    return this.#shares.givesWay(this.#share, isTight, this.#clock.monotonicMs())
  }

  /** Adds bytes of the body. @throws GatewayError `rate_limit_exceeded` if the key has no room for them */
  add(bytes: number): void {
    if (this.#hasLeft) return
    // The head of a chunked request does not state the length of the body.
    if (this.isLate && this.#bytes + bytes > WAITING_MAX_BYTES) throw this.#shares.fullError()
    if (!this.#shares.hasRoomFor(this.#share, bytes, this.#bytes))
      throw this.#shares.tooManyBytesError(this.#share)
    this.#bytes += bytes
    this.#share.bytes += bytes
  }

  /** Charges the key for the event-loop time since `sinceMs`. */
  spend(sinceMs: number): void {
    const nowMs = this.#clock.monotonicMs()
    charge(this.#share, nowMs - sinceMs, nowMs)
  }

  /** Resolves when a body of LARGE_BODY_BYTES or more may be handled; call `endTurn` after it. */
  async turn(): Promise<void> {
    await this.#shares.beginTurn(this.#share)
    this.#hasTurn = true
    // The request was given up meanwhile.
    if (this.#hasLeft) this.endTurn()
  }

  /** Call it when the work on the large body is done, or only waits for data from others. */
  endTurn(): void {
    if (!this.#hasTurn) return
    this.#hasTurn = false
    this.#shares.endTurn(this.#share)
  }

  /** Returns the slot. Later calls do nothing. */
  leave(): void {
    if (this.#hasLeft) return
    this.#hasLeft = true
    const share = this.#share
    if (this.#hasTurn) this.endTurn()
    share.bytes -= this.#bytes
    if (this.isLate) {
      // A slot that has been given up must not be assigned again.
      this.giveUp(new GatewayError('client_closed', 'The request is over'))
      share.lateRequests--
      return
    }
    share.open--
    share.organization.open--
    if (this.#endUser !== null) share.queue?.countEnd(this.#endUser)
    if (share.queue !== null) this.#shares.queue.startNext(share)
  }
}
