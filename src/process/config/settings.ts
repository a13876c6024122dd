/**
 * All settings: one entry each, with type, default, meaning and environment variable. Types, checks and the tables of
 * docs/configuration.md (`npm run docs:config`) derive from them. Pure.
 */
import { type Static, Type } from '@sinclair/typebox'
import { consoleSettings } from '../../apps/console/settings.ts'
import {
  Address,
  coresMinusOne,
  type Frozen,
  group,
  Host,
  ModelName,
  nullable,
  oneOf,
  setting,
  settingsOf,
  Threads,
} from '../../base/settings/setting.ts'
import { timeoutsSettings } from '../../base/settings/timeouts.ts'
import { tracingSettings } from '../../base/telemetry/settings.ts'
import { batchesSettings } from '../../batches/settings.ts'
import { quotasSettings } from '../../callers/settings.ts'
import { captureSettings } from '../../features/captures/settings.ts'
import { filesSettings } from '../../features/files/settings.ts'
import {
  alignmentSettings,
  documentSettings,
  moderationSettings,
  routersSettings,
} from '../../features/plugins/settings.ts'
import { sandboxSettings } from '../../features/sandbox/settings.ts'
import {
  fusionSettings,
  mcpSettings,
  webFetchSettings,
  webSearchSettings,
} from '../../features/tools/settings.ts'
import { accountingSettings, byokSettings, routingSettings } from '../../pipeline/settings.ts'
import { COMPACTION_MODES, PROMPT_CACHING } from '../../protocol/provider.ts'
import { ModelSchema, ProviderSchema, RolloutSchema, RouteSchema } from '../../providers/row-schemas.ts'
import { credentialsSettings, upstreamSettings } from '../../providers/settings.ts'
import { adminSettings, limitsSettings, listenSettings } from '../../server/settings.ts'
import {
  cacheSettings,
  idempotencySettings,
  redisSettings,
  resumeSettings,
  retentionSettings,
  storageSettings,
} from '../../storage/settings.ts'
import { environmentSettings } from './environment-settings.ts'
import { AlertReceiver, ExportSchema, ReconcileSchema } from './list-rows.ts'

export const Settings = group({
  listen: listenSettings,
  admin: adminSettings,
  console: consoleSettings,
  docs: group({
    public: setting(
      Type.Boolean(),
      'true: the public port also serves the [reference](openapi.md), at `/docs` and without a key',
      { default: false },
    ),
  }),
  threads: group({
    serve: setting(
      Threads,
      'event loops that serve requests; each takes one core. If the front cannot share a port (`listen.front: node` on macOS and Windows), only 1 is allowed',
      {
        ...coresMinusOne,
        env: 'GATEWAY_SERVE_THREADS',
      },
    ),
    warmUpMs: setting(
      Type.Integer({ minimum: 0, maximum: 60_000 }),
      'how long a new serve thread warms up: while idle between requests, it sends itself requests to the simulated provider, so that the engine compiles the code. 0: no warm-up',
      { default: 600, env: 'GATEWAY_WARM_UP_MS' },
    ),
    tasks: setting(
      Threads,
      'task workers of the whole process, divided among the serve threads and rounded up, with at least two for each. Each serve thread has two more for documents. Workers start with the first task ([decision 11](decisions/0011-task-pool.md))',
      { ...coresMinusOne, env: 'GATEWAY_TASK_THREADS' },
    ),
  }),
  storage: storageSettings,
  redis: redisSettings,
  providers: setting(Type.Array(ProviderSchema), 'adds or changes providers, by slug', { default: [] }),
  models: setting(
    Type.Array(ModelSchema),
    'the models, in addition to [imported and discovered ones](models.md). Without `providers` the catalogue also has the [simulated models](#simulated-models)',
    { default: [] },
  ),
  routes: setting(
    Type.Array(RouteSchema),
    '[routes](routes.md): names that lead to several models, with weights, conditions and fallbacks',
    { default: [] },
  ),
  rollouts: setting(
    Type.Array(RolloutSchema, { maxItems: 100 }),
    '[rollouts](rollouts.md): candidates that get a growing share of a route, and are rolled back if they are worse',
    { default: [] },
  ),
  defaultModel: setting(
    nullable(ModelName),
    'the model for requests that name none; if unset, such requests are refused with 400',
  ),
  catalogue: group({
    import: setting(
      nullable(Address),
      'a JSON file of [models](models.md#imported-models) in the public format, relative to the working directory. Read at start and when it changes; it takes precedence over `sluice models import`',
    ),
    discover: setting(
      Type.Union([Type.Boolean(), Type.Null()], { expected: 'true or false' }),
      'true: the gateway fetches the [list of models](models.md#discovered-models) of every provider that is listed under `providers` and has a key, or whose key is in the environment. Default: only if the file has no `models`',
      { default: null },
    ),
    refreshMs: setting(
      Type.Integer({ minimum: 1_000, maximum: 86_400_000 }),
      'how often these lists are fetched',
      {
        default: 3_600_000,
      },
    ),
  }),
  simulator: group({
    enabled: setting(
      Type.Union([Type.Boolean(), Type.Null()], { expected: 'true or false' }),
      'true: the catalogue also has the [simulated models](#simulated-models) `sim/…`; false: it never has them. Default: only if there are no `providers`. Your own models with an endpoint at the `sim` provider always work',
      { default: null },
    ),
    batch: setting(
      Type.Boolean(),
      'true: batches of simulated models go to the [batch service](batches.md#providers-batch-services) of the simulated provider',
      { default: false },
    ),
  }),
  timeouts: timeoutsSettings,
  routing: routingSettings,
  upstream: upstreamSettings,
  accounting: accountingSettings,
  retention: retentionSettings,
  resume: resumeSettings,
  idempotency: idempotencySettings,
  cache: cacheSettings,
  batches: batchesSettings,
  capture: captureSettings,
  export: setting(
    Type.Array(ExportSchema, { maxItems: 10 }),
    '[exports of usage](exports.md): copies of all usage records, in files of JSON lines',
    { default: [] },
  ),
  alerts: setting(
    Type.Array(AlertReceiver, { maxItems: 20 }),
    '[receivers of alerts](alerts.md): each gets a POST when a budget is used up, a provider fails, a key or certificate expires, and so on',
    { default: [] },
  ),
  reconcile: setting(
    Type.Array(ReconcileSchema, { maxItems: 20 }),
    '[usage reports of providers](costs.md#compare-the-ledger-with-the-providers-reports), which are compared with the ledger once a day',
    { default: [] },
  ),
  alignment: alignmentSettings,
  moderation: moderationSettings,
  routers: routersSettings,
  fusion: fusionSettings,
  files: documentSettings,
  tools: group({
    webSearch: webSearchSettings,
    webFetch: webFetchSettings,
    mcp: mcpSettings,
    sandbox: sandboxSettings,
    files: filesSettings,
  }),
  credits: group({
    lowUsd: setting(
      nullable(Type.Number({ minimum: 0 })),
      'USD of credits below which the [alert](alerts.md) `credits.low` is raised for an organization. null: never',
    ),
    enforced: setting(
      Type.Boolean(),
      'true: an organization can spend no more than its credits (`POST /credits`), and nothing if it has none. Embedded mode has no credits',
      { default: false },
    ),
  }),
  quotas: quotasSettings,
  credentials: credentialsSettings,
  promptCaching: setting(
    oneOf(PROMPT_CACHING),
    '`auto`: where a provider caches only up to cache marks, and cached tokens cost less than the prompt, the gateway sets [cache marks of its own](routing.md#prompt-caches-prompt-caching) in conversations, if the caller sets none',
    { default: 'auto' },
  ),
  compaction: setting(
    oneOf(COMPACTION_MODES),
    '`provider`: providers of the `openai-responses` format [summarize conversations themselves](inference.md#compaction), and so do others whose row says so; `own`: the model of the request writes a summary',
    { default: 'own' },
  ),
  continueStreams: setting(
    Type.Union([Type.Boolean(), Type.Literal('instruction')], { expected: 'true, false or "instruction"' }),
    'true: a stream of text that breaks after its first content [is continued at another endpoint](continuation.md) whose row has `continues`. `"instruction"`: also at endpoints that need an instruction to continue. Rows of providers and endpoints, and `provider.continue_streams` of a request, override it',
    { default: false },
  ),
  region: setting(
    Type.String({ pattern: '^[\\x20-\\x7e]{1,64}$', expected: '1 to 64 printable characters' }),
    'location of this gateway, shown in `gateway_metadata.region`',
    { default: 'local' },
  ),
  proof: group({
    keyFile: setting(
      Address,
      'JWK set of the Ed25519 keys that sign [proofs of placement](proof.md), relative to the working directory. The first key signs, and all are published; the file is created for the first proof (mode 0600)',
      { default: './data/proof.key' },
    ),
  }),
  regions: group({
    europe: setting(
      Type.Array(Host),
      'values of the `Host` header that keep a request in Europe: only endpoints and BYOK credentials declared for Europe serve it ([decision 10](decisions/0010-routing-by-own-credentials.md)). Any other host is global. A name without a port means every port',
      { default: [] },
    ),
    us: setting(Type.Array(Host), 'the same for the United States', { default: [] }),
  }),
  byok: byokSettings,
  limits: limitsSettings,
  tracing: tracingSettings,
  metrics: group({
    byWorkspace: setting(
      Type.Boolean(),
      '[requests, tokens and cost by workspace](metrics.md#by-workspace-and-key): the first 50 workspaces seen keep their series until a restart, and all others are counted as `other`',
      { default: false },
    ),
    byKey: setting(
      Type.Boolean(),
      '[requests, tokens and cost by API key](metrics.md#by-workspace-and-key): the first 50 keys seen keep their series until a restart, and all others are counted as `other`',
      { default: false },
    ),
    genAi: setting(
      Type.Boolean(),
      '[metrics under the names of the OpenTelemetry conventions for generative AI](metrics.md#names-from-the-genai-conventions), in addition to our own',
      { default: false },
    ),
  }),
  log: group({
    successShare: setting(
      Type.Number({ minimum: 0, maximum: 1 }),
      'share of the [log lines](operations.md#log-lines) of completed requests that are written, evenly spaced: with `0.01`, every hundredth line. Lines of requests that failed, were refused or ended early are always written',
      { default: 1 },
    ),
  }),
  ...environmentSettings,
})

export const SETTINGS = settingsOf(Settings)

/** The complete configuration: every setting has a value. */
export interface Config extends Frozen<Static<typeof Settings>> {}
