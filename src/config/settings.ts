/**
 * All settings: one entry each, with type, default, meaning and environment variable. Types, checks and the tables of
 * docs/configuration.md (`npm run docs:config`) derive from them. Pure.
 */
import { type Static, Type } from '@sinclair/typebox'
import { LOG_LEVELS } from '../log/log.ts'
import { ABORT_POLICIES, PROMPT_CACHING } from '../providers/provider.ts'
import { type Frozen, ModelSchema, ProviderSchema } from './rows.ts'
import {
  Address,
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
    port: setting(Port, 'public port; 0 takes a free one', { default: 8080, env: 'GATEWAY_PORT' }),
    front: setting(
      oneOf(FRONT_CHOICES),
      'the library by which HTTP and WebSockets come: `uws` (uWebSockets.js, the faster one), `node` (`node:http`, for every system and version of Node), or `auto`: the first one where it has a build, else the second ([decision 44](decisions/0044-two-fronts.md))',
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
      'addresses and networks (`10.0.0.0/8`, `fd00::/8`) of proxies in front, which `limits.connectionsPerAddress` does not limit, since each carries many clients. Nothing else depends on it; `X-Forwarded-For` is never read',
      { default: [], ...networks },
    ),
    chunkFlush: setting(
      Type.Boolean(),
      'true: a comment (a line with a colon) follows each write of an event stream, for clients that hand on a chunk only when its line end has come; see [inference.md](inference.md#streams)',
      { default: false },
    ),
  }),
  admin: group({
    host: setting(Address, 'admin address: metrics, health', {
      default: '127.0.0.1',
      env: 'GATEWAY_ADMIN_HOST',
    }),
    port: setting(Port, 'admin port; 0 takes a free one', { default: 9090, env: 'GATEWAY_ADMIN_PORT' }),
    hosts: setting(
      Type.Array(Host),
      'names that the `Host` header of a request to the admin port may have. Always allowed: addresses, `admin.host`, names without a dot, and names that end in `.internal`, `.local` or `.localhost`. Other names get 421, so that a web page cannot read the port through a browser in your network',
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
      'event loops that serve requests; each takes one core. Where the front cannot share a port (`listen.front: node` on macOS and Windows), one serves, and another number is refused',
      {
        ...coresMinusOne,
        env: 'GATEWAY_SERVE_THREADS',
      },
    ),
    warmUpMs: setting(
      Type.Integer({ minimum: 0, maximum: 60_000 }),
      'time that a serve thread warms up once it takes traffic, in the gaps that callers leave: it sends itself requests for the simulated provider, so that the engine compiles the code. 0: no warm-up',
      { default: 600, env: 'GATEWAY_WARM_UP_MS' },
    ),
    tasks: setting(
      Threads,
      'task workers of the whole process, divided by the serve threads and rounded up, at least two for each. Each serve thread has two more for documents. Workers start with the first task ([decision 11](decisions/0011-task-pool.md))',
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
      'begins every key and channel in Redis; the same for all instances that belong together',
      { default: 'sluice:' },
    ),
    silenceMs: setting(
      Milliseconds,
      'if Redis answers nothing for this long while requests wait, it counts as away, and requests go on with the share of this instance. An ordinary answer takes a hundredth of this time',
      { default: 50 },
    ),
  }),
  providers: setting(Type.Array(ProviderSchema), 'adds or changes providers, by slug', { default: [] }),
  models: setting(
    Type.Array(ModelSchema),
    'the models, beside [imported and discovered ones](models.md). Without `providers` the catalogue also has the [simulated models](#simulated-models)',
    { default: [] },
  ),
  defaultModel: setting(
    nullable(ModelName),
    'the model of requests that name none; without it they are refused with 400',
  ),
  catalogue: group({
    import: setting(
      nullable(Address),
      'a JSON file of [models](models.md#imported-models) in the public shape, relative to the working directory. Read at start and when it changes; it wins over `sluice models import`',
    ),
    discover: setting(
      Type.Union([Type.Boolean(), Type.Null()], { expected: 'true or false' }),
      'true: every provider that has a key and stands under `providers`, or whose key is in the environment, is asked for its own [list of models](models.md#discovered-models). Default: only if the file has no `models`',
      { default: null },
    ),
    refreshMs: setting(
      Type.Integer({ minimum: 1_000, maximum: 86_400_000 }),
      'time between two such questions',
      { default: 3_600_000 },
    ),
  }),
  simulator: group({
    enabled: setting(
      Type.Union([Type.Boolean(), Type.Null()], { expected: 'true or false' }),
      'true: the catalogue also has the [simulated models](#simulated-models) `sim/…`; false: it never has. Default: only without `providers`. A model of your own with an endpoint at the provider `sim` works in any case',
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
      'time to the first byte of a provider: reasoning models may think for most of a minute; past it: 524',
      { default: 60_000 },
    ),
    upstreamIdleMs: setting(
      Milliseconds,
      'silence between two chunks of a provider; past it: 524, or `response.failed` in a stream',
      { default: 60_000 },
    ),
    requestMs: setting(Milliseconds, 'total time, minutes for agent turns; past it: 408', {
      default: 600_000,
    }),
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
    drainMs: setting(Milliseconds, 'grace for running requests after SIGTERM', { default: 30_000 }),
    drainDelayMs: setting(
      Type.Integer({ minimum: 0, maximum: 600_000 }),
      'time from readiness 503 to the closing of the listener. Behind a load balancer that polls `/readyz`, set twice its interval',
      { default: 0 },
    ),
  }),
  routing: group({
    loadBalancing: setting(
      Type.Boolean(),
      'true: the first endpoint of a request is [drawn by price](routing.md#price). false: endpoints are asked in the order of the file. Endpoints without known prices keep that order in any case',
      { default: true },
    ),
    breakerFailures: setting(
      Type.Union([Type.Null(), Type.Integer({ minimum: 1, maximum: 1_000_000 })], {
        expected: 'null or an integer from 1 to 1000000',
      }),
      'failures of an endpoint in 30 s, in a row or more than its successes, after which it is [not asked for a while](routing.md#health). null: it is always asked, even before the time of its `Retry-After`',
      { default: 5 },
    ),
    hedgeAfterMs: setting(
      Type.Union([Type.Null(), Type.Integer({ minimum: 1, maximum: 600_000 })], {
        expected: 'null or an integer from 1 to 600000',
      }),
      'silence of an endpoint after which [a second one is asked too](routing.md#hedging). null: never, because a hedged request may be billed twice by providers',
      { default: null },
    ),
  }),
  upstream: group({
    maxConnections: setting(
      Type.Integer({ minimum: 1, maximum: 1_000_000 }),
      'connections of one thread to one origin, counted separately for each own credential. Further requests wait for a free one for at most 10 s; then the next endpoint is asked. With HTTP/2 each connection carries 100 requests. The default is not below that of `limits.maxInFlight`, so no request waits',
      { default: 10_000 },
    ),
    maxAgeMs: setting(
      Milliseconds,
      'greatest age at which a connection to a provider takes another request. A new connection looks the name up again, so a changed address is used. A running request is not cut',
      { default: 300_000 },
    ),
  }),
  accounting: group({
    onAbort: setting(
      oneOf(ABORT_POLICIES),
      'what happens to the provider request when its caller leaves. `finish`: it ends at once before any content, later at the next content or after 2 s of silence, so that last frames can still report usage. `cancel`: it ends at once. `drain`: it is read to the end (at most 64 replies a thread, 4 MiB and 60 s each). Usage that the provider did not report is estimated',
      { default: 'finish', required: true },
    ),
  }),
  retention: group({
    usageDays: setting(
      Days,
      'usage records older than this are removed. Their daily totals stay, for limits, `GET /key`, `GET /credits` and `GET /activity`',
      { default: 400 },
    ),
    unaskedRecords: setting(
      Type.Integer({ minimum: 100, maximum: 100_000_000 }),
      'usage records that one workspace keeps of requests for which no model was asked: unknown models, refused fields, guardrails. The oldest ones beyond are removed within minutes; their totals stay',
      { default: 10_000 },
    ),
    auditDays: setting(Days, 'audit records older than this are removed', { default: 400 }),
    batchDays: setting(Days, 'finished batches older than this are removed', { default: 30 }),
  }),
  resume: group({
    windowMs: setting(
      Type.Integer({ minimum: 1_000, maximum: 3_600_000 }),
      'how long a [resumable stream](resumable-streams.md) can be read again after its end, and goes on without a reader',
      { default: 120_000 },
    ),
    maxBytesPerKey: setting(
      Type.Integer({ minimum: 65_536 }),
      'bytes of the resumable streams of one API key that an instance keeps. The oldest finished streams make room; a running one that needs more alone can no longer be resumed. All keys together have `limits.maxBufferedBytes`',
      { default: 16_777_216 },
    ),
  }),
  batches: group({
    maxBytes: setting(
      Type.Integer({ minimum: 1_024, maximum: 1_073_741_824 }),
      "greatest body of `POST /batches`, in bytes; a larger one is answered 413 before it is stored. Bodies wait on this machine's disk until their requests are in the database: in `uploads` beside the spool, without names, at most eight times as much for each serve thread, of which one API key has a quarter",
      { default: 209_715_200 },
    ),
    maxStored: setting(
      Type.Integer({ minimum: 1, maximum: 1_000_000 }),
      'batches that the database keeps for one workspace, in all states; more are answered 409. They are kept until they are deleted, or for `retention.batchDays` after their end',
      { default: 10_000 },
    ),
    maxStoredRequests: setting(
      Type.Integer({ minimum: 1, maximum: 1_000_000_000 }),
      'requests that these batches may have together; more are answered 409. The row of a request takes about 500 bytes beside its text',
      { default: 2_000_000 },
    ),
    maxStoredBytes: setting(
      Type.Integer({ minimum: 1_024, maximum: Number.MAX_SAFE_INTEGER }),
      'bytes that the requests without a result, and the results, of these batches may have together; a batch for which no room is left is answered 409. Results of accepted batches are stored all the same',
      { default: 10_737_418_240 },
    ),
    priceFactor: setting(
      Type.String({ pattern: '^\\d(?:\\.\\d{1,6})?$', expected: 'a decimal number below 10, as a string' }),
      'share of the prices of the catalogue that is charged for requests of [batches](batches.md), e.g. `"0.5"` for half',
      { default: '1' },
    ),
    concurrency: setting(
      Type.Integer({ minimum: 1, maximum: 10_000 }),
      'requests of batches that one instance runs at once, over all batches. It begins with 16 at each provider, finds out how many the provider takes, and uses a sixteenth while live requests suffer. With the default, 50,000 requests of one minute each take less than seven hours',
      { default: 128 },
    ),
  }),
  alignment: group({
    evaluator: nullable(
      group({
        model: setting(
          Address,
          'the model of the catalogue that judges for the [alignment plugin](plugins.md); without it requests that carry the plugin are refused',
        ),
      }),
    ),
    hipaaWorkspaces: setting(
      Type.Array(Address, { maxItems: 10_000 }),
      'ids of workspaces under HIPAA. If a request of their keys has the alignment plugin, it is refused with 403, because their messages may not go to a second model',
      { default: [] },
    ),
    timeoutMs: setting(
      Milliseconds,
      'time to judge one message, a short answer of a small model. The caller waits this much longer',
      { default: 5_000 },
    ),
  }),
  moderation: nullable(
    group({
      model: setting(
        Address,
        'the model of the catalogue that judges for the [moderation plugin](plugins.md); without it requests that carry the plugin are refused',
      ),
    }),
  ),
  routers: group({
    classifier: nullable(
      group({
        model: setting(
          Address,
          'a small model of the catalogue that tells the [routers](routers.md) the type of a task, and judges for `nvidia/switchyard`. Without it they use weights of their own, and `nvidia/switchyard` takes its capable model',
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
      'models of the catalogue that answer in a [fusion](fusion.md) whose request names none; empty: the three dearest models of the catalogue, of different authors where there are so many',
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
      'the model that compares the answers, and that writes the answer of `gateway/fusion`; null: the outer model compares, and the first one of the panel writes',
    ),
  }),
  files: group({
    links: group({
      enabled: setting(
        Type.Boolean(),
        'false: the [file-parser plugin](plugins.md) follows no links to documents',
        { default: true },
      ),
      allowHttp: setting(Type.Boolean(), 'true: also plain HTTP, to public addresses', { default: false }),
      allowPrivate: setting(
        Type.Boolean(),
        'true: any address and port, over HTTP too; the system looks names up (hosts file, search domains). Every caller with a key can then make the gateway read addresses in its own network. Only for trusted callers whose documents are there',
        { default: false },
      ),
      maxBytes: setting(
        Type.Integer({ minimum: 1, maximum: 52_428_800 }),
        'for one document; a thread holds at most 16 times as much',
        { default: 10_485_760 },
      ),
      timeoutMs: setting(Milliseconds, 'for one link: name, redirects and bytes', { default: 10_000 }),
    }),
    pdf: group({
      timeoutMs: setting(
        Milliseconds,
        'time to read one document with the engine `pdf-text`, after a worker has taken it. Two thousand pages take less than half of the default',
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
          'time until its answer begins; a long scan takes a minute before the first byte',
          { default: 120_000 },
        ),
      }),
    ),
  }),
  tools: toolSettings,
  credits: group({
    enforced: setting(
      Type.Boolean(),
      'true: an organization spends no more than its credits (`POST /credits`), and nothing if it has none; the embedded mode has no credits',
      { default: false },
    ),
  }),
  quotas: group({
    requestsPerMinute: setting(
      PerMinute,
      'requests of one API key in a minute of the clock, failed ones too; more are answered 429. null: no limit',
      { default: null },
    ),
    tokensPerMinute: setting(
      PerMinute,
      'input and output tokens of one API key in a minute of the clock, counted when the request is admitted. null: no limit',
      { default: null },
    ),
    nodes: setting(
      Type.Integer({ minimum: 1, maximum: 10_000 }),
      'number of instances that share the limits. Without Redis, or while it is away, each instance may use one such share of the rest that it knew last',
      { default: 1 },
    ),
  }),
  credentials: group({
    maxEntries: setting(
      Type.Integer({ minimum: 1, maximum: 1_000_000 }),
      'opened provider keys of customers that a thread keeps in memory. Fewer mean less risk if memory leaks',
      { default: 1_000 },
    ),
    maxBytes: setting(
      Type.Integer({ minimum: 65_536 }),
      'bytes of the opened provider keys that a thread keeps',
      { default: 4_194_304 },
    ),
    ttlMs: setting(
      Milliseconds,
      'how long a thread keeps an opened provider key; never more than five minutes',
      { default: 300_000 },
    ),
  }),
  promptCaching: setting(
    oneOf(PROMPT_CACHING),
    '`auto`: where a provider caches only what is marked, and reading from its cache costs less than the prompt, a conversation that ends in the result of a tool gets [marks of the gateway](messages.md#cache-marks-of-the-gateway) if its caller sets none',
    { default: 'auto' },
  ),
  region: setting(
    Type.String({ pattern: '^[\\x20-\\x7e]{1,64}$', expected: '1 to 64 printable characters' }),
    'where this gateway stands, as `gateway_metadata.region` tells it',
    { default: 'local' },
  ),
  proof: group({
    keyFile: setting(
      Address,
      'JWK set of the Ed25519 keys that sign [proofs of placement](proof.md), relative to the working directory. The first key signs, all are listed; made when a proof is first asked for (mode 0600)',
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
      'fee for a request on an own credential, in percent of its price in the catalogue; shown as `usage.cost`. The provider bills the owner of the credential directly',
      { default: 0 },
    ),
  }),
  limits: group({
    maxConnections: setting(
      Type.Integer({ minimum: 1 }),
      'client connections of the process; never more than 45 % of the file descriptors that it may open. With a provider connection each, the default stays below the usual 65,536',
      { default: 20_000 },
    ),
    connectionsPerAddress: setting(
      Type.Integer({ minimum: 0 }),
      'connections of one address (IPv6: of one network of 64 bits). Each serve thread counts its own part: the number divided by the threads, rounded up. 0: any number. Set it if clients connect without a proxy. A connection that its client closes between two requests may count for 13 s more',
      { default: 0 },
    ),
    openPerKey: setting(
      Type.Integer({ minimum: 1 }),
      'requests, streams included, that one API key may have open in one thread; more are answered 429',
      { default: 5_000 },
    ),
    waitingPerKey: setting(
      Type.Integer({ minimum: 0, maximum: 10_000 }),
      'requests with an end user (`user` or `safety_identifier`) that may wait in one thread while their API key has `openPerKey` open; end users get [shares](end-users.md#fair-shares). One more is answered 429: the newest of the end user with the most. 0: none waits. The default bounds memory, since only bodies up to 256 KiB wait',
      { default: 256 },
    ),
    waitMs: setting(
      Type.Integer({ minimum: 1, maximum: 60_000 }),
      'how long such a request waits before it is answered 429: below the silence after which proxies cut a connection',
      { default: 10_000 },
    ),
    bytesInFlightPerKey: setting(
      nullable(Type.Integer({ minimum: 1 })),
      'bytes of request bodies that one API key may have in one thread, each counted from the head of its request to the end of its answer. More are answered 429 before they are read. A single request always fits. As many bytes of answers may wait for its readers; above that, its next requests are answered 429',
      { defaultText: 'a quarter of `maxBufferedBytes`' },
    ),
    socketsPerKey: setting(
      Type.Integer({ minimum: 1 }),
      'WebSockets that one API key may have open in one thread; one more is answered 429. Each may hold a message of 4 MiB while it arrives, so this bounds the memory of one key',
      socketsThatFit,
    ),
    allowChunked: setting(Type.Boolean(), 'false refuses chunked request bodies with 411', { default: true }),
    closeAfterReply: setting(
      Type.Boolean(),
      'true closes the connection after every answer. For proxies in front that you do not trust to separate requests ([security](security.md#known-weaknesses))',
      { default: false },
    ),
    maxInFlight: setting(
      Type.Integer({ minimum: 1 }),
      'requests that one thread works on at once; more are answered 503, and those of keys with few open requests only a quarter later. This bounds memory (about 20 KB each) rather than work, since streams mostly wait',
      requestsThatFit,
    ),
    maxLagMs: setting(
      Milliseconds,
      "lag of a thread's event loop: the median of its last samples, 50 ms apart; a long pause counts twice. After 10 s above this, new requests of the keys that use most of the loop are answered 503, until the lag is below half. A lower value refuses earlier, but by mistake if other programs use the processor",
      { default: 200 },
    ),
    maxBufferedBytes: setting(
      Type.Integer({ minimum: 1_048_576 }),
      'memory that the requests of one thread may hold: parsed bodies, growing answers, and bytes that slow readers have not taken. Above it, new requests of the keys that hold most are answered 429, and all others 503 a quarter later, until four fifths are reached. Large requests may together hold three quarters: a body or answer beyond that is 503, a body that could never fit is 413 ([decision 17](decisions/0017-held-bytes.md))',
      quarterOfHeap,
    ),
  }),
  log: group({
    successShare: setting(
      Type.Number({ minimum: 0, maximum: 1 }),
      'share of the [log lines](operations.md#log-lines) of completed requests that are written, in even steps: `0.01` is each hundredth. Lines of requests that failed, were refused or ended early are always written',
      { default: 1 },
    ),
  }),
  logLevel: setting(oneOf(LOG_LEVELS), 'the least important lines that are logged', {
    default: 'info',
    env: 'LOG_LEVEL',
    environmentOnly: true,
  }),
  httpsProxy: setting(
    nullable(Type.String()),
    "proxy for `https` addresses of providers and links: `http://[USER:PASSWORD@]HOST:PORT`, `https://…`, or `HOST:PORT`. A provider's own `proxy` wins. The name in lower case works too and wins; the same holds for the next two",
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
    'hosts that need no proxy, separated by commas: names (with their subdomains), addresses, networks such as `10.0.0.0/8`, each with or without a port; `*` means all',
    { env: 'NO_PROXY', anyCase: true, environmentOnly: true },
  ),
  managementKey: setting(
    nullable(Type.String()),
    'management key in plain text, added to the store at start unless the store has it, or had it and it was deleted',
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
