/**
 * Builds the gateway of one thread without an HTTP front: store, caches, upstream connections, plugins and pipeline.
 * Creates everything stateful and passes it on. Composition root.
 */
import { join } from 'node:path'
import type { Clock } from '../../base/clock.ts'
import type { Log } from '../../base/log/log.ts'
import type { Metrics } from '../../base/metrics/metrics.ts'
import type { BreakerChange } from '../../base/metrics/table.ts'
import type { Counters } from '../../callers/limits/counters.ts'
import { EndUserLimits } from '../../callers/limits/end-user-limits.ts'
import { createQuota, type HoldingQuota } from '../../callers/limits/quota.ts'
import { RequestRate } from '../../callers/limits/request-rate.ts'
import { ReservationQueue } from '../../callers/limits/reservation-wait.ts'
import { SharedCounters } from '../../callers/limits/shared-counters.ts'
import { createSpending } from '../../callers/limits/spending.ts'
import { ToolPermissions } from '../../callers/tool-permissions.ts'
import type { AnyPlugin } from '../../exchange/plugin.ts'
import type { ServerTool } from '../../exchange/server-tool.ts'
import type { RunningCaptures } from '../../features/captures/running.ts'
import type { Files } from '../../features/files/files.ts'
import { createContainers } from '../../features/sandbox/containers.ts'
import { sandboxOf } from '../../features/sandbox/sandbox.ts'
import type { GatewayTasks } from '../../features/tasks/pool/pool.ts'
import { createFusionModels } from '../../features/tools/fusion/models.ts'
import { McpLibrary } from '../../features/tools/mcp/library.ts'
import { createTools } from '../../features/tools/table.ts'
import { FORMATS } from '../../formats/table.ts'
import { createLedger, type Ledger } from '../../pipeline/accounting/account.ts'
import { inputTokensOf, isInputBelow, leastInputTokensOf } from '../../pipeline/accounting/estimate.ts'
import { VisibleStreams } from '../../pipeline/accounting/visible-streams.ts'
import type { ResponseCacheParts } from '../../pipeline/cached-request.ts'
import { createGuard, type Guard } from '../../pipeline/guard/guard.ts'
import type { MaskingDeps } from '../../pipeline/guard/masking.ts'
import { createAskApart, createAskAs, type SharedDeps } from '../../pipeline/inner-call.ts'
import { KeyCheck } from '../../pipeline/key-check.ts'
import { Plans } from '../../pipeline/plans.ts'
import { createPluginChains } from '../../pipeline/plugin-chain.ts'
import { createGateway, createRequestCheck, type Gateway, type RequestCheck } from '../../pipeline/respond.ts'
import { createRunningRights, type RunningRights } from '../../pipeline/rights.ts'
import { Pauses } from '../../pipeline/routing/pauses.ts'
import { Prefixes } from '../../pipeline/routing/prompt-cache-prefix.ts'
import { Routing } from '../../pipeline/routing/rank-input.ts'
import { Rollouts } from '../../pipeline/routing/rollouts.ts'
import { Stickiness } from '../../pipeline/routing/sticky.ts'
import { Shadows } from '../../pipeline/shadows/shadows.ts'
import type { ReadStoredFile } from '../../pipeline/stored-files.ts'
import type { Summaries } from '../../pipeline/summaries.ts'
import { CallSeals } from '../../pipeline/tool-calls/call-seals.ts'
import { AbandonedReplies } from '../../pipeline/turn/abandoned-replies.ts'
import { RetryBudget } from '../../pipeline/turn/failover.ts'
import { ProviderRequests } from '../../pipeline/turn/provider-request.ts'
import { RefusedKeys } from '../../pipeline/turn/refused-keys.ts'
import type { Offering } from '../../protocol/json/request-parser.ts'
import type { Catalog } from '../../providers/catalog.ts'
import { CredentialCatalog } from '../../providers/credentials/catalog.ts'
import { DecryptedKeys } from '../../providers/credentials/decrypted-keys.ts'
import { FailedResources } from '../../providers/credentials/failed-resources.ts'
import { OutgoingKeys } from '../../providers/credentials/outgoing-key.ts'
import { createTextSeal, type TextSeal } from '../../providers/credentials/sealed-text.ts'
import type { Vault } from '../../providers/credentials/vault.ts'
import { hashCacheKey, hashEndUser } from '../../providers/credentials/vault-keys.ts'
import { EndpointHealth } from '../../providers/health/health.ts'
import { awsSigner } from '../../providers/upstream/aws-signature.ts'
import { createProxyOf, proxiesOf } from '../../providers/upstream/egress.ts'
import { createPageFetcher, type FetchPage } from '../../providers/upstream/pages/fetch-page.ts'
import type { Transport } from '../../providers/upstream/transport.ts'
import type { Invalidation } from '../../storage/invalidation/bus.ts'
import { createMaskTables } from '../../storage/mask-tables.ts'
import { createPins } from '../../storage/session-affinity/session-affinity.ts'
import { openSpool } from '../../storage/spool/spool.ts'
import { DEFAULT_WORKSPACE_ID, type Store } from '../../storage/store.ts'
import type { Transcripts } from '../../storage/transcripts/transcripts.ts'
import type { Config } from '../config/settings.ts'
import type { CatalogueHolder } from '../services/live-catalogue.ts'
import { sandboxTunnels } from '../threads/sandbox-tunnels.ts'
import { withSimPages } from '../threads/sim-pages.ts'
import { listsSim } from './catalog.ts'
import {
  type Base,
  capturesOf,
  type GatewayOptions,
  type GuardrailCache,
  guardrailsOf,
  openBase,
} from './gateway-parts.ts'
import { pluginsOf, webSearcherOf } from './plugins.ts'

/** A gateway, with the parts that fronts also need. */
export interface BuiltGateway {
  readonly gateway: Gateway
  readonly requestCheck: RequestCheck
  readonly guard: Guard
  readonly rights: RunningRights
  readonly keyCheck: KeyCheck
  readonly offered: Offering
  readonly config: Config
  readonly catalog: Catalog
  readonly catalogue: CatalogueHolder
  readonly store: Store
  readonly ledger: Ledger
  /** Requests per minute; the front checks this before it reads a body. */
  readonly rate: RequestRate
  /** Requests that wait for their limits. */
  readonly reservationWait: ReservationQueue
  readonly vault: Vault
  readonly credentials: CredentialCatalog
  readonly providerKeys: SharedDeps['providerKeys']
  /** For calls to providers other than model calls. */
  readonly client: Transport
  readonly quota: HoldingQuota
  readonly health: EndpointHealth
  readonly metrics: Metrics
  readonly clock: Clock
  readonly log: Log
  readonly tasks: GatewayTasks
  readonly files: Files
  readonly summaries: Summaries
  /** Seals frames that transcripts keep. */
  readonly frameSeal: TextSeal
  /** Null if captures are off. */
  readonly captures: RunningCaptures | null
  readonly shadows: Shadows
  /** Drops cached copies of a changed record. */
  invalidate(change: Invalidation): void
  /** Call it after every front has drained or closed. */
  close(): Promise<void>
}

export async function buildGateway(options: GatewayOptions): Promise<BuiltGateway> {
  const base = await openBase(options)
  const { config, clock, log, catalog, metrics, store, vault } = base
  const spool = spoolOf(base)
  const ledger = createLedger(spool, store.ledger)
  const abandoned = new AbandonedReplies()
  const counting = countingOf(options, store, clock)
  const credentials = new CredentialCatalog({ store, clock, log })
  const ownKeys = new DecryptedKeys({ store, vault, clock, metrics, ...config.credentials })
  const guardrails = guardrailsOf(base)
  const reservationWait = new ReservationQueue(clock)
  const rollouts = new Rollouts(base)
  // Without a main thread, and after a restart of this one, the Store may be ready already.
  if (hasRollouts(base)) await rollouts.refresh()
  const pauses = new Pauses({ ...base, onChange: () => plans.clear() })
  const shared = { ...sharedDeps(base, ledger, abandoned, ownKeys, { rollouts, pauses }), reservationWait }
  const toolPermissions = new ToolPermissions(base)
  const guard = createGuard({ guardrails, tasks: base.tasks, metrics, masking: maskingOf(base) })
  const containers = containersOf(base)
  const fusionModels = createFusionModels(base)
  const endUserLimits = new EndUserLimits({ store, clock, log })
  const quota = quotaOf(base, counting.counters, guardrails, endUserLimits)
  const askAs = createAskAs(base.clock, () => gateway)
  const plugins = pluginsOf({ ...base, fusionModels }, shared, guard, {
    credentials,
    quota,
    askAs,
    webSearcher: webSearcherOf(base),
  })
  const summaries: Summaries = {
    seal: createTextSeal(options.vaultKeys, 'summaries'),
    mode: config.compaction,
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
  const captures = capturesOf(base)
  const plans = new Plans({ ...parts, guardrails })
  let isFirst = true
  if (options.prepared !== false) await pauses.refresh()
  base.catalogue.follow(() => {
    plans.clear()
    if (!isFirst && hasRollouts(base)) void rollouts.refresh()
    isFirst = false
  })
  const { runningCaptures } = captures
  const loops = { counters: counting.counters, clock: base.clock, metrics, onLoop: options.onLoop }
  const shadows = shadowsOf(base, shared)
  const gateway = createGateway({
    ...parts,
    plans,
    shadows,
    loops,
    ...(options.transcripts === undefined
      ? {}
      : { responseCache: responseCacheOf(config, options.transcripts) }),
    ...(runningCaptures === null ? {} : { captures: runningCaptures }),
  })
  return {
    gateway,
    requestCheck: createRequestCheck(parts),
    guard,
    rights: createRunningRights({ ...parts, quota }),
    keyCheck: new KeyCheck(shared),
    offered: offeredBy(plugins, tools, catalog),
    config,
    catalog,
    catalogue: base.catalogue,
    store,
    ledger,
    rate: new RequestRate({ ...config.quotas, counters: counting.counters, clock }),
    reservationWait,
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
    frameSeal: createTextSeal(options.vaultKeys, 'frames'),
    captures: runningCaptures,
    shadows,
    invalidate(change) {
      invalidate({ credentials, guardrails, toolPermissions, endUserLimits, ownKeys, plans }, change)
      captures.changed(change)
      if (change.kind === 'pauses' || change.kind === 'all') void pauses.refresh()
      if ((change.kind === 'rollouts' || change.kind === 'all') && hasRollouts(base)) void rollouts.refresh()
    },
    async close() {
      await shadows.close()
      rollouts.close()
      pauses.close()
      abandoned.endAll()
      base.tokens.close()
      await base.client.close()
      await base.tasks.close()
      await containers.close()
      // Replies that were just cut off are accounted in this turn.
      await new Promise(resolve => setImmediate(resolve))
      await counting.close()
      ownKeys.close()
      await captures.close()
      spool.close()
      await store.close()
    },
  }
}

function responseCacheOf({ cache }: Config, transcripts: Transcripts): ResponseCacheParts {
  const { maxBytesPerWorkspace: maxBytes, ...policy } = cache
  return { transcripts, policy, maxBytes }
}

/** A gateway whose routes have no rollout reads none. */
function hasRollouts({ catalog }: Pick<Base, 'catalog'>): boolean {
  return catalog.routes().some(({ route }) => route?.rollout != null)
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

/** Without a supervisor there is one thread, with its own counters. */
function countingOf({ counters, log }: GatewayOptions, store: Store, clock: Clock) {
  if (counters !== undefined) return { counters, close: async () => undefined }
  const spending = createSpending(store, async () => undefined)
  const ownCounters = new SharedCounters({ redis: null, nodes: 1, spending, clock, log })
  return { counters: ownCounters, close: () => ownCounters.close() }
}

/** Without a supervisor the containers belong to this thread only. */
function containersOf({ options, config, clock, log }: Base) {
  if (options.sandbox !== undefined) return { calls: options.sandbox, close: async () => undefined }
  const folder = join(options.spoolFolder, '../../sandbox')
  const openTunnel = sandboxTunnels(config, clock)
  const ownContainers = createContainers({ settings: config.tools.sandbox, folder, clock, log, openTunnel })
  return { calls: ownContainers, close: () => ownContainers.close() }
}

/** Placeholders of sessions. */
function maskingOf({ options: { endUserKey, masks, vaultKeys }, clock }: Base): MaskingDeps {
  return {
    tables: masks ?? createMaskTables(clock),
    seal: createTextSeal(vaultKeys, 'masks'),
    digest: (owner, text) => hashEndUser(endUserKey, owner, text),
  }
}

/** Dependencies of every call to a model, for callers and for the gateway itself. */
function sharedDeps(
  base: Base,
  ledger: Ledger,
  abandoned: AbandonedReplies,
  ownKeys: DecryptedKeys,
  known: KnownRoutes,
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
      signer: (access, scope) => awsSigner(clock, access, scope),
      token: (account, endpoint) => base.tokens.token(account, endpoint),
      failedResources: new FailedResources(clock),
    }),
    byokFeePercent: config.byok.feePercent,
    continueStreams: config.continueStreams,
    region: config.region,
    stickiness: new Stickiness(pins),
    callSeals: new CallSeals(pins, createTextSeal(base.options.vaultKeys, 'thoughts')),
    prefixes: new Prefixes({ pins, clock, promptCaching: config.promptCaching }),
    routing: routingOf(base, known),
    retries: new RetryBudget(),
    visibleStreams: new VisibleStreams(),
    refusedKeys: new RefusedKeys({ clock, log }),
    requests: new ProviderRequests({
      timeouts: config.timeouts,
      promptCaching: config.promptCaching,
      hashEndUser: (organizationId, user) => hashEndUser(endUserKey, organizationId, user),
      hashCacheKey: (organizationId, cacheKey) => hashCacheKey(endUserKey, organizationId, cacheKey),
    }),
  }
}

/** The records of the Store that change routing. */
interface KnownRoutes {
  readonly rollouts: Rollouts
  readonly pauses: Pauses
}

/** Changes of circuit breakers, in the log. */
const BREAKER_NOTICES: Readonly<Record<BreakerChange, string>> = {
  opened: 'circuit breaker opened: the endpoint fails, and is left out',
  limited: 'circuit breaker opened: the endpoint is at its rate limit, and is left out',
  probed: 'circuit breaker half-open: one request tests the endpoint',
  closed: 'circuit breaker closed: the endpoint is used again',
}

function routingOf(
  { options, config, clock, log, metrics }: Base,
  { rollouts, pauses }: KnownRoutes,
): Routing {
  const { draw = Math.random } = options
  const { breakerFailures, hedgeAfterMs, loadBalancing } = config.routing
  const health = options.health ?? new EndpointHealth({ clock, breakerFailures })
  health.onChange = ({ key, provider }, change, isNews) => {
    metrics.ofProvider(provider).breakerChange(change).inc()
    if (!isNews) return
    const [, model = ''] = key.split('\n')
    log.notice('providers', BREAKER_NOTICES[change], {
      provider,
      model,
      key: key.endsWith('\n') ? 'shared' : 'own',
    })
  }
  return new Routing({
    clock,
    rollouts,
    pauses,
    health,
    random: draw,
    balances: loadBalancing,
    inputTokens: inputTokensOf,
    leastTokens: leastInputTokensOf,
    isInputBelow,
    hedgeAfterMs,
  })
}

function quotaOf(
  { config, clock }: Base,
  counters: Counters,
  budgets: GuardrailCache,
  endUsers: EndUserLimits,
) {
  return createQuota({
    counters,
    clock,
    enforceCredits: config.credits.enforced,
    tokensPerMinute: config.quotas.tokensPerMinute,
    budgets,
    endUsers,
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
): Offering {
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
    // From the current catalogue; task threads get a copy of its value.
    get defaultModel() {
      return catalog.defaultModel
    },
  }
}

/** Shadows have retries of their own, which take none from callers. */
function shadowsOf(
  { options, config, catalog, clock, log, metrics, store }: Base,
  shared: SharedDeps,
): Shadows {
  const { evaluator, timeoutMs, hipaaWorkspaces } = config.alignment
  return new Shadows({
    ask: createAskApart({ ...shared, retries: new RetryBudget() }),
    store,
    ledger: shared.ledger,
    catalog,
    metrics,
    clock,
    log,
    requestMs: config.timeouts.requestMs,
    judge: evaluator === null ? null : { model: evaluator.model, timeoutMs, notFor: hipaaWorkspaces },
    draw: options.draw ?? Math.random,
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

interface Caches {
  readonly credentials: CredentialCatalog
  readonly guardrails: GuardrailCache
  readonly toolPermissions: ToolPermissions
  readonly endUserLimits: EndUserLimits
  readonly ownKeys: DecryptedKeys
  readonly plans: Plans
}

/** Drops cached copies of a changed record. The front has the cache of API keys. */
function invalidate(
  { credentials, guardrails, toolPermissions, endUserLimits, ownKeys, plans }: Caches,
  change: Invalidation,
): void {
  if (change.kind === 'all') {
    credentials.invalidateAll()
    guardrails.invalidateAll()
    toolPermissions.invalidateAll()
    endUserLimits.invalidateAll()
    ownKeys.invalidateAll()
    plans.clear()
  } else if (change.kind === 'guardrails') guardrails.invalidate(change.organizationId)
  else if (change.kind === 'workspaces') toolPermissions.invalidate(change.organizationId)
  else if (change.kind === 'end-user') endUserLimits.invalidate(change.organizationId, change.user)
  else if (change.kind === 'credentials') {
    credentials.invalidate(change.organizationId, change.workspaceId)
    for (const id of change.ids) ownKeys.invalidate(id)
  }
  if ('organizationId' in change) plans.invalidate(change.organizationId)
}
