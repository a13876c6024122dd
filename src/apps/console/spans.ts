/**
 * An organization's chart data for the last hours, from the ledger: requests, failures, cost and time to the first
 * token, in intervals of several minutes. Completed intervals are kept, so that a page that asks again costs little.
 * Main thread.
 */
import { LRUCache } from 'lru-cache'
import { type Clock, isoInstant } from '../../base/clock.ts'
import { refuseField } from '../../base/errors.ts'
import { sumToUsd } from '../../base/money.ts'
import type { Store } from '../../storage/store.ts'
import { percentile, type SpanFigures } from './series.ts'
import type { View } from './view.ts'

interface SpansDeps {
  readonly store: { readonly ledger: Pick<Store['ledger'], 'span'> }
  readonly clock: Clock
}

/** Seconds of a step, by the hours of the range: some sixty to a hundred steps. */
const STEPS: ReadonlyMap<string, number> = new Map([
  ['1', 60],
  ['6', 300],
  ['24', 900],
])
/** Of one span: enough for a percentile that people look at. */
const SAMPLES_MAX = 128
/** All ranges of some organizations. */
const KEPT_MAX = 2_000
/** A record may reach the ledger this long after its request began. */
const SETTLED_SECONDS = 120
/** Whatever was late is in the charts after this. */
const KEPT_MS = 600_000

interface LongSpan extends SpanFigures {
  /** Less than a step where it is not over. */
  readonly seconds: number
}

export function createSpans({ store, clock }: SpansDeps): View {
  const cache = new LRUCache<string, LongSpan>({
    max: KEPT_MAX,
    ttl: KEPT_MS,
    // Otherwise a timer of the library would cache the answer of the clock.
    ttlResolution: 0,
    // Never 0, which the library takes for "no time".
    perf: { now: () => clock.monotonicMs() + 1 },
  })
  const read = async (organizationId: string, from: number, until: number): Promise<LongSpan> => {
    const [since, end] = [isoInstant(from * 1000), isoInstant(until * 1000)]
    const sums = await store.ledger.span({ organizationId, since, until: end }, SAMPLES_MAX)
    const sorted = sums.firstTokenMs.toSorted((one, other) => one - other)
    return {
      from,
      seconds: until - from,
      requests: sums.requests,
      failed: sums.failed,
      cost: sumToUsd(sums.cost),
      p50: percentile(sorted, 0.5),
      p95: percentile(sorted, 0.95),
    }
  }
  return async ({ organizationId }, query) => {
    const hours = query.get('hours') ?? ''
    const step = STEPS.get(hours)
    if (step === undefined) throw refuseField('hours', `must be one of ${[...STEPS.keys()].join(', ')}`)
    const now = clock.nowMs() / 1000
    const last = Math.floor(now / step) * step
    const first = last - Number(hours) * 3600 + step
    const spans: LongSpan[] = []
    for (let from = first; from <= last; from += step) {
      const name = `${organizationId}\n${step}\n${from}`
      let span = cache.get(name)
      if (span === undefined) {
        span = await read(organizationId, from, Math.min(from + step, Math.ceil(now)))
        if (from + step + SETTLED_SECONDS <= now) cache.set(name, span)
      }
      if (span.requests > 0 || span.cost > 0) spans.push(span)
    }
    return { hours: Number(hours), step_seconds: step, first, last, spans }
  }
}
