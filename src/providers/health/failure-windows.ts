/**
 * Time windows over which the attempts to call one endpoint are counted: for its breakers, its rank and its listing.
 * Pure. Hot path.
 */
import type { EndpointFigures } from '../endpoint-figures.ts'
import { RecentValues } from './recent-values.ts'

/** Length of the window: after this time, failures no longer count against an endpoint. */
export const WINDOW_MS = 30_000
const SLOT_COUNT = 15
const SLOT_MS = WINDOW_MS / SLOT_COUNT

/** The kinds of attempts that count; others say nothing about the endpoint. */
const [OK, FAILED, LIMITED, KIND_COUNT] = [0, 1, 2, 3]

/** Counts attempts at one endpoint over the last 30 s. */
export class OutcomeWindow {
  ok = 0
  failed = 0
  /** Attempts refused by a rate limit, which is not a failure of the endpoint. */
  limited = 0
  /**
   * The counts of each slot, side by side by kind; null if there are none. Signed, because a success that breaks off
   * later is subtracted.
   */
  #counts: Int32Array | null = null
  /** Number of the current slot, counted from the clock's zero. */
  #slot: number

  constructor(nowMs: number) {
    this.#slot = Math.floor(nowMs / SLOT_MS)
  }

  add(nowMs: number, ok: number, failures: number, limited: number): void {
    if (nowMs >= (this.#slot + 1) * SLOT_MS) this.advance(nowMs)
    this.#counts ??= new Int32Array(SLOT_COUNT * KIND_COUNT)
    const counts = this.#counts
    const offset = (this.#slot % SLOT_COUNT) * KIND_COUNT
    counts[offset + OK] = (counts[offset + OK] ?? 0) + ok
    counts[offset + FAILED] = (counts[offset + FAILED] ?? 0) + failures
    counts[offset + LIMITED] = (counts[offset + LIMITED] ?? 0) + limited
    this.ok += ok
    this.failed += failures
    this.limited += limited
  }

  /** Drops everything older than the window. */
  advance(nowMs: number): void {
    const slot = Math.floor(nowMs / SLOT_MS)
    if (slot <= this.#slot) return
    const counts = this.#counts
    if (counts === null || slot - this.#slot >= SLOT_COUNT) {
      this.clear()
      this.#slot = slot
      return
    }
    while (this.#slot < slot) {
      this.#slot++
      const offset = (this.#slot % SLOT_COUNT) * KIND_COUNT
      this.ok -= counts[offset + OK] ?? 0
      this.failed -= counts[offset + FAILED] ?? 0
      this.limited -= counts[offset + LIMITED] ?? 0
      counts.fill(0, offset, offset + KIND_COUNT)
    }
  }

  clear(): void {
    this.#counts?.fill(0)
    this.ok = 0
    this.failed = 0
    this.limited = 0
  }
}

/** After this time, a reply counts half: an endpoint without requests is judged afresh after a few minutes. */
const HALF_LIFE_MS = 150_000
/** With fewer replies, the share of faulty ones says too little. */
const CALLS_MIN = 10
/** If a larger share is faulty, the endpoint is called after others. */
const FAULTY_SHARE_MAX = 0.1

/** Counts an endpoint's replies with tool calls: those whose calls a client can run, and faulty ones. */
export class CallWindow {
  #good = 0
  #faulty = 0
  #countedMs: number

  constructor(nowMs: number) {
    this.#countedMs = nowMs
  }

  add(nowMs: number, good: number, faulty: number): void {
    this.#decay(nowMs)
    this.#good += good
    this.#faulty += faulty
  }

  /** The share of good replies; null if there were too few recently. */
  share(nowMs: number): number | null {
    this.#decay(nowMs)
    const calls = this.#good + this.#faulty
    // Ten replies at once are some milliseconds old when they are read.
    return Math.round(calls) < CALLS_MIN ? null : this.#good / calls
  }

  /** True if too many are faulty. */
  isPoor(nowMs: number): boolean {
    return this.#faulty > 0 && (this.share(nowMs) ?? 1) < 1 - FAULTY_SHARE_MAX
  }

  #decay(nowMs: number): void {
    if (nowMs <= this.#countedMs) return
    const weight = 0.5 ** ((nowMs - this.#countedMs) / HALF_LIFE_MS)
    this.#good *= weight
    this.#faulty *= weight
    this.#countedMs = nowMs
  }
}

const MINUTE_MS = 60_000
const FIVE_MINUTES_MS = 5 * MINUTE_MS
const HALF_HOUR_MS = 30 * MINUTE_MS
const DAY_MS = 24 * 60 * MINUTE_MS
/** With fewer attempts, one failure alone would give a low percentage. */
export const UPTIME_ATTEMPTS_MIN = 100
/** Number of five-minute slots in half an hour. */
const VALUE_SLOTS = 6

/** Counts of attempts in slots of the same length. */
class SlotCounts {
  readonly #slotMs: number
  readonly #ok: Int32Array
  readonly #failed: Int32Array
  /** Number of the current slot, counted from the clock's zero. */
  #slot = 0

  constructor(slotMs: number, slots: number) {
    this.#slotMs = slotMs
    this.#ok = new Int32Array(slots)
    this.#failed = new Int32Array(slots)
  }

  /** `ok` is negative if an answer that was counted as a success breaks off. */
  add(nowMs: number, ok: number, failures: number): void {
    if (nowMs >= (this.#slot + 1) * this.#slotMs) this.#advance(nowMs)
    const index = this.#slot % this.#ok.length
    this.#ok[index] = (this.#ok[index] ?? 0) + ok
    this.#failed[index] = (this.#failed[index] ?? 0) + failures
  }

  /** Percentage of successful attempts in the newest slots; null if there were too few attempts. */
  uptime(nowMs: number, slots: number): number | null {
    this.#advance(nowMs)
    let [ok, failed] = [0, 0]
    for (let slotsBack = 0; slotsBack < Math.min(slots, this.#ok.length, this.#slot + 1); slotsBack++) {
      const index = (this.#slot - slotsBack) % this.#ok.length
      ok += this.#ok[index] ?? 0
      failed += this.#failed[index] ?? 0
    }
    const total = ok + failed
    return total < UPTIME_ATTEMPTS_MIN ? null : Math.max(0, (100 * ok) / total)
  }

  #advance(nowMs: number): void {
    const slot = Math.floor(nowMs / this.#slotMs)
    const firstStale = Math.max(this.#slot + 1, slot - this.#ok.length + 1)
    for (let next = firstStale; next <= slot; next++) {
      this.#ok[next % this.#ok.length] = 0
      this.#failed[next % this.#ok.length] = 0
    }
    if (slot > this.#slot) this.#slot = slot
  }
}

/**
 * Endpoint statistics for listings: success rate, latency and throughput over minutes, half an hour and a day. Takes
 * some kilobytes for each endpoint that is in use.
 */
export class FigureWindows {
  readonly #minutes = new SlotCounts(MINUTE_MS, HALF_HOUR_MS / MINUTE_MS)
  readonly #halfHours = new SlotCounts(HALF_HOUR_MS, DAY_MS / HALF_HOUR_MS)
  #latency: RecentValues | null = null
  #throughput: RecentValues | null = null

  count(nowMs: number, ok: number, failures: number): void {
    if (ok === 0 && failures === 0) return
    this.#minutes.add(nowMs, ok, failures)
    this.#halfHours.add(nowMs, ok, failures)
  }

  latency(nowMs: number, ms: number, weight: number): void {
    this.#latency ??= new RecentValues(FIVE_MINUTES_MS, VALUE_SLOTS)
    this.#latency.add(nowMs, ms, weight)
  }

  throughput(nowMs: number, tokensPerSecond: number, weight: number): void {
    this.#throughput ??= new RecentValues(FIVE_MINUTES_MS, VALUE_SLOTS)
    this.#throughput.add(nowMs, tokensPerSecond, weight)
  }

  figures(nowMs: number): EndpointFigures {
    return {
      uptimeLast5m: this.#minutes.uptime(nowMs, FIVE_MINUTES_MS / MINUTE_MS),
      uptimeLast30m: this.#minutes.uptime(nowMs, HALF_HOUR_MS / MINUTE_MS),
      uptimeLast1d: this.#halfHours.uptime(nowMs, DAY_MS / HALF_HOUR_MS),
      latencyLast30m: this.#latency?.percentiles(nowMs) ?? null,
      throughputLast30m: this.#throughput?.percentiles(nowMs) ?? null,
    }
  }
}
