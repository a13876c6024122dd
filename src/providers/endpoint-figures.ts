/** What is measured of an endpoint, as the catalogue tells it. Types only. */
import type { Endpoint } from './provider.ts'

/** Null: too little was seen. */
export interface Percentiles {
  readonly p50: number
  readonly p75: number
  readonly p90: number
  readonly p99: number
}

export interface EndpointFigures {
  /** Percent of the attempts that count, 0 to 100; null: too few. */
  readonly uptimeLast5m: number | null
  readonly uptimeLast30m: number | null
  readonly uptimeLast1d: number | null
  /** Milliseconds to the first token. */
  readonly latencyLast30m: Percentiles | null
  /** Tokens per second. */
  readonly throughputLast30m: Percentiles | null
}

/** The figures of all endpoints. */
export interface MeasuredEndpoints {
  /** Null: nothing was seen of it. */
  of(endpoint: Endpoint): EndpointFigures | null
}

/** Where nothing is measured. */
export const UNMEASURED: MeasuredEndpoints = { of: () => null }
