/**
 * The object graph of one serve thread: everything stateful is made here and handed down. Composition root.
 */

import { Guardrails } from '../access/guardrails.ts'
import { ApiKeys } from '../access/keys.ts'
import { createDataRegions } from '../api/data-region.ts'
import { createListing } from '../api/listing.ts'
import { createRoutes } from '../api/operations.ts'
import { type Clock, systemClock, unixSeconds } from '../clock.ts'
import type { Config } from '../config/config.ts'
import { CredentialCatalog } from '../credentials/catalog.ts'
import { hashEndUser } from '../credentials/end-user-hash.ts'
import { OpenedKeys } from '../credentials/opened.ts'
import { openKey } from '../credentials/outgoing-key.ts'
import { createVault } from '../credentials/vault.ts'
import { parseVaultKeys } from '../credentials/vault-keys.ts'
import { FORMATS } from '../formats/table.ts'
import { AbandonedReplies } from '../gateway/abandoned-replies.ts'
import { estimateInput } from '../gateway/accounting/estimate.ts'
import { createLedger } from '../gateway/accounting/ledger.ts'
import { createAsk, type SharedDeps } from '../gateway/ask.ts'
import { createGuard, prepareGuardrail } from '../gateway/guard/guard.ts'
import { createPolicyAgainst } from '../gateway/guard/helper-policy.ts'
import { createPluginChains } from '../gateway/plugin-chain.ts'
import { createGateway } from '../gateway/respond.ts'
import { createPins, Stickiness } from '../gateway/routing/sticky.ts'
import { patternProblem } from '../guardrails/pattern-problem.ts'
import type { Invalidation } from '../invalidation/bus.ts'
import type { Counters } from '../limits/counters.ts'
import { createQuota } from '../limits/quota.ts'
import { SharedCounters } from '../limits/shared-counters.ts'
import { createSpending } from '../limits/spending.ts'
import type { Log } from '../log/log.ts'
import { createMetrics, type MetricLabels, type Metrics } from '../metrics/metrics.ts'
import { createPlugins } from '../plugins/table.ts'
import { SMALL_CONTEXT_TOKENS } from '../protocol/limits.ts'
import { type Catalog, CatalogError, createCatalog } from '../providers/catalog.ts'
import type { Model, Provider } from '../providers/provider.ts'
import { createServer, type HttpServer } from '../server/http.ts'
import { simModels, simProvider } from '../sim/rows.ts'
import { openStore, StoreError } from '../storage/open.ts'
import { openSpool } from '../storage/spool.ts'
import type { Store } from '../storage/store.ts'
import { createTaskPool } from '../tasks/pool.ts'
import { createTools } from '../tools/table.ts'
import { createPageFetcher } from '../upstream/fetch-page.ts'
import { createHttpClient } from '../upstream/http-client.ts'
import { createOcr } from '../upstream/ocr.ts'
import type { UpstreamClient } from '../upstream/transport.ts'
import { connectionCap, descriptorLimit } from './descriptor-limit.ts'

export interface ServeOptions {
  readonly config: Config
  readonly simUrl: string | null
  /** Base64; see credentials/end-user-hash.ts. */
  readonly endUserKey: string
  /** All master keys in the form of GATEWAY_VAULT_KEYS; the first one seals. */
  readonly vaultKeys: string
  /** Names the thread in metrics; the same again after a restart. Default `serve-0`. */
  readonly thread?: string
  readonly log: Log
  /** Where usage records are spooled; the folder of a LedgerShipper. */
  readonly spoolFolder: string
  /** Names the files there; default: a random name. */
  readonly spoolWriter?: string
  /** Told of each record that this instance changed, after it has dropped its own memory of it. */
  readonly publish?: (change: Invalidation) => void
  /** What quotas count with; default: counters of this instance alone. */
  readonly counters?: Counters
  readonly clock?: Clock
  /** False: until `prepared` is called no key is looked up, and callers are asked to come again. Default true. */
  readonly prepared?: boolean
}

/** One serving instance: its own server, caches, connections and metrics. */
export interface Serving {
  readonly server: HttpServer
  readonly metrics: Metrics
  /** The store is ready for use. */
  prepared(): void
  /** A record was changed: the next request reads it anew. */
  changed(change: Invalidation): void
  /** Closes what the server stood on; call it after the server has drained or closed. */
  close(): Promise<void>
}

/**
 * The configured catalogue, with the simulated provider where one listens; `created` in Unix seconds.
 * @throws CatalogError
 */
export function buildCatalog(config: Config, simUrl: string | null, created = 0): Catalog {
  const catalog = createCatalog({
    // Configured rows first: the paths of errors count from there.
    providers: simUrl === null ? config.providers : [...config.providers, simProvider(simUrl)],
    models: simUrl === null ? config.models : [...config.models, ...simModels()],
    onAbort: config.accounting.onAbort,
    created,
  })
  const { evaluator } = config.alignment
  if (evaluator !== null && catalog.model(evaluator.model) === undefined) {
    throw new CatalogError('alignment.evaluator.model', 'there is no such model')
  }
  if (config.moderation !== null && catalog.model(config.moderation.model) === undefined) {
    throw new CatalogError('moderation.model', 'there is no such model')
  }
  const { ocr } = config.files
  if (ocr !== null && catalog.provider(ocr.provider)?.baseUrl == null) {
    throw new CatalogError('files.ocr.provider', 'there is no such provider with a base URL')
  }
  return catalog
}

/** What plugins ask about models, by their ids. */
function modelFacts(catalog: Catalog) {
  const ids = (holds: (model: Model) => boolean): ReadonlySet<string> =>
    new Set(
      catalog
        .models()
        .filter(holds)
        .map(({ id }) => id),
    )
  const small = ids(({ endpoints }) =>
    endpoints.some(({ contextLength }) => contextLength !== null && contextLength <= SMALL_CONTEXT_TOKENS),
  )
  const reading = ids(({ inputModalities }) => inputModalities.includes('file'))
  const seeing = ids(({ inputModalities }) => inputModalities.includes('image'))
  return {
    hasSmallContext: (id: string) => small.has(id),
    takesFiles: (id: string) => reading.has(id),
    takesImages: (id: string) => seeing.has(id),
  }
}

function ocrProviderOf({ ocr }: Config['files'], catalog: Catalog): Provider | null {
  return ocr === null ? null : (catalog.provider(ocr.provider) ?? null)
}

/** How documents are got at. */
function fileReading(files: Config['files'], catalog: Catalog, client: UpstreamClient, clock: Clock) {
  const { links, ocr } = files
  const provider = ocrProviderOf(files, catalog)
  return {
    fetchPage: links.enabled ? createPageFetcher({ clock, ...links }) : null,
    ocr: ocr === null || provider === null ? null : createOcr({ client, ...ocr, provider }),
  }
}

/** Only providers that can be asked have series. */
function metricLabels(catalog: Catalog, thread: string): MetricLabels {
  const models = catalog.models()
  return {
    thread,
    models: models.map(model => model.id),
    providers: new Set(models.flatMap(model => model.endpoints.map(endpoint => endpoint.provider.slug))),
  }
}

/** Without a supervisor there is one thread, which counts for itself. */
function countingOf({ counters, log }: ServeOptions, store: Store, clock: Clock) {
  if (counters !== undefined) return { counters, close: async () => undefined }
  const spending = createSpending(store, async () => undefined)
  const alone = new SharedCounters({ redis: null, nodes: 1, spending, clock, log })
  return { counters: alone, close: () => alone.close() }
}

export async function buildServing(options: ServeOptions): Promise<Serving> {
  const { config, log } = options
  const clock = options.clock ?? systemClock
  const catalog = buildCatalog(config, options.simUrl, unixSeconds(clock))
  const metrics = createMetrics(metricLabels(catalog, options.thread ?? 'serve-0'))
  const store = await openStore(config.storage.url, { wait: false })
  const client = createHttpClient({ clock, log })
  const endUserKey = Buffer.from(options.endUserKey, 'base64')
  const spool = openSpool(options.spoolFolder, {
    clock,
    log,
    onLost: () => metrics.usageRecords.inc({ accounting: 'lost' }),
    ...(options.spoolWriter === undefined ? {} : { writer: options.spoolWriter }),
  })
  const ledger = createLedger(spool, store.ledger)
  const abandoned = new AbandonedReplies()
  // Of the whole process, so that more serve threads do not multiply them.
  const workers = Math.max(1, Math.ceil(config.threads.tasks / config.threads.serve))
  const tasks = createTaskPool({ threads: workers, clock, metrics })
  const vault = createVault(parseVaultKeys(options.vaultKeys))
  const credentials = new CredentialCatalog({ store, clock, log })
  const ownKeys = new OpenedKeys({ store, vault, clock, metrics, ...config.credentials })
  const counting = countingOf(options, store, clock)
  const guardrails = new Guardrails({ store, clock, log, prepare: prepareGuardrail })
  const quota = createQuota({
    counters: counting.counters,
    clock,
    enforceCredits: config.credits.enforced,
    requestsPerMinute: config.quotas.requestsPerMinute,
    tokensPerMinute: config.quotas.tokensPerMinute,
    budgets: guardrails,
  })
  const upstream = {
    catalog,
    ledger,
    abandoned,
    client,
    formats: FORMATS,
    clock,
    log,
    metrics,
    timeouts: config.timeouts,
    openKey: (credential, endpoint) => openKey(ownKeys, credential, endpoint),
    byokFeePercent: config.byok.feePercent,
    stickiness: new Stickiness(createPins(clock)),
    hashEndUser: (organizationId, user) => hashEndUser(endUserKey, organizationId, user),
  } satisfies SharedDeps
  const guard = createGuard({ guardrails, tasks, metrics })
  const plugins = createPlugins({
    ask: createAsk({ ...upstream, guard }),
    clock,
    metrics,
    tasks,
    ...config.alignment,
    moderation: config.moderation,
    ...fileReading(config.files, catalog, client, clock),
    policyAgainst: createPolicyAgainst({ guard, catalog, ocrProvider: ocrProviderOf(config.files, catalog) }),
    tokensOf: estimateInput,
    ...modelFacts(catalog),
    filesByLink: format => FORMATS[format].filesByLink,
  })
  const gateway = createGateway({
    ...upstream,
    credentials,
    quota,
    plugins: createPluginChains(plugins),
    tools: createTools({ clock }),
    guard,
  })
  let prepared = options.prepared ?? true
  const keys = new ApiKeys({
    store: {
      keys: {
        ...store.keys,
        async find(hash) {
          // A key that is configured may not be in it yet: whoever has it is no stranger.
          if (!prepared) throw new StoreError('storage: is not ready yet', 'new')
          return await store.keys.find(hash)
        },
      },
    },
    clock,
    log,
  })
  const changed = (change: Invalidation): void => {
    if (change.kind === 'all') {
      keys.invalidateAll()
      credentials.invalidateAll()
      guardrails.invalidateAll()
      ownKeys.invalidateAll()
    } else if (change.kind === 'key') keys.invalidate(change.hash)
    else if (change.kind === 'guardrails') guardrails.invalidate(change.organizationId)
    else {
      credentials.invalidate(change.organizationId, change.workspaceId)
      for (const id of change.ids) ownKeys.invalidate(id)
    }
  }
  const providerNames = new Map(catalog.providers().map(({ slug, name }) => [slug, name]))
  const { heartbeatMs, stallMs, uploadMs, requestMs } = config.timeouts
  const server = createServer({
    routes: createRoutes({
      gateway,
      listing: createListing(catalog),
      ledger,
      stream: { heartbeatMs, stallMs, clock, metrics },
      dataRegionOf: createDataRegions(config.regions),
      byokFeePercent: config.byok.feePercent,
      store,
      vault,
      clock,
      changes: {
        publish(change) {
          changed(change)
          options.publish?.(change)
        },
      },
      providerName: slug => providerNames.get(slug) ?? null,
      patternProblem,
    }),
    keys,
    uploadMs,
    requestMs,
    ...config.limits,
    maxConnections: Math.ceil(
      connectionCap(config.limits.maxConnections, descriptorLimit()) / config.threads.serve,
    ),
    clock,
    log,
    metrics,
  })
  return {
    server,
    metrics,
    changed,
    prepared() {
      prepared = true
    },
    async close() {
      abandoned.endAll()
      await client.close()
      await tasks.close()
      // What was cut off just now is accounted in this turn.
      await new Promise(resolve => setImmediate(resolve))
      await counting.close()
      ownKeys.close()
      spool.close()
      await store.close()
    },
  }
}
