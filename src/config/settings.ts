/**
 * The settings of the configuration file: their schema, their defaults and what they are once they are resolved.
 * docs/configuration.md is the reference. Leaf.
 */
import { type Static, Type } from '@sinclair/typebox'
import type { LogLevel } from '../log/log.ts'

const closed = { additionalProperties: false } as const
const Host = Type.String({ pattern: '^[A-Za-z0-9][A-Za-z0-9.-]*(:\\d{1,5})?$', maxLength: 253 })
const Milliseconds = Type.Integer({ minimum: 1, maximum: 86_400_000 })
const Port = Type.Integer({ minimum: 0, maximum: 65535 })
const Slug = Type.String({ pattern: '^[a-z0-9][a-z0-9._-]*(/[a-z0-9._-]+)?$', maxLength: 128 })
const UsdPerToken = Type.String({ pattern: '^\\d{1,3}(\\.\\d{1,12})?$' })
/** Null, as absent: no limit. */
const Quota = Type.Union([Type.Null(), Type.Integer({ minimum: 1, maximum: 1_000_000_000 })], {
  description: 'null or an integer from 1 to 1000000000',
})
const REDIS_PREFIX = '^[\\x21-\\x7e]{1,64}$'
const AbortPolicy = Type.Union([Type.Literal('cancel'), Type.Literal('drain')])

const FormatName = Type.Union([
  Type.Literal('openai-responses'),
  Type.Literal('openai-chat'),
  Type.Literal('anthropic-messages'),
  Type.Literal('google-gemini'),
])

const ProviderSchema = Type.Object(
  {
    slug: Slug,
    name: Type.Optional(Type.String({ minLength: 1, maxLength: 128 })),
    format: Type.Optional(FormatName),
    baseUrl: Type.Optional(Type.String({ pattern: '^https?://[^\\s?#]+$' })),
    apiKey: Type.Optional(Type.String({ pattern: '^[\\x21-\\x7e]+$' })),
    auth: Type.Optional(
      Type.Union([
        Type.Literal('bearer'),
        Type.Literal('x-api-key'),
        Type.Literal('x-goog-api-key'),
        Type.Literal('none'),
      ]),
    ),
    quirks: Type.Optional(Type.Array(Type.String())),
    headers: Type.Optional(Type.Record(Type.String({ pattern: '^[A-Za-z0-9-]+$' }), Type.String())),
    accounting: Type.Optional(Type.Object({ onAbort: AbortPolicy }, closed)),
  },
  closed,
)

const PricingSchema = Type.Object(
  {
    prompt: Type.Optional(UsdPerToken),
    completion: Type.Optional(UsdPerToken),
    request: Type.Optional(UsdPerToken),
    inputCacheRead: Type.Optional(UsdPerToken),
    inputCacheWrite: Type.Optional(UsdPerToken),
  },
  closed,
)

const EndpointSchema = Type.Object(
  {
    provider: Slug,
    upstreamModel: Type.Optional(Type.String({ minLength: 1, maxLength: 256 })),
    format: Type.Optional(FormatName),
    pricing: Type.Optional(PricingSchema),
    region: Type.Optional(Type.Union([Type.Literal('europe'), Type.Literal('us')])),
    zdr: Type.Optional(Type.Boolean()),
    quantization: Type.Optional(Type.String()),
    supportedParameters: Type.Optional(Type.Array(Type.String())),
    contextLength: Type.Optional(Type.Integer({ minimum: 1 })),
    maxOutputTokens: Type.Optional(Type.Integer({ minimum: 1 })),
  },
  closed,
)

const ModelSchema = Type.Object(
  {
    id: Type.String({ pattern: '^[^\\s/]+/\\S+$', maxLength: 256 }),
    name: Type.Optional(Type.String({ minLength: 1, maxLength: 256 })),
    contextLength: Type.Optional(Type.Integer({ minimum: 1 })),
    maxOutputTokens: Type.Optional(Type.Integer({ minimum: 1 })),
    inputModalities: Type.Optional(Type.Array(Type.String(), { minItems: 1 })),
    outputModalities: Type.Optional(Type.Array(Type.String(), { minItems: 1 })),
    endpoints: Type.Array(EndpointSchema, { minItems: 1 }),
  },
  closed,
)

export const FileSchema = Type.Object(
  {
    listen: Type.Optional(
      Type.Object(
        {
          host: Type.Optional(Type.String({ minLength: 1 })),
          port: Type.Optional(Port),
          shared: Type.Optional(Type.Boolean()),
        },
        closed,
      ),
    ),
    admin: Type.Optional(
      Type.Object({ host: Type.Optional(Type.String({ minLength: 1 })), port: Type.Optional(Port) }, closed),
    ),
    threads: Type.Optional(
      Type.Object(
        {
          serve: Type.Optional(Type.Integer({ minimum: 1, maximum: 256 })),
          tasks: Type.Optional(Type.Integer({ minimum: 1, maximum: 256 })),
        },
        closed,
      ),
    ),
    storage: Type.Optional(Type.Object({ url: Type.String({ minLength: 1 }) }, closed)),
    redis: Type.Optional(
      Type.Object(
        {
          url: Type.String({ minLength: 1 }),
          prefix: Type.Optional(Type.String({ pattern: REDIS_PREFIX })),
          silenceMs: Type.Optional(Milliseconds),
        },
        closed,
      ),
    ),
    providers: Type.Optional(Type.Array(ProviderSchema)),
    models: Type.Optional(Type.Array(ModelSchema)),
    alignment: Type.Optional(
      Type.Object(
        {
          evaluator: Type.Optional(Type.Object({ model: Type.String({ minLength: 1 }) }, closed)),
          hipaaWorkspaces: Type.Optional(Type.Array(Type.String({ minLength: 1 }), { maxItems: 10_000 })),
          timeoutMs: Type.Optional(Milliseconds),
        },
        closed,
      ),
    ),
    moderation: Type.Optional(Type.Object({ model: Type.String({ minLength: 1 }) }, closed)),
    files: Type.Optional(
      Type.Object(
        {
          links: Type.Optional(
            Type.Object(
              {
                enabled: Type.Optional(Type.Boolean()),
                allowHttp: Type.Optional(Type.Boolean()),
                allowPrivate: Type.Optional(Type.Boolean()),
                maxBytes: Type.Optional(Type.Integer({ minimum: 1, maximum: 52_428_800 })),
                timeoutMs: Type.Optional(Milliseconds),
              },
              closed,
            ),
          ),
          ocr: Type.Optional(
            Type.Object(
              {
                provider: Slug,
                model: Type.String({ minLength: 1, maxLength: 256 }),
                timeoutMs: Type.Optional(Milliseconds),
              },
              closed,
            ),
          ),
        },
        closed,
      ),
    ),
    regions: Type.Optional(
      Type.Object({ europe: Type.Optional(Type.Array(Host)), us: Type.Optional(Type.Array(Host)) }, closed),
    ),
    byok: Type.Optional(
      Type.Object({ feePercent: Type.Optional(Type.Number({ minimum: 0, maximum: 100 })) }, closed),
    ),
    timeouts: Type.Optional(
      Type.Object(
        {
          upstreamHeadersMs: Type.Optional(Milliseconds),
          upstreamIdleMs: Type.Optional(Milliseconds),
          requestMs: Type.Optional(Milliseconds),
          heartbeatMs: Type.Optional(Milliseconds),
          stallMs: Type.Optional(Milliseconds),
          uploadMs: Type.Optional(Milliseconds),
          drainMs: Type.Optional(Milliseconds),
          drainDelayMs: Type.Optional(Type.Integer({ minimum: 0, maximum: 600_000 })),
        },
        closed,
      ),
    ),
    accounting: Type.Optional(Type.Object({ onAbort: AbortPolicy }, closed)),
    credits: Type.Optional(Type.Object({ enforced: Type.Optional(Type.Boolean()) }, closed)),
    quotas: Type.Optional(
      Type.Object(
        {
          requestsPerMinute: Type.Optional(Quota),
          tokensPerMinute: Type.Optional(Quota),
          nodes: Type.Optional(Type.Integer({ minimum: 1, maximum: 10_000 })),
        },
        closed,
      ),
    ),
    credentials: Type.Optional(
      Type.Object(
        {
          maxEntries: Type.Optional(Type.Integer({ minimum: 1, maximum: 1_000_000 })),
          maxBytes: Type.Optional(Type.Integer({ minimum: 65_536 })),
          ttlMs: Type.Optional(Milliseconds),
        },
        closed,
      ),
    ),
    limits: Type.Optional(
      Type.Object(
        {
          maxConnections: Type.Optional(Type.Integer({ minimum: 1 })),
          allowChunked: Type.Optional(Type.Boolean()),
          closeAfterReply: Type.Optional(Type.Boolean()),
          maxInFlight: Type.Optional(Type.Integer({ minimum: 1 })),
          maxLagMs: Type.Optional(Milliseconds),
          maxBufferedBytes: Type.Optional(Type.Integer({ minimum: 1_048_576 })),
        },
        closed,
      ),
    ),
  },
  closed,
)

export type ProviderRow = Static<typeof ProviderSchema>
export type ModelRow = Static<typeof ModelSchema>

export interface Config {
  readonly listen: {
    readonly host: string
    readonly port: number
    /** Another instance may serve on the same port, for a restart without a gap. */
    readonly shared: boolean
  }
  readonly admin: { readonly host: string; readonly port: number }
  readonly threads: { readonly serve: number; readonly tasks: number }
  readonly storageUrl: string
  readonly redisUrl: string | null
  /** What every key of ours in Redis begins with. */
  readonly redisPrefix: string
  /** Redis that says nothing for this long while commands wait for it counts as away. */
  readonly redisSilenceMs: number
  readonly providers: readonly ProviderRow[]
  readonly models: readonly ModelRow[]
  readonly timeouts: {
    readonly upstreamHeadersMs: number
    readonly upstreamIdleMs: number
    readonly requestMs: number
    readonly heartbeatMs: number
    readonly stallMs: number
    readonly uploadMs: number
    readonly drainMs: number
    readonly drainDelayMs: number
  }
  readonly credits: {
    /** Whether an organization may spend no more than its credits. */
    readonly enforced: boolean
  }
  /** For each API key; null: no limit. */
  readonly quotas: {
    readonly requestsPerMinute: number | null
    readonly tokensPerMinute: number | null
    /** Gateways that share Redis: each may spend this part of what is left while Redis is away. */
    readonly nodes: number
  }
  /** Bounds of the cache of opened provider credentials, for each thread. */
  readonly credentials: { readonly maxEntries: number; readonly maxBytes: number; readonly ttlMs: number }
  readonly alignment: {
    /** The model of the catalogue that judges; null: the plugin is refused. */
    readonly evaluator: { readonly model: string } | null
    /** Ids of workspaces whose messages may go to no evaluator. */
    readonly hipaaWorkspaces: readonly string[]
    readonly timeoutMs: number
  }
  /** The model of the catalogue that moderates; null: the plugin is refused. */
  readonly moderation: { readonly model: string } | null
  readonly files: {
    /** How links to documents are followed; `enabled` false: not at all. */
    readonly links: {
      readonly enabled: boolean
      readonly allowHttp: boolean
      /** Addresses of our own network, any port, and plain HTTP. */
      readonly allowPrivate: boolean
      readonly maxBytes: number
      readonly timeoutMs: number
    }
    /** The provider that reads scans; null: the engine is refused. */
    readonly ocr: { readonly provider: string; readonly model: string; readonly timeoutMs: number } | null
  }
  readonly onAbort: 'cancel' | 'drain'
  /** Values of the Host header by the region in which the data of their requests has to stay. */
  readonly regions: { readonly europe: readonly string[]; readonly us: readonly string[] }
  readonly byok: {
    /** What the caller pays for a request on an own credential, as a share of its price by the catalogue. */
    readonly feePercent: number
  }
  readonly limits: {
    readonly maxConnections: number
    readonly allowChunked: boolean
    readonly closeAfterReply: boolean
    readonly maxInFlight: number
    readonly maxLagMs: number
    readonly maxBufferedBytes: number
  }
  readonly logLevel: LogLevel
  /** Plain keys from the environment, made valid at start; null when not given. */
  readonly managementKey: string | null
  readonly apiKey: string | null
  /** `GATEWAY_VAULT_KEYS` as given; null: the embedded mode keeps a key file of its own. */
  readonly vaultKeys: string | null
}

export const DEFAULTS = {
  host: '127.0.0.1',
  port: 8080,
  adminPort: 9090,
  storageUrl: 'sqlite:./data/gateway.db',
  timeouts: {
    // Reasoning models may think for most of a minute before the first byte.
    upstreamHeadersMs: 60_000,
    upstreamIdleMs: 60_000,
    // Long agent turns take minutes; past ten nobody waits.
    requestMs: 600_000,
    // Under the 60 s idle limit that most proxies ship with, with room for three losses.
    heartbeatMs: 15_000,
    // A reader that takes nothing for this long has gone; longer only holds buffers.
    stallMs: 30_000,
    uploadMs: 300_000,
    drainMs: 30_000,
    // Nobody polls readiness in front of most installations; behind a load balancer it wants its polling interval.
    drainDelayMs: 0,
  },
  // A judgement is a short answer of a small model; a caller waits for it after everything else.
  alignment: { timeoutMs: 5_000 },
  files: {
    // Whoever can make the gateway ask inside its own network can read there; a thread follows 16 links at once.
    links: { enabled: true, allowHttp: false, allowPrivate: false, maxBytes: 10_485_760, timeoutMs: 10_000 },
    // A long scan takes a minute, and says nothing until it is read.
    ocrTimeoutMs: 120_000,
  },
  // The provider bills the caller itself; what the service adds is for its operator to decide.
  feePercent: 0,
  redisPrefix: 'sluice:',
  // A good answer takes a hundredth of it, and callers do not notice the rest.
  redisSilenceMs: 50,
  // The embedded mode has no credits that anybody could have bought.
  credits: { enforced: false },
  quotas: { requestsPerMinute: null, tokensPerMinute: null, nodes: 1 },
  // Opened keys are a risk while they are in memory: few, small, and for five minutes.
  credentials: { maxEntries: 1_000, maxBytes: 4_194_304, ttlMs: 300_000 },
  // Stays under the usual 65,536 file descriptors with one upstream socket per connection.
  maxConnections: 20_000,
  // What one thread holds at once, not what it can start per second: streams mostly wait. At some 20 KB each.
  maxInFlight: 10_000,
  // A loop that is late by this much, and again, makes streams stutter; a starved machine alone rarely gets there.
  maxLagMs: 200,
  // Half a gigabyte leaves room for the rest in the usual container of one or two.
  maxBufferedBytes: 536_870_912,
} as const
