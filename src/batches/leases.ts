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
  /** The lines that this runner has now. */
  readonly lines: () => readonly HeldLine[]
  /** True while it has a claim of a batch. */
  readonly hasBatch: () => boolean
  /** Called with lines that the runner still has, and the monotonic end of their leases. */
  readonly onRenewed: (lines: readonly HeldLine[], untilMs: number) => void
  /** Called with lines that the runner has lost. */
  readonly onLost: (lines: readonly HeldLine[]) => void
}

/**
 * How long a claim lasts without renewal. Lines of a dead runner wait for this long. A busy thread or database may be
 * silent for a few seconds.
 */
export const LEASE_MS = 20_000
const RENEW_INTERVAL_MS = 4_000
/** An owner stops this much earlier than others may begin. */
const SAFETY_MARGIN_MS = 2_000

export class Leases {
  readonly #options: LeasesOptions
  readonly #startWallMs: number
  readonly #startMs: number
  #timer: Timer | null = null
  #renewing: Promise<void> | null = null
  #isFailing = false
  #closed = false

  constructor(options: LeasesOptions) {
    this.#options = options
    this.#startWallMs = options.clock.nowMs()
    this.#startMs = options.clock.monotonicMs()
    this.#schedule()
  }

  /** Unix milliseconds by the monotonic clock: for leases, and for the times of queued lines. */
  nowMs(): number {
    return Math.floor(this.#startWallMs + this.#options.clock.monotonicMs() - this.#startMs)
  }

  /** The end of a lease that begins now: for the Store, and the earlier time until which its owner may rely on it. */
  begin(): { readonly leaseUntilMs: number; readonly untilMs: number } {
    return {
      leaseUntilMs: this.nowMs() + LEASE_MS,
      untilMs: this.#options.clock.monotonicMs() + LEASE_MS - SAFETY_MARGIN_MS,
    }
  }

  async close(): Promise<void> {
    this.#closed = true
    this.#timer?.cancel()
    await this.#renewing
  }

  #schedule(): void {
    this.#timer = this.#options.clock.after(RENEW_INTERVAL_MS, () => {
      this.#renewing = this.#renew().finally(() => {
        this.#renewing = null
        if (!this.#closed) this.#schedule()
      })
    })
  }

  async #renew(): Promise<void> {
    const { work, owner, log, lines, hasBatch, onRenewed, onLost } = this.#options
    const heldLines = lines()
    if (heldLines.length === 0 && !hasBatch()) return
    const { leaseUntilMs, untilMs } = this.begin()
    try {
      const renewed = await work.renew(owner, heldLines, leaseUntilMs)
      if (this.#isFailing) log.notice('batches', 'renewing the leases on running batch requests again')
      this.#isFailing = false
      const names = new Set(renewed.map(claimName))
      onRenewed(renewed, untilMs)
      onLost(heldLines.filter(line => !names.has(claimName(line))))
    } catch (error) {
      if (!this.#isFailing) log.fault('batches', 'cannot renew the leases on running batch requests', error)
      this.#isFailing = true
    }
  }
}

/** Identifies one claim of a line. */
export function claimName({ batchId, number, fence }: HeldLine): string {
  return `${batchId}/${number}/${fence}`
}
