/**
 * Loads the configuration: a YAML file, overridden by the environment, checked and frozen. docs/configuration.md is the
 * reference. The only code that uses the environment, but for one variable by which server/http.ts sets a limit of the
 * HTTP library. The door of this room.
 */
import { readFileSync } from 'node:fs'
import { Value } from '@sinclair/typebox/value'
import { parse as parseYaml, YAMLParseError } from 'yaml'
import { ConfigError, checkFile, joinPath } from './check.ts'
import { type Environment, readSetting, variable } from './environment.ts'
import { fileSchema } from './setting.ts'
import { type Config, SETTINGS, Settings } from './settings.ts'

export { ConfigError } from './check.ts'
export type { Environment } from './environment.ts'
export type { EndpointRow, ModelRow, PricingRow, ProviderRow } from './rows.ts'
export type { Config } from './settings.ts'

type Values = Record<string, unknown>

const FileSchema = fileSchema(Settings)

/** The environment of the process. */
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
  return freeze(complete(file, environment))
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

function readConfigFile(path: string, environment: Environment): Values {
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
  const substituted = substitute(raw, environment, '')
  checkFile(FileSchema, substituted)
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
        substitute(element, environment, joinPath(path, key)),
      ]),
    )
  }
  return value
}

/** Overrides the file by the environment and adds defaults. */
function complete(file: Values, environment: Environment): Config {
  for (const setting of SETTINGS) {
    const given = readSetting(environment, setting)
    if (given !== null) put(file, setting.path, given.value)
    const { accepts, expected } = setting.notes
    if (accepts === undefined) continue
    const value = setting.path.reduce<unknown>((group, name) => (group as Values | undefined)?.[name], file)
    if (value !== undefined && !accepts(value)) {
      throw new ConfigError(`${given?.name ?? setting.path.join('.')}: expected ${expected}`)
    }
  }
  // File and variables are checked already, and a test checks the defaults.
  const config = Value.Default(Settings, file) as Config
  checkRegions(config.regions)
  return config
}

function put(values: Values, [first = '', ...rest]: readonly string[], value: unknown): void {
  if (rest.length === 0) values[first] = value
  else {
    values[first] ??= {}
    put(values[first] as Values, rest, value)
  }
}

function checkRegions({ europe, us }: Config['regions']): void {
  const names = new Set(europe.map(host => host.toLowerCase()))
  const at = us.findIndex(host => names.has(host.toLowerCase()))
  if (at !== -1) throw new ConfigError(`regions.us[${at}]: this host is in regions.europe too`)
}

function freeze<T>(value: T): T {
  if (value !== null && typeof value === 'object' && !Object.isFrozen(value)) {
    Object.freeze(value)
    for (const element of Object.values(value)) freeze(element)
  }
  return value
}
