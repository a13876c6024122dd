/**
 * Builds the gateway of one thread without an HTTP front: store, caches, upstream connections, plugins and pipeline.
 * Makes everything stateful and passes it on. Composition root.
 */
import type { KeyObject } from 'node:crypto'
import { join } from 'node:path'
import { Guardrails } from '../../access/guardrails.ts'
import { ToolPermissions } from '../../access/tool-permissions.ts'
import { type Clock, systemClock, unixSeconds } from '../../clock.ts'
import type { Config } from '../../config/config.ts'
import { CredentialCatalog } from '../../credentials/catalog.ts'
import { OpenedKeys } from '../../credentials/opened.ts'
import { OutgoingKeys } from '../../credentials/outgoing-key.ts'
import { createTextSeal } from '../../credentials/sealed-text.ts'
import { createVault, type Vault } from '../../credentials/vault.ts'
import { hashCacheKey, hashEndUser, type VaultKey } from '../../credentials/vault-keys.ts'
import type { AskAs } from '../../exchange/exchange.ts'
import { Files, openContents } from '../../files/files.ts'
import { FORMATS } from '../../formats/table.ts'
import {
  createLedger,
  estimateInput,
  inputTokensOf,
  isInputBelow,
  type Ledger,
  leastInputTokensOf,
  VisibleStreams,
} from '../../gateway/accounting/account.ts'
import { createAsk, createAskAs, type SharedDeps } from '../../gateway/ask.ts'
import { AbandonedReplies } from '../../gateway/attempt/abandoned-replies.ts'
import { ProviderRequests } from '../../gateway/attempt/provider-request.ts'
import { CallSeals } from '../../gateway/calls/call-seals.ts'
import { placeOf } from '../../gateway/calls/tool-calls.ts'
import { createGuard, createPolicyAgainst, type Guard, prepareGuardrail } from '../../gateway/guard/guard.ts'
import { Plans } from '../../gateway/plans.ts'
import { createPluginChains } from '../../gateway/plugin-chain.ts'
import { createGateway, createRequestCheck, type Gateway, type RequestCheck } from '../../gateway/respond.ts'
import {
  createRoutableModels,
  Prefixes,
  RetryBudget,
  Routing,
  Stickiness,
} from '../../gateway/routing/rank.ts'
import type { ReadStoredFile } from '../../gateway/stored-files.ts'
import type { Summaries } from '../../gateway/summaries.ts'
import { EndpointHealth } from '../../health/health.ts'
import type { Invalidation } from '../../invalidation/bus.ts'
import type { Counters } from '../../limits/counters.ts'
import { createQuota, type HoldingQuota } from '../../limits/quota.ts'
import { RequestRate } from '../../limits/request-rate.ts'
import { SharedCounters } from '../../limits/shared-counters.ts'
import { createSpending } from '../../limits/spending.ts'
import type { Log } from '../../log/log.ts'
import { createMetrics, type Metrics } from '../../metrics/metrics.ts'
import { createPins, type Pins } from '../../pins/pins.ts'
import type { AnyPlugin, WebSearcher } from '../../plugins/plugin.ts'
import { createPlugins } from '../../plugins/table.ts'
import type { Offered } from '../../protocol/json/request-parser.ts'
import type { Catalog } from '../../providers/catalog.ts'
import type { PackedCatalogue } from '../../providers/packed.ts'
import { textFormat } from '../../providers/provider.ts'
import { createContainers } from '../../sandbox/containers.ts'
import { type SandboxCalls, sandboxOf } from '../../sandbox/sandbox.ts'
import { CatalogueHolder } from '../../services/live-catalogue.ts'
import { abortSignalOf } from '../../signal.ts'
import { simEngine } from '../../sim/rows.ts'
import { openStore } from '../../storage/open.ts'
import { openSpool } from '../../storage/spool/spool.ts'
import { DEFAULT_WORKSPACE_ID, type Store } from '../../storage/store.ts'
import { createTaskPool, type GatewayTasks } from '../../tasks/pool/pool.ts'
import { createFusionModels, type FusionModels } from '../../tools/fusion/models.ts'
import { McpLibrary } from '../../tools/mcp/library.ts'
import { createTools } from '../../tools/table.ts'
import type { ServerTool } from '../../tools/tool.ts'
import { WebEngines } from '../../tools/web/engines.ts'
import { searchOnce } from '../../tools/web/search-once.ts'
import { awsSigner } from '../../upstream/aws-signature.ts'
import { createProxyOf, createTransports } from '../../upstream/egress.ts'
import { GoogleTokens } from '../../upstream/google-tokens.ts'
import { createOcr } from '../../upstream/ocr.ts'
import { createPageFetcher, type FetchPage } from '../../upstream/pages/fetch-page.ts'
import type { Transport } from '../../upstream/transport.ts'
import { proxiesOf } from '../proxies.ts'
import { sandboxTunnels } from '../sandbox-tunnels.ts'
import { withSimPages } from '../sim-pages.ts'
import { createTextReader } from '../text-reader.ts'
import {
  configuredParts,
  importedFile,
  listsSim,
  metricLabels,
  modelFacts,
  ocrProviderOf,
  packParts,
  rankingsOf,
  seriesOf,
} from './catalog.ts'

export interface GatewayOptions {
  readonly config: Config
  readonly simUrl: string | null
  /** The catalogue as the main thread packed it. Default: that of the configuration. */
  readonly catalogue?: PackedCatalogue | null
  /** See credentials/vault-keys.ts. */
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
  /** Quota counters; default: counters of this instance alone. */
  readonly counters?: Counters
  /** The health of endpoints. Default: as this gateway sees it itself. */
  readonly health?: EndpointHealth
  /** The pins of conversations; default: pins of this gateway alone. */
  readonly pins?: Pins
  /** The containers of the main thread; default: containers of this gateway alone. */
  readonly sandbox?: SandboxCalls
  /** Default: one of this gateway alone. */
  readonly mcpLibrary?: McpLibrary
  readonly clock?: Clock
  /** 0 to 1, 1 excluded: by which requests are shared out. Default: by chance. */
  readonly draw?: () => number
}

/** A gateway with the parts that fronts need beside it. */
export interface BuiltGateway {
  readonly gateway: Gateway
  readonly requestCheck: RequestCheck
  readonly guard: Guard
  readonly offered: Offered
  readonly config: Config
  readonly catalog: Catalog
  readonly catalogue: CatalogueHolder
  readonly store: Store
  readonly ledger: Ledger
  /** Requests per minute; the front asks before it reads a body. */
  readonly rate: RequestRate
  readonly vault: Vault
  readonly credentials: CredentialCatalog
  readonly providerKeys: SharedDeps['providerKeys']
  /** For calls to providers that are no model calls. */
  readonly client: Transport
  readonly quota: HoldingQuota
  readonly health: EndpointHealth
  readonly metrics: Metrics
  readonly clock: Clock
  readonly log: Log
  readonly tasks: GatewayTasks
  readonly files: Files
  readonly summaries: Summaries
  /** Drops cached copies of a changed record. */
  changed(change: Invalidation): void
  /** Call it after every front has drained or closed. */
  close(): Promise<void>
}

/** Shared parts of one thread. */
interface Base {
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
  /** Of service accounts of providers. */
  readonly tokens: GoogleTokens
  readonly tasks: GatewayTasks
  readonly webEngines: WebEngines
  readonly files: Files
}

export async function buildGateway(options: GatewayOptions): Promise<BuiltGateway> {
  const base = await openBase(options)
  const { config, clock, log, catalog, metrics, store, vault } = base
  const spool = spoolOf(base)
  const ledger = createLedger(spool, store.ledger)
  const abandoned = new AbandonedReplies()
  const counting = countingOf(options, store, clock)
  const credentials = new CredentialCatalog({ store, clock, log })
  const ownKeys = new OpenedKeys({ store, vault, clock, metrics, ...config.credentials })
  const guardrails = guardrailsOf(base)
  const shared = sharedDeps(base, ledger, abandoned, ownKeys)
  const toolPermissions = new ToolPermissions(base)
  const guard = createGuard({ guardrails, tasks: base.tasks, metrics })
  const containers = containersOf(base)
  const fusionModels = createFusionModels(base)
  const quota = quotaOf(base, counting.counters, guardrails)
  const askAs = createAskAs(base.clock, () => gateway)
  const plugins = pluginsOf({ ...base, fusionModels }, shared, guard, {
    credentials,
    quota,
    askAs,
    webSearcher: webSearcherOf(base),
  })
  const summaries: Summaries = {
    seal: createTextSeal(options.vaultKeys, 'summaries'),
    askAs,
    inputTokens: inputTokensOf,
  }
  const tools = createTools({
    ...base,
    askAs,
    fetchPage: webFetcher(base),
    proxyOf: createProxyOf(proxiesOf(config)),
    sandbox: sandboxOf(containers.calls),
    mcpLibrary: options.mcpLibrary ?? new McpLibrary(),
    fusionModels,
    seal: createTextSeal(options.vaultKeys, 'subagents'),
  })
  const parts = {
    ...shared,
    credentials,
    quota,
    plugins: createPluginChains(plugins, base.clock),
    tools,
    toolPermissions,
    guard,
    readStoredFile: storedFileReader(base.files),
    summaries,
  }
  const plans = new Plans({ ...parts, guardrails })
  base.catalogue.follow(() => plans.clear())
  const gateway = createGateway({ ...parts, plans })
  return {
    gateway,
    requestCheck: createRequestCheck(parts),
    guard,
    offered: offeredBy(plugins, tools, catalog),
    config,
    catalog,
    catalogue: base.catalogue,
    store,
    ledger,
    rate: new RequestRate({ ...config.quotas, counters: counting.counters, clock }),
    vault,
    credentials,
    providerKeys: shared.providerKeys,
    client: base.client,
    quota,
    health: shared.routing.health,
    metrics,
    clock,
    log,
    tasks: base.tasks,
    files: base.files,
    summaries,
    changed: change => invalidate({ credentials, guardrails, toolPermissions, ownKeys, plans }, change),
    async close() {
      abandoned.endAll()
      base.tokens.close()
      await base.client.close()
      await base.tasks.close()
      await containers.close()
      // Replies that were just cut off are accounted in this turn.
      await new Promise(resolve => setImmediate(resolve))
      await counting.close()
      ownKeys.close()
      spool.close()
      await store.close()
    },
  }
}

async function openBase(options: GatewayOptions): Promise<Base> {
  const { config, log, clock = systemClock } = options
  const packed = options.catalogue ?? packParts(configuredParts(config, factsOf(options)))
  const catalogue = new CatalogueHolder(packed)
  const { catalog } = catalogue
  const metrics = createMetrics(metricLabels(catalog, options.thread ?? 'serve-0'))
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
      room: config.tools.files,
      readText: createTextReader(tasks, config.storage.url),
      clock,
    }),
  }
}

/** Without a main thread nothing is imported but what the configuration names. */
function factsOf({ config, simUrl, clock = systemClock }: GatewayOptions) {
  const known = { imported: importedFile(config), discovered: new Map() }
  return { simUrl, known, created: unixSeconds(clock) }
}

function spoolOf({ options, clock, log, metrics }: Base) {
  return openSpool(options.spoolFolder, {
    clock,
    log,
    onLost: () => metrics.usageRecords.inc({ accounting: 'lost' }),
    onWaiting: records => metrics.usageRecordsWaiting.set(records),
    ...(options.spoolWriter === undefined ? {} : { writer: options.spoolWriter }),
  })
}

/** Without a supervisor there is one thread, with counters of its own. */
function countingOf({ counters, log }: GatewayOptions, store: Store, clock: Clock) {
  if (counters !== undefined) return { counters, close: async () => undefined }
  const spending = createSpending(store, async () => undefined)
  const alone = new SharedCounters({ redis: null, nodes: 1, spending, clock, log })
  return { counters: alone, close: () => alone.close() }
}

/** Without a supervisor the containers are of this thread alone. */
function containersOf({ options, config, clock, log }: Base) {
  if (options.sandbox !== undefined) return { calls: options.sandbox, close: async () => undefined }
  const folder = join(options.spoolFolder, '../../sandbox')
  const openTunnel = sandboxTunnels(config, clock)
  const alone = createContainers({ settings: config.tools.sandbox, folder, clock, log, openTunnel })
  return { calls: alone, close: () => alone.close() }
}

function guardrailsOf({ store, clock, log }: Base) {
  return new Guardrails({ store, clock, log, prepare: prepareGuardrail })
}

type GuardrailCache = ReturnType<typeof guardrailsOf>

/** Dependencies of every call to a model, for callers and for the gateway itself. */
function sharedDeps(
  base: Base,
  ledger: Ledger,
  abandoned: AbandonedReplies,
  ownKeys: OpenedKeys,
): SharedDeps {
  const {
    options: { endUserKey },
    config,
    clock,
    log,
    catalog,
    metrics,
    client,
  } = base
  const pins = base.options.pins ?? createPins(clock)
  return {
    catalog,
    ledger,
    abandoned,
    client,
    formats: FORMATS,
    clock,
    log,
    metrics,
    providerKeys: new OutgoingKeys(ownKeys, {
      signer: (access, place) => awsSigner(clock, access, place),
      token: (account, place) => base.tokens.token(account, place),
    }),
    byokFeePercent: config.byok.feePercent,
    region: config.region,
    stickiness: new Stickiness(pins),
    callSeals: new CallSeals(pins),
    prefixes: new Prefixes({ pins, clock, promptCaching: config.promptCaching }),
    routing: routingOf(base),
    retries: new RetryBudget(),
    visibleStreams: new VisibleStreams(),
    requests: new ProviderRequests({
      timeouts: config.timeouts,
      promptCaching: config.promptCaching,
      hashEndUser: (organizationId, user) => hashEndUser(endUserKey, organizationId, user),
      hashCacheKey: (organizationId, cacheKey) => hashCacheKey(endUserKey, organizationId, cacheKey),
    }),
  }
}

function routingOf({ options, config, clock, metrics }: Base): Routing {
  const { draw = Math.random } = options
  const { breakerFailures, hedgeAfterMs, loadBalancing } = config.routing
  const health = options.health ?? new EndpointHealth({ clock, breakerFailures })
  health.onChange = (provider, change) => metrics.ofProvider(provider).changed(change).inc()
  return new Routing({
    clock,
    health,
    random: draw,
    balances: loadBalancing,
    inputTokens: inputTokensOf,
    leastTokens: leastInputTokensOf,
    isInputBelow,
    hedgeAfterMs,
  })
}

function quotaOf({ config, clock }: Base, counters: Counters, budgets: GuardrailCache) {
  return createQuota({
    counters,
    clock,
    enforceCredits: config.credits.enforced,
    tokensPerMinute: config.quotas.tokensPerMinute,
    budgets,
  })
}

/** Parts that know the caller. */
interface CallerParts {
  readonly credentials: CredentialCatalog
  readonly quota: HoldingQuota
  readonly askAs: AskAs
  readonly webSearcher: WebSearcher
}

function pluginsOf(
  base: Base & { readonly fusionModels: FusionModels },
  shared: SharedDeps,
  guard: ReturnType<typeof createGuard>,
  callers: CallerParts,
) {
  const { config, catalog } = base
  const { stickiness } = shared
  return createPlugins({
    ...base,
    models: createRoutableModels({ ...shared, ...callers }),
    lastModels: {
      of: (exchange, router) => stickiness.lastModel(exchange, router),
      keep: (exchange, router, modelId, ttlMs) => stickiness.keepModel(exchange, router, modelId, ttlMs),
    },
    rankings: rankingsOf(config),
    draw: base.options.draw ?? Math.random,
    ...fileReading(base),
    webSearcher: callers.webSearcher,
    ask: createAsk({ ...shared, guard }),
    askAs: callers.askAs,
    policyAgainst: createPolicyAgainst({ guard, catalog, ocrProvider: ocrProviderOf(config.files, catalog) }),
    tokensOf: estimateInput,
    modelFacts: modelFacts(catalog),
    filesByLink: format => FORMATS[textFormat({ format })].filesByLink,
    truncates: format => FORMATS[textFormat({ format })].truncates,
  })
}

function storedFileReader(files: Files): ReadStoredFile {
  return async ({ organizationId, workspaceId, keyHash }, id, maxBytes) => {
    const file = await files.find({ organizationId, workspaceId: workspaceId ?? DEFAULT_WORKSPACE_ID }, id)
    if (file === null) return null
    return { filename: file.filename, bytes: await files.readWhole(file, maxBytes, keyHash) }
  }
}

/** The features of the tables of plugins and server tools. */
function offeredBy(
  plugins: readonly AnyPlugin[],
  tools: ReadonlyMap<string, ServerTool>,
  catalog: Catalog,
): Offered {
  // No request can name a built-in rule: the schema does not know its id.
  return {
    plugins: new Set(plugins.map(({ id }) => id)),
    tools: new Set(tools.keys()),
    routers: new Set([
      ...plugins.flatMap(plugin => ('routers' in plugin ? (plugin.routers ?? []) : [])),
      // The plugin `fusion` reads them.
      'fusion',
      'fusion-flash',
    ]),
    // Of the catalogue of now; task threads get a copy of its value.
    get defaultModel() {
      return catalog.defaultModel
    },
  }
}

/** Where the catalogue has simulated models and no engine is configured, the simulator searches too. */
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

/** Fetches pages for models. */
function webFetcher({ config, clock, client, options }: Base): FetchPage {
  const direct = createPageFetcher({
    clock,
    ...config.tools.webFetch,
    proxyOf: createProxyOf(proxiesOf(config)),
  })
  const { simUrl } = options
  return simUrl === null || !listsSim(config) ? direct : withSimPages(direct, client, simUrl)
}

function webSearcherOf({ webEngines, log }: Base): WebSearcher {
  return {
    hosts(endpoint, limitsDomains) {
      const place = placeOf(endpoint, FORMATS[textFormat(endpoint)])
      return place.hosts('web_search') && (!limitsDomains || place.searchesDomains !== false)
    },
    hasEngine: webEngines.byDefault !== null,
    search: (query, parameters, path, { signal, bill, caller, candidates }) =>
      searchOnce(webEngines, log, {
        query,
        parameters,
        path,
        signal: abortSignalOf(signal),
        bill,
        caller,
        isSimulated: candidates.every(({ endpoint }) => endpoint.provider.quirks.includes('simulated')),
      }),
  }
}

/** Access to documents: pages behind links, and OCR. */
function fileReading({ config, catalog, client, clock }: Base) {
  const { files } = config
  const { links, ocr } = files
  const provider = ocrProviderOf(files, catalog)
  return {
    fetchPage: links.enabled
      ? createPageFetcher({ clock, ...links, proxyOf: createProxyOf(proxiesOf(config)) })
      : null,
    ocr: ocr === null || provider === null ? null : createOcr({ client, ...ocr, provider }),
  }
}

interface Caches {
  readonly credentials: CredentialCatalog
  readonly guardrails: GuardrailCache
  readonly toolPermissions: ToolPermissions
  readonly ownKeys: OpenedKeys
  readonly plans: Plans
}

/** Drops cached copies of a changed record. The front has the cache of API keys. */
function invalidate(
  { credentials, guardrails, toolPermissions, ownKeys, plans }: Caches,
  change: Invalidation,
): void {
  if (change.kind === 'all') {
    credentials.invalidateAll()
    guardrails.invalidateAll()
    toolPermissions.invalidateAll()
    ownKeys.invalidateAll()
    plans.clear()
  } else if (change.kind === 'guardrails') guardrails.invalidate(change.organizationId)
  else if (change.kind === 'workspaces') toolPermissions.invalidate(change.organizationId)
  else if (change.kind === 'credentials') {
    credentials.invalidate(change.organizationId, change.workspaceId)
    for (const id of change.ids) ownKeys.invalidate(id)
  }
  if ('organizationId' in change) plans.invalidate(change.organizationId)
}
