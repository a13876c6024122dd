/**
 * Whether a JSON text satisfies a client's JSON schema. Schemas are hostile until shown otherwise: they are copied
 * keyword by keyword (schema-copy.ts) before anything interprets them, nothing is compiled to code, and what is left
 * to go wrong ends by the deadline of the pool. Pure; task worker.
 */
import { format as formats, type OutputUnit, type Schema, validate } from '@cfworker/json-schema'
import { TaskFailure } from './failure.ts'
import { copySchema, PATTERN_FORMAT } from './schema-copy.ts'

export interface CheckSchemaInput {
  readonly schema: unknown
  /** JSON text, as a model wrote it. */
  readonly text: string
}

export interface SchemaFault {
  /** JSON pointer into the checked value; the empty one is the whole. */
  readonly path: string
  /** The keyword that was not satisfied; `json` when the text is none. */
  readonly keyword: string
}

export interface CheckSchemaOutput {
  readonly valid: boolean
  /** The first ones; never values. */
  readonly faults: readonly SchemaFault[]
}

const TEXT_MAX = 4 * 1024 * 1024
const FAULTS_MAX = 20
const PATH_MAX = 200

/** Keywords that only say that one below them said something. */
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
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    return { valid: false, faults: [{ path: '', keyword: 'json' }] }
  }
  const { valid, errors } = withPatterns(patterns, () => judge(value, copy))
  return { valid, faults: valid ? [] : shown(errors) }
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

/** The validator takes checks of strings from a table of its own; ours are there for one call, which is synchronous. */
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

function shown(errors: readonly OutputUnit[]): SchemaFault[] {
  const telling = errors.filter(({ keyword }) => !WRAPPERS.has(keyword))
  return (telling.length > 0 ? telling : errors).slice(0, FAULTS_MAX).map(error => ({
    path: error.instanceLocation.slice(1, 1 + PATH_MAX),
    keyword: keywordOf(error),
  }))
}

/** As the client wrote it. */
function keywordOf({ keyword, error }: OutputUnit): string {
  if (keyword === 'false') return 'not_allowed'
  return keyword === 'format' && error.includes(PATTERN_FORMAT) ? 'pattern' : keyword
}
