/**
 * Batches in the store: their records, their lines, and the operations on them. Every verb is one transaction. Leases
 * and fencing tokens ensure that a line has only one result, even if an owner was wrongly considered dead. Types only.
 */
import type {
  BatchEndpoint,
  BatchPreferences,
  BatchStatus,
  BatchUsage,
  BatchWait,
} from '../protocol/management/batches.ts'
import type { DataRegion } from '../protocol/management/guardrails.ts'

/** The file by which a batch was made, and what its maker said of it. */
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
  /** As the caller wrote it. */
  readonly model: string
  readonly preferences: BatchPreferences | null
  /** The region in which the data has to stay, by the host that was called; null: any. */
  readonly dataRegion: DataRegion | null
  /** True when a header asked for `gateway_metadata` in the results. */
  readonly withMetadata: boolean
  /** The file of the workspace that had its lines; null: they came in the body. */
  readonly inputFile: BatchInputFile | null
  readonly status: BatchStatus
  readonly total: number
  /** Lines with a response, whatever its status was when it came from a provider: see `LineResult.outcome`. */
  readonly completed: number
  readonly failed: number
  /** Of all lines with a result. */
  readonly usage: BatchUsage
  /** Why the whole batch failed; null: it did not. */
  readonly error: string | null
  /** The provider (slug) whose own batch service runs its lines, in jobs; null: the gateway runs all of them. */
  readonly service: { readonly provider: string } | null
  /** Why no line runs; null: lines run, or the batch is not `in_progress`. */
  readonly waiting: BatchWait | null
  /** ISO 8601 UTC, as all times here but leases. */
  readonly createdAt: string
  readonly expiresAt: string
  /** Null before it was in that state. */
  readonly startedAt: string | null
  readonly cancellingAt: string | null
  readonly finalizedAt: string | null
}

/** A batch while its body arrives: nobody sees it, and it has no result to lose. */
export interface OpeningBatch {
  readonly id: string
  readonly organizationId: string
  readonly keyHash: string
  /** Of the caller's header; null: none. Unique within organization and key. */
  readonly idempotencyKey: string | null
  /** Unix milliseconds until which nobody may take it for abandoned. */
  readonly leaseUntilMs: number
}

/** `taken`: another request with this idempotency key is being accepted right now. */
export type Opening =
  | { readonly outcome: 'opened' }
  | { readonly outcome: 'taken' }
  /** A batch was accepted under this idempotency key: `bodyHash` tells whether from the same body. */
  | { readonly outcome: 'known'; readonly batch: BatchRecord; readonly bodyHash: string }

/** The limits for all batches of one workspace together, or the needs of a new batch. */
export interface BatchRoom {
  readonly batches: number
  readonly requests: number
  /** Of requests without a result, and of results. */
  readonly bytes: number
}

/** The place of a new batch, and what it will take. */
export interface ReservingBatch extends Omit<BatchRoom, 'batches'> {
  readonly id: string
  readonly organizationId: string
  readonly workspaceId: string
}

/**
 * `lost`: it was taken for abandoned. `removing`: batches that were deleted, and whose rows are still being removed,
 * take too much. Others: what the workspace has no more room for.
 */
export type Reserved = 'reserved' | 'lost' | 'removing' | keyof BatchRoom

/** One request of a batch. */
export interface NewLine {
  /** Place in the body, from 0. */
  readonly number: number
  /** Unique in the batch; at most 2,000 bytes of UTF-8, for the sake of its index. */
  readonly customId: string
  /** The request's JSON, as the caller wrote it. Kept until the line has its result. */
  readonly body: string
}

/** The end of a page of lines or results, whichever comes first; a page has at least one if there is any. */
export interface PageEnd {
  readonly limit: number
  /** Of all bodies or results of the page, in UTF-8. Absent: any. */
  readonly maxBytes?: number
}

/** A batch whose lines are all stored, as it becomes visible. */
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
  /** Names the runner: unique for each thread that ever ran. */
  readonly owner: string
  readonly fence: number
}

/** A line that its owner runs. */
export interface ClaimedLine extends NewLine {
  readonly batchId: string
  readonly fence: number
  /** Times that it was sent to a provider and failed in a way that may pass. */
  readonly tries: number
}

export type LineOutcome = 'completed' | 'failed'

/** A line as its owner knows it: the fence is that of the claim. */
export type HeldLine = Pick<ClaimedLine, 'batchId' | 'number' | 'fence'>

/** The one result of a line. A result under an older fence is dropped. */
export interface LineResult extends HeldLine {
  readonly outcome: LineOutcome
  /** JSON without `custom_id`, which `batches/result-line.ts` writes and reads; short where the line failed. */
  readonly result: string
  readonly usage: BatchUsage
}

/** A line that goes back to the queue. */
export interface ReturnedLine extends HeldLine {
  readonly tries: number
  /** Unix milliseconds before which nobody claims it. */
  readonly notBeforeMs: number
}

/** A result as it is read. */
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
  /** Those without a result. */
  readonly items: readonly LineName[]
  /** Number of the last line that was looked at. */
  readonly last: number
}

export interface BatchFilter {
  readonly organizationId: string
  /** Absent: those of all workspaces. */
  readonly workspaceId?: string | null
  /** Absent: all. */
  readonly statuses?: readonly BatchStatus[]
  /** ISO 8601 UTC, exclusive. */
  readonly createdAfter?: string
  readonly createdBefore?: string
  /** Absent: all. */
  readonly endpoint?: BatchEndpoint
  /** Id of the batch behind which the list goes on. */
  readonly after?: string
  /** Id of the batch before which it ends: the page has the ones next to it. Not beside `after`. */
  readonly before?: string
}

/** Line counts of one batch, for its next step. */
interface LineCounts {
  /** Not checked yet. */
  readonly unchecked: number
  readonly waiting: number
  /** With a live lease or a dead one. */
  readonly claimed: number
  readonly done: number
}

/** Acceptance: a batch is invisible until `accept`, and gone without a trace if that never comes. */
export interface BatchAcceptance {
  /**
   * Adds an invisible batch, or tells what its idempotency key stands for. An abandoned one is replaced. A caller who
   * did not hear the outcome may ask again.
   */
  open(batch: OpeningBatch, nowMs: number): Promise<Opening>
  /** Extends the lease. False: it was taken for abandoned. */
  keepOpen(id: string, leaseUntilMs: number): Promise<boolean>
  /**
   * Takes room for an invisible batch among those of its workspace: rows of all states count until they are removed. A
   * caller who did not hear the outcome may ask again.
   */
  reserve(batch: ReservingBatch, room: BatchRoom): Promise<Reserved>
  /**
   * Adds lines behind those that are there: one call after the other, all numbers in order and without a gap. After an
   * error nobody knows how many lines are there: the batch is given up.
   * @throws ConflictError `custom_id` if the batch has a line of that id; `id` if it was taken for abandoned.
   */
  addLines(id: string, lines: readonly NewLine[]): Promise<void>
  /**
   * Makes it visible in `validating`, durably; `total` lines must be there. Null: it was taken for abandoned. A caller
   * who did not hear the outcome may ask again.
   */
  accept(batch: AcceptedBatch): Promise<BatchRecord | null>
  /** Gives an invisible batch up and frees its idempotency key; `prune` removes what is left of it. */
  abandon(id: string): Promise<void>
}

/** Reading and deleting; batches of other organizations and workspaces count as unknown. */
export interface BatchReading {
  /** Newest first, by time and id. Null: there is no batch `after`, or none `before`. */
  list(
    filter: BatchFilter,
    limit: number,
  ): Promise<{ items: readonly BatchRecord[]; hasMore: boolean } | null>
  find(organizationId: string, workspaceId: string | null, id: string): Promise<BatchRecord | null>
  /**
   * Results in the order of the lines, those behind `after` (-1: from the beginning). Null: the batch is gone, so that
   * a reader who was amid its results never takes them for all.
   */
  results(id: string, after: number, end: PageEnd): Promise<readonly StoredResult[] | null>
  /**
   * Lines without a result, of the next lines behind `after` (-1: from the beginning). Null: there are no more lines,
   * or the batch is gone.
   */
  unanswered(id: string, after: number, limit: number): Promise<LinePage | null>
  /** Hides a terminal batch at once and frees its idempotency key; `prune` removes what is left of it. */
  remove(
    organizationId: string,
    workspaceId: string | null,
    id: string,
  ): Promise<'removed' | 'running' | 'unknown'>
  /** Batches by state, of all organizations: for metrics. */
  countByStatus(): Promise<ReadonlyMap<BatchStatus, number>>
}

/** Work on batches: for runners. Several runners, on several machines, may work on one batch. */
export interface BatchWork {
  /** Batches that are not terminal, oldest first: all of what a runner may have to do. */
  open(): Promise<readonly BatchRecord[]>
  /**
   * Moves a batch if it is in one of the states `from`, of which terminal ones do not count; null otherwise. Sets the
   * time of the new state; a batch that moves does not wait any more.
   */
  move(
    id: string,
    from: readonly BatchStatus[],
    to: BatchStatus,
    at: string,
    change?: Partial<Pick<BatchRecord, 'error' | 'service'>>,
  ): Promise<BatchRecord | null>
  /** Sets why the batch waits, or that it does not (null). Changes nothing unless it is `in_progress`. */
  setWaiting(id: string, waiting: BatchWait | null): Promise<void>
  /**
   * Claims the batch itself for a step that one runner does alone; null: another one has it, or it is terminal. An
   * owner may claim again what it has, in case that it never heard of its claim.
   */
  claimBatch(id: string, owner: string, nowMs: number, leaseUntilMs: number): Promise<Claim | null>
  /** Ends the claim, so that another runner may claim at once. */
  releaseBatch(id: string, claim: Claim): Promise<void>
  /** Lines whose bodies are not checked yet, in order. */
  unchecked(id: string, end: PageEnd): Promise<readonly NewLine[]>
  /**
   * Marks lines as checked: those in `failures` get their result, all others up to `through` wait to be run. False:
   * another claim has overtaken this one, or the batch is not in `validating` any more; then nothing has changed.
   */
  checked(
    id: string,
    claim: Claim,
    through: number,
    failures: readonly Omit<LineResult, 'batchId' | 'fence'>[],
  ): Promise<boolean>
  /**
   * Claims lines that wait, or whose lease is over: first those that nobody had yet, in their order, then by the time
   * since which they may be claimed. Skips lines that another runner is claiming. Empty where the batch is not
   * `in_progress`.
   */
  claimLines(
    id: string,
    owner: string,
    terms: PageEnd & { readonly nowMs: number; readonly leaseUntilMs: number },
  ): Promise<readonly ClaimedLine[]>
  /**
   * Extends the leases of these lines, and of all batches of the owner. Returns the lines that are still its own. Lines
   * of a claim that the owner never heard of are not among them, and so become free again.
   */
  renew(owner: string, lines: readonly HeldLine[], leaseUntilMs: number): Promise<readonly HeldLine[]>
  /**
   * Stores results, counts and sums in one transaction. Returns the results that were stored; those of lines that
   * another claim or a result has overtaken are dropped, and so are those of terminal batches.
   */
  finish(owner: string, results: readonly LineResult[]): Promise<readonly LineResult[]>
  /** Puts lines back; those that another claim has overtaken stay as they are. */
  giveBack(owner: string, lines: readonly ReturnedLine[]): Promise<void>
  counts(id: string): Promise<LineCounts>
  /** Unix milliseconds when the next waiting line of the batch may be claimed; null: none waits. */
  nextLineAt(id: string): Promise<number | null>
  /**
   * Removes up to `limit` lines or batches that nobody sees any more: removed batches, terminal ones that were
   * finalized before a time (ISO 8601 UTC), abandoned ones; and bodies of lines that never ran in terminal ones.
   * Returns their number: 0 when nothing is left to do.
   */
  prune(before: string, nowMs: number, limit: number): Promise<number>
}
