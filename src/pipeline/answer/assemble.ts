/**
 * Assembler: turns the deltas of an answer into output items and their events. It sets item ids and output indexes;
 * the Answer numbers the events. Hot path.
 */

import { itemId } from '../../base/ids.ts'
import { shortList } from '../../base/lists.ts'
import type { Delta, FinishReason, HostedStart, ItemStart } from '../../formats/format.ts'
import type { WholeMessage } from '../../formats/whole-message.ts'
import type { MessageItem, OutputItem } from '../../protocol/items.ts'
import type { Annotation, Citable } from '../../protocol/parts.ts'
import { CallBuilder } from './items/call.ts'
import { CitableResults } from './items/citations.ts'
import {
  type ClosingFields,
  type ClosingStatus,
  type EmitEvent,
  HostedBuilder,
  type ItemBuilder,
} from './items/item.ts'
import { MessageBuilder } from './items/message.ts'
import { ReasoningBuilder } from './items/reasoning.ts'

/** The deltas that are content: all except the bookkeeping ones. */
export type Content = Exclude<Delta, { kind: 'start' | 'usage' | 'finish' }>

/** Finish reasons that leave a response incomplete. */
export const INCOMPLETE: Partial<Record<FinishReason, 'max_output_tokens' | 'content_filter'>> = {
  length: 'max_output_tokens',
  content_filter: 'content_filter',
}

const NONE: readonly never[] = []

export class Assembler {
  readonly #emit: EmitEvent | null
  /** Null until an item opens: a reply that is one message has none. */
  #open: OpenItems | null = null
  /** Open items of our own. */
  #own: readonly ItemBuilder[] = NONE
  /** Items of all turns by output index, each in its first form until it is done. Written only here. */
  output: OutputItem[] = shortList()
  /** Output indexes at which the running turn begins, and at which the model's own items in it begin. */
  #turnFrom = 0
  #saidFrom = 0
  /** Annotations for the first text that the model did not write. */
  #notes: readonly Annotation[] = []
  /** True once the notes were added to a text. */
  #noted = false
  #notedBefore = false
  /** Annotations from tools; those from `#toldFrom` on wait for the next text. */
  readonly #found: Annotation[] = []
  #toldFrom = 0
  #toldBefore = 0
  /** Null if no search result may be cited. */
  #citable: CitableResults | null = null

  /** `emit` is null if nobody reads events; none are then created. */
  constructor(emit: EmitEvent | null) {
    this.#emit = emit
  }

  /** Begins a model call: its decoder counts items from the start again. */
  openTurn(): void {
    this.#open?.clear()
    this.#turnFrom = this.output.length
    this.#saidFrom = this.output.length
    this.#notedBefore = this.#noted
    this.#toldBefore = this.#toldFrom
    this.#citable?.openTurn()
  }

  /** Drops the running turn. */
  dropTurn(): void {
    this.#open?.clear()
    this.output.length = this.#turnFrom
    this.#saidFrom = this.#turnFrom
    this.#noted = this.#notedBefore
    this.#toldFrom = this.#toldBefore
    this.#citable?.dropTurn()
  }

  /** Adds these annotations to the first text of the answer. Call it before the turn has any content. */
  annotate(annotations: readonly Annotation[]): void {
    this.#notes = annotations
  }

  /** Adds these annotations to the next text. */
  note(annotations: readonly Annotation[]): void {
    this.#found.push(...annotations)
  }

  /** Results that later texts may cite; returns their numbers. `ofWhole`: see `CitableResults`. */
  cite(results: readonly Citable[], ofWhole: boolean): readonly number[] {
    this.#citable ??= new CitableResults()
    return this.#citable.add(results, ofWhole)
  }

  receive(delta: Content): void {
    switch (delta.kind) {
      case 'text':
        this.#item(delta.item).text(delta.part, delta.text, delta.logprobs, delta.cut === true)
        if (this.#citable !== null) this.#item(delta.item).cite(delta.part, delta.text, this.#citable)
        if (!this.#noted && this.#notes.length > 0) this.#note(this.#item(delta.item), delta.part)
        if (this.#toldFrom < this.#found.length) this.#tellFound(this.#item(delta.item), delta.part)
        break
      case 'arguments':
        this.#item(delta.item).arguments(delta.text)
        break
      case 'reasoning':
        this.#item(delta.item).reasoning(delta.form, delta.part, delta.text)
        break
      case 'open': {
        const item = buildItem(delta.start, this.output.length, this.#emit)
        this.#open ??= new OpenItems()
        this.#open.add(delta.item, item)
        this.#add(item)
        break
      }
      case 'close':
        this.#close(delta.item, delta.fields, 'completed')
        break
      case 'refusal':
        this.#item(delta.item).refusal(delta.part, delta.text)
        break
      case 'annotation':
        this.#item(delta.item).annotation(delta.part, delta.annotation)
        break
      case 'progress':
        this.#item(delta.item).progress(delta.name, delta.fields)
        break
    }
  }

  /** Adds a message of the model. */
  message({ id, phase, status, text }: Omit<WholeMessage, 'json'>): void {
    const item: MessageItem = {
      id: id ?? itemId('msg'),
      type: 'message',
      role: 'assistant',
      status,
      content: [{ type: 'output_text', text, annotations: [] }],
    }
    if (phase !== null) item.phase = phase
    this.output.push(item)
  }

  /** Closes open items as the model ended them. Returns the model's items of the turn. */
  closeTurn(reason: FinishReason): readonly OutputItem[] {
    this.closeAll(INCOMPLETE[reason] === undefined ? 'completed' : 'incomplete')
    return this.output.slice(this.#saidFrom)
  }

  /** Replaces the items of the running turn. Only for readers who see no events. */
  replaceTurn(output: readonly OutputItem[]): void {
    this.output = [...this.output.slice(0, this.#saidFrom), ...output]
  }

  /**
   * Closes open items. Only the last item can be cut off: the model itself completed the ones before it, except for
   * calls, which may be written side by side.
   */
  closeAll(lastStatus: ClosingStatus): void {
    const keys = this.#open?.keys() ?? NONE
    for (const [at, key] of keys.entries()) {
      const isOver = at < keys.length - 1 && (lastStatus === 'completed' || this.#item(key).isWhole)
      this.#close(key, null, isOver ? 'completed' : lastStatus)
    }
    for (const builder of this.#own) this.endItem(builder, null, lastStatus)
  }

  /** Adds finished items of our own before the model's first content in the turn. */
  show(items: readonly HostedStart[]): void {
    for (const item of items)
      this.endItem(this.addItem({ ...item, status: 'in_progress' }), item, 'completed')
    this.#saidFrom = this.output.length
  }

  /** Begins an item of our own between two turns, such as the call of a server tool. */
  addItem(item: HostedStart): ItemBuilder {
    const builder = buildItem({ type: 'hosted', item }, this.output.length, this.#emit)
    this.#own = [...this.#own, builder]
    this.#add(builder)
    return builder
  }

  /** Ends an item that `addItem` began. */
  endItem(builder: ItemBuilder, fields: ClosingFields, status: ClosingStatus): OutputItem {
    const item = builder.close(fields, status)
    this.leaveItem(builder)
    this.output[builder.outputIndex] = item
    this.#emit?.({
      type: 'response.output_item.done',
      sequence_number: 0,
      output_index: builder.outputIndex,
      item,
    })
    return item
  }

  /** Leaves an item of our own open: nothing in this answer ends it. */
  leaveItem(builder: ItemBuilder): void {
    this.#own = this.#own.filter(one => one !== builder)
  }

  #add(builder: ItemBuilder): void {
    const firstForm = builder.firstForm()
    this.output.push(firstForm)
    this.#emit?.({
      type: 'response.output_item.added',
      sequence_number: 0,
      output_index: builder.outputIndex,
      item: firstForm,
    })
  }

  #item(key: number): ItemBuilder {
    const item = this.#open?.of(key)
    if (item == null) throw new TypeError(`decoder addressed item ${key}, which is not open`)
    return item
  }

  #note(item: ItemBuilder, part: number): void {
    this.#noted = true
    for (const note of this.#notes) item.annotation(part, note)
  }

  #tellFound(item: ItemBuilder, part: number): void {
    const waiting = this.#found.slice(this.#toldFrom)
    this.#toldFrom = this.#found.length
    for (const note of waiting) item.annotation(part, note)
  }

  #close(key: number, fields: ClosingFields, status: ClosingStatus): void {
    const builder = this.#item(key)
    this.#open?.remove(key)
    this.endItem(builder, fields, status)
  }
}

/** Open items of the running turn, by the numbers of its decoder. Most replies have one at a time. */
class OpenItems {
  #lastKey = -1
  #last: ItemBuilder | null = null
  /** Items that were opened before the last one, in order. */
  #earlier: Map<number, ItemBuilder> | null = null

  add(key: number, item: ItemBuilder): void {
    if (this.#last !== null) {
      this.#earlier ??= new Map()
      this.#earlier.set(this.#lastKey, this.#last)
    }
    this.#lastKey = key
    this.#last = item
  }

  of(key: number): ItemBuilder | null {
    return key === this.#lastKey ? this.#last : (this.#earlier?.get(key) ?? null)
  }

  remove(key: number): void {
    if (key === this.#lastKey) this.#last = null
    else this.#earlier?.delete(key)
  }

  /** In order of opening. */
  keys(): readonly number[] {
    const earlier = this.#earlier === null ? [] : [...this.#earlier.keys()]
    return this.#last === null ? earlier : [...earlier, this.#lastKey]
  }

  clear(): void {
    this.#last = null
    this.#earlier = null
  }
}

/** Creates the builder for a new item. The item keeps the provider's id if there is one. */
export function buildItem(start: ItemStart, outputIndex: number, emit: EmitEvent | null): ItemBuilder {
  switch (start.type) {
    case 'message':
      return new MessageBuilder(start.id ?? itemId('msg'), outputIndex, emit, start.phase)
    case 'reasoning':
      return new ReasoningBuilder(start.id ?? itemId('rs'), outputIndex, emit, start.format)
    case 'function_call':
      return new CallBuilder(start.id ?? itemId('fc'), outputIndex, emit, start)
    case 'custom_tool_call':
      return new CallBuilder(start.id ?? itemId('ctc'), outputIndex, emit, start)
    case 'hosted': {
      const itsId = start.item['id']
      return new HostedBuilder(
        typeof itsId === 'string' ? itsId : itemId('st'),
        outputIndex,
        emit,
        start.item,
      )
    }
  }
}
