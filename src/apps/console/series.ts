/**
 * An organization's chart data for the last 15 minutes: requests, failures, cost and time to the first token, in
 * intervals of five seconds. Bounded at any rate. Pure.
 */
import { isFailure, type RequestRow } from './request-row.ts'

/** The values of one interval; costs in USD. */
export interface SpanFigures {
  /** Unix seconds of its start. */
  readonly from: number
  readonly requests: number
  readonly failed: number
  readonly cost: number
  /** Milliseconds to the first token, of at most 256 requests of the interval; null: no request had content. */
  readonly p50: number | null
  readonly p95: number | null
}

export const SPAN_SECONDS = 5
export const SPANS_MAX = 180
/** Enough samples for a percentile in a chart. */
const SAMPLES_MAX = 256

interface Span {
  readonly from: number
  requests: number
  failed: number
  cost: number
  samples: number
  readonly firstTokenMs: number[]
  isChanged: boolean
}

export class Series {
  /** Keyed by start. */
  readonly #spans = new Map<number, Span>()

  /**
   * Counts a request in the interval in which it ended, if that is in the last 15 minutes. An inner call adds only its
   * cost.
   */
  add(row: RequestRow, nowMs: number): void {
    const { at, durationMs, cost, firstTokenMs, isInner } = row
    const span = this.#span((Date.parse(at) + durationMs) / 1000, nowMs / 1000)
    if (span === null) return
    span.isChanged = true
    span.cost += cost ?? 0
    if (isInner) return
    span.requests++
    if (isFailure(row)) span.failed++
    if (firstTokenMs !== null) span.firstTokenMs[span.samples++ % SAMPLES_MAX] = firstTokenMs
  }

  /** Counts a cost that belongs to no separate request. */
  addCost(cost: number, at: string, nowMs: number): void {
    const span = this.#span(Date.parse(at) / 1000, nowMs / 1000)
    if (span === null) return
    span.isChanged = true
    span.cost += cost
  }

  all(): SpanFigures[] {
    return [...this.#spans.values()].map(figuresOf).toSorted((a, b) => a.from - b.from)
  }

  /** Returns the intervals that have changed since the last call. */
  takeChanged(): SpanFigures[] {
    const changed: SpanFigures[] = []
    for (const span of this.#spans.values()) {
      if (span.isChanged) changed.push(figuresOf(span))
      span.isChanged = false
    }
    return changed
  }

  #span(seconds: number, nowSeconds: number): Span | null {
    // Threads of one machine have the same clock, but the clock may have been changed since the record was made.
    const from = Math.floor(Math.min(seconds, nowSeconds) / SPAN_SECONDS) * SPAN_SECONDS
    const oldest = nowSeconds - SPANS_MAX * SPAN_SECONDS
    if (!(from > oldest)) return null
    let span = this.#spans.get(from)
    if (span === undefined) {
      for (const old of this.#spans.keys()) if (old <= oldest) this.#spans.delete(old)
      span = { from, requests: 0, failed: 0, cost: 0, samples: 0, firstTokenMs: [], isChanged: true }
      this.#spans.set(from, span)
    }
    return span
  }
}

function figuresOf({ from, requests, failed, cost, firstTokenMs }: Span): SpanFigures {
  const sorted = firstTokenMs.toSorted((a, b) => a - b)
  return { from, requests, failed, cost, p50: percentile(sorted, 0.5), p95: percentile(sorted, 0.95) }
}

/** By nearest rank, from ascending values; null: there are none. */
export function percentile(sorted: readonly number[], share: number): number | null {
  return sorted[Math.max(0, Math.ceil(sorted.length * share) - 1)] ?? null
}
