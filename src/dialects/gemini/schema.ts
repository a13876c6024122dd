/**
 * Translates schemas of this API, a subset of OpenAPI, to JSON Schema. Pure. In that subset, type names are upper-case,
 * null is a flag, and integers may be strings.
 */
import { isObject } from '../../protocol/json/schema.ts'
import { camelCase } from './names.ts'

type Schema = Record<string, unknown>

/** Keywords whose value is a schema, a list of them, or several by name. */
const SCHEMA_KEYWORDS: ReadonlySet<string> = new Set(['items', 'additionalProperties', 'not'])
const LIST_KEYWORDS: ReadonlySet<string> = new Set(['anyOf', 'oneOf', 'allOf', 'prefixItems'])
const MAP_KEYWORDS: ReadonlySet<string> = new Set(['properties', 'defs', '$defs'])
const COUNT_KEYWORDS: ReadonlySet<string> = new Set([
  'minItems',
  'maxItems',
  'minProperties',
  'maxProperties',
  'minLength',
  'maxLength',
])
/** Hints that other providers refuse in a strict schema. */
const HINT_KEYWORDS: ReadonlySet<string> = new Set(['propertyOrdering', 'nullable'])

export function jsonSchema(source: unknown): Schema {
  if (!isObject(source)) return {}
  const schema: Schema = {}
  for (const [spelling, value] of Object.entries(source)) {
    const name = camelCase(spelling)
    if (value === null || value === undefined || HINT_KEYWORDS.has(name)) continue
    if (name === 'type' && typeof value === 'string') {
      const type = value.toLowerCase()
      if (type !== 'type_unspecified') schema['type'] = type
    } else if (SCHEMA_KEYWORDS.has(name)) schema[name] = isObject(value) ? jsonSchema(value) : value
    else if (LIST_KEYWORDS.has(name) && Array.isArray(value)) schema[name] = value.map(jsonSchema)
    else if (MAP_KEYWORDS.has(name) && isObject(value))
      schema[name === 'defs' ? '$defs' : name] = Object.fromEntries(
        Object.entries(value).map(([key, inner]) => [key, jsonSchema(inner)]),
      )
    else if (COUNT_KEYWORDS.has(name)) schema[name] = Number(value)
    else if (name === 'ref') schema['$ref'] = value
    else if (name === 'example') schema['examples'] = [value]
    // Enumerations are of strings, so `format: enum` is redundant.
    else if (name !== 'format' || value !== 'enum') schema[name] = value
  }
  return source['nullable'] === true ? withNull(schema) : schema
}

function withNull(schema: Schema): Schema {
  const { type, enum: values, anyOf } = schema
  if (Array.isArray(anyOf)) return { ...schema, anyOf: [...(anyOf as unknown[]), { type: 'null' }] }
  if (typeof type !== 'string') return schema
  const nullable = { ...schema, type: [type, 'null'] }
  return Array.isArray(values) ? { ...nullable, enum: [...(values as unknown[]), null] } : nullable
}
