/**
 * Answer: everything that a client gets in one exchange. The door of this room. It owns items, event numbers, commit
 * point and sink, and outlives attempts and turns. A turn may be dropped until its first event reaches a live sink.
 * Hot path.
 *
 * Order: debug events, created, in_progress, then for each item added … done, then one terminal event.
 */
import { GatewayError, INTERNAL_MESSAGE, overloaded } from '../../errors.ts'
import { type Held, UNCOUNTED } from '../../exchange/exchange.ts'
import type { FinishReason, HostedStart } from '../../formats/format.ts'
import type { WholeMessage } from '../../formats/whole-message.ts'
import type { StreamEvent } from '../../protocol/events.ts'
import type { Annotation, OutputItem } from '../../protocol/items.ts'
import type { Citable } from '../../protocol/parts.ts'
import type {
  DebugFacts,
  GatewayMetadata,
  ResponseErrorCode,
  ResponseResource,
  ResponseUsage,
} from '../../protocol/response.ts'
import type { RequestSignal } from '../../signal.ts'
import type { DebugNotes } from '../debug.ts'
import { Assembler, type Content, INCOMPLETE } from './assemble.ts'
import type { ClosingFields, ClosingStatus, ItemBuilder } from './items/item.ts'
import type { Sink } from './sink.ts'

export type { Content } from './assemble.ts'
export { echoRequest } from './echo.ts'
export { type LearnFrame, Relay, type RelayDeps } from './relay.ts'
export { lessonsFor } from './relay-lessons.ts'
export {
  type Charged,
  DocumentSink,
  type ExchangeSummary,
  FinalSink,
  type Outcome,
  type Sink,
} from './sink.ts'

/** Fields that the terminal event adds to the response object. */
export interface Ending {
  /** Unix seconds. */
  readonly completedAt: number
  readonly usage: ResponseUsage | null
  readonly serviceTier: string | null
  readonly metadata: GatewayMetadata | null
  /** Catalogue id of the model that answered last; absent: the first one. */
  readonly model?: string
  /** Display name of the provider that answered last. */
  readonly provider?: string
  /** The provider's own word for the end. */
  readonly nativeFinish?: string | null
  /** The stop sequence that the provider found. */
  readonly stopSequence?: string | null
  /** Absent: the caller asks for nothing. */
  readonly debug?: DebugNotes
  /** The answer is the result of a line of a batch. */
  readonly isBatched?: boolean
  /** Fields of plugins. */
  readonly fields?: Partial<ResponseResource>
}

/** Canonical error type to the closed list of `response.error.code`; everything else is `server_error`. */
const RESPONSE_ERROR_CODES: Readonly<Record<string, ResponseErrorCode>> = {
  rate_limit_exceeded: 'rate_limit_exceeded',
  context_length_exceeded: 'context_length_exceeded',
  invalid_request: 'invalid_prompt',
  invalid_prompt: 'invalid_prompt',
  content_policy_violation: 'image_content_policy_violation',
  invalid_image: 'invalid_image',
}

/** The source of events, which the answer pauses while the reader is slow. */
export interface AnswerSource {
  pause(): void
  resume(): void
}

export class Answer {
  /** For the reads of a provider, which are held and relayed there without a call of this class in between. */
  readonly sink: Sink
  readonly #held: Held
  readonly #response: ResponseResource
  readonly #assembler: Assembler
  /** Holds the running turn back; null: its events leave at once. */
  #draft: Draft | null = null
  /** Number of the next event. */
  next = 0
  #begun = false
  #begunBefore = false
  #turnSeen = false
  /** Events reach the client another way; see `overhear`. */
  #silent = false
  /** Called with each event, for the relay. */
  #listener: ((event: StreamEvent) => void) | null = null
  #source: AnswerSource | null = null
  /** Finished items of our own that wait for the model to begin, and those that the running turn has shown. */
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

  /** `response` is the echoed request (see echo.ts); the answer owns it from here on. */
  constructor(sink: Sink, response: ResponseResource, held: Held = UNCOUNTED) {
    this.sink = sink
    this.#held = held
    this.#response = response
    this.#assembler = new Assembler(sink.live ? this.#deliver : null)
    sink.onDrain(() => (this.#waiting === null ? this.#source?.resume() : this.#waiting()))
  }

  /** True when the client sees what is written at once. */
  get live(): boolean {
    return this.sink.live
  }

  /** True when the client wants to hear of a prompt that is too long in the stream. */
  get tellsOverflow(): boolean {
    return this.sink.tellsOverflow === true
  }

  /** True when the opening events were made and not dropped again. */
  get begun(): boolean {
    return this.#begun
  }

  /** True once the client has seen something: from then on a failure goes into the stream. */
  get committed(): boolean {
    return this.sink.live && this.next > 0
  }

  /** True once the client has seen something of the running turn, which then cannot be dropped. */
  get turnSeen(): boolean {
    return this.#turnSeen
  }

  /** Items of all turns so far. */
  get output(): readonly OutputItem[] {
    return this.#assembler.output
  }

  /** The dialect whose frames `relay` takes as bytes; null while every event has to be written. */
  get relays(): Sink['relays'] {
    return this.#draft === null ? this.sink.relays : null
  }

  /** Begins a model call. `held`: nothing of it leaves before `pass`. */
  openTurn(held: boolean): void {
    this.#assembler.openTurn()
    this.#draft = held && this.sink.live ? new Draft(DRAFT_MAX_BYTES, this.#held) : null
    this.#begunBefore = this.#begun
    this.#turnSeen = false
    this.#listener = null
    this.#shownItems = []
    this.#inTurn = true
  }

  /** Drops the running turn, which the client has not seen, so that another attempt can replace it. */
  dropTurn(): void {
    if (this.#turnSeen) throw new TypeError('the client has seen some of the turn')
    this.#assembler.dropTurn()
    this.#draft?.take()
    this.#begun = this.#begunBefore
    this.#listener = null
    this.#waitingItems.unshift(...this.#shownItems)
    this.#shownItems = []
    if (!this.#begun) this.next = 0
  }

  /** Gives the first text of the answer these annotations. Call it before the turn says anything. */
  annotate(annotations: readonly Annotation[]): void {
    this.#assembler.annotate(annotations)
  }

  /** Results of a search that later texts may cite; gives their numbers. `ofWhole`: as `CitableResults` says. */
  cite(results: readonly Citable[], ofWhole: boolean): readonly number[] {
    return this.#assembler.cite(results, ofWhole)
  }

  /** True if texts are searched for citations: then every text has to be read. */
  get cites(): boolean {
    return this.#assembler.cites
  }

  /** Gives the next text of the answer these annotations. */
  note(annotations: readonly Annotation[]): void {
    this.#assembler.note(annotations)
  }

  /**
   * Writes the opening events. `model`: catalogue id of the model that answers; `provider`: display name of its
   * provider; `debug`: facts that the caller asked for; `read`: input that it reported already.
   */
  begin(
    model: string,
    provider: string | null,
    debug: readonly DebugFacts[],
    read: ResponseResource['prompt_usage'] | null = null,
  ): void {
    this.#begun = true
    this.#response.model = model
    if (provider !== null) this.#response.provider = provider
    if (!this.sink.live) return
    this.#debug(debug)
    const created = read === null ? { ...this.#response } : { ...this.#response, prompt_usage: read }
    this.#deliver({ type: 'response.created', sequence_number: 0, response: created })
    this.#deliver({ type: 'response.in_progress', sequence_number: 0, response: { ...this.#response } })
  }

  /** Tells by how many tokens the prompt was cut. */
  cut(tokens: number): void {
    this.sink.cut?.(tokens)
  }

  #debug(facts: readonly DebugFacts[]): void {
    for (const debug of facts) this.#deliver({ type: 'response.debug', sequence_number: 0, debug })
  }

  take(delta: Content): void {
    this.#assembler.take(delta)
  }

  /** Adds a message that the model has said. Only for readers who see no events, and where nothing cites results. */
  message({ id, phase, status, text, json }: WholeMessage): void {
    const said = json === null ? text : (this.sink.keep?.(json) ?? text)
    this.#assembler.message({ id, phase, status, text: said })
  }

  /** Adds a finished item of our own: now between two turns, else before the first word of the model. */
  show(item: HostedStart): void {
    this.#waitingItems.push(item)
    if (this.#begun && !this.#inTurn) this.showWaiting()
  }

  /** Adds the items that wait. Call it when the model begins to say something. */
  showWaiting(): void {
    if (this.#waitingItems.length === 0) return
    const items = this.#waitingItems
    this.#waitingItems = []
    this.#shownItems.push(...items)
    this.#assembler.show(items)
  }

  /** Closes what is open, as the model ended it. Returns the items that the model said in the turn. */
  closeTurn(reason: FinishReason): readonly OutputItem[] {
    this.#inTurn = false
    this.#listener = null
    return this.#assembler.closeTurn(reason)
  }

  /** Other items for the running turn. Only for readers who see no events. */
  replaceTurn(output: readonly OutputItem[]): void {
    this.#assembler.replaceTurn(output)
  }

  /**
   * Lets a turn go that was held back, no faster than the reader takes it. Rejects with the reason of the signal.
   */
  async pass(signal: RequestSignal): Promise<void> {
    signal.throwIfAborted()
    const draft = this.#draft
    if (draft === null) return
    this.#draft = null
    for (const event of draft.take()) {
      this.sink.hold()
      if (!this.#write(event)) await this.#writable(signal)
    }
    if (!this.sink.flush()) await this.#writable(signal)
  }

  /** Begins an item of our own between two turns, such as the call of a server tool. */
  addItem(item: HostedStart): ItemBuilder {
    return this.#assembler.addItem(item)
  }

  /** Ends an item that `addItem` has begun. */
  endItem(builder: ItemBuilder, fields: ClosingFields, status: ClosingStatus): OutputItem {
    return this.#assembler.endItem(builder, fields, status)
  }

  /** Leaves an item that `addItem` has begun open: a later answer ends it. */
  leaveItem(builder: ItemBuilder): void {
    this.#assembler.leaveItem(builder)
  }

  /** Ends the response as the model ended it, and the sink. */
  finish(reason: FinishReason, ending: Ending): void {
    this.sink.hold()
    this.#finish(reason, ending)
    this.sink.end()
  }

  /** Ends the response with a failure, and the sink; what was said so far is kept, its open items marked incomplete. */
  fail(error: GatewayError, ending: Ending): void {
    this.sink.hold()
    // To a reader, a context that overflows in mid-reply is a reply that stopped for length.
    if (error.code === 'context_length_exceeded' && this.output.length > 0) this.#finish('length', ending)
    else this.#fail(error, ending)
    this.sink.end()
  }

  /** Events written from here on may leave together: at the latest with `flush`, in the same turn of the loop. */
  hold(): void {
    if (this.#draft === null) this.sink.hold()
  }

  /** Writes the held events. False: the reader is slow. */
  flush(): boolean {
    return this.#draft !== null || this.sink.flush()
  }

  /** Sets the source to pause while the reader is slow; null: there is none. */
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
   * Counts `count` events that reached the client as bytes. `tell` hands in their texts, in any pieces; nothing is
   * written for them.
   */
  overhear(count: number, tell: () => void): void {
    this.#silent = true
    try {
      tell()
    } finally {
      this.#silent = false
      this.next += count
      if (count > 0 && this.sink.live) this.#turnSeen = true
    }
  }

  #finish(reason: FinishReason, ending: Ending): void {
    const incomplete = INCOMPLETE[reason]
    this.closeTurn(reason)
    this.showWaiting()
    const response = this.#final(ending)
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

  /** In a stream as events before the last one, else in the reply. */
  #tellRest(response: ResponseResource, debug: DebugNotes, isBatched: boolean): void {
    if (this.sink.live) this.#debug(debug.rest())
    else {
      const whole = debug.whole(isBatched)
      if (whole !== undefined) response.debug = whole
    }
  }

  #fail(error: GatewayError, ending: Ending): void {
    this.#assembler.closeAll('incomplete')
    if (ending.debug !== undefined) this.#debug(ending.debug.rest())
    this.#deliver({
      type: 'response.failed',
      sequence_number: 0,
      response: {
        ...this.#final(ending),
        status: 'failed',
        completed_at: null,
        error: {
          code: RESPONSE_ERROR_CODES[error.errorType] ?? 'server_error',
          message: error.status === 500 ? INTERNAL_MESSAGE : error.message,
          ...(error.metadata === undefined || error.status === 500 ? {} : { metadata: error.metadata }),
        },
        error_type: error.errorType,
      },
    })
  }

  #final(ending: Ending): ResponseResource {
    const response: ResponseResource = {
      ...this.#response,
      model: ending.model ?? this.#response.model,
      completed_at: ending.completedAt,
      output: this.#assembler.output,
      service_tier: ending.serviceTier ?? 'default',
      usage: ending.usage,
    }
    if (ending.provider !== undefined) response.provider = ending.provider
    if (ending.nativeFinish != null) response.native_finish_reason = ending.nativeFinish
    if (ending.stopSequence != null) response.stop_sequence = ending.stopSequence
    if (ending.metadata !== null) response.gateway_metadata = ending.metadata
    return response
  }

  /** Numbers the event as it leaves: what is dropped before never had a number. */
  #write(event: StreamEvent): boolean {
    event.sequence_number = this.next++
    if (this.sink.live) this.#turnSeen = true
    return this.sink.write(event)
  }

  #writable(signal: RequestSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const abort = (): void => {
        this.#waiting = null
        reject(signal.reason as GatewayError)
      }
      if (signal.aborted) {
        abort()
        return
      }
      signal.addEventListener('abort', abort, { once: true })
      this.#waiting = () => {
        this.#waiting = null
        signal.removeEventListener('abort', abort)
        resolve()
      }
    })
  }
}

/** As much as a JSON reply with images may have, whose reader sees it whole just the same. */
const DRAFT_MAX_BYTES = 64 * 1024 * 1024
/** Memory of an event beside its texts. */
const EVENT_BYTES = 256
/** Less than this is not told to the request's count. */
const TOLD_BYTES = 64 * 1024

export class Draft {
  readonly #maxBytes: number
  readonly #held: Held
  #events: StreamEvent[] = []
  #bytes = 0
  #told = 0

  constructor(maxBytes = DRAFT_MAX_BYTES, held: Held = UNCOUNTED) {
    this.#held = held
    this.#maxBytes = maxBytes
  }

  /** @throws GatewayError `provider_unavailable` for a reply that is too large, `overloaded` when there is no room. */
  add(event: StreamEvent): void {
    this.#bytes += weigh(event)
    if (this.#bytes > this.#maxBytes) {
      this.#events = []
      throw new GatewayError(
        'provider_unavailable',
        'The provider sent a reply that is too large to be checked',
      )
    }
    this.#events.push(event)
    if (this.#bytes - this.#told >= TOLD_BYTES && !this.#tell(this.#bytes)) throw overloaded()
  }

  /** All events, which the draft then no longer holds. */
  take(): readonly StreamEvent[] {
    const events = this.#events
    this.#events = []
    this.#bytes = 0
    this.#tell(0)
    return events
  }

  #tell(bytes: number): boolean {
    const more = bytes - this.#told
    this.#told = bytes
    return this.#held.hold(more)
  }
}

/** Bytes of memory, roughly. Whole texts in later events are those of the deltas; hosted items bring their own. */
function weigh(event: StreamEvent): number {
  let bytes = EVENT_BYTES
  if ('delta' in event && typeof event.delta === 'string') return bytes + event.delta.length
  for (const value of Object.values(event)) if (typeof value === 'string') bytes += value.length
  if ('item' in event) {
    for (const value of Object.values(event.item)) if (typeof value === 'string') bytes += value.length
  }
  return bytes
}
