/**
 * The texts of a JSON schema, and the schema with other texts in their places. Pure. A model is shown a schema as it
 * is, so every string is a text except those that make the schema work: standard types and formats, references, and
 * names of properties.
 */

/** Takes a text and returns the text to put in its place. */
export type Replace = (text: string) => string
type Json = Readonly<Record<string, unknown>>
type Keyword = (value: unknown, schema: Json, replace: Replace) => unknown

const TYPES: readonly string[] = ['string', 'number', 'integer', 'boolean', 'array', 'object', 'null']
const FORMATS =
  `date-time date time duration email idn-email hostname idn-hostname ipv4 ipv6 uri uri-reference
  uri-template iri iri-reference uuid json-pointer relative-json-pointer regex int32 int64 float double byte binary
  password url`.split(/\s+/)

function wordOf(list: readonly string[]): Keyword {
  const words = new Set(list)
  return (value, _, replace) => mapAll(value, text => (words.has(text) ? text : replace(text)))
}
const inner: Keyword = (value, _, replace) => mapSchema(value, replace)
const byName: Keyword = (value, _, replace) =>
  isObject(value) ? mapFields(value, each => mapSchema(each, replace)) : mapAll(value, replace)
/** A reference is one word; several words refer to nothing, so they are text. */
const reference: Keyword = (value, _, replace) =>
  mapAll(value, text => (/\s/.test(text) ? replace(text) : text))
const names: Keyword = (value, { properties }, replace) =>
  mapAll(value, text => (isObject(properties) && Object.hasOwn(properties, text) ? text : replace(text)))

/**
 * Allowed values are redacted, although the tool then gets the replacement. Two values may become equal; providers
 * refuse a list with one value twice.
 */
const values: Keyword = (value, _, replace) => {
  const mapped = mapAll(value, replace)
  return mapped === value || !Array.isArray(mapped) ? mapped : [...new Set<unknown>(mapped)]
}
/** A pattern with a redaction in it would match something else; the tool works without the pattern too. */
const pattern: Keyword = (value, _, replace) => {
  const mapped = mapAll(value, replace)
  return mapped === value ? value : undefined
}

const KEYWORDS: ReadonlyMap<string, Keyword> = new Map<string, Keyword>([
  ['type', wordOf([...TYPES, ...TYPES.map(type => type.toUpperCase())])],
  ['format', wordOf(FORMATS)],
  ['enum', values],
  ['pattern', pattern],
  ...rows(names, 'required propertyOrdering'),
  ...rows(reference, '$ref $id $schema $anchor $dynamicRef $dynamicAnchor $recursiveRef'),
  ...rows(byName, 'properties patternProperties $defs definitions dependentSchemas'),
  ...rows(inner, 'items prefixItems additionalItems unevaluatedItems contains additionalProperties'),
  ...rows(inner, 'unevaluatedProperties propertyNames contentSchema anyOf oneOf allOf not if then else'),
])

function rows(keyword: Keyword, list: string): [string, Keyword][] {
  return list.split(' ').map(name => [name, keyword])
}

/** Replaces every text of the schema. What does not change is shared with the schema. */
export function mapSchema(schema: unknown, replace: Replace): unknown {
  if (Array.isArray(schema)) return mapList(schema, each => mapSchema(each, replace))
  if (!isObject(schema)) return mapAll(schema, replace)
  return mapFields(schema, (value, key) => {
    const keyword = KEYWORDS.get(key)
    return keyword === undefined ? mapAll(value, replace) : keyword(value, schema, replace)
  })
}

/** Replaces every string, whatever the name of its field. */
export function mapAll(value: unknown, replace: Replace): unknown {
  if (typeof value === 'string') return value === '' ? value : replace(value)
  if (Array.isArray(value)) return mapList(value, each => mapAll(each, replace))
  return isObject(value) ? mapFields(value, each => mapAll(each, replace)) : value
}

/** Maps the fields of an object; drops those that become undefined. Returns the object itself if nothing changes. */
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

/** Maps the values of a list. Returns the list itself if nothing changes. */
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
