/** Reads an OpenAPI document: its operations, its faults, and checks of values against its schemas. */
import { dereference, type Schema, validate } from '@cfworker/json-schema'

type Fields = Record<string, unknown>

export interface ApiMedia {
  readonly schema: Fields
  readonly examples?: Readonly<Record<string, { readonly value: unknown }>>
}

interface ApiAnswer {
  readonly $ref?: string
  readonly description?: string
  readonly headers?: Readonly<Record<string, unknown>>
  readonly content?: Readonly<Record<string, ApiMedia>>
}

interface ApiOperation {
  operationId: string
  summary: string
  tags: string[]
  readonly security: readonly Readonly<Record<string, unknown>>[]
  readonly parameters?: readonly { name: string; in: string; required?: boolean; schema: Fields }[]
  readonly requestBody?: { readonly required: boolean; readonly content: Readonly<Record<string, ApiMedia>> }
  readonly responses: Record<string, ApiAnswer>
}

export interface ApiDocument {
  readonly openapi: string
  readonly info: Fields
  readonly servers: readonly { readonly url: string }[]
  readonly tags: readonly { readonly name: string }[]
  readonly paths: Record<string, Record<string, ApiOperation>>
  readonly components: {
    readonly schemas: Record<string, Fields>
    readonly responses: Record<string, ApiAnswer>
    readonly headers: Record<string, unknown>
    readonly securitySchemes: Record<string, unknown>
  }
}

export interface PlacedOperation {
  readonly method: string
  readonly path: string
  readonly operation: ApiOperation
}

/** Paths of the faults of a value; empty: it fits. */
export type Check = (value: unknown) => readonly string[]

const METHODS: ReadonlySet<string> = new Set(['get', 'head', 'post', 'put', 'patch', 'delete'])

export function operationsIn({ paths }: ApiDocument): PlacedOperation[] {
  return Object.entries(paths).flatMap(([path, item]) =>
    Object.entries(item).map(([method, operation]) => ({ method: method.toUpperCase(), path, operation })),
  )
}

/** The answer itself, where it is a reference. */
export function answerOf(
  document: ApiDocument,
  operation: ApiOperation,
  status: number,
): ApiAnswer | undefined {
  const answer = operation.responses[status]
  if (answer?.$ref === undefined) return answer
  return lookUp(document, answer.$ref) as ApiAnswer | undefined
}

function lookUp(document: unknown, reference: string): unknown {
  return reference
    .slice(2)
    .split('/')
    .reduce<unknown>(
      (found, part) => (isFields(found) ? found[part.replace(/~1/g, '/')] : undefined),
      document,
    )
}

/** Checks of values against schemas of a document: each is one of its own objects. */
type Checks = (schema: Fields) => Check

/** @param strict fields that a schema does not name are faults, except where it names none at all */
export function checksOf(document: ApiDocument, strict = false): Checks {
  const copies = new Map<unknown, unknown>()
  const lookup = dereference(copyOf(document, strict, copies) as Schema)
  return schema => {
    const copy = copies.get(schema)
    if (copy === undefined) throw new Error('the schema is not of the document')
    return value => {
      const { valid, errors } = validate(value, copy as Schema, '2020-12', lookup, false)
      return valid ? [] : errors.map(({ instanceLocation, error }) => `${instanceLocation}: ${error}`)
    }
  }
}

/** A copy in which, if `strict`, every object with fields takes no others. `copies`: by the original. */
function copyOf(value: unknown, strict: boolean, copies: Map<unknown, unknown>): unknown {
  if (Array.isArray(value)) return value.map(each => copyOf(each, strict, copies))
  if (!isFields(value)) return value
  const copy: Fields = {}
  for (const [key, each] of Object.entries(value)) {
    copy[key] = key === 'examples' ? {} : copyOf(each, strict, copies)
  }
  const { properties, additionalProperties, description, type } = value
  const isOpen =
    additionalProperties !== undefined || /other fields|passed through unchanged/i.test(String(description))
  const hasFields = type === 'object' && isFields(properties) && Object.keys(properties).length > 0
  if (strict && hasFields && !isOpen && !isTagged(properties)) copy['additionalProperties'] = false
  copies.set(value, copy)
  return copy
}

/** An object of which only the kind is told. */
function isTagged(properties: Fields): boolean {
  return Object.keys(properties).join() === 'type' && (properties['type'] as Fields)['const'] === undefined
}

interface Content {
  readonly label: string
  readonly check: Check
  /** Of the data of frames; null: it is no stream. */
  readonly checkEvent: Check | null
  readonly examples: NonNullable<ApiMedia['examples']>
}

/** All bodies and answers that have examples. */
export function contentsOf(document: ApiDocument): Content[] {
  const checks = checksOf(document)
  return operationsIn(document).flatMap(({ operation }) => {
    const answers = Object.entries(operation.responses).map(([status, { content }]) => ({
      at: status,
      content,
    }))
    return [{ at: 'body', content: operation.requestBody?.content }, ...answers].flatMap(({ at, content }) =>
      Object.entries(content ?? {}).flatMap(([media, { schema, examples }]) => {
        if (examples === undefined) return []
        const event = schema['contentSchema']
        return [
          {
            label: `${operation.operationId} ${at} ${media}`,
            check: checks(schema),
            checkEvent: isFields(event) ? checks(event) : null,
            examples,
          },
        ]
      }),
    )
  })
}

/** What breaks the rules of OpenAPI 3.1, or of this product's document. */
export function documentFaults(document: ApiDocument): string[] {
  const faults: string[] = []
  const tags = new Set(document.tags.map(({ name }) => name))
  const schemes = new Set(Object.keys(document.components.securitySchemes))
  const usedTags = new Set<string>()
  const usedSchemes = new Set<string>()
  const ids = new Set<string>()
  if (tags.size !== document.tags.length) faults.push('a tag is listed twice')
  for (const [path, item] of Object.entries(document.paths)) {
    if (!path.startsWith('/')) faults.push(`${path}: does not begin with a slash`)
    for (const method of Object.keys(item))
      if (!METHODS.has(method)) faults.push(`${path}: ${method} is no method`)
  }
  for (const { method, path, operation } of operationsIn(document)) {
    const label = `${method} ${path}`
    const { operationId, summary, security, responses, requestBody, parameters = [] } = operation
    if (!/^[a-z][A-Za-z0-9]*$/.test(operationId)) faults.push(`${label}: ${operationId} is no operationId`)
    if (ids.has(operationId)) faults.push(`${label}: ${operationId} is used twice`)
    ids.add(operationId)
    if (typeof summary !== 'string' || summary === '') faults.push(`${label}: has no summary`)
    if (operation.tags.length !== 1) faults.push(`${label}: has ${operation.tags.length} tags`)
    for (const tag of operation.tags) {
      usedTags.add(tag)
      if (!tags.has(tag)) faults.push(`${label}: ${tag} is no tag`)
    }
    for (const scheme of security.flatMap(each => Object.keys(each))) {
      usedSchemes.add(scheme)
      if (!schemes.has(scheme)) faults.push(`${label}: ${scheme} is no security scheme`)
    }
    faults.push(...parameterFaults(label, path, parameters))
    if (requestBody !== undefined) {
      if (method === 'GET' || method === 'DELETE') faults.push(`${label}: takes no body`)
      if (Object.keys(requestBody.content).length === 0) faults.push(`${label}: its body has no media type`)
    }
    if (Object.keys(responses).length === 0) faults.push(`${label}: has no answer`)
    for (const [status, answer] of Object.entries(responses)) {
      if (!/^[1-5]\d\d$/.test(status)) faults.push(`${label}: ${status} is no status`)
      if (answer.$ref === undefined && !answer.description)
        faults.push(`${label} ${status}: has no description`)
    }
  }
  for (const [name, { description }] of Object.entries(document.components.responses)) {
    if (!description) faults.push(`response ${name}: has no description`)
  }
  for (const tag of tags) if (!usedTags.has(tag)) faults.push(`tag ${tag}: is not used`)
  for (const scheme of schemes)
    if (!usedSchemes.has(scheme)) faults.push(`security scheme ${scheme}: is not used`)
  faults.push(...referenceFaults(document))
  return faults
}

function parameterFaults(
  label: string,
  path: string,
  parameters: NonNullable<ApiOperation['parameters']>,
): string[] {
  const inPath = new Set([...path.matchAll(/\{(\w+)\}/g)].map(([, name = '']) => name))
  const declared = parameters.filter(each => each.in === 'path')
  const keys = parameters.map(each => `${each.in} ${each.name}`)
  return [
    ...[...inPath]
      .filter(name => !declared.some(each => each.name === name && each.required === true))
      .map(name => `${label}: ${name} is not declared`),
    ...declared
      .filter(({ name }) => !inPath.has(name))
      .map(({ name }) => `${label}: ${name} is not in the path`),
    ...parameters
      .filter(({ schema }) => !isFields(schema))
      .map(({ name }) => `${label}: ${name} has no schema`),
    ...keys.filter((key, at) => keys.indexOf(key) !== at).map(key => `${label}: ${key} is declared twice`),
  ]
}

/** References that lead nowhere, components that nothing refers to, and values that JSON does not have. */
function referenceFaults(document: ApiDocument): string[] {
  const faults: string[] = []
  const used = new Set<string>()
  const walk = (value: unknown, path: string): void => {
    if (Array.isArray(value)) {
      for (const [at, each] of value.entries()) walk(each, `${path}[${at}]`)
    } else if (isFields(value)) {
      const mapping = isFields(value['discriminator']) ? (value['discriminator']['mapping'] as Fields) : {}
      for (const target of [value['$ref'], ...Object.values(mapping)]) {
        if (typeof target !== 'string') continue
        used.add(target)
        if (lookUp(document, target) === undefined) faults.push(`${path}: ${target} leads nowhere`)
      }
      for (const [key, each] of Object.entries(value)) walk(each, `${path}.${key}`)
    } else if (value === undefined || typeof value === 'function' || typeof value === 'symbol') {
      faults.push(`${path}: is no JSON`)
    }
  }
  walk(document, '')
  for (const kind of ['schemas', 'responses', 'headers'] as const) {
    for (const name of Object.keys(document.components[kind])) {
      if (!/^[A-Za-z0-9._-]+$/.test(name)) faults.push(`${name}: is no name of a component`)
      if (!used.has(`#/components/${kind}/${name}`)) faults.push(`${kind} ${name}: is not used`)
    }
  }
  return faults
}

function isFields(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
