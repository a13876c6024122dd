/** A panel of the dashboard, and the expressions that panels ask Prometheus for. Pure. */
import { THREAD_METRICS } from '../src/base/metrics/metrics.ts'

export interface Query {
  readonly expr: string
  /** Name of each line, with `{{label}}` for a label. */
  readonly legend: string
}

export interface Panel {
  readonly title: string
  /** What it shows, and what to make of it. */
  readonly description: string
  /** Grafana's name of the unit. */
  readonly unit: string
  readonly queries: readonly Query[]
  readonly kind?: 'timeseries' | 'stat'
  /** Lines lie on top of each other and add up. */
  readonly stacked?: boolean
  /** Columns of 24; default 8. */
  readonly width?: number
  /** Rows of the grid; default 8. */
  readonly height?: number
  /** From this value on it is shown red. */
  readonly alarm?: number
  /** Below this value it is shown red. */
  readonly floor?: number
}

export interface Row {
  readonly title: string
  readonly panels: readonly Panel[]
  /** Open at first; other rows are folded. */
  readonly isOpen?: boolean
}

/** Labels that have a variable of the dashboard. */
export const VARIABLE_LABELS = ['provider', 'model'] as const
const LABELS: ReadonlyMap<string, readonly string[]> = new Map(
  THREAD_METRICS.map(({ name, labels }) => [name, labels]),
)
/** The series of a histogram. */
const OF_HISTOGRAM = /_(?:bucket|sum|count)$/

/** A selector that follows the variables of the metric's labels; `matchers` are further ones. */
export const of = (metric: string, matchers = ''): string => {
  const labels = LABELS.get(metric) ?? LABELS.get(metric.replace(OF_HISTOGRAM, '')) ?? []
  const followed = ['instance', ...VARIABLE_LABELS.filter(label => labels.includes(label))]
  const all = [...followed.map(label => `${label}=~"$${label}"`), ...(matchers === '' ? [] : [matchers])]
  return `${metric}{${all.join(',')}}`
}
export const rate = (metric: string, matchers = ''): string =>
  `rate(${of(metric, matchers)}[$__rate_interval])`
export const sumRate = (metric: string, by = '', matchers = ''): string =>
  `sum${by === '' ? '' : ` by (${by}) `}(${rate(metric, matchers)})`
export const quantile = (q: number, histogram: string, by = '', matchers = ''): string =>
  `histogram_quantile(${q}, ${sumRate(`${histogram}_bucket`, by === '' ? 'le' : `${by}, le`, matchers)})`
/** Part of the whole. */
export const share = (part: string, whole: string): string => `${part} / ${whole}`

export const quantiles = (histogram: string): Query[] =>
  [0.5, 0.95, 0.99].map(q => ({ expr: quantile(q, histogram), legend: `p${q * 100}` }))

/** Requests whose client waits: those of batches are tried again, and their failures are no outage. */
export const LIVE = 'route!~"batch/responses|batch/chat/completions|batch/messages|batch/embeddings"'

/** Stages in which the gateway itself is at work; in the others it waits for a provider or the client. */
export const OWN_STAGES = 'parse|auth|guard|route|admit|encode|flush'
