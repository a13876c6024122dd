/**
 * The live list: keeps the last requests of each organization, and sends changes to those who watch. Main thread.
 * A viewer gets what belongs to the organization of its key, no matter what else happens here.
 */
import type { Clock, Timer } from '../clock.ts'
import { toUsd } from '../money.ts'
import type { EndedRequest } from '../protocol/ended-request.ts'
import type { Store } from '../storage/store.ts'
import { SERVICE_ORGANIZATION_ID, type UsageRecord } from '../storage/usage.ts'
import { isFee, joined, type RequestRow, rowOfEnded, rowOfRecord } from './request-row.ts'
import { Series, SPAN_SECONDS, SPANS_MAX } from './series.ts'

export interface FeedDeps {
  readonly store: { readonly ledger: Pick<Store['ledger'], 'latest'> }
  readonly clock: Clock
  /** Told when the first viewer comes and when the last one goes. */
  readonly onWatched: (isWatched: boolean) => void
}

/** One who watches. */
export interface Viewer {
  /** Sends an event. Called with what belongs to its organization alone. */
  send(event: string, data: unknown): void
}

/** Rows of an organization: what a page shows. */
export const ROWS_MAX = 500
/** Organizations whose last requests are kept, about 500 KB each. */
const ORGANIZATIONS_MAX = 50
/** Rows of the Store for a page that opens. */
const EARLIER_MAX = 200
/** Often enough to look live, and one repaint for many requests. */
const SEND_MS = 500
/** In one event: nobody reads more, and the charts count all. */
const ROWS_PER_EVENT = 100
/** Operations that ask models, by their route; others are not listed. */
const ASKING: ReadonlySet<string> = new Set(['/responses', '/chat/completions', '/messages', '/embeddings'])

interface Organization {
  /** By id, oldest first. */
  readonly rows: Map<string, RequestRow>
  readonly series: Series
  readonly viewers: Set<Viewer>
  /** Not sent yet. */
  changed: Map<string, RequestRow>
}

export class Feed {
  readonly #deps: FeedDeps
  readonly #organizations = new Map<string, Organization>()
  #timer: Timer | null = null

  constructor(deps: FeedDeps) {
    this.#deps = deps
  }

  get viewers(): number {
    let count = 0
    for (const { viewers } of this.#organizations.values()) count += viewers.size
    return count
  }

  /** Takes usage records; one that came before is ignored. */
  record(records: readonly UsageRecord[]): void {
    const nowMs = this.#deps.clock.nowMs()
    for (const record of records) {
      if (record.organizationId === SERVICE_ORGANIZATION_ID) continue
      const organization = this.#of(record.organizationId)
      if (isFee(record)) {
        organization.series.addCost(toUsd(record.cost), record.createdAt, nowMs)
        continue
      }
      const row = rowOfRecord(record)
      const known = organization.rows.get(row.id)
      if (known !== undefined && known.cost !== null) continue
      organization.series.add(row, nowMs)
      this.#put(organization, known === undefined ? row : joined(row, known))
    }
  }

  /** Takes requests that are over, as serve threads tell them. */
  ended(requests: readonly EndedRequest[]): void {
    for (const ended of requests) {
      if (!ASKING.has(ended.route)) continue
      const organization = this.#of(ended.organization)
      const row = rowOfEnded(ended)
      const known = organization.rows.get(row.id)
      this.#put(organization, known === undefined ? row : joined(known, row))
    }
  }

  /** Sends the viewer the last requests and the charts, then all that changes. Returns how to leave. */
  async watch(organizationId: string, viewer: Viewer): Promise<() => void> {
    const earlier = await this.#deps.store.ledger.latest({ organizationId }, EARLIER_MAX)
    const organization = this.#of(organizationId)
    // Changes up to now are in the first event of the new viewer, and still due to the others.
    this.#flush(organization)
    const kept = organization.rows
    const older = earlier.filter(record => !isFee(record) && !kept.has(record.id)).map(rowOfRecord)
    const rows = [...older, ...kept.values()].toSorted(byEnd).slice(-ROWS_MAX)
    viewer.send('start', {
      now: this.#deps.clock.nowMs(),
      rows,
      spans: organization.series.all(),
      spanSeconds: SPAN_SECONDS,
      spansMax: SPANS_MAX,
    })
    organization.viewers.add(viewer)
    if (this.viewers === 1) this.#deps.onWatched(true)
    return () => {
      if (organization.viewers.delete(viewer) && this.viewers === 0) this.#deps.onWatched(false)
    }
  }

  close(): void {
    this.#timer?.cancel()
    this.#timer = null
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
    this.#timer ??= this.#deps.clock.after(SEND_MS, () => {
      this.#timer = null
      for (const each of this.#organizations.values()) this.#flush(each)
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

  #of(id: string): Organization {
    let organization = this.#organizations.get(id)
    if (organization === undefined) {
      if (this.#organizations.size >= ORGANIZATIONS_MAX) this.#forgetOne()
      organization = { rows: new Map(), series: new Series(), viewers: new Set(), changed: new Map() }
      this.#organizations.set(id, organization)
    }
    return organization
  }

  /** Forgets the organization that was seen first and that nobody watches. */
  #forgetOne(): void {
    for (const [id, { viewers }] of this.#organizations) {
      if (viewers.size > 0) continue
      this.#organizations.delete(id)
      return
    }
  }
}

function byEnd(one: RequestRow, other: RequestRow): number {
  return Date.parse(one.at) + one.durationMs - Date.parse(other.at) - other.durationMs
}
