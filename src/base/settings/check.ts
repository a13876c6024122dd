/** Checks a value against a schema of the configuration. Errors name the path, but never contain the value. Pure. */
import { KindGuard, type TSchema } from '@sinclair/typebox'
import { Value, type ValueError, ValueErrorType } from '@sinclair/typebox/value'
import { didYouMean } from '../did-you-mean.ts'

/** An invalid configuration. Each error is one line that begins with its field or variable. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError'
  readonly faults: readonly string[]

  constructor(...faults: readonly string[]) {
    super(faults.join('\n'))
    this.faults = faults
  }
}

/** Collects the errors of a configuration, so that the operator sees all of them at once. */
export class Faults {
  /** Lines by field. Only the first one is kept, because later ones of the same field follow from it. */
  readonly #lines = new Map<string, string>()

  /** @param field path or variable @param problem text after the colon */
  add(field: string, problem: string): void {
    if (!this.#lines.has(field)) this.#lines.set(field, `${field}: ${problem}`)
  }

  /** Adds a line that already begins with its field. */
  addLine(line: string): void {
    const field = line.slice(0, line.indexOf(': '))
    if (!this.#lines.has(field)) this.#lines.set(field, line)
  }

  /** One line for each error. Values that may be secrets are in none. */
  get lines(): readonly string[] {
    return [...this.#lines.values()]
  }

  get isEmpty(): boolean {
    return this.#lines.size === 0
  }

  /** Returns the result of a step; null if it throws a ConfigError, which is collected. */
  try<T>(step: () => T): T | null {
    try {
      return step()
    } catch (error) {
      if (!(error instanceof ConfigError)) throw error
      for (const line of error.faults) this.addLine(line)
      return null
    }
  }

  /** @throws ConfigError with all errors, if there are any. */
  throwIfAny(): void {
    if (this.#lines.size > 0) throw new ConfigError(...this.#lines.values())
  }
}

/** Adds the errors of a configuration file. */
export function checkFile(schema: TSchema, value: unknown, faults: Faults): void {
  for (const error of Value.Errors(schema, value)) faults.add(fieldPath(error.path), fault(error))
}

function fault(error: ValueError): string {
  const { schema } = error
  if (error.type === ValueErrorType.ObjectAdditionalProperties) return `unknown setting${hint(error)}`
  if (error.type === ValueErrorType.ObjectRequiredProperty) return 'is required'
  if (error.type === ValueErrorType.Union)
    return `expected ${expectedPhrase(schema) ?? `one of ${words(schema)}`}`
  if (error.type === ValueErrorType.StringPattern || error.type === ValueErrorType.String) {
    const phrase = problemOf(schema, error.value) ?? expectedPhrase(schema)
    if (phrase !== undefined) return `expected ${phrase}`
    if (error.type === ValueErrorType.String) return 'expected a string'
    return `expected a string of the form ${schema['pattern']}`
  }
  if (KindGuard.IsInteger(schema)) {
    const quoted = typeof error.value === 'string' ? ', without quotes' : ''
    return `expected ${integerRange(schema)}${quoted}`
  }
  if (error.type === ValueErrorType.ArrayMinItems || error.type === ValueErrorType.ObjectMinProperties)
    return 'expected at least one'
  const kind = KIND_PHRASES[error.type]
  if (kind !== undefined) return `expected ${kind}`
  return `${error.message.charAt(0).toLowerCase()}${error.message.slice(1)}`
}

/** Plain words for the library's names of kinds. */
const KIND_PHRASES: Partial<Record<ValueErrorType, string>> = {
  [ValueErrorType.Number]: 'a number, without quotes',
  [ValueErrorType.Boolean]: 'true or false, without quotes',
  [ValueErrorType.Array]: 'a list, as in [a, b]',
  [ValueErrorType.Object]: 'a group of settings',
}

/** A suggestion for an unknown setting. */
function hint({ path, schema }: ValueError): string {
  const name = path.slice(path.lastIndexOf('/') + 1)
  return KindGuard.IsObject(schema) ? didYouMean(name, Object.keys(schema.properties)) : ''
}

/** `an integer from 1 to 9`, with the bounds that the schema has. */
export function integerRange({ minimum, maximum }: { minimum?: number; maximum?: number }): string {
  return maximum === undefined ? `an integer from ${minimum}` : `an integer from ${minimum} to ${maximum}`
}

/** Completes "expected …" for this value, if the schema has words for it. */
function problemOf(schema: TSchema, value: unknown): string | undefined {
  const explain = schema['explain'] as ((value: unknown) => string | undefined) | undefined
  return explain?.(value)
}

/** The schema's own words for the expected value, if it has any. */
export function expectedPhrase(schema: TSchema): string | undefined {
  return schema['expected'] as string | undefined
}

/** The values of a union of literals, as a list in words. */
export function words(schema: TSchema): string {
  return literals(schema)?.join(', ') ?? 'the documented values'
}

/** Undefined for anything but a union of literals. */
export function literals(schema: TSchema): readonly string[] | undefined {
  if (!KindGuard.IsUnion(schema)) return undefined
  const values = schema.anyOf.map(member => (KindGuard.IsLiteral(member) ? String(member.const) : null))
  return values.every(word => word !== null) ? values : undefined
}

/** `/models/3/endpoints/0/provider` as `models[3].endpoints[0].provider`. */
function fieldPath(pointer: string): string {
  const steps = pointer.split('/').slice(1)
  if (steps.length === 0) return '(root)'
  return steps.reduce((path, step) => (/^\d+$/.test(step) ? `${path}[${step}]` : joinPath(path, step)), '')
}

/** The path of a setting within the group at `path`. */
export function joinPath(path: string, name: string): string {
  // A name that is not a plain word may be a misplaced key, so it is not repeated.
  const safeName = /^[A-Za-z]+(?:[_-][A-Za-z]+)*$/.test(name) ? name : '*'
  return path === '' ? safeName : `${path}.${safeName}`
}
