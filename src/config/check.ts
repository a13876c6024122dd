/** Checks a value against a schema of the configuration. Errors name the path and never contain the value. Pure. */
import { KindGuard, type TSchema } from '@sinclair/typebox'
import { Value, type ValueError, ValueErrorType } from '@sinclair/typebox/value'

/** The configuration is invalid. The message begins with the field or variable at fault. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError'
}

/** @throws ConfigError for the first fault. */
export function checkFile(schema: TSchema, value: unknown): void {
  const error = Value.Errors(schema, value).First()
  if (error !== undefined) throw new ConfigError(`${fieldPath(error.path)}: ${fault(error)}`)
}

function fault(error: ValueError): string {
  const { schema } = error
  if (error.type === ValueErrorType.ObjectAdditionalProperties) return 'unknown setting'
  if (error.type === ValueErrorType.ObjectRequiredProperty) return 'is required'
  if (error.type === ValueErrorType.Union)
    return `expected ${expectedPhrase(schema) ?? `one of ${words(schema)}`}`
  if (error.type === ValueErrorType.StringPattern) {
    return `expected ${expectedPhrase(schema) ?? `a string of the form ${schema['pattern']}`}`
  }
  return `${error.message.charAt(0).toLowerCase()}${error.message.slice(1)}`
}

/** The schema's own words for the expected value, if it has any. */
export function expectedPhrase(schema: TSchema): string | undefined {
  return schema['expected'] as string | undefined
}

/** The words of a union of literals, as a list. */
export function words(schema: TSchema): string {
  return literals(schema)?.join(', ') ?? 'the documented values'
}

/** Undefined for anything but a union of literals. */
export function literals(schema: TSchema): readonly string[] | undefined {
  if (!KindGuard.IsUnion(schema)) return undefined
  const values = schema.anyOf.map(each => (KindGuard.IsLiteral(each) ? String(each.const) : null))
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
  // A name that is no plain word may be a key in the wrong place, so it is not repeated.
  const safeName = /^[A-Za-z]+(?:[_-][A-Za-z]+)*$/.test(name) ? name : '*'
  return path === '' ? safeName : `${path}.${safeName}`
}
