/**
 * The load of one thread. When it is too high, new requests are shed at once, so that running ones keep their pace.
 * Three signals: requests in flight, bytes that requests hold, and how late the event loop is.
 */
import type { Clock, Timer } from '../../base/clock.ts'
import { HeldShare, type Holder } from '../../base/fairness/held-share.ts'

/** Limits of one thread. While one is exceeded, new requests are rejected: first those of the keys that cause it. */
export interface LoadLimits {
  readonly maxInFlight: number
  /** Smoothed delay of timers in milliseconds that must last for SUSTAINED_MS. */
  readonly maxLagMs: number
  /** Bytes that requests hold: bodies during processing, growing answers, and unread output. */
  readonly maxBufferedBytes: number
}

/** The reason that a request is shed; a closed set, for metrics. */
export type OverloadReason = 'in_flight' | 'lag' | 'buffered'

/** A request that holds more than this counts as large. */
const LARGE_REQUEST_BYTES = 256 * 1024
/**
 * Large requests may fill this part of the limit; the rest is left for all others. The part is below the level at which
 * new requests are accepted again, so large requests alone never cause small ones to be refused.
 */
const LARGE_SHARE = 0.75
/** Small running requests, and keys that hold little, may exceed a limit up to this factor. */
const SLACK_SHARE = 1.25
/**
 * Above this part of a limit, the organization that holds most gets no more for any key, if others have requests too.
 */
const TIGHT_SHARE = 1.125
/** Above this part of the limit, a key holds more than its share. */
const KEY_SHARE = 0.25
/**
 * Requests whose keys are not known yet may hold UNKNOWN_BYTES each, and together this part of the limit beyond that.
 * A caller whose key has to be read from the store may have sent its whole body by then; so may anybody without a key.
 */
const UNKNOWN_SHARE = 0.125
export const UNKNOWN_BYTES = 64 * 1024
/**
 * Requests that hold less are not counted by key: even the maximum number of them holds only a small part of the limit.
 */
const KEYED_MIN_BYTES = 16 * 1024

/** Interval of samples while the loop is on time; short enough to detect lag within a fifth of a second. */
const SAMPLE_MS = 50
/** The median of this many samples counts: a single pause, however long, is not overload. */
const SAMPLE_COUNT = 5
/** A pause this long counts as two samples, so that two such pauses in a row are overload: five would take seconds. */
const LONG_PAUSE_MS = 2 * SAMPLE_MS
/**
 * Time for which lag must last. After a burst, one long turn, or while code is not compiled yet, the loop is late for a
 * second or two and catches up; refusing admitted work then would be pointless.
 */
const SUSTAINED_MS = 10_000
/** A signal above its limit counts as overload until it is below this share of the limit, so that it does not flap. */
const LAG_RELEASE_SHARE = 0.5
const BUFFER_RELEASE_SHARE = 0.8
/** Above this part of the limit, the loop has no time for work that nobody waits for. */
const SPARE_LAG_SHARE = 0.25

/** A limit with hysteresis: once exceeded, it stays exceeded until the value is well below the limit. Pure. */
export class Threshold {
  readonly #limit: number
  readonly #release: number
  #isExceeded = false

  constructor(limit: number, releaseShare: number) {
    this.#limit = limit
    this.#release = limit * releaseShare
  }

  exceededAt(value: number): boolean {
    this.#isExceeded = this.#isExceeded ? value > this.#release : value > this.#limit
    return this.#isExceeded
  }
}

/** The median of the most recent samples. Pure. */
export class LagMeter {
  readonly #samples: number[] = new Array(SAMPLE_COUNT).fill(0)
  #next = 0
  /** The median. Written only here. */
  lagMs = 0

  add(lateMs: number): void {
    this.#store(lateMs)
    if (lateMs >= LONG_PAUSE_MS) this.#store(lateMs)
    this.lagMs = this.#samples.toSorted((a, b) => a - b)[(SAMPLE_COUNT - 1) / 2] ?? 0
  }

  #store(lateMs: number): void {
    this.#samples[this.#next] = lateMs
    this.#next = (this.#next + 1) % SAMPLE_COUNT
  }
}

export class Load {
  readonly #limits: LoadLimits
  readonly #clock: Clock
  readonly #meter = new LagMeter()
  readonly #lag: Threshold
  /** True while the held bytes are above their limit, and until they are well below it. */
  #isBufferFull = false
  /** Buffered bytes of each key: held by requests that hold more than a little, and by slow readers. */
  readonly byKey: HeldShare
  /** Bytes that requests hold. Only `count` and `HeldBytes` write it. */
  bufferedBytes = 0
  /** The maximum that one request can ever hold. Below it, every request may continue. */
  readonly largestBytes: number
  /** True if the event loop has been late for a long time: requests of the keys that cause it are shed. */
  isLate = false
  /** The time since which the loop has been late without interruption; null if it is not late. */
  #lateSinceMs: number | null = null
  #timer: Timer | null = null
  #sampledMs = 0
  /**
   * The part of `bufferedBytes` that is held for unknown keys, beyond UNKNOWN_BYTES each. Only `HeldBytes` writes it.
   */
  unknownBytes = 0
  /** Number of requests that were refused because of the load of the thread. */
  shed = 0
  /** The last result of `overloadReason`. */
  overload: OverloadReason | null = null

  constructor(limits: LoadLimits, clock: Clock) {
    this.#limits = limits
    this.#clock = clock
    this.#lag = new Threshold(limits.maxLagMs, LAG_RELEASE_SHARE)
    this.largestBytes = limits.maxBufferedBytes * LARGE_SHARE
    this.byKey = new HeldShare({
      total: limits.maxBufferedBytes,
      perKey: limits.maxBufferedBytes * KEY_SHARE,
    })
  }

  /** Delay of the event loop in milliseconds, smoothed. */
  get lagMs(): number {
    return this.#meter.lagMs
  }

  /** True if there is no room for work that nobody waits for. */
  get isBusy(): boolean {
    return this.overload !== null || this.lagMs > this.#limits.maxLagMs * SPARE_LAG_SHARE
  }

  /**
   * The reason to shed any request beside those in flight; null if there is room. Requests are counted exactly and
   * immediately, so their limit needs no hysteresis: each one that ends makes room for the next.
   */
  overloadReason(inFlight: number): OverloadReason | null {
    const { maxBufferedBytes, maxInFlight } = this.#limits
    const release = this.#isBufferFull ? BUFFER_RELEASE_SHARE : 1
    this.#isBufferFull = this.bufferedBytes > maxBufferedBytes * release
    this.overload = inFlight >= maxInFlight ? 'in_flight' : this.#isBufferFull ? 'buffered' : null
    return this.overload
  }

  /** True if there is room beyond the limits, for keys that hold little of the exhausted resource. */
  hasSlack(inFlight: number): boolean {
    const { maxBufferedBytes, maxInFlight } = this.#limits
    return this.bufferedBytes <= maxBufferedBytes * SLACK_SHARE && inFlight < maxInFlight * SLACK_SHARE
  }

  /** True if little is left of that room, so that organizations give way as a whole. */
  isTight(inFlight: number): boolean {
    const { maxBufferedBytes, maxInFlight } = this.#limits
    return this.bufferedBytes > maxBufferedBytes * TIGHT_SHARE || inFlight >= maxInFlight * TIGHT_SHARE
  }

  /**
   * True while a request of this key may keep `ownBytes`, which are already counted. If a key or an organization holds
   * more than a share, requests of those that hold little may be large, and those of the others end first.
   */
  hasRoom(ownBytes: number, key: Holder | null): boolean {
    const share = this.bufferedBytes / this.#limits.maxBufferedBytes
    if (share <= LARGE_SHARE) return true
    const { byKey } = this
    if (byKey.above === 0) return share <= (ownBytes > LARGE_REQUEST_BYTES ? LARGE_SHARE : SLACK_SHARE)
    // A body may arrive before its key is known.
    if (key === null || !byKey.givesWay(key, share > TIGHT_SHARE)) return share <= SLACK_SHARE
    return ownBytes <= LARGE_REQUEST_BYTES && share <= 1
  }

  /** True while requests of unknown keys are within their limit. */
  get hasUnknownRoom(): boolean {
    return this.unknownBytes <= this.#limits.maxBufferedBytes * UNKNOWN_SHARE
  }

  /** Adds to the held bytes; negative when bytes are released. */
  count(bytes: number): void {
    this.bufferedBytes += bytes
  }

  /** Starts watching the event loop. */
  start(): void {
    this.stop()
    this.#sampledMs = this.#clock.monotonicMs()
    this.#timer = this.#clock.after(SAMPLE_MS, this.#sample)
  }

  stop(): void {
    this.#timer?.cancel()
    this.#timer = null
  }

  readonly #sample = (): void => {
    const nowMs = this.#clock.monotonicMs()
    this.#meter.add(Math.max(0, nowMs - this.#sampledMs - SAMPLE_MS))
    this.#sampledMs = nowMs
    if (!this.#lag.exceededAt(this.#meter.lagMs)) this.#lateSinceMs = null
    else this.#lateSinceMs ??= nowMs
    this.isLate = this.#lateSinceMs !== null && nowMs - this.#lateSinceMs >= SUSTAINED_MS
    this.#timer = this.#clock.after(SAMPLE_MS, this.#sample)
  }
}

/** The bytes that one request holds. They count towards its thread until the request is over. Hot path. */
export class HeldBytes {
  readonly #load: Load
  /** The key that the bytes count for. */
  #key: Holder | null = null
  /** Written only by this class. */
  bytes = 0
  /** The part of `bytes` that is counted by key. */
  #keyedBytes = 0
  /** The part of `bytes` that is counted for unknown keys. */
  #unknownBytes = 0
  #isOver = false

  constructor(load: Load) {
    this.#load = load
  }

  /** Adds bytes (negative: releases them). False if the memory is exhausted; the request should then end. */
  count(bytes: number): boolean {
    if (this.#isOver) return true
    const load = this.#load
    this.bytes += bytes
    load.bufferedBytes += bytes
    if (this.bytes > KEYED_MIN_BYTES || this.#keyedBytes > 0) this.#countForKey(this.bytes)
    if (this.#key === null && (this.bytes > UNKNOWN_BYTES || this.#unknownBytes > 0)) {
      this.#countUnknown(Math.max(0, this.bytes - UNKNOWN_BYTES))
      if (bytes > 0 && !load.hasUnknownRoom) return false
    }
    return bytes < 0 || load.bufferedBytes <= load.largestBytes || load.hasRoom(this.bytes, this.#key)
  }

  /** Call it when the key is known. The bytes count for it from now on. */
  belongTo(key: Holder): void {
    this.#key = key
    if (this.#unknownBytes > 0) this.#countUnknown(0)
  }

  /** Call it when the request is over: none of its bytes count any more. */
  release(): void {
    this.#load.bufferedBytes -= this.bytes
    if (this.#keyedBytes > 0) this.#countForKey(0)
    if (this.#unknownBytes > 0) this.#countUnknown(0)
    this.bytes = 0
    this.#isOver = true
  }

  #countForKey(bytes: number): void {
    if (this.#key === null) return
    this.#load.byKey.add(this.#key, bytes - this.#keyedBytes)
    this.#keyedBytes = bytes
  }

  #countUnknown(bytes: number): void {
    this.#load.unknownBytes += bytes - this.#unknownBytes
    this.#unknownBytes = bytes
  }
}
