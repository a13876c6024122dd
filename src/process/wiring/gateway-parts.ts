/** Parts that the whole gateway of one thread shares: store, catalogue, connections, task pool. Composition root. */
import type { KeyObject } from 'node:crypto'
import { simEngine } from '../../apps/simulator/rows.ts'
import { type Clock, systemClock, unixSeconds } from '../../base/clock.ts'
import type { Log } from '../../base/log/log.ts'
import { createMetrics, type Metrics } from '../../base/metrics/metrics.ts'
import { Guardrails } from '../../callers/guardrails.ts'
import type { Counters } from '../../callers/limits/counters.ts'
import { capturesFolder } from '../../features/captures/folder.ts'
import { CaptureKeeper } from '../../features/captures/keeper.ts'
import { RunningCaptures } from '../../features/captures/running.ts'
import { Files, openContents } from '../../features/files/files.ts'
import type { SandboxCalls } from '../../features/sandbox/sandbox.ts'
import { createTaskPool, type GatewayTasks } from '../../features/tasks/pool/pool.ts'
import type { McpLibrary } from '../../features/tools/mcp/library.ts'
import { WebEngines } from '../../features/tools/web/engines.ts'
import { prepareGuardrail } from '../../pipeline/guard/guard.ts'
import type { LoopNote } from '../../pipeline/loops.ts'
import type { Catalog } from '../../providers/catalog.ts'
import { createVault, type Vault } from '../../providers/credentials/vault.ts'
import type { VaultKey } from '../../providers/credentials/vault-keys.ts'
import type { EndpointHealth } from '../../providers/health/health.ts'
import type { PackedCatalogue } from '../../providers/shared-catalogue.ts'
import { createProxyOf, createTransports, proxiesOf } from '../../providers/upstream/egress.ts'
import { GoogleTokens } from '../../providers/upstream/google-tokens.ts'
import type { Transport } from '../../providers/upstream/transport.ts'
import type { Invalidation } from '../../storage/invalidation/bus.ts'
import type { MaskTables } from '../../storage/mask-tables.ts'
import { openStore } from '../../storage/open.ts'
import type { Pins } from '../../storage/session-affinity/session-affinity.ts'
import type { Store } from '../../storage/store.ts'
import type { Transcripts } from '../../storage/transcripts/transcripts.ts'
import type { Config } from '../config/settings.ts'
import { CatalogueHolder } from '../services/live-catalogue.ts'
import { createTextReader } from '../threads/text-reader.ts'
import { configuredParts, importedFile, listsSim, metricLabels, packParts, seriesOf } from './catalog.ts'

export interface GatewayOptions {
  readonly config: Config
  readonly simUrl: string | null
  /** The catalogue as the main thread packed it. Default: the catalogue of the configuration. */
  readonly catalogue?: PackedCatalogue | null
  /** See providers/credentials/vault-keys.ts. */
  readonly endUserKey: KeyObject
  /** All master keys; the first one seals. */
  readonly vaultKeys: readonly VaultKey[]
  /** Names the thread in metrics; the same again after a restart. Default `serve-0`. */
  readonly thread?: string
  readonly log: Log
  /** Spool folder of usage records; see LedgerShipper. */
  readonly spoolFolder: string
  /** Names the files there; default: a random name. */
  readonly spoolWriter?: string
  /** Closed with the gateway. Default: opened as the configuration says. */
  readonly store?: Store
  /** False: the Store is not ready yet, so its pauses are not read until `invalidate` is called. Default true. */
  readonly prepared?: boolean
  /** Quota counters; default: counters of this instance only. */
  readonly counters?: Counters
  /** The health of endpoints. Default: as this gateway sees it itself. */
  readonly health?: EndpointHealth
  /** The pins of conversations; default: pins of this gateway only. */
  readonly pins?: Pins
  /** Placeholders of sessions; default: only this gateway's placeholders. */
  readonly masks?: MaskTables
  /** Resumable streams and kept answers; absent: nothing is cached. */
  readonly transcripts?: Transcripts
  /** Called with each loop of an agent that was found. */
  readonly onLoop?: (note: LoopNote) => void
  /** The containers of the main thread; default: containers of this gateway only. */
  readonly sandbox?: SandboxCalls
  /** The captures that the main thread keeps; default: this gateway keeps its own. */
  readonly captures?: RunningCaptures
  /** Default: one that belongs to this gateway only. */
  readonly mcpLibrary?: McpLibrary
  readonly clock?: Clock
  /** 0 (inclusive) to 1 (exclusive), used to distribute requests. Default: random. */
  readonly draw?: () => number
}

/** Shared parts of one thread. */
export interface Base {
  readonly options: GatewayOptions
  readonly config: Config
  readonly clock: Clock
  readonly log: Log
  readonly catalog: Catalog
  readonly catalogue: CatalogueHolder
  readonly metrics: Metrics
  readonly store: Store
  readonly vault: Vault
  readonly client: Transport
  /** For service accounts of providers. */
  readonly tokens: GoogleTokens
  readonly tasks: GatewayTasks
  readonly webEngines: WebEngines
  readonly files: Files
}

export async function openBase(options: GatewayOptions): Promise<Base> {
  const { config, log, clock = systemClock } = options
  const packed = options.catalogue ?? packParts(configuredParts(config, factsOf(options)))
  const catalogue = new CatalogueHolder(packed)
  const { catalog } = catalogue
  const metrics = createMetrics(metricLabels(catalog, options.thread ?? 'serve-0', config.metrics))
  const client = createTransports({
    clock,
    log,
    ...config.upstream,
    proxies: proxiesOf(config),
    onReplay: () => metrics.upstreamReplays.inc(),
  })
  catalogue.follow((_, next) => metrics.learn(seriesOf(next)))
  // The setting is for the whole process, so that more serve threads do not multiply the workers.
  // At least two for each, so that long tasks leave one to short ones.
  const workers = Math.max(2, Math.ceil(config.threads.tasks / config.threads.serve))
  const store = options.store ?? (await openStore(config.storage.url, { wait: false }))
  const tasks = createTaskPool({ threads: workers, clock, metrics })
  return {
    options,
    config,
    clock,
    log,
    catalog,
    catalogue,
    metrics,
    store,
    vault: createVault(options.vaultKeys),
    client,
    tokens: new GoogleTokens({ client, clock }),
    tasks,
    webEngines: webEnginesOf(options, client, clock),
    files: new Files({
      store,
      contents: openContents(config.tools.files, { clock, proxyOf: createProxyOf(proxiesOf(config)) }),
      limits: config.tools.files,
      readText: createTextReader(tasks, config.storage.url),
      clock,
    }),
  }
}

/** Without a main thread, imported models come only from the file that `catalogue.import` names. */
function factsOf({ config, simUrl, clock = systemClock }: GatewayOptions) {
  const knownModels = { imported: importedFile(config), discovered: new Map() }
  return { simUrl, knownModels, created: unixSeconds(clock) }
}

/** If the catalogue has simulated models and no engine is configured, the simulator searches too. */
function webEnginesOf({ config, simUrl }: GatewayOptions, client: Transport, clock: Clock): WebEngines {
  const { engines, default: byDefault, timeoutMs } = config.tools.webSearch
  const simulated = simUrl === null || !listsSim(config) ? [] : [simEngine(simUrl)]
  return new WebEngines({
    client,
    clock,
    engines: engines.length > 0 ? engines : simulated,
    isSimulated: engines.length === 0,
    byDefault,
    timeoutMs,
  })
}

/** The captures of one thread. */
interface ThreadCaptures {
  /** Null if captures are off. */
  readonly runningCaptures: RunningCaptures | null
  changed(change: Invalidation): void
  close(): Promise<void>
}

/** The captures of a thread; without a supervisor, this thread writes the files. */
export function capturesOf({ options, config, clock, log, store }: Base): ThreadCaptures {
  const { enabled } = config.capture
  if (options.captures !== undefined || !enabled) {
    return {
      runningCaptures: enabled ? (options.captures ?? null) : null,
      changed: () => undefined,
      close: async () => undefined,
    }
  }
  const keeper = new CaptureKeeper({
    store,
    keys: options.vaultKeys,
    folder: capturesFolder(config.storage.url),
    enabled,
    clock,
    log,
  })
  const runningCaptures: RunningCaptures = new RunningCaptures({
    clock,
    send: request => keeper.store(request, bytes => runningCaptures.freeBytes(request.organizationId, bytes)),
  })
  keeper.follow(captures => runningCaptures.set(captures))
  keeper.start()
  return { runningCaptures, changed: change => keeper.invalidate(change), close: () => keeper.close() }
}

export function guardrailsOf({ store, clock, log }: Base) {
  return new Guardrails({ store, clock, log, prepare: prepareGuardrail })
}

export type GuardrailCache = ReturnType<typeof guardrailsOf>
