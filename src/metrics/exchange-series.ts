/**
 * The series that every exchange adds to, found once for each model, provider and stage instead of once for each
 * value. Leaf. Hot path.
 */
import type { Count, Counter, Distribution, Histogram } from './series.ts'
import { STAGES, type Stopwatch } from './stages.ts'

/** What is counted of a model. */
export interface ModelSeries {
  readonly inputTokens: Count
  readonly outputTokens: Count
  /** USD. */
  readonly cost: Count
}

/** What is measured of a provider. */
export interface ProviderSeries {
  /** Attempts that it answered. */
  readonly answered: Count
  /** Attempts that failed with this code. */
  failed(code: string): Count
  /** Seconds to its response head. */
  readonly latency: Distribution
}

/** The series of the stages, with the room in which the times of one exchange are worked out. */
export interface StageSeries {
  /** In the order of `STAGES`. */
  readonly durations: readonly Distribution[]
  readonly spentMs: Float64Array
}

export function modelSeries(
  model: string,
  { tokens, cost }: { readonly tokens: Counter<'direction' | 'model'>; readonly cost: Counter<'model'> },
): ModelSeries {
  return {
    inputTokens: tokens.of('input', model),
    outputTokens: tokens.of('output', model),
    cost: cost.of(model),
  }
}

export function providerSeries(
  provider: string,
  {
    upstreamRequests,
    upstreamLatency,
  }: {
    readonly upstreamRequests: Counter<'provider' | 'outcome'>
    readonly upstreamLatency: Histogram<'provider'>
  },
): ProviderSeries {
  return {
    answered: upstreamRequests.of(provider, 'ok'),
    failed: code => upstreamRequests.of(provider, code),
    latency: upstreamLatency.of(provider),
  }
}

export function stageSeries(overhead: Histogram<'stage'>): StageSeries {
  return {
    durations: STAGES.map(stage => overhead.of(stage)),
    spentMs: new Float64Array(STAGES.length),
  }
}

/** Observes the stages of an exchange that is over; of a request that never became one, nothing. */
export function observeStages(
  { stages: { durations, spentMs } }: { readonly stages: StageSeries },
  watch: Stopwatch,
  endedMs: number,
): void {
  if (!watch.isExchange) return
  watch.read(endedMs, spentMs)
  for (let stage = 0; stage < durations.length; stage++) {
    const ms = spentMs[stage] ?? Number.NaN
    if (!Number.isNaN(ms)) durations[stage]?.observe(ms / 1000)
  }
}

/** Known values have something of their own, up to a limit; all others share one, made for `other`. */
export function bounded<One>(
  values: Iterable<string>,
  limit: number,
  make: (label: string) => One,
): (value: string) => One {
  const known = new Map<string, One>()
  for (const value of values) {
    if (known.size === limit) break
    known.set(value, make(value))
  }
  const others = make(OTHER)
  return value => known.get(value) ?? others
}

/** The label value of everything beyond the bounds. */
const OTHER = 'other'
