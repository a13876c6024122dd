/** Builds a reasoning item: raw thinking as content, summaries as summary. Hot path. */

import { shortList } from '../../../base/lists.ts'
import { LongText } from '../../../formats/long-text.ts'
import type { OutputItem, ReasoningItem } from '../../../protocol/items.ts'
import { SEALED_BY, type SealedBy, sealThought } from '../../../protocol/sealed-content.ts'
import { type ClosingFields, type ClosingStatus, type EmitEvent, ItemBuilder } from './item.ts'

type Form = 'text' | 'summary'

interface ReasoningPart {
  readonly form: Form
  /** The part number in the decoder. */
  readonly key: number
  /** Counted separately for each form. */
  readonly index: number
  readonly text: LongText
}

export class ReasoningBuilder extends ItemBuilder {
  readonly #format: string | null
  readonly #parts: ReasoningPart[] = shortList()
  readonly #counts: Record<Form, number> = { text: 0, summary: 0 }
  #current: ReasoningPart | null = null

  constructor(id: string, outputIndex: number, emit: EmitEvent | null, format: string | null) {
    super(id, outputIndex, emit)
    this.#format = format
  }

  firstForm(): OutputItem {
    return this.#item('in_progress')
  }

  override reasoning(form: Form, key: number, text: string): void {
    const part = this.#part(form, key)
    part.text.add(text)
    if (form === 'text') {
      this.emit?.({
        type: 'response.reasoning_text.delta',
        sequence_number: 0,
        item_id: this.id,
        output_index: this.outputIndex,
        content_index: part.index,
        delta: text,
      })
    } else {
      this.emit?.({
        type: 'response.reasoning_summary_text.delta',
        sequence_number: 0,
        item_id: this.id,
        output_index: this.outputIndex,
        summary_index: part.index,
        delta: text,
      })
    }
  }

  close(fields: ClosingFields, status: ClosingStatus): OutputItem {
    this.#finishPart()
    const sealedBy = (fields as { readonly [SEALED_BY]?: SealedBy } | null | undefined)?.[SEALED_BY]
    if (sealedBy === undefined) return this.withClosingFields(this.#item(status), fields)
    const texts = this.#parts.filter(part => part.form === 'text').map(part => part.text.toString())
    const thought = { format: this.#format ?? '', signature: sealedBy.signature, text: texts.join('') }
    const sealedFields = { ...fields, encrypted_content: sealThought(thought, sealedBy.maker) }
    return this.withClosingFields(this.#item(status), sealedFields)
  }

  /** The part that the decoder addresses; a new part closes the previous one. */
  #part(form: Form, key: number): ReasoningPart {
    const current = this.#current
    if (current !== null && current.form === form && current.key === key) return current
    this.#finishPart()
    const part: ReasoningPart = { form, key, index: this.#counts[form]++, text: new LongText() }
    this.#parts.push(part)
    this.#current = part
    if (form === 'text') this.#emitContentPart('response.content_part.added', part)
    else this.#emitSummaryPart('response.reasoning_summary_part.added', part)
    return part
  }

  #finishPart(): void {
    const part = this.#current
    if (part === null) return
    this.#current = null
    if (part.form === 'text') {
      this.emit?.({
        type: 'response.reasoning_text.done',
        sequence_number: 0,
        item_id: this.id,
        output_index: this.outputIndex,
        content_index: part.index,
        text: part.text.toString(),
      })
      this.#emitContentPart('response.content_part.done', part)
    } else {
      this.emit?.({
        type: 'response.reasoning_summary_text.done',
        sequence_number: 0,
        item_id: this.id,
        output_index: this.outputIndex,
        summary_index: part.index,
        text: part.text.toString(),
      })
      this.#emitSummaryPart('response.reasoning_summary_part.done', part)
    }
  }

  #emitContentPart(
    type: 'response.content_part.added' | 'response.content_part.done',
    part: ReasoningPart,
  ): void {
    this.emit?.({
      type,
      sequence_number: 0,
      item_id: this.id,
      output_index: this.outputIndex,
      content_index: part.index,
      part: { type: 'reasoning_text', text: part.text.toString() },
    })
  }

  #emitSummaryPart(
    type: 'response.reasoning_summary_part.added' | 'response.reasoning_summary_part.done',
    part: ReasoningPart,
  ): void {
    this.emit?.({
      type,
      sequence_number: 0,
      item_id: this.id,
      output_index: this.outputIndex,
      summary_index: part.index,
      part: { type: 'summary_text', text: part.text.toString() },
    })
  }

  #item(status: NonNullable<ReasoningItem['status']>): ReasoningItem {
    const item: ReasoningItem = {
      id: this.id,
      type: 'reasoning',
      status,
      summary: this.#texts('summary').map(text => ({ type: 'summary_text', text })),
    }
    const raw = this.#texts('text')
    if (raw.length > 0) item.content = raw.map(text => ({ type: 'reasoning_text', text }))
    if (this.#format !== null) item.format = this.#format
    return item
  }

  #texts(form: Form): string[] {
    return this.#parts.filter(part => part.form === form).map(part => part.text.toString())
  }
}
