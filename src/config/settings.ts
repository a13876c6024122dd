/**
 * All settings: one entry each, with type, default, meaning and environment variable. Types, checks and the tables of
 * docs/configuration.md (`npm run docs:config`) derive from them. Pure.
 */
import { type Static, Type } from '@sinclair/typebox'
import { LOG_LEVELS } from '../log/log.ts'
import { ABORT_POLICIES, PROMPT_CACHING } from '../providers/provider.ts'
import { OTLP_PROTOCOLS } from '../telemetry/otlp/terms.ts'
import { TRACE_TRUST } from '../telemetry/tracing.ts'
import { AlertReceiver, ExportSchema, type Frozen, ModelSchema, ProviderSchema } from './rows.ts'
import {
  Address,
  collectorUrl,
  coresMinusOne,
  Days,
  FRONT_CHOICES,
  group,
  Host,
  Milliseconds,
  ModelName,
  networks,
  nullable,
  oneOf,
  PerMinute,
  Port,
  proxyUrl,
  quarterOfHeap,
  redisUrl,
  requestsThatFit,
  Slug,
  setting,
  settingsOf,
  socketsThatFit,
  storageUrl,
  Threads,
} from './setting.ts'
import { toolSettings } from './tool-settings.ts'

/** Models of a panel: the interface allows no more in a request. */
const PANEL_MAX = 8

export const Settings = group({
  listen: group({
    host: setting(Address, 'public address', { default: '127.0.0.1', env: 'GATEWAY_HOST' }),
    port: setting(Port, 'public port; 0 picks a free one', { default: 8080, env: 'GATEWAY_PORT' }),
    front: setting(
      oneOf(FRONT_CHOICES),
      'the library that serves HTTP and WebSockets: `uws` (uWebSockets.js, the faster one), `node` (`node:http`, for every system and version of Node), or `auto`: `uws` where it has a build, otherwise `node` ([decision 44](decisions/0044-two-fronts.md))',
      { default: 'auto', env: 'GATEWAY_FRONT' },
    ),
    shared: setting(
      Type.Boolean(),
      'true: another instance may serve on the same port, for a [restart without a gap](#restart-without-a-gap). Without it, a start checks that the port is free',
      { default: false, env: 'GATEWAY_SHARED_PORT' },
    ),
    tls: nullable(
      group({
        cert: setting(
          Address,
          'a PEM file with the certificate and its chain, for [TLS on the public port](operations.md#tls), version 1.2 or newer. Both files are read again when they change; paths are relative to the working directory',
        ),
        key: setting(Address, 'the PEM file with its private key, without a passphrase'),
      }),
    ),
    trustedProxies: setting(
      Type.Array(Address, { maxItems: 1_000 }),
      'addresses and networks (`10.0.0.0/8`, `fd00::/8`) of proxies in front of the gateway; `limits.connectionsPerAddress` does not apply to them, because each carries many clients. They have no other effect: `X-Forwarded-For` is never read',
      { default: [], ...networks },
    ),
    chunkFlush: setting(
      Type.Boolean(),
      'true: a comment (a line with a colon) follows each write of an event stream, for clients that process a chunk only after its line end has arrived; see [inference.md](inference.md#streams)',
      { default: false },
    ),
  }),
  admin: group({
    host: setting(Address, 'admin address: metrics, health', {
      default: '127.0.0.1',
      env: 'GATEWAY_ADMIN_HOST',
    }),
    port: setting(Port, 'admin port; 0 picks a free one', { default: 9090, env: 'GATEWAY_ADMIN_PORT' }),
    hosts: setting(
      Type.Array(Host),
      'names allowed in the `Host` header of requests to the admin port. Always allowed: addresses, `admin.host`, names without a dot, and names that end in `.internal`, `.local` or `.localhost`. Other names get 421, so that a web page cannot read the port through a browser in your network',
      { default: [] },
    ),
  }),
  console: group({
    enabled: setting(Type.Boolean(), 'false: the admin port has no [console](console.md) under `/console`', {
      default: true,
    }),
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
      "`sqlite:PATH`, or `postgres://USER:PASSWORD@HOST/DATABASE` with parameters of `pg` such as `?sslmode=verify-full`. Usage records wait on this machine's disk until they are stored: in `spool` beside the SQLite file, or in `./data/spool`",
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
      'true: every provider that is listed under `providers` and has a key, or whose key is in the environment, is asked for its own [list of models](models.md#discovered-models). Default: only if the file has no `models`',
      { default: null },
    ),
    refreshMs: setting(Type.Integer({ minimum: 1_000, maximum: 86_400_000 }), 'interval of these requests', {
      default: 3_600_000,
    }),
  }),
  simulator: group({
    enabled: setting(
      Type.Union([Type.Boolean(), Type.Null()], { expected: 'true or false' }),
      'true: the catalogue also has the [simulated models](#simulated-models) `sim/…`; false: it never has them. Default: only if there are no `providers`. Your own models with an endpoint at the provider `sim` always work',
      { default: null },
    ),
    batch: setting(
      Type.Boolean(),
      'true: batches of simulated models go to the [batch service](batches.md#batch-services-of-providers) of the simulated provider',
      { default: false },
    ),
  }),
  timeouts: group({
    upstreamHeadersMs: setting(
      Milliseconds,
      'time limit for the first byte from a provider, since reasoning models may think for most of a minute; exceeding it is 524',
      { default: 60_000 },
    ),
    upstreamIdleMs: setting(
      Milliseconds,
      'longest pause between two chunks from a provider; exceeding it is 524, or `response.failed` in a stream',
      { default: 60_000 },
    ),
    requestMs: setting(
      Milliseconds,
      'total time of a request, long enough for agent turns of several minutes; exceeding it is 408',
      {
        default: 600_000,
      },
    ),
    heartbeatMs: setting(
      Milliseconds,
      'a stream that is silent for this long gets a comment line, so that proxies keep the connection: most cut it after 60 s',
      { default: 15_000 },
    ),
    stallMs: setting(
      Milliseconds,
      'a client that reads nothing for this long is disconnected; a longer time only keeps buffers in memory',
      { default: 30_000 },
    ),
    uploadMs: setting(Milliseconds, 'total time for a request body', { default: 300_000 }),
    drainMs: setting(Milliseconds, 'grace period for running requests after SIGTERM', { default: 30_000 }),
    drainDelayMs: setting(
      Type.Integer({ minimum: 0, maximum: 600_000 }),
      'delay between readiness 503 and closing the listener. Behind a load balancer that polls `/readyz`, set twice its polling interval',
      { default: 0 },
    ),
  }),
  routing: group({
    loadBalancing: setting(
      Type.Boolean(),
      'true: the first endpoint of a request is [drawn by price](routing.md#price). false: endpoints are tried in the order of the file. Endpoints without known prices always keep that order',
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
      'what happens to the provider request when its caller disconnects. `finish`: before any content it is closed at once, later at the next content or after 2 s of silence, so that the last frames can still report usage. `cancel`: it is closed at once. `drain`: it is read to the end (at most 64 replies per thread, 4 MiB and 60 s each). Usage that the provider did not report is estimated',
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
      'how many usage records a workspace keeps for requests that reached no model (unknown models, refused fields, guardrails). The oldest ones above this are deleted within minutes; their totals are kept',
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
      'bytes of resumable streams that an instance keeps for one API key. The oldest finished streams are dropped first; a running stream that exceeds this on its own can no longer be resumed. All keys together have `limits.maxBufferedBytes`',
      { default: 16_777_216 },
    ),
  }),
  batches: group({
    maxBytes: setting(
      Type.Integer({ minimum: 1_024, maximum: 1_073_741_824 }),
      "maximum size of a `POST /batches` body, in bytes; a larger one is answered 413 before it is stored. Until their requests are in the database, bodies are kept on this machine's disk, as unnamed files in `uploads` next to the spool: at most eight times this size per serve thread, and a quarter of that per API key",
      { default: 209_715_200 },
    ),
    maxStored: setting(
      Type.Integer({ minimum: 1, maximum: 1_000_000 }),
      'batches that the database keeps per workspace, in all states; more are answered 409. They are kept until they are deleted, or for `retention.batchDays` after their end',
      { default: 10_000 },
    ),
    maxStoredRequests: setting(
      Type.Integer({ minimum: 1, maximum: 1_000_000_000 }),
      'total number of requests in these batches; more are answered 409. Each request takes about 500 bytes in addition to its text',
      { default: 2_000_000 },
    ),
    maxStoredBytes: setting(
      Type.Integer({ minimum: 1_024, maximum: Number.MAX_SAFE_INTEGER }),
      'total bytes of the results and the unfinished requests of these batches; a batch that does not fit is answered 409. Results of accepted batches are always stored',
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
  export: setting(
    Type.Array(ExportSchema, { maxItems: 10 }),
    '[exports of usage](exports.md): copies of all usage records, in files of JSON lines',
    { default: [] },
  ),
  alerts: setting(
    Type.Array(AlertReceiver, { maxItems: 20 }),
    '[receivers of alerts](alerts.md): each is asked by POST when a budget is used up, a provider fails, a key or certificate expires, and so on',
    { default: [] },
  ),
  alignment: group({
    evaluator: nullable(
      group({
        model: setting(
          Address,
          'the model of the catalogue that judges for the [alignment plugin](plugins.md); if unset, requests with the plugin are refused',
        ),
      }),
    ),
    hipaaWorkspaces: setting(
      Type.Array(Address, { maxItems: 10_000 }),
      'ids of workspaces under HIPAA. Their requests with the alignment plugin are refused with 403, because their messages must not be sent to a second model',
      { default: [] },
    ),
    timeoutMs: setting(
      Milliseconds,
      'time limit for judging one message, which is a short answer of a small model. The caller may wait this much longer',
      { default: 5_000 },
    ),
  }),
  moderation: nullable(
    group({
      model: setting(
        Address,
        'the model of the catalogue that judges for the [moderation plugin](plugins.md); if unset, requests with the plugin are refused',
      ),
    }),
  ),
  routers: group({
    classifier: nullable(
      group({
        model: setting(
          Address,
          'a small model of the catalogue that classifies tasks for the [routers](routers.md) and is the judge of `nvidia/switchyard`. Without it they use built-in weights, and `nvidia/switchyard` uses its capable model',
        ),
      }),
    ),
    rankings: setting(
      nullable(Address),
      'a JSON file of [rankings](routers.md#rankings) in place of the shipped one, relative to the working directory. Read at start',
    ),
  }),
  fusion: group({
    panel: setting(
      Type.Array(ModelName, { maxItems: PANEL_MAX }),
      'models of the catalogue that answer in a [fusion](fusion.md) if the request names none; empty: the three most expensive models of the catalogue, from different vendors if possible',
      { default: [] },
    ),
    budgetPanel: setting(
      Type.Array(ModelName, { maxItems: PANEL_MAX }),
      'the same for the preset `general-budget`; empty: the three cheapest models that cost something',
      { default: [] },
    ),
    fastPanel: setting(
      Type.Array(ModelName, { maxItems: PANEL_MAX }),
      'the same for the preset `general-fast`; empty: the three cheapest models that cost something, since small models are fast',
      { default: [] },
    ),
    analyst: setting(
      nullable(ModelName),
      'the model that compares the answers, and also writes the answer of `gateway/fusion`; null: the outer model compares, and the first panel model writes',
    ),
  }),
  files: group({
    links: group({
      enabled: setting(
        Type.Boolean(),
        'false: the [file-parser plugin](plugins.md) does not follow links to documents',
        { default: true },
      ),
      allowHttp: setting(Type.Boolean(), 'true: also plain HTTP, to public addresses', { default: false }),
      allowPrivate: setting(
        Type.Boolean(),
        'true: any address and port, over HTTP too; the system looks names up (hosts file, search domains). Every caller with a key can then make the gateway read from addresses in your internal network: use it only if you trust all callers',
        { default: false },
      ),
      maxBytes: setting(
        Type.Integer({ minimum: 1, maximum: 52_428_800 }),
        'maximum size of one document; a thread keeps at most 16 times as much in memory',
        { default: 10_485_760 },
      ),
      timeoutMs: setting(
        Milliseconds,
        'time limit for one link, including name lookup, redirects and download',
        { default: 10_000 },
      ),
    }),
    pdf: group({
      timeoutMs: setting(
        Milliseconds,
        'time limit for reading one document with the engine `pdf-text`, once a worker has started. Two thousand pages take less than half of the default',
        { default: 5_000 },
      ),
    }),
    ocr: nullable(
      group({
        provider: setting(
          Slug,
          'the provider (a row of `providers`, with its `baseUrl` and `apiKey`) that reads documents for the engine `mistral-ocr`; without it requests that name the engine are refused',
        ),
        model: setting(ModelName, 'its model, for instance `mistral-ocr-latest`'),
        timeoutMs: setting(
          Milliseconds,
          'time limit for the start of its answer; a long scan takes a minute before the first byte',
          { default: 120_000 },
        ),
      }),
    ),
  }),
  tools: toolSettings,
  credits: group({
    lowUsd: setting(
      nullable(Type.Number({ minimum: 0 })),
      'USD of credits below which the [alert](alerts.md) `credits.low` is raised for an organization. null: never',
    ),
    enforced: setting(
      Type.Boolean(),
      'true: an organization spends no more than its credits (`POST /credits`), and nothing if it has none; the embedded mode has no credits',
      { default: false },
    ),
  }),
  quotas: group({
    requestsPerMinute: setting(
      PerMinute,
      'requests of one API key per clock minute, including failed ones; more are answered 429. null: no limit',
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
    '`auto`: if a provider caches only up to cache marks, and cached tokens cost less than the prompt, a conversation that ends in a tool result gets [cache marks from the gateway](messages.md#cache-marks-of-the-gateway) unless its caller sets some',
    { default: 'auto' },
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
      'values of the `Host` header that keep a request in Europe: only endpoints and own credentials declared for Europe serve it ([decision 10](decisions/0010-routing-by-own-credentials.md)). Any other host is global. A name without a port means every port',
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
  limits: group({
    maxConnections: setting(
      Type.Integer({ minimum: 1 }),
      'client connections of the process; never more than 45 % of its file descriptor limit. With one provider connection for each, the default stays below the usual limit of 65,536',
      { default: 20_000 },
    ),
    connectionsPerAddress: setting(
      Type.Integer({ minimum: 0 }),
      'connections per client address (IPv6: per /64 network). Each serve thread enforces its part: this number divided by the threads, rounded up. 0: unlimited. Set it if clients connect without a proxy. A connection that the client closes between two requests may count for 13 s longer',
      { default: 0 },
    ),
    openPerKey: setting(
      Type.Integer({ minimum: 1 }),
      'open requests, including streams, per API key and thread; more are answered 429',
      { default: 5_000 },
    ),
    waitingPerKey: setting(
      Type.Integer({ minimum: 0, maximum: 10_000 }),
      'requests with an end user (`user` or `safety_identifier`) that may wait in one thread while their API key has `openPerKey` requests open; end users get [fair shares](end-users.md#fair-shares). When the queue is full, the newest request of the end user with the most waiting requests is answered 429. 0: none waits. Only bodies up to 256 KiB wait, so the default bounds memory',
      { default: 256 },
    ),
    waitMs: setting(
      Type.Integer({ minimum: 1, maximum: 60_000 }),
      'how long such a request waits before it is answered 429; keep it below the idle timeout of proxies',
      { default: 10_000 },
    ),
    bytesInFlightPerKey: setting(
      nullable(Type.Integer({ minimum: 1 })),
      'bytes of request bodies per API key and thread, counted from the request head until the answer ends. More are answered 429 before they are read. A single request always fits. The same number of answer bytes may wait for slow readers of the key; above that, its next requests are answered 429',
      { defaultText: 'a quarter of `maxBufferedBytes`' },
    ),
    socketsPerKey: setting(
      Type.Integer({ minimum: 1 }),
      'open WebSockets per API key and thread; more are answered 429. Each may buffer a message of 4 MiB, so this bounds the memory of one key',
      socketsThatFit,
    ),
    allowChunked: setting(Type.Boolean(), 'false: chunked request bodies are refused with 411', {
      default: true,
    }),
    closeAfterReply: setting(
      Type.Boolean(),
      'true: the connection is closed after every answer. Use it behind proxies that you do not trust to separate requests ([security](security.md#known-weaknesses))',
      { default: false },
    ),
    maxInFlight: setting(
      Type.Integer({ minimum: 1 }),
      'concurrent requests per thread; more are answered 503 (for keys with few open requests, only above 125 % of this). This bounds memory (about 20 KB each) rather than CPU, since streams mostly wait',
      requestsThatFit,
    ),
    maxLagMs: setting(
      Milliseconds,
      'event loop lag of a thread: the median of recent samples, taken every 50 ms; a long pause counts twice. After 10 s above this, new requests of the keys that use most of the loop are answered 503, until the lag is below half. A lower value reacts earlier, but also when other programs use the CPU',
      { default: 200 },
    ),
    maxBufferedBytes: setting(
      Type.Integer({ minimum: 1_048_576 }),
      'memory for the requests of one thread: parsed bodies, growing answers, and bytes that slow readers have not read. Above it, new requests of the keys that use most are answered 429; above 125 % of it, all others are answered 503. This ends below 80 %. Large requests together may use 75 %: a body or answer beyond that is 503, and a body that could never fit is 413 ([decision 17](decisions/0017-held-bytes.md))',
      quarterOfHeap,
    ),
  }),
  tracing: group({
    endpoint: setting(
      nullable(Address),
      'base address of an OpenTelemetry collector that speaks OTLP over HTTP, such as `http://127.0.0.1:4318`; `/v1/traces` is appended. Null: no [traces](tracing.md). `OTEL_EXPORTER_OTLP_ENDPOINT` and other variables win',
      collectorUrl,
    ),
    protocol: setting(oneOf(OTLP_PROTOCOLS), 'form of what is sent', { default: 'http/protobuf' }),
    share: setting(
      Type.Number({ minimum: 0, maximum: 1 }),
      'share of the requests that are kept, chosen by their trace id, so that all instances keep the same ones. Requests that fail and slow ones are kept in any case',
      { default: 0.01 },
    ),
    keepSlowerThanMs: setting(Milliseconds, 'requests that take longer are slow', { default: 5_000 }),
    trust: setting(
      oneOf(TRACE_TRUST),
      'whose sampled flag in `traceparent` decides in place of `share`: of every caller (`always`), of none (`never`), or of trusted keys (`keys`). No key can be marked as trusted yet, so `keys` is `never`',
      { default: 'keys' },
    ),
    timeoutMs: setting(Milliseconds, 'time that the collector has for its answer', { default: 10_000 }),
    compression: setting(oneOf(['none', 'gzip']), 'compression of what is sent', { default: 'none' }),
    tracesUrl: setting(nullable(Type.String()), 'address of the collector as it is, in place of `endpoint`', {
      environmentOnly: true,
    }),
    headers: setting(Type.Record(Type.String(), Type.String()), 'headers for the collector', {
      default: {},
      environmentOnly: true,
    }),
    serviceName: setting(Type.String(), 'the name of this service in traces', {
      default: 'sluice',
      environmentOnly: true,
    }),
    resource: setting(Type.Record(Type.String(), Type.String()), 'more attributes of this service', {
      default: {},
      environmentOnly: true,
    }),
  }),
  log: group({
    successShare: setting(
      Type.Number({ minimum: 0, maximum: 1 }),
      'share of the [log lines](operations.md#log-lines) of completed requests that are written, evenly spaced: with `0.01`, every hundredth line. Lines of requests that failed, were refused or ended early are always written',
      { default: 1 },
    ),
  }),
  logLevel: setting(oneOf(LOG_LEVELS), 'the lowest level that is logged', {
    default: 'info',
    env: 'LOG_LEVEL',
    environmentOnly: true,
  }),
  httpsProxy: setting(
    nullable(Type.String()),
    "proxy for `https` addresses of providers and links: `http://[USER:PASSWORD@]HOST:PORT`, `https://…`, or `HOST:PORT`. A provider's own `proxy` wins. The lower-case name works too and takes precedence; the same applies to the next two",
    { env: 'HTTPS_PROXY', anyCase: true, secret: true, environmentOnly: true, ...proxyUrl },
  ),
  httpProxy: setting(nullable(Type.String()), 'proxy for `http` addresses, in the same form', {
    env: 'HTTP_PROXY',
    anyCase: true,
    secret: true,
    environmentOnly: true,
    ...proxyUrl,
  }),
  noProxy: setting(
    nullable(Type.String()),
    'comma-separated hosts that are reached without a proxy: names (with their subdomains), addresses, networks such as `10.0.0.0/8`, each with or without a port; `*` means all',
    { env: 'NO_PROXY', anyCase: true, environmentOnly: true },
  ),
  managementKey: setting(
    nullable(Type.String()),
    'management key in plain text, added to the store at start unless it is already there or was deleted',
    { env: 'GATEWAY_MANAGEMENT_KEY', secret: true, environmentOnly: true },
  ),
  apiKey: setting(nullable(Type.String()), 'API key in plain text, added in the same way', {
    env: 'GATEWAY_API_KEY',
    secret: true,
    environmentOnly: true,
  }),
  vaultKeys: setting(
    nullable(Type.String()),
    '[master keys](#master-keys), `id:base64-of-32-bytes[,id2:…]`. Without it, the embedded mode makes a file `vault.key` (mode 0600) beside the database. Required with PostgreSQL, the same for all instances',
    { env: 'GATEWAY_VAULT_KEYS', secret: true, environmentOnly: true },
  ),
  providerKeys: setting(
    Type.Record(Type.String(), Type.String()),
    'keys of providers from the variables of the built-in table, by slug',
    { default: {}, environmentOnly: true },
  ),
})

export const SETTINGS = settingsOf(Settings)

/** The complete configuration: every setting has a value. */
export interface Config extends Frozen<Static<typeof Settings>> {}
