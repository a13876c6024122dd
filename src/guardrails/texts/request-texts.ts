/**
 * Every text of a request that a model reads, and the request with other texts in their places: instructions, messages,
 * calls and what they gave, items of tools that a provider ran, files of text, tools and schemas, and whatever the
 * interface does not know and passes on. Which strings are no text is in text-fields.ts. Pure. Hot path of guarded
 * callers.
 */
import { ResponsesRequest } from '../../protocol/request-body.ts'
import { isObject, mapFields, mapList, mapSchema } from './schema-texts.ts'
import { FIELDS, REQUEST_FIELDS, UNKNOWN_FIELDS, WORDS } from './text-fields.ts'
import { mapLeaf } from './text-leaves.ts'
import { EVERYTHING, type Plan, planOf } from './text-plan.ts'

/** Who wrote a text: the user, or anyone else (system, model, tool). */
export type TextAuthor = 'user' | 'other'

/**
 * A field that nobody knows is read with its name, unless that is a name as programs have them: a number long enough to
 * be somebody's is none.
 */
const FIELD_NAME = /^(?!.*\d{4})[a-z_$][\w$.-]{0,63}$/i

/** Takes a text and gives what shall stand in its place. */
type Visit = (text: string, who: TextAuthor) => string
type See = (text: string) => string

const PLANS = planOf(ResponsesRequest, FIELDS).fields
const SAYS: ReadonlyMap<string, (typeof REQUEST_FIELDS)[keyof typeof REQUEST_FIELDS]> = new Map(
  Object.entries(REQUEST_FIELDS),
)

/** Visits every text in one order; what does not change is shared with the request. */
export function mapTexts(request: ResponsesRequest, visit: Visit): ResponsesRequest {
  return mapRequest(request, visit, true)
}

/** As mapTexts, without tools, forms of answers and settings: what somebody said, or what nobody knows the use of. */
export function mapSaid(request: ResponsesRequest, visit: Visit): ResponsesRequest {
  return mapRequest(request, visit, false)
}

function mapRequest(request: ResponsesRequest, visit: Visit, all: boolean): ResponsesRequest {
  const asUser: See = text => visit(text, 'user')
  const asOther: See = text => visit(text, 'other')
  const fields: Fields = request as Fields & ResponsesRequest
  const mapped = mapFields(fields, (value, key) => {
    const use = SAYS.get(key) ?? 'said'
    if (use === 'ours' || (use === 'seen' && !all)) return value
    const plan = PLANS?.get(key) ?? EVERYTHING
    if (key === 'input' && Array.isArray(value)) {
      const kinds = plan.each ?? EVERYTHING
      return mapList(value, item => mapValue(item, key, kinds, isUsers(item) ? asUser : asOther))
    }
    return mapValue(value, key, plan, key === 'instructions' || use === 'seen' ? asOther : asUser)
  })
  return renamed(mapped, PLANS, asUser) as unknown as ResponsesRequest
}

function isUsers(item: unknown): boolean {
  return isObject(item) && item['role'] === 'user'
}

/** The body was parsed to a bounded depth, so this may call itself. */
function mapValue(value: unknown, key: string, plan: Plan, see: See): unknown {
  if (typeof value === 'string') {
    if (WORDS.get(key)?.has(value) === true) return value
    return mapLeaf(plan.leaf ?? UNKNOWN_FIELDS.get(key) ?? 'text', value, see)
  }
  if (typeof value !== 'object' || value === null || plan.special === 'nothing') return value
  if (plan.special === 'schema') return mapSchema(value, see)
  if (Array.isArray(value)) {
    const each = plan.each ?? EVERYTHING
    return mapList(value, inner => mapValue(inner, key, each, see))
  }
  const { fields, rest } = planOfKind(value as Fields, plan)
  const mapped = mapFields(value as Fields, (inner, name) =>
    mapValue(inner, name, fields?.get(name) ?? rest ?? EVERYTHING, see),
  )
  return renamed(mapped, fields, see)
}

/** The object with other names for fields that are not known; one whose new name is taken is left out. */
function renamed(value: Fields, known: ReadonlyMap<string, Plan> | null, see: See): Fields {
  let names: Map<string, string> | null = null
  for (const name of Object.keys(value)) {
    if (known?.has(name) === true || name === '' || FIELD_NAME.test(name)) continue
    const seen = see(name)
    if (seen !== name) names = (names ?? new Map<string, string>()).set(name, seen)
  }
  if (names === null) return value
  const fields = Object.entries(value).flatMap(([name, each]): [string, unknown][] => {
    const other = names.get(name) ?? name
    return other !== name && Object.hasOwn(value, other) ? [] : [[other, each]]
  })
  return Object.fromEntries(fields)
}

type Fields = Readonly<Record<string, unknown>>

function planOfKind(value: Fields, plan: Plan): Plan {
  let known = plan
  while (known.kinds !== null) known = known.kinds.table.get(value[known.kinds.tag]) ?? EVERYTHING
  return known
}
