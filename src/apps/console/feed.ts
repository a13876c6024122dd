/**
 * The live list: keeps the latest requests of the organizations that are watched, and sends changes to open consoles.
 * Main thread. A viewer only gets data of its key's organization.
 */
import type { Clock, Timer } from '../../base/clock.ts'
import { toUsd } from '../../base/money.ts'
import type { EndedRequest } from '../../protocol/ended-request.ts'
import type { Store } from '../../storage/store.ts'
import type { UsageRecord } from '../../storage/usage.ts'
import { FiguresByModel, type ModelFigures } from './model-figures.ts'
import { isFee, joined, type RequestRow, rowOfEnded, rowOfRecord } from './request-row.ts'
import { percentile, Series, SPAN_SECONDS, SPANS_MAX } from './series.ts'

interface FeedDeps {
  readonly store: { readonly ledger: Pick<Store['ledger'], 'latest'> }
  readonly clock: Clock
  /** Called when the first organization is followed, for a viewer or a summary, and when none is followed any more. */
  readonly onWatched: (isWatched: boolean) => void
}

/** A connected viewer. */
export interface Viewer {
  /** Sends an event, which contains only data of the viewer's organization. */
  send(event: string, data: unknown): void
}

/** Maximum rows per organization, as many as a page shows. */
export const ROWS_MAX = 500
/** Short enough to look live, and long enough that many requests cause one repaint. */
const SEND_INTERVAL_MS = 500
/** Maximum rows in one event. People do not read more, and the charts count all. */
const ROWS_PER_EVENT = 100
/** How long an organization is followed after a summary: longer than the usual time between two summaries. */
const LINGER_MS = 15_000
/** Maximum organizations that are followed for their summaries. */
const LINGERING_MAX = 16
/** Routes of model calls; other operations are not listed. */
const MODEL_ROUTES: ReadonlySet<string> = new Set([
  '/responses',
  '/chat/completions',
  '/messages',
  '/embeddings',
  ...['generateContent', 'streamGenerateContent', 'embedContent', 'batchEmbedContents'].map(
    method => `/v1beta/models/{model}:${method}`,
  ),
])

/** The last 15 minutes of an organization. */
export interface FeedSummary {
  /** Less than 15 minutes if the first rows, which came from the Store, are newer. */
  readonly windowSeconds: number
  readonly requests: number
  readonly failed: number
  readonly cost: number
  /** Time to the first token: median and 95th percentile of the latest requests; null: none had content. */
  readonly p50: number | null
  readonly p95: number | null
  readonly models: readonly ModelFigures[]
  /** Oldest first. */
  readonly rows: readonly RequestRow[]
}

/** Kept while it has viewers, and for LINGER_MS after a summary; about 500 KB. */
interface Organization {
  /** Keyed by id, oldest first. */
  rows: Map<string, RequestRow>
  readonly series: Series
  readonly models: FiguresByModel
  readonly viewers: Set<Viewer>
  /** Rows that are not sent yet. */
  changed: Map<string, RequestRow>
  /** Number of viewers, including those that wait for the first rows, and of summaries. */
  uses: number
  /** Start time of its first row, if the Store may have older ones. */
  sinceMs: number | null
  /** Resolves once the latest requests of the Store are loaded. */
  readonly filled: Promise<void>
}

export class Feed {
  readonly #deps: FeedDeps
  readonly #organizations = new Map<string, Organization>()
  readonly #lingering = new Map<string, { readonly organization: Organization; readonly timer: Timer }>()
  #timer: Timer | null = null

  constructor(deps: FeedDeps) {
    this.#deps = deps
  }

  get isWatched(): boolean {
    return this.#organizations.size > 0
  }

  /** Adds usage records; known ones are ignored. */
  record(records: readonly UsageRecord[]): void {
    const nowMs = this.#deps.clock.nowMs()
    for (const record of records) {
      const organization = this.#organizations.get(record.organizationId)
      if (organization !== undefined) this.#add(organization, record, nowMs)
    }
  }

  /** Adds finished requests, as reported by serve threads. */
  ended(requests: readonly EndedRequest[]): void {
    for (const ended of requests) {
      const organization = this.#organizations.get(ended.organization)
      if (organization === undefined || !MODEL_ROUTES.has(ended.route)) continue
      const row = rowOfEnded(ended)
      const knownRow = organization.rows.get(row.id)
      this.#put(organization, knownRow === undefined ? row : joined(knownRow, row))
    }
  }

  /** Sends the viewer the latest requests and the charts, then all changes. Returns a function that ends this. */
  async watch(organizationId: string, viewer: Viewer): Promise<() => void> {
    const organization = this.#enter(organizationId)
    try {
      await organization.filled
    } catch (error) {
      this.#leave(organizationId, organization)
      throw error
    }
    // Earlier changes are in the first event of the new viewer, so they are sent to the others first.
    this.#flush(organization)
    viewer.send('start', {
      now: this.#deps.clock.nowMs(),
      rows: [...organization.rows.values()],
      spans: organization.series.all(),
      spanSeconds: SPAN_SECONDS,
      spansMax: SPANS_MAX,
    })
    organization.viewers.add(viewer)
    return () => {
      if (organization.viewers.delete(viewer)) this.#leave(organizationId, organization)
    }
  }

  /** The last 15 minutes. The organization is followed a little longer, so that the next summary is complete. */
  async summary(organizationId: string): Promise<FeedSummary> {
    const organization = this.#enter(organizationId)
    try {
      await organization.filled
      this.#linger(organizationId)
      const nowMs = this.#deps.clock.nowMs()
      const rows = [...organization.rows.values()]
      const firstTokens = rows.flatMap(({ firstTokenMs }) => firstTokenMs ?? []).sort((a, b) => a - b)
      const oldest = nowMs / 1000 - SPAN_SECONDS * SPANS_MAX
      const spans = organization.series.all().filter(({ from }) => from > oldest)
      const sum = (figureOf: (span: (typeof spans)[number]) => number) =>
        spans.reduce((total, span) => total + figureOf(span), 0)
      return {
        windowSeconds: Math.min(SPAN_SECONDS * SPANS_MAX, secondsSince(organization.sinceMs, nowMs)),
        requests: sum(({ requests }) => requests),
        failed: sum(({ failed }) => failed),
        cost: sum(({ cost }) => cost),
        p50: percentile(firstTokens, 0.5),
        p95: percentile(firstTokens, 0.95),
        models: organization.models.all(nowMs),
        rows,
      }
    } finally {
      this.#leave(organizationId, organization)
    }
  }

  close(): void {
    this.#timer?.cancel()
    this.#timer = null
    for (const { timer } of this.#lingering.values()) timer.cancel()
    this.#lingering.clear()
  }

  /** Keeps the organization a little longer. */
  #linger(organizationId: string): void {
    const lingering = this.#lingering.get(organizationId)
    if (lingering === undefined && this.#lingering.size >= LINGERING_MAX) return
    lingering?.timer.cancel()
    const organization = lingering?.organization ?? this.#enter(organizationId)
    const timer = this.#deps.clock.after(LINGER_MS, () => {
      this.#lingering.delete(organizationId)
      this.#leave(organizationId, organization)
    })
    this.#lingering.set(organizationId, { organization, timer })
  }

  #enter(id: string): Organization {
    let organization = this.#organizations.get(id)
    if (organization === undefined) {
      const filling = Promise.withResolvers<void>()
      organization = {
        rows: new Map(),
        series: new Series(),
        models: new FiguresByModel(),
        viewers: new Set(),
        changed: new Map(),
        uses: 0,
        sinceMs: null,
        filled: filling.promise,
      }
      this.#organizations.set(id, organization)
      if (this.#organizations.size === 1) this.#deps.onWatched(true)
      // Later records arrive when they are shipped; earlier ones are in the Store.
      this.#fill(id, organization).then(filling.resolve, filling.reject)
    }
    organization.uses++
    return organization
  }

  #leave(id: string, organization: Organization): void {
    if (--organization.uses > 0) return
    this.#organizations.delete(id)
    if (this.#organizations.size === 0) this.#deps.onWatched(false)
  }

  /** Adds the latest records of the Store before rows that have arrived in the meantime. */
  async #fill(organizationId: string, organization: Organization): Promise<void> {
    const records = await this.#deps.store.ledger.latest({ organizationId }, ROWS_MAX)
    const oldest = records[ROWS_MAX - 1]
    if (oldest !== undefined) organization.sinceMs = Date.parse(oldest.createdAt)
    const live = organization.rows
    organization.rows = new Map()
    const nowMs = this.#deps.clock.nowMs()
    for (const record of records.toReversed()) {
      if ((live.get(record.id)?.cost ?? null) === null) this.#add(organization, record, nowMs)
    }
    for (const [id, row] of live) {
      const storedRow = organization.rows.get(id)
      organization.rows.delete(id)
      this.#put(organization, storedRow === undefined || row.cost !== null ? row : joined(storedRow, row))
    }
    organization.changed.clear()
    organization.series.takeChanged()
  }

  #add(organization: Organization, record: UsageRecord, nowMs: number): void {
    const { rows, series } = organization
    if (isFee(record)) {
      series.addCost(toUsd(record.cost), record.createdAt, nowMs)
      return
    }
    const row = rowOfRecord(record)
    const knownRow = rows.get(row.id)
    if (knownRow !== undefined && knownRow.cost !== null) return
    const merged = knownRow === undefined ? row : joined(row, knownRow)
    series.add(row, nowMs)
    // The record of a request that reached no provider has no model; its thread reports the requested one.
    organization.models.add(merged, nowMs)
    this.#put(organization, merged)
  }

  #put(organization: Organization, row: RequestRow): void {
    const { rows } = organization
    rows.set(row.id, row)
    if (rows.size > ROWS_MAX) {
      const [oldest] = rows.keys()
      if (oldest !== undefined) rows.delete(oldest)
    }
    if (organization.viewers.size === 0) return
    organization.changed.set(row.id, row)
    this.#timer ??= this.#deps.clock.after(SEND_INTERVAL_MS, () => {
      this.#timer = null
      for (const entry of this.#organizations.values()) this.#flush(entry)
    })
  }

  #flush(organization: Organization): void {
    const { changed, viewers, series } = organization
    const spans = series.takeChanged()
    if (changed.size === 0 && spans.length === 0) return
    organization.changed = new Map()
    if (viewers.size === 0) return
    const rows = [...changed.values()]
    const event = {
      now: this.#deps.clock.nowMs(),
      rows: rows.slice(-ROWS_PER_EVENT),
      unlisted: Math.max(0, rows.length - ROWS_PER_EVENT),
      spans,
    }
    for (const viewer of viewers) viewer.send('more', event)
  }
}

function secondsSince(sinceMs: number | null, nowMs: number): number {
  return sinceMs === null ? Number.POSITIVE_INFINITY : Math.max(1, Math.ceil((nowMs - sinceMs) / 1000))
}
