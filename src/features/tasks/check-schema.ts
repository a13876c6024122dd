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

const TEXT_MAX = 4 * 1024 * 1024
const FAULTS_MAX = 20
const PATH_MAX = 200

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
  if (text.length > TEXT_MAX) throw new TaskFailure('too_large', 'the text to check is too long')
  const { copy, patterns } = copySchema(schema)
  const value = parseJson(text)
  if (value === undefined) return { valid: false, faults: [{ path: '', keyword: 'json' }] }
  const { valid, errors } = withPatterns(patterns, () => judge(value, copy))
  return { valid, faults: valid ? [] : faultsOf(errors) }
}

function judge(value: unknown, schema: Schema | boolean) {
  try {
    return validate(value, schema, '2020-12')
  } catch (error) {
    // A schema that refers to itself without end, or a value nested deeper than a comparison goes.
    if (error instanceof RangeError) throw new TaskFailure('too_complex', 'the schema cannot be evaluated')
    // The validator quotes the schema.
    throw new TaskFailure('bad_schema', 'schema: a $ref that leads nowhere, or a keyword of the wrong type')
  }
}

/** Runs `work` with our string checks in the validator's own table. `work` is synchronous: no other call sees them. */
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
  return (specific.length > 0 ? specific : errors).slice(0, FAULTS_MAX).map(error => ({
    path: error.instanceLocation.slice(1, 1 + PATH_MAX),
    keyword: keywordOf(error),
  }))
}

/** The keyword as the client wrote it. */
function keywordOf({ keyword, error }: OutputUnit): string {
  if (keyword === 'false') return 'not_allowed'
  return keyword === 'format' && error.includes(PATTERN_FORMAT) ? 'pattern' : keyword
}

/** Objects of a schema; ten times the limit of providers for structured outputs. */
const NODES_MAX = 20_000
const DEPTH_MAX = 64
const REFS_MAX = 2_000
/** Limit for all anyOf, oneOf and allOf together: each branch is tried against each value. */
const BRANCHES_MAX = 1_000
const PATTERNS_MAX = 100
const PATTERN_CHARS_MAX = 1_024
/** Sum of the counts in all `{n,m}`: each is unrolled into that many states. */
const REPEATS_MAX = 1_000
const ENUM_MAX = 5_000

/** Keywords that hold a schema, a list of schemas, a map of schemas, or something else. */
const ONE =
  'additionalItems additionalProperties contains else if items not propertyNames then unevaluatedItems unevaluatedProperties'
const LIST = 'allOf anyOf oneOf prefixItems'
const MAP = '$defs definitions dependentSchemas properties'
const NUMBER =
  'exclusiveMaximum exclusiveMinimum maxContains maxItems maxLength maxProperties maximum minContains minItems minLength minProperties minimum multipleOf'

type Kind = 'one' | 'list' | 'map' | 'number'
const KINDS = new Map<string, Kind>()
for (const [kind, names] of [
  ['one', ONE],
  ['list', LIST],
  ['map', MAP],
  ['number', NUMBER],
] as const)
  for (const name of names.split(' ')) KINDS.set(name, kind)

const REFUSED = new Set([
  '$dynamicRef',
  '$dynamicAnchor',
  '$recursiveRef',
  '$recursiveAnchor',
  '$anchor',
  'id',
  'patternProperties',
])

/** Formats that are checked, in linear time. Others are ignored. */
const FORMATS = new Set([
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

/** Prefix of the formats that stand for a pattern; no format of JSON schema contains a space. */
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
    if (!isRecord(schema)) throw bad('every schema must be an object or a boolean')
    if (++this.#nodes > NODES_MAX || depth > DEPTH_MAX) throw tooLarge()
    const copy: Schema = {}
    for (const [keyword, value] of Object.entries(schema)) {
      if (REFUSED.has(keyword) || (keyword === '$id' && depth > 0)) throw bad(`${keyword} is not supported`)
      this.#keyword(copy, keyword, value, depth)
    }
    return copy
  }

  #keyword(copy: Schema, keyword: string, value: unknown, depth: number): void {
    switch (KINDS.get(keyword)) {
      case 'one':
        // Before 2020, `items` was a list where it now is `prefixItems`.
        copy[keyword] =
          keyword === 'items' && Array.isArray(value) ? this.#list(value, depth) : this.copy(value, depth + 1)
        return
      case 'list':
        if (!Array.isArray(value) || value.length === 0) throw bad(`${keyword} must be a list of schemas`)
        if (keyword !== 'prefixItems') this.#branches += value.length
        if (this.#branches > BRANCHES_MAX) throw tooLarge()
        copy[keyword] = [...(copy[keyword] ?? []), ...this.#list(value, depth)]
        return
      case 'map':
        if (!isRecord(value)) throw bad(`${keyword} must be an object of schemas`)
        copy[keyword] = this.#map(value, depth)
        return
      case 'number':
        if (typeof value !== 'number') throw bad(`${keyword} must be a number`)
        copy[keyword] = value
        return
      case undefined:
        this.#other(copy, keyword, value)
    }
  }

  #other(copy: Schema, keyword: string, value: unknown): void {
    switch (keyword) {
      case '$ref':
        if (typeof value !== 'string' || !/^#(\/|$)/.test(value))
          throw bad('$ref must point into the schema itself')
        if (++this.#refs > REFS_MAX) throw tooLarge()
        copy.$ref = value
        return
      case 'type':
        copy.type = typeOf(value)
        return
      case 'const':
        copy.const = value
        return
      case 'enum':
        if (!Array.isArray(value)) throw bad('enum must be a list')
        if (value.length > ENUM_MAX) throw tooLarge()
        copy.enum = value
        return
      case 'required':
        copy.required = strings(value, keyword)
        return
      case 'dependentRequired':
        if (!isRecord(value)) throw bad(`${keyword} must be an object`)
        copy.dependentRequired = Object.fromEntries(
          Object.entries(value).map(([name, needs]) => [checkName(name), strings(needs, keyword)]),
        )
        return
      case 'uniqueItems':
        copy.uniqueItems = value === true
        return
      case 'format':
        if (typeof value === 'string' && FORMATS.has(value)) copy.format = value
        return
      case 'pattern':
        if (typeof value !== 'string') throw bad('pattern must be a string')
        copy.allOf = [...(copy.allOf ?? []), { format: this.#pattern(value) }]
        return
      // Titles, descriptions, examples and other keywords that check nothing.
      default:
    }
  }

  #list(schemas: readonly unknown[], depth: number): (Schema | boolean)[] {
    return schemas.map(each => this.copy(each, depth + 1))
  }

  #map(schemas: object, depth: number): Record<string, Schema | boolean> {
    return Object.fromEntries(
      Object.entries(schemas).map(([name, each]) => [checkName(name), this.copy(each, depth + 1)]),
    )
  }

  #pattern(source: string): string {
    const existing = this.#names.get(source)
    if (existing !== undefined) return existing
    for (const [, minimum, maximum] of source.matchAll(/\{(\d+)(?:,(\d*))?\}/g))
      this.#repeats += Number(maximum || minimum)
    if (
      source.length > PATTERN_CHARS_MAX ||
      this.#repeats > REPEATS_MAX ||
      this.patterns.size === PATTERNS_MAX
    ) {
      throw tooLarge()
    }
    const name = `${PATTERN_FORMAT}${this.patterns.size}`
    const compiled = linear(source)
    this.patterns.set(name, text => compiled.matcher(text).find())
    this.#names.set(source, name)
    return name
  }
}

function linear(source: string): RE2JS {
  try {
    return RE2JS.compile(source)
  } catch {
    // Look-around and back-references among others, which no automaton supports.
    throw bad('pattern must be a regular expression without look-around and back-references')
  }
}

function typeOf(value: unknown): InstanceType | InstanceType[] {
  if (!Array.isArray(value)) return oneType(value)
  if (value.length === 0) throw bad(TYPE_EXPECTED)
  return value.map(oneType)
}

function oneType(value: unknown): InstanceType {
  const type = TYPES.find(each => each === value)
  if (type === undefined) throw bad(TYPE_EXPECTED)
  return type
}

function strings(value: unknown, keyword: string): string[] {
  if (!Array.isArray(value) || !value.every(each => typeof each === 'string'))
    throw bad(`${keyword} must be a list of names`)
  if (value.length > NODES_MAX) throw tooLarge()
  return value
}

function checkName(name: string): string {
  if (name === '__proto__') throw bad('a property cannot be named __proto__')
  return name
}

const bad = (expected: string) => new TaskFailure('bad_schema', `schema: ${expected}`)
const tooLarge = () => new TaskFailure('too_large', 'the schema is too large')
