/**
 * Configuration: YAML file, then environment on top, checked and frozen. The only reader of the environment.
 * docs/configuration.md is the reference. Leaf.
 */
import { readFileSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { type Static, type TSchema, Type } from '@sinclair/typebox'
import { Value, ValueErrorType } from '@sinclair/typebox/value'
import { parse as parseYaml } from 'yaml'
import { LOG_LEVELS, type LogLevel } from './log.ts'

/** A configuration that cannot be used; the message begins with the field or variable at fault. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError'
}

const closed = { additionalProperties: false } as const
const Milliseconds = Type.Integer({ minimum: 1, maximum: 86_400_000 })
const Port = Type.Integer({ minimum: 0, maximum: 65535 })
const Slug = Type.String({ pattern: '^[a-z0-9][a-z0-9._-]*(/[a-z0-9._-]+)?$', maxLength: 128 })
const UsdPerToken = Type.String({ pattern: '^\\d{1,3}(\\.\\d{1,12})?$' })
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

const FileSchema = Type.Object(
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
    redis: Type.Optional(Type.Object({ url: Type.String({ minLength: 1 }) }, closed)),
    providers: Type.Optional(Type.Array(ProviderSchema)),
    models: Type.Optional(Type.Array(ModelSchema)),
    alignment: Type.Optional(
      Type.Object(
        {
          evaluator: Type.Optional(Type.Object({ model: Type.String({ minLength: 1 }) }, closed)),
          timeoutMs: Type.Optional(Milliseconds),
        },
        closed,
      ),
    ),
    regions: Type.Optional(
      Type.Object(
        { europe: Type.Optional(Type.Array(Type.String())), us: Type.Optional(Type.Array(Type.String())) },
        closed,
      ),
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
  readonly onAbort: 'cancel' | 'drain'
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

export type Environment = Readonly<Record<string, string | undefined>>

const DEFAULTS = {
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
  // Stays under the usual 65,536 file descriptors with one upstream socket per connection.
  maxConnections: 20_000,
  // What one thread holds at once, not what it can start per second: streams mostly wait. At some 20 KB each.
  maxInFlight: 10_000,
  // A loop that is late by this much, and again, makes streams stutter; a starved machine alone rarely gets there.
  maxLagMs: 200,
  // Half a gigabyte leaves room for the rest in the usual container of one or two.
  maxBufferedBytes: 536_870_912,
} as const

/** The process environment; nothing else in the code reads it. */
export function processEnvironment(): Environment {
  return process.env
}

/**
 * Reads the file named by `--config FILE` or `GATEWAY_CONFIG` (none: all defaults) and the environment.
 * @throws ConfigError with one line that names the field or variable.
 */
export function loadConfig(argv: readonly string[], environment: Environment): Config {
  const path = configPath(argv, environment)
  const file = path === null ? {} : readConfigFile(path, environment)
  return freeze(resolve(file, environment))
}

function configPath(argv: readonly string[], environment: Environment): string | null {
  const at = argv.findIndex(word => word === '--config' || word.startsWith('--config='))
  if (at !== -1) {
    const word = argv[at] ?? ''
    const path = word.includes('=') ? word.slice('--config='.length) : argv[at + 1]
    if (path === undefined || path === '') throw new ConfigError('--config: expects a file')
    return path
  }
  return variable(environment, 'GATEWAY_CONFIG')
}

function readConfigFile(path: string, environment: Environment): Static<typeof FileSchema> {
  let text: string
  try {
    text = readFileSync(path, 'utf8')
  } catch (error) {
    throw new ConfigError(`${path}: cannot be read (${(error as NodeJS.ErrnoException).code ?? 'unknown'})`)
  }
  let raw: unknown
  try {
    raw = parseYaml(text) ?? {}
  } catch (error) {
    throw new ConfigError(`${path}: no valid YAML: ${firstLine((error as Error).message)}`)
  }
  const substituted = substitute(raw, environment, '')
  check(FileSchema, substituted)
  return substituted
}

/** Replaces `${NAME}` in every string by the variable's value. */
function substitute(value: unknown, environment: Environment, path: string): unknown {
  if (typeof value === 'string') {
    return value.replace(/\$\{([A-Za-z_][A-Za-z0-9_]*)\}/g, (_, name: string) => {
      const found = environment[name]
      if (found === undefined)
        throw new ConfigError(`${path || '(root)'}: environment variable ${name} is not set`)
      return found
    })
  }
  if (Array.isArray(value))
    return value.map((element, index) => substitute(element, environment, `${path}[${index}]`))
  if (value !== null && typeof value === 'object') {
    return Object.fromEntries(
      Object.entries(value).map(([key, element]) => [
        key,
        substitute(element, environment, path === '' ? key : `${path}.${key}`),
      ]),
    )
  }
  return value
}

function check<T extends TSchema>(schema: T, value: unknown): asserts value is Static<T> {
  const error = Value.Errors(schema, value).First()
  if (error === undefined) return
  const path = fieldPath(error.path)
  switch (error.type) {
    case ValueErrorType.ObjectAdditionalProperties:
      throw new ConfigError(`${path}: unknown setting`)
    case ValueErrorType.ObjectRequiredProperty:
      throw new ConfigError(`${path}: is required`)
    case ValueErrorType.Union:
      throw new ConfigError(`${path}: expected one of ${unionValues(error.schema)}`)
    case ValueErrorType.StringPattern:
      throw new ConfigError(`${path}: expected a string of the form ${error.schema['pattern']}`)
    default:
      throw new ConfigError(`${path}: ${error.message.charAt(0).toLowerCase()}${error.message.slice(1)}`)
  }
}

function unionValues(schema: TSchema): string {
  const variants: unknown = schema['anyOf']
  if (!Array.isArray(variants)) return 'the documented values'
  return variants.map(variant => String((variant as { const?: unknown }).const)).join(', ')
}

/** `/models/3/endpoints/0/provider` as `models[3].endpoints[0].provider`. */
function fieldPath(pointer: string): string {
  const steps = pointer.split('/').slice(1)
  if (steps.length === 0) return '(root)'
  return steps
    .map(step => step.replaceAll('~1', '/').replaceAll('~0', '~'))
    .map((step, index) => (/^\d+$/.test(step) ? `[${step}]` : index === 0 ? step : `.${step}`))
    .join('')
}

function resolve(file: Static<typeof FileSchema>, environment: Environment): Config {
  const cores = availableParallelism()
  return {
    listen: {
      host: variable(environment, 'GATEWAY_HOST') ?? file.listen?.host ?? DEFAULTS.host,
      port: integer(environment, 'GATEWAY_PORT', 0, 65535) ?? file.listen?.port ?? DEFAULTS.port,
      shared: flag(environment, 'GATEWAY_SHARED_PORT') ?? file.listen?.shared ?? false,
    },
    admin: {
      host: variable(environment, 'GATEWAY_ADMIN_HOST') ?? file.admin?.host ?? DEFAULTS.host,
      port: integer(environment, 'GATEWAY_ADMIN_PORT', 0, 65535) ?? file.admin?.port ?? DEFAULTS.adminPort,
    },
    threads: {
      serve:
        integer(environment, 'GATEWAY_SERVE_THREADS', 1, 256) ??
        file.threads?.serve ??
        Math.max(1, cores - 1),
      tasks:
        integer(environment, 'GATEWAY_TASK_THREADS', 1, 256) ?? file.threads?.tasks ?? Math.max(1, cores - 1),
    },
    storageUrl: variable(environment, 'DATABASE_URL') ?? file.storage?.url ?? DEFAULTS.storageUrl,
    redisUrl: variable(environment, 'REDIS_URL') ?? file.redis?.url ?? null,
    providers: file.providers ?? [],
    models: file.models ?? [],
    timeouts: { ...DEFAULTS.timeouts, ...file.timeouts },
    onAbort: file.accounting?.onAbort ?? 'cancel',
    limits: {
      maxConnections: file.limits?.maxConnections ?? DEFAULTS.maxConnections,
      allowChunked: file.limits?.allowChunked ?? true,
      closeAfterReply: file.limits?.closeAfterReply ?? false,
      maxInFlight: file.limits?.maxInFlight ?? DEFAULTS.maxInFlight,
      maxLagMs: file.limits?.maxLagMs ?? DEFAULTS.maxLagMs,
      maxBufferedBytes: file.limits?.maxBufferedBytes ?? DEFAULTS.maxBufferedBytes,
    },
    logLevel: logLevel(environment),
    managementKey: variable(environment, 'GATEWAY_MANAGEMENT_KEY'),
    apiKey: variable(environment, 'GATEWAY_API_KEY'),
    vaultKeys: variable(environment, 'GATEWAY_VAULT_KEYS'),
  }
}

/** An empty variable counts as not set, as shells and compose files produce them. */
function variable(environment: Environment, name: string): string | null {
  const value = environment[name]
  return value === undefined || value === '' ? null : value
}

function integer(environment: Environment, name: string, minimum: number, maximum: number): number | null {
  const text = variable(environment, name)
  if (text === null) return null
  const value = Number(text)
  if (!/^\d+$/.test(text) || value < minimum || value > maximum) {
    throw new ConfigError(`${name}: expected an integer from ${minimum} to ${maximum}`)
  }
  return value
}

function flag(environment: Environment, name: string): boolean | null {
  const text = variable(environment, name)
  if (text === null) return null
  if (text !== '0' && text !== '1') throw new ConfigError(`${name}: expected 0 or 1`)
  return text === '1'
}

function logLevel(environment: Environment): LogLevel {
  const text = variable(environment, 'LOG_LEVEL') ?? 'info'
  const level = LOG_LEVELS.find(known => known === text)
  if (level === undefined) throw new ConfigError(`LOG_LEVEL: expected one of ${LOG_LEVELS.join(', ')}`)
  return level
}

function firstLine(text: string): string {
  return text.split('\n', 1)[0] ?? text
}

function freeze<T>(value: T): T {
  if (value !== null && typeof value === 'object' && !Object.isFrozen(value)) {
    Object.freeze(value)
    for (const element of Object.values(value)) freeze(element)
  }
  return value
}
