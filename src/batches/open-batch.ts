/** An open batch in one runner: its record, and the lines that the runner has claimed. Batch thread. */
import { type Clock, isoInstant } from '../base/clock.ts'
import type { Log } from '../base/log/log.ts'
import type { BatchStatus, BatchWait, BatchWaitReason } from '../protocol/management/batches.ts'
import type { BatchRecord, BatchWork, ClaimedLine } from '../storage/batches.ts'
import type { LineRun } from './line-run.ts'
import { isTerminal } from './states.ts'

/** A claimed line that has not begun. */
export interface ReadyLine {
  readonly line: ClaimedLine
  /** Monotonic; from then on another runner may have it. */
  untilMs: number
}

/** A line that runs. */
export interface RunningLine {
  readonly run: LineRun
  /** Of its lane. */
  readonly lane: string
  /** Monotonic, when it entered its lane. */
  readonly enteredMs: number
}

interface MoveDeps {
  readonly work: Pick<BatchWork, 'move' | 'setWaiting'>
  readonly clock: Clock
  readonly log: Pick<Log, 'notice'>
}

/** Shorter waits are not told: a busy provider makes many of them, and each would be two writes to the Store. */
const SHORT_WAIT_MS = 5_000

export class OpenBatch {
  record: BatchRecord
  /** The lane that its lines take. */
  lane: string
  readonly ready: ReadyLine[] = []
  /** By number of the line. */
  readonly running = new Map<number, RunningLine>()
  /** Monotonic; before then nothing can be claimed. */
  dryUntilMs = Number.NEGATIVE_INFINITY
  /** Monotonic; since then its lines are ended. Null: they go on. */
  endingSinceMs: number | null = null
  /** The running step of its state; null: none. */
  step: Promise<void> | null = null
  /** Why no line runs, as far as this runner knows. Monotonic time; null: it does not know that it waits. */
  #wait: { reason: BatchWaitReason; readonly sinceMs: number } | null = null
  /** True if a line ran after the record was last read. */
  #hasRun = false
  /** Results that were stored after the record was read. */
  #storedSince = 0

  constructor(record: BatchRecord, lane: string) {
    this.record = record
    this.lane = lane
  }

  /** Lines that this runner has. */
  get held(): number {
    return this.ready.length + this.running.size
  }

  /** Lines with a result, as far as this runner knows. */
  get done(): number {
    return this.record.completed + this.record.failed + this.#storedSince
  }

  get isDone(): boolean {
    return this.done >= this.record.total
  }

  expired(nowMs: number): boolean {
    return nowMs >= Date.parse(this.record.expiresAt)
  }

  /** Moves on from the state that this runner knows; does nothing if the Store has another one. */
  async move(
    to: BatchStatus,
    change: Partial<Pick<BatchRecord, 'error' | 'service'>>,
    { work, clock, log }: MoveDeps,
  ): Promise<void> {
    const { id, status } = this.record
    const moved = await work.move(id, [status], to, isoInstant(clock.nowMs()), change)
    if (moved === null) return
    this.renew(moved)
    if (!isTerminal(to)) return
    const { completed, failed, total } = moved
    log.notice('batches', 'batch ended', { batch: id, status: to, completed, failed, total })
  }

  /** A line ran: the provider answered it, or a batch service took it. */
  ran(): void {
    this.#hasRun = true
    this.#wait = null
  }

  /** No line can run now. */
  waits(reason: BatchWaitReason, monotonicMs: number): void {
    if (this.#hasRun) return
    if (this.#wait === null) this.#wait = { reason, sinceMs: monotonicMs }
    else this.#wait.reason = reason
  }

  /** Tells the Store why the batch waits, if that has changed. Resolves to true if it wrote. */
  async tellWait({ work, clock }: Omit<MoveDeps, 'log'>): Promise<boolean> {
    const { id, status, waiting: recordedWait } = this.record
    if (status !== 'in_progress' || this.endingSinceMs !== null) return false
    const wait = this.#hasRun ? null : this.#waitAfter(recordedWait, clock)
    const isNew = wait?.reason !== recordedWait?.reason
    if (isNew) {
      await work.setWaiting(id, wait)
      this.record = { ...this.record, waiting: wait }
    }
    this.#hasRun = false
    return isNew
  }

  /** The wait that is true now, if the Store has another one. */
  #waitAfter(recordedWait: BatchWait | null, clock: Clock): BatchWait | null {
    if (this.#wait === null || this.running.size > 0) return recordedWait
    const { reason, sinceMs } = this.#wait
    const waitedMs = clock.monotonicMs() - sinceMs
    if (recordedWait === null && waitedMs < SHORT_WAIT_MS) return null
    return { reason, since: recordedWait?.since ?? isoInstant(clock.nowMs() - waitedMs) }
  }

  /** Takes a newer record. */
  renew(record: BatchRecord): void {
    // Another runner may have run lines.
    if (record.completed > this.record.completed) this.ran()
    this.record = record
    this.#storedSince = 0
  }

  /** Counts results that the Store has taken. */
  stored(results: number): void {
    this.#storedSince += results
  }
}
