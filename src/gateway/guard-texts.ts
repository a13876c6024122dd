/**
 * What guardrails look at in a request: instructions, the text of every message, calls of tools and what they gave, and
 * the variables of a prompt. Names, ids, links and binary content are not text. Pure. Hot path of guarded callers.
 */
import type { Author } from '../guardrails/rules.ts'
import type { ResponsesRequest } from '../protocol/request.ts'

export interface RequestText {
  readonly text: string
  readonly who: Author
}

/** Takes a text and gives what shall stand in its place. */
type Visit = (text: string, who: Author) => string

/** Fields whose strings are structure, names, links or bytes; everything else of an item may reach a model as text. */
const NOT_TEXT: ReadonlySet<string> = new Set([
  'type',
  'id',
  'call_id',
  'role',
  'status',
  'phase',
  'name',
  'namespace',
  'author',
  'recipient',
  'agent_name',
  'server_label',
  'container_id',
  'subagent_id',
  'encrypted_content',
  'signature',
  'format',
  'detail',
  'image_url',
  'file_id',
  'file_data',
  'file_url',
  'video_url',
  'input_audio',
  'data',
  'logprobs',
  'cache_control',
  'prompt_cache_breakpoint',
])
/** Items that hold no text of their own. */
const NOT_TEXT_ITEMS: ReadonlySet<unknown> = new Set([
  'additional_tools',
  'image_generation_call',
  'item_reference',
  'compaction',
])

/** Every text of the request, in the order of `withTexts`. */
export function textsOf(request: ResponsesRequest): readonly RequestText[] {
  const texts: RequestText[] = []
  mapTexts(request, (text, who) => {
    texts.push({ text, who })
    return text
  })
  return texts
}

/** The request with these texts in place of its own; what does not change is shared with it. */
export function withTexts(request: ResponsesRequest, texts: readonly string[]): ResponsesRequest {
  let at = 0
  return mapTexts(request, text => texts[at++] ?? text)
}

function mapTexts(request: ResponsesRequest, visit: Visit): ResponsesRequest {
  const { instructions, input, prompt } = request
  const changed: Partial<ResponsesRequest> = {}
  if (typeof instructions === 'string' && instructions !== '') {
    const said = visit(instructions, 'other')
    if (said !== instructions) changed.instructions = said
  }
  if (typeof input === 'string') {
    const said = input === '' ? input : visit(input, 'user')
    if (said !== input) changed.input = said
  } else if (Array.isArray(input)) {
    const items = mapList(input, item => mapItem(item, visit))
    if (items !== input) changed.input = items as typeof input
  }
  if (prompt?.variables != null) {
    const variables = mapValue(prompt.variables, visit, 'user')
    if (variables !== prompt.variables) {
      changed.prompt = { ...prompt, variables: variables as typeof prompt.variables }
    }
  }
  return Object.keys(changed).length === 0 ? request : { ...request, ...changed }
}

function mapItem(item: unknown, visit: Visit): unknown {
  if (typeof item !== 'object' || item === null) return item
  const { type, role } = item as { readonly type?: unknown; readonly role?: unknown }
  return NOT_TEXT_ITEMS.has(type) ? item : mapValue(item, visit, role === 'user' ? 'user' : 'other')
}

/** The body was parsed to a bounded depth, so this may call itself. */
function mapValue(value: unknown, visit: Visit, who: Author): unknown {
  if (typeof value === 'string') return value === '' ? value : visit(value, who)
  if (Array.isArray(value)) return mapList(value, inner => mapValue(inner, visit, who))
  if (typeof value !== 'object' || value === null) return value
  let changed: Record<string, unknown> | null = null
  for (const key of Object.keys(value)) {
    if (NOT_TEXT.has(key)) continue
    const inner: unknown = (value as Record<string, unknown>)[key]
    const mapped = mapValue(inner, visit, who)
    if (mapped === inner) continue
    changed ??= { ...value }
    changed[key] = mapped
  }
  return changed ?? value
}

function mapList(list: readonly unknown[], map: (value: unknown) => unknown): readonly unknown[] {
  let changed: unknown[] | null = null
  for (let at = 0; at < list.length; at++) {
    const value = list[at]
    const mapped = map(value)
    if (mapped === value) continue
    changed ??= [...list]
    changed[at] = mapped
  }
  return changed ?? list
}
