/**
 * Texts in the fields of a reply: of items, annotations, and calls of tools that the client runs. Every string is a
 * text except ids, names, words of the interface and sealed data. Pure.
 */
import { DONE_BY_PROVIDER } from '../../protocol/hosted-items.ts'

export type Fields = Readonly<Record<string, unknown>>

/** Server tools: items of them are `gateway:` or `openrouter:` and the name. */
const SERVER_TOOLS = [
  'web_search',
  'web_fetch',
  'datetime',
  'image_generation',
  'fusion',
  'advisor',
  'subagent',
  'experimental__search_models',
  'tool_search',
  'code_interpreter',
  'file_search',
  'browser_use',
  'mcp',
]

/**
 * Items of tools that a provider or the gateway ran, and sealed ones. Any other item, also one of an unknown kind, asks
 * the client to do something: the model wrote that, so it is text.
 */
const RUN_BY_PROVIDER: ReadonlySet<string> = new Set([
  ...DONE_BY_PROVIDER,
  'shell_call_output',
  'apply_patch_call_output',
  'tool_search_output',
  'compaction',
  'context_compaction',
  ...SERVER_TOOLS.flatMap(name => [`gateway:${name}`, `openrouter:${name}`]),
])

export function isRunByProvider(type: string): boolean {
  return RUN_BY_PROVIDER.has(type)
}

/** Fields of an item or an annotation that are no text. A signature must stay as it is. */
const NO_TEXT: ReadonlySet<string> = new Set([
  'type',
  'id',
  'call_id',
  'approval_request_id',
  'container_id',
  'file_id',
  'subagent_id',
  'name',
  'namespace',
  'server_label',
  'role',
  'status',
  'phase',
  'hash',
  'format',
  'signature',
  'encrypted_content',
])
/** Fields of nested objects that are no text. */
const NO_TEXT_WITHIN: ReadonlySet<string> = new Set(['type', 'id', 'file_id', 'hash'])
/** The model chose the keys below these fields, so every string there is text. */
const ALL_TEXT: ReadonlySet<string> = new Set(['arguments', 'input', 'env', 'environment'])
const NOTHING: ReadonlySet<string> = new Set()
/** A data URL of a picture, of sound or of a video. */
const BYTES = /^data:(?:image|audio|video)\/[\w.-]+;base64,[\w+/-]*=*$/

/** The texts of the fields, in the order of `withFieldTexts`. */
export function fieldTexts(fields: Fields): readonly string[] {
  const texts: string[] = []
  mapFields(fields, NO_TEXT, text => {
    texts.push(text)
    return text
  })
  return texts
}

/** The fields with these texts in place of theirs. */
export function withFieldTexts(fields: Fields, texts: readonly string[]): Fields {
  let at = 0
  return mapFields(fields, NO_TEXT, text => texts[at++] ?? text)
}

/** The fields without log probabilities, which would disclose redacted text. */
export function withoutLogprobs(fields: Fields): Fields {
  const text = JSON.stringify(fields)
  if (!text.includes('"logprobs":')) return fields
  return JSON.parse(text, (key, value) => (key === 'logprobs' ? undefined : value)) as Fields
}

type Visit = (text: string) => string

function mapFields(fields: Fields, skipped: ReadonlySet<string>, visit: Visit): Fields {
  return Object.fromEntries(
    Object.entries(fields).map(([key, value]) => [key, mapField(key, value, skipped, visit)]),
  )
}

function mapField(key: string, value: unknown, skipped: ReadonlySet<string>, visit: Visit): unknown {
  if (skipped.has(key) && typeof value === 'string') return value
  return mapValue(value, skipped === NOTHING || ALL_TEXT.has(key) ? NOTHING : NO_TEXT_WITHIN, visit)
}

function mapValue(value: unknown, skipped: ReadonlySet<string>, visit: Visit): unknown {
  if (typeof value === 'string') return value === '' || BYTES.test(value) ? value : visit(value)
  if (Array.isArray(value)) return value.map(inner => mapValue(inner, skipped, visit))
  if (typeof value !== 'object' || value === null) return value
  return mapFields(value as Fields, skipped, visit)
}
