/**
 * Validates JSON text against a client's JSON schema. Schemas may be hostile: they are copied keyword by keyword into
 * schemas that are safe to interpret (bounded in size and depth, references only within the schema, patterns only as
 * linear-time automata), nothing is compiled to code, and the deadline of the pool ends everything else. Pure; task
 * worker.
 */
import {
  format as formats,
  type InstanceType,
  type OutputUnit,
  type Schema,
  validate,
} from '@cfworker/json-schema'
import { RE2JS } from 're2js'
import { isRecord, parseJson } from '../../base/json.ts'
import { TaskFailure } from './task.ts'

interface CheckSchemaInput {
  readonly schema: unknown
  /** The JSON text that a model wrote. */
  readonly text: string
}

interface SchemaFault {
  /** JSON pointer into the checked value; empty for the whole value. */
  readonly path: string
  /** The keyword that failed; `json` if the text is not JSON. */
  readonly keyword: string
}

interface CheckSchemaOutput {
  readonly valid: boolean
  /** The first faults, without values. */
  readonly faults: readonly SchemaFault[]
}

const MAX_TEXT_CHARS = 4 * 1024 * 1024
const MAX_FAULTS = 20
const MAX_PATH_CHARS = 200

/** Keywords that only repeat a fault below them. */
const WRAPPERS = new Set([
  '$ref',
  'properties',
  'additionalProperties',
  'unevaluatedProperties',
  'items',
  'prefixItems',
  'additionalItems',
  'unevaluatedItems',
  'allOf',
  'dependentSchemas',
  'propertyNames',
])

/** @throws TaskFailure `bad_schema`, `too_large` or `too_complex` */
export function checkSchema({ schema, text }: CheckSchemaInput): CheckSchemaOutput {
  if (text.length > MAX_TEXT_CHARS) throw new TaskFailure('too_large', 'the text to check is too long')
  const { copy, patterns } = copySchema(schema)
  const value = parseJson(text)
  if (value === undefined) return { valid: false, faults: [{ path: '', keyword: 'json' }] }
  const { valid, errors } = withPatterns(patterns, () => validateValue(value, copy))
  return { valid, faults: valid ? [] : faultsOf(errors) }
}

function validateValue(value: unknown, schema: Schema | boolean) {
  try {
    return validate(value, schema, '2020-12')
  } catch (error) {
    // A schema that refers to itself without end, or a value nested deeper than a comparison goes.
    if (error instanceof RangeError) throw new TaskFailure('too_complex', 'the schema cannot be evaluated')
    // The validator quotes the schema.
    throw new TaskFailure(
      'bad_schema',
      'schema: has a $ref that leads nowhere, or a keyword of the wrong type',
    )
  }
}

/** Runs `work` with our string checks in the validator's table. `work` is synchronous, so no other call sees them. */
function withPatterns<Result>(
  patterns: ReadonlyMap<string, (text: string) => boolean>,
  work: () => Result,
): Result {
  try {
    for (const [name, test] of patterns) formats[name] = test
    return work()
  } finally {
    for (const name of patterns.keys()) delete formats[name]
  }
}

function faultsOf(errors: readonly OutputUnit[]): SchemaFault[] {
  const specific = errors.filter(({ keyword }) => !WRAPPERS.has(keyword))
  return (specific.length > 0 ? specific : errors).slice(0, MAX_FAULTS).map(error => ({
    path: error.instanceLocation.slice(1, 1 + MAX_PATH_CHARS),
    keyword: keywordOf(error),
  }))
}

/** The keyword as the client wrote it. */
function keywordOf({ keyword, error }: OutputUnit): string {
  if (keyword === 'false') return 'not_allowed'
  return keyword === 'format' && error.includes(PATTERN_FORMAT) ? 'pattern' : keyword
}

/** Maximum objects of a schema: ten times as many as providers accept for structured outputs. */
const MAX_NODES = 20_000
const MAX_DEPTH = 64
const MAX_REFS = 2_000
/** Limit for all anyOf, oneOf and allOf together: each branch is tried against each value. */
const MAX_BRANCHES = 1_000
const MAX_PATTERNS = 100
const MAX_PATTERN_CHARS = 1_024
/** Sum of the counts in all `{n,m}`: each is unrolled into that many states. */
const MAX_REPEATS = 1_000
const MAX_ENUM_VALUES = 5_000

/** Keywords by the kind of their value: a schema, a list of schemas, a map of schemas, or a number. */
const SCHEMA_KEYWORDS =
  'additionalItems additionalProperties contains else if items not propertyNames then unevaluatedItems unevaluatedProperties'
const LIST_KEYWORDS = 'allOf anyOf oneOf prefixItems'
const MAP_KEYWORDS = '$defs definitions dependentSchemas properties'
const NUMBER_KEYWORDS =
  'exclusiveMaximum exclusiveMinimum maxContains maxItems maxLength maxProperties maximum minContains minItems minLength minProperties minimum multipleOf'

type Kind = 'one' | 'list' | 'map' | 'number'
const KEYWORD_KINDS = new Map<string, Kind>()
for (const [kind, names] of [
  ['one', SCHEMA_KEYWORDS],
  ['list', LIST_KEYWORDS],
  ['map', MAP_KEYWORDS],
  ['number', NUMBER_KEYWORDS],
] as const)
  for (const name of names.split(' ')) KEYWORD_KINDS.set(name, kind)

const UNSUPPORTED_KEYWORDS = new Set([
  '$dynamicRef',
  '$dynamicAnchor',
  '$recursiveRef',
  '$recursiveAnchor',
  '$anchor',
  'id',
  'patternProperties',
])

/** Formats that are checked, in linear time. Others are ignored. */
const CHECKED_FORMATS = new Set([
  'date',
  'date-time',
  'time',
  'duration',
  'email',
  'ipv4',
  'ipv6',
  'uuid',
  'hostname',
  'uri',
])
const TYPES: readonly InstanceType[] = ['array', 'boolean', 'integer', 'null', 'number', 'object', 'string']

/** Prefix of the formats that stand for a pattern. It has a blank, which no format of JSON schema contains. */
const PATTERN_FORMAT = 'pattern '

const TYPE_EXPECTED = 'type must be a JSON type, or a list of JSON types'

interface SchemaCopy {
  readonly copy: Schema | boolean
  /** String checks by the `format` under which the copy refers to them. */
  readonly patterns: ReadonlyMap<string, (text: string) => boolean>
}

/** @throws TaskFailure `bad_schema` or `too_large`, naming the keyword */
function copySchema(schema: unknown): SchemaCopy {
  const copier = new Copier()
  return { copy: copier.copy(schema, 0), patterns: copier.patterns }
}

class Copier {
  readonly patterns = new Map<string, (text: string) => boolean>()
  readonly #names = new Map<string, string>()
  #nodes = 0
  #refs = 0
  #branches = 0
  #repeats = 0

  copy(schema: unknown, depth: number): Schema | boolean {
    if (typeof schema === 'boolean') return schema
    if (!isRecord(schema)) throw badSchema('every schema must be an object or a boolean')
    if (++this.#nodes > MAX_NODES || depth > MAX_DEPTH) throw tooLarge()
    const copy: Schema = {}
    for (const [keyword, value] of Object.entries(schema)) {
      if (UNSUPPORTED_KEYWORDS.has(keyword) || (keyword === '$id' && depth > 0))
        throw badSchema(`${keyword} is not supported`)
      this.#copyKeyword(copy, keyword, value, depth)
    }
    return copy
  }

  #copyKeyword(copy: Schema, keyword: string, value: unknown, depth: number): void {
    switch (KEYWORD_KINDS.get(keyword)) {
      case 'one':
        // Before 2020, `items` was a list where it now is `prefixItems`.
        copy[keyword] =
          keyword === 'items' && Array.isArray(value)
            ? this.#copyList(value, depth)
            : this.copy(value, depth + 1)
        return
      case 'list':
        if (!Array.isArray(value) || value.length === 0)
          throw badSchema(`${keyword} must be a list of at least one schema`)
        if (keyword !== 'prefixItems') this.#branches += value.length
        if (this.#branches > MAX_BRANCHES) throw tooLarge()
        copy[keyword] = [...(copy[keyword] ?? []), ...this.#copyList(value, depth)]
        return
      case 'map':
        if (!isRecord(value)) throw badSchema(`${keyword} must be an object of schemas`)
        copy[keyword] = this.#copyMap(value, depth)
        return
      case 'number':
        if (typeof value !== 'number') throw badSchema(`${keyword} must be a number`)
        copy[keyword] = value
        return
      case undefined:
        this.#copyOtherKeyword(copy, keyword, value)
    }
  }

  #copyOtherKeyword(copy: Schema, keyword: string, value: unknown): void {
    switch (keyword) {
      case '$ref':
        if (typeof value !== 'string' || !/^#(\/|$)/.test(value))
          throw badSchema('$ref must point into the schema itself')
        if (++this.#refs > MAX_REFS) throw tooLarge()
        copy.$ref = value
        return
      case 'type':
        copy.type = typeOf(value)
        return
      case 'const':
        copy.const = value
        return
      case 'enum':
        if (!Array.isArray(value)) throw badSchema('enum must be a list')
        if (value.length > MAX_ENUM_VALUES) throw tooLarge()
        copy.enum = value
        return
      case 'required':
        copy.required = strings(value, keyword)
        return
      case 'dependentRequired':
        if (!isRecord(value)) throw badSchema(`${keyword} must be an object`)
        copy.dependentRequired = Object.fromEntries(
          Object.entries(value).map(([name, required]) => [checkName(name), strings(required, keyword)]),
        )
        return
      case 'uniqueItems':
        copy.uniqueItems = value === true
        return
      case 'format':
        if (typeof value === 'string' && CHECKED_FORMATS.has(value)) copy.format = value
        return
      case 'pattern':
        if (typeof value !== 'string') throw badSchema('pattern must be a string')
        copy.allOf = [...(copy.allOf ?? []), { format: this.#formatOf(value) }]
        return
      // Titles, descriptions, examples and other keywords that check nothing.
      default:
    }
  }

  #copyList(schemas: readonly unknown[], depth: number): (Schema | boolean)[] {
    return schemas.map(inner => this.copy(inner, depth + 1))
  }

  #copyMap(schemas: object, depth: number): Record<string, Schema | boolean> {
    return Object.fromEntries(
      Object.entries(schemas).map(([name, inner]) => [checkName(name), this.copy(inner, depth + 1)]),
    )
  }

  #formatOf(source: string): string {
    const existing = this.#names.get(source)
    if (existing !== undefined) return existing
    for (const [, minimum, maximum] of source.matchAll(/\{(\d+)(?:,(\d*))?\}/g))
      this.#repeats += Number(maximum || minimum)
    if (
      source.length > MAX_PATTERN_CHARS ||
      this.#repeats > MAX_REPEATS ||
      this.patterns.size === MAX_PATTERNS
    ) {
      throw tooLarge()
    }
    const name = `${PATTERN_FORMAT}${this.patterns.size}`
    const compiled = compileLinear(source)
    this.patterns.set(name, text => compiled.matcher(text).find())
    this.#names.set(source, name)
    return name
  }
}

function compileLinear(source: string): RE2JS {
  try {
    return RE2JS.compile(source)
  } catch {
    // Look-around and back-references among others, which no automaton supports.
    throw badSchema('pattern must be a regular expression without look-around and back-references')
  }
}

function typeOf(value: unknown): InstanceType | InstanceType[] {
  if (!Array.isArray(value)) return oneType(value)
  if (value.length === 0) throw badSchema(TYPE_EXPECTED)
  return value.map(oneType)
}

function oneType(value: unknown): InstanceType {
  const type = TYPES.find(candidate => candidate === value)
  if (type === undefined) throw badSchema(TYPE_EXPECTED)
  return type
}

function strings(value: unknown, keyword: string): string[] {
  if (!Array.isArray(value) || !value.every(name => typeof name === 'string'))
    throw badSchema(`${keyword} must be a list of names`)
  if (value.length > MAX_NODES) throw tooLarge()
  return value
}

function checkName(name: string): string {
  if (name === '__proto__') throw badSchema('a property cannot be named __proto__')
  return name
}

const badSchema = (expected: string) => new TaskFailure('bad_schema', `schema: ${expected}`)
const tooLarge = () => new TaskFailure('too_large', 'the schema is too large')
