/** Process metrics: the process's own series, and one page with the sums over all threads. Main thread. */
import { readFileSync } from 'node:fs'
import { readdir, readFile } from 'node:fs/promises'
import Counter from 'prom-client/lib/counter.js'
import Gauge from 'prom-client/lib/gauge.js'
import Registry from 'prom-client/lib/registry.js'
import {
  type ExpositionForm,
  type MetricSample,
  type MetricSnapshot,
  snapshotOf,
  sumOf,
  textOf,
} from '../../base/metrics/exposition.ts'
import { THREAD_METRICS } from '../../base/metrics/metrics.ts'
import { OwnerMetrics } from '../../base/metrics/owners.ts'
import { withZeros } from '../../base/metrics/zeros.ts'
import { SPAN_OUTCOMES } from '../../base/telemetry/otlp/exporter.ts'

export type ProcessMetrics = ReturnType<typeof createProcessMetrics>

/** The states of a thread, as the label of `gateway_threads`. */
export const THREAD_STATES = ['up', 'silent', 'down'] as const

/** Parts that an instance can do without for a while, as named by `/readyz` and the label of `gateway_degraded`. */
export const DEGRADABLE_PARTS = ['store', 'redis', 'disk'] as const

const OWN_PACKAGE = new URL('../../../package.json', import.meta.url)

/** Features of the process that have metrics of their own; if a feature is off, none of its series exist. */
interface ProcessFeatures {
  readonly tls: boolean
  readonly redis: boolean
  readonly exports: boolean
  readonly reconcile: boolean
  readonly rollouts: boolean
  readonly traces: boolean
  /** By what usage is counted. */
  readonly owners: readonly OwnerMetrics[]
}

const ALL_FEATURES = {
  tls: true,
  redis: true,
  exports: true,
  reconcile: true,
  rollouts: true,
  traces: true,
} as const

/** Series of the whole process, under the names that every Prometheus client library uses. */
export function createProcessMetrics(
  features: ProcessFeatures = {
    ...ALL_FEATURES,
    owners: [new OwnerMetrics('workspace'), new OwnerMetrics('key')],
  },
) {
  const registry = new Registry()
  /** The registry for the metrics of a feature: none if it is off. */
  const registersFor = (feature: keyof typeof ALL_FEATURES) => (features[feature] ? registers : [])
  const registers = [registry]
  const { version } = JSON.parse(readFileSync(OWN_PACKAGE, 'utf8')) as { version: string }
  const threads = new Gauge({
    name: 'gateway_threads',
    help: 'Threads by state: answering, not answering in time, or waiting to be restarted',
    labelNames: ['state'] as const,
    registers,
  })
  for (const state of THREAD_STATES) threads.set({ state }, 0)
  const restarts = new Counter({
    name: 'gateway_thread_restarts_total',
    help: 'How many times a thread died and was restarted',
    registers,
  })
  const quotaDegraded = new Gauge({
    name: 'gateway_quota_degraded',
    help: '1 while Redis does not answer and this instance applies its own share of the limits; absent without Redis',
    registers: registersFor('redis'),
  })
  const storageUp = new Gauge({
    name: 'gateway_storage_up',
    help: '1 while the database can be reached, 0 while it cannot',
    registers,
  })
  const storageProbe = new Gauge({
    name: 'gateway_storage_probe_seconds',
    help: 'How long the database took the last time one key was read, measured every 2 s',
    registers,
  })
  const degraded = new Gauge({
    name: 'gateway_degraded',
    help: '1 while the instance works without store, redis or disk, as /readyz reports',
    labelNames: ['what'] as const,
    registers,
  })
  for (const what of DEGRADABLE_PARTS) degraded.set({ what }, 0)
  const exportLag = new Gauge({
    name: 'gateway_export_lag_seconds',
    help: 'Age in seconds of the oldest usage record that has not reached its destination, for the export that is furthest behind; absent without exports',
    registers: registersFor('exports'),
  })
  const exportWaiting = new Gauge({
    name: 'gateway_export_waiting_bytes',
    help: "Bytes of usage records that have not reached an export's destination; absent without exports",
    registers: registersFor('exports'),
  })
  const exportLost = new Counter({
    name: 'gateway_export_lost_records_total',
    help: "Usage records that were lost because an export's buffer was full; absent without exports",
    registers: registersFor('exports'),
  })
  const reconcileDrift = new Gauge({
    name: 'gateway_reconcile_drift_ratio',
    help: "Difference between the ledger and the provider's usage report of the last day, as a share of the larger side; a provider whose report could not be read is missing",
    labelNames: ['provider'] as const,
    registers: registersFor('reconcile'),
  })
  const rolloutShare = new Gauge({
    name: 'gateway_rollout_share_ratio',
    help: "Share of a route's requests that go to the candidate of its rollout; absent without routes",
    labelNames: ['route'] as const,
    registers: registersFor('rollouts'),
  })
  const rolloutState = new Gauge({
    name: 'gateway_rollout_state',
    help: 'Always 1; the label says the state of the rollout of a route; absent without routes',
    labelNames: ['route', 'state'] as const,
    registers: registersFor('rollouts'),
  })
  const shadowBudget = new Gauge({
    name: 'gateway_rollout_shadow_budget_used_ratio',
    help: "Share of the budget of a rollout's shadows that is spent or reserved; absent without shadows",
    labelNames: ['route'] as const,
    registers: registersFor('rollouts'),
  })
  const paused = new Gauge({
    name: 'gateway_provider_paused',
    help: '1 while an operator has taken the provider out of service; absent otherwise',
    labelNames: ['provider'] as const,
    registers,
  })
  const spoolBytes = new Gauge({
    name: 'gateway_usage_spool_bytes',
    help: 'Usage records on disk that are not in the database yet',
    registers,
  })
  const front = new Gauge({
    name: 'gateway_front',
    help: 'Always 1; the label says which HTTP front serves',
    labelNames: ['front'] as const,
    registers,
  })
  new Gauge({
    name: 'gateway_build_info',
    help: 'Always 1; the label is the running version',
    labelNames: ['version'] as const,
    registers,
  }).set({ version }, 1)
  new Gauge({
    name: 'process_start_time_seconds',
    help: 'When the process started, Unix time',
    registers,
  }).set((Date.now() - process.uptime() * 1000) / 1000)
  new Counter({
    name: 'process_cpu_seconds_total',
    help: 'Processor time of all threads, user and system',
    registers,
    collect() {
      const { user, system } = process.cpuUsage()
      this.reset()
      this.inc((user + system) / 1e6)
    },
  })
  new Gauge({
    name: 'process_resident_memory_bytes',
    help: "The process's memory that is in RAM",
    registers,
    collect() {
      this.set(process.memoryUsage.rss())
    },
  })
  if (process.platform === 'linux') fileDescriptors(registers)
  const resumableStreams = new Gauge({
    name: 'gateway_resumable_streams',
    help: 'Resumable streams that this instance keeps, running and finished',
    registers,
  })
  const resumableBytes = new Gauge({
    name: 'gateway_resumable_bytes',
    help: 'Memory of the resumable streams that this instance keeps',
    registers,
  })
  const spans = new Counter({
    name: 'gateway_trace_spans_total',
    help: 'Spans of kept traces: accepted by the collector, refused by it, or dropped because the collector was unreachable or too slow',
    labelNames: ['outcome'] as const,
    registers: registersFor('traces'),
  })
  const traces = {
    count: (outcome: (typeof SPAN_OUTCOMES)[number], spanCount: number) => spans.inc({ outcome }, spanCount),
  }
  for (const outcome of SPAN_OUTCOMES) traces.count(outcome, 0)
  const credentials = new Gauge({
    name: 'gateway_credentials',
    help: 'Stored provider keys, by the master key that wraps them',
    labelNames: ['key_id'] as const,
    registers,
  })
  const batches = new Gauge({
    name: 'gateway_batches',
    help: 'Batches by state, from all instances on the database',
    labelNames: ['status'] as const,
    registers,
  })
  const blocked = new Gauge({
    name: 'gateway_endpoints_blocked',
    help: 'Endpoints and BYOK credentials that are currently not called: their breaker is open, or their provider asked clients to wait',
    labelNames: ['reason'] as const,
    registers,
  })
  const certificateExpiry = new Gauge({
    name: 'gateway_tls_certificate_expiry_seconds',
    help: 'When the certificate of the public port expires, Unix time; absent without TLS',
    registers: registersFor('tls'),
  })
  const certificateReloads = new Counter({
    name: 'gateway_tls_reloads_total',
    help: "Changes to the TLS certificate's files that were applied, or refused because the files are faulty",
    labelNames: ['outcome'] as const,
    registers: registersFor('tls'),
  })
  const configReloaded = new Gauge({
    name: 'gateway_config_last_reload_successful',
    help: '1 if the last reload of the configuration succeeded, 0 if it was refused; 1 after the start',
    registers,
  })
  const configReloadedAt = new Gauge({
    name: 'gateway_config_last_reload_success_timestamp_seconds',
    help: 'When the configuration was last loaded without a fault, at the start or later, Unix time',
    registers,
  })
  return {
    version,
    registry,
    owners: features.owners,
    threads,
    restarts,
    quotaDegraded,
    storageUp,
    storageProbe,
    exportLag,
    exportWaiting,
    exportLost,
    reconcileDrift,
    rolloutShare,
    rolloutState,
    shadowBudget,
    paused,
    degraded,
    spoolBytes,
    resumableStreams,
    resumableBytes,
    traces,
    credentials,
    batches,
    blocked,
    certificateExpiry,
    front,
    certificateReloads,
    configReloaded,
    configReloadedAt,
  }
}

function fileDescriptors(registers: Registry[]): void {
  new Gauge({
    name: 'process_open_fds',
    help: 'Open file descriptors, sockets included',
    registers,
    async collect() {
      this.set((await readdir('/proc/self/fd')).length)
    },
  })
  new Gauge({
    name: 'process_max_fds',
    help: 'How many file descriptors the process may open',
    registers,
    async collect() {
      const limit = /^Max open files\s+(\d+)/m.exec(await readFile('/proc/self/limits', 'utf8'))?.[1]
      if (limit !== undefined) this.set(Number(limit))
    },
  })
}

/** A thread that reports its metrics. */
export interface ScrapedThread {
  /** Null if the thread does not answer in time. */
  metrics(): Promise<MetricSnapshot | null>
}

/**
 * Sums the metrics of all threads. Counts of a thread that died, or does not answer now, stay in the sums: a falling
 * total would look like a restart, and rates would then count it twice.
 */
export class Scraper {
  readonly #process: ProcessMetrics
  /** Running threads; the rest of the expected number is reported as `down`. */
  readonly #threads: readonly ScrapedThread[]
  readonly #expected: () => number
  /** Last reported counts of each running thread. */
  readonly #counts = new Map<ScrapedThread, MetricSnapshot>()
  /** Sum of the counts of ended threads. */
  #endedThreads: MetricSnapshot = []
  #running: Promise<MetricSnapshot> | null = null
  readonly #pages = new Map<ExpositionForm, Promise<string>>()

  /** @param threads read again for each page  @param expected the number that should run */
  constructor(process: ProcessMetrics, threads: readonly ScrapedThread[], expected: () => number) {
    this.#process = process
    this.#threads = threads
    this.#expected = expected
  }

  /** The text of a scrape. Concurrent scrapes of one form share one page. */
  page(form: ExpositionForm = 'text'): Promise<string> {
    const sharedPage = this.#pages.get(form)
    if (sharedPage !== undefined) return sharedPage
    const page = this.#write(form).finally(() => this.#pages.delete(form))
    this.#pages.set(form, page)
    return page
  }

  /** The values of one metric of the threads. */
  async values(name: string): Promise<readonly MetricSample[]> {
    return (await this.#sums()).find(family => family.name === name)?.values ?? []
  }

  async #write(form: ExpositionForm): Promise<string> {
    const { registry, owners } = this.#process
    const sums = await this.#sums()
    const byOwner = await Promise.all(owners.map(owner => snapshotOf(owner.registry)))
    return textOf(
      [...(await snapshotOf(registry)), ...byOwner.flat(), ...withZeros(sums, THREAD_METRICS)],
      form,
    )
  }

  /** Concurrent callers share one collection. */
  #sums(): Promise<MetricSnapshot> {
    this.#running ??= this.#collect().finally(() => {
      this.#running = null
    })
    return this.#running
  }

  /** Keeps counts that a thread reports on its own, e.g. before it ends. */
  note(thread: ScrapedThread, snapshot: MetricSnapshot): void {
    this.#counts.set(thread, snapshot.filter(isCount))
  }

  async #collect(): Promise<MetricSnapshot> {
    const threads = [...this.#threads]
    const snapshots = await Promise.all(threads.map(thread => thread.metrics()))
    const gauges: MetricSnapshot[] = []
    for (const [index, thread] of threads.entries()) {
      const snapshot = snapshots[index] ?? null
      if (snapshot === null) continue
      this.note(thread, snapshot)
      gauges.push(snapshot.filter(metric => !isCount(metric)))
    }
    this.#retire()
    const upThreads = gauges.length
    this.#process.threads.set({ state: 'up' }, upThreads)
    this.#process.threads.set({ state: 'silent' }, threads.length - upThreads)
    this.#process.threads.set({ state: 'down' }, Math.max(0, this.#expected() - threads.length))
    return sumOf([this.#endedThreads, ...this.#counts.values(), ...gauges])
  }

  /** Adds the counts of ended threads to one sum. */
  #retire(): void {
    const ended = [...this.#counts.keys()].filter(thread => !this.#threads.includes(thread))
    if (ended.length === 0) return
    const snapshots = ended.map(thread => this.#counts.get(thread) ?? [])
    for (const thread of ended) this.#counts.delete(thread)
    this.#endedThreads = sumOf([this.#endedThreads, ...snapshots])
  }
}

/** True for kinds that outlive their thread; a gauge is a current value. */
function isCount({ type }: MetricSnapshot[number]): boolean {
  return type === 'counter' || type === 'histogram'
}
