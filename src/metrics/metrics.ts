/**
 * The metrics of one thread, built from the rows of table.ts on a registry of prom-client. Label values without a
 * bound, models and providers, have series of their own up to a limit; the rest is counted as `other`. The door of
 * this folder. Leaf.
 */
import { Gauge, Registry } from 'prom-client'
import { bounded, modelSeries, providerSeries, stageSeries } from './exchange-series.ts'
import { Counter, Histogram } from './series.ts'
import { type Declaration, METRICS } from './table.ts'

export { CREDENTIAL_EVICTIONS, type GuardrailAction } from './table.ts'

/** At most this many models have series of their own: two each, so that thousands of rows do not fill a scrape. */
const MODELS_MAX = 200
/** At most this many providers: some fifty series each. */
const PROVIDERS_MAX = 100

export type Metrics = ReturnType<typeof createMetrics>

export interface MetricLabels {
  /** Names the thread in series that are not summed; the same again after a restart. */
  readonly thread: string
  /** Model ids of the catalogue; the first 200 have series of their own. */
  readonly models: Iterable<string>
  /** Provider slugs with an endpoint in the catalogue; the first 100 have series of their own. */
  readonly providers: Iterable<string>
}

const NO_LABELS: MetricLabels = { thread: 'main', models: [], providers: [] }

type LabelOf<Row extends Declaration> = Row['labels'][number]
type MetricOf<Row extends Declaration> = Row extends { readonly kind: 'counter' }
  ? Counter<LabelOf<Row>>
  : Row extends { readonly kind: 'histogram' }
    ? Histogram<LabelOf<Row>>
    : Gauge<LabelOf<Row>>
type MetricsOf<Table extends Readonly<Record<string, Declaration>>> = {
  readonly [Name in keyof Table]: MetricOf<Table[Name]>
}

/** Builds the metrics of one thread on a registry of their own. */
export function createMetrics(labels: MetricLabels = NO_LABELS) {
  const registry = new Registry()
  const metrics = declare(METRICS, registry, labels.thread)
  return {
    ...metrics,
    registry,
    /** The series of a model, by its id. */
    ofModel: bounded(labels.models, MODELS_MAX, model => modelSeries(model, metrics)),
    /** The series of a provider, by its slug. */
    ofProvider: bounded(labels.providers, PROVIDERS_MAX, provider => providerSeries(provider, metrics)),
    stages: stageSeries(metrics.overhead),
  }
}

function declare<const Table extends Readonly<Record<string, Declaration>>>(
  table: Table,
  registry: Registry,
  thread: string,
): MetricsOf<Table> {
  const metrics = Object.entries(table).map(([key, row]) => [key, create(row, registry, thread)])
  return Object.fromEntries(metrics) as MetricsOf<Table>
}

function create(row: Declaration, registry: Registry, thread: string): object {
  const { name, help, labels: labelNames } = row
  switch (row.kind) {
    case 'counter': {
      const counter = new Counter({ name, help, labelNames, registry })
      for (const labels of combinations(row.fromZero ?? {})) counter.inc(labels, 0)
      return counter
    }
    case 'histogram':
      return new Histogram({ name, help, labelNames, buckets: row.buckets, registry })
    case 'gauge': {
      const { read } = row
      const gauge = { name, help, labelNames, registers: [registry] }
      if (read === undefined) return new Gauge(gauge)
      return new Gauge({
        ...gauge,
        collect() {
          this.set({ thread }, read())
        },
      })
    }
  }
}

/** Every combination of the values of each label; none for no labels. */
function combinations(values: Readonly<Record<string, readonly string[]>>): Record<string, string>[] {
  const names = Object.entries(values)
  if (names.length === 0) return []
  return names.reduce<Record<string, string>[]>(
    (rows, [name, all]) => rows.flatMap(row => all.map(value => ({ ...row, [name]: value }))),
    [{}],
  )
}
