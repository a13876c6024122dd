/**
 * Batches in the store: their records, their lines, and the operations on them. Every verb is one transaction. Leases
 * and fencing tokens ensure that a line has only one result, even if an owner was wrongly considered dead. Types only.
 */

import type { DataRegion } from '../protocol/data-regions.ts'
import type {
  BatchEndpoint,
  BatchPreferences,
  BatchStatus,
  BatchUsage,
  BatchWait,
} from '../protocol/management/batches.ts'

/** The input file of a batch, and the fields that came with it. */
interface BatchInputFile {
  readonly id: string
  readonly metadata: Readonly<Record<string, string>> | null
}

export interface BatchRecord {
  /** `batch_` and 24 letters and digits. */
  readonly id: string
  readonly organizationId: string
  readonly workspaceId: string | null
  /** SHA-256 of the API key that made it: its limits, guardrails and credentials hold for every line. */
  readonly keyHash: string
  readonly endpoint: BatchEndpoint
  /** Exactly as the caller wrote it. */
  readonly model: string
  readonly preferences: BatchPreferences | null
  /** The region in which the data must stay, which follows from the called host; null: any. */
  readonly dataRegion: DataRegion | null
  /** True when a header asked for `gateway_metadata` in the results. */
  readonly withMetadata: boolean
  /** The file with the lines; null: they came in the request body. */
  readonly inputFile: BatchInputFile | null
  readonly status: BatchStatus
  readonly total: number
  /** Lines with a response. A response of a provider counts with any status: see `LineResult.outcome`. */
  readonly completed: number
  readonly failed: number
  /** The usage of all lines with a result. */
  readonly usage: BatchUsage
  /** The reason why the whole batch failed; null: it did not. */
  readonly error: string | null
  /** The provider (slug) whose own batch service runs its lines, in jobs; null: the gateway runs all of them. */
  readonly service: { readonly provider: string } | null
  /** The reason why no line runs; null: lines run, or the batch is not `in_progress`. */
  readonly waiting: BatchWait | null
  /** ISO 8601 UTC, as all times here but leases. */
  readonly createdAt: string
  readonly expiresAt: string
  /** Null until the batch reaches this state. */
  readonly startedAt: string | null
  readonly cancellingAt: string | null
  readonly finalizedAt: string | null
}

/** A batch whose body is still arriving. It is invisible and has no results yet. */
export interface OpeningBatch {
  readonly id: string
  readonly organizationId: string
  readonly keyHash: string
  /** The value of the caller's header; null: none. Unique within organization and key. */
  readonly idempotencyKey: string | null
  /** Unix milliseconds. After this lease the batch counts as abandoned. */
  readonly leaseUntilMs: number
}

/** `taken`: another request with this idempotency key is being accepted right now. */
export type Opening =
  | { readonly outcome: 'opened' }
  | { readonly outcome: 'taken' }
  /** A batch was accepted under this idempotency key. Compare `bodyHash` to find out if it came from the same body. */
  | { readonly outcome: 'known'; readonly batch: BatchRecord; readonly bodyHash: string }

/** The limits for all batches of one workspace together, or the needs of a new batch. */
export interface BatchRoom {
  readonly batches: number
  readonly requests: number
  /** Sum of the bytes of requests without a result, and of results. */
  readonly bytes: number
}

/** The room that a new batch reserves in its workspace. */
export interface ReservingBatch extends Omit<BatchRoom, 'batches'> {
  readonly id: string
  readonly organizationId: string
  readonly workspaceId: string
}

/**
 * `lost`: the batch counted as abandoned. `removing`: deleted batches whose rows still exist use too much room. Others:
 * the limit of the workspace that the batch would exceed.
 */
export type ReservationOutcome = 'reserved' | 'lost' | 'removing' | keyof BatchRoom

/** One request of a batch. */
export interface NewLine {
  /** Position in the body, from 0. */
  readonly number: number
  /** Unique in the batch. At most 2,000 bytes of UTF-8, because it is indexed. */
  readonly customId: string
  /** The request's JSON, as the caller wrote it. Kept until the line has its result. */
  readonly body: string
}

/**
 * The limit of a page of lines or results. The page ends at the first of the two bounds, but has at least one entry if
 * any exists.
 */
export interface PageEnd {
  readonly limit: number
  /** For all bodies or results of the page, in bytes of UTF-8. Absent: no limit. */
  readonly maxBytes?: number
}

/** A batch at the moment when all its lines are stored and it becomes visible. */
export type AcceptedBatch = Omit<
  BatchRecord,
  | 'status'
  | 'completed'
  | 'failed'
  | 'usage'
  | 'error'
  | 'service'
  | 'waiting'
  | 'startedAt'
  | 'cancellingAt'
  | 'finalizedAt'
> & {
  /** SHA-256 of the request's body, 64 lowercase hexadecimal characters; empty without an idempotency key. */
  readonly bodyHash: string
}

/** The right to work on a batch or a line until the lease ends. Each new claim has a greater fence. */
export interface Claim {
  /** Name of the runner, unique for every thread that ever ran. */
  readonly owner: string
  readonly fence: number
}

/** A line that its owner runs. */
export interface ClaimedLine extends NewLine {
  readonly batchId: string
  readonly fence: number
  /** Number of temporary failures of providers at this line. */
  readonly tries: number
}

export type LineOutcome = 'completed' | 'failed'

/** A line as its owner names it, with the fence of the claim. */
export type HeldLine = Pick<ClaimedLine, 'batchId' | 'number' | 'fence'>

/** The one result of a line. A result under an older fence is dropped. */
export interface LineResult extends HeldLine {
  readonly outcome: LineOutcome
  /** JSON without `custom_id`, written and read by `batches/result-line.ts`. Short if the line failed. */
  readonly result: string
  readonly usage: BatchUsage
}

/** A line that goes back to the queue. */
export interface ReturnedLine extends HeldLine {
  readonly tries: number
  /** Unix milliseconds. Nobody claims it earlier. */
  readonly notBeforeMs: number
}

/** A stored result. */
export interface StoredResult {
  readonly number: number
  readonly customId: string
  readonly outcome: LineOutcome
  /** As in `LineResult`. */
  readonly result: string
}

/** A line of a batch by its number. */
type LineName = Pick<StoredResult, 'number' | 'customId'>

/** Some lines of a batch, in their order. */
interface LinePage {
  /** The lines without a result. */
  readonly items: readonly LineName[]
  /** Number of the last line that was read. */
  readonly last: number
}

export interface BatchFilter {
  readonly organizationId: string
  /** Absent: all workspaces. */
  readonly workspaceId?: string | null
  /** Absent: all. */
  readonly statuses?: readonly BatchStatus[]
  /** ISO 8601 UTC, exclusive. */
  readonly createdAfter?: string
  readonly createdBefore?: string
  /** Absent: all. */
  readonly endpoint?: BatchEndpoint
  /** Id of the batch after which the page begins. */
  readonly after?: string
  /** Id of the batch before which the page ends. Not together with `after`. */
  readonly before?: string
}

/** Line counts of one batch, which decide its next step. */
interface LineCounts {
  /** Not checked yet. */
  readonly unchecked: number
  readonly waiting: number
  /** With a lease, which may have ended, or in a job of a batch service. */
  readonly claimed: number
  readonly finished: number
}

/** Acceptance. A batch is invisible until `accept`; if that never comes, it is removed. */
export interface BatchAcceptance {
  /**
   * Adds an invisible batch, or reports the batch that has its idempotency key. An abandoned batch is replaced.
   * Safe to repeat after a lost reply.
   */
  open(batch: OpeningBatch, nowMs: number): Promise<Opening>
  /** Extends the lease. Returns false if the batch counted as abandoned. */
  keepOpen(id: string, leaseUntilMs: number): Promise<boolean>
  /**
   * Reserves room for an invisible batch in its workspace. Rows count in every state until they are removed. Safe to
   * repeat after a lost reply.
   */
  reserve(batch: ReservingBatch, room: BatchRoom): Promise<ReservationOutcome>
  /**
   * Appends lines. Call it once at a time, with all numbers in order and without a gap. After an error the number of
   * stored lines is unknown, so the batch must be abandoned.
   * @throws ConflictError `custom_id` if the batch has a line with that id; `id` if the batch counted as abandoned.
   */
  addLines(id: string, lines: readonly NewLine[]): Promise<void>
  /**
   * Makes the batch visible in `validating`, durably. `total` lines must be stored. Returns null if it counted as
   * abandoned. Safe to repeat after a lost reply.
   */
  accept(batch: AcceptedBatch): Promise<BatchRecord | null>
  /** Abandons an invisible batch and frees its idempotency key. `prune` removes its rows. */
  abandon(id: string): Promise<void>
}

/** Reading and deleting; batches of other organizations and workspaces count as unknown. */
export interface BatchReading {
  /** Newest first, by time and id. Null: the batch of `after` or `before` does not exist. */
  list(
    filter: BatchFilter,
    limit: number,
  ): Promise<{ items: readonly BatchRecord[]; hasMore: boolean } | null>
  find(organizationId: string, workspaceId: string | null, id: string): Promise<BatchRecord | null>
  /**
   * Results in line order, after line `after` (-1: from the beginning). Null: the batch was removed; an empty list would
   * look like its end.
   */
  results(id: string, after: number, end: PageEnd): Promise<readonly StoredResult[] | null>
  /**
   * Lines without a result among the next lines after `after` (-1: from the beginning). Null: there are no more lines,
   * or the batch was removed.
   */
  unansweredLines(id: string, after: number, limit: number): Promise<LinePage | null>
  /** Hides a terminal batch at once and frees its idempotency key. `prune` removes its rows. */
  remove(
    organizationId: string,
    workspaceId: string | null,
    id: string,
  ): Promise<'removed' | 'running' | 'unknown'>
  /** Batches by state, of all organizations: for metrics. */
  countByStatus(): Promise<ReadonlyMap<BatchStatus, number>>
}

/** The operations of runners. Several runners, on several machines, may work on one batch. */
export interface BatchWork {
  /** Batches that are not terminal, oldest first. Only these may have work for runners. */
  open(): Promise<readonly BatchRecord[]>
  /**
   * Moves a batch if it is in one of the states `from` (terminal ones are ignored); otherwise returns null. Sets the
   * time of the new state and ends any waiting.
   */
  move(
    id: string,
    from: readonly BatchStatus[],
    to: BatchStatus,
    time: string,
    change?: Partial<Pick<BatchRecord, 'error' | 'service'>>,
  ): Promise<BatchRecord | null>
  /** Sets the reason why the batch waits; null: it does not wait. Changes nothing unless it is `in_progress`. */
  setWaiting(id: string, waiting: BatchWait | null): Promise<void>
  /**
   * Claims the batch for a step that only one runner may do. Null: another runner has it, or it is terminal. An owner
   * may repeat its claim, in case the reply to the first one was lost.
   */
  claimBatch(id: string, owner: string, nowMs: number, leaseUntilMs: number): Promise<Claim | null>
  /** Ends the claim, so that another runner may claim at once. */
  releaseBatch(id: string, claim: Claim): Promise<void>
  /** Lines whose bodies are not checked yet, in order. */
  uncheckedLines(id: string, end: PageEnd): Promise<readonly NewLine[]>
  /**
   * Marks lines as checked: those in `failures` get their result, all others up to number `upTo` become claimable.
   * Returns false and changes nothing if another claim is newer or the batch is no longer in `validating`.
   */
  markChecked(
    id: string,
    claim: Claim,
    upTo: number,
    failures: readonly Omit<LineResult, 'batchId' | 'fence'>[],
  ): Promise<boolean>
  /**
   * Claims lines that wait or whose lease has ended: new lines first, in their order, then by the time from which they
   * may be claimed. Skips lines that another runner is claiming. Empty if the batch is not `in_progress`.
   */
  claimLines(
    id: string,
    owner: string,
    terms: PageEnd & { readonly nowMs: number; readonly leaseUntilMs: number },
  ): Promise<readonly ClaimedLine[]>
  /**
   * Extends the leases of these lines, and of all batches of the owner. Returns the lines that the owner still has.
   * Lines whose claim reply was lost are not among them, so their leases end and they become free.
   */
  renew(owner: string, lines: readonly HeldLine[], leaseUntilMs: number): Promise<readonly HeldLine[]>
  /**
   * Stores results, counts and sums in one transaction. Returns the results that were stored. Results of lines with a
   * newer claim or a result, and of terminal batches, are dropped.
   */
  finish(owner: string, results: readonly LineResult[]): Promise<readonly LineResult[]>
  /** Returns lines to the queue, except those with a newer claim. */
  giveBack(owner: string, lines: readonly ReturnedLine[]): Promise<void>
  counts(id: string): Promise<LineCounts>
  /** Unix milliseconds from which the next waiting line of the batch may be claimed; null: none waits. */
  nextLineAt(id: string): Promise<number | null>
  /**
   * Removes up to `limit` lines or batches that are no longer visible: removed batches, abandoned ones, and terminal
   * ones finalized before a time (ISO 8601 UTC). Also removes bodies of lines that never ran in terminal batches.
   * Returns their number; 0 when nothing is left to remove.
   */
  prune(before: string, nowMs: number, limit: number): Promise<number>
}
