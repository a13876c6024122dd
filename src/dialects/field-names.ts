/**
 * Refuses field names in another spelling. Providers receive unknown fields unchanged, and many JSON parsers ignore
 * case, `_` and `-` in names: to them, `Max_Tokens`, `maxTokens` and `ſervice_tier` are fields that the gateway checks,
 * translates or refuses. Pure. Hot path: one walk over the objects of a body that have a schema, with one look-up for
 * each name.
 */
import { KindGuard, type TSchema } from '@sinclair/typebox'
import { refuseField } from '../base/errors.ts'
import {
  elementPath,
  fieldPath,
  isObject,
  type MapSchema,
  Rule,
  type VariantsSchema,
} from '../protocol/json/schema.ts'
import { ResponsesRequest } from '../protocol/request.ts'
import { ChatBody } from './chat-completions/body-schema.ts'
import { EmbeddingsBody } from './embeddings/body-schema.ts'
import { GeminiBody } from './gemini/body-schema.ts'
import { MessagesBody } from './messages/body-schema.ts'

/** A longer name is no field of any API. */
const NAME_MAX_CHARS = 128
/** Names that need no folding. */
const FOLDED_NAME = /^[a-z0-9]+$/
const NOT_LETTERS = /[^\p{L}\p{N}]/gu

/**
 * The name as the most lenient parser reads it: only letters and digits, in one case, without accents. It is converted
 * to upper case first, because some parsers compare upper case: `ı` and `ſ` become `I` and `S`.
 */
function fold(name: string): string {
  if (FOLDED_NAME.test(name)) return name
  return name.normalize('NFKD').toUpperCase().toLowerCase().normalize('NFKD').replace(NOT_LETTERS, '')
}

/** Fields that a rule of the gateway or a provider reads although no body schema declares them. */
const UNDECLARED_FIELDS = [
  'anthropic_workspace_id',
  'audio',
  'best_of',
  'client_metadata',
  'config',
  'container',
  'context_management',
  'conversation',
  'embedding_types',
  'enable_search',
  'function_call',
  'functions',
  'mcp_servers',
  'n',
  'output_dimension',
  'output_dtype',
  'search_parameters',
  'stop_sequences',
  'stream',
  'system',
  'task_type',
  'texts',
  'thread',
  'transforms',
  'usage',
] as const

/** The names that one object may have. */
class Names {
  /** Keyed by exact name: the names inside its value, if its schema has any. */
  readonly fields = new Map<string, AllowedNames | null>()
  readonly #byFold = new Map<string, string>()

  add(name: string, allowed: AllowedNames | null = null): void {
    this.fields.set(name, this.fields.get(name) ?? allowed)
    if (!this.#byFold.has(fold(name))) this.#byFold.set(fold(name), name)
  }

  /** The name in its right spelling; null: not a known name. */
  spellingOf(name: string): string | null {
    return this.#byFold.get(fold(name)) ?? null
  }
}

/** The field names that a schema allows in a value. */
interface AllowedNames {
  /** Null: no object, or one with any names. */
  readonly object: ObjectNames | null
  /** The elements of an array or the values of a map. */
  readonly inner: AllowedNames | null
}

interface ObjectNames {
  /** The names of all kinds of this object: a lenient parser may read it into one structure. */
  readonly names: Names
  /** The kinds by the value of their tag field; null: there is only one kind. */
  readonly kinds: { readonly tag: string; readonly allowedByKind: ReadonlyMap<string, AllowedNames> } | null
}

/** The fields of all bodies. */
const BODY_NAMES = new Names()
for (const { properties } of [ResponsesRequest, ChatBody, MessagesBody, GeminiBody, EmbeddingsBody])
  for (const name of Object.keys(properties)) BODY_NAMES.add(name)
for (const name of UNDECLARED_FIELDS) BODY_NAMES.add(name)

interface SpellingTerms {
  /** Names that the body knows, although its schema does not declare them: those that are refused by name. */
  readonly moreNames?: readonly string[]
  /** The usual spelling of a name that has two. Absent: no name has two. */
  readonly usualSpelling?: (name: string) => string
}

/**
 * Creates the spelling check of one kind of body. Call it before any other check: it accepts any value. It throws
 * GatewayError `invalid_request` that names the field as the client wrote it, and its right spelling.
 */
export function spellingCheck(
  schema: TSchema,
  { moreNames = [], usualSpelling }: SpellingTerms = {},
): (body: unknown) => void {
  let allowed: AllowedNames | null = null
  return body => {
    if (!isObject(body)) return
    allowed ??= allowedInBody(schema, moreNames)
    checkObject(body, allowed.object, '', usualSpelling ?? null, BODY_NAMES)
  }
}

function allowedInBody(schema: TSchema, moreNames: readonly string[]): AllowedNames {
  const allowed = allowedOf(schema, new Map()) ?? { object: null, inner: null }
  for (const name of moreNames) allowed.object?.names.add(name)
  return allowed
}

function allowedOf(schema: TSchema, cache: Map<TSchema, AllowedNames | null>): AllowedNames | null {
  const cachedNames = cache.get(schema)
  if (cachedNames !== undefined) return cachedNames
  const allowed = readAllowed(schema, cache)
  cache.set(schema, allowed)
  return allowed
}

function readAllowed(schema: TSchema, cache: Map<TSchema, AllowedNames | null>): AllowedNames | null {
  if (KindGuard.IsKindOf(schema, 'Variants'))
    return allowedInVariants(schema as TSchema as VariantsSchema, cache)
  if (KindGuard.IsKindOf(schema, 'Map'))
    return allowedInside((schema as TSchema as MapSchema)[Rule].schema, cache)
  if (KindGuard.IsArray(schema)) return allowedInside(schema.items, cache)
  if (KindGuard.IsUnion(schema)) return allowedInUnion(schema.anyOf, cache)
  if (!KindGuard.IsObject(schema)) return null
  const names = new Names()
  for (const [name, inner] of Object.entries(schema.properties)) names.add(name, allowedOf(inner, cache))
  return names.fields.size === 0 ? null : { object: { names, kinds: null }, inner: null }
}

function allowedInside(schema: TSchema, cache: Map<TSchema, AllowedNames | null>): AllowedNames | null {
  const inner = allowedOf(schema, cache)
  return inner === null ? null : { object: null, inner }
}

function allowedInVariants(schema: VariantsSchema, cache: Map<TSchema, AllowedNames | null>): AllowedNames {
  const { tag, defaultKind, table } = schema[Rule]
  const names = new Names()
  const allowedByKind = new Map<string, AllowedNames>()
  names.add(tag)
  for (const [kind, variant] of table) {
    const allowed = allowedOf(variant.schema, cache)
    if (allowed === null) continue
    allowedByKind.set(kind, allowed)
    for (const name of allowed.object?.names.fields.keys() ?? []) names.add(name)
  }
  const defaultNames = defaultKind === null ? undefined : allowedByKind.get(defaultKind)
  if (defaultNames !== undefined) allowedByKind.set('', defaultNames)
  return { object: { names, kinds: { tag, allowedByKind } }, inner: null }
}

/** A value has one JSON type, so that members with objects and with arrays do not meet. */
function allowedInUnion(
  members: readonly TSchema[],
  cache: Map<TSchema, AllowedNames | null>,
): AllowedNames | null {
  const options = members.map(member => allowedOf(member, cache)).filter(allowed => allowed !== null)
  if (options.length <= 1) return options[0] ?? null
  return {
    object: options.find(allowed => allowed.object !== null)?.object ?? null,
    inner: options.find(allowed => allowed.inner !== null)?.inner ?? null,
  }
}

type Spelling = ((name: string) => string) | null

function checkValue(value: unknown, allowed: AllowedNames, path: string, usualSpelling: Spelling): void {
  if (Array.isArray(value)) {
    if (allowed.inner === null) return
    for (let index = 0; index < value.length; index++)
      if (typeof value[index] === 'object')
        checkValue(value[index], allowed.inner, elementPath(path, index), usualSpelling)
    return
  }
  if (!isObject(value)) return
  if (allowed.object !== null) {
    checkObject(value, allowed.object, path, usualSpelling, null)
    return
  }
  if (allowed.inner === null) return
  for (const name of Object.keys(value))
    checkValue(value[name], allowed.inner, fieldPath(path, name), usualSpelling)
}

/** `otherNames`: names of other bodies, which must not be in another spelling either. */
function checkObject(
  value: Readonly<Record<string, unknown>>,
  object: ObjectNames | null,
  path: string,
  usualSpelling: Spelling,
  otherNames: Names | null,
): void {
  if (object === null) return
  const { names } = object
  const { fields } = (object.kinds === null ? object : kindOf(value, object)).names
  for (const name of Object.keys(value)) {
    let allowed = fields.get(name)
    if (allowed === undefined) {
      const usualName = usualSpelling === null ? name : usualSpelling(name)
      allowed = fields.get(usualName)
      if (allowed === undefined) refuseSpelling(name, path, names, otherNames)
      else if (Object.hasOwn(value, usualName))
        throw refuseField(shownPath(path, name), `must be left out: ${usualName} is the same field`)
    }
    if (allowed == null) continue
    const inner = value[name]
    if (typeof inner === 'object' && inner !== null)
      checkValue(inner, allowed, fieldPath(path, name), usualSpelling)
  }
}

/** Some kinds have kinds of their own. */
function kindOf(value: Readonly<Record<string, unknown>>, object: ObjectNames): ObjectNames {
  let kind = object
  while (kind.kinds !== null) {
    const tag = value[kind.kinds.tag]
    const innerKind = kind.kinds.allowedByKind.get(typeof tag === 'string' ? tag : '')?.object ?? null
    if (innerKind === null) break
    kind = innerKind
  }
  return kind
}

function refuseSpelling(name: string, path: string, names: Names, otherNames: Names | null): void {
  if (name.length > NAME_MAX_CHARS || names.fields.has(name)) return
  const ownName = names.spellingOf(name)
  if (ownName === null && otherNames?.fields.has(name) === true) return
  const rightName = ownName ?? otherNames?.spellingOf(name) ?? null
  if (rightName !== null) throw refuseField(shownPath(path, name), `must be spelled ${rightName}`)
}

/** Only letters, digits, `_` and `-` are quoted in an error. The name may have letters of other alphabets. */
const SHOWN_NAME = /^[\p{L}\p{N}_-]{1,64}$/u

function shownPath(path: string, name: string): string {
  if (!SHOWN_NAME.test(name)) return fieldPath(path, name)
  return path === '' ? name : `${path}.${name}`
}
