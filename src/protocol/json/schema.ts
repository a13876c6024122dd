/**
 * Schema types that TypeBox lacks: discriminated unions, maps, texts with a length in characters, metadata. Also short
 * spellings of common forms, and the field paths of errors. Pure. Hot path. A union looks up its kind in a table of
 * compiled checks, so its cost does not grow with the number of kinds, and an error can descend into the kind that the
 * client chose.
 */
import {
  Kind,
  type Static,
  type TProperties,
  type TSchema,
  type TUnsafe,
  Type,
  TypeRegistry,
} from '@sinclair/typebox'
import { type TypeCheck, TypeCompiler } from '@sinclair/typebox/compiler'
import { METADATA_KEY_MAX_CHARS, METADATA_MAX_PAIRS, METADATA_VALUE_MAX_CHARS } from '../limits.ts'

interface CheckedSchema {
  readonly schema: TSchema
  readonly check: (value: unknown) => boolean
}

/** The rule of a form that is defined here. A symbol, so that a serialized schema contains only JSON Schema. */
export const Rule = Symbol('rule')

export interface VariantsRule {
  /** The field that names the kind. */
  readonly tag: string
  /** The kind of an object without the field; null: the field is required. */
  readonly defaultKind: string | null
  /** True: an object of an unknown kind is accepted unchecked, for lists that providers extend. */
  readonly open: boolean
  /** The noun in errors for one of these, for example `input item`. */
  readonly noun: string
  /** A field that an object without the tag must have; null: none. */
  readonly defaultKindField: string | null
  /** Kinds by the names that other APIs give them, for errors. */
  readonly otherNames: ReadonlyMap<string, string>
  readonly table: ReadonlyMap<string, CheckedSchema>
}

/** A union of objects whose kind is one field; its `anyOf` is the equivalent JSON Schema. */
export interface VariantsSchema extends TSchema {
  readonly [Kind]: 'Variants'
  readonly [Rule]: VariantsRule
}

/** An object with any keys and one kind of value. Unlike TypeBox's record it also checks keys with line breaks. */
export interface MapSchema extends TSchema {
  readonly [Kind]: 'Map'
  readonly [Rule]: CheckedSchema
}

interface TextRule {
  readonly min: number
  readonly max: number
  /** Unpaired surrogates and NUL are refused, because databases do not store them and they do not survive hashing. */
  readonly storable: boolean
  readonly singleLine: boolean
  /** Control characters (C0, DEL, C1) and unpaired surrogates are refused. */
  readonly noControls: boolean
}

/** A string bounded in characters (code points), as JSON Schema counts them. */
export interface TextSchema extends TSchema {
  readonly [Kind]: 'Text'
  readonly [Rule]: TextRule
}

interface VariantsOptions {
  readonly noun: string
  readonly tag?: string
  readonly defaultKind?: string
  readonly defaultKindField?: string
  readonly open?: boolean
  readonly otherNames?: Readonly<Record<string, string>>
}

const LINE_BREAK = /[\n\v\f\r\u0085\u2028\u2029]/
const NO_CONTROLS = '^[^\\u0000-\\u001f\\u007f-\\u009f]*$'
const WITHOUT_CONTROLS = new RegExp(NO_CONTROLS)

/**
 * A schema as a function. It is compiled on first use: a process has hundreds of them, most starts need few, and
 * compiling all takes a large part of a start.
 */
export function compile(schema: TSchema): (value: unknown) => boolean {
  let compiled: TypeCheck<TSchema> | null = null
  return value => {
    compiled ??= TypeCompiler.Compile(schema)
    return compiled.Check(value)
  }
}

function withCheck(schema: TSchema): CheckedSchema {
  return { schema, check: compile(schema) }
}

/** The schema and check for the kind of a value; undefined: its kind is missing or unknown. */
export function variantOf(
  rule: VariantsRule,
  value: Readonly<Record<string, unknown>>,
): CheckedSchema | undefined {
  const tag = value[rule.tag]
  if (typeof tag === 'string') return rule.table.get(tag)
  return tag === undefined && rule.defaultKind !== null ? rule.table.get(rule.defaultKind) : undefined
}

/** True if an open list accepts an object of unknown kind. */
export function passesOpen(rule: VariantsRule, value: Readonly<Record<string, unknown>>): boolean {
  const tag = value[rule.tag]
  return rule.open && typeof tag === 'string' && tag !== ''
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** True if a text has at most `limit` characters (code points). The time depends on the limit, not on the length of the text. */
export function withinCharacters(text: string, limit: number): boolean {
  if (text.length <= limit) return true
  if (text.length > 2 * limit) return false
  let count = 0
  for (const _ of text) count++
  return count <= limit
}

/** True if every database can store the text: well-formed Unicode without NUL. */
export function isStorable(text: string): boolean {
  return text.isWellFormed() && !text.includes('\0')
}

TypeRegistry.Set<VariantsSchema>('Variants', (schema, value) => {
  if (!isObject(value)) return false
  const rule = schema[Rule]
  const variant = variantOf(rule, value)
  return variant === undefined ? passesOpen(rule, value) : variant.check(value)
})

TypeRegistry.Set<MapSchema>('Map', (schema, value) => {
  if (!isObject(value)) return false
  const { check } = schema[Rule]
  for (const key of Object.keys(value)) if (!check(value[key])) return false
  return true
})

TypeRegistry.Set<TextSchema>('Text', (schema, value) => {
  const { min, max, storable, singleLine, noControls } = schema[Rule]
  if (typeof value !== 'string' || value.length < min || !withinCharacters(value, max)) return false
  if (storable && !isStorable(value)) return false
  if (noControls && !(value.isWellFormed() && WITHOUT_CONTROLS.test(value))) return false
  return !singleLine || !LINE_BREAK.test(value)
})

/** A union of objects whose kind is the field `tag` (default `type`). Keys of `kinds` are the values of that field. */
export function variants<Kinds extends Readonly<Record<string, TSchema>>>(
  kinds: Kinds,
  options: VariantsOptions,
): TUnsafe<Static<Kinds[keyof Kinds]>> {
  const {
    noun,
    tag = 'type',
    defaultKind = null,
    defaultKindField = null,
    open = false,
    otherNames = {},
  } = options
  const checkOf = new Map([...new Set(Object.values(kinds))].map(schema => [schema, withCheck(schema)]))
  const table = new Map<string, CheckedSchema>()
  for (const [key, schema] of Object.entries(kinds)) table.set(key, checkOf.get(schema) ?? withCheck(schema))
  const names = new Map(Object.entries(otherNames))
  const rule: VariantsRule = { tag, defaultKind, defaultKindField, open, noun, otherNames: names, table }
  const schema = {
    [Kind]: 'Variants',
    [Rule]: rule,
    anyOf: [...checkOf.keys()],
    discriminator: { propertyName: tag },
  }
  return schema as unknown as TUnsafe<Static<Kinds[keyof Kinds]>>
}

/** An object whose field `type` is its kind, with its other fields. */
export function kind<const Name extends string, Fields extends TProperties = Record<never, TSchema>>(
  type: Name,
  fields?: Fields,
) {
  return Type.Object({ type: Type.Literal(type), ...(fields as Fields) })
}

/** An object with any keys whose values all fit `schema`. */
export function mapOf<Schema extends TSchema>(schema: Schema): TUnsafe<Record<string, Static<Schema>>> {
  const map = { [Kind]: 'Map', [Rule]: withCheck(schema), type: 'object', additionalProperties: schema }
  return map as unknown as TUnsafe<Record<string, Static<Schema>>>
}

/** A string of `min` (default 0) to `max` characters. */
export function text(options: Partial<TextRule> & Pick<TextRule, 'max'>): TUnsafe<string> {
  const rule: TextRule = { min: 0, storable: false, singleLine: false, noControls: false, ...options }
  const schema = {
    [Kind]: 'Text',
    [Rule]: rule,
    type: 'string',
    minLength: rule.min,
    maxLength: rule.max,
    ...(rule.noControls ? { pattern: NO_CONTROLS } : {}),
  }
  return schema as unknown as TUnsafe<string>
}

/** One of several words. */
export function oneOf<const Words extends readonly string[]>(...words: Words): TUnsafe<Words[number]> {
  return Type.Union(words.map(word => Type.Literal(word))) as unknown as TUnsafe<Words[number]>
}

export function nullable<Schema extends TSchema>(schema: Schema) {
  return Type.Union([schema, Type.Null()])
}

/** A field that may be missing or null: clients that serialise typed objects send null for unset fields. */
export function maybe<Schema extends TSchema>(schema: Schema) {
  return Type.Optional(nullable(schema))
}

/** The schema of an optional field of another body; null is allowed. */
export function orNull<Schema extends TSchema>(schema: Schema) {
  return maybe(Type.Optional(schema, false))
}

/** US dollars. */
export const usd = Type.Number({ description: 'US dollars' })
/** ISO 8601 UTC. */
export const instant = Type.String({ format: 'date-time' })

export const unixSeconds = Type.Integer({ description: 'Unix time in seconds' })
export const count = Type.Integer({ minimum: 0 })
export const nullableText = nullable(Type.String())
export const nullableNumber = nullable(Type.Number())

/** An object whose fields are not checked. */
export const AnyObject = Type.Unsafe<Record<string, unknown>>(Type.Object({}))
/** An object whose fields are not checked and must not be changed. */
export const ReadonlyFields = Type.Unsafe<Readonly<Record<string, unknown>>>(Type.Object({}))

/** Keys that are safe to repeat. Other keys of clients may have any length and may even be secrets. */
const SAFE_KEY = /^(?:[A-Za-z0-9_-]{1,19}|[A-Za-z_-]{20,64})$/

/** The path of a field, with `*` for a key that is not a plain word. */
export function fieldPath(parent: string, key: string): string {
  const name = SAFE_KEY.test(key) ? key : '*'
  return parent === '' ? name : `${parent}.${name}`
}

export function elementPath(parent: string, index: number): string {
  return `${parent}[${index}]`
}

const PAIRS_PROBLEM = `must have at most ${METADATA_MAX_PAIRS} pairs`
const KEY_PROBLEM = `must have keys of at most ${METADATA_KEY_MAX_CHARS} characters without brackets`
const VALUE_PROBLEM = `must be a string of at most ${METADATA_VALUE_MAX_CHARS} characters`

/** The problem of a metadata map; null: none. */
export function metadataProblem(value: unknown, path: string): string | null {
  if (!isObject(value)) return `${path}: must be an object of strings`
  const keys = Object.keys(value)
  if (keys.length > METADATA_MAX_PAIRS) return `${path}: ${PAIRS_PROBLEM}`
  for (const key of keys) {
    if (!withinCharacters(key, METADATA_KEY_MAX_CHARS) || /[[\]]/.test(key)) return `${path}: ${KEY_PROBLEM}`
    const entry = value[key]
    if (typeof entry !== 'string' || !withinCharacters(entry, METADATA_VALUE_MAX_CHARS)) {
      return `${fieldPath(path, key)}: ${VALUE_PROBLEM}`
    }
  }
  return null
}

TypeRegistry.Set<TSchema>('Metadata', (_schema, value) => metadataProblem(value, '') === null)

export const metadataMap = {
  [Kind]: 'Metadata',
  type: 'object',
  maxProperties: METADATA_MAX_PAIRS,
  propertyNames: { maxLength: METADATA_KEY_MAX_CHARS, pattern: '^[^\\[\\]]*$' },
  additionalProperties: { type: 'string', maxLength: METADATA_VALUE_MAX_CHARS },
} as unknown as TUnsafe<Record<string, string>>
