/** Generates examples of a JSON schema: the documents and tool arguments of simulated models. Pure. */
import { fieldsOf, listOf, numberOf, type SimFields, textOf } from './ask.ts'

// Documents that match a schema, bounded in depth and size

/** Deeper than any real schema; ends recursive ones. */
const MAX_DEPTH = 12
/** Longest array for `minItems`. */
const MAX_ITEMS = 64
/** Maximum values in a document: nested arrays would multiply to millions. */
const MAX_VALUES = 10_000

const TEXT_BY_FORMAT: Readonly<Record<string, string>> = {
  date: '2026-01-31',
  time: '12:00:00Z',
  'date-time': '2026-01-31T12:00:00Z',
  email: 'someone@example.com',
  uri: 'https://example.com/',
  uuid: '00000000-0000-4000-8000-000000000000',
}

/** A value that roughly matches a JSON schema: only required properties, filled by type. `word` fills free strings. */
export function exampleOf(schema: SimFields, word: string): unknown {
  return example(schema, { root: schema, word, remaining: MAX_VALUES }, 0)
}

interface Setting {
  readonly root: SimFields
  readonly word: string
  /** Number of values that may still be created. */
  remaining: number
}

function example(schema: SimFields, setting: Setting, depth: number): unknown {
  if (depth > MAX_DEPTH || setting.remaining-- <= 0) return null
  if ('$ref' in schema) return example(target(schema, setting.root), setting, depth + 1)
  if ('const' in schema) return schema['const']
  if ('default' in schema) return schema['default']
  const values = listOf(schema['enum'])
  if (values.length > 0) return values[0]
  const first = listOf(schema['anyOf'] ?? schema['oneOf'] ?? schema['allOf'])[0]
  if (first !== undefined) return example(fieldsOf(first), setting, depth + 1)
  switch (typeName(schema)) {
    case 'object':
      return objectExample(schema, setting, depth)
    case 'array':
      return arrayExample(schema, setting, depth)
    case 'string':
      return stringExample(schema, setting.word)
    case 'integer':
      return Math.ceil(boundedNumber(schema))
    case 'number':
      return boundedNumber(schema)
    case 'boolean':
      return true
    default:
      return null
  }
}

function target(schema: SimFields, root: SimFields): SimFields {
  const reference = textOf(schema['$ref'])
  if (!reference.startsWith('#/')) return reference === '#' ? root : {}
  return reference
    .slice(2)
    .split('/')
    .map(step => step.replaceAll('~1', '/').replaceAll('~0', '~'))
    .reduce<SimFields>((node, step) => (Object.hasOwn(node, step) ? fieldsOf(node[step]) : {}), root)
}

function typeName(schema: SimFields): string {
  const type = Array.isArray(schema['type']) ? schema['type'].find(name => name !== 'null') : schema['type']
  if (typeof type === 'string') return type.toLowerCase()
  if ('items' in schema) return 'array'
  return 'properties' in schema || Object.keys(schema).length === 0 ? 'object' : 'null'
}

function objectExample(schema: SimFields, setting: Setting, depth: number): unknown {
  const properties = fieldsOf(schema['properties'])
  const required = listOf(schema['required']).filter(name => typeof name === 'string')
  // fromEntries defines own properties, so a property called __proto__ stays one.
  return Object.fromEntries(
    required.map(name => [
      name,
      example(Object.hasOwn(properties, name) ? fieldsOf(properties[name]) : {}, setting, depth + 1),
    ]),
  )
}

function arrayExample(schema: SimFields, setting: Setting, depth: number): unknown {
  // From depth 3 on only required entries, and from depth 4 on at most one, so that nested arrays do not multiply.
  const minLength = Math.max(numberOf(schema['minItems']) ?? 0, depth < 3 ? 1 : 0)
  const length = Math.min(minLength, numberOf(schema['maxItems']) ?? MAX_ITEMS, depth < 4 ? MAX_ITEMS : 1)
  return Array.from({ length }, () => example(fieldsOf(schema['items']), setting, depth + 1))
}

function stringExample(schema: SimFields, word: string): string {
  const byFormat = Object.hasOwn(TEXT_BY_FORMAT, textOf(schema['format']))
    ? TEXT_BY_FORMAT[textOf(schema['format'])]
    : undefined
  if (byFormat !== undefined) return byFormat
  const longEnough = word.padEnd(Math.min(numberOf(schema['minLength']) ?? 0, 1000), '.')
  return longEnough.slice(0, numberOf(schema['maxLength']) ?? undefined).toWellFormed()
}

function boundedNumber(schema: SimFields): number {
  const low = numberOf(schema['minimum']) ?? numberOf(schema['exclusiveMinimum'])
  const high = numberOf(schema['maximum']) ?? numberOf(schema['exclusiveMaximum'])
  if (low !== null) return 'exclusiveMinimum' in schema && high === null ? low + 1 : low
  return high !== null && high < 1 ? high : 1
}
