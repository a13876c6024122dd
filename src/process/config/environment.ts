/** Reads settings from environment variables, and secrets from the files that variables name. */
import { readFileSync } from 'node:fs'
import { KindGuard, type TSchema } from '@sinclair/typebox'
import { Value } from '@sinclair/typebox/value'
import { ConfigError, expectedPhrase, type Faults, integerRange, words } from '../../base/settings/check.ts'
import type { Setting } from '../../base/settings/setting.ts'
import type { ProviderRow } from '../../providers/row-schemas.ts'
import { KEY_VARIABLES } from '../../providers/table.ts'
import { SETTINGS } from './settings.ts'

export type Environment = Readonly<Record<string, string | undefined>>

/** A value and the name of its variable. */
interface FromEnvironment {
  readonly name: string
  readonly value: unknown
}

/** The value of a variable; null if it is not set or empty, as shells and compose files leave it. */
export function variable(environment: Environment, name: string): string | null {
  const value = environment[name]
  return value === undefined || value === '' ? null : value
}

/**
 * The value of a setting from its variable, or from the file that `NAME_FILE` names; null if neither is set.
 * @throws ConfigError with the name of the variable.
 */
export function readSetting(environment: Environment, { schema, notes }: Setting): FromEnvironment | null {
  if (notes.env === undefined) return null
  const names = notes.anyCase === true ? [notes.env.toLowerCase(), notes.env] : [notes.env]
  const text = firstOf(names, name => textOf(environment, name, notes.secret === true))
  if (text === null) return null
  const value = parse(schema, text.text)
  if (!Value.Check(schema, value)) throw new ConfigError(`${text.name}: expected ${expected(schema)}`)
  return { name: text.name, value }
}

function firstOf<Value>(names: readonly string[], read: (name: string) => Value | null): Value | null {
  for (const name of names) {
    const value = read(name)
    if (value !== null) return value
  }
  return null
}

function textOf(environment: Environment, name: string, secret: boolean) {
  const text = variable(environment, name)
  const fileName = `${name}_FILE`
  const path = secret ? variable(environment, fileName) : null
  if (path === null) return text === null ? null : { name, text }
  if (text !== null) throw new ConfigError(`${name} and ${fileName}: only one of them may be set`)
  return { name: fileName, text: readSecret(fileName, path) }
}

/** Errors do not contain the path: it may be the secret itself, in the wrong variable. */
function readSecret(name: string, path: string): string {
  let text: string
  try {
    text = readFileSync(path, 'utf8').trimEnd()
  } catch (error) {
    throw new ConfigError(`${name}: cannot be read (${(error as NodeJS.ErrnoException).code ?? 'unknown'})`)
  }
  if (text === '') throw new ConfigError(`${name}: the file is empty`)
  return text
}

/** The text as a value of the schema's kind; undefined if it is none. */
function parse(schema: TSchema, text: string): unknown {
  if (KindGuard.IsInteger(schema)) return /^\d+$/.test(text) ? Number(text) : undefined
  if (KindGuard.IsBoolean(schema)) return text === '1' || (text === '0' ? false : undefined)
  return text
}

function expected(schema: TSchema): string {
  if (KindGuard.IsInteger(schema)) return integerRange(schema)
  if (KindGuard.IsBoolean(schema)) return '0 or 1'
  return expectedPhrase(schema) ?? (KindGuard.IsUnion(schema) ? `one of ${words(schema)}` : 'another value')
}

/** The keys that are in the environment under the providers' own names, by slug. */
export function readProviderKeys(environment: Environment, faults: Faults): Readonly<Record<string, string>> {
  const keys: Record<string, string> = {}
  for (const [slug, name] of KEY_VARIABLES) {
    const key = variable(environment, name)?.trim() ?? ''
    if (key === '') continue
    if (/^[\x21-\x7e]+$/.test(key)) keys[slug] = key
    else faults.add(name, 'expected a key without spaces or line breaks')
  }
  return keys
}

/** The keys in the files that rows of `providers` name, by slug. @param providers without invalid rows */
export function readKeyFiles(providers: unknown, faults: Faults): Readonly<Record<string, string>> {
  const keys: Record<string, string> = {}
  for (const [index, { slug, apiKey, apiKeyFile }] of (
    (providers ?? []) as readonly ProviderRow[]
  ).entries()) {
    if (apiKeyFile === undefined) continue
    const field = `providers[${index}].apiKeyFile`
    if (apiKey !== undefined) faults.add(field, 'set either apiKey or apiKeyFile')
    const key = faults.try(() => readSecret(field, apiKeyFile))
    if (key === null) continue
    if (/^[\x20-\x7e\r\n\t]+$/.test(key)) keys[slug] = key
    else faults.add(field, 'the file has characters that a key cannot have')
  }
  return keys
}

/** The variables that contain secrets themselves, not the name of a file. */
export function secretVariables(environment: Environment): readonly string[] {
  const names = SETTINGS.flatMap(({ notes: { env, secret } }) =>
    env !== undefined && secret === true ? [env] : [],
  )
  return [...names, ...KEY_VARIABLES.values()].filter(name => variable(environment, name) !== null)
}
