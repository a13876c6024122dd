/** An open batch as one runner knows it: its record, and the items of it that the runner has. Batch thread. */
import type { BatchRecord, ClaimedLine } from '../storage/batches.ts'
import type { ItemRun } from './item-run.ts'

/** A claimed item that has not begun. */
export interface ReadyItem {
  readonly line: ClaimedLine
  /** Monotonic; from then on another runner may have it. */
  untilMs: number
}

/** An item that runs. */
export interface RunningItem {
  readonly run: ItemRun
  /** Of its lane. */
  readonly lane: string
  /** Monotonic, when it entered its lane. */
  readonly enteredMs: number
}

export class OpenBatch {
  record: BatchRecord
  /** The lane that its items take. */
  lane: string
  readonly ready: ReadyItem[] = []
  /** By number of the line. */
  readonly running = new Map<number, RunningItem>()
  /** Monotonic; before then nothing can be claimed. */
  dryUntilMs = Number.NEGATIVE_INFINITY
  /** Monotonic; since then its items are ended. Null: they go on. */
  endingSinceMs: number | null = null
  /** The running step of its state; null: none. */
  step: Promise<void> | null = null
  /** Results that were stored after the record was read. */
  #storedSince = 0

  constructor(record: BatchRecord, lane: string) {
    this.record = record
    this.lane = lane
  }

  /** Items that this runner has. */
  get held(): number {
    return this.ready.length + this.running.size
  }

  /** Items with a result, as far as this runner knows. */
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
