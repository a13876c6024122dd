/** The operations that take a body, with every place where the body can grow, and the rest of the body. */

import { KindGuard, OptionalKind, type TSchema } from '@sinclair/typebox'
import type { Test } from 'tap'
import { DESCRIPTIONS } from '../../src/api/openapi/document.ts'
import { type MapSchema, Rule, type TextSchema, type VariantsSchema } from '../../src/protocol/json/schema.ts'
import { type GrowingWorld, LARGEST, UPSTREAMS } from './growing-work.ts'
import { allOperations } from './operations.ts'

// Bodies that grow: for each array, map and free object of a schema, generates valid values with the given
// number of elements there. The rest of the body stays minimal.

interface Growth {
  /** Of the array, with the kind of its elements. */
  readonly path: string
  /** The most elements that the schema takes. */
  readonly max: number
  /** `alike`: all elements are the same; otherwise they have names of their own. */
  build(count: number, alike: boolean): unknown
}

/** Every place of a schema where a value may grow. */
function growthsOf(schema: TSchema, path = ''): readonly Growth[] {
  if (isKind(schema, 'Variants')) {
    const { table, tag } = (schema as VariantsSchema)[Rule]
    return kindsOf(table).flatMap(([kind, { schema: own }]) =>
      growthsOf(own, `${path}(${kind})`).map(growth => ({
        ...growth,
        build: (count, alike) => ({ [tag]: kind, ...(growth.build(count, alike) as object) }),
      })),
    )
  }
  if (isKind(schema, 'Map')) {
    const { schema: values } = (schema as MapSchema)[Rule]
    return [
      keys(path, index => sampleOf(values, index)),
      ...inside(values, `${path}.*`, one => ({ key: one })),
    ]
  }
  if (KindGuard.IsUnion(schema)) return schema.anyOf.flatMap(member => growthsOf(member, path))
  if (KindGuard.IsArray(schema)) {
    const max = (schema.maxItems as number | undefined) ?? Number.POSITIVE_INFINITY
    return [
      ...elementsOf(schema.items).map(([kind, sample]) => ({
        path: `${path}[${kind}]`,
        max,
        build: (count: number, alike: boolean) =>
          Array.from({ length: count }, (_, index) => sample(alike ? 0 : index)),
      })),
      ...inside(schema.items, `${path}[]`, one => [one]),
    ]
  }
  if (KindGuard.IsUnknown(schema)) return freeGrowths(path)
  if (!KindGuard.IsObject(schema)) return []
  const properties = Object.entries(schema.properties)
  if (properties.length === 0) return freeGrowths(path)
  return properties.flatMap(([key, property]) =>
    inside(property, `${path}.${key}`, one => ({ ...(sampleOf(schema) as object), [key]: one })),
  )
}

/** A small value that fits the schema; `index` makes its texts different. */
function sampleOf(schema: TSchema, index = 0, key = ''): unknown {
  if (isKind(schema, 'Variants')) {
    const { table, tag } = (schema as VariantsSchema)[Rule]
    const [first] = kindsOf(table)
    if (first === undefined) throw new TypeError('a union has kinds')
    return { [tag]: first[0], ...(sampleOf(first[1].schema, index) as object) }
  }
  if (isKind(schema, 'Map') || isKind(schema, 'Metadata')) return {}
  if (isKind(schema, 'Text')) return wordOf(key, index, (schema as TextSchema).pattern as string | undefined)
  if (KindGuard.IsLiteral(schema)) return schema.const
  if (KindGuard.IsUnion(schema)) {
    const members = schema.anyOf.filter(member => !KindGuard.IsNull(member))
    return sampleOf(members[index % members.length] ?? schema.anyOf[0] ?? schema, index, key)
  }
  if (KindGuard.IsArray(schema))
    return Array.from({ length: (schema.minItems as number | undefined) ?? 0 }, (_, at) =>
      sampleOf(schema.items, at, key),
    )
  if (KindGuard.IsObject(schema)) {
    return Object.fromEntries(
      Object.entries(schema.properties)
        .filter(([, property]) => !(OptionalKind in property))
        .map(([name, property]) => [name, sampleOf(property, index, name)]),
    )
  }
  if (KindGuard.IsString(schema)) return wordOf(key, index, schema.pattern as string | undefined)
  if (KindGuard.IsBoolean(schema)) return true
  if (KindGuard.IsNumber(schema) || KindGuard.IsInteger(schema))
    return (schema.minimum as number | undefined) ?? (schema.exclusiveMinimum === undefined ? 1 : 0.5)
  if (KindGuard.IsNull(schema)) return null
  return `any ${index}`
}

function isKind(schema: TSchema, kind: string): boolean {
  return KindGuard.IsKindOf(schema, kind)
}

/** The kinds of a union, spellings of the same schema once. */
function kindsOf<Kind extends { readonly schema: TSchema }>(
  table: ReadonlyMap<string, Kind>,
): [string, Kind][] {
  const known = [...table].filter(
    ([kind]) => !table.has(kind.replace(/^openrouter:/, 'gateway:')) || !kind.startsWith('openrouter:'),
  )
  const once = new Map(
    known.reverse().map(([kind, checked]) => [checked.schema, [kind, checked] as [string, Kind]]),
  )
  return [...once.values()].reverse()
}

/** The kinds of elements of an array, each with small values. */
function elementsOf(items: TSchema): [string, (index: number) => unknown][] {
  if (isKind(items, 'Variants')) {
    const { table, tag } = (items as VariantsSchema)[Rule]
    return kindsOf(table).map(([kind, { schema }]) => [
      kind,
      index => ({ [tag]: kind, ...(sampleOf(schema, index) as object) }),
    ])
  }
  if (!KindGuard.IsUnion(items) || items.anyOf.every(member => KindGuard.IsLiteral(member)))
    return [['', index => sampleOf(items, index)]]
  return items.anyOf.flatMap(elementsOf)
}

function inside(schema: TSchema, path: string, wrap: (one: unknown) => unknown): readonly Growth[] {
  return growthsOf(schema, path).map(growth => ({
    ...growth,
    build: (count, alike) => wrap(growth.build(count, alike)),
  }))
}

function keys(path: string, value: (index: number) => unknown): Growth {
  return {
    path: `${path}{}`,
    max: Number.POSITIVE_INFINITY,
    build: count => Object.fromEntries(Array.from({ length: count }, (_, at) => [`key${at}`, value(at)])),
  }
}

/** Of an object whose fields are not checked: many fields, a long array, and what JSON Schemas have. */
function freeGrowths(path: string): readonly Growth[] {
  const grow = (kind: string, make: (names: readonly string[]) => unknown): Growth => ({
    path: `${path}{${kind}}`,
    max: Number.POSITIVE_INFINITY,
    build: (count, alike) => make(Array.from({ length: count }, (_, at) => `name${alike ? 0 : at}`)),
  })
  const text = { type: 'string' }
  return [
    keys(path, at => `value ${at}`),
    grow('array', names => ({ type: 'object', list: names })),
    grow('properties', names => ({
      type: 'object',
      properties: Object.fromEntries(names.map(name => [name, text])),
      required: names,
    })),
    grow('enum', names => ({ type: 'object', properties: { one: { type: 'string', enum: names } } })),
    grow('anyOf', names => ({ type: 'object', anyOf: names.map(name => ({ ...text, title: name })) })),
  ]
}

/** A text for a field of this name. */
function wordOf(key: string, index: number, pattern: string | undefined): string {
  const words = [`name${index}`, `acme/name${index}`, `${index}`.padStart(64, 'a'), 'a', '1', '/a', '$']
  if (/url$|^link$/.test(key)) return `https://x.example/${index}`
  if (pattern === undefined) return words[0] ?? ''
  return words.find(word => new RegExp(pattern, 'u').test(word)) ?? ''
}

interface GrownOperation {
  readonly id: string
  /** Models that are asked, one after the other; for an operation that asks none, null. */
  readonly models: readonly (string | null)[]
  readonly growths: readonly Growth[]
  send(world: GrowingWorld, model: string | null, grown: unknown): Promise<number>
}

const MODELS = UPSTREAMS.map(format => `acme/${format}`)
const USER = { role: 'user', content: 'hi' }
/** What a body has beside what grows; of others it is their first example. */
const BASES: Readonly<Record<string, { readonly models: readonly string[]; readonly body: object }>> = {
  createResponse: { models: MODELS, body: { input: 'hi' } },
  compactConversation: { models: MODELS, body: { input: 'hi' } },
  countInputTokens: { models: MODELS, body: { input: 'hi' } },
  createChatCompletion: { models: MODELS, body: { messages: [USER] } },
  createMessage: { models: MODELS, body: { max_tokens: 100, messages: [USER] } },
  countMessageTokens: { models: MODELS, body: { messages: [USER] } },
  createEmbeddings: { models: ['acme/embed'], body: { input: 'hi' } },
}
/** Their tools are those of `tools`. */
const REPEATED = /additional_tools\)\.tools\[\]/

export async function grownOperations(t: Test): Promise<readonly GrownOperation[]> {
  const rows = await allOperations(t)
  return rows.flatMap(({ id, method, path, key }) => {
    const { schema, examples = {}, media } = DESCRIPTIONS[id]?.body ?? {}
    if (schema === undefined || media !== undefined) return []
    const base = BASES[id]?.body ?? (Object.values(examples)[0] as object | undefined) ?? {}
    const growths = growthsOf(schema).filter(growth => growth.max >= LARGEST && !REPEATED.test(growth.path))
    return [
      {
        id,
        models: BASES[id]?.models ?? [null],
        growths,
        async send({ gateway }: GrowingWorld, model: string | null, grown: unknown) {
          const answer = await fetch(`${gateway.url}${path.replace(/\{\w+\}/g, 'x')}`, {
            method,
            headers: {
              authorization: `Bearer ${key === 'management' ? gateway.managementKey : gateway.apiKey}`,
              'content-type': 'application/json',
            },
            body: JSON.stringify({ ...base, ...(grown as object), ...(model === null ? {} : { model }) }),
          })
          await answer.arrayBuffer()
          return answer.status
        },
      },
    ]
  })
}
