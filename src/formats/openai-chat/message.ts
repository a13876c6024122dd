/**
 * Message and reasoning items of one Chat Completions reply. Pure. Hot path. `ChatText` has the open message with its
 * parts, annotations and log probabilities. Annotations and log probabilities may arrive before their text, and then
 * wait for it.
 */
import { filled, type Json, list, record, wholeNumber } from '../../base/json.ts'
import type { Annotation, Logprob } from '../../protocol/parts.ts'
import type { Delta } from '../format.ts'
import { isLogprob } from '../logprobs.ts'
import { type ReasoningFormat, reasoningFormat } from '../reasoning.ts'
import { TextMark } from '../text-mark.ts'
import type { Withheld } from '../withheld.ts'
import { chatAnnotation, replyCitations } from './hosted.ts'

export class ChatText {
  readonly #emit: (delta: Delta) => void
  readonly #nextItem: () => number
  readonly #withheld: Withheld
  /** Ends open reasoning before text begins. */
  readonly #beforeText: () => void
  /** True once there was text. Only this class writes it. */
  hasText = false
  /** The open message, and the number and kind of its open part. */
  #message: number | null = null
  #part = -1
  #partKind: 'text' | 'refusal' | null = null
  #textUnits = 0
  #logprobs: Logprob[] | null = null
  #annotations: Annotation[] = []

  constructor(
    emit: (delta: Delta) => void,
    nextItem: () => number,
    withheld: Withheld,
    beforeText: () => void,
  ) {
    this.#emit = emit
    this.#nextItem = nextItem
    this.#withheld = withheld
    this.#beforeText = beforeText
  }

  text(text: string): void {
    if (text === '') return
    const item = this.#openPart('text')
    const logprobs = this.#logprobs
    this.#logprobs = null
    this.#textUnits += text.length
    this.#emit({ kind: 'text', item, part: this.#part, text, logprobs })
    if (this.#annotations.length > 0) this.#flushAnnotations()
  }

  refuse(text: string): void {
    const item = this.#openPart('refusal')
    this.#emit({ kind: 'refusal', item, part: this.#part, text })
  }

  annotate(raw: readonly unknown[]): void {
    for (const element of raw) {
      const annotation = chatAnnotation(element)
      if (annotation !== null) this.#annotations.push(annotation)
    }
    if (this.#message !== null && this.#partKind === 'text') this.#flushAnnotations()
    // The annotations wait for a text.
    else this.#withheld.add(raw)
  }

  keepLogprobs(logprobs: unknown): void {
    const content = list(record(logprobs)?.['content'])
    if (content === null || content.length === 0) return
    this.#logprobs ??= []
    for (const token of content) if (isLogprob(token)) this.#logprobs.push(token)
  }

  /** Call at the end of a frame: counts log probabilities as withheld if they wait for the text of a later frame. */
  weighLogprobs(logprobs: unknown): void {
    if (this.#logprobs !== null) this.#withheld.add(logprobs)
  }

  /** Emits citations of the whole reply, then all waiting annotations. */
  cite(results: readonly unknown[] | null, urls: readonly unknown[] | null): void {
    if (results !== null || urls !== null) {
      this.#annotations.push(...replyCitations(results, urls, this.#textUnits))
    }
    this.#flushAnnotations()
  }

  close(): void {
    if (this.#message === null) return
    const item = this.#message
    this.#flushAnnotations()
    this.#message = null
    this.#emit({ kind: 'close', item, fields: null })
  }

  /** Opens a message and a part of this kind if needed; returns the message's item. */
  #openPart(kind: 'text' | 'refusal'): number {
    this.hasText = true
    this.#beforeText()
    if (this.#message === null) {
      this.#message = this.#nextItem()
      this.#part = -1
      this.#partKind = null
      this.#emit({ kind: 'open', item: this.#message, start: { type: 'message', id: null, phase: null } })
    }
    if (this.#partKind !== kind) {
      this.#part++
      this.#partKind = kind
      this.#textUnits = 0
    }
    return this.#message
  }

  #flushAnnotations(): void {
    if (this.#message === null || this.#partKind !== 'text') return
    for (const annotation of this.#annotations) {
      this.#emit({ kind: 'annotation', item: this.#message, part: this.#part, annotation })
    }
    this.#annotations = []
  }
}

/** True if a delta has content of the reply in one of the usual fields. */
export function hasReplyContent(delta: Json): boolean {
  return [
    'content',
    'reasoning_content',
    'reasoning',
    'reasoning_details',
    'tool_calls',
    'refusal',
    'images',
  ].some(name => {
    const value = delta[name]
    return typeof value === 'string' || Array.isArray(value) ? value.length > 0 : record(value) !== null
  })
}

// Reasoning. It arrives under four names: `reasoning_content`, `reasoning`, `reasoning_details[]`, content parts of
// type `thinking`. Several providers send the same text under two names; it counts once.

interface OpenItem {
  readonly item: number
  readonly id: string | null
  /** The current part of each form (-1: none yet), and the provider's index of that part. */
  textPart: number
  textIndex: number | null
  summaryPart: number
  summaryIndex: number | null
  /** True: the item is signed or encrypted and can take no more text. */
  isSealed: boolean
  fields: Record<string, unknown> | null
}

export class ChatReasoning {
  readonly #emit: (delta: Delta) => void
  readonly #nextItem: () => number
  readonly #withheld: Withheld
  /** Ends the open message before reasoning begins. */
  readonly #beforeReasoning: () => void
  #openItem: OpenItem | null = null
  /** The ids of all items; few providers send any. */
  #ids: Set<string> | null = null
  /** All reasoning text so far, to recognise the same text under another name. */
  readonly #text = new TextMark()
  #source: 'plain' | 'details' | null = null

  constructor(
    emit: (delta: Delta) => void,
    nextItem: () => number,
    withheld: Withheld,
    beforeReasoning: () => void,
  ) {
    this.#emit = emit
    this.#nextItem = nextItem
    this.#withheld = withheld
    this.#beforeReasoning = beforeReasoning
  }

  /** Reads the reasoning fields of a delta or message. Returns true if there were any. */
  read(message: Json): boolean {
    const details = list(message['reasoning_details'])
    let hasAny = false
    let hasText = false
    if (details !== null) {
      for (let index = 0; index < details.length; index++) {
        const detail = record(details[index])
        if (detail === null) continue
        const content = this.#readDetail(detail, details, index)
        if (content !== 'nothing') hasAny = true
        if (content === 'words') hasText = true
      }
    }
    if (hasText) return true
    return this.text(filled(message['reasoning_content']) ?? filled(message['reasoning'])) || hasAny
  }

  /** Adds raw thinking text without details; returns false if there is none. */
  text(text: string | null): boolean {
    if (text === null) return false
    if (this.#isKnown(text, 'plain')) return true
    this.#addText('text', text, 'plain', this.#itemForText() ?? this.#beginForText(null, null))
    return true
  }

  /** Reads a signature outside the content. */
  addSignature(signature: string, format: ReasoningFormat): void {
    this.#source ??= 'plain'
    this.#seal(this.#itemForSeal('signature', signature, null, format), 'signature', signature)
  }

  close(): void {
    const open = this.#openItem
    if (open === null) return
    this.#openItem = null
    this.#emit({ kind: 'close', item: open.item, fields: open.fields })
  }

  #readDetail(detail: Json, details: readonly unknown[], position: number): 'words' | 'seal' | 'nothing' {
    const isSummary = detail['type'] === 'reasoning.summary'
    const text = filled(isSummary ? detail['summary'] : detail['text'])
    const signature = filled(detail['signature'])
    const data = detail['type'] === 'reasoning.encrypted' ? filled(detail['data']) : null
    if (text === null && signature === null && data === null) return 'nothing'
    const id = filled(detail['id'])
    const format = filled(detail['format'])
    if (text !== null && !this.#isKnown(text, 'details')) {
      const open = this.#itemForText() ?? this.#beginForText(id ?? idAhead(details, position), format)
      const index = wholeNumber(detail['index'])
      if (isSummary) {
        if (open.summaryPart === -1 || open.summaryIndex !== index) open.summaryPart++
        open.summaryIndex = index
      } else {
        if (open.textPart === -1 || open.textIndex !== index) open.textPart++
        open.textIndex = index
      }
      this.#addText(isSummary ? 'summary' : 'text', text, 'details', open)
    }
    this.#source = 'details'
    if (signature !== null)
      this.#seal(this.#itemForSeal('signature', signature, id, format), 'signature', signature, detail)
    if (data !== null)
      this.#seal(this.#itemForSeal('encrypted_content', data, id, format), 'encrypted_content', data, detail)
    return text === null ? 'seal' : 'words'
  }

  /** True if this text has already arrived under another name. */
  #isKnown(text: string, source: 'plain' | 'details'): boolean {
    return this.#source !== null && this.#source !== source && this.#text.equals(text)
  }

  #addText(form: 'text' | 'summary', text: string, source: 'plain' | 'details', open: OpenItem): void {
    if (form === 'text' && open.textPart === -1) open.textPart = 0
    this.#text.add(text)
    this.#source = source
    const part = form === 'text' ? open.textPart : open.summaryPart
    this.#emit({ kind: 'reasoning', item: open.item, form, part, text })
  }

  /** The open item if it can take more text, else null. */
  #itemForText(): OpenItem | null {
    return this.#openItem === null || this.#openItem.isSealed ? null : this.#openItem
  }

  /** Opens another item for text. */
  #beginForText(id: string | null, format: string | null): OpenItem {
    this.#beforeReasoning()
    return this.#beginItem(id, format)
  }

  /** The item for a signature or encrypted part: the open one, unless it already holds another. */
  #itemForSeal(field: string, value: string, id: string | null, format: string | null): OpenItem {
    const openValue = this.#openItem?.fields?.[field]
    if (this.#openItem !== null && (openValue === undefined || openValue === value)) return this.#openItem
    return this.#beginItem(id, format)
  }

  #beginItem(id: string | null, format: string | null): OpenItem {
    this.close()
    // A repeated id would turn two items into one.
    const uniqueId = id === null || this.#ids?.has(id) === true ? null : id
    if (uniqueId !== null) {
      this.#ids ??= new Set()
      this.#ids.add(uniqueId)
    }
    const open: OpenItem = {
      item: this.#nextItem(),
      id: uniqueId,
      textPart: -1,
      textIndex: null,
      summaryPart: -1,
      summaryIndex: null,
      isSealed: false,
      fields: null,
    }
    this.#openItem = open
    const start = { type: 'reasoning' as const, id: uniqueId, format: reasoningFormat(format) }
    this.#emit({ kind: 'open', item: open.item, start })
    return open
  }

  #seal(open: OpenItem, field: string, value: string, detail?: Json): void {
    open.isSealed = true
    this.#withheld.add(detail ?? value)
    open.fields ??= {}
    open.fields[field] = value
    const format = filled(detail?.['format'])
    if (format !== null) open.fields['format'] = format
    const id = filled(detail?.['id'])
    // The encrypted part is bound to this id, which arrived too late to become the id of the item.
    if (id !== null && id !== open.id) open.fields['detail_id'] = id
  }
}

/** The id of the item that begins at detail `start`: often only its last, encrypted part has an id. */
function idAhead(details: readonly unknown[], start: number): string | null {
  for (let index = start; index < details.length; index++) {
    const detail = record(details[index])
    const id = filled(detail?.['id'])
    if (id !== null) return id
    if (filled(detail?.['signature']) !== null || filled(detail?.['data']) !== null) return null
  }
  return null
}

/** Texts of a thinking part: a string, or a list of `{type:"text", text}`. */
export function thinkingTexts(value: unknown): readonly string[] {
  if (typeof value === 'string') return [value]
  return (list(value) ?? []).map(part => filled(record(part)?.['text'])).filter(text => text !== null)
}
