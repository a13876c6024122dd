/**
 * Deltas in, Responses events out. The one owner of event order, item ids, output indexes, `sequence_number`
 * and the final object. One per attempt; nothing leaves before `begin()`. Hot path.
 *
 * Order: debug events, created, in_progress, then for each item added … done, then one terminal event.
 */
import type { GatewayError } from '../../errors.ts'
import type { Delta, FinishReason } from '../../formats/format.ts'
import type { StreamEvent } from '../../protocol/events.ts'
import type { Annotation, OutputItem } from '../../protocol/items.ts'
import type {
  AlignmentReport,
  GatewayMetadata,
  ResponseErrorCode,
  ResponseResource,
  ResponseUsage,
} from '../../protocol/response.ts'
import { buildItem, type ClosingFields, type ClosingStatus, type ItemBuilder } from './items.ts'

/** The deltas that are content: all but the bookkeeping ones. */
export type Content = Exclude<Delta, { kind: 'start' | 'usage' | 'finish' }>

/** What the terminal event adds to the response object. */
export interface Ending {
  /** Unix seconds. */
  readonly completedAt: number
  readonly usage: ResponseUsage | null
  readonly serviceTier: string | null
  readonly metadata: GatewayMetadata | null
  readonly alignment?: AlignmentReport | null
}

const INCOMPLETE: Partial<Record<FinishReason, 'max_output_tokens' | 'content_filter'>> = {
  length: 'max_output_tokens',
  content_filter: 'content_filter',
}

/** Canonical error type to the closed list of `response.error.code`; everything else is `server_error`. */
const RESPONSE_ERROR_CODES: Readonly<Record<string, ResponseErrorCode>> = {
  rate_limit_exceeded: 'rate_limit_exceeded',
  context_length_exceeded: 'invalid_prompt',
  invalid_request: 'invalid_prompt',
  invalid_prompt: 'invalid_prompt',
  content_policy_violation: 'image_content_policy_violation',
  invalid_image: 'invalid_image',
}

export class Assembler {
  readonly #response: ResponseResource
  readonly #write: (event: StreamEvent) => void
  readonly #open = new Map<number, ItemBuilder>()
  /** By output index; an item stands here in its begun form until it is done. */
  #output: OutputItem[] = []
  readonly #emit = (event: StreamEvent) => this.#number(event)
  /** What goes with the first text and was not said by the model. */
  #notes: readonly Annotation[] = []
  #sequence = 0
  #silent = false
  #begun = false

  /** `response` is the echoed request (see echo.ts); the assembler owns it from here on. */
  constructor(response: ResponseResource, write: (event: StreamEvent) => void) {
    this.#response = response
    this.#write = write
  }

  get begun(): boolean {
    return this.#begun
  }

  /** Number of the next event. */
  get next(): number {
    return this.#sequence
  }

  /**
   * Takes note of `count` events that reached the client without coming through here. `tell` hands in what they
   * said, in any pieces; nothing is written for it.
   */
  overheard(count: number, tell: () => void): void {
    this.#silent = true
    try {
      tell()
    } finally {
      this.#silent = false
      this.#sequence += count
    }
  }

  /** Gives the first text that will be said these annotations. To be called before anything is said. */
  annotate(annotations: readonly Annotation[]): void {
    this.#notes = annotations
  }

  /** Writes the opening events. `debug` holds the upstream bodies to echo, one for each attempt so far. */
  begin(debug: readonly Readonly<Record<string, unknown>>[]): void {
    this.#begun = true
    for (const body of debug)
      this.#emit({ type: 'response.debug', sequence_number: 0, debug: { echo_upstream_body: { ...body } } })
    this.#emit({ type: 'response.created', sequence_number: 0, response: { ...this.#response } })
    this.#emit({ type: 'response.in_progress', sequence_number: 0, response: { ...this.#response } })
  }

  take(delta: Content): void {
    switch (delta.kind) {
      case 'text':
        this.#item(delta.item).text(delta.part, delta.text, delta.logprobs)
        if (this.#notes.length > 0) this.#note(this.#item(delta.item), delta.part)
        break
      case 'arguments':
        this.#item(delta.item).arguments(delta.text)
        break
      case 'reasoning':
        this.#item(delta.item).reasoning(delta.form, delta.part, delta.text)
        break
      case 'open': {
        const item = buildItem(delta.start, this.#output.length, this.#emit)
        this.#open.set(delta.item, item)
        const begun = item.begun()
        this.#output.push(begun)
        this.#emit({
          type: 'response.output_item.added',
          sequence_number: 0,
          output_index: item.outputIndex,
          item: begun,
        })
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

  /** Closes what is open, as the model ended it. Returns the final items; nothing but a terminal event may follow. */
  close(reason: FinishReason): readonly OutputItem[] {
    this.#closeAll(INCOMPLETE[reason] === undefined ? 'completed' : 'incomplete')
    return this.#output
  }

  /** Other items for the final object. Only for readers who see no events. */
  replace(output: readonly OutputItem[]): void {
    this.#output = [...output]
  }

  /** Ends the response as the model ended it. */
  finish(reason: FinishReason, ending: Ending): void {
    const incomplete = INCOMPLETE[reason]
    this.close(reason)
    const { alignment } = ending
    const final = alignment == null ? this.#final(ending) : { ...this.#final(ending), alignment }
    if (incomplete === undefined) {
      this.#emit({
        type: 'response.completed',
        sequence_number: 0,
        response: { ...final, status: 'completed' },
      })
    } else {
      this.#emit({
        type: 'response.incomplete',
        sequence_number: 0,
        response: { ...final, status: 'incomplete', incomplete_details: { reason: incomplete } },
      })
    }
  }

  /** Ends the response with a failure; what was said so far is kept, its open items marked incomplete. */
  fail(error: GatewayError, ending: Ending): void {
    // To a reader, a context that overflows in mid-reply is a reply that stopped for length.
    if (error.code === 'context_length_exceeded') {
      this.finish('length', ending)
      return
    }
    this.#closeAll('incomplete')
    this.#emit({
      type: 'response.failed',
      sequence_number: 0,
      response: {
        ...this.#final(ending),
        status: 'failed',
        completed_at: null,
        error: {
          code: RESPONSE_ERROR_CODES[error.errorType] ?? 'server_error',
          message: error.status === 500 ? 'Internal Server Error' : error.message,
          ...(error.metadata === undefined || error.status === 500 ? {} : { metadata: error.metadata }),
        },
        error_type: error.errorType,
      },
    })
  }

  #final(ending: Ending): ResponseResource {
    return {
      ...this.#response,
      completed_at: ending.completedAt,
      output: this.#output,
      service_tier: ending.serviceTier ?? 'default',
      usage: ending.usage,
      ...(ending.metadata === null ? {} : { gateway_metadata: ending.metadata }),
    }
  }

  #item(key: number): ItemBuilder {
    const item = this.#open.get(key)
    if (item === undefined) throw new TypeError(`decoder addressed item ${key}, which is not open`)
    return item
  }

  #note(item: ItemBuilder, part: number): void {
    const notes = this.#notes
    this.#notes = []
    for (const note of notes) item.annotation(part, note)
  }

  #close(key: number, fields: ClosingFields, status: ClosingStatus): void {
    const builder = this.#item(key)
    this.#open.delete(key)
    const item = builder.close(fields, status)
    this.#output[builder.outputIndex] = item
    this.#emit({
      type: 'response.output_item.done',
      sequence_number: 0,
      output_index: builder.outputIndex,
      item,
    })
  }

  /** Only the last item can have been cut off: whatever came before it was left behind by the model itself. */
  #closeAll(lastStatus: ClosingStatus): void {
    const keys = [...this.#open.keys()]
    for (const [at, key] of keys.entries()) {
      this.#close(key, null, at === keys.length - 1 ? lastStatus : 'completed')
    }
  }

  #number(event: StreamEvent): void {
    if (this.#silent) return
    event.sequence_number = this.#sequence++
    this.#write(event)
  }
}
