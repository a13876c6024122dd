/**
 * The verbs of the ledger: usage records, their totals, and their removal. Also explanations of the latest requests of
 * each organization, kept for a day. Types only.
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
  ProviderDayRow,
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
  /** Number of lines that are not records: a kill or a full disk left them incomplete. */
  readonly invalidLines: number
}

export interface LedgerStore {
  /** Adds the records whose ids are new. Returns their number. */
  add(records: readonly UsageLine[]): Promise<number>
  /** Like `add`, from lines of the spool, which an engine may parse itself. Lines that are not records are skipped. */
  addLines(lines: string): Promise<AddedLines>
  /** Null if the organization has no record with that id. */
  find(id: string, organizationId: string): Promise<UsageRecord | null>
  /** Like `find` for all organizations; for operators only. */
  findOfAny(id: string): Promise<UsageRecord | null>
  /** The latest records, newest first, before the record `before`. */
  latest(filter: LatestFilter, limit: number): Promise<readonly UsageRecord[]>
  /**
   * Calls `visit` with the records of all organizations since a time (ISO 8601 UTC), up to a thousand at once; for
   * operators only.
   */
  scan(since: string, visit: (records: readonly UsageRecord[]) => void): Promise<void>
  usageSince(filter: UsageFilter): Promise<UsageTotals>
  /** One row per day (UTC), model and provider, newest day first: for GET /activity. */
  activity(filter: ActivityFilter): Promise<readonly ActivityRow[]>
  /** The sums of one provider and day (YYYY-MM-DD, UTC) by model, over all organizations; for operators only. */
  providerDay(provider: string, day: string): Promise<readonly ProviderDayRow[]>
  /**
   * One row per day (UTC), session or agent, model and provider, newest day first, from the stored records that name
   * one. Null: there are more than CLIENT_RECORDS_MAX such records.
   */
  clientActivity(filter: ClientActivityFilter): Promise<readonly ClientActivityRow[] | null>
  /** Sums by dimensions, newest day first and highest cost first. Null: there are too many rows, keys or records. */
  byDimensions(filter: DimensionFilter): Promise<readonly DimensionRow[] | null>
  /**
   * Up to `limit` matching records, newest first. A call reads a bounded number of records, so it may return fewer
   * before the end is reached.
   */
  search(filter: SearchFilter, limit: number): Promise<SearchPage>
  /** Sums over the records of a span of time, and the times to the first token of its latest `samples` requests. */
  span(filter: SpanFilter, samples: number): Promise<SpanTotals>
  /**
   * Counts up to `limit` records of an older schema into the totals. The totals are incomplete until this returns null.
   * Safe on several instances at once.
   */
  fillTotals(limit: number): Promise<FillProgress | null>
  /**
   * Removes up to `limit` records older than `before` (ISO 8601 UTC); their totals stay. Returns their number. Removes
   * nothing while the totals are incomplete.
   */
  prune(before: string, limit: number): Promise<number>
  /**
   * Removes up to `limit` records of requests that reached no provider, and keeps the newest `recordsMax` of each workspace;
   * their totals stay. Returns their number. Removes nothing while the totals are incomplete.
   */
  pruneUnasked(recordsMax: number, limit: number): Promise<number>
}

export interface NewExplanation {
  /** Generation id. */
  readonly id: string
  /** Empty if the key of the request was unknown. */
  readonly organizationId: string
  /** The caller's `X-Request-Id`; null: it sent none. */
  readonly requestId: string | null
  /** ISO 8601 UTC. */
  readonly createdAt: string
  /** True if nothing was unusual. Such explanations have a limit of their own, so that they displace no others. */
  readonly isPlain: boolean
  /** JSON. */
  readonly document: string
}

type StoredExplanation = Pick<NewExplanation, 'id' | 'organizationId' | 'document'>

export interface ExplanationStore {
  /** Adds explanations. Existing ids stay unchanged. */
  add(explanations: readonly NewExplanation[]): Promise<void>
  /**
   * Explanations by generation id or `X-Request-Id`, newest first.
   * @param organizationId null: of any organization, for operators only
   */
  find(id: string, organizationId: string | null, limit: number): Promise<readonly StoredExplanation[]>
  /** Removes up to `limit` explanations older than `before` (ISO 8601 UTC). Returns their number. */
  prune(before: string, limit: number): Promise<number>
  /**
   * Removes up to `limit` explanations beyond the latest `maxPerKind` of each organization and kind. Returns their
   * number.
   */
  pruneBeyond(maxPerKind: number, limit: number): Promise<number>
}
