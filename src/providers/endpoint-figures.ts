/** Measured endpoint statistics, for catalogue listings. Types only. */
import type { Endpoint } from '../protocol/provider.ts'

export interface Percentiles {
  readonly p50: number
  readonly p75: number
  readonly p90: number
  readonly p99: number
}

export interface EndpointFigures {
  /** Percent of successful attempts, 0 to 100; null: fewer than 100 attempts. */
  readonly uptimeLast5m: number | null
  readonly uptimeLast30m: number | null
  readonly uptimeLast1d: number | null
  /** Milliseconds to the first token; null: nothing was measured. */
  readonly latencyLast30m: Percentiles | null
  /** Tokens per second. */
  readonly throughputLast30m: Percentiles | null
}

/** Uptime, latency and throughput of each endpoint, as this gateway measured them. */
export interface MeasuredEndpoints {
  /** Null: nothing was measured. */
  of(endpoint: Endpoint): EndpointFigures | null
}

/** For threads and tests that measure nothing. */
export const NO_FIGURES: MeasuredEndpoints = { of: () => null }
