/**
 * All settings: one entry each, with type, default, meaning and environment variable. Types, checks and the tables of
 * docs/configuration.md (`npm run docs:config`) derive from them. Pure.
 */
import { type Static, Type } from '@sinclair/typebox'
import { LOG_LEVELS } from '../log/log.ts'
import { ABORT_POLICIES } from '../providers/provider.ts'
import { type Frozen, ModelSchema, ProviderSchema } from './rows.ts'
import {
  Address,
  coresMinusOne,
  Days,
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
  storageUrl,
  Threads,
} from './setting.ts'

export const Settings = group({
  listen: group({
    host: setting(Address, 'public address', { default: '127.0.0.1', env: 'GATEWAY_HOST' }),
    port: setting(Port, 'public port; 0 takes a free one', { default: 8080, env: 'GATEWAY_PORT' }),
    shared: setting(
      Type.Boolean(),
      'true: another instance may serve on the same port, for a [restart without a gap](#restart-without-a-gap); leaves out the check that nobody else does',
      { default: false, env: 'GATEWAY_SHARED_PORT' },
    ),
    trustedProxies: setting(
      Type.Array(Address, { maxItems: 1_000 }),
      'addresses and networks (`10.0.0.0/8`, `fd00::/8`) of proxies in front: what comes from them is many clients, so `limits.connectionsPerAddress` does not hold for them',
      { default: [], ...networks },
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
      'names (of the `Host` header) by which the admin port may be asked, beside addresses, `admin.host`, names without a dot, and those that end in `.internal`, `.local` or `.localhost`: others are answered 421, so that no page of the internet reads it through a browser inside',
      { default: [] },
    ),
  }),
  threads: group({
    serve: setting(Threads, 'event loops that serve requests; each takes one core', {
      ...coresMinusOne,
      env: 'GATEWAY_SERVE_THREADS',
    }),
    warmUpMs: setting(
      Type.Integer({ minimum: 0, maximum: 60_000 }),
      'for how long a serve thread sends requests through itself to the built-in simulated provider before it takes others, so that the first ones find compiled code. 0: not at all',
      { default: 600, env: 'GATEWAY_WARM_UP_MS' },
    ),
    tasks: setting(
      Threads,
      'task workers of the whole process, shared out over the serve threads and rounded up, at least two for each; beside them each serve thread has two for documents. They start with the first task ([decision 11](decisions/0011-task-pool.md))',
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
      '`redis://[USER:PASSWORD@]HOST:PORT[/DATABASE]`, or `rediss://…` for TLS: several instances count limits and announce changes through it; one server, no cluster. Without it each instance counts limits in its memory, and PostgreSQL announces changes where it is the storage',
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
      'Redis that answers nothing for this long while requests wait for it counts as away: they go on by the share of the instance. A good answer takes a hundredth of it',
      { default: 50 },
    ),
  }),
  providers: setting(Type.Array(ProviderSchema), 'adds or changes providers, by slug', { default: [] }),
  models: setting(
    Type.Array(ModelSchema),
    'the catalogue. Without `providers` the [simulated models](#simulated-models) stand beside it',
    { default: [] },
  ),
  simulator: group({
    enabled: setting(
      Type.Union([Type.Boolean(), Type.Null()], { expected: 'true or false' }),
      'true: the [simulated models](#simulated-models) `sim/…` stand beside those of `models`; false: never. Default: only without `providers`. A model whose endpoint names the provider `sim` is answered in any case',
      { default: null },
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
      'a reader that takes nothing for this long is cut off; a longer time only holds buffers',
      { default: 30_000 },
    ),
    uploadMs: setting(Milliseconds, 'total time for a request body', { default: 300_000 }),
    drainMs: setting(Milliseconds, 'grace for running requests after SIGTERM', { default: 30_000 }),
    drainDelayMs: setting(
      Type.Integer({ minimum: 0, maximum: 600_000 }),
      'from readiness 503 to the closing of the listener; behind a load balancer that polls `/readyz`, twice its interval',
      { default: 0 },
    ),
  }),
  upstream: group({
    maxConnections: setting(
      Type.Integer({ minimum: 1, maximum: 1_000_000 }),
      'connections of one thread to one origin, apart for each own credential; further requests wait for one, at most as long as for a connection (10 s), then the next endpoint is asked. With HTTP/2 each carries 100 requests. As many as a thread has requests by default: none waits',
      { default: 10_000 },
    ),
    maxAgeMs: setting(
      Milliseconds,
      'a connection to a provider that is older carries no further request, so that a changed address of its name is seen; a request that runs is not cut',
      { default: 300_000 },
    ),
  }),
  accounting: group({
    onAbort: setting(
      oneOf(ABORT_POLICIES),
      'for the upstream request of a caller that leaves: `finish` closes it when the model says more, or after 2 s of silence in which its last frames may still tell the usage; `cancel` closes it at once; `drain` reads on to the end (at most 64 replies a thread, 4 MiB and 60 s each). Where no usage was told, the tokens are estimated',
      { default: 'finish', required: true },
    ),
  }),
  retention: group({
    usageDays: setting(
      Days,
      'usage records older than this are removed; the totals of each day stay for limits, `GET /key`, `GET /credits` and `GET /activity`',
      { default: 400 },
    ),
    auditDays: setting(Days, 'audit records older than this are removed', { default: 400 }),
    batchDays: setting(Days, 'finished batches older than this are removed', { default: 30 }),
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
      'ids of workspaces under HIPAA: requests of their keys that carry the alignment plugin are refused with 403, since their messages may go to no second model',
      { default: [] },
    ),
    timeoutMs: setting(
      Milliseconds,
      'for the judgement of one message, a short answer of a small model; a caller waits for it after everything else',
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
        'true: any address and port, over HTTP too. Names are then looked up by the system (hosts file, search domains). Whoever has a key can then have the gateway ask inside its own network; for installations whose documents lie there and whose callers are trusted',
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
        'for one document that the engine `pdf-text` reads, from when a worker has it; two thousand pages take less than half of it',
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
          'until its answer begins; a long scan takes a minute, and says nothing until it is read',
          { default: 120_000 },
        ),
      }),
    ),
  }),
  credits: group({
    enforced: setting(
      Type.Boolean(),
      'true: an organization spends no more than its credits (`POST /credits`), and without any nothing; the embedded mode has no credits',
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
      'instances that share the limits: while Redis is away, and without Redis, each takes this part of what was left when it last knew the whole',
      { default: 1 },
    ),
  }),
  credentials: group({
    maxEntries: setting(
      Type.Integer({ minimum: 1, maximum: 1_000_000 }),
      'opened provider keys of customers that a thread keeps in memory, where they are a risk',
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
  regions: group({
    europe: setting(
      Type.Array(Host),
      'hosts (of the `Host` header) whose requests only go to endpoints in Europe, and to own credentials declared for it ([decision 10](decisions/0010-routing-by-own-credentials.md)); any other host is global. A name without a port stands for every port',
      { default: [] },
    ),
    us: setting(Type.Array(Host), 'the same for the United States', { default: [] }),
  }),
  byok: group({
    feePercent: setting(
      Type.Number({ minimum: 0, maximum: 100 }),
      'price of a request on an own credential for its caller, as a share of its price by the catalogue; shown as `usage.cost`. Its provider bills the rest itself',
      { default: 0 },
    ),
  }),
  limits: group({
    maxConnections: setting(
      Type.Integer({ minimum: 1 }),
      'stays under the usual limit of 65,536 file descriptors with one upstream socket each; never more than 45 % of what the process may open',
      { default: 20_000 },
    ),
    connectionsPerAddress: setting(
      Type.Integer({ minimum: 0 }),
      'connections of one address (IPv6: of one network of 64 bits), shared out over the serve threads and rounded up; 0: any number. Set it where clients connect without a proxy in between. A connection that its client closes between two requests may count for 13 s more',
      { default: 0 },
    ),
    openPerKey: setting(
      Type.Integer({ minimum: 1 }),
      'requests, streams included, that one API key may have open in one thread; more are answered 429',
      { default: 5_000 },
    ),
    bytesInFlightPerKey: setting(
      nullable(Type.Integer({ minimum: 1 })),
      'bytes of request bodies that one API key may have in flight in one thread, from the head of a request to the end of its answer; more are answered 429 before they are read. One request alone always fits',
      { defaultText: 'a quarter of `maxBufferedBytes`' },
    ),
    allowChunked: setting(Type.Boolean(), 'false refuses chunked request bodies with 411', { default: true }),
    closeAfterReply: setting(
      Type.Boolean(),
      'true closes after every answer, for proxies that are not trusted to frame requests',
      { default: false },
    ),
    maxInFlight: setting(
      Type.Integer({ minimum: 1 }),
      'requests that one thread works on at once; more are answered 503. Streams mostly wait, so this bounds memory (some 20 KB each), not work',
      requestsThatFit,
    ),
    maxLagMs: setting(
      Milliseconds,
      'how late the event loop of a thread may be for 10 s, as the median of its last samples (50 ms apart, a long pause counts twice), before new requests of the keys that take most of it are answered 503, until it is below half of it. Lower means quicker refusals and less stutter, but false alarms where the processor is shared',
      { default: 200 },
    ),
    maxBufferedBytes: setting(
      Type.Integer({ minimum: 1_048_576 }),
      'memory that the requests of one thread may hold: bodies as they live on, answers as they grow, and what slow readers have not taken. Above it new requests are answered 503, until it is below four fifths. A body, or an answer, that would take large requests together above three quarters is refused with 503, one that never fits there with 413',
      quarterOfHeap,
    ),
  }),
  logLevel: setting(oneOf(LOG_LEVELS), 'the least important lines that are logged', {
    default: 'info',
    env: 'LOG_LEVEL',
    environmentOnly: true,
  }),
  httpsProxy: setting(
    nullable(Type.String()),
    "proxy for providers and links with `https`: `http://[USER:PASSWORD@]HOST:PORT`, `https://…`, or `HOST:PORT`; a provider's own `proxy` wins. Lower case too, which wins, as for the two below",
    { env: 'HTTPS_PROXY', anyCase: true, secret: true, environmentOnly: true, ...proxyUrl },
  ),
  httpProxy: setting(nullable(Type.String()), 'the same for those with `http`', {
    env: 'HTTP_PROXY',
    anyCase: true,
    secret: true,
    environmentOnly: true,
    ...proxyUrl,
  }),
  noProxy: setting(
    nullable(Type.String()),
    'hosts that are asked without these proxies, with commas between them: names, which stand for their subdomains too, addresses, networks such as `10.0.0.0/8`; each may have a port; `*` is all',
    { env: 'NO_PROXY', anyCase: true, environmentOnly: true },
  ),
  managementKey: setting(
    nullable(Type.String()),
    'plain management key of the documented form, made valid at start if the store does not know it and did not delete it',
    { env: 'GATEWAY_MANAGEMENT_KEY', secret: true, environmentOnly: true },
  ),
  apiKey: setting(
    nullable(Type.String()),
    'plain API key of the documented form, made valid in the same way',
    {
      env: 'GATEWAY_API_KEY',
      secret: true,
      environmentOnly: true,
    },
  ),
  vaultKeys: setting(
    nullable(Type.String()),
    '[master keys](#master-keys), `id:base64-of-32-bytes[,id2:…]`; without it a key file `vault.key` (mode 0600) is made beside the embedded database; required with PostgreSQL, the same for all instances',
    { env: 'GATEWAY_VAULT_KEYS', secret: true, environmentOnly: true },
  ),
  providerKeys: setting(
    Type.Record(Type.String(), Type.String()),
    'keys of providers that stand in the environment under the names of the built-in table, by slug',
    { default: {}, environmentOnly: true },
  ),
})

export const SETTINGS = settingsOf(Settings)

/** The complete configuration: every setting has a value. */
export interface Config extends Frozen<Static<typeof Settings>> {}
