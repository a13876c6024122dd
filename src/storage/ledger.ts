/**
 * The verbs of the ledger: usage records, their totals, and their removal. Also explanations of requests, each kept for
 * a day, and the latest requests of each organization. Types only.
 */
import type { UsageLine } from './spool/usage-line.ts'
import type {
  ActivityFilter,
  ActivityRow,
  ClientActivityFilter,
  ClientActivityRow,
  DimensionFilter,
  DimensionRow,
  FillProgress,
  LatestFilter,
  SearchFilter,
  SearchPage,
  SpanFilter,
  SpanTotals,
  UsageFilter,
  UsageRecord,
  UsageTotals,
} from './usage.ts'

/** The result of adding lines. */
interface AddedLines {
  /** New records. */
  readonly added: number
  /** Lines that are no records: a kill or a full disk left them incomplete. */
  readonly spoilt: number
}

export interface LedgerStore {
  /** Adds the records whose ids are new. Returns their number. */
  add(records: readonly UsageLine[]): Promise<number>
  /** Adds the same from lines of the spool, which an engine may read itself. Lines that are no records are left out. */
  addLines(lines: string): Promise<AddedLines>
  /** Null if the organization has no record of that id. */
  find(id: string, organizationId: string): Promise<UsageRecord | null>
  /** The same of any organization, for operators alone. */
  findOfAny(id: string): Promise<UsageRecord | null>
  /** The latest records, newest first; those before `before` in this order. */
  latest(filter: LatestFilter, limit: number): Promise<readonly UsageRecord[]>
  usageSince(filter: UsageFilter): Promise<UsageTotals>
  /** One row per day (UTC), model and provider, newest day first: for GET /activity. */
  activity(filter: ActivityFilter): Promise<readonly ActivityRow[]>
  /**
   * One row per day (UTC), session or agent, model and provider, newest day first, of the records that name one; null:
   * these are more than CLIENT_RECORDS_MAX. Records that were removed are in none.
   */
  clientActivity(filter: ClientActivityFilter): Promise<readonly ClientActivityRow[] | null>
  /** Sums by dimensions, newest day and dearest first; null: these are too many rows, keys or records. */
  byDimensions(filter: DimensionFilter): Promise<readonly DimensionRow[] | null>
  /**
   * Up to `limit` records that fit, newest first. A call looks at a bounded number of records: it may find fewer, and
   * not have come to the end.
   */
  search(filter: SearchFilter, limit: number): Promise<SearchPage>
  /** Sums over the records of a span of time, and the times to the first token of its latest `samples` requests. */
  span(filter: SpanFilter, samples: number): Promise<SpanTotals>
  /**
   * Counts up to `limit` records of an older schema into the totals, which are incomplete until it returns null: then
   * none is left. Safe on several instances at once.
   */
  fillTotals(limit: number): Promise<FillProgress | null>
  /** Removes up to `limit` records from before a time (ISO 8601 UTC); their totals stay. Returns their number. */
  prune(before: string, limit: number): Promise<number>
  /**
   * Removes up to `limit` records of requests for which nobody was asked, of each workspace those before its newest
   * `most`; their totals stay. Returns their number.
   */
  pruneUnasked(most: number, limit: number): Promise<number>
}

export interface NewExplanation {
  /** Generation id. */
  readonly id: string
  /** Empty: the key of the request was not known. */
  readonly organizationId: string
  /** As the caller gave it in `X-Request-Id`; null: it gave none. */
  readonly requestId: string | null
  /** ISO 8601 UTC. */
  readonly createdAt: string
  /** Nothing was remarkable: it is counted apart, so that it pushes out no other kind. */
  readonly isPlain: boolean
  /** JSON. */
  readonly document: string
}

type StoredExplanation = Pick<NewExplanation, 'id' | 'organizationId' | 'document'>

export interface ExplanationStore {
  /** Ids that are there already are left as they are. */
  add(explanations: readonly NewExplanation[]): Promise<void>
  /**
   * Those of a generation id, or of an `X-Request-Id`, newest first.
   * @param organizationId null: of any, which is for operators alone
   */
  find(id: string, organizationId: string | null, limit: number): Promise<readonly StoredExplanation[]>
  /** Removes up to `limit` of those from before a time (ISO 8601 UTC). Returns their number. */
  prune(before: string, limit: number): Promise<number>
  /** Removes up to `limit` of those beyond the latest `most` of an organization and kind. Returns their number. */
  pruneBeyond(most: number, limit: number): Promise<number>
}
