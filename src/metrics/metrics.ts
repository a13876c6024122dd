/**
 * Every metric of the gateway, declared once. Labels come from closed sets only: route templates, configured
 * providers and models, enumerations; anything else is counted as `other`. docs/metrics.md lists the same
 * names, and a test holds the two equal. Leaf.
 */
import { getHeapStatistics } from 'node:v8'
import { Gauge, Registry } from 'prom-client'
import { bounded, modelSeries, providerSeries, stageSeries } from './exchange-series.ts'
import { Counter, Histogram } from './series.ts'

/** Seconds. Fine at the low end, where a gateway's own work is; up to the ten minutes a request may take. */
const DURATION_BUCKETS = [
  0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600,
]
/** Seconds. Stages of our own take microseconds; those that wait for a provider or a reader, up to minutes. */
const STAGE_BUCKETS = [
  0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
  0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600,
]

// Counted from zero, so that the first event of a kind shows as an increase.
const ALIGNMENT_MODES = ['enforce', 'audit'] as const
const ALIGNMENT_OUTCOMES = ['allowed', 'blocked', 'unavailable'] as const
const SHED_REASONS = ['in_flight', 'lag', 'buffered']
const ACCOUNTINGS = ['exact', 'estimated', 'none', 'lost']

/** Why an opened provider key left the cache. */
export const CREDENTIAL_EVICTIONS = ['capacity', 'expired', 'forgotten', 'replaced'] as const
/** Seconds; a key is kept for five minutes at most. */
const CREDENTIAL_AGE_BUCKETS = [1, 5, 15, 30, 60, 120, 180, 240, 300, 330]

/** What a guardrail may have decided. */
const GUARDRAIL_ACTIONS = ['blocked', 'redacted', 'flagged', 'passed_unchecked', 'refused_unchecked'] as const
export type GuardrailAction = (typeof GUARDRAIL_ACTIONS)[number]

/** Seconds. A short task takes microseconds; a document, seconds. */
const TASK_BUCKETS = [
  0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
  30, 60,
]

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

/** Builds the metrics of one thread on a registry of their own. */
export function createMetrics(labels: MetricLabels = NO_LABELS) {
  const registry = new Registry()
  const registers = [registry]
  const metrics = {
    registry,
    requests: new Counter({
      name: 'gateway_requests_total',
      help: 'Requests answered, by route template, status class and how they ended',
      labelNames: ['route', 'status_class', 'outcome'] as const,
      registry,
    }),
    requestDuration: new Histogram({
      name: 'gateway_request_duration_seconds',
      help: 'From the request line to the last byte of the answer',
      labelNames: ['route'] as const,
      buckets: DURATION_BUCKETS,
      registry,
    }),
    timeToFirstToken: new Histogram({
      name: 'gateway_time_to_first_token_seconds',
      help: 'From the request line to the first content handed to the client',
      buckets: DURATION_BUCKETS,
      registry,
    }),
    overhead: new Histogram({
      name: 'gateway_overhead_seconds',
      help: 'Time of each stage of an exchange; the stages of one add up to its duration',
      labelNames: ['stage'] as const,
      buckets: STAGE_BUCKETS,
      registry,
    }),
    shed: new Counter({
      name: 'gateway_shed_total',
      help: 'Requests turned away with 503 because the thread had enough to do',
      labelNames: ['reason'] as const,
      registry,
    }),
    openStreams: new Gauge({ name: 'gateway_open_streams', help: 'Event streams being sent now', registers }),
    streamChunks: new Counter({
      name: 'gateway_stream_chunks_total',
      help: 'Events written to event streams',
      registry,
    }),
    streamBytes: new Counter({
      name: 'gateway_stream_bytes_total',
      help: 'Bytes written to event streams',
      registry,
    }),
    tokens: new Counter({
      name: 'gateway_tokens_total',
      help: 'Tokens read and written by models',
      labelNames: ['direction', 'model'] as const,
      registry,
    }),
    cost: new Counter({
      name: 'gateway_cost_usd_total',
      help: 'Cost of answered requests in USD, at the prices of the catalogue',
      labelNames: ['model'] as const,
      registry,
    }),
    alignmentOutcomes: new Counter({
      name: 'gateway_alignment_outcomes_total',
      help: 'Messages of models that the alignment plugin had judged, by mode and outcome',
      labelNames: ['mode', 'outcome'] as const,
      registry,
    }),
    usageRecords: new Counter({
      name: 'gateway_usage_records_total',
      help: 'Usage records, by how their tokens are known; `lost` ones could not be kept because the disk refused them',
      labelNames: ['accounting'] as const,
      registry,
    }),
    upstreamRequests: new Counter({
      name: 'gateway_upstream_requests_total',
      help: 'Attempts at providers, by how they ended',
      labelNames: ['provider', 'outcome'] as const,
      registry,
    }),
    upstreamLatency: new Histogram({
      name: 'gateway_upstream_latency_seconds',
      help: 'From sending a request to a provider to its response headers',
      labelNames: ['provider'] as const,
      buckets: DURATION_BUCKETS,
      registry,
    }),
    guardrailDecisions: new Counter({
      name: 'gateway_guardrail_decisions_total',
      help: 'Decisions of guardrails on requests and replies, by detector and action',
      labelNames: ['guardrail', 'action'] as const,
      registry,
    }),
    credentialEntries: new Gauge({
      name: 'gateway_credential_cache_entries',
      help: 'Opened provider keys in memory',
      registers,
    }),
    credentialBytes: new Gauge({
      name: 'gateway_credential_cache_bytes',
      help: 'Memory of the opened provider keys, estimated',
      registers,
    }),
    credentialHits: new Counter({
      name: 'gateway_credential_cache_hits_total',
      help: 'Provider keys that were in memory when asked for',
      registry,
    }),
    credentialMisses: new Counter({
      name: 'gateway_credential_cache_misses_total',
      help: 'Provider keys that had to be opened, or that a request waited for',
      registry,
    }),
    credentialEvictions: new Counter({
      name: 'gateway_credential_cache_evictions_total',
      help: 'Opened provider keys that left memory, by why',
      labelNames: ['reason'] as const,
      registry,
    }),
    credentialAge: new Histogram({
      name: 'gateway_credential_cache_age_seconds',
      help: 'How long an opened provider key was in memory when it left',
      buckets: CREDENTIAL_AGE_BUCKETS,
      registry,
    }),
    taskQueueDepth: new Gauge({
      name: 'gateway_task_queue_depth',
      help: 'Tasks that wait for a worker',
      labelNames: ['pool'] as const,
      registers,
    }),
    taskWait: new Histogram({
      name: 'gateway_task_wait_seconds',
      help: 'From asking for a task to its outcome, without its run',
      labelNames: ['pool'] as const,
      buckets: TASK_BUCKETS,
      registry,
    }),
    taskRun: new Histogram({
      name: 'gateway_task_run_seconds',
      help: 'Run of a task in its worker',
      labelNames: ['task'] as const,
      buckets: TASK_BUCKETS,
      registry,
    }),
    taskOutcomes: new Counter({
      name: 'gateway_task_outcomes_total',
      help: 'Tasks that were asked for, by what became of them',
      labelNames: ['task', 'outcome'] as const,
      registry,
    }),
    eventLoopLag: new Gauge({
      name: 'gateway_event_loop_lag_seconds',
      help: 'How late the event loop of a thread lately was',
      labelNames: ['thread'] as const,
      registers,
    }),
    inFlight: new Gauge({
      name: 'gateway_requests_in_flight',
      help: 'Requests that a thread is working on',
      labelNames: ['thread'] as const,
      registers,
    }),
    heapUsed: new Gauge({
      name: 'gateway_heap_used_bytes',
      help: 'JavaScript heap of a thread that is in use',
      labelNames: ['thread'] as const,
      registers,
      collect() {
        this.set({ thread: labels.thread }, getHeapStatistics().used_heap_size)
      },
    }),
  }
  for (const reason of SHED_REASONS) metrics.shed.inc({ reason }, 0)
  for (const mode of ALIGNMENT_MODES) {
    for (const outcome of ALIGNMENT_OUTCOMES) metrics.alignmentOutcomes.inc({ mode, outcome }, 0)
  }
  for (const accounting of ACCOUNTINGS) metrics.usageRecords.inc({ accounting }, 0)
  for (const reason of CREDENTIAL_EVICTIONS) metrics.credentialEvictions.inc({ reason }, 0)
  return {
    ...metrics,
    /** The series of a model, by its id. */
    ofModel: bounded(labels.models, MODELS_MAX, model => modelSeries(model, metrics)),
    /** The series of a provider, by its slug. */
    ofProvider: bounded(labels.providers, PROVIDERS_MAX, provider => providerSeries(provider, metrics)),
    stages: stageSeries(metrics.overhead),
  }
}
