/**
 * Validates every request body once, and explains its faults. Pure. Hot path: one compiled check and one walk. The
 * explanation runs only after a check has failed: it names the first bad field by its path and what is expected there,
 * and never repeats what the client sent. Its depth is bounded because schemas do not recurse; its time is linear in
 * the size of the value.
 */
import { KindGuard, OptionalKind, type Static, type TSchema } from '@sinclair/typebox'
import { Value } from '@sinclair/typebox/value'
import { GatewayError } from '../../base/errors.ts'
import { JSON_MAX_DEPTH } from '../limits.ts'
import {
  compile,
  elementPath,
  fieldPath,
  isObject,
  type MapSchema,
  metadataProblem,
  passesOpen,
  Rule,
  type TextSchema,
  type VariantsSchema,
  variantOf,
} from './schema.ts'

/**
 * Creates the check of one kind of body; call it once for each, because its first use compiles the schema. The check
 * returns the body unchanged, without a copy or defaults. It throws GatewayError `invalid_request` with the path of the
 * field and the expected value, and never repeats what the client sent.
 */
export function bodyCheck<Schema extends TSchema>(schema: Schema): (body: unknown) => Static<Schema> {
  const check = compile(schema)
  return body => {
    const forbiddenProblem = isClean(body) ? null : locate(body)
    if (forbiddenProblem !== null) throw new GatewayError('invalid_request', forbiddenProblem)
    if (!check(body)) {
      throw new GatewayError(
        'invalid_request',
        explain(schema, body) ?? 'body: does not match the schema of this operation',
      )
    }
    return body as Static<Schema>
  }
}

/** The first problem as `<path>: <what is expected>`; null: the value is valid. */
export function explain(schema: TSchema, value: unknown, path = ''): string | null {
  if (isVariants(schema)) return explainVariants(schema, value, path)
  if (KindGuard.IsObject(schema)) return explainObject(schema, value, path)
  if (KindGuard.IsArray(schema)) return explainArray(schema, value, path)
  if (isKind(schema, 'Map')) return explainMap(schema as MapSchema, value, path)
  if (KindGuard.IsUnion(schema)) return explainUnion(schema.anyOf, value, path)
  if (isKind(schema, 'Metadata')) return metadataProblem(value, path)
  return Value.Check(schema, value) ? null : problemAt(path, `must be ${describe(schema)}`)
}

function problemAt(path: string, text: string): string {
  return `${path === '' ? 'body' : path}: ${text}`
}

function isKind(schema: TSchema, kind: string): boolean {
  return KindGuard.IsKindOf(schema, kind)
}

function isVariants(schema: TSchema): schema is VariantsSchema {
  return isKind(schema, 'Variants')
}

function explainVariants(schema: VariantsSchema, value: unknown, path: string): string | null {
  const rule = schema[Rule]
  if (!isObject(value)) return problemAt(path, `must be an object (${rule.noun})`)
  const variant = variantOf(rule, value)
  // The compiled check runs first, so that in a long list only the invalid element needs the slow explanation.
  if (variant !== undefined) {
    if (variant.check(value)) return null
    // An object without a kind that does not look like the default kind either.
    if (
      rule.defaultKindField !== null &&
      value[rule.tag] === undefined &&
      value[rule.defaultKindField] === undefined
    ) {
      return problemAt(fieldPath(path, rule.tag), `is required and names the kind of ${rule.noun}`)
    }
    return explain(variant.schema, value, path)
  }
  if (passesOpen(rule, value)) return null
  const tag = value[rule.tag]
  const tagPath = fieldPath(path, rule.tag)
  if (tag === undefined) return problemAt(tagPath, `is required and names the kind of ${rule.noun}`)
  if (typeof tag !== 'string') return problemAt(tagPath, 'must be a string')
  const ownRule = rule.otherNames.get(tag)
  if (ownRule !== undefined)
    return problemAt(tagPath, `must be ${ownRule} here: ${tag} is its name in another API`)
  // Without aliases: clients should learn the gateway's own names.
  const knownKinds = [...rule.table.keys()].filter(key => !key.startsWith('openrouter:'))
  return problemAt(tagPath, `must name a known ${rule.noun}: ${knownKinds.join(', ')}`)
}

function explainObject(schema: TSchema, value: unknown, path: string): string | null {
  if (!isObject(value)) return problemAt(path, 'must be an object')
  const properties = schema['properties'] as Readonly<Record<string, TSchema>>
  for (const [key, property] of Object.entries(properties)) {
    const field = value[key]
    if (field === undefined) {
      if (OptionalKind in property) continue
      return problemAt(fieldPath(path, key), `is required and must be ${describe(property)}`)
    }
    const problem = explain(property, field, fieldPath(path, key))
    if (problem !== null) return problem
  }
  if (schema['additionalProperties'] === false) {
    for (const key of Object.keys(value)) {
      if (!Object.hasOwn(properties, key)) {
        return problemAt(
          fieldPath(path, key),
          `is not a known field; the known ones are ${Object.keys(properties).join(', ')}`,
        )
      }
    }
  }
  return null
}

function explainArray(schema: TSchema, value: unknown, path: string): string | null {
  if (!Array.isArray(value)) return problemAt(path, 'must be an array')
  const minItems = schema['minItems'] as number | undefined
  const maxItems = schema['maxItems'] as number | undefined
  if (minItems !== undefined && value.length < minItems)
    return problemAt(path, `must have at least ${minItems} element`)
  if (maxItems !== undefined && value.length > maxItems)
    return problemAt(path, `must have at most ${maxItems} elements`)
  const items = schema['items'] as TSchema
  for (let index = 0; index < value.length; index++) {
    const problem = explain(items, value[index], elementPath(path, index))
    if (problem !== null) return problem
  }
  return null
}

function explainMap(schema: MapSchema, value: unknown, path: string): string | null {
  if (!isObject(value)) return problemAt(path, 'must be an object')
  for (const key of Object.keys(value)) {
    const problem = explain(schema[Rule].schema, value[key], fieldPath(path, key))
    if (problem !== null) return problem
  }
  return null
}

/** Descends into the only member with the JSON type of the value; without one, lists what is expected. */
function explainUnion(members: readonly TSchema[], value: unknown, path: string): string | null {
  const flatMembers = flatten(members)
  if (flatMembers.some(member => isLeaf(member) && Value.Check(member, value))) return null
  const type = jsonType(value)
  const candidates = flatMembers.filter(member => !KindGuard.IsLiteral(member) && typeOf(member) === type)
  const [candidate] = candidates
  if (candidate !== undefined && candidates.length === 1) return explain(candidate, value, path)
  return problemAt(path, `must be ${describeUnion(flatMembers)}`)
}

function flatten(members: readonly TSchema[]): TSchema[] {
  return members.flatMap(member => (KindGuard.IsUnion(member) ? flatten(member.anyOf) : [member]))
}

function isLeaf(schema: TSchema): boolean {
  return (
    !isVariants(schema) && !KindGuard.IsObject(schema) && !KindGuard.IsArray(schema) && !isKind(schema, 'Map')
  )
}

function jsonType(value: unknown): string {
  if (value === null) return 'null'
  return Array.isArray(value) ? 'array' : typeof value
}

function typeOf(schema: TSchema): string {
  if (isVariants(schema)) return 'object'
  return schema['type'] === 'integer' ? 'number' : String(schema['type'])
}

function describeUnion(members: readonly TSchema[]): string {
  const literals = members.filter(member => KindGuard.IsLiteral(member))
  const otherMembers = members.filter(member => !KindGuard.IsLiteral(member))
  const texts = otherMembers.map(describe)
  if (literals.length > 0)
    texts.unshift(literals.length === 1 ? describe(literals[0] as TSchema) : describeLiterals(literals))
  // The characters that a string must not contain come last.
  return texts.toSorted((a, b) => Number(a.includes(';')) - Number(b.includes(';'))).join(' or ')
}

function describeLiterals(literals: readonly TSchema[]): string {
  return `one of ${literals.map(literal => String(literal['const'])).join(', ')}`
}

/** Describes a value of this schema, in words that follow `must be`. */
function describe(schema: TSchema): string {
  if (isVariants(schema)) return `an object (${schema[Rule].noun})`
  if (KindGuard.IsUnion(schema)) return describeUnion(flatten(schema.anyOf))
  if (KindGuard.IsLiteral(schema)) return String(schema.const)
  if (isKind(schema, 'Text')) return describeText(schema as TextSchema)
  if (KindGuard.IsString(schema)) return describeString(schema)
  if (KindGuard.IsInteger(schema)) return schema.description ?? `an integer${describeBounds(schema)}`
  if (KindGuard.IsNumber(schema)) return `a number${describeBounds(schema)}`
  if (KindGuard.IsArray(schema)) return 'an array'
  if (KindGuard.IsBoolean(schema)) return 'true or false'
  if (KindGuard.IsNull(schema)) return 'null'
  if (KindGuard.IsUnknown(schema)) return 'any value'
  return 'an object'
}

function describeText(schema: TextSchema): string {
  const { min, max, storable, singleLine, noControls } = schema[Rule]
  const length = min > 0 ? `${min} to ${max}` : `at most ${max}`
  const excluded = [
    ...(noControls ? ['control characters'] : storable ? ['NUL characters'] : []),
    ...(singleLine ? ['line breaks'] : []),
    ...(noControls || storable ? ['broken Unicode'] : []),
  ]
  const lastExcluded = excluded.pop()
  if (lastExcluded === undefined) return `a string of ${length} characters`
  return `a string of ${length} characters; it must not contain ${[excluded.join(', '), lastExcluded].filter(part => part !== '').join(' or ')}`
}

/** A pattern is described by its `description`, because nobody reads an expression in an error. */
function describeString(schema: TSchema): string {
  const { description } = schema
  if (description !== undefined) return description
  return schema['minLength'] === undefined ? 'a string' : 'a non-empty string'
}

function describeBounds(schema: TSchema): string {
  const { minimum, exclusiveMinimum, maximum, exclusiveMaximum } = schema as {
    minimum?: number
    exclusiveMinimum?: number
    maximum?: number
    exclusiveMaximum?: number
  }
  if (exclusiveMinimum !== undefined) {
    if (exclusiveMaximum !== undefined) return ` above ${exclusiveMinimum} and below ${exclusiveMaximum}`
    return maximum === undefined
      ? ` above ${exclusiveMinimum}`
      : ` above ${exclusiveMinimum} and at most ${maximum}`
  }
  if (minimum === undefined) return maximum === undefined ? '' : ` of at most ${maximum}`
  return maximum === undefined ? ` of at least ${minimum}` : ` from ${minimum} to ${maximum}`
}

const FORBIDDEN: ReadonlySet<string> = new Set(['__proto__', 'constructor', 'prototype'])

/** Fields with a JSON Schema, in which clients choose the names of properties. */
const SCHEMA_FIELDS: ReadonlySet<string> = new Set(['schema', 'input_schema', 'output_schema'])

/**
 * `parameters` is a JSON Schema only in a function, flat or, as in the chat dialect, in an object with a name and
 * without a type; otherwise it contains settings.
 */
function holdsSchema(parent: object, key: string): boolean {
  if (SCHEMA_FIELDS.has(key)) return true
  if (key !== 'parameters') return false
  const { type, name } = parent as { type?: unknown; name?: unknown }
  return type === 'function' || (type === undefined && typeof name === 'string')
}

interface ObjectPosition {
  readonly value: object
  readonly path: string
  readonly depth: number
  readonly inSchema: boolean
}

/**
 * Returns a problem as `<path>: …` if an object in the value has the key `__proto__`, `constructor` or `prototype`,
 * which would change a prototype when the object is copied, or if the value is nested too deeply; otherwise null. In a
 * JSON Schema only `__proto__` is refused, because an argument of a function may be called `constructor`. The first
 * pass only checks; a second pass finds the path.
 */
export function forbiddenKey(root: unknown): string | null {
  return isClean(root) ? null : locate(root)
}

/** Iterative, with one array per level. Returns false for anything that `locate` must check. */
function isClean(root: unknown): boolean {
  if (typeof root !== 'object' || root === null) return true
  let level: object[] = [root]
  for (let depth = 1; level.length > 0; depth++) {
    if (depth > JSON_MAX_DEPTH) return false
    const next: object[] = []
    for (const node of level) {
      if (Array.isArray(node)) {
        for (const element of node) if (typeof element === 'object' && element !== null) next.push(element)
        continue
      }
      for (const key of Object.keys(node)) {
        if (FORBIDDEN.has(key)) return false
        const value: unknown = (node as Record<string, unknown>)[key]
        if (typeof value === 'object' && value !== null) next.push(value)
      }
    }
    level = next
  }
  return true
}

function locate(root: unknown): string | null {
  const positions: ObjectPosition[] = [{ value: root as object, path: '', depth: 1, inSchema: false }]
  for (let position = positions.pop(); position !== undefined; position = positions.pop()) {
    const { value, path, depth, inSchema } = position
    if (depth > JSON_MAX_DEPTH) return `body: must not be nested deeper than ${JSON_MAX_DEPTH} levels`
    if (Array.isArray(value)) {
      for (let index = 0; index < value.length; index++) {
        const element: unknown = value[index]
        if (typeof element === 'object' && element !== null) {
          positions.push({ value: element, path: elementPath(path, index), depth: depth + 1, inSchema })
        }
      }
      continue
    }
    for (const key of Object.keys(value)) {
      if (inSchema ? key === '__proto__' : FORBIDDEN.has(key))
        return `${fieldPath(path, key)}: is not an allowed field name`
      const field: unknown = (value as Record<string, unknown>)[key]
      if (typeof field === 'object' && field !== null) {
        positions.push({
          value: field,
          path: fieldPath(path, key),
          depth: depth + 1,
          inSchema: inSchema || holdsSchema(value, key),
        })
      }
    }
  }
  return null
}
