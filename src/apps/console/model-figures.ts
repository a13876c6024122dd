/**
 * Statistics by model for the last 15 minutes: requests, failures, cost and time to the first token, kept by minute.
 * Bounded for any rate and any number of models. Pure.
 */
import { isFailure, type RequestRow } from './request-row.ts'
import { percentile } from './series.ts'

/** Cost in USD; median and 95th percentile of the time to the first token, in milliseconds. */
export interface ModelFigures {
  /** Null: requests without a known model, and those of models beyond the limits below. */
  readonly model: string | null
  readonly requests: number
  readonly failed: number
  readonly cost: number
  readonly p50: number | null
  readonly p95: number | null
}

const MINUTE_SECONDS = 60
const MINUTES_MAX = 15
/** Maximum models per minute: people read this table. */
const MODELS_MAX = 40
/** Maximum of those that reached no provider: clients choose these names, which must not displace real models. */
const UNSERVED_MAX = 10
/** Maximum samples per model and minute. */
const SAMPLES_MAX = 64

interface Sums {
  /** True once a provider was called. */
  isServed: boolean
  requests: number
  failed: number
  cost: number
  samples: number
  readonly firstTokenMs: number[]
}

export class FiguresByModel {
  /** Keyed by minute, then by model; '' stands for null. */
  readonly #minutes = new Map<number, Map<string, Sums>>()

  /** Counts a request in the minute in which it ended, if that is in the last 15. An inner call adds only its cost. */
  add(row: RequestRow, nowMs: number): void {
    const { at, durationMs, model, cost, firstTokenMs } = row
    const nowSeconds = nowMs / 1000
    const seconds = Math.min((Date.parse(at) + durationMs) / 1000, nowSeconds)
    const minute = Math.floor(seconds / MINUTE_SECONDS)
    const oldest = nowSeconds / MINUTE_SECONDS - MINUTES_MAX
    if (!(minute > oldest)) return
    let models = this.#minutes.get(minute)
    if (models === undefined) {
      for (const old of this.#minutes.keys()) if (old <= oldest) this.#minutes.delete(old)
      models = new Map()
      this.#minutes.set(minute, models)
    }
    const isServed = row.provider !== null
    const name = model !== null && (models.has(model) || hasRoom(models, isServed)) ? model : ''
    const sums = models.get(name) ?? noSums()
    models.set(name, sums)
    sums.isServed ||= isServed
    sums.cost += cost ?? 0
    if (row.isInner) return
    sums.requests++
    if (isFailure(row)) sums.failed++
    if (firstTokenMs !== null) sums.firstTokenMs[sums.samples++ % SAMPLES_MAX] = firstTokenMs
  }

  /** The models with the most requests first. */
  all(nowMs: number): ModelFigures[] {
    const oldest = nowMs / 1000 / MINUTE_SECONDS - MINUTES_MAX
    const totals = new Map<string, Sums>()
    for (const [minute, models] of this.#minutes) {
      if (minute <= oldest) continue
      for (const [model, { requests, failed, cost, firstTokenMs }] of models) {
        const sums = totals.get(model) ?? noSums()
        sums.requests += requests
        sums.failed += failed
        sums.cost += cost
        sums.firstTokenMs.push(...firstTokenMs)
        totals.set(model, sums)
      }
    }
    return [...totals]
      .map(([model, { requests, failed, cost, firstTokenMs }]) => {
        const sorted = firstTokenMs.toSorted((a, b) => a - b)
        const [p50, p95] = [percentile(sorted, 0.5), percentile(sorted, 0.95)]
        return { model: model === '' ? null : model, requests, failed, cost, p50, p95 }
      })
      .toSorted((a, b) => b.requests - a.requests)
  }
}

function noSums(): Sums {
  return { isServed: false, requests: 0, failed: 0, cost: 0, samples: 0, firstTokenMs: [] }
}

/** True if the minute may get one more model. */
function hasRoom(models: ReadonlyMap<string, Sums>, isServed: boolean): boolean {
  if (models.size >= MODELS_MAX) return false
  if (isServed) return true
  let unserved = 0
  for (const sums of models.values()) if (!sums.isServed) unserved++
  return unserved < UNSERVED_MAX
}
