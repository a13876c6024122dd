/**
 * Answer: everything that a client gets in one exchange. It turns the deltas of models into output items and events,
 * and owns ids, indexes, event numbers, commit point and sink. It outlives attempts and turns; a turn may be dropped
 * until its first event reaches a live sink. Hot path.
 *
 * Order: debug events, created, in_progress, then added … done for each item, then one terminal event.
 */
import type { GatewayError } from '../../base/errors.ts'
import { itemId } from '../../base/ids.ts'
import { shortList } from '../../base/lists.ts'
import type { RequestSignal } from '../../base/signal.ts'
import { type Held, UNCOUNTED } from '../../exchange/exchange.ts'
import type { Delta, FinishReason, HostedStart } from '../../formats/format.ts'
import type { WholeMessage } from '../../formats/whole-message.ts'
import type { DebugFacts, StreamEvent } from '../../protocol/events.ts'
import type { MessageItem, OutputItem } from '../../protocol/items.ts'
import type { Annotation, Citable } from '../../protocol/parts.ts'
import type { ResponseResource } from '../../protocol/response.ts'
import type { DebugNotes } from './debug.ts'
import { Draft, readerGoesOn } from './draft.ts'
import { CitableResults } from './items/citations.ts'
import type { ClosingFields, ClosingStatus, EmitEvent, ItemBuilder } from './items/item.ts'
import { MessageBuilder } from './items/message.ts'
import { buildItem, OpenItems } from './items/open-items.ts'
import { deltasOf, freshId } from './repeated-items.ts'
import { type Ending, endedResponse, failedResponse } from './response-object.ts'
import type { Sink } from './sink.ts'

/** The source of events, which the answer pauses while its reader is slow. */
interface AnswerSource {
  pause(): void
  resume(): void
}

/** An event within an output item, as it is kept: its number and the id of its item belong to one answer. */
export type ItemEvent =
  | {
      readonly type: 'response.output_item.added' | 'response.output_item.done'
      readonly output_index: number
      readonly item: OutputItem
    }
  | {
      readonly type: Exclude<StreamEvent['type'], 'response.output_item.added' | 'response.output_item.done'>
      readonly output_index: number
    }

/** The deltas that are content: all except the bookkeeping ones. */
export type Content = Exclude<Delta, { kind: 'start' | 'usage' | 'finish' }>

/** Finish reasons that leave a response incomplete. */
const INCOMPLETE_REASONS: Partial<Record<FinishReason, 'max_output_tokens' | 'content_filter'>> = {
  length: 'max_output_tokens',
  content_filter: 'content_filter',
}

const EMPTY_LIST: readonly never[] = []

/** A text that is being written. */
export interface OpenText {
  /** The numbers of its item and part in the decoder. */
  readonly item: number
  readonly part: number
  readonly text: string
}

/** True for a thought that any model may read. */
function isOpenThought({
  type,
  signature,
  encrypted_content: sealed,
}: OutputItem & { readonly signature?: unknown; readonly encrypted_content?: unknown }): boolean {
  return type === 'reasoning' && signature == null && sealed == null
}

export class Answer {
  /** Public, because reads from a provider are corked and relayed there without a call of this class in between. */
  readonly sink: Sink
  readonly #held: Held
  readonly #response: ResponseResource
  /** Null if nobody reads events; none are then created. */
  readonly #emit: EmitEvent | null
  /** Null until an item opens: a reply that is one message has none. */
  #open: OpenItems | null = null
  /** Open items of our own. */
  #ownItems: readonly ItemBuilder[] = EMPTY_LIST
  /** Items of all turns by output index, each in its first form until it is done. Written only here. */
  output: OutputItem[] = shortList()
  /** Output indexes at which the running turn begins, and at which the model's own items in it begin. */
  #turnStart = 0
  #modelStart = 0
  /** Annotations of plugins for the first text of the answer. */
  #firstAnnotations: readonly Annotation[] = []
  /** True once these annotations were added to a text. */
  #hasAnnotated = false
  #hadAnnotated = false
  /** Annotations from tools. The first `#deliveredCount` of them are in a text; the others wait for the next text. */
  readonly #toolAnnotations: Annotation[] = []
  #deliveredCount = 0
  #deliveredBefore = 0
  /** Null if no search result may be cited. */
  #citable: CitableResults | null = null
  /** Holds the running turn back; null: its events are sent at once. */
  #draft: Draft | null = null
  /** Number of the next event. */
  nextEventNumber = 0
  /** True if the client sees written events at once. */
  readonly live: boolean
  /** True if the opening events were written and not dropped again. Written only here. */
  hasBegun = false
  /** True if texts are searched for citations, so that every text has to be read. Written only here. */
  cites = false
  /** True if its items are read at the end, so no placeholder may stand for a text. */
  isRead = false
  #hadBegun = false
  #turnSeen = false
  /** True if events reach the client in another way; see `overhear`. */
  #isSilent = false
  /** Called with each event, for the relay. */
  #listener: ((event: StreamEvent) => void) | null = null
  #source: AnswerSource | null = null
  /** Finished items of our own that wait for the model to begin, and those already shown in the running turn. */
  #waitingItems: HostedStart[] = []
  #shownItems: HostedStart[] = []
  #isInTurn = false
  /** Continues `pass`; null unless it waits for the reader. */
  #continuePass: (() => void) | null = null

  readonly #deliver = (event: StreamEvent): void => {
    if (this.#isSilent) {
      this.sink.overhear?.(event)
      return
    }
    if (this.#draft === null) {
      const flowing = this.#write(event)
      this.#listener?.(event)
      if (!flowing) this.#source?.pause()
    } else this.#draft.add(event)
  }

  readonly #wait = (goOn: (() => void) | null): void => {
    this.#continuePass = goOn
  }

  /** `response` is the echoed request (see response-object.ts); the answer owns it from here on. */
  constructor(sink: Sink, response: ResponseResource, held: Held = UNCOUNTED) {
    this.sink = sink
    this.live = sink.live
    this.#held = held
    this.#response = response
    this.#emit = sink.live ? this.#deliver : null
    if (sink.live)
      sink.onDrain(() => (this.#continuePass === null ? this.#source?.resume() : this.#continuePass()))
  }

  /** True once the client has seen something: from then on, failures are sent in the stream. */
  get committed(): boolean {
    return this.live && this.nextEventNumber > 0
  }

  /** True once the client has seen something of the running turn, which can then no longer be dropped. */
  get turnSeen(): boolean {
    return this.#turnSeen
  }

  /** The text that the model is writing, if nothing but open thoughts stands before it in the turn; otherwise null. */
  openText(): OpenText | null {
    const [item, ...otherItems] = this.#open?.keys() ?? EMPTY_LIST
    if (item === undefined || otherItems.length > 0) return null
    const message = this.#open?.of(item)
    if (!(message instanceof MessageBuilder)) return null
    const isPlain = this.output
      .slice(this.#modelStart)
      .every((entry, index, entries) => index === entries.length - 1 || isOpenThought(entry))
    const open = isPlain ? message.onlyText() : null
    return open === null ? null : { item, ...open }
  }

  /** Reports that another endpoint continues the answer, after this many characters of its text. */
  tellContinued(model: string, provider: string, characters: number): void {
    this.#deliver({
      type: 'response.gateway.continued',
      sequence_number: 0,
      model,
      provider,
      continued_at: characters,
    })
  }

  /** The dialect whose frames `relay` accepts as bytes; null while every event has to be written. */
  get relays(): Sink['relays'] {
    return this.#draft === null ? this.sink.relays : null
  }

  /** Begins a model call. `isHeld`: none of its events are sent before `pass`. */
  openTurn(isHeld: boolean): void {
    // The decoder of a model call counts items from the start.
    this.#open?.clear()
    this.#turnStart = this.output.length
    this.#modelStart = this.output.length
    this.#hadAnnotated = this.#hasAnnotated
    this.#deliveredBefore = this.#deliveredCount
    this.#citable?.openTurn()
    this.#draft = isHeld && this.live ? new Draft(this.#held) : null
    this.#hadBegun = this.hasBegun
    this.#turnSeen = false
    this.#listener = null
    this.#shownItems = []
    this.#isInTurn = true
  }

  /** Drops the running turn, which the client has not seen, so that another attempt can replace it. */
  dropTurn(): void {
    if (this.#turnSeen) throw new TypeError('the client has seen some of the turn')
    this.#open?.clear()
    this.output.length = this.#turnStart
    this.#modelStart = this.#turnStart
    this.#hasAnnotated = this.#hadAnnotated
    this.#deliveredCount = this.#deliveredBefore
    this.#citable?.dropTurn()
    this.#draft?.drain()
    this.hasBegun = this.#hadBegun
    this.#listener = null
    this.#waitingItems.unshift(...this.#shownItems)
    this.#shownItems = []
    if (!this.hasBegun) this.nextEventNumber = 0
  }

  /** Adds these annotations to the first text of the answer. Call it before the turn has any content. */
  annotate(annotations: readonly Annotation[]): void {
    this.#firstAnnotations = annotations
  }

  /** Adds results of a search that later texts may cite, and returns their numbers. `ofWhole`: see `CitableResults`. */
  cite(results: readonly Citable[], ofWhole: boolean): readonly number[] {
    this.cites = true
    this.#citable ??= new CitableResults()
    return this.#citable.add(results, ofWhole)
  }

  /** Adds these annotations to the next text of the answer. */
  annotateNext(annotations: readonly Annotation[]): void {
    this.#toolAnnotations.push(...annotations)
  }

  /**
   * Writes the opening events. `model`: catalogue id of the model that answers; `provider`: display name of its
   * provider; `debug`: facts that the caller requested; `read`: input that the provider has already reported.
   */
  begin(
    model: string,
    provider: string | null,
    debug: readonly DebugFacts[],
    read: ResponseResource['prompt_usage'] | null = null,
  ): void {
    this.hasBegun = true
    this.#response.model = model
    if (provider !== null) this.#response.provider = provider
    if (!this.live) return
    this.#debug(debug)
    const created = read === null ? { ...this.#response } : { ...this.#response, prompt_usage: read }
    this.#deliver({ type: 'response.created', sequence_number: 0, response: created })
    this.#deliver({ type: 'response.in_progress', sequence_number: 0, response: { ...this.#response } })
  }

  #debug(facts: readonly DebugFacts[]): void {
    for (const debug of facts) this.#deliver({ type: 'response.debug', sequence_number: 0, debug })
  }

  receive(delta: Content): void {
    switch (delta.kind) {
      case 'text':
        this.#item(delta.item).text(delta.part, delta.text, delta.logprobs, delta.cut === true)
        if (this.#citable !== null) this.#item(delta.item).cite(delta.part, delta.text, this.#citable)
        if (!this.#hasAnnotated && this.#firstAnnotations.length > 0)
          this.#annotateFirst(this.#item(delta.item), delta.part)
        if (this.#deliveredCount < this.#toolAnnotations.length)
          this.#annotateFromTools(this.#item(delta.item), delta.part)
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

  /** Repeats an event of an earlier answer, with the ids of this one. */
  repeat(event: ItemEvent): void {
    const { type, output_index: index } = event
    if (type === 'response.output_item.added' || type === 'response.output_item.done') {
      const item = { ...event.item, id: this.output[index]?.id ?? freshId(event.item) }
      this.output[index] = item
      if (this.live) this.#deliver({ type, sequence_number: 0, output_index: index, item })
      return
    }
    if (!this.live) return
    const { type: _type, ...fields } = event
    const repeatedEvent = { type, sequence_number: 0, item_id: this.output[index]?.id ?? '', ...fields }
    this.#deliver(repeatedEvent as unknown as StreamEvent)
  }

  /** Repeats a whole item of an earlier answer. */
  repeatItem(item: OutputItem): void {
    if (!this.live) {
      this.output.push({ ...item, id: freshId(item) })
      return
    }
    const deltas = deltasOf(item, this.output.length)
    if (deltas !== null) for (const delta of deltas) this.receive(delta)
    else {
      const hosted = { ...(item as HostedStart), id: freshId(item) }
      this.endItem(this.addItem({ ...hosted, status: 'in_progress' }), hosted, 'completed')
    }
  }

  /** Adds a message of the model. Only for readers who see no events, and only if nothing cites results. */
  message({ id, phase, status, text, json }: WholeMessage): void {
    const storedText = json === null || this.isRead ? text : (this.sink.keep?.(json) ?? text)
    const item: MessageItem = {
      id: id ?? itemId('msg'),
      type: 'message',
      role: 'assistant',
      status,
      content: [{ type: 'output_text', text: storedText, annotations: [] }],
    }
    if (phase !== null) item.phase = phase
    this.output.push(item)
  }

  /** Adds a finished item of our own: immediately between two turns, otherwise before the model's first content. */
  show(item: HostedStart): void {
    this.#waitingItems.push(item)
    if (this.hasBegun && !this.#isInTurn) this.showWaiting()
  }

  /** Adds the waiting items. Call it when the model's content begins. */
  showWaiting(): void {
    if (this.#waitingItems.length === 0) return
    const items = this.#waitingItems
    this.#waitingItems = []
    this.#shownItems.push(...items)
    for (const item of items)
      this.endItem(this.addItem({ ...item, status: 'in_progress' }), item, 'completed')
    this.#modelStart = this.output.length
  }

  /** Closes open items as the model ended them. Returns the model's items of the turn. */
  closeTurn(reason: FinishReason): readonly OutputItem[] {
    this.#isInTurn = false
    this.#listener = null
    this.#closeAll(INCOMPLETE_REASONS[reason] === undefined ? 'completed' : 'incomplete')
    return this.output.slice(this.#modelStart)
  }

  /** Replaces the items of the running turn. Only for readers who see no events. */
  replaceTurn(output: readonly OutputItem[]): void {
    this.output = [...this.output.slice(0, this.#modelStart), ...output]
  }

  /**
   * Releases a turn that was held back, no faster than the reader accepts it. Rejects with the reason of the signal.
   */
  async pass(signal: RequestSignal): Promise<void> {
    signal.throwIfAborted()
    const draft = this.#draft
    if (draft === null) return
    this.#draft = null
    for (const event of draft.drain()) {
      this.sink.cork()
      if (!this.#write(event)) await readerGoesOn(signal, this.#wait)
    }
    if (!this.sink.flush()) await readerGoesOn(signal, this.#wait)
  }

  /** Begins an item of our own, such as the call of a server tool. */
  addItem(item: HostedStart): ItemBuilder {
    const builder = buildItem({ type: 'hosted', item }, this.output.length, this.#emit)
    this.#ownItems = [...this.#ownItems, builder]
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

  /** Leaves an item that `addItem` began open: a later answer ends it. */
  leaveItem(builder: ItemBuilder): void {
    this.#ownItems = this.#ownItems.filter(ownItem => ownItem !== builder)
  }

  /** Ends the response as the model ended it, and the sink. */
  finish(reason: FinishReason, ending: Ending): void {
    if (this.live) this.sink.cork()
    this.#finish(reason, ending)
    this.sink.end()
  }

  /** Ends the response with a failure, and the sink; earlier output is kept, and open items are marked incomplete. */
  fail(error: GatewayError, ending: Ending): void {
    this.sink.cork()
    // To a client, a reply that runs out of context is a reply that ended because of its length.
    if (error.code === 'context_length_exceeded' && this.output.length > 0) this.#finish('length', ending)
    else this.#fail(error, ending)
    this.sink.end()
  }

  /** Allows later events to be sent together, at the latest by `flush` in the same turn of the event loop. */
  hold(): void {
    if (this.#draft === null) this.sink.cork()
  }

  /** Writes the held events. False if the reader is slow. */
  flush(): boolean {
    return this.#draft !== null || this.sink.flush()
  }

  /** Sets the source to pause while the reader is slow; null if there is none. */
  follow(source: AnswerSource | null): void {
    this.#source = source
  }

  /** Sets the listener for every event, until the turn ends. */
  listen(listener: (event: StreamEvent) => void): void {
    this.#listener = listener
  }

  /**
   * Counts `count` events that reached the client as bytes. `supply` supplies their texts, in any pieces; nothing is
   * written for them.
   */
  overhear(count: number, supply: () => void): void {
    this.#isSilent = true
    try {
      supply()
    } finally {
      this.#isSilent = false
      this.nextEventNumber += count
      if (count > 0 && this.live) this.#turnSeen = true
    }
  }

  #finish(reason: FinishReason, ending: Ending): void {
    const incomplete = INCOMPLETE_REASONS[reason]
    this.#isInTurn = false
    this.#listener = null
    // A reply that is a single message has no open items.
    if (this.#open !== null || this.#ownItems.length > 0)
      this.#closeAll(incomplete === undefined ? 'completed' : 'incomplete')
    if (this.#waitingItems.length > 0) this.showWaiting()
    const response = endedResponse(this.#response, this.output, ending)
    if (ending.fields !== undefined) Object.assign(response, ending.fields)
    if (ending.debug !== undefined) this.#reportDebug(response, ending.debug, ending.isBatched === true)
    if (incomplete === undefined) {
      response.status = 'completed'
      this.#deliver({ type: 'response.completed', sequence_number: 0, response })
    } else {
      response.status = 'incomplete'
      response.incomplete_details = { reason: incomplete }
      this.#deliver({ type: 'response.incomplete', sequence_number: 0, response })
    }
  }

  /** Sends the remaining facts: in a stream as events before the last one, otherwise in the reply. */
  #reportDebug(response: ResponseResource, debug: DebugNotes, isBatched: boolean): void {
    if (this.live) this.#debug(debug.unsentTimings())
    else {
      const report = debug.report(isBatched)
      if (report !== undefined) response.debug = report
    }
  }

  #fail(error: GatewayError, ending: Ending): void {
    this.#closeAll('incomplete')
    if (ending.debug !== undefined) this.#debug(ending.debug.unsentTimings())
    const response = endedResponse(this.#response, this.output, ending)
    this.#deliver({ type: 'response.failed', sequence_number: 0, response: failedResponse(response, error) })
  }

  /** Numbers the event when it is sent, so that dropped events never use up a number. */
  #write(event: StreamEvent): boolean {
    event.sequence_number = this.nextEventNumber++
    if (this.live) this.#turnSeen = true
    return this.sink.write(event)
  }

  /**
   * Closes open items. Only the last item can be cut off: the model itself completed the ones before it, except for
   * calls, which may be written side by side.
   */
  #closeAll(lastStatus: ClosingStatus): void {
    const keys = this.#open?.keys() ?? EMPTY_LIST
    for (const [index, key] of keys.entries()) {
      const isOver = index < keys.length - 1 && (lastStatus === 'completed' || this.#item(key).isWhole)
      this.#close(key, null, isOver ? 'completed' : lastStatus)
    }
    for (const builder of this.#ownItems) this.endItem(builder, null, lastStatus)
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

  #annotateFirst(item: ItemBuilder, part: number): void {
    this.#hasAnnotated = true
    for (const note of this.#firstAnnotations) item.annotation(part, note)
  }

  #annotateFromTools(item: ItemBuilder, part: number): void {
    const annotations = this.#toolAnnotations.slice(this.#deliveredCount)
    this.#deliveredCount = this.#toolAnnotations.length
    for (const note of annotations) item.annotation(part, note)
  }

  #close(key: number, fields: ClosingFields, status: ClosingStatus): void {
    const builder = this.#item(key)
    this.#open?.remove(key)
    this.endItem(builder, fields, status)
  }
}
