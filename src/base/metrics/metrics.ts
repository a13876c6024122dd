/**
 * The metrics of one thread, built from the rows of table.ts on a registry of prom-client. Models and providers have
 * their own series up to a limit; the others count as `other`. An exchange looks up its series once, not for each
 * value. Public entry point of this module. Leaf.
 */
import Gauge from 'prom-client/lib/gauge.js'
import Registry from 'prom-client/lib/registry.js'
import type { Declaration } from './declaration.ts'
import { GenAiMetrics } from './gen-ai.ts'
import { type Count, Counter, type Distribution, Histogram } from './series.ts'
import { OTHER, PairLookup, SPEED_METRICS, speedSeries } from './speeds.ts'
import { STAGES } from './stages.ts'
import { type BreakerChange, type EndpointChoice, METRICS } from './table.ts'

/** Models with their own series, three each. The limit keeps a scrape small with thousands of models. */
const MAX_MODELS = 200
/** Providers with their own series, about fifty each. */
const MAX_PROVIDERS = 100

export type Metrics = ReturnType<typeof createMetrics>

export interface MetricLabels {
  /** Name of the thread in series that are not summed; stays the same after a restart. */
  readonly thread: string
  /** Model ids of the catalogue; the first 200 have their own series. */
  readonly models: Iterable<string>
  /** Provider slugs with an endpoint in the catalogue; the first 100 have their own series. */
  readonly providers: Iterable<string>
  /**
   * The name of a provider in the OpenTelemetry conventions, by slug. Absent: no metrics under the names of these
   * conventions.
   */
  readonly genAiName?: (slug: string) => string
}

const NO_LABELS: MetricLabels = { thread: 'main', models: [], providers: [] }

/** The metrics of each thread, without the metrics of the OpenTelemetry conventions. */
export const THREAD_METRICS: readonly Declaration[] = Object.values({ ...METRICS, ...SPEED_METRICS })

type LabelOf<Row extends Declaration> = Row['labels'][number]
type MetricOf<Row extends Declaration> = Row extends { readonly kind: 'counter' }
  ? Counter<LabelOf<Row>>
  : Row extends { readonly kind: 'histogram' }
    ? Histogram<LabelOf<Row>>
    : Gauge<LabelOf<Row>>
type MetricsOf<Table extends Readonly<Record<string, Declaration>>> = {
  readonly [Name in keyof Table]: MetricOf<Table[Name]>
}

/** Creates the metrics of one thread on a new registry. */
export function createMetrics(labels: MetricLabels = NO_LABELS) {
  const registry = new Registry()
  const metrics = declare({ ...METRICS, ...SPEED_METRICS }, registry, labels.thread)
  const ofModel = lookupUpTo(labels.models, MAX_MODELS, model => modelSeries(model, metrics))
  const ofProvider = lookupUpTo(labels.providers, MAX_PROVIDERS, provider =>
    providerSeries(provider, metrics),
  )
  const pairs = {
    provider: (slug: string) => ofProvider.find(slug).label,
    model: (id: string) => ofModel.find(id).label,
  }
  const speeds = new PairLookup(pairs, (provider, model) => speedSeries(provider, model, metrics))
  const { genAiName } = labels
  return {
    ...metrics,
    registry,
    /** The only series of the time to the first token. */
    firstToken: metrics.timeToFirstToken.of(),
    /** The speed of a model at a provider. */
    speeds,
    /** Null: disabled. */
    genAi: genAiName === undefined ? null : new GenAiMetrics({ ...pairs, registry, nameOf: genAiName }),
    /** The series of a model, by id. */
    ofModel: ofModel.find,
    /** The series of a provider, by slug. */
    ofProvider: ofProvider.find,
    /** Creates series for further models and providers, up to the same limits. */
    learn(labels: Pick<MetricLabels, 'models' | 'providers'>): void {
      ofModel.learn(labels.models)
      ofProvider.learn(labels.providers)
    },
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
    case 'counter':
      return new Counter({ name, help, labelNames, registry })
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

/** The series of one model. */
export interface ModelSeries {
  /** Its id, or `other` for models without their own series. */
  readonly label: string
  readonly inputTokens: Count
  readonly outputTokens: Count
  /** USD. */
  readonly cost: Count
}

/** The series of one provider. */
interface ProviderSeries {
  /** Its slug, or `other` for providers without their own series. */
  readonly label: string
  /** Successful attempts. */
  readonly answered: Count
  /** Attempts that failed with this code. */
  failure(code: string): Count
  /** Seconds to its response head. */
  readonly latency: Distribution
  /** Model calls that tried it first for this reason. */
  endpointChoice(reason: EndpointChoice): Count
  /** Changes of its endpoints' breakers. */
  breakerChange(change: BreakerChange): Count
}

/** The series of the stages, with a buffer for the times of one exchange. */
interface StageSeries {
  /** In the order of `STAGES`. */
  readonly durations: readonly Distribution[]
  readonly spentMs: Float64Array
}

function modelSeries(
  model: string,
  { tokens, cost }: { readonly tokens: Counter<'direction' | 'model'>; readonly cost: Counter<'model'> },
): ModelSeries {
  return {
    label: model,
    inputTokens: tokens.of('input', model),
    outputTokens: tokens.of('output', model),
    cost: cost.of(model),
  }
}

function providerSeries(
  provider: string,
  {
    upstreamRequests,
    upstreamLatency,
    endpointChoices,
    breakerChanges,
  }: {
    readonly upstreamRequests: Counter<'provider' | 'outcome'>
    readonly upstreamLatency: Histogram<'provider'>
    readonly endpointChoices: Counter<'provider' | 'reason'>
    readonly breakerChanges: Counter<'provider' | 'change'>
  },
): ProviderSeries {
  return {
    label: provider,
    answered: upstreamRequests.of(provider, 'ok'),
    failure: code => upstreamRequests.of(provider, code),
    latency: upstreamLatency.of(provider),
    endpointChoice: reason => endpointChoices.of(provider, reason),
    breakerChange: change => breakerChanges.of(provider, change),
  }
}

function stageSeries(overhead: Histogram<'stage'>): StageSeries {
  return {
    durations: STAGES.map(stage => overhead.of(stage)),
    spentMs: new Float64Array(STAGES.length),
  }
}

/** A stored trace with the times that are known here. */
interface TimedTrace {
  readonly traceId: string
  readonly exchanges: Iterable<{
    readonly attempts: Iterable<{
      readonly provider: string
      readonly model: string
      readonly firstTokenMs: number | null
    }>
  }>
}

/** Adds a stored trace as an exemplar to the times that were observed for its request. @param atMs Unix milliseconds */
export function exemplify(
  { requestDuration, firstToken, speeds }: Pick<Metrics, 'requestDuration' | 'firstToken' | 'speeds'>,
  { traceId, exchanges }: TimedTrace,
  line: {
    readonly route: string
    readonly durationMs: number
    readonly firstTokenMs?: number | null | undefined
  },
  isAwaited: boolean,
  atMs: number,
): void {
  const exemplarOf = (ms: number) => ({ traceId, value: ms / 1000, atMs })
  requestDuration.of(line.route).exemplify(exemplarOf(line.durationMs))
  if (isAwaited && line.firstTokenMs != null) firstToken.exemplify(exemplarOf(line.firstTokenMs))
  for (const { attempts } of exchanges)
    for (const { provider, model, firstTokenMs } of attempts)
      if (firstTokenMs !== null) speeds.of(provider, model).firstToken.exemplify(exemplarOf(firstTokenMs))
}

/** One entry for each known value, and one that all others share. */
interface Lookup<Entry> {
  readonly find: (value: string) => Entry
  /** Adds entries for further values, up to the limit. */
  readonly learn: (values: Iterable<string>) => void
}

/** Creates a lookup with an entry for each of the first `limit` values; all others share the entry for `other`. */
function lookupUpTo<Entry>(
  values: Iterable<string>,
  limit: number,
  make: (label: string) => Entry,
): Lookup<Entry> {
  const entries = new Map<string, Entry>()
  const learn = (values: Iterable<string>): void => {
    for (const value of values) {
      if (entries.size === limit) break
      if (!entries.has(value)) entries.set(value, make(value))
    }
  }
  learn(values)
  const others = make(OTHER)
  return { find: value => entries.get(value) ?? others, learn }
}
