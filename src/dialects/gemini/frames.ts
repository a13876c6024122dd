/**
 * Writes the events of a response as generateContent chunks. Pure. Hot path: deltas of text and thoughts are serialised
 * by hand.
 *
 * A chunk is a frame `data: …` of an event stream, or an element of one JSON array. Calls and tool output are written
 * when they are complete, in one part each. The last chunk has the finish reason and the usage. A failure ends the
 * stream; it is written without `data:`, because the official client looks for it in bytes that arrive alone.
 */
import type { GatewayError } from '../../base/errors.ts'
import type { OutputTextDeltaEvent, StreamEvent } from '../../protocol/events.ts'
import type { HostedItem, OutputItem, ReasoningItem } from '../../protocol/items.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import type { ResponseResource } from '../../protocol/response.ts'
import type { CallItem } from '../chat-completions/answer.ts'
import type { FailureDetails, FrameWriter } from '../dialect.ts'
import {
  type AnswerPart,
  apart,
  callParts,
  endOf,
  type GeminiFields,
  headOf,
  hostedParts,
  logprobsOf,
  partsOf,
  reportsOf,
  SealCarrier,
  showsThoughts,
  THOUGHT_BREAK,
} from './answer.ts'
import { blockedAnswer, geminiFailure, streamFailure } from './failure.ts'
import { originOf } from './paths.ts'

const HEAD = '{"candidates":[{"content":{"parts":[{"text":'
const TAIL = '}],"role":"model"},"index":0}],'
const THOUGHT_TAIL = `,"thought":true${TAIL}`

/** The bytes around the chunks of a stream, which depend on its form. */
interface Form {
  readonly first: string
  readonly next: string
  readonly after: string
  readonly end: string
}

const EVENTS: Form = { first: 'data: ', next: 'data: ', after: '\n\n', end: '' }
const ARRAY: Form = { first: '[', next: ',\n', after: '', end: ']' }

export class GeminiFrames implements FrameWriter {
  readonly contentType: string | undefined
  readonly #request: ResponsesRequest
  readonly #form: Form
  readonly #shows: boolean
  readonly #carrier = new SealCarrier()
  readonly #items: OutputItem[] = []
  /** Fields of every chunk outside its candidate, with the closing brace. */
  #rest: string
  #isFirst = true
  #isOver = false
  /** The failure that ends the stream; empty: none. */
  #failure = ''
  /** The item, form and piece number of the last thought; empty: none. */
  #thought = ''
  #thoughtItem = -1
  /** Thoughts that were sent, by output index: true as text, false as summary. */
  readonly #thoughts = new Map<number, boolean>()

  constructor(request: ResponsesRequest) {
    this.#request = request
    this.#shows = showsThoughts(request)
    this.#rest = `"modelVersion":${JSON.stringify(request.model ?? '')}}`
    const isArray = originOf(request)?.isArray === true
    this.#form = isArray ? ARRAY : EVENTS
    this.contentType = isArray ? 'application/json' : undefined
  }

  /** The failure of an event stream must be a write of its own. */
  get endsAlone(): boolean {
    return this.#failure !== '' && this.#form === EVENTS
  }

  /**
   * In an array, white space is allowed between elements. In an event stream, an empty chunk is sent: clients of this
   * API do not understand comments, and some wait forever after one.
   */
  get heartbeat(): string {
    return this.#form === ARRAY ? '\n' : this.#chunk(`${HEAD}""${TAIL}${this.#rest}`)
  }

  write(event: StreamEvent): string {
    switch (event.type) {
      case 'response.output_text.delta':
        return this.#text(event)
      case 'response.reasoning_text.delta':
        return this.#think(event.output_index, `text ${event.content_index}`, event.delta)
      case 'response.reasoning_summary_text.delta':
        return this.#think(event.output_index, `summary ${event.summary_index}`, event.delta)
      case 'response.output_item.added':
        this.#items[event.output_index] = event.item
        return ''
      case 'response.output_item.done':
        return this.#done(event.output_index, event.item)
      case 'response.created':
        this.#rest = `${JSON.stringify(headOf(event.response)).slice(1)}`
        return ''
      case 'response.completed':
      case 'response.incomplete':
        return this.#end(event.response)
      case 'response.failed':
        return this.#fail(streamFailure(event.response, this.#request))
      case 'response.debug':
        return this.#chunk(JSON.stringify({ debug: event.debug }))
      default:
        return ''
    }
  }

  end(): string {
    if (this.#failure === '') return this.#form.end
    if (this.#form === EVENTS) return this.#failure
    return this.#chunk(this.#failure) + ARRAY.end
  }

  failure(error: GatewayError, details: FailureDetails): string {
    return this.#fail(geminiFailure(error, { ...details, request: this.#request }))
  }

  /** A blocked prompt is an answer here. */
  instead(error: GatewayError, details: FailureDetails): string | null {
    const blocked = blockedAnswer(error, details)
    return blocked === null ? null : this.#chunk(JSON.stringify(blocked))
  }

  #text({ output_index: item, delta, logprobs }: OutputTextDeltaEvent): string {
    // Texts of tools that talk, such as the advisor, are not the answer's.
    if (delta === '' || this.#items[item]?.type !== 'message') return ''
    if (logprobs.length > 0 || !this.#carrier.isEmpty) {
      const part = { text: delta, ...this.#carrier.release() }
      return this.#candidate({ content: { parts: [part], role: 'model' }, ...logprobsOf(logprobs), index: 0 })
    }
    return this.#chunk(`${HEAD}${JSON.stringify(delta)}${TAIL}${this.#rest}`)
  }

  #think(item: number, piece: string, delta: string): string {
    if (delta === '' || !this.#shows) return ''
    let text = delta
    if (this.#thoughtItem !== item || this.#thought !== piece) {
      // Some providers send the same thought as text and as summary. The form that arrives first is sent.
      const isText = piece.startsWith('text')
      if ((this.#thoughts.get(item) ?? isText) !== isText) return ''
      this.#thoughts.set(item, isText)
      if (this.#thought !== '') text = THOUGHT_BREAK + delta
      this.#thoughtItem = item
      this.#thought = piece
    }
    return this.#chunk(`${HEAD}${JSON.stringify(text)}${THOUGHT_TAIL}${this.#rest}`)
  }

  /** Writes the fields that an item gets only at its end. */
  #done(index: number, item: OutputItem): string {
    switch (item.type) {
      case 'message':
        return ''
      case 'reasoning':
        return this.#thoughtDone(index, item as ReasoningItem)
      case 'function_call':
      case 'custom_tool_call':
        return this.#parts(callParts(item as CallItem, this.#carrier))
      default:
        return this.#parts(hostedParts(item as HostedItem, this.#carrier))
    }
  }

  #thoughtDone(index: number, item: ReasoningItem): string {
    const isTold = this.#thoughts.has(index)
    const parts = partsOf(item, this.#carrier, this.#shows && !isTold)
    return this.#parts(this.#thought === '' ? parts : apart(parts))
  }

  #parts(parts: readonly AnswerPart[]): string {
    if (parts.length === 0) return ''
    return this.#candidate({ content: { parts, role: 'model' }, index: 0 })
  }

  #candidate(candidate: GeminiFields): string {
    return this.#chunk(`{"candidates":[${JSON.stringify(candidate)}],${this.#rest}`)
  }

  #end(response: ResponseResource): string {
    if (this.#isOver) return ''
    this.#isOver = true
    const rest = this.#carrier.rest()
    // Clients rely on one part at least.
    const content = { parts: rest.length === 0 ? [{ text: '' }] : rest, role: 'model' }
    const candidate = { content, ...endOf(response), index: 0 }
    return this.#chunk(
      JSON.stringify({ candidates: [candidate], ...headOf(response), ...reportsOf(response) }),
    )
  }

  #fail(failure: GeminiFields): string {
    if (!this.#isOver) this.#failure = JSON.stringify(failure)
    this.#isOver = true
    return ''
  }

  /** JSON escapes CR and LF, so the content of a chunk cannot start another chunk. */
  #chunk(json: string): string {
    const { first, next, after } = this.#form
    const before = this.#isFirst ? first : next
    this.#isFirst = false
    return before + json + after
  }
}
