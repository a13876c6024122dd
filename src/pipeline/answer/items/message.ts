/** Builds a message: text parts, refusals and their annotations. Hot path. */

import { shortList } from '../../../base/lists.ts'
import { LongText } from '../../../formats/long-text.ts'
import type { OutputTextDeltaEvent } from '../../../protocol/events.ts'
import type { MessageItem, OutputItem } from '../../../protocol/items.ts'
import type { Annotation, Logprob } from '../../../protocol/parts.ts'
import { type CitableResults, CitationScanner } from './citations.ts'
import { type ClosingFields, type ClosingStatus, type EmitEvent, ItemBuilder } from './item.ts'

const NO_CITATIONS: readonly Annotation[] = []

interface MessagePart {
  /** The part number in the decoder. */
  readonly key: number
  readonly type: 'output_text' | 'refusal'
  readonly index: number
  readonly text: LongText
  logprobs: Logprob[] | null
  readonly annotations: Annotation[]
  /** Created for the first text that may cite search results. */
  citations: CitationScanner | null
  isDone: boolean
}

export class MessageBuilder extends ItemBuilder {
  readonly #phase: string | null
  readonly #parts: MessagePart[] = shortList()
  /** The first part of each key, to which annotations of that key are added; created for the first annotation. */
  #byKey: Map<number, MessagePart> | null = null
  #current: MessagePart | null = null

  constructor(id: string, outputIndex: number, emit: EmitEvent | null, phase: string | null) {
    super(id, outputIndex, emit)
    this.#phase = phase
  }

  firstForm(): OutputItem {
    return this.#item('in_progress', [])
  }

  override text(key: number, text: string, logprobs: readonly Logprob[] | null, isCut = false): void {
    const part = this.#part(key, 'output_text')
    part.text.add(text)
    if (logprobs !== null && logprobs.length > 0) {
      part.logprobs ??= []
      // One by one: the list may have any length, but the number of arguments of a call is limited.
      for (const logprob of logprobs) part.logprobs.push(logprob)
    }
    if (this.emit === null) return
    const event: OutputTextDeltaEvent = {
      type: 'response.output_text.delta',
      sequence_number: 0,
      item_id: this.id,
      output_index: this.outputIndex,
      content_index: part.index,
      delta: text,
      logprobs: logprobs === null ? [] : [...logprobs],
    }
    if (isCut) event.cut = true
    this.emit(event)
  }

  override refusal(key: number, text: string): void {
    const part = this.#part(key, 'refusal')
    part.text.add(text)
    this.emit?.({
      type: 'response.refusal.delta',
      sequence_number: 0,
      item_id: this.id,
      output_index: this.outputIndex,
      content_index: part.index,
      delta: text,
    })
  }

  override annotation(key: number, annotation: Annotation): void {
    this.#byKey ??= new Map(this.#parts.toReversed().map(part => [part.key, part]))
    this.#annotate(this.#byKey.get(key) ?? this.#part(key, 'output_text'), annotation)
  }

  #annotate(part: MessagePart, annotation: Annotation): void {
    part.annotations.push(annotation)
    // A part that is done has already been sent, so a late annotation appears only in the final object.
    if (part.isDone) return
    this.emit?.({
      type: 'response.output_text.annotation.added',
      sequence_number: 0,
      item_id: this.id,
      output_index: this.outputIndex,
      content_index: part.index,
      annotation_index: part.annotations.length - 1,
      annotation,
    })
  }

  override cite(key: number, text: string, results: CitableResults): void {
    const part = this.#part(key, 'output_text')
    part.citations ??= new CitationScanner(results)
    for (const citation of part.citations.push(text)) this.#annotate(part, citation)
  }

  /** Its text so far; null if it has anything else, or more than one part. */
  onlyText(): { readonly part: number; readonly text: string } | null {
    const [part, ...otherParts] = this.#parts
    if (part === undefined) return { part: 0, text: '' }
    if (otherParts.length > 0 || part.isDone || part.type !== 'output_text') return null
    return { part: part.key, text: part.text.toString() }
  }

  close(fields: ClosingFields, status: ClosingStatus): OutputItem {
    this.#finishPart()
    return this.withClosingFields(this.#item(status, this.#parts.map(toContent)), fields)
  }

  /** The part that the decoder addresses; a new part closes the previous one. */
  #part(key: number, type: MessagePart['type']): MessagePart {
    const current = this.#current
    if (current !== null && current.key === key && current.type === type) return current
    this.#finishPart()
    const index = this.#parts.length
    const part: MessagePart = {
      key,
      type,
      index,
      text: new LongText(),
      logprobs: null,
      annotations: [],
      citations: null,
      isDone: false,
    }
    this.#parts.push(part)
    if (this.#byKey?.has(key) === false) this.#byKey.set(key, part)
    this.#current = part
    this.#emitPart('response.content_part.added', part)
    return part
  }

  #finishPart(): void {
    const part = this.#current
    if (part === null) return
    for (const citation of part.citations?.end() ?? NO_CITATIONS) this.#annotate(part, citation)
    this.#current = null
    part.isDone = true
    if (part.type === 'output_text') {
      this.emit?.({
        type: 'response.output_text.done',
        sequence_number: 0,
        item_id: this.id,
        output_index: this.outputIndex,
        content_index: part.index,
        text: part.text.toString(),
        logprobs: [...(part.logprobs ?? [])],
      })
    } else {
      this.emit?.({
        type: 'response.refusal.done',
        sequence_number: 0,
        item_id: this.id,
        output_index: this.outputIndex,
        content_index: part.index,
        refusal: part.text.toString(),
      })
    }
    this.#emitPart('response.content_part.done', part)
  }

  #emitPart(type: 'response.content_part.added' | 'response.content_part.done', part: MessagePart): void {
    this.emit?.({
      type,
      sequence_number: 0,
      item_id: this.id,
      output_index: this.outputIndex,
      content_index: part.index,
      part: toContent(part),
    })
  }

  #item(status: MessageItem['status'], content: MessageItem['content']): MessageItem {
    const item: MessageItem = { id: this.id, type: 'message', role: 'assistant', status, content }
    if (this.#phase !== null) item.phase = this.#phase
    return item
  }
}

function toContent(part: MessagePart): MessageItem['content'][number] {
  if (part.type === 'refusal') return { type: 'refusal', refusal: part.text.toString() }
  const text = {
    type: 'output_text' as const,
    text: part.text.toString(),
    annotations: [...part.annotations],
  }
  return part.logprobs === null ? text : { ...text, logprobs: [...part.logprobs] }
}
