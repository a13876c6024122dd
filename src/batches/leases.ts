/**
 * Leases on the lines and batches that this runner has claimed. They are renewed long before they end. Times come from
 * a monotonic clock, so that a jump in the system time does not end a lease. Batch thread.
 */
import type { Clock, Timer } from '../base/clock.ts'
import type { Log } from '../base/log/log.ts'
import type { BatchWork, HeldLine } from '../storage/batches.ts'

interface LeasesOptions {
  readonly work: Pick<BatchWork, 'renew'>
  readonly owner: string
  readonly clock: Clock
  readonly log: Pick<Log, 'fault' | 'notice'>
  /** The lines that it has now. */
  readonly lines: () => readonly HeldLine[]
  /** True while it has claimed a batch. */
  readonly hasBatch: () => boolean
  /** Called with lines that are still its own, and the monotonic time until which they are. */
  readonly onRenewed: (lines: readonly HeldLine[], untilMs: number) => void
  /** Called with lines that are no longer its own. */
  readonly onLost: (lines: readonly HeldLine[]) => void
}

/**
 * How long a claim lasts without a word of its owner: the lines of a dead runner wait for so long. A thread or a
 * database that is busy may be silent for some seconds.
 */
export const LEASE_MS = 20_000
const RENEW_MS = 4_000
/** An owner stops before others may begin. */
const MARGIN_MS = 2_000

export class Leases {
  readonly #options: LeasesOptions
  readonly #startWallMs: number
  readonly #startMs: number
  #timer: Timer | null = null
  #renewing: Promise<void> | null = null
  #failing = false
  #closed = false

  constructor(options: LeasesOptions) {
    this.#options = options
    this.#startWallMs = options.clock.nowMs()
    this.#startMs = options.clock.monotonicMs()
    this.#schedule()
  }

  /** Unix milliseconds by the even clock: for leases, and for the times of lines in the queue. */
  nowMs(): number {
    return Math.floor(this.#startWallMs + this.#options.clock.monotonicMs() - this.#startMs)
  }

  /** The end of a lease that begins now: for the Store, and until when its owner may rely on it. */
  begin(): { readonly leaseUntilMs: number; readonly untilMs: number } {
    return {
      leaseUntilMs: this.nowMs() + LEASE_MS,
      untilMs: this.#options.clock.monotonicMs() + LEASE_MS - MARGIN_MS,
    }
  }

  async close(): Promise<void> {
    this.#closed = true
    this.#timer?.cancel()
    await this.#renewing
  }

  #schedule(): void {
    this.#timer = this.#options.clock.after(RENEW_MS, () => {
      this.#renewing = this.#renew().finally(() => {
        this.#renewing = null
        if (!this.#closed) this.#schedule()
      })
    })
  }

  async #renew(): Promise<void> {
    const { work, owner, log, lines, hasBatch, onRenewed, onLost } = this.#options
    const held = lines()
    if (held.length === 0 && !hasBatch()) return
    const { leaseUntilMs, untilMs } = this.begin()
    try {
      const renewed = await work.renew(owner, held, leaseUntilMs)
      if (this.#failing) log.notice('batches', 'renewing the leases on running batch requests again')
      this.#failing = false
      const names = new Set(renewed.map(nameOf))
      onRenewed(renewed, untilMs)
      onLost(held.filter(line => !names.has(nameOf(line))))
    } catch (error) {
      if (!this.#failing) log.fault('batches', 'cannot renew the leases on running batch requests', error)
      this.#failing = true
    }
  }
}

/** Tells one hold of a line from all others. */
export function nameOf({ batchId, number, fence }: HeldLine): string {
  return `${batchId}/${number}/${fence}`
}
