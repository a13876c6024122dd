/**
 * Endpoint statistics for listings: success rate, latency and throughput over minutes, half an hour and a day. Takes
 * some kilobytes for each endpoint that is used. Pure.
 */
import type { EndpointFigures } from '../providers/endpoint-figures.ts'
import { RecentValues } from './recent-values.ts'

const MINUTE_MS = 60_000
const FIVE_MINUTES_MS = 5 * MINUTE_MS
const HALF_HOUR_MS = 30 * MINUTE_MS
const DAY_MS = 24 * 60 * MINUTE_MS
/** With fewer attempts, one failure alone would give a low percentage. */
const UPTIME_MIN = 100
/** Half an hour in six slots. */
const VALUE_SLOTS = 6

/** Counts of attempts in slots of the same length. */
class Counts {
  readonly #slotMs: number
  readonly #ok: Int32Array
  readonly #failed: Int32Array
  /** Number of the slot that is filled now, since the clock's zero. */
  #slot = 0

  constructor(slotMs: number, slots: number) {
    this.#slotMs = slotMs
    this.#ok = new Int32Array(slots)
    this.#failed = new Int32Array(slots)
  }

  /** `ok` is negative when an answer that was counted as a success breaks off. */
  add(nowMs: number, ok: number, failed: number): void {
    if (nowMs >= (this.#slot + 1) * this.#slotMs) this.#advance(nowMs)
    const at = this.#slot % this.#ok.length
    this.#ok[at] = (this.#ok[at] ?? 0) + ok
    this.#failed[at] = (this.#failed[at] ?? 0) + failed
  }

  /** Percent of successful attempts in the newest slots; null: too few attempts. */
  uptime(nowMs: number, slots: number): number | null {
    this.#advance(nowMs)
    let [ok, failed] = [0, 0]
    for (let back = 0; back < Math.min(slots, this.#ok.length, this.#slot + 1); back++) {
      const at = (this.#slot - back) % this.#ok.length
      ok += this.#ok[at] ?? 0
      failed += this.#failed[at] ?? 0
    }
    const total = ok + failed
    return total < UPTIME_MIN ? null : Math.max(0, (100 * ok) / total)
  }

  #advance(nowMs: number): void {
    const slot = Math.floor(nowMs / this.#slotMs)
    const from = Math.max(this.#slot + 1, slot - this.#ok.length + 1)
    for (let next = from; next <= slot; next++) {
      this.#ok[next % this.#ok.length] = 0
      this.#failed[next % this.#ok.length] = 0
    }
    if (slot > this.#slot) this.#slot = slot
  }
}

export class FigureWindows {
  readonly #minutes = new Counts(MINUTE_MS, HALF_HOUR_MS / MINUTE_MS)
  readonly #halfHours = new Counts(HALF_HOUR_MS, DAY_MS / HALF_HOUR_MS)
  #latency: RecentValues | null = null
  #throughput: RecentValues | null = null

  count(nowMs: number, ok: number, failed: number): void {
    if (ok === 0 && failed === 0) return
    this.#minutes.add(nowMs, ok, failed)
    this.#halfHours.add(nowMs, ok, failed)
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
