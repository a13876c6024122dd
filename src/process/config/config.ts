/**
 * Loads the configuration: a YAML file, overridden by the environment, checked and frozen. docs/configuration.md is the
 * reference. The only code that uses the environment, except for one variable with which server/uws/front.ts sets a
 * limit of the HTTP library. Public entry point of this module.
 */
import { readFileSync } from 'node:fs'
import { Value } from '@sinclair/typebox/value'
import { parse as parseYaml } from 'yaml'
import { ConfigError, checkFile, Faults, joinPath } from '../../base/settings/check.ts'
import { fileSchema } from '../../base/settings/setting.ts'
import { SEARCH_ENGINES } from '../../features/tools/web/search-engines.ts'
import type { SearchEngineKind } from '../../protocol/gateway-tools.ts'
import {
  type Environment,
  readKeyFiles,
  readProviderKeys,
  readSetting,
  secretVariables,
  variable,
} from './environment.ts'
import { readOtelVariables } from './otel-variables.ts'
import { withoutFaults } from './remainder.ts'
import { type Config, SETTINGS, Settings } from './settings.ts'
import { yamlFault } from './yaml-fault.ts'

type Values = Record<string, unknown>

const FileSchema = fileSchema(Settings)

/** The environment of the process. */
export function processEnvironment(): Environment {
  return process.env
}

/** A configuration with all its errors. */
export interface FoundConfig {
  /**
   * If there are errors: the configuration without the invalid parts, only for further checks. Null if that is not
   * possible.
   */
  readonly config: Config | null
  readonly faults: Faults
  /** The path of the file; null: there is none. */
  readonly file: string | null
  /** Variables that contained secrets; see `forgetSecrets`. */
  readonly secrets: readonly string[]
}

/**
 * Reads the file named by `--config FILE` or `GATEWAY_CONFIG` (none: all defaults) and the environment.
 * @throws ConfigError with one line for each fault, which names the field or variable.
 */
export function loadConfig(argv: readonly string[], environment: Environment): Config {
  const { config, faults } = findConfig(argv, environment)
  faults.throwIfAny()
  // Without errors nothing was left out.
  return config as Config
}

/** Like `loadConfig`, but continues after errors, so that later checks can add theirs. */
export function findConfig(argv: readonly string[], environment: Environment): FoundConfig {
  const faults = new Faults()
  const substituted = new Set<string>()
  const path = faults.try(() => configPath(argv, environment))
  const raw = path === null ? {} : (faults.try(() => readYaml(path)) ?? {})
  const text = substitute(raw, { environment, faults, substituted }, '')
  checkFile(FileSchema, text, faults)
  const file = faults.isEmpty ? (text as Values) : withoutFaults(FileSchema, text)
  const fromEnvironment = checkSettings(file, environment, faults)
  checkRegions(file, faults)
  checkSearchEngines(file, faults)
  checkBucket(file, faults)
  checkExports(file, faults)
  checkSignIn(file, faults)
  for (const { path, value } of fromEnvironment) set(file, path, value)
  for (const { path, value } of readOtelVariables(environment, faults)) set(file, path, value)
  const keys = { ...readProviderKeys(environment, faults), ...readKeyFiles(file['providers'], faults) }
  set(file, ['providerKeys'], keys)
  const config = withDefaults(file)
  return {
    // Its parts were checked separately, and a test ensures that the defaults are valid.
    config: faults.isEmpty || Value.Check(Settings, config) ? freeze(config as Config) : null,
    faults,
    file: path,
    secrets: [...secretVariables(environment), ...substituted],
  }
}

/** Rows have no defaults, and there may be thousands, so they are not processed. */
function withDefaults({ providers, models, ...others }: Values): unknown {
  const complete = Value.Default(Settings, others) as Values
  if (providers !== undefined) complete['providers'] = providers
  if (models !== undefined) complete['models'] = models
  return complete
}

/**
 * Removes the variables with secrets from the process's environment, so that neither its children nor an error that
 * prints the environment can leak them. The system keeps its copy (`/proc/PID/environ`): use a file to avoid that.
 */
export function forgetSecrets({ secrets }: FoundConfig): void {
  for (const name of secrets) delete process.env[name]
}

function configPath(argv: readonly string[], environment: Environment): string | null {
  const [option, ...rest] = argv
  if (option === undefined) return variable(environment, 'GATEWAY_CONFIG')
  if (option !== '--config' && !option.startsWith('--config=')) throw unknownArgument(option)
  const path = option === '--config' ? rest.shift() : option.slice('--config='.length)
  if (path === undefined || path === '') throw new ConfigError('--config: expects a file')
  if (rest[0] !== undefined) throw unknownArgument(rest[0])
  return path
}

/** Names the option alone: its value may be a secret. */
function unknownArgument(word: string): ConfigError {
  return new ConfigError(`${word.split('=')[0]}: unknown argument; the only option is --config FILE`)
}

function readYaml(path: string): unknown {
  let text: string
  try {
    text = readFileSync(path, 'utf8')
  } catch (error) {
    throw new ConfigError(`${path}: cannot be read (${(error as NodeJS.ErrnoException).code ?? 'unknown'})`)
  }
  const json = readLargeJson(text)
  if (json !== undefined) return json
  try {
    // Its warnings quote the file.
    return parseYaml(text, { logLevel: 'error' }) ?? {}
  } catch (error) {
    throw new ConfigError(`${path}: invalid YAML: ${yamlFault(error)}`)
  }
}

/** Smaller files are parsed as YAML in no noticeable time; for thousands of models that takes seconds. */
const LARGE_FILE_CHARS = 262_144

/** Parses a large file that is JSON, which is also YAML; undefined for others, whose errors the YAML parser reports. */
function readLargeJson(text: string): unknown {
  if (text.length < LARGE_FILE_CHARS || !/^\s*\{/.test(text)) return undefined
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

interface Substitution {
  readonly environment: Environment
  readonly faults: Faults
  /** Receives the names of variables that are used for secrets. */
  readonly substituted: Set<string>
}

/** Quotes nothing: a default may be a secret. */
const INVALID_VARIABLE =
  'expected the name of an environment variable in ${…}: letters, digits and _, without a default'

/** Replaces `${NAME}` in every string by the variable's value. */
function substitute(value: unknown, substitution: Substitution, path: string): unknown {
  const { environment, faults, substituted } = substitution
  if (typeof value === 'string') {
    return value.replace(/\$\{([^}]*)\}/g, (placeholder, name: string) => {
      if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(name)) {
        faults.add(path || '(root)', INVALID_VARIABLE)
        return placeholder
      }
      const variableValue = environment[name]
      if (variableValue === undefined) faults.add(path || '(root)', `environment variable ${name} is not set`)
      else if (/(^|\.)(apiKey|url|proxy)$/.test(path)) substituted.add(name)
      return variableValue ?? placeholder
    })
  }
  if (Array.isArray(value))
    return value.map((element, index) => substitute(element, substitution, `${path}[${index}]`))
  if (value !== null && typeof value === 'object') {
    return Object.fromEntries(
      Object.entries(value).map(([key, element]) => [
        key,
        substitute(element, substitution, joinPath(path, key)),
      ]),
    )
  }
  return value
}

interface PlacedValue {
  readonly path: readonly string[]
  readonly value: unknown
}

/** Reads the settings of the environment, and checks beyond the schema what they or the file say. */
function checkSettings(file: Values, environment: Environment, faults: Faults): readonly PlacedValue[] {
  const placed: PlacedValue[] = []
  for (const setting of SETTINGS) {
    const { path, schema, notes } = setting
    const settingValue = faults.try(() => readSetting(environment, setting))
    const value = settingValue === null ? valueAt(file, path) : settingValue.value
    const isFaulty =
      notes.accepts !== undefined &&
      value !== undefined &&
      Value.Check(schema, value) &&
      !notes.accepts(value)
    if (isFaulty) faults.add(settingValue?.name ?? path.join('.'), `expected ${notes.expected}`)
    // Nothing follows from a faulty value: further checks get the default.
    if (isFaulty && settingValue === null) set(file, path, undefined)
    if (settingValue !== null && !isFaulty) placed.push({ path, value: settingValue.value })
  }
  return placed
}

function valueAt(values: unknown, path: readonly string[]): unknown {
  return path.reduce((group, name) => (group as Values | null | undefined)?.[name], values)
}

function set(values: Values, [first = '', ...rest]: readonly string[], value: unknown): void {
  if (rest.length === 0) values[first] = value
  else {
    values[first] ??= {}
    set(values[first] as Values, rest, value)
  }
}

function checkRegions(file: Values, faults: Faults): void {
  const hostsOf = (region: string): readonly string[] => {
    const hosts = valueAt(file, ['regions', region])
    return Array.isArray(hosts) ? hosts.map(host => String(host).toLowerCase()) : []
  }
  const names = new Set(hostsOf('europe'))
  const index = hostsOf('us').findIndex(host => names.has(host))
  if (index !== -1) faults.add(`regions.us[${index}]`, 'this host is also in regions.europe')
}

/** Checks the rules of search engines that span fields or rows. */
function checkSearchEngines(file: Values, faults: Faults): void {
  const rows = valueAt(file, ['tools', 'webSearch', 'engines'])
  const engines = Array.isArray(rows) ? (rows as readonly Values[]) : []
  const names = new Set<unknown>()
  for (const [index, engine] of engines.entries()) {
    const path = `tools.webSearch.engines[${index}]`
    if (names.has(engine['name'])) faults.add(`${path}.name`, 'another engine has this name')
    names.add(engine['name'])
    const kind = engine['kind'] as SearchEngineKind | undefined
    if (kind === undefined) continue
    const { baseUrl, keyHeader } = SEARCH_ENGINES[kind]
    if (baseUrl === null && engine['baseUrl'] === undefined)
      faults.add(`${path}.baseUrl`, `is required for ${kind}`)
    if (keyHeader !== null && engine['apiKey'] === undefined)
      faults.add(`${path}.apiKey`, 'is required for this kind')
  }
  const byDefault = valueAt(file, ['tools', 'webSearch', 'default'])
  if (typeof byDefault === 'string' && !names.has(byDefault))
    faults.add('tools.webSearch.default', 'no engine in tools.webSearch.engines has this name')
}

function checkBucket(file: Values, faults: Faults): void {
  const files = valueAt(file, ['tools', 'files']) as Values | undefined
  if (!String(files?.['url'] ?? '').startsWith('s3://')) return
  for (const name of ['accessKeyId', 'secretAccessKey'])
    if (files?.[name] === undefined) faults.add(`tools.files.${name}`, 'is required with s3://')
}

function checkExports(file: Values, faults: Faults): void {
  const rows = (valueAt(file, ['export']) ?? []) as readonly Values[]
  for (const [index, row] of rows.entries()) {
    if (!String(row['url'] ?? '').startsWith('s3://')) continue
    for (const name of ['accessKeyIdFile', 'secretAccessKeyFile'])
      if (row[name] === undefined) faults.add(`export[${index}].${name}`, 'is required with s3://')
  }
}

function checkSignIn(file: Values, faults: Faults): void {
  const page = valueAt(file, ['console']) as Values | undefined
  if (page?.['oidc'] !== undefined && page['publicUrl'] === undefined)
    faults.add('console.publicUrl', 'is required with console.oidc')
}

function freeze<T>(value: T): T {
  if (value !== null && typeof value === 'object' && !Object.isFrozen(value)) {
    Object.freeze(value)
    for (const element of Object.values(value)) freeze(element)
  }
  return value
}
