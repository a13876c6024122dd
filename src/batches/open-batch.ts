/** An open batch in one runner: its record, and the lines that the runner has claimed. Batch thread. */
import { type Clock, isoInstant } from '../clock.ts'
import type { Log } from '../log/log.ts'
import type { BatchStatus } from '../protocol/management/batches.ts'
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
  readonly work: Pick<BatchWork, 'move'>
  readonly clock: Clock
  readonly log: Pick<Log, 'notice'>
}

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

  /** Takes a newer record. */
  renew(record: BatchRecord): void {
    this.record = record
    this.#storedSince = 0
  }

  /** Counts results that the Store has taken. */
  stored(results: number): void {
    this.#storedSince += results
  }
}
