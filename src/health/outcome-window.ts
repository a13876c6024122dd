/** Counts attempts at one endpoint over the last 30 s. Pure. Hot path. */

/** Milliseconds that count: an endpoint that works again has left its failures behind after this time. */
export const WINDOW_MS = 30_000
const SLOTS = 15
const SLOT_MS = WINDOW_MS / SLOTS

/** The kinds of attempts that count; others say nothing about the endpoint. */
const [OK, FAILED, LIMITED, KINDS] = [0, 1, 2, 3]

export class OutcomeWindow {
  ok = 0
  failed = 0
  /** Refused by a rate limit, which is no failure of the endpoint. */
  limited = 0
  /** The kinds of each slot side by side; null: there was none. Signed: a success that breaks later is taken back. */
  #counts: Int32Array | null = null
  /** Number of the slot that is filled now, since the clock's zero. */
  #slot: number

  constructor(nowMs: number) {
    this.#slot = Math.floor(nowMs / SLOT_MS)
  }

  add(nowMs: number, ok: number, failed: number, limited: number): void {
    if (nowMs >= (this.#slot + 1) * SLOT_MS) this.advance(nowMs)
    this.#counts ??= new Int32Array(SLOTS * KINDS)
    const counts = this.#counts
    const at = (this.#slot % SLOTS) * KINDS
    counts[at + OK] = (counts[at + OK] ?? 0) + ok
    counts[at + FAILED] = (counts[at + FAILED] ?? 0) + failed
    counts[at + LIMITED] = (counts[at + LIMITED] ?? 0) + limited
    this.ok += ok
    this.failed += failed
    this.limited += limited
  }

  /** Drops what is older than the window. */
  advance(nowMs: number): void {
    const slot = Math.floor(nowMs / SLOT_MS)
    if (slot <= this.#slot) return
    const counts = this.#counts
    if (counts === null || slot - this.#slot >= SLOTS) {
      this.clear()
      this.#slot = slot
      return
    }
    while (this.#slot < slot) {
      this.#slot++
      const at = (this.#slot % SLOTS) * KINDS
      this.ok -= counts[at + OK] ?? 0
      this.failed -= counts[at + FAILED] ?? 0
      this.limited -= counts[at + LIMITED] ?? 0
      counts.fill(0, at, at + KINDS)
    }
  }

  clear(): void {
    this.#counts?.fill(0)
    this.ok = 0
    this.failed = 0
    this.limited = 0
  }
}
