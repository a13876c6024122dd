/**
 * Output items while they are being said: each builder owns the inner events of one item and, at its close,
 * gives the finished item. Hot path: a delta costs one event object and one string append.
 */
import { GatewayError } from '../errors.ts'
import type { ItemStart } from '../formats/format.ts'
import { itemId } from '../ids.ts'
import type { StreamEvent } from '../protocol/events.ts'
import type { Annotation, Logprob, OutputItem } from '../protocol/items.ts'

/** Takes an event whose `sequence_number` is still 0: the assembler alone numbers. */
export type EmitEvent = (event: StreamEvent) => void

export type ClosingStatus = 'completed' | 'incomplete'
export type ClosingFields = Readonly<Record<string, unknown>> | null

/** Where an item stands: the two fields that all its events share. */
interface Place {
  readonly item_id: string
  readonly output_index: number
}

interface MessagePart {
  readonly key: number
  readonly type: 'output_text' | 'refusal'
  readonly index: number
  text: string
  logprobs: Logprob[] | null
  readonly annotations: Annotation[]
  done: boolean
}

/** Builds what an item of one kind looks like at its beginning, and takes its deltas. */
export abstract class ItemBuilder {
  protected readonly place: Place
  protected readonly emit: EmitEvent

  constructor(place: Place, emit: EmitEvent) {
    this.place = place
    this.emit = emit
  }

  get outputIndex(): number {
    return this.place.output_index
  }

  text(_part: number, _text: string, _logprobs: readonly Logprob[] | null): void {
    throw misplaced('text')
  }
  refusal(_part: number, _text: string): void {
    throw misplaced('refusal')
  }
  annotation(_part: number, _annotation: Annotation): void {
    throw misplaced('annotation')
  }
  reasoning(_form: 'text' | 'summary', _part: number, _text: string): void {
    throw misplaced('reasoning')
  }
  arguments(_text: string): void {
    throw misplaced('arguments')
  }
  progress(_name: string, _fields: Readonly<Record<string, unknown>>): void {
    throw misplaced('progress')
  }
  /** The item as `output_item.added` shows it. */
  abstract begun(): OutputItem
  /** Emits what closes the item's inside and returns the finished item. */
  abstract close(fields: ClosingFields, status: ClosingStatus): OutputItem
}

/** A decoder addressed an item of another kind: a fault of ours, not of the provider. */
function misplaced(kind: string): GatewayError {
  return new GatewayError('internal', 'Internal Server Error', {
    cause: new TypeError(`${kind} for an item of another kind`),
  })
}

class MessageBuilder extends ItemBuilder {
  readonly #phase: string | null
  readonly #parts: MessagePart[] = []
  #current: MessagePart | null = null

  constructor(place: Place, emit: EmitEvent, phase: string | null) {
    super(place, emit)
    this.#phase = phase
  }

  begun(): OutputItem {
    return this.#item('in_progress', [])
  }

  override text(part: number, text: string, logprobs: readonly Logprob[] | null): void {
    const open = this.#part(part, 'output_text')
    open.text += text
    if (logprobs !== null && logprobs.length > 0) open.logprobs = [...(open.logprobs ?? []), ...logprobs]
    this.emit({
      type: 'response.output_text.delta',
      sequence_number: 0,
      item_id: this.place.item_id,
      output_index: this.place.output_index,
      content_index: open.index,
      delta: text,
      logprobs: logprobs === null ? [] : [...logprobs],
    })
  }

  override refusal(part: number, text: string): void {
    const open = this.#part(part, 'refusal')
    open.text += text
    this.emit({
      type: 'response.refusal.delta',
      sequence_number: 0,
      ...this.place,
      content_index: open.index,
      delta: text,
    })
  }

  override annotation(part: number, annotation: Annotation): void {
    const existing = this.#parts.find(candidate => candidate.key === part)
    const target = existing ?? this.#part(part, 'output_text')
    target.annotations.push(annotation)
    // A part that is done has been shown whole; a late annotation is then only in the final object.
    if (target.done) return
    this.emit({
      type: 'response.output_text.annotation.added',
      sequence_number: 0,
      ...this.place,
      content_index: target.index,
      annotation_index: target.annotations.length - 1,
      annotation,
    })
  }

  close(fields: ClosingFields, status: ClosingStatus): OutputItem {
    this.#finishPart()
    return {
      ...this.#item(status, this.#parts.map(shownPart)),
      ...fields,
      id: this.place.item_id,
    } as OutputItem
  }

  #part(key: number, type: MessagePart['type']): MessagePart {
    const current = this.#current
    if (current !== null && current.key === key && current.type === type) return current
    this.#finishPart()
    const part: MessagePart = {
      key,
      type,
      index: this.#parts.length,
      text: '',
      logprobs: null,
      annotations: [],
      done: false,
    }
    this.#parts.push(part)
    this.#current = part
    this.emit({
      type: 'response.content_part.added',
      sequence_number: 0,
      ...this.place,
      content_index: part.index,
      part: shownPart(part),
    })
    return part
  }

  #finishPart(): void {
    const part = this.#current
    if (part === null) return
    this.#current = null
    part.done = true
    if (part.type === 'output_text') {
      this.emit({
        type: 'response.output_text.done',
        sequence_number: 0,
        ...this.place,
        content_index: part.index,
        text: part.text,
        logprobs: part.logprobs ?? [],
      })
    } else {
      this.emit({
        type: 'response.refusal.done',
        sequence_number: 0,
        ...this.place,
        content_index: part.index,
        refusal: part.text,
      })
    }
    this.emit({
      type: 'response.content_part.done',
      sequence_number: 0,
      ...this.place,
      content_index: part.index,
      part: shownPart(part),
    })
  }

  #item(status: string, content: unknown[]): OutputItem {
    const item: Record<string, unknown> = {
      id: this.place.item_id,
      type: 'message',
      role: 'assistant',
      status,
      content,
    }
    if (this.#phase !== null) item['phase'] = this.#phase
    return item as unknown as OutputItem
  }
}

function shownPart(part: MessagePart) {
  if (part.type === 'refusal') return { type: 'refusal' as const, refusal: part.text }
  const shown = { type: 'output_text' as const, text: part.text, annotations: [...part.annotations] }
  return part.logprobs === null ? shown : { ...shown, logprobs: [...part.logprobs] }
}

interface ReasoningPart {
  readonly form: 'text' | 'summary'
  readonly key: number
  readonly index: number
  text: string
}

class ReasoningBuilder extends ItemBuilder {
  readonly #format: string | null
  readonly #parts: ReasoningPart[] = []
  #current: ReasoningPart | null = null

  constructor(place: Place, emit: EmitEvent, format: string | null) {
    super(place, emit)
    this.#format = format
  }

  begun(): OutputItem {
    return this.#item('in_progress')
  }

  override reasoning(form: 'text' | 'summary', key: number, text: string): void {
    const part = this.#part(form, key)
    part.text += text
    if (form === 'text') {
      this.emit({
        type: 'response.reasoning_text.delta',
        sequence_number: 0,
        ...this.place,
        content_index: part.index,
        delta: text,
      })
    } else {
      this.emit({
        type: 'response.reasoning_summary_text.delta',
        sequence_number: 0,
        ...this.place,
        summary_index: part.index,
        delta: text,
      })
    }
  }

  close(fields: ClosingFields, status: ClosingStatus): OutputItem {
    this.#finishPart()
    return { ...this.#item(status), ...fields, id: this.place.item_id } as OutputItem
  }

  #part(form: 'text' | 'summary', key: number): ReasoningPart {
    const current = this.#current
    if (current !== null && current.form === form && current.key === key) return current
    this.#finishPart()
    const index = this.#parts.filter(part => part.form === form).length
    const part: ReasoningPart = { form, key, index, text: '' }
    this.#parts.push(part)
    this.#current = part
    if (form === 'text') {
      this.emit({
        type: 'response.content_part.added',
        sequence_number: 0,
        ...this.place,
        content_index: index,
        part: { type: 'reasoning_text', text: '' },
      })
    } else {
      this.emit({
        type: 'response.reasoning_summary_part.added',
        sequence_number: 0,
        ...this.place,
        summary_index: index,
        part: { type: 'summary_text', text: '' },
      })
    }
    return part
  }

  #finishPart(): void {
    const part = this.#current
    if (part === null) return
    this.#current = null
    const { index, text } = part
    if (part.form === 'text') {
      this.emit({
        type: 'response.reasoning_text.done',
        sequence_number: 0,
        ...this.place,
        content_index: index,
        text,
      })
      this.emit({
        type: 'response.content_part.done',
        sequence_number: 0,
        ...this.place,
        content_index: index,
        part: { type: 'reasoning_text', text },
      })
    } else {
      this.emit({
        type: 'response.reasoning_summary_text.done',
        sequence_number: 0,
        ...this.place,
        summary_index: index,
        text,
      })
      this.emit({
        type: 'response.reasoning_summary_part.done',
        sequence_number: 0,
        ...this.place,
        summary_index: index,
        part: { type: 'summary_text', text },
      })
    }
  }

  #item(status: string): OutputItem {
    const item: Record<string, unknown> = {
      id: this.place.item_id,
      type: 'reasoning',
      status,
      summary: this.#texts('summary').map(text => ({ type: 'summary_text', text })),
    }
    const raw = this.#texts('text')
    if (raw.length > 0) item['content'] = raw.map(text => ({ type: 'reasoning_text', text }))
    if (this.#format !== null) item['format'] = this.#format
    return item as unknown as OutputItem
  }

  #texts(form: 'text' | 'summary'): string[] {
    return this.#parts.filter(part => part.form === form).map(part => part.text)
  }
}

interface CallStart {
  readonly callId: string
  readonly name: string
  readonly extra: Readonly<Record<string, unknown>> | null
}

class FunctionCallBuilder extends ItemBuilder {
  readonly #start: CallStart
  #arguments = ''

  constructor(place: Place, emit: EmitEvent, start: CallStart) {
    super(place, emit)
    this.#start = start
  }

  begun(): OutputItem {
    return this.#item('in_progress')
  }

  override arguments(text: string): void {
    this.#arguments += text
    this.emit({
      type: 'response.function_call_arguments.delta',
      sequence_number: 0,
      item_id: this.place.item_id,
      output_index: this.place.output_index,
      delta: text,
    })
  }

  close(fields: ClosingFields, status: ClosingStatus): OutputItem {
    // A call without arguments is a call with none: clients parse the string as JSON.
    if (this.#arguments === '' && status === 'completed') this.arguments('{}')
    this.emit({
      type: 'response.function_call_arguments.done',
      sequence_number: 0,
      ...this.place,
      name: this.#start.name,
      arguments: this.#arguments,
    })
    return { ...this.#item(status), ...fields, id: this.place.item_id } as OutputItem
  }

  #item(status: string): OutputItem {
    return {
      ...this.#start.extra,
      id: this.place.item_id,
      type: 'function_call',
      status,
      call_id: this.#start.callId,
      name: this.#start.name,
      arguments: this.#arguments,
    } as OutputItem
  }
}

class CustomToolCallBuilder extends ItemBuilder {
  readonly #start: CallStart
  #input = ''

  constructor(place: Place, emit: EmitEvent, start: CallStart) {
    super(place, emit)
    this.#start = start
  }

  begun(): OutputItem {
    return this.#item('in_progress')
  }

  override arguments(text: string): void {
    this.#input += text
    this.emit({
      type: 'response.custom_tool_call_input.delta',
      sequence_number: 0,
      ...this.place,
      delta: text,
    })
  }

  close(fields: ClosingFields, status: ClosingStatus): OutputItem {
    this.emit({
      type: 'response.custom_tool_call_input.done',
      sequence_number: 0,
      ...this.place,
      input: this.#input,
    })
    return { ...this.#item(status), ...fields, id: this.place.item_id } as OutputItem
  }

  #item(status: string): OutputItem {
    return {
      ...this.#start.extra,
      id: this.place.item_id,
      type: 'custom_tool_call',
      status,
      call_id: this.#start.callId,
      name: this.#start.name,
      input: this.#input,
    } as OutputItem
  }
}

class HostedBuilder extends ItemBuilder {
  readonly #item: OutputItem

  constructor(place: Place, emit: EmitEvent, item: OutputItem) {
    super(place, emit)
    this.#item = item
  }

  begun(): OutputItem {
    return { ...this.#item, id: this.place.item_id } as OutputItem
  }

  override progress(name: string, fields: Readonly<Record<string, unknown>>): void {
    this.emit({
      type: `response.${name}`,
      sequence_number: 0,
      ...fields,
      ...this.place,
    } as unknown as StreamEvent)
  }

  close(fields: ClosingFields, status: ClosingStatus): OutputItem {
    const item: Record<string, unknown> = { ...this.#item, ...fields, id: this.place.item_id }
    if (item['status'] === 'in_progress') item['status'] = status
    return item as unknown as OutputItem
  }
}

/** Builders by kind of item; `item_id` is the provider's own where it gave one. */
export function buildItem(start: ItemStart, outputIndex: number, emit: EmitEvent): ItemBuilder {
  switch (start.type) {
    case 'message':
      return new MessageBuilder(place(start.id ?? itemId('msg'), outputIndex), emit, start.phase)
    case 'reasoning':
      return new ReasoningBuilder(place(start.id ?? itemId('rs'), outputIndex), emit, start.format)
    case 'function_call': {
      const id = start.id ?? itemId('fc')
      return new FunctionCallBuilder(place(id, outputIndex), emit, callStart(start))
    }
    case 'custom_tool_call': {
      const id = start.id ?? itemId('ctc')
      return new CustomToolCallBuilder(place(id, outputIndex), emit, callStart(start))
    }
    case 'hosted': {
      const own: unknown = Reflect.get(start.item, 'id')
      return new HostedBuilder(
        place(typeof own === 'string' ? own : itemId('st'), outputIndex),
        emit,
        start.item,
      )
    }
  }
}

function place(itemId: string, outputIndex: number): Place {
  return { item_id: itemId, output_index: outputIndex }
}

function callStart(start: { callId: string | null; name: string; extra: CallStart['extra'] }): CallStart {
  return {
    callId: start.callId ?? itemId('fc').replace('fc_', 'call_'),
    name: start.name,
    extra: start.extra,
  }
}
