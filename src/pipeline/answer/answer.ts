/**
 * Answer: everything that a client gets in one exchange. It owns the items, event numbers, commit
 * point and sink, and outlives attempts and turns. A turn may be dropped until its first event reaches a live sink. Hot
 * path.
 *
 * Order: debug events, created, in_progress, then added … done for each item, then one terminal event.
 */
import type { GatewayError } from '../../base/errors.ts'
import type { RequestSignal } from '../../base/signal.ts'
import { type Held, UNCOUNTED } from '../../exchange/exchange.ts'
import type { FinishReason, HostedStart } from '../../formats/format.ts'
import type { WholeMessage } from '../../formats/whole-message.ts'
import type { DebugFacts, StreamEvent } from '../../protocol/events.ts'
import type { OutputItem } from '../../protocol/items.ts'
import type { Annotation, Citable } from '../../protocol/parts.ts'
import type { ResponseResource } from '../../protocol/response.ts'
import { Assembler, type Content, INCOMPLETE } from './assemble.ts'
import type { DebugNotes } from './debug.ts'
import { Draft, readerGoesOn } from './draft.ts'
import type { ClosingFields, ClosingStatus, ItemBuilder } from './items/item.ts'
import { type Ending, endedResponse, failedResponse } from './response-object.ts'
import type { Sink } from './sink.ts'

/** The source of events, which the answer pauses while its reader is slow. */
interface AnswerSource {
  pause(): void
  resume(): void
}

export class Answer {
  /** For reads from a provider, which are held and relayed there without a call of this class in between. */
  readonly sink: Sink
  readonly #held: Held
  readonly #response: ResponseResource
  readonly #assembler: Assembler
  /** Holds the running turn back; null: its events are sent at once. */
  #draft: Draft | null = null
  /** Number of the next event. */
  next = 0
  /** True if the client sees written events at once. */
  readonly live: boolean
  /** True if the opening events were written and not dropped again. Written only here. */
  hasBegun = false
  /** True if texts are searched for citations, so that every text has to be read. Written only here. */
  cites = false
  /** True if its items are read at the end, so no copies of its texts are kept. */
  isRead = false
  #hadBegun = false
  #turnSeen = false
  /** True if events reach the client in another way; see `overhear`. */
  #silent = false
  /** Called with each event, for the relay. */
  #listener: ((event: StreamEvent) => void) | null = null
  #source: AnswerSource | null = null
  /** Finished items of our own that wait for the model to begin, and those already shown in the running turn. */
  #waitingItems: HostedStart[] = []
  #shownItems: HostedStart[] = []
  #inTurn = false
  /** Set while `pass` waits for the reader. */
  #waiting: (() => void) | null = null

  readonly #deliver = (event: StreamEvent): void => {
    if (this.#silent) {
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
    this.#waiting = goOn
  }

  /** `response` is the echoed request (see response-object.ts); the answer owns it from here on. */
  constructor(sink: Sink, response: ResponseResource, held: Held = UNCOUNTED) {
    this.sink = sink
    this.live = sink.live
    this.#held = held
    this.#response = response
    this.#assembler = new Assembler(sink.live ? this.#deliver : null)
    if (sink.live) sink.onDrain(() => (this.#waiting === null ? this.#source?.resume() : this.#waiting()))
  }

  /** True once the client has seen something: from then on, failures are sent in the stream. */
  get committed(): boolean {
    return this.live && this.next > 0
  }

  /** True once the client has seen something of the running turn, which can then no longer be dropped. */
  get turnSeen(): boolean {
    return this.#turnSeen
  }

  /** Items of all turns so far. */
  get output(): readonly OutputItem[] {
    return this.#assembler.output
  }

  /** The dialect whose frames `relay` accepts as bytes; null while every event has to be written. */
  get relays(): Sink['relays'] {
    return this.#draft === null ? this.sink.relays : null
  }

  /** Begins a model call. `held`: none of its events are sent before `pass`. */
  openTurn(held: boolean): void {
    this.#assembler.openTurn()
    this.#draft = held && this.live ? new Draft(this.#held) : null
    this.#hadBegun = this.hasBegun
    this.#turnSeen = false
    this.#listener = null
    this.#shownItems = []
    this.#inTurn = true
  }

  /** Drops the running turn, which the client has not seen, so that another attempt can replace it. */
  dropTurn(): void {
    if (this.#turnSeen) throw new TypeError('the client has seen some of the turn')
    this.#assembler.dropTurn()
    this.#draft?.drain()
    this.hasBegun = this.#hadBegun
    this.#listener = null
    this.#waitingItems.unshift(...this.#shownItems)
    this.#shownItems = []
    if (!this.hasBegun) this.next = 0
  }

  /** Adds these annotations to the first text of the answer. Call it before the turn has any content. */
  annotate(annotations: readonly Annotation[]): void {
    this.#assembler.annotate(annotations)
  }

  /** Results of a search that later texts may cite; returns their numbers. `ofWhole`: see `CitableResults`. */
  cite(results: readonly Citable[], ofWhole: boolean): readonly number[] {
    this.cites = true
    return this.#assembler.cite(results, ofWhole)
  }

  /** Adds these annotations to the next text of the answer. */
  note(annotations: readonly Annotation[]): void {
    this.#assembler.note(annotations)
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

  /** Reports how many tokens were cut from the prompt. */
  cut(tokens: number): void {
    this.sink.reportCompression?.(tokens)
  }

  /** Reports the number of changes that the request needed for the provider that answers. */
  reportChanges(changes: number): void {
    this.sink.reportChanges?.(changes)
  }

  #debug(facts: readonly DebugFacts[]): void {
    for (const debug of facts) this.#deliver({ type: 'response.debug', sequence_number: 0, debug })
  }

  receive(delta: Content): void {
    this.#assembler.receive(delta)
  }

  /** Adds a message of the model. Only for readers who see no events, and only if nothing cites results. */
  message({ id, phase, status, text, json }: WholeMessage): void {
    const storedText = json === null || this.isRead ? text : (this.sink.keep?.(json) ?? text)
    this.#assembler.message({ id, phase, status, text: storedText })
  }

  /** Adds a finished item of our own: immediately between two turns, otherwise before the model's first content. */
  show(item: HostedStart): void {
    this.#waitingItems.push(item)
    if (this.hasBegun && !this.#inTurn) this.showWaiting()
  }

  /** Adds the waiting items. Call it when the model's content begins. */
  showWaiting(): void {
    if (this.#waitingItems.length === 0) return
    const items = this.#waitingItems
    this.#waitingItems = []
    this.#shownItems.push(...items)
    this.#assembler.show(items)
  }

  /** Closes open items as the model ended them. Returns the model's items of the turn. */
  closeTurn(reason: FinishReason): readonly OutputItem[] {
    this.#inTurn = false
    this.#listener = null
    return this.#assembler.closeTurn(reason)
  }

  /** Replaces the items of the running turn. Only for readers who see no events. */
  replaceTurn(output: readonly OutputItem[]): void {
    this.#assembler.replaceTurn(output)
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

  /** Begins an item of our own between two turns, such as the call of a server tool. */
  addItem(item: HostedStart): ItemBuilder {
    return this.#assembler.addItem(item)
  }

  /** Ends an item that `addItem` began. */
  endItem(builder: ItemBuilder, fields: ClosingFields, status: ClosingStatus): OutputItem {
    return this.#assembler.endItem(builder, fields, status)
  }

  /** Leaves an item that `addItem` began open: a later answer ends it. */
  leaveItem(builder: ItemBuilder): void {
    this.#assembler.leaveItem(builder)
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

  /** The frames that the dialect wrote for the last event. */
  get lastFrames(): string {
    return this.sink.lastFrames ?? ''
  }

  /**
   * Counts `count` events that reached the client as bytes. `supply` supplies their texts, in any pieces; nothing is
   * written for them.
   */
  overhear(count: number, supply: () => void): void {
    this.#silent = true
    try {
      supply()
    } finally {
      this.#silent = false
      this.next += count
      if (count > 0 && this.live) this.#turnSeen = true
    }
  }

  #finish(reason: FinishReason, ending: Ending): void {
    const incomplete = INCOMPLETE[reason]
    this.#inTurn = false
    this.#listener = null
    this.#assembler.closeAll(incomplete === undefined ? 'completed' : 'incomplete')
    if (this.#waitingItems.length > 0) this.showWaiting()
    const response = endedResponse(this.#response, this.#assembler.output, ending)
    if (ending.fields !== undefined) Object.assign(response, ending.fields)
    if (ending.debug !== undefined) this.#tellRest(response, ending.debug, ending.isBatched === true)
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
  #tellRest(response: ResponseResource, debug: DebugNotes, isBatched: boolean): void {
    if (this.live) this.#debug(debug.rest())
    else {
      const report = debug.report(isBatched)
      if (report !== undefined) response.debug = report
    }
  }

  #fail(error: GatewayError, ending: Ending): void {
    this.#assembler.closeAll('incomplete')
    if (ending.debug !== undefined) this.#debug(ending.debug.rest())
    const ended = endedResponse(this.#response, this.#assembler.output, ending)
    this.#deliver({ type: 'response.failed', sequence_number: 0, response: failedResponse(ended, error) })
  }

  /** Numbers the event when it is sent, so that dropped events never use up a number. */
  #write(event: StreamEvent): boolean {
    event.sequence_number = this.next++
    if (this.live) this.#turnSeen = true
    return this.sink.write(event)
  }
}
