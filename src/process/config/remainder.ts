/**
 * Removes invalid values from a configuration, so that later checks can report further problems at the same
 * start. A gateway never runs with the result. Pure.
 */
import type { TSchema } from '@sinclair/typebox'
import { Value, ValueErrorType } from '@sinclair/typebox/value'
import { ModelSchema, ProviderSchema } from '../../providers/row-schemas.ts'

type Values = Record<string, unknown>

/** Valid rows that replace invalid ones, so that the others keep their indexes. */
const STAND_INS = {
  // Its format and address are there, so models of this provider have no fault of their own.
  providers: (row: unknown, index: number) => ({
    slug: Value.Check(ProviderSchema.properties.slug, valueIn(row, 'slug'))
      ? valueIn(row, 'slug')
      : `faulty-${index}`,
    format: 'openai-chat',
    baseUrl: 'http://127.0.0.1',
  }),
  models: (row: unknown, index: number) => ({
    id: Value.Check(ModelSchema.properties.id, valueIn(row, 'id')) ? valueIn(row, 'id') : `faulty/${index}`,
    endpoints: Value.Check(ModelSchema.properties.endpoints, valueIn(row, 'endpoints'))
      ? valueIn(row, 'endpoints')
      : [{ provider: 'ollama' }],
    // These fields decide whether a format fits the model.
    ...(Value.Check(ModelSchema.properties.outputModalities, valueIn(row, 'outputModalities'))
      ? { outputModalities: valueIn(row, 'outputModalities') }
      : {}),
  }),
}

/** The file without the values that do not fit the schema. */
export function withoutFaults(schema: TSchema, file: unknown): Values {
  const remainder: unknown = structuredClone(file)
  const errors = [...Value.Errors(schema, remainder)]
  const faulty = { providers: new Set<number>(), models: new Set<number>() }
  for (const { path, type } of errors) {
    const [, list, index] = path.split('/')
    if (list === 'providers' && index !== undefined) faulty.providers.add(Number(index))
    // Elements of a model row's lists are not removed one by one, because their indexes would change.
    else if (type !== ValueErrorType.ObjectRequiredProperty) removeAt(remainder, path)
  }
  if (remainder === null || typeof remainder !== 'object' || Array.isArray(remainder)) return {}
  const values = remainder as Values
  if (Array.isArray(values['models'])) {
    for (const [index, row] of values['models'].entries()) {
      if (!Value.Check(ModelSchema, row)) faulty.models.add(index)
    }
  }
  for (const list of ['providers', 'models'] as const) {
    const rows = values[list]
    if (!Array.isArray(rows)) continue
    values[list] = rows.map((row, index) => (faulty[list].has(index) ? STAND_INS[list](row, index) : row))
  }
  return values
}

/** Removes the value at a pointer such as `/listen/port`; list elements are kept. */
function removeAt(value: unknown, pointer: string): void {
  const steps = pointer.split('/').slice(1)
  const last = steps.pop()
  const group = steps.reduce<unknown>(valueIn, value)
  if (last === undefined || group === null || typeof group !== 'object' || Array.isArray(group)) return
  delete (group as Values)[last.replaceAll('~1', '/').replaceAll('~0', '~')]
}

function valueIn(group: unknown, name: string): unknown {
  return group !== null && typeof group === 'object' && Object.hasOwn(group, name)
    ? Reflect.get(group, name)
    : undefined
}
