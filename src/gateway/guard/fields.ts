/**
 * What a model says outside of its texts: fields of items, annotations, and whole items of tools that the client runs.
 * Every string of them counts as text but ids, names, words of the interface, and what only its maker can read. Pure.
 */
import { DONE_BY_PROVIDER } from '../../protocol/hosted-items.ts'

export type Fields = Readonly<Record<string, unknown>>

/** Tools of ours that run here or at a provider, in both spellings. */
const RUN_HERE = [
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
 * Items that tell what a provider ran, or hold what nobody else can read. Any other one, of a kind that nobody knows
 * too, asks the client to do something: that is the model's own word.
 */
const RUN_BY_PROVIDER: ReadonlySet<string> = new Set([
  ...DONE_BY_PROVIDER,
  'shell_call_output',
  'apply_patch_call_output',
  'tool_search_output',
  'compaction',
  'context_compaction',
  ...RUN_HERE.flatMap(name => [`gateway:${name}`, `openrouter:${name}`]),
])

export function isRunByProvider(type: string): boolean {
  return RUN_BY_PROVIDER.has(type)
}

/** Of an item or an annotation itself: what is no text. A signature that is changed is worth nothing. */
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
/** Further in. */
const NO_TEXT_WITHIN: ReadonlySet<string> = new Set(['type', 'id', 'file_id', 'hash'])
/** Below these, keys are the model's own. */
const ALL_TEXT: ReadonlySet<string> = new Set(['arguments', 'input', 'env', 'environment'])
const NOTHING: ReadonlySet<string> = new Set()
/** Bytes that nobody reads. */
const BYTES = /^data:(?:image|audio|video)\/[\w.-]+;base64,[\w+/-]*=*$/

/** Every text of the fields, in the order of `withFieldTexts`. */
export function fieldTexts(fields: Fields): readonly string[] {
  const texts: string[] = []
  mapFields(fields, NO_TEXT, text => {
    texts.push(text)
    return text
  })
  return texts
}

/** The fields with these texts in place of their own. */
export function withFieldTexts(fields: Fields, texts: readonly string[]): Fields {
  let at = 0
  return mapFields(fields, NO_TEXT, text => texts[at++] ?? text)
}

/** Log probabilities in fields would tell what is redacted elsewhere. */
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
