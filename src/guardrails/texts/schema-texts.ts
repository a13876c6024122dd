/**
 * Every text of a JSON schema, and the schema with other texts in their places. Pure. A model is shown a schema as it
 * is, so all of it is text but what the schema works by: words and formats that the standard has, references, and names
 * of properties, which are its keys.
 */

type See = (text: string) => string
type Json = Readonly<Record<string, unknown>>
type Keyword = (value: unknown, schema: Json, see: See) => unknown

const TYPES: ReadonlySet<unknown> = new Set([
  'string',
  'number',
  'integer',
  'boolean',
  'array',
  'object',
  'null',
])
const FORMATS: ReadonlySet<unknown> = new Set([
  ...[
    'date-time',
    'date',
    'time',
    'duration',
    'email',
    'idn-email',
    'hostname',
    'idn-hostname',
    'ipv4',
    'ipv6',
  ],
  ...['uri', 'uri-reference', 'uri-template', 'iri', 'iri-reference', 'uuid', 'json-pointer'],
  ...[
    'relative-json-pointer',
    'regex',
    'int32',
    'int64',
    'float',
    'double',
    'byte',
    'binary',
    'password',
    'url',
  ],
])

const wordOf =
  (words: ReadonlySet<unknown>): Keyword =>
  (value, _, see) =>
    mapAll(value, text => (words.has(text) ? text : see(text)))
const inner: Keyword = (value, _, see) => mapSchema(value, see)
const byName: Keyword = (value, _, see) =>
  isObject(value) ? mapFields(value, each => mapSchema(each, see)) : mapAll(value, see)
/** A reference is one word; what is none refers to nothing. */
const reference: Keyword = (value, _, see) => mapAll(value, text => (/\s/.test(text) ? see(text) : text))
const names: Keyword = (value, { properties }, see) =>
  mapAll(value, text => (isObject(properties) && Object.hasOwn(properties, text) ? text : see(text)))

/**
 * What was found in a value that is allowed must not go out, although the tool then sees what stands in its place. Two
 * values may become one, which providers refuse twice in a list.
 */
const values: Keyword = (value, _, see) => {
  const mapped = mapAll(value, see)
  return mapped === value || !Array.isArray(mapped) ? mapped : [...new Set<unknown>(mapped)]
}
/** With another text in it, it would be another pattern or none: without it the tool still works. */
const pattern: Keyword = (value, _, see) => {
  const mapped = mapAll(value, see)
  return mapped === value ? value : undefined
}

const KEYWORDS: ReadonlyMap<string, Keyword> = new Map<string, Keyword>([
  ['type', wordOf(new Set([...TYPES, ...[...TYPES].map(type => String(type).toUpperCase())]))],
  ['format', wordOf(FORMATS)],
  ['required', names],
  ['propertyOrdering', names],
  ['enum', values],
  ['pattern', pattern],
  ...['$ref', '$id', '$schema', '$anchor', '$dynamicRef', '$dynamicAnchor', '$recursiveRef'].map(
    (name): [string, Keyword] => [name, reference],
  ),
  ...['properties', 'patternProperties', '$defs', 'definitions', 'dependentSchemas'].map(
    (name): [string, Keyword] => [name, byName],
  ),
  ...['items', 'prefixItems', 'additionalItems', 'unevaluatedItems', 'contains', 'additionalProperties'].map(
    (name): [string, Keyword] => [name, inner],
  ),
  ...['unevaluatedProperties', 'propertyNames', 'contentSchema', 'anyOf', 'oneOf', 'allOf', 'not'].map(
    (name): [string, Keyword] => [name, inner],
  ),
  ...['if', 'then', 'else'].map((name): [string, Keyword] => [name, inner]),
])

/** `see` takes each text and gives what shall stand in its place; what does not change is shared with the schema. */
export function mapSchema(schema: unknown, see: See): unknown {
  if (Array.isArray(schema)) return mapList(schema, each => mapSchema(each, see))
  if (!isObject(schema)) return mapAll(schema, see)
  return mapFields(schema, (value, key) => {
    const keyword = KEYWORDS.get(key)
    return keyword === undefined ? mapAll(value, see) : keyword(value, schema, see)
  })
}

/** Every string, whatever its field is called. */
export function mapAll(value: unknown, see: See): unknown {
  if (typeof value === 'string') return value === '' ? value : see(value)
  if (Array.isArray(value)) return mapList(value, each => mapAll(each, see))
  return isObject(value) ? mapFields(value, each => mapAll(each, see)) : value
}

/** The object with mapped fields, without those that became undefined. */
export function mapFields(value: Json, map: (inner: unknown, key: string) => unknown): Json {
  let changed: Record<string, unknown> | null = null
  for (const key of Object.keys(value)) {
    const inner = value[key]
    const mapped = map(inner, key)
    if (mapped === inner) continue
    changed ??= { ...value }
    if (mapped === undefined) delete changed[key]
    else changed[key] = mapped
  }
  return changed ?? value
}

export function mapList(list: readonly unknown[], map: (value: unknown) => unknown): readonly unknown[] {
  let changed: unknown[] | null = null
  for (let at = 0; at < list.length; at++) {
    const value = list[at]
    const mapped = map(value)
    if (mapped === value) continue
    changed ??= [...list]
    changed[at] = mapped
  }
  return changed ?? list
}

export function isObject(value: unknown): value is Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
