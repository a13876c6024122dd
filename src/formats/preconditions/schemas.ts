/**
 * Reduces schemas to the subset that a receiver can enforce: objects are closed, and unsupported keywords move to the
 * description, where the model reads them. Pure. Source:
 * https://platform.claude.com/docs/en/build-with-claude/structured-outputs, "JSON Schema limitations".
 */
import { isRecord, type Json, parseJson } from '../../base/json.ts'
import { ROOT_UNIONS } from './table.ts'

/** Keywords that stay unchanged. */
const KEPT_KEYWORDS: ReadonlySet<string> = new Set([
  'type',
  'enum',
  'const',
  'title',
  'description',
  'default',
  'required',
])
/** Keywords that stay, with a list or a map of schemas, each of which is reduced. */
const LIST_KEYWORDS: ReadonlySet<string> = new Set(['anyOf', 'allOf'])
const MAP_KEYWORDS: ReadonlySet<string> = new Set(['properties', '$defs', 'definitions'])
const ENFORCED_FORMATS: ReadonlySet<unknown> = new Set([
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
const UNSUPPORTED_PATTERN = /\(\?[=!<]|\\[1-9bBk]/
/** Keywords that neither a model nor a validator of this API needs. */
const IGNORED_KEYWORDS: ReadonlySet<string> = new Set([
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
  return closeAtDepth(schema, 0)
}

function closeAtDepth(schema: Json, depth: number): Json {
  if (depth === DEPTH_MAX) return schema
  // No other keyword is allowed next to a reference.
  if (typeof schema['$ref'] === 'string')
    return Object.keys(schema).length === 1 ? schema : { $ref: schema['$ref'] }
  const entries: [string, unknown][] = []
  const movedKeywords: [string, unknown][] = []
  let isSame = true
  const keepKeyword = (name: string, value: unknown): void => {
    if (schema[name] !== value) isSame = false
    entries.push([name, value])
  }
  for (const [name, value] of Object.entries(schema)) {
    if (KEPT_KEYWORDS.has(name) || isEnforcedKeyword(name, value)) keepKeyword(name, value)
    else if (LIST_KEYWORDS.has(name) && Array.isArray(value)) keepKeyword(name, closedList(value, depth))
    else if (name === 'items' && isRecord(value)) keepKeyword(name, closeAtDepth(value, depth + 1))
    else if (MAP_KEYWORDS.has(name) && isRecord(value)) keepKeyword(name, closedMap(value, depth))
    else if (name === 'oneOf' && Array.isArray(value) && schema['anyOf'] === undefined) {
      isSame = false
      entries.push(['anyOf', closedList(value, depth)])
    } else {
      isSame = false
      if (!IGNORED_KEYWORDS.has(name) && name !== 'additionalProperties') movedKeywords.push([name, value])
      else if (name === 'additionalProperties' && isRecord(value) && Object.keys(value).length > 0)
        movedKeywords.push([name, value])
    }
  }
  if (isObject(schema) && schema['additionalProperties'] !== false) {
    isSame = false
    entries.push(['additionalProperties', false])
  }
  if (isSame) return schema
  const result = Object.fromEntries(entries)
  return movedKeywords.length === 0
    ? result
    : { ...result, description: describedRules(schema['description'], movedKeywords) }
}

function isObject({ type, properties }: Json): boolean {
  return type === 'object' || (Array.isArray(type) && type.includes('object')) || isRecord(properties)
}

function isEnforcedKeyword(name: string, value: unknown): boolean {
  switch (name) {
    case 'additionalProperties':
      return value === false
    case 'minItems':
      return value === 0 || value === 1
    case 'format':
      return ENFORCED_FORMATS.has(value)
    case 'pattern':
      return typeof value === 'string' && !UNSUPPORTED_PATTERN.test(value)
    default:
      return false
  }
}

function closedList(schemas: readonly unknown[], depth: number): readonly unknown[] {
  const closedSchemas = schemas.map(schema => (isRecord(schema) ? closeAtDepth(schema, depth + 1) : schema))
  return closedSchemas.every((schema, index) => schema === schemas[index]) ? schemas : closedSchemas
}

function closedMap(schemas: Json, depth: number): Json {
  const entries = Object.entries(schemas).map(
    ([name, schema]) => [name, isRecord(schema) ? closeAtDepth(schema, depth + 1) : schema] as const,
  )
  return entries.every(([name, schema]) => schema === schemas[name]) ? schemas : Object.fromEntries(entries)
}

function describedRules(description: unknown, keywords: readonly (readonly [string, unknown])[]): string {
  const rules = `Must also satisfy: ${JSON.stringify(Object.fromEntries(keywords))}`
  return typeof description === 'string' && description !== '' ? `${description}\n\n${rules}` : rules
}

/** Asks for JSON in plain words, for receivers that do not enforce it, or that require the word in the prompt. */
export const JSON_HINT = 'Reply with one JSON object and nothing else: no text around it, no code fence.'

/** The schema as an object with properties. A union at its root moves to the description. */
export function objectRoot(schema: Json): Json {
  const otherEntries = Object.entries(schema).filter(([name]) => !ROOT_UNIONS.has(name))
  const unions = [...ROOT_UNIONS].flatMap(name =>
    schema[name] === undefined ? [] : [[name, schema[name]] as const],
  )
  return {
    ...Object.fromEntries(otherEntries),
    type: 'object',
    properties: schema['properties'] ?? {},
    ...(unions.length === 0 ? {} : { description: describedRules(schema['description'], unions) }),
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
