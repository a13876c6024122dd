/**
 * An organization's chart data for the last hours, from the ledger: requests, failures, cost and time to the first
 * token, in intervals of 1 to 15 minutes. Completed intervals are cached, so that repeated requests are cheap. Main
 * thread.
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

/** Seconds of an interval, by hours of the range: about sixty to a hundred intervals. */
const STEP_BY_HOURS: ReadonlyMap<string, number> = new Map([
  ['1', 60],
  ['6', 300],
  ['24', 900],
])
/** Samples per interval, enough for a percentile in a chart. */
const SAMPLES_MAX = 128
/** Enough for all ranges of a few organizations. */
const MAX_CACHED_SPANS = 2_000
/** A record may reach the ledger this long after its request began. */
const SETTLING_SECONDS = 120
/** After this time, cached intervals are read again to include late records. */
const CACHE_TTL_MS = 600_000

interface LongSpan extends SpanFigures {
  /** Less than a full interval if it is not over. */
  readonly seconds: number
}

export function createSpans({ store, clock }: SpansDeps): View {
  const cache = new LRUCache<string, LongSpan>({
    max: MAX_CACHED_SPANS,
    ttl: CACHE_TTL_MS,
    // Otherwise the library would cache the time with a timer.
    ttlResolution: 0,
    // Never 0, which the library reads as "no time".
    perf: { now: () => clock.monotonicMs() + 1 },
  })
  const read = async (organizationId: string, from: number, until: number): Promise<LongSpan> => {
    const [since, end] = [isoInstant(from * 1000), isoInstant(until * 1000)]
    const sums = await store.ledger.span({ organizationId, since, until: end }, SAMPLES_MAX)
    const sorted = sums.firstTokenMs.toSorted((a, b) => a - b)
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
    const step = STEP_BY_HOURS.get(hours)
    if (step === undefined)
      throw refuseField('hours', `must be one of ${[...STEP_BY_HOURS.keys()].join(', ')}`)
    const now = clock.nowMs() / 1000
    const last = Math.floor(now / step) * step
    const first = last - Number(hours) * 3600 + step
    const spans: LongSpan[] = []
    for (let from = first; from <= last; from += step) {
      const name = `${organizationId}\n${step}\n${from}`
      let span = cache.get(name)
      if (span === undefined) {
        span = await read(organizationId, from, Math.min(from + step, Math.ceil(now)))
        if (from + step + SETTLING_SECONDS <= now) cache.set(name, span)
      }
      if (span.requests > 0 || span.cost > 0) spans.push(span)
    }
    return { hours: Number(hours), step_seconds: step, first, last, spans }
  }
}
