/**
 * The share of each API key in one thread: open requests, bytes in flight, time of the event loop. Requests of a key
 * above its share are refused, or wait, before their bodies are read; other keys are not affected. Hot path: some
 * additions for each request.
 */
import type { Clock } from '../clock.ts'
import { GatewayError } from '../errors.ts'
import type { Metrics } from '../metrics/metrics.ts'
import { type LargeBodies, LargeTurns } from './large-turns.ts'

/** Limits of one key in one thread. */
export interface KeyLimits {
  /** Requests that a key may have open, streams included. */
  readonly openPerKey: number
  /** Bytes of request bodies that a key may have in flight. One body alone always fits. */
  readonly bytesInFlightPerKey: number
}

export interface KeySharesDeps {
  readonly clock: Clock
  readonly metrics: Pick<Metrics, 'shed'>
}

/** A refused key may send again after this: a request of its own has to end first. */
const RETRY_AFTER_SECONDS = 1
/** Spent time counts half after this: overload is caused by what was done lately. */
const HALF_LIFE_MS = 2_000
/** A key that lately spent less took part in nothing. */
const SPENT_MIN_MS = 1
/** How long the mean of all keys counts as known; nor are keys without open requests forgotten more often. */
const MEAN_MS = 250
/** A key without open requests counts as being there until then: clients pause between two requests. */
const AWAY_MS = 1_000
/** Keys are also looked through each time so many requests have come. */
const SWEEP_EVERY = 1_000
/** A body from this size on holds the event loop up for milliseconds, and waits for its turn. */
const LARGE_BYTES = 1024 * 1024

/** The share of one key. */
interface KeyShare {
  open: number
  bytes: number
  /** Milliseconds of the event loop as of `spentAtMs`, when it was last charged. */
  spentMs: number
  spentAtMs: number
  /** Its large bodies; null before there was one. */
  large: LargeBodies | null
}

function spentBy({ spentMs, spentAtMs }: KeyShare, nowMs: number): number {
  return spentMs === 0 ? 0 : spentMs * 0.5 ** ((nowMs - spentAtMs) / HALF_LIFE_MS)
}

/** The keys that have requests open in one thread, or lately had. */
export class KeyShares {
  readonly limits: KeyLimits
  readonly #deps: KeySharesDeps
  readonly #turns: LargeTurns
  /** By hash of the key. */
  readonly #shares = new Map<string, KeyShare>()
  #entered = 0
  #meanMs = 0
  #meanAtMs = Number.NEGATIVE_INFINITY

  constructor(limits: KeyLimits, deps: KeySharesDeps) {
    this.limits = limits
    this.#deps = deps
    this.#turns = new LargeTurns(deps.clock)
  }

  /** Keys that are remembered. */
  get size(): number {
    return this.#shares.size
  }

  /**
   * Counts one more request of a key, and the announced bytes of its body.
   * @throws GatewayError `rate_limit_exceeded` when the key has no room for it
   */
  enter(keyHash: string, announcedBytes: number): KeyPlace {
    if (++this.#entered % SWEEP_EVERY === 0) this.#sweep()
    let share = this.#shares.get(keyHash)
    if (share === undefined) {
      share = { open: 0, bytes: 0, spentMs: 0, spentAtMs: Number.NEGATIVE_INFINITY, large: null }
      this.#shares.set(keyHash, share)
    }
    const { openPerKey } = this.limits
    if (share.open >= openPerKey) {
      throw this.refusal('key_open', 'openPerKey', `This API key has ${openPerKey} requests open`)
    }
    const place = new KeyPlace(this, share, this.#deps.clock)
    place.add(announcedBytes)
    share.open++
    return place
  }

  /** The mean of what each key that took part lately spent, in milliseconds. */
  meanMs(nowMs: number): number {
    if (nowMs - this.#meanAtMs > MEAN_MS) this.#sweep()
    return this.#meanMs
  }

  /** Resolves when a large body of the key may be handled. */
  beginTurn(share: KeyShare): Promise<void> {
    share.large ??= { waiting: [], restedMs: 0, alone: () => this.#alone(share) }
    return this.#turns.take(share.large)
  }

  endTurn({ large }: KeyShare): void {
    if (large !== null) this.#turns.end(large)
  }

  #alone(share: KeyShare): boolean {
    const sinceMs = this.#deps.clock.monotonicMs() - AWAY_MS
    for (const each of this.#shares.values()) {
      if (each !== share && (each.open > 0 || each.spentAtMs > sinceMs)) return false
    }
    return true
  }

  refusal(reason: 'key_open' | 'key_bytes', limit: keyof KeyLimits, message: string): GatewayError {
    this.#deps.metrics.shed.inc({ reason })
    return new GatewayError('rate_limit_exceeded', `${message}, which is the limit (limits.${limit})`, {
      retryAfterSeconds: RETRY_AFTER_SECONDS,
      metadata: { limit: `limits.${limit}` },
    })
  }

  /** Forgets keys that do nothing, and finds the mean of the others. */
  #sweep(): void {
    const nowMs = this.#deps.clock.monotonicMs()
    let total = 0
    let keys = 0
    for (const [hash, share] of this.#shares) {
      const spentMs = spentBy(share, nowMs)
      if (spentMs >= SPENT_MIN_MS) {
        total += spentMs
        keys++
      } else if (share.open === 0 && nowMs - share.spentAtMs >= AWAY_MS) this.#shares.delete(hash)
    }
    this.#meanMs = keys === 0 ? 0 : total / keys
    this.#meanAtMs = nowMs
  }
}

/** The place that one request has in the share of its key. */
export class KeyPlace {
  readonly #shares: KeyShares
  readonly #share: KeyShare
  readonly #clock: Clock
  #bytes = 0
  /** It is the turn of the large body of this request. */
  #hasTurn = false
  #left = false

  constructor(shares: KeyShares, share: KeyShare, clock: Clock) {
    this.#shares = shares
    this.#share = share
    this.#clock = clock
  }

  /** True if the key takes at least as much of the event loop as the mean of all keys. */
  get takesMuch(): boolean {
    const nowMs = this.#clock.monotonicMs()
    return spentBy(this.#share, nowMs) >= this.#shares.meanMs(nowMs)
  }

  /** Adds bytes of the body. @throws GatewayError `rate_limit_exceeded` when the key has too many in flight */
  add(bytes: number): void {
    if (this.#left) return
    const { bytesInFlightPerKey } = this.#shares.limits
    const others = this.#share.bytes - this.#bytes
    if (others > 0 && this.#share.bytes + bytes > bytesInFlightPerKey) {
      throw this.#shares.refusal(
        'key_bytes',
        'bytesInFlightPerKey',
        `This API key would have more than ${bytesInFlightPerKey} bytes of requests in flight`,
      )
    }
    this.#bytes += bytes
    this.#share.bytes += bytes
  }

  /** Charges the key for the time of the event loop since then. */
  spend(sinceMs: number): void {
    const nowMs = this.#clock.monotonicMs()
    this.#share.spentMs = spentBy(this.#share, nowMs) + nowMs - sinceMs
    this.#share.spentAtMs = nowMs
  }

  /** Null for a body that may be handled at once. Resolves when a large one may; its turn ends with `endTurn`. */
  turn(bytes: number): Promise<void> | null {
    return bytes < LARGE_BYTES ? null : this.#takeTurn()
  }

  async #takeTurn(): Promise<void> {
    await this.#shares.beginTurn(this.#share)
    this.#hasTurn = true
    // Given up meanwhile.
    if (this.#left) this.endTurn()
  }

  /** The work on the large body is done, or goes on with what others send. */
  endTurn(): void {
    if (!this.#hasTurn) return
    this.#hasTurn = false
    this.#shares.endTurn(this.#share)
  }

  /** Gives the place back. Later calls do nothing. */
  leave(): void {
    if (this.#left) return
    this.#left = true
    this.endTurn()
    this.#share.open--
    this.#share.bytes -= this.#bytes
  }
}
