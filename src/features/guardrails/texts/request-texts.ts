/**
 * Extracts the texts of a request that a model reads, and writes replaced texts back. Public entry point of this
 * module. Pure. Hot path of guarded callers.
 *
 * Example. Of this request
 *
 *     { model: 'acme/large', user: 'u-7',
 *       input: [{ role: 'user', content: 'Call Ann' },
 *               { type: 'function_call', call_id: 'c1', name: 'dial', arguments: '{"to":"Ann"}', mood: 'calm' }],
 *       tools: [{ type: 'function', name: 'dial',
 *                 parameters: { type: 'object', properties: { to: { type: 'string', description: 'A name' } } } }] }
 *
 * the texts are `Call Ann` (written by the user), `{"to":"Ann"}`, `calm` and `A name` (written by others), for these
 * reasons:
 *
 * 1. REQUEST_FIELDS (text-fields.ts) has a row for each field of a request. `input` is `conversation`: text of the
 *    conversation, for guardrails and moderation. `tools` is `sent`: it also goes to the provider, so guardrails
 *    check it.
 *    `model` and `user` are `internal`: they hold no text for a model.
 * 2. `planOf` reads the TypeBox schema once, when the process starts, and makes a plan for every known field. A string
 *    is `text`, unless FIELDS or TOOL_FIELDS has a row for its name: `call_id` is an `id`, `arguments` is `json`,
 *    `parameters` is a JSON `schema`. A word that the schema enumerates (`function`) is not text.
 * 3. text-leaves.ts takes one string: an `id` or a `name` is not text as long as it has that form, `json` is read
 *    with and without its escapes. It also takes a JSON schema: `A name` is text, `object` and the key `to` are not.
 * 4. A field that the schema does not know (`mood`) is text, since unknown fields are passed on to providers.
 *
 * For a new field of a request, add its row to REQUEST_FIELDS; the compiler requires it. A new field of an item, a part
 * or a tool is text without a row; add one to FIELDS or TOOL_FIELDS if it holds a name, an id, a link, bytes or JSON.
 */
import { Kind, type TSchema } from '@sinclair/typebox'
import { isRecord, parseJson } from '../../../base/json.ts'
import {
  type MapSchema,
  Rule,
  type VariantsRule,
  type VariantsSchema,
} from '../../../protocol/json/schema.ts'
import { ResponsesRequest } from '../../../protocol/request.ts'
import type { Author } from '../detector.ts'
import {
  FIELDS,
  FIELDS_UNDER,
  type FieldRule,
  type FieldRules,
  GATEWAY_ITEM_FIELDS,
  ITEM_FIELDS,
  type Leaf,
  NATIVE_FIELDS,
  REQUEST_FIELDS,
  type RequestField,
  UNKNOWN_FIELDS,
  WORDS,
} from './text-fields.ts'
import { mapFields, mapLeaf, mapList, mapSchema, type Replace } from './text-leaves.ts'

/** The plan for one value. Null if the schema has no value of this kind here, so every string in it is a text. */
interface Plan {
  /** For a string. */
  readonly leaf: Leaf | null
  /** For the values of a list. */
  readonly each: Plan | null
  /** For the fields of an object; null: `rest` applies to all of them. */
  readonly fields: ReadonlyMap<string, Plan> | null
  readonly rest: Plan | null
  /** For objects of several kinds: the field that names the kind, and the plan of each kind. */
  readonly kinds: { readonly tag: string; readonly table: ReadonlyMap<unknown, Plan> } | null
  /** A JSON schema, a value in the form of the client's own API, or a value without texts. */
  readonly special: 'schema' | 'native' | 'nothing' | null
}

const BARE: Plan = { leaf: null, each: null, fields: null, rest: null, kinds: null, special: null }
/** Every string is a text. */
const EVERYTHING: Plan = BARE
const NOTHING: Plan = { ...BARE, special: 'nothing' }
const JSON_SCHEMA: Plan = { ...BARE, special: 'schema' }
const NATIVE: Plan = { ...BARE, special: 'native' }
const NAME: Plan = { ...BARE, leaf: 'name' }
const CHOICES: Plan = {
  ...BARE,
  each: {
    ...BARE,
    fields: new Map([
      ['type', NAME],
      ['name', NAME],
    ]),
  },
}

type Make = (schema: TSchema, rules: FieldRules) => Plan

const MAKERS: Readonly<Record<string, Make>> = {
  String: () => ({ ...BARE, leaf: 'text' }),
  Text: () => ({ ...BARE, leaf: 'text' }),
  Literal: () => ({ ...BARE, leaf: 'kept' }),
  Array: (schema, rules) => ({ ...BARE, each: planOf(schema['items'] as TSchema, rules) }),
  Union: (schema, rules) => (schema['anyOf'] as TSchema[]).map(one => planOf(one, rules)).reduce(mergePlans),
  Object: (schema, rules) => ({ ...BARE, fields: fieldsOf(schema, rules) }),
  Map: (schema, rules) => ({ ...BARE, rest: planOf((schema as MapSchema)[Rule].schema, rules) }),
  Metadata: () => ({ ...BARE, rest: { ...BARE, leaf: 'text' } }),
  Variants: (schema, rules) => variantsPlan((schema as VariantsSchema)[Rule], rules),
}

/** Creates the plan of a schema; `rules` apply to its fields. */
function planOf(schema: TSchema, rules: FieldRules): Plan {
  return MAKERS[schema[Kind]]?.(schema, rules) ?? EVERYTHING
}

/** Applies the rule of a field to its strings: the value itself, or the elements of a list. */
function applyRule(plan: Plan, rule: FieldRule | undefined): Plan {
  if (rule === undefined) return plan
  if (rule === 'nothing') return NOTHING
  if (rule === 'choices') return CHOICES
  // `parameters` of a server tool are known settings; the parameters of a function are a JSON schema.
  if (rule === 'schema') return plan.fields === null || plan.fields.size === 0 ? JSON_SCHEMA : plan
  const leaf = plan.leaf === 'text' ? rule : plan.leaf
  return { ...plan, leaf, each: plan.each === null ? null : applyRule(plan.each, rule) }
}

function fieldsOf(schema: TSchema, rules: FieldRules): ReadonlyMap<string, Plan> {
  const properties = schema['properties'] as Readonly<Record<string, TSchema>>
  return new Map(
    Object.entries(properties).map(([name, each]) => {
      const inner = FIELDS_UNDER.get(name) ?? rules
      return [name, applyRule(planOf(each, inner), rules[name])] as const
    }),
  )
}

function variantsPlan({ tag, defaultKind: absent, table }: VariantsRule, rules: FieldRules): Plan {
  const plans = new Map<unknown, Plan>()
  for (const [kind, { schema }] of table) plans.set(kind, kindPlan(kind, schema, rules))
  const usual = absent === null ? undefined : plans.get(absent)
  if (usual !== undefined) plans.set(undefined, usual)
  return { ...BARE, kinds: { tag, table: plans } }
}

/** Items of tools that the gateway runs. */
const GATEWAY_ITEM = /^(?:gateway|openrouter):/

function kindPlan(kind: string, schema: TSchema, rules: FieldRules): Plan {
  const own = ITEM_FIELDS.get(kind) ?? {}
  // A server tool has the same `type` as its items, but also settings, which do not reach a provider as one text.
  const isGatewayItem = GATEWAY_ITEM.test(kind) && !('parameters' in (schema['properties'] as object))
  if (!isGatewayItem) return planOf(schema, { ...rules, ...own })
  const plan = planOf(schema, {})
  if (plan.fields === null) return plan
  const known: FieldRules = { ...GATEWAY_ITEM_FIELDS, ...own }
  return {
    ...plan,
    fields: new Map([...plan.fields].map(([name, each]) => [name, applyRule(each, known[name])])),
  }
}

/** Merges the plans of a union. */
function mergePlans(one: Plan, other: Plan): Plan {
  return {
    leaf: one.leaf === 'kept' ? (other.leaf ?? one.leaf) : (one.leaf ?? other.leaf),
    each: one.each ?? other.each,
    fields: one.fields ?? other.fields,
    rest: one.rest ?? other.rest,
    kinds: one.kinds ?? other.kinds,
    special: one.special ?? other.special,
  }
}

export interface RequestText {
  readonly text: string
  readonly who: Author
  /**
   * The order in which a model reads it: instructions first, then the input. Absent: it is not part of the
   * conversation.
   */
  readonly read?: Read
  /** True for arguments of calls, in which characters may be escaped as JSON requires. */
  readonly isJson?: true
}

type Read = 'first' | 'later'
const READ: ReadonlyMap<string, Read> = new Map([
  ['instructions', 'first'],
  ['input', 'later'],
])

/** Takes a text and returns its replacement. */
type Visit = (text: string, who: Author, read: Read | undefined, isJson: boolean) => string
type Fields = Readonly<Record<string, unknown>>

/**
 * The name of an unknown field is a text too, unless it looks like a typical identifier. With four digits in a row it
 * may be a personal number.
 */
const FIELD_NAME = /^(?!.*\d{4})[a-z_$][\w$.-]{0,63}$/i

const PLANS = planOf(ResponsesRequest, FIELDS).fields
const USES: ReadonlyMap<string, RequestField> = new Map(Object.entries(REQUEST_FIELDS))

/** The texts of the request, in the order of `withTexts`. */
export function textsOf(request: ResponsesRequest): readonly RequestText[] {
  const texts: RequestText[] = []
  mapTexts(request, (text, who, read, isJson) => {
    texts.push({ text, who, ...(read === undefined ? null : { read }), ...(isJson ? { isJson } : null) })
    return text
  })
  return texts
}

/** The request with these texts in place of its own. */
export function withTexts(request: ResponsesRequest, texts: readonly string[]): ResponsesRequest {
  let at = 0
  return mapTexts(request, text => texts[at++] ?? text)
}

/** Like `textsOf`, with empty texts in place of those that `before`, an earlier form of the request, already had. */
export function unseenTexts(request: ResponsesRequest, before: ResponsesRequest): readonly RequestText[] {
  const known = new Set(textsOf(before).map(({ text }) => text))
  return textsOf(request).map(each => (known.has(each.text) ? { ...each, text: '' } : each))
}

/** Replaces every text, always in the same order. Unchanged parts are shared with the request. */
export function mapTexts(request: ResponsesRequest, visit: Visit): ResponsesRequest {
  return mapRequest(request, visit, true)
}

/** Like `mapTexts`, for unknown fields and those with the use `conversation`: without tools and settings. */
export function mapConversation(request: ResponsesRequest, visit: Visit): ResponsesRequest {
  return mapRequest(request, visit, false)
}

function mapRequest(request: ResponsesRequest, visit: Visit, withSent: boolean): ResponsesRequest {
  let read: Read | undefined
  let json: string | null = null
  const asUser: Replace = text => visit(text, 'user', read, text === json)
  const asOther: Replace = text => visit(text, 'other', read, text === json)
  const fields: Fields = request as Fields & ResponsesRequest
  const mapped = mapFields(fields, (value, key) => {
    const use = USES.get(key) ?? 'conversation'
    if (use === 'internal' || (use === 'sent' && !withSent)) return value
    read = READ.get(key)
    const plan = PLANS?.get(key) ?? EVERYTHING
    if (key === 'input' && Array.isArray(value)) {
      const kinds = plan.each ?? EVERYTHING
      const items = mapList(value, item => {
        json = jsonIn(item)
        return mapValue(item, key, kinds, isUserItem(item) ? asUser : asOther)
      })
      json = null
      return items
    }
    return mapValue(value, key, plan, key === 'instructions' || use === 'sent' ? asOther : asUser)
  })
  read = undefined
  return renameFields(mapped, PLANS, asUser) as unknown as ResponsesRequest
}

/** The arguments of a call; null if they are no JSON, so that a backslash in them escapes nothing. */
function jsonIn(item: unknown): string | null {
  const text = isRecord(item) ? item['arguments'] : undefined
  if (typeof text !== 'string') return null
  return !text.includes('\\') || parseJson(text) !== undefined ? text : null
}

function isUserItem(item: unknown): boolean {
  return isRecord(item) && item['role'] === 'user'
}

/** Recursive: the parser has bounded the depth of the body. */
function mapValue(value: unknown, key: string, plan: Plan, replace: Replace): unknown {
  if (typeof value === 'string') {
    if (WORDS.get(key)?.has(value) === true) return value
    return mapLeaf(plan.leaf ?? UNKNOWN_FIELDS.get(key) ?? 'text', value, replace)
  }
  if (typeof value !== 'object' || value === null || plan.special === 'nothing') return value
  if (plan.special === 'schema') return mapSchema(value, replace)
  if (plan.special === 'native') return mapNative(value, key, replace)
  if (Array.isArray(value)) {
    const each = plan.each ?? EVERYTHING
    return mapList(value, inner => mapValue(inner, key, each, replace))
  }
  const { fields, rest } = planOfKind(value as Fields, plan)
  const mapped = mapFields(value as Fields, (inner, name) =>
    mapValue(inner, name, fields?.get(name) ?? rest ?? planOfUnknown(name), replace),
  )
  return renameFields(mapped, fields, replace)
}

/** The plan of a field that the schema does not know. */
function planOfUnknown(name: string): Plan {
  return name === 'native' ? NATIVE : EVERYTHING
}

function mapNative(value: unknown, key: string, replace: Replace): unknown {
  if (typeof value === 'string') return mapLeaf(NATIVE_FIELDS.get(key) ?? 'text', value, replace)
  if (Array.isArray(value)) return mapList(value, inner => mapNative(inner, key, replace))
  if (!isRecord(value)) return value
  const mapped = mapFields(value, (inner, name) =>
    name === 'input_schema' ? mapSchema(inner, replace) : mapNative(inner, name, replace),
  )
  return renameFields(mapped, null, replace)
}

/** Replaces the names of unknown fields. A field whose new name is taken is omitted. */
function renameFields(value: Fields, known: ReadonlyMap<string, Plan> | null, replace: Replace): Fields {
  let names: Map<string, string> | null = null
  for (const name of Object.keys(value)) {
    if (known?.has(name) === true || name === '' || FIELD_NAME.test(name)) continue
    const replaced = replace(name)
    if (replaced !== name) names = (names ?? new Map<string, string>()).set(name, replaced)
  }
  if (names === null) return value
  const fields = Object.entries(value).flatMap(([name, each]): [string, unknown][] => {
    const other = names.get(name) ?? name
    return other !== name && Object.hasOwn(value, other) ? [] : [[other, each]]
  })
  return Object.fromEntries(fields)
}

function planOfKind(value: Fields, plan: Plan): Plan {
  let known = plan
  while (known.kinds !== null) known = known.kinds.table.get(value[known.kinds.tag]) ?? EVERYTHING
  return known
}
