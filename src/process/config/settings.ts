/**
 * All settings: one entry each, with type, default, meaning and environment variable. Types, checks and the tables of
 * docs/configuration.md (`npm run docs:config`) derive from them. Pure.
 */
import { type Static, Type } from '@sinclair/typebox'
import {
  Address,
  coresMinusOne,
  Days,
  type Frozen,
  group,
  Host,
  Milliseconds,
  ModelName,
  nullable,
  oneOf,
  PerMinute,
  redisUrl,
  setting,
  settingsOf,
  storageUrl,
  Threads,
} from '../../base/settings/setting.ts'
import { ABORT_POLICIES, COMPACTION_MODES, PROMPT_CACHING } from '../../protocol/provider.ts'
import { ModelSchema, ProviderSchema } from '../../providers/row-schemas.ts'
import {
  alignmentSettings,
  fusionSettings,
  moderationSettings,
  routersSettings,
} from './asked-model-settings.ts'
import { consoleSettings } from './console-settings.ts'
import { filesSettings } from './document-settings.ts'
import { environmentSettings } from './environment-settings.ts'
import { limitsSettings } from './limits-settings.ts'
import { AlertReceiver, ExportSchema } from './list-rows.ts'
import { adminSettings, listenSettings } from './listen-settings.ts'
import { timeoutsSettings } from './timeouts-settings.ts'
import { toolSettings } from './tool-settings.ts'
import { tracingSettings } from './tracing-settings.ts'

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
  storage: group({
    url: setting(
      Address,
      "`sqlite:PATH`, or `postgres://USER:PASSWORD@HOST/DATABASE` with parameters of `pg` such as `?sslmode=verify-full`. Usage records wait on this machine's disk until they are stored: in `spool` next to the SQLite file, or in `./data/spool`",
      {
        default: 'sqlite:./data/gateway.db',
        env: 'DATABASE_URL',
        secret: true,
        required: true,
        ...storageUrl,
      },
    ),
  }),
  redis: group({
    url: setting(
      nullable(Address),
      '`redis://[USER:PASSWORD@]HOST:PORT[/DATABASE]`, or `rediss://…` for TLS. Several instances count limits and announce changes through it; one server, no cluster. Without Redis, each instance counts limits in its memory, and PostgreSQL, if it is the storage, announces changes',
      {
        env: 'REDIS_URL',
        secret: true,
        required: true,
        ...redisUrl,
      },
    ),
    prefix: setting(
      Type.String({ pattern: '^[\\x21-\\x7e]{1,64}$' }),
      'prefix of every key and channel in Redis; must be the same for all instances that belong together',
      { default: 'sluice:' },
    ),
    silenceMs: setting(
      Milliseconds,
      'if Redis does not answer for this long while requests wait, it is treated as unavailable, and this instance uses its own share of the limits. A normal answer takes a hundredth of this time',
      { default: 50 },
    ),
  }),
  providers: setting(Type.Array(ProviderSchema), 'adds or changes providers, by slug', { default: [] }),
  models: setting(
    Type.Array(ModelSchema),
    'the models, in addition to [imported and discovered ones](models.md). Without `providers` the catalogue also has the [simulated models](#simulated-models)',
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
  routing: group({
    loadBalancing: setting(
      Type.Boolean(),
      'true: the first endpoint of a request is [picked at random, weighted by price](routing.md#price). false: endpoints are tried in the order of the file. Endpoints without known prices always keep that order',
      { default: true },
    ),
    breakerFailures: setting(
      Type.Union([Type.Null(), Type.Integer({ minimum: 1, maximum: 1_000_000 })], {
        expected: 'null or an integer from 1 to 1000000',
      }),
      'number of failures within 30 s, either consecutive or more than the successes, after which an endpoint is [not used for a while](routing.md#health). null: it is always used, even before its `Retry-After` has passed',
      { default: 5 },
    ),
    hedgeAfterMs: setting(
      Type.Union([Type.Null(), Type.Integer({ minimum: 1, maximum: 600_000 })], {
        expected: 'null or an integer from 1 to 600000',
      }),
      'how long an endpoint may stay silent before [a second one is tried as well](routing.md#hedging). null: never, because providers may bill a hedged request twice',
      { default: null },
    ),
  }),
  upstream: group({
    maxConnections: setting(
      Type.Integer({ minimum: 1, maximum: 1_000_000 }),
      'connections of one thread to one origin, counted separately for each own credential. Further requests wait up to 10 s for a free one; then the next endpoint is tried. With HTTP/2 each connection carries 100 requests. The default is at least that of `limits.maxInFlight`, so no request waits',
      { default: 10_000 },
    ),
    maxAgeMs: setting(
      Milliseconds,
      'age above which a connection to a provider takes no further requests. A new connection resolves the name again, so that a changed address is used. Running requests are not interrupted',
      { default: 300_000 },
    ),
  }),
  accounting: group({
    onAbort: setting(
      oneOf(ABORT_POLICIES),
      'what happens to the provider request when its caller disconnects. `finish`: before any content it is closed at once, later at the next content or after 2 s of silence, so that the last frames can still report usage. `cancel`: it is closed at once. `drain`: it is read to the end (at most 64 replies per thread and 16 per key, 4 MiB and 60 s each). Usage that the provider did not report is estimated',
      { default: 'finish', required: true },
    ),
  }),
  retention: group({
    usageDays: setting(
      Days,
      'usage records older than this are deleted. Their daily totals are kept, for limits, `GET /key`, `GET /credits` and `GET /activity`',
      { default: 400 },
    ),
    unaskedRecords: setting(
      Type.Integer({ minimum: 100, maximum: 100_000_000 }),
      'how many usage records a workspace keeps for requests that never reached a model (unknown models, refused fields, guardrails). The oldest ones above this are deleted within minutes; their totals are kept, except totals by end user, which do not count these requests',
      { default: 10_000 },
    ),
    auditDays: setting(Days, 'audit records older than this are deleted', { default: 400 }),
    batchDays: setting(Days, 'finished batches older than this are deleted', { default: 30 }),
  }),
  resume: group({
    windowMs: setting(
      Type.Integer({ minimum: 1_000, maximum: 3_600_000 }),
      'how long a [resumable stream](resumable-streams.md) can be resumed after its end, and how long it continues without a reader',
      { default: 120_000 },
    ),
    maxBytesPerKey: setting(
      Type.Integer({ minimum: 65_536 }),
      'bytes of resumable streams that an instance keeps for one API key. The oldest finished streams are dropped first; a running stream that exceeds this on its own can no longer be resumed. The limit for all keys together is `limits.maxBufferedBytes`',
      { default: 16_777_216 },
    ),
  }),
  batches: group({
    maxBytes: setting(
      Type.Integer({ minimum: 1_024, maximum: 1_073_741_824 }),
      "maximum size of a `POST /batches` body, in bytes; a larger one is rejected with 413 before it is stored. Until their requests are in the database, bodies are kept on this machine's disk, as unnamed files in `uploads` next to the spool: at most eight times this size per serve thread, and a quarter of that per API key",
      { default: 209_715_200 },
    ),
    maxStored: setting(
      Type.Integer({ minimum: 1, maximum: 1_000_000 }),
      'batches that the database keeps per workspace, in all states; further ones are rejected with 409. They are kept until they are deleted, or for `retention.batchDays` after their end',
      { default: 10_000 },
    ),
    maxStoredRequests: setting(
      Type.Integer({ minimum: 1, maximum: 1_000_000_000 }),
      'total number of requests in these batches; further ones are rejected with 409. Each request takes 300 to 500 bytes in addition to its text',
      { default: 2_000_000 },
    ),
    maxStoredBytes: setting(
      Type.Integer({ minimum: 1_024, maximum: Number.MAX_SAFE_INTEGER }),
      'total bytes of the results and the unfinished requests of these batches; a batch that does not fit is rejected with 409. Results of accepted batches are always stored',
      { default: 10_737_418_240 },
    ),
    priceFactor: setting(
      Type.String({ pattern: '^\\d(?:\\.\\d{1,6})?$', expected: 'a decimal number below 10, as a string' }),
      'share of the catalogue price that is charged for requests in [batches](batches.md), e.g. `"0.5"` for half',
      { default: '1' },
    ),
    concurrency: setting(
      Type.Integer({ minimum: 1, maximum: 10_000 }),
      'batch requests that one instance runs at once, across all batches. It starts with 16 per provider, adapts to what the provider accepts, and drops to a sixteenth while live requests suffer. With the default, 50,000 requests of one minute each take less than seven hours',
      { default: 128 },
    ),
  }),
  capture: group({
    enabled: setting(
      Type.Boolean(),
      'true: management keys may have the requests of one API key or workspace [captured](captures.md) for a few minutes, in sealed files below the data folder',
      { default: false },
    ),
    maxBytes: setting(
      Type.Integer({ minimum: 65_536, maximum: 10_737_418_240 }),
      'maximum size of one capture, counting the files of all nodes',
      { default: 104_857_600 },
    ),
  }),
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
  alignment: alignmentSettings,
  moderation: moderationSettings,
  routers: routersSettings,
  fusion: fusionSettings,
  files: filesSettings,
  tools: toolSettings,
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
  quotas: group({
    requestsPerMinute: setting(
      PerMinute,
      'requests of one API key per clock minute, including failed ones; further ones are rejected with 429. null: no limit',
      { default: null },
    ),
    tokensPerMinute: setting(
      PerMinute,
      'input and output tokens of one API key per clock minute, counted when the request is admitted. null: no limit',
      { default: null },
    ),
    nodes: setting(
      Type.Integer({ minimum: 1, maximum: 10_000 }),
      'number of instances that share the limits. Without Redis, or while it is unavailable, each instance may use this share of the last known balance',
      { default: 1 },
    ),
  }),
  credentials: group({
    maxEntries: setting(
      Type.Integer({ minimum: 1, maximum: 1_000_000 }),
      'decrypted customer provider keys that a thread caches in memory. Fewer mean less risk if memory is leaked',
      { default: 1_000 },
    ),
    maxBytes: setting(
      Type.Integer({ minimum: 65_536 }),
      'bytes of decrypted provider keys that a thread caches',
      { default: 4_194_304 },
    ),
    ttlMs: setting(
      Milliseconds,
      'how long a thread caches a decrypted provider key; never more than five minutes',
      { default: 300_000 },
    ),
  }),
  promptCaching: setting(
    oneOf(PROMPT_CACHING),
    '`auto`: where a provider caches only up to cache marks, and cached tokens cost less than the prompt, the gateway sets [cache marks of its own](messages.md#cache-marks-added-by-the-gateway) in two cases: the conversation ends in a tool result, or it begins with what it sent in the last five minutes. It sets none if the caller does',
    { default: 'auto' },
  ),
  compaction: setting(
    oneOf(COMPACTION_MODES),
    '`provider`: providers of the `openai-responses` format [summarize conversations themselves](inference.md#compaction), and so do others whose row says so; `own`: the model of the request writes a summary',
    { default: 'own' },
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
  byok: group({
    feePercent: setting(
      Type.Number({ minimum: 0, maximum: 100 }),
      "fee for a request on a customer's own credential, in percent of its catalogue price; shown as `usage.cost`. The provider bills the owner of the credential directly",
      { default: 0 },
    ),
  }),
  limits: limitsSettings,
  tracing: tracingSettings,
  metrics: group({
    byWorkspace: setting(
      Type.Boolean(),
      '[requests, tokens and cost by workspace](metrics.md#by-workspace): the first 50 workspaces seen keep their series until a restart, and all others are counted as `other`',
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
