/**
 * Loads the configuration: a YAML file, overridden by the environment, checked and frozen. docs/configuration.md is the
 * reference. The only code that uses the environment, but for one variable by which server/http.ts sets a limit of the
 * HTTP library. The door of this room.
 */
import { readFileSync } from 'node:fs'
import { Value } from '@sinclair/typebox/value'
import { parse as parseYaml, YAMLParseError } from 'yaml'
import { ConfigError, checkFile, Faults, joinPath } from './check.ts'
import { type Environment, readSetting, variable } from './environment.ts'
import { fileSchema } from './setting.ts'
import { type Config, SETTINGS, Settings } from './settings.ts'

export { ConfigError } from './check.ts'
export type { Environment } from './environment.ts'
export type { EndpointRow, ModelRow, PricingRow, ProviderRow } from './rows.ts'
export { isProxyUrl } from './setting.ts'
export type { Config } from './settings.ts'

type Values = Record<string, unknown>

const FileSchema = fileSchema(Settings)

/** The environment of the process. */
export function processEnvironment(): Environment {
  return process.env
}

/**
 * Reads the file named by `--config FILE` or `GATEWAY_CONFIG` (none: all defaults) and the environment.
 * @throws ConfigError with one line for each fault, which names the field or variable.
 */
export function loadConfig(argv: readonly string[], environment: Environment): Config {
  const faults = new Faults()
  const path = faults.try(() => configPath(argv, environment))
  const file = path === null ? {} : (faults.try(() => readConfigFile(path, environment, faults)) ?? {})
  const fromEnvironment = checkSettings(file, environment, faults)
  checkRegions(file, faults)
  faults.throwIfAny()
  for (const { path, value } of fromEnvironment) put(file, path, value)
  // Its parts were checked one by one, and a test holds that the defaults fit.
  return freeze(Value.Default(Settings, file) as Config)
}

function configPath(argv: readonly string[], environment: Environment): string | null {
  const [word, ...rest] = argv
  if (word === undefined) return variable(environment, 'GATEWAY_CONFIG')
  if (word !== '--config' && !word.startsWith('--config=')) throw unknownArgument(word)
  const path = word === '--config' ? rest.shift() : word.slice('--config='.length)
  if (path === undefined || path === '') throw new ConfigError('--config: expects a file')
  if (rest[0] !== undefined) throw unknownArgument(rest[0])
  return path
}

/** Names the option alone: its value may be a secret. */
function unknownArgument(word: string): ConfigError {
  return new ConfigError(`${word.split('=')[0]}: is no argument; the only one is --config FILE`)
}

function readConfigFile(path: string, environment: Environment, faults: Faults): Values {
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
    throw new ConfigError(`${path}: invalid YAML: ${yamlFault(error)}`)
  }
  const substituted = substitute(raw, environment, '', faults)
  checkFile(FileSchema, substituted, faults)
  return substituted as Values
}

/** The parser's code for the fault, and its place. The parser's messages quote the file, so they are not used. */
function yamlFault(error: unknown): string {
  if (!(error instanceof YAMLParseError)) return 'alias refers to an undefined anchor'
  const fault = error.code.toLowerCase().replaceAll('_', ' ')
  const [start] = error.linePos ?? []
  return start === undefined ? fault : `${fault} at line ${start.line}, column ${start.col}`
}

/** Replaces `${NAME}` in every string by the variable's value. */
function substitute(value: unknown, environment: Environment, path: string, faults: Faults): unknown {
  if (typeof value === 'string') {
    return value.replace(/\$\{([A-Za-z_][A-Za-z0-9_]*)\}/g, (whole, name: string) => {
      const found = environment[name]
      if (found === undefined) faults.add(path || '(root)', `environment variable ${name} is not set`)
      return found ?? whole
    })
  }
  if (Array.isArray(value))
    return value.map((element, index) => substitute(element, environment, `${path}[${index}]`, faults))
  if (value !== null && typeof value === 'object') {
    return Object.fromEntries(
      Object.entries(value).map(([key, element]) => [
        key,
        substitute(element, environment, joinPath(path, key), faults),
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
    const given = faults.try(() => readSetting(environment, setting))
    if (given !== null) placed.push({ path, value: given.value })
    if (notes.accepts === undefined) continue
    const value = given === null ? valueAt(file, path) : given.value
    if (value === undefined || !Value.Check(schema, value) || notes.accepts(value)) continue
    faults.add(given?.name ?? path.join('.'), `expected ${notes.expected}`)
  }
  return placed
}

function valueAt(values: unknown, path: readonly string[]): unknown {
  return path.reduce((group, name) => (group as Values | null | undefined)?.[name], values)
}

function put(values: Values, [first = '', ...rest]: readonly string[], value: unknown): void {
  if (rest.length === 0) values[first] = value
  else {
    values[first] ??= {}
    put(values[first] as Values, rest, value)
  }
}

function checkRegions(file: Values, faults: Faults): void {
  const hostsOf = (region: string): readonly string[] => {
    const hosts = valueAt(file, ['regions', region])
    return Array.isArray(hosts) ? hosts.map(host => String(host).toLowerCase()) : []
  }
  const names = new Set(hostsOf('europe'))
  const at = hostsOf('us').findIndex(host => names.has(host))
  if (at !== -1) faults.add(`regions.us[${at}]`, 'this host is in regions.europe too')
}

function freeze<T>(value: T): T {
  if (value !== null && typeof value === 'object' && !Object.isFrozen(value)) {
    Object.freeze(value)
    for (const element of Object.values(value)) freeze(element)
  }
  return value
}
