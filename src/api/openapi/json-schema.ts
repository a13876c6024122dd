/**
 * Converts TypeBox schemas to JSON Schema (2020-12) for the OpenAPI document. Pure. Named schemas become components
 * that other schemas refer to; so do the members of a named union. Symbols and functions are dropped.
 */
import { KindGuard, type TSchema } from '@sinclair/typebox'
import { Rule, type VariantsRule, type VariantsSchema } from '../../protocol/json/schema.ts'

export type JsonSchema = Readonly<Record<string, unknown>>

export interface SchemaWriter {
  /** The schema itself or, if it has a name, a reference to its component. */
  write(schema: TSchema): JsonSchema
  /** All components referred to so far, sorted by name. @throws Error if two schemas have one name */
  components(): Readonly<Record<string, JsonSchema>>
}

const COMPONENTS_PATH = '#/components/schemas/'
const NULL_TYPE: JsonSchema = { type: 'null' }

export function createSchemaWriter(schemas: Iterable<readonly [string, TSchema]>): SchemaWriter {
  const names = new Map<unknown, string>()
  const components = new Map<string, JsonSchema>()
  const namedSchemas = new Map<string, TSchema>()
  const addName = (schema: TSchema, text: string): string => {
    const componentName = names.get(identityOf(schema))
    if (componentName !== undefined) return componentName
    if (namedSchemas.has(text)) throw new Error(`two schemas are named ${text}`)
    names.set(identityOf(schema), text)
    namedSchemas.set(text, schema)
    return text
  }
  const write = (schema: TSchema): JsonSchema => {
    const componentName = names.get(identityOf(schema))
    return componentName === undefined ? writeInPlace(schema, null) : writeReference(componentName)
  }
  const writeReference = (text: string): JsonSchema => {
    const schema = namedSchemas.get(text)
    if (schema !== undefined && !components.has(text)) {
      // Set before its parts, for a schema that refers to itself.
      components.set(text, {})
      components.set(text, writeInPlace(schema, text))
    }
    return { $ref: COMPONENTS_PATH + text }
  }
  const writeInPlace = (schema: TSchema, ownName: string | null): JsonSchema => {
    if (isVariants(schema)) return writeVariants(schema, ownName)
    if (Array.isArray(schema['anyOf']))
      return { ...withDescription(schema), ...writeUnion(schema['anyOf'] as TSchema[]) }
    const { properties = {}, ...rest } = schema
    const isFree = schema.type === 'object' && Object.keys(properties as object).length === 0
    return Object.fromEntries(
      // Explicit, because some programs read an object without fields as one that may have none.
      Object.entries(isFree ? { additionalProperties: true, ...rest } : schema).flatMap(([key, value]) => {
        if (value === undefined) return []
        if (key === 'properties') {
          const properties = Object.entries(value as Record<string, TSchema>)
          return [[key, Object.fromEntries(properties.map(([field, property]) => [field, write(property)]))]]
        }
        const isSchema = (key === 'items' || key === 'additionalProperties') && typeof value === 'object'
        return [[key, isSchema ? write(value as TSchema) : value]]
      }),
    )
  }
  const writeVariants = (schema: VariantsSchema, ownName: string | null): JsonSchema => {
    const rule = schema[Rule]
    if (ownName !== null) {
      for (const [kind, member] of rule.table) addName(member.schema, ownName + pascal(kind))
    }
    const members = new Map<TSchema, JsonSchema>()
    for (const { schema: member } of rule.table.values()) {
      if (!members.has(member)) members.set(member, write(member))
    }
    const anyOf = [...members.values()]
    if (rule.open) return { ...withDescription(schema), anyOf: [...anyOf, otherKind(rule)] }
    const [only] = anyOf
    if (only !== undefined && anyOf.length === 1) return { ...only, ...withDescription(schema) }
    const mapping = [...rule.table].map(([kind, { schema: member }]) => [kind, members.get(member)?.['$ref']])
    if (rule.defaultKind !== null || mapping.some(([, target]) => target === undefined)) {
      return { ...withDescription(schema), anyOf }
    }
    const discriminator = { propertyName: rule.tag, mapping: Object.fromEntries(mapping) as object }
    return { ...withDescription(schema), anyOf, discriminator }
  }
  /** Literals become one list, and null a type if possible, because readers see these most often. */
  const writeUnion = (members: readonly TSchema[]): JsonSchema => {
    const flat = members.flatMap(member =>
      names.has(identityOf(member)) || !KindGuard.IsUnion(member) ? [member] : member.anyOf,
    )
    const literals = flat.filter(member => KindGuard.IsLiteral(member)).map(member => member.const as unknown)
    const nonLiterals = flat.filter(member => !KindGuard.IsLiteral(member))
    const withNull = nonLiterals.some(member => KindGuard.IsNull(member))
    const others = nonLiterals.filter(member => !KindGuard.IsNull(member)).map(write)
    const alternatives = literals.length === 0 ? others : [literalsSchema(literals), ...others]
    const [only] = alternatives
    if (only === undefined) return NULL_TYPE
    if (!withNull) return alternatives.length === 1 ? only : { anyOf: alternatives }
    // Client generators lose the null of a type list next to literals or fields.
    const isPlain =
      alternatives.length === 1 &&
      typeof only['type'] === 'string' &&
      ['const', 'enum', 'properties'].every(key => only[key] === undefined)
    return isPlain ? { ...only, type: [only['type'], 'null'] } : { anyOf: [...alternatives, NULL_TYPE] }
  }
  for (const [text, schema] of schemas) addName(schema, text)
  return {
    write,
    components: () => Object.fromEntries([...components].sort(([a], [b]) => (a < b ? -1 : 1))),
  }
}

function isVariants(schema: TSchema): schema is VariantsSchema {
  return KindGuard.IsKindOf(schema, 'Variants')
}

/** The identity that a schema shares with its optional form, which is a copy with the same parts. */
function identityOf(schema: TSchema): unknown {
  return schema['anyOf'] ?? schema['properties'] ?? schema
}

function withDescription({ description }: TSchema): JsonSchema {
  return description === undefined ? {} : { description }
}

function otherKind({ tag }: VariantsRule): JsonSchema {
  return {
    type: 'object',
    properties: { [tag]: { type: 'string', minLength: 1 } },
    required: [tag],
    description: 'A kind that is not listed here; it is passed through unchanged.',
  }
}

function literalsSchema(words: readonly unknown[]): JsonSchema {
  const types = [...new Set(words.map(word => typeof word))]
  const typed = types.length === 1 ? { type: types[0] } : {}
  return words.length === 1 ? { ...typed, const: words[0] } : { ...typed, enum: words }
}

/** `gateway:web_search` -> `GatewayWebSearch`. */
function pascal(kind: string): string {
  return kind
    .split(/[^A-Za-z0-9]+/)
    .map(part => part.slice(0, 1).toUpperCase() + part.slice(1))
    .join('')
}
