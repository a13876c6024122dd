/**
 * The text in a guarded reply: text parts with their log probabilities and annotations, and strings in item fields.
 * Pure. Hot path of guarded replies.
 */
import { mapLeaf } from '../../features/guardrails/texts/text-leaves.ts'
import type { Window, WindowFindings } from '../../features/guardrails/window.ts'
import { PROVIDER_RUN_TYPES } from '../../protocol/hosted-items.ts'
import type { Logprob } from '../../protocol/parts.ts'
import type { Content } from '../answer/answer.ts'
import type { TextScan } from './evaluate.ts'

export type TextDelta = Extract<Content, { kind: 'text' | 'refusal' | 'reasoning' | 'arguments' }>

/** Log probabilities of one stretch of the text, in UTF-16 units from its start. */
interface PlacedLogprobs {
  readonly start: number
  readonly end: number
  readonly logprobs: readonly Logprob[]
}

/** Names a text of an item; the texts of one item have different names. */
export function textName(delta: TextDelta): string {
  if (delta.kind === 'arguments') return 'arguments'
  return delta.kind === 'reasoning' ? `${delta.form} ${delta.part}` : `${delta.kind} ${delta.part}`
}

export class ReplyText {
  readonly scan: TextScan
  readonly name: string
  readonly item: number
  /** True if the text continues after another one: the window then does not contain its beginning. */
  readonly #isResumed: boolean
  /** The last delta that arrived: the template for those that are sent. */
  #last: TextDelta
  /** In the order of their ends. */
  #logprobs: PlacedLogprobs[] = []
  /** With the length of the text when each annotation arrived. */
  readonly #annotations: { readonly textLength: number; readonly delta: Content }[] = []

  constructor(scan: TextScan, first: TextDelta, isResumed: boolean) {
    this.scan = scan
    this.name = textName(first)
    this.item = first.item
    this.#isResumed = isResumed
    this.#last = first
  }

  /** True if it is part of the text of the answer. */
  get isAnswerText(): boolean {
    return this.#last.kind === 'text'
  }

  add(delta: TextDelta): void {
    this.#last = delta
    if (delta.kind === 'text' && delta.logprobs !== null) this.#addLogprobs(delta.text, delta.logprobs)
    this.scan.window.add(delta.text)
  }

  /**
   * Keeps the annotation until the text before it is sent; false if no text is held, so that it can be sent at once.
   */
  holdAnnotation(delta: Content): boolean {
    const { window } = this.scan
    if (window.heldBytes === 0) return false
    this.#annotations.push({ textLength: window.length, delta })
    return true
  }

  /** The deltas that may be sent after the scan of a window, redacted. */
  release(window: Window, findings: WindowFindings): readonly Content[] {
    const text = this.scan.window.release(window, findings)
    const end = this.scan.window.releasedUnits
    const logprobs = this.#last.kind === 'text' ? this.#takeLogprobs(end) : null
    const deltas = text === '' ? [] : [this.#delta(text, logprobs)]
    return this.#annotations.length === 0 ? deltas : [...deltas, ...this.#takeAnnotations(end)]
  }

  /** The deltas that are sent after the last window. */
  releaseRemaining(): readonly Content[] {
    // Log probabilities may arrive after all of the text has been sent.
    const logprobs = this.#takeLogprobs(Number.POSITIVE_INFINITY)
    const deltas = logprobs !== null && logprobs.length > 0 ? [this.#delta('', logprobs)] : []
    return [...deltas, ...this.#takeAnnotations(Number.POSITIVE_INFINITY)]
  }

  #delta(text: string, logprobs: readonly Logprob[] | null): Content {
    return this.#last.kind === 'text' ? { ...this.#last, text, logprobs } : { ...this.#last, text }
  }

  /**
   * If the tokens do not spell the text, their log probabilities stay together and apply to all of the text so far:
   * some providers send the log probabilities of a whole part at its end.
   */
  #addLogprobs(text: string, logprobs: readonly Logprob[]): void {
    if (logprobs.length === 0) return
    const from = this.scan.window.length
    let offset = 0
    let isSpelled = true
    const placedLogprobs = logprobs.map(logprob => {
      const start = offset
      isSpelled &&= text.startsWith(logprob.token, start)
      offset += logprob.token.length
      return { start: from + start, end: from + offset, logprobs: [logprob] }
    })
    if (isSpelled && offset === text.length) this.#logprobs = this.#logprobs.concat(placedLogprobs)
    else if (!this.#isResumed) this.#logprobs.push({ start: 0, end: from + text.length, logprobs })
  }

  /** Takes the log probabilities of the text up to `end`, except for redacted text, which they would disclose. */
  #takeLogprobs(end: number): readonly Logprob[] | null {
    const first = this.#logprobs.findIndex(entry => entry.end > end)
    const released = this.#logprobs.splice(0, first < 0 ? this.#logprobs.length : first)
    if (released.length === 0) return null
    const { window } = this.scan
    return released.flatMap(({ start, end: until, logprobs }) =>
      window.covers(start, until) ? [] : logprobs,
    )
  }

  #takeAnnotations(end: number): readonly Content[] {
    const first = this.#annotations.findIndex(({ textLength }) => textLength > end)
    const released = this.#annotations.splice(0, first < 0 ? this.#annotations.length : first)
    return released.map(({ delta }) => delta)
  }
}

export type ItemFields = Readonly<Record<string, unknown>>

/** Server tools, whose items are named `gateway:` or `openrouter:` and the tool's name. */
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
 * Items of tools that a provider or the gateway ran, and sealed items. Any other item, even of an unknown type, asks
 * the client to do something: the model wrote it, so it counts as text.
 */
const RUN_BY_PROVIDER: ReadonlySet<string> = new Set([
  ...PROVIDER_RUN_TYPES,
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

/** Fields of an item or an annotation that are not text. A signature must not change. */
const NON_TEXT_FIELDS: ReadonlySet<string> = new Set([
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
/** Fields of nested objects that are not text. */
const NESTED_NON_TEXT_FIELDS: ReadonlySet<string> = new Set(['type', 'id', 'file_id', 'hash'])
/** The model chose the keys of the objects in these fields, so every string there is text. */
const FREE_FORM_FIELDS: ReadonlySet<string> = new Set(['arguments', 'input', 'env', 'environment'])
const NO_FIELDS: ReadonlySet<string> = new Set()

/** The texts in the fields, in the order of `withFieldTexts`. */
export function fieldTexts(fields: ItemFields): readonly string[] {
  const texts: string[] = []
  mapFields(fields, NON_TEXT_FIELDS, text => {
    texts.push(text)
    return text
  })
  return texts
}

/** The fields, with their texts replaced by these. */
export function withFieldTexts(fields: ItemFields, texts: readonly string[]): ItemFields {
  let index = 0
  return mapFields(fields, NON_TEXT_FIELDS, text => texts[index++] ?? text)
}

/** The fields without log probabilities, which would disclose redacted text. */
export function withoutLogprobs(fields: ItemFields): ItemFields {
  const text = JSON.stringify(fields)
  if (!text.includes('"logprobs":')) return fields
  return JSON.parse(text, (key, value) => (key === 'logprobs' ? undefined : value)) as ItemFields
}

type Visit = (text: string) => string

function mapFields(fields: ItemFields, skippedFields: ReadonlySet<string>, visit: Visit): ItemFields {
  return Object.fromEntries(
    Object.entries(fields).map(([key, value]) => [key, mapField(key, value, skippedFields, visit)]),
  )
}

function mapField(key: string, value: unknown, skippedFields: ReadonlySet<string>, visit: Visit): unknown {
  if (skippedFields.has(key) && typeof value === 'string') return value
  return mapValue(
    value,
    skippedFields === NO_FIELDS || FREE_FORM_FIELDS.has(key) ? NO_FIELDS : NESTED_NON_TEXT_FIELDS,
    visit,
  )
}

function mapValue(value: unknown, skippedFields: ReadonlySet<string>, visit: Visit): unknown {
  if (typeof value === 'string') return mapLeaf('url', value, visit)
  if (Array.isArray(value)) return value.map(inner => mapValue(inner, skippedFields, visit))
  if (typeof value !== 'object' || value === null) return value
  return mapFields(value as ItemFields, skippedFields, visit)
}
