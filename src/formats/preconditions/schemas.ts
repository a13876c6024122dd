/**
 * Reduces schemas to the subset that a receiver can enforce: objects are closed, and unsupported keywords move to the
 * description, where the model reads them. Pure. Source:
 * https://platform.claude.com/docs/en/build-with-claude/structured-outputs, "JSON Schema limitations".
 */
import { isRecord, type Json, parseJson } from '../../base/json.ts'
import { ROOT_UNIONS } from './table.ts'

/** Keywords that stay unchanged. */
const KEPT: ReadonlySet<string> = new Set([
  'type',
  'enum',
  'const',
  'title',
  'description',
  'default',
  'required',
])
/** Keywords with a schema, a list of them, or a map of them, which may stay. */
const LISTS: ReadonlySet<string> = new Set(['anyOf', 'allOf'])
const NAMED: ReadonlySet<string> = new Set(['properties', '$defs', 'definitions'])
const FORMATS: ReadonlySet<unknown> = new Set([
  'date-time',
  'time',
  'date',
  'duration',
  'email',
  'hostname',
  'uri',
  'ipv4',
  'ipv6',
  'uuid',
])
/** Look-around, back references and word borders, which the API's regular expressions do not support. */
const HARD_PATTERN = /\(\?[=!<]|\\[1-9bBk]/
/** Keywords that neither a model nor a validator of this API needs. */
const SILENT: ReadonlySet<string> = new Set([
  '$schema',
  '$id',
  '$comment',
  'examples',
  'deprecated',
  'readOnly',
  'writeOnly',
])
/** Schemas at a greater depth are sent unchanged: no known schema is half as deep. */
const DEPTH_MAX = 64

/** The schema in the subset; the same object if it needs no change. */
export function closedSchema(schema: Json): Json {
  return closed(schema, 0)
}

function closed(schema: Json, depth: number): Json {
  if (depth === DEPTH_MAX) return schema
  // No other keyword is allowed next to a reference.
  if (typeof schema['$ref'] === 'string')
    return Object.keys(schema).length === 1 ? schema : { $ref: schema['$ref'] }
  const entries: [string, unknown][] = []
  const words: [string, unknown][] = []
  let isSame = true
  const keep = (name: string, value: unknown): void => {
    if (schema[name] !== value) isSame = false
    entries.push([name, value])
  }
  for (const [name, value] of Object.entries(schema)) {
    if (KEPT.has(name) || staysAlone(name, value)) keep(name, value)
    else if (LISTS.has(name) && Array.isArray(value)) keep(name, mapped(value, depth))
    else if (name === 'items' && isRecord(value)) keep(name, closed(value, depth + 1))
    else if (NAMED.has(name) && isRecord(value)) keep(name, mappedByName(value, depth))
    else if (name === 'oneOf' && Array.isArray(value) && schema['anyOf'] === undefined) {
      isSame = false
      entries.push(['anyOf', mapped(value, depth)])
    } else {
      isSame = false
      if (!SILENT.has(name) && name !== 'additionalProperties') words.push([name, value])
      else if (name === 'additionalProperties' && isRecord(value) && Object.keys(value).length > 0)
        words.push([name, value])
    }
  }
  if (isObject(schema) && schema['additionalProperties'] !== false) {
    isSame = false
    entries.push(['additionalProperties', false])
  }
  if (isSame) return schema
  const result = Object.fromEntries(entries)
  return words.length === 0 ? result : { ...result, description: described(schema['description'], words) }
}

function isObject({ type, properties }: Json): boolean {
  return type === 'object' || (Array.isArray(type) && type.includes('object')) || isRecord(properties)
}

function staysAlone(name: string, value: unknown): boolean {
  switch (name) {
    case 'additionalProperties':
      return value === false
    case 'minItems':
      return value === 0 || value === 1
    case 'format':
      return FORMATS.has(value)
    case 'pattern':
      return typeof value === 'string' && !HARD_PATTERN.test(value)
    default:
      return false
  }
}

function mapped(schemas: readonly unknown[], depth: number): readonly unknown[] {
  const all = schemas.map(each => (isRecord(each) ? closed(each, depth + 1) : each))
  return all.every((each, at) => each === schemas[at]) ? schemas : all
}

function mappedByName(schemas: Json, depth: number): Json {
  const all = Object.entries(schemas).map(
    ([name, each]) => [name, isRecord(each) ? closed(each, depth + 1) : each] as const,
  )
  return all.every(([name, each]) => each === schemas[name]) ? schemas : Object.fromEntries(all)
}

function described(description: unknown, words: readonly (readonly [string, unknown])[]): string {
  const rest = `Must also satisfy: ${JSON.stringify(Object.fromEntries(words))}`
  return typeof description === 'string' && description !== '' ? `${description}\n\n${rest}` : rest
}

/** Asks for JSON in plain words, for formats that have no JSON mode without a schema. */
export const JSON_HINT = 'Reply with one JSON object and nothing else: no text around it, no code fence.'

/** The schema as an object with properties. A union at its root moves to the description. */
export function objectRoot(schema: Json): Json {
  const rest = Object.entries(schema).filter(([name]) => !ROOT_UNIONS.has(name))
  const words = [...ROOT_UNIONS].flatMap(name =>
    schema[name] === undefined ? [] : [[name, schema[name]] as const],
  )
  return {
    ...Object.fromEntries(rest),
    type: 'object',
    properties: schema['properties'] ?? {},
    ...(words.length === 0 ? {} : { description: described(schema['description'], words) }),
  }
}

/**
 * Arguments of a call as the text of an object. Other values are put into an object, so that the conversation can
 * continue.
 */
export function objectText(text: string): string {
  if (text.trim() === '') return '{}'
  return isRecord(parseJson(text)) ? text : JSON.stringify({ arguments: text })
}
