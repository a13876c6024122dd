/**
 * Configuration: YAML file, then environment on top, checked and frozen. docs/configuration.md is the reference. The
 * only reader of the environment, but for the variable in which server/http.ts gives the HTTP library a limit. Leaf.
 */
import { readFileSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import type { Static, TSchema } from '@sinclair/typebox'
import { Value, ValueErrorType } from '@sinclair/typebox/value'
import { parse as parseYaml, YAMLParseError } from 'yaml'
import { LOG_LEVELS, type LogLevel } from '../log/log.ts'
import { type Config, DEFAULTS, FileSchema } from './settings.ts'

/** A configuration that cannot be used; the message begins with the field or variable at fault. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError'
}

export type { Config, ModelRow, ProviderRow } from './settings.ts'

export type Environment = Readonly<Record<string, string | undefined>>

/** The process environment, for all who need it. */
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
    // Its warnings quote the file.
    raw = parseYaml(text, { logLevel: 'error' }) ?? {}
  } catch (error) {
    throw new ConfigError(`${path}: no valid YAML: ${yamlFault(error)}`)
  }
  const substituted = substitute(raw, environment, '')
  check(FileSchema, substituted)
  return substituted
}

/** What is wrong and where, in the parser's code for it: its messages quote the file. */
function yamlFault(error: unknown): string {
  if (!(error instanceof YAMLParseError)) return 'an alias of an anchor that is not there'
  const fault = error.code.toLowerCase().replaceAll('_', ' ')
  const [start] = error.linePos ?? []
  return start === undefined ? fault : `${fault} at line ${start.line}, column ${start.col}`
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
        substitute(element, environment, path === '' ? settingName(key) : `${path}.${settingName(key)}`),
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
      throw new ConfigError(
        `${path}: expected ${error.schema.description ?? `one of ${unionValues(error.schema)}`}`,
      )
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
    .map((step, index) => {
      if (/^\d+$/.test(step)) return `[${step}]`
      return index === 0 ? settingName(step) : `.${settingName(step)}`
    })
    .join('')
}

/** A name that is no words may be a key in the wrong place, and is not repeated. */
function settingName(name: string): string {
  return /^[A-Za-z]+(?:[_-][A-Za-z]+)*$/.test(name) ? name : '*'
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
    redisUrl: redisUrl(environment, file.redis?.url),
    redisPrefix: file.redis?.prefix ?? DEFAULTS.redisPrefix,
    redisSilenceMs: file.redis?.silenceMs ?? DEFAULTS.redisSilenceMs,
    providers: file.providers ?? [],
    models: file.models ?? [],
    timeouts: { ...DEFAULTS.timeouts, ...file.timeouts },
    credits: { ...DEFAULTS.credits, ...file.credits },
    quotas: { ...DEFAULTS.quotas, ...file.quotas },
    credentials: { ...DEFAULTS.credentials, ...file.credentials },
    alignment: {
      evaluator: file.alignment?.evaluator ?? null,
      hipaaWorkspaces: file.alignment?.hipaaWorkspaces ?? [],
      timeoutMs: file.alignment?.timeoutMs ?? DEFAULTS.alignment.timeoutMs,
    },
    moderation: file.moderation ?? null,
    files: {
      links: { ...DEFAULTS.files.links, ...file.files?.links },
      ocr:
        file.files?.ocr === undefined ? null : { timeoutMs: DEFAULTS.files.ocrTimeoutMs, ...file.files.ocr },
    },
    onAbort: file.accounting?.onAbort ?? 'cancel',
    regions: regionHosts(file.regions),
    byok: { feePercent: file.byok?.feePercent ?? DEFAULTS.feePercent },
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

function regionHosts(regions: Static<typeof FileSchema>['regions']): Config['regions'] {
  const { europe = [], us = [] } = regions ?? {}
  const names = new Set(europe.map(host => host.toLowerCase()))
  const at = us.findIndex(host => names.has(host.toLowerCase()))
  if (at !== -1) throw new ConfigError(`regions.us[${at}]: this host is named for europe too`)
  return { europe, us }
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

/** The value may hold a password: no message repeats it. */
function redisUrl(environment: Environment, setting: string | undefined): string | null {
  const variableUrl = variable(environment, 'REDIS_URL')
  const [name, url] = variableUrl === null ? ['redis.url', setting] : ['REDIS_URL', variableUrl]
  if (url === undefined) return null
  if (!/^rediss?:\/\/[^/\s]+(\/\d+)?$/.test(url) || !URL.canParse(url)) {
    throw new ConfigError(`${name}: expected a URL of the form redis://HOST:PORT or rediss://HOST:PORT`)
  }
  return url
}

function logLevel(environment: Environment): LogLevel {
  const text = variable(environment, 'LOG_LEVEL') ?? 'info'
  const level = LOG_LEVELS.find(known => known === text)
  if (level === undefined) throw new ConfigError(`LOG_LEVEL: expected one of ${LOG_LEVELS.join(', ')}`)
  return level
}

function freeze<T>(value: T): T {
  if (value !== null && typeof value === 'object' && !Object.isFrozen(value)) {
    Object.freeze(value)
    for (const element of Object.values(value)) freeze(element)
  }
  return value
}
