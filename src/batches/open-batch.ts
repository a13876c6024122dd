/** An open batch in one runner: its record, and the lines that the runner has claimed. Batch thread. */
import type { BatchRecord, ClaimedLine } from '../storage/batches.ts'
import type { LineRun } from './line-run.ts'

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
