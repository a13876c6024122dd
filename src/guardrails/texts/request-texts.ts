/**
 * The texts of a request that a model reads, and the request with other texts in their places: the door of this room.
 * Pure. Hot path of guarded callers.
 *
 * Example. Of this request
 *
 *     { model: 'acme/large', user: 'u-7',
 *       input: [{ role: 'user', content: 'Call Ann' },
 *               { type: 'function_call', call_id: 'c1', name: 'dial', arguments: '{"to":"Ann"}', mood: 'calm' }],
 *       tools: [{ type: 'function', name: 'dial',
 *                 parameters: { type: 'object', properties: { to: { type: 'string', description: 'A name' } } } }] }
 *
 * the texts are `Call Ann` (written by the user), `{"to":"Ann"}`, `calm` and `A name` (written by others), because:
 *
 * 1. REQUEST_FIELDS (text-fields.ts) has a row for each field of a request. `input` is `conversation`: what somebody
 *    says, for guardrails and moderation. `tools` is `sent`: it goes to the provider too, so guardrails check it.
 *    `model` and `user` are `internal`: they hold no text for a model.
 * 2. text-plan.ts reads the TypeBox schema once, when the process starts, and makes a plan for every known field. A
 *    string is `text`, unless FIELDS or TOOL_FIELDS has a row for its name: `call_id` is an `id`, `arguments` is
 *    `json`, `parameters` is a JSON `schema`. A word that the schema enumerates (`function`) is no text.
 * 3. text-leaves.ts takes one string: an `id` or a `name` is no text as long as it has that form, `json` is read with
 *    and without its escapes. schema-texts.ts takes a JSON schema: `A name` is text, `object` and the key `to` are not.
 * 4. A field that the schema does not know (`mood`) is text, since unknown fields are passed on to providers.
 *
 * For a new field of a request, add its row to REQUEST_FIELDS; the compiler asks for it. A new field of an item, a part
 * or a tool is text without a row; add one to FIELDS or TOOL_FIELDS if it holds a name, an id, a link, bytes or JSON.
 */
import { ResponsesRequest } from '../../protocol/request-body.ts'
import type { Author } from '../rule.ts'
import { isObject, mapFields, mapList, mapSchema, type Replace } from './schema-texts.ts'
import { FIELDS, REQUEST_FIELDS, type RequestField, UNKNOWN_FIELDS, WORDS } from './text-fields.ts'
import { mapLeaf } from './text-leaves.ts'
import { EVERYTHING, type Plan, planOf } from './text-plan.ts'

export interface RequestText {
  readonly text: string
  readonly who: Author
}

/** Takes a text and returns the text to put in its place. */
type Visit = (text: string, who: Author) => string
type Fields = Readonly<Record<string, unknown>>

/**
 * The name of an unknown field is a text too, unless it looks like one that programs use. With four digits in a row it
 * may be somebody's number.
 */
const FIELD_NAME = /^(?!.*\d{4})[a-z_$][\w$.-]{0,63}$/i

const PLANS = planOf(ResponsesRequest, FIELDS).fields
const USES: ReadonlyMap<string, RequestField> = new Map(Object.entries(REQUEST_FIELDS))

/** The texts of the request, in the order of `withTexts`. */
export function textsOf(request: ResponsesRequest): readonly RequestText[] {
  const texts: RequestText[] = []
  mapTexts(request, (text, who) => {
    texts.push({ text, who })
    return text
  })
  return texts
}

/** The request with these texts in place of its own. */
export function withTexts(request: ResponsesRequest, texts: readonly string[]): ResponsesRequest {
  let at = 0
  return mapTexts(request, text => texts[at++] ?? text)
}

/** As `textsOf`, with empty texts in place of those that `before`, an earlier form of the request, had. */
export function unseenTexts(request: ResponsesRequest, before: ResponsesRequest): readonly RequestText[] {
  const known = new Set(textsOf(before).map(({ text }) => text))
  return textsOf(request).map(each => (known.has(each.text) ? { text: '', who: each.who } : each))
}

/** Replaces every text, always in the same order. What does not change is shared with the request. */
export function mapTexts(request: ResponsesRequest, visit: Visit): ResponsesRequest {
  return mapRequest(request, visit, true)
}

/** As `mapTexts`, for the fields with the use `conversation` and unknown ones: without tools and settings. */
export function mapConversation(request: ResponsesRequest, visit: Visit): ResponsesRequest {
  return mapRequest(request, visit, false)
}

function mapRequest(request: ResponsesRequest, visit: Visit, withSent: boolean): ResponsesRequest {
  const asUser: Replace = text => visit(text, 'user')
  const asOther: Replace = text => visit(text, 'other')
  const fields: Fields = request as Fields & ResponsesRequest
  const mapped = mapFields(fields, (value, key) => {
    const use = USES.get(key) ?? 'conversation'
    if (use === 'internal' || (use === 'sent' && !withSent)) return value
    const plan = PLANS?.get(key) ?? EVERYTHING
    if (key === 'input' && Array.isArray(value)) {
      const kinds = plan.each ?? EVERYTHING
      return mapList(value, item => mapValue(item, key, kinds, isUserItem(item) ? asUser : asOther))
    }
    return mapValue(value, key, plan, key === 'instructions' || use === 'sent' ? asOther : asUser)
  })
  return renameFields(mapped, PLANS, asUser) as unknown as ResponsesRequest
}

function isUserItem(item: unknown): boolean {
  return isObject(item) && item['role'] === 'user'
}

/** Recursive: the parser has bounded the depth of the body. */
function mapValue(value: unknown, key: string, plan: Plan, replace: Replace): unknown {
  if (typeof value === 'string') {
    if (WORDS.get(key)?.has(value) === true) return value
    return mapLeaf(plan.leaf ?? UNKNOWN_FIELDS.get(key) ?? 'text', value, replace)
  }
  if (typeof value !== 'object' || value === null || plan.special === 'nothing') return value
  if (plan.special === 'schema') return mapSchema(value, replace)
  if (Array.isArray(value)) {
    const each = plan.each ?? EVERYTHING
    return mapList(value, inner => mapValue(inner, key, each, replace))
  }
  const { fields, rest } = planOfKind(value as Fields, plan)
  const mapped = mapFields(value as Fields, (inner, name) =>
    mapValue(inner, name, fields?.get(name) ?? rest ?? EVERYTHING, replace),
  )
  return renameFields(mapped, fields, replace)
}

/** Replaces the names of unknown fields. A field whose new name is taken is left out. */
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
