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
  FIELD_WORDS,
  FIELDS,
  FIELDS_BELOW,
  type FieldRule,
  type FieldRules,
  type FieldUse,
  GATEWAY_ITEM_FIELDS,
  ITEM_FIELDS,
  type Leaf,
  NATIVE_FIELDS,
  REQUEST_FIELDS,
  UNKNOWN_FIELDS,
} from './text-fields.ts'
import { mapFields, mapLeaf, mapList, mapSchema, type Replace } from './text-leaves.ts'

/**
 * The plan for one value. A null field means that the schema has no value of this kind here, so every string in such a
 * value is a text.
 */
interface Plan {
  /** For a string. */
  readonly leaf: Leaf | null
  /** For the values of a list. */
  readonly elements: Plan | null
  /** For the fields of an object; null: `otherFields` applies to all of them. */
  readonly fields: ReadonlyMap<string, Plan> | null
  readonly otherFields: Plan | null
  /** For objects of several kinds: the field that names the kind, and the plan of each kind. */
  readonly kinds: { readonly tag: string; readonly table: ReadonlyMap<unknown, Plan> } | null
  /** A JSON schema, a value in the form of the client's own API, or a value without texts. */
  readonly special: 'schema' | 'native' | 'nothing' | null
}

const EMPTY_PLAN: Plan = {
  leaf: null,
  elements: null,
  fields: null,
  otherFields: null,
  kinds: null,
  special: null,
}
/** Every string is a text. */
const ALL_TEXT: Plan = EMPTY_PLAN
const NO_TEXT: Plan = { ...EMPTY_PLAN, special: 'nothing' }
const JSON_SCHEMA: Plan = { ...EMPTY_PLAN, special: 'schema' }
const NATIVE: Plan = { ...EMPTY_PLAN, special: 'native' }
const NAME: Plan = { ...EMPTY_PLAN, leaf: 'name' }
const TOOL_CHOICES: Plan = {
  ...EMPTY_PLAN,
  elements: {
    ...EMPTY_PLAN,
    fields: new Map([
      ['type', NAME],
      ['name', NAME],
    ]),
  },
}

type MakePlan = (schema: TSchema, rules: FieldRules) => Plan

const PLAN_MAKERS: Readonly<Record<string, MakePlan>> = {
  String: () => ({ ...EMPTY_PLAN, leaf: 'text' }),
  Text: () => ({ ...EMPTY_PLAN, leaf: 'text' }),
  Literal: () => ({ ...EMPTY_PLAN, leaf: 'kept' }),
  Array: (schema, rules) => ({ ...EMPTY_PLAN, elements: planOf(schema['items'] as TSchema, rules) }),
  Union: (schema, rules) =>
    (schema['anyOf'] as TSchema[]).map(variant => planOf(variant, rules)).reduce(mergePlans),
  Object: (schema, rules) => ({ ...EMPTY_PLAN, fields: fieldsOf(schema, rules) }),
  Map: (schema, rules) => ({ ...EMPTY_PLAN, otherFields: planOf((schema as MapSchema)[Rule].schema, rules) }),
  Metadata: () => ({ ...EMPTY_PLAN, otherFields: { ...EMPTY_PLAN, leaf: 'text' } }),
  Variants: (schema, rules) => variantsPlan((schema as VariantsSchema)[Rule], rules),
}

/** Creates the plan of a schema; `rules` apply to its fields. */
function planOf(schema: TSchema, rules: FieldRules): Plan {
  return PLAN_MAKERS[schema[Kind]]?.(schema, rules) ?? ALL_TEXT
}

/** Applies the rule of a field to its strings: the value itself, or the elements of a list. */
function applyRule(plan: Plan, rule: FieldRule | undefined): Plan {
  if (rule === undefined) return plan
  if (rule === 'nothing') return NO_TEXT
  if (rule === 'choices') return TOOL_CHOICES
  // `parameters` of a server tool are known settings; the parameters of a function are a JSON schema.
  if (rule === 'schema') return plan.fields === null || plan.fields.size === 0 ? JSON_SCHEMA : plan
  const leaf = plan.leaf === 'text' ? rule : plan.leaf
  return { ...plan, leaf, elements: plan.elements === null ? null : applyRule(plan.elements, rule) }
}

function fieldsOf(schema: TSchema, rules: FieldRules): ReadonlyMap<string, Plan> {
  const properties = schema['properties'] as Readonly<Record<string, TSchema>>
  return new Map(
    Object.entries(properties).map(([name, property]) => {
      const inner = FIELDS_BELOW.get(name) ?? rules
      return [name, applyRule(planOf(property, inner), rules[name])] as const
    }),
  )
}

function variantsPlan({ tag, defaultKind, table }: VariantsRule, rules: FieldRules): Plan {
  const plans = new Map<unknown, Plan>()
  for (const [kind, { schema }] of table) plans.set(kind, kindPlan(kind, schema, rules))
  const defaultPlan = defaultKind === null ? undefined : plans.get(defaultKind)
  if (defaultPlan !== undefined) plans.set(undefined, defaultPlan)
  return { ...EMPTY_PLAN, kinds: { tag, table: plans } }
}

/** Items of tools that the gateway runs. */
const GATEWAY_ITEM = /^(?:gateway|openrouter):/

function kindPlan(kind: string, schema: TSchema, rules: FieldRules): Plan {
  const ownRules = ITEM_FIELDS.get(kind) ?? {}
  // A server tool has the same `type` as its items, but also settings, which do not reach a provider as one text.
  const isGatewayItem = GATEWAY_ITEM.test(kind) && !('parameters' in (schema['properties'] as object))
  if (!isGatewayItem) return planOf(schema, { ...rules, ...ownRules })
  const plan = planOf(schema, {})
  if (plan.fields === null) return plan
  const itemRules: FieldRules = { ...GATEWAY_ITEM_FIELDS, ...ownRules }
  return {
    ...plan,
    fields: new Map([...plan.fields].map(([name, inner]) => [name, applyRule(inner, itemRules[name])])),
  }
}

/** Merges the plans of a union. */
function mergePlans(a: Plan, b: Plan): Plan {
  return {
    leaf: a.leaf === 'kept' ? (b.leaf ?? a.leaf) : (a.leaf ?? b.leaf),
    elements: a.elements ?? b.elements,
    fields: a.fields ?? b.fields,
    otherFields: a.otherFields ?? b.otherFields,
    kinds: a.kinds ?? b.kinds,
    special: a.special ?? b.special,
  }
}

export interface RequestText {
  readonly text: string
  readonly who: Author
  /**
   * The order in which a model reads it: instructions first, then the input. Absent: it is not part of the
   * conversation.
   */
  readonly order?: ReadOrder
  /** True for arguments of calls, in which characters may be escaped as JSON requires. */
  readonly isJson?: true
}

type ReadOrder = 'first' | 'later'
const READ_ORDER: ReadonlyMap<string, ReadOrder> = new Map([
  ['instructions', 'first'],
  ['input', 'later'],
])

/** Takes a text and returns its replacement. */
type Visit = (text: string, who: Author, order: ReadOrder | undefined, isJson: boolean) => string
type Fields = Readonly<Record<string, unknown>>

/**
 * The name of an unknown field is a text too, unless it looks like a typical identifier. With four digits in a row it
 * may be a personal number.
 */
const FIELD_NAME = /^(?!.*\d{4})[a-z_$][\w$.-]{0,63}$/i

const REQUEST_PLANS = planOf(ResponsesRequest, FIELDS).fields
const FIELD_USES: ReadonlyMap<string, FieldUse> = new Map(Object.entries(REQUEST_FIELDS))

/** The texts of the request, in the order of `withTexts`. */
export function textsOf(request: ResponsesRequest): readonly RequestText[] {
  const texts: RequestText[] = []
  mapTexts(request, (text, who, order, isJson) => {
    texts.push({
      text,
      who,
      ...(order === undefined ? null : { order }),
      ...(isJson ? { isJson } : null),
    })
    return text
  })
  return texts
}

/** The request with these texts in place of its own. */
export function withTexts(request: ResponsesRequest, texts: readonly string[]): ResponsesRequest {
  let index = 0
  return mapTexts(request, text => texts[index++] ?? text)
}

/** Like `textsOf`, with empty texts in place of those that `before`, an earlier form of the request, already had. */
export function unseenTexts(request: ResponsesRequest, before: ResponsesRequest): readonly RequestText[] {
  const knownTexts = new Set(textsOf(before).map(({ text }) => text))
  return textsOf(request).map(requestText =>
    knownTexts.has(requestText.text) ? { ...requestText, text: '' } : requestText,
  )
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
  let order: ReadOrder | undefined
  let jsonText: string | null = null
  const asUser: Replace = text => visit(text, 'user', order, text === jsonText)
  const asOther: Replace = text => visit(text, 'other', order, text === jsonText)
  const fields: Fields = request as Fields & ResponsesRequest
  const mapped = mapFields(fields, (value, key) => {
    const use = FIELD_USES.get(key) ?? 'conversation'
    if (use === 'internal' || (use === 'sent' && !withSent)) return value
    order = READ_ORDER.get(key)
    const plan = REQUEST_PLANS?.get(key) ?? ALL_TEXT
    if (key === 'input' && Array.isArray(value)) {
      const itemPlan = plan.elements ?? ALL_TEXT
      const items = mapList(value, item => {
        jsonText = jsonIn(item)
        return mapValue(item, key, itemPlan, isUserItem(item) ? asUser : asOther)
      })
      jsonText = null
      return items
    }
    return mapValue(value, key, plan, key === 'instructions' || use === 'sent' ? asOther : asUser)
  })
  order = undefined
  return renameFields(mapped, REQUEST_PLANS, asUser) as unknown as ResponsesRequest
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
    if (FIELD_WORDS.get(key)?.has(value) === true) return value
    return mapLeaf(plan.leaf ?? UNKNOWN_FIELDS.get(key) ?? 'text', value, replace)
  }
  if (typeof value !== 'object' || value === null || plan.special === 'nothing') return value
  if (plan.special === 'schema') return mapSchema(value, replace)
  if (plan.special === 'native') return mapNative(value, key, replace)
  if (Array.isArray(value)) {
    const elementPlan = plan.elements ?? ALL_TEXT
    return mapList(value, inner => mapValue(inner, key, elementPlan, replace))
  }
  const { fields, otherFields } = planOfKind(value as Fields, plan)
  const mapped = mapFields(value as Fields, (inner, name) =>
    mapValue(inner, name, fields?.get(name) ?? otherFields ?? planOfUnknown(name), replace),
  )
  return renameFields(mapped, fields, replace)
}

/** The plan of a field that the schema does not know. */
function planOfUnknown(name: string): Plan {
  return name === 'native' ? NATIVE : ALL_TEXT
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
function renameFields(
  value: Fields,
  knownFields: ReadonlyMap<string, Plan> | null,
  replace: Replace,
): Fields {
  let newNames: Map<string, string> | null = null
  for (const name of Object.keys(value)) {
    if (knownFields?.has(name) === true || name === '' || FIELD_NAME.test(name)) continue
    const newName = replace(name)
    if (newName !== name) newNames = (newNames ?? new Map<string, string>()).set(name, newName)
  }
  if (newNames === null) return value
  const fields = Object.entries(value).flatMap(([name, inner]): [string, unknown][] => {
    const newName = newNames.get(name) ?? name
    return newName !== name && Object.hasOwn(value, newName) ? [] : [[newName, inner]]
  })
  return Object.fromEntries(fields)
}

function planOfKind(value: Fields, plan: Plan): Plan {
  let planOfValue = plan
  while (planOfValue.kinds !== null)
    planOfValue = planOfValue.kinds.table.get(value[planOfValue.kinds.tag]) ?? ALL_TEXT
  return planOfValue
}
