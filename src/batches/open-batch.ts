/** An open batch in one runner: its record, and the lines that the runner has claimed. Batch thread. */
import { type Clock, isoInstant } from '../base/clock.ts'
import type { Log } from '../base/log/log.ts'
import type { BatchStatus, BatchWait, BatchWaitReason } from '../protocol/management/batches.ts'
import type { BatchRecord, BatchWork, ClaimedLine } from '../storage/batches.ts'
import type { LineRun } from './line-run.ts'
import { isTerminal } from './states.ts'

/** A claimed line that does not run yet. */
export interface ReadyLine {
  readonly line: ClaimedLine
  /** Monotonic. After this time another runner may have the line. */
  untilMs: number
}

/** A line that is running. */
export interface RunningLine {
  readonly run: LineRun
  /** Name of its lane. */
  readonly lane: string
  /** Monotonic time at which it entered its lane. */
  readonly enteredMs: number
}

interface MoveDeps {
  readonly work: Pick<BatchWork, 'move' | 'setWaiting'>
  readonly clock: Clock
  readonly log: Pick<Log, 'notice'>
}

/** Shorter waits are not reported: a busy provider causes many, and each would be two writes to the Store. */
const SHORT_WAIT_MS = 5_000

export class OpenBatch {
  record: BatchRecord
  /** The lane that its lines use. */
  lane: string
  readonly ready: ReadyLine[] = []
  /** Running lines by number. */
  readonly running = new Map<number, RunningLine>()
  /** Monotonic. Before this time no line can be claimed. */
  unclaimableUntilMs = Number.NEGATIVE_INFINITY
  /** Monotonic time since which its lines are being ended. Null: they continue. */
  endingSinceMs: number | null = null
  /** The running step for its state; null: none. */
  step: Promise<void> | null = null
  /** The reason why no line runs, and since when (monotonic); null: not known to wait. */
  #currentWait: { reason: BatchWaitReason; readonly sinceMs: number } | null = null
  /** True if a line has run since the record was last read. */
  #hasRun = false
  /** Number of results stored since the record was last read. */
  #storedSince = 0

  constructor(record: BatchRecord, lane: string) {
    this.record = record
    this.lane = lane
  }

  /** Number of lines that this runner has. */
  get held(): number {
    return this.ready.length + this.running.size
  }

  /** Number of lines with a result, as far as this runner knows. */
  get finishedLines(): number {
    return this.record.completed + this.record.failed + this.#storedSince
  }

  get isDone(): boolean {
    return this.finishedLines >= this.record.total
  }

  isExpired(nowMs: number): boolean {
    return nowMs >= Date.parse(this.record.expiresAt)
  }

  /** Moves the batch from the state that this runner knows, and logs its end. Not if the Store has another state. */
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

  /** A line has run: a provider answered it, or a batch service accepted it. */
  noteRun(): void {
    this.#hasRun = true
    this.#currentWait = null
  }

  /** No line can run now. */
  noteWait(reason: BatchWaitReason, monotonicMs: number): void {
    if (this.#hasRun) return
    if (this.#currentWait === null) this.#currentWait = { reason, sinceMs: monotonicMs }
    else this.#currentWait.reason = reason
  }

  /** Stores the reason why the batch waits, if it has changed. Resolves to true if it wrote. */
  async storeWait({ work, clock }: Omit<MoveDeps, 'log'>): Promise<boolean> {
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

  /** The current wait, if the Store has another one. */
  #waitAfter(recordedWait: BatchWait | null, clock: Clock): BatchWait | null {
    if (this.#currentWait === null || this.running.size > 0) return recordedWait
    const { reason, sinceMs } = this.#currentWait
    const waitedMs = clock.monotonicMs() - sinceMs
    if (recordedWait === null && waitedMs < SHORT_WAIT_MS) return null
    return { reason, since: recordedWait?.since ?? isoInstant(clock.nowMs() - waitedMs) }
  }

  /** Replaces the record with a newer one. */
  renew(record: BatchRecord): void {
    // Another runner has run lines.
    if (record.completed > this.record.completed) this.noteRun()
    this.record = record
    this.#storedSince = 0
  }

  /** Counts results that the Store has accepted. */
  stored(results: number): void {
    this.#storedSince += results
  }
}
