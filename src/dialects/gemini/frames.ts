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
import { THOUGHT_BREAK } from '../messages/thinking-blocks.ts'
import {
  type AnswerPart,
  callParts,
  endOf,
  type GeminiFields,
  headOf,
  hostedParts,
  logprobsOf,
  partsOf,
  reportsOf,
  SealCarrier,
  separateThoughts,
  showsThoughts,
} from './answer.ts'
import { blockedAnswer, geminiFailure, streamFailure } from './failure.ts'
import { originOf } from './paths.ts'

const TEXT_START = '{"candidates":[{"content":{"parts":[{"text":'
const TEXT_END = '}],"role":"model"},"index":0}],'
const THOUGHT_END = `,"thought":true${TEXT_END}`

/** The bytes around the chunks of a stream, which depend on its form. */
interface StreamForm {
  readonly firstPrefix: string
  readonly nextPrefix: string
  readonly suffix: string
  readonly end: string
}

const EVENT_STREAM: StreamForm = { firstPrefix: 'data: ', nextPrefix: 'data: ', suffix: '\n\n', end: '' }
const JSON_ARRAY: StreamForm = { firstPrefix: '[', nextPrefix: ',\n', suffix: '', end: ']' }

export class GeminiFrames implements FrameWriter {
  readonly contentType: string | undefined
  readonly #request: ResponsesRequest
  readonly #form: StreamForm
  readonly #withThoughts: boolean
  readonly #carrier = new SealCarrier()
  readonly #items: OutputItem[] = []
  /** Fields of every chunk outside its candidate, with the closing brace. */
  #commonFields: string
  #isFirst = true
  #isOver = false
  /** The failure that ends the stream; empty: none. */
  #failure = ''
  /** The form and number of the last piece of a thought, such as `text 0`; empty: none. */
  #lastPiece = ''
  #lastThoughtItem = -1
  /** Thoughts that were sent, by output index: true as text, false as summary. */
  readonly #sentAsText = new Map<number, boolean>()

  constructor(request: ResponsesRequest) {
    this.#request = request
    this.#withThoughts = showsThoughts(request)
    this.#commonFields = `"modelVersion":${JSON.stringify(request.model ?? '')}}`
    const isArray = originOf(request)?.isArray === true
    this.#form = isArray ? JSON_ARRAY : EVENT_STREAM
    this.contentType = isArray ? 'application/json' : undefined
  }

  /** The failure of an event stream must be a write of its own. */
  get endsAlone(): boolean {
    return this.#failure !== '' && this.#form === EVENT_STREAM
  }

  /**
   * In an array, white space is allowed between elements. In an event stream, an empty chunk is sent: clients of this
   * API do not understand comments, and some wait forever after one.
   */
  get heartbeat(): string {
    return this.#form === JSON_ARRAY ? '\n' : this.#chunk(`${TEXT_START}""${TEXT_END}${this.#commonFields}`)
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
        return this.#endItem(event.output_index, event.item)
      case 'response.created':
        this.#commonFields = JSON.stringify(headOf(event.response)).slice(1)
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
    if (this.#form === EVENT_STREAM) return this.#failure
    return this.#chunk(this.#failure) + JSON_ARRAY.end
  }

  failure(error: GatewayError, details: FailureDetails): string {
    return this.#fail(geminiFailure(error, { ...details, request: this.#request }))
  }

  /** A blocked prompt is an answer here. */
  answerInstead(error: GatewayError, details: FailureDetails): string | null {
    const answer = blockedAnswer(error, details)
    return answer === null ? null : this.#chunk(JSON.stringify(answer))
  }

  #text({ output_index: item, delta, logprobs }: OutputTextDeltaEvent): string {
    // Texts of tools that talk, such as the advisor, are not the answer's.
    if (delta === '' || this.#items[item]?.type !== 'message') return ''
    if (logprobs.length > 0 || !this.#carrier.isEmpty) {
      const part = { text: delta, ...this.#carrier.release() }
      return this.#candidate({ content: { parts: [part], role: 'model' }, ...logprobsOf(logprobs), index: 0 })
    }
    return this.#chunk(`${TEXT_START}${JSON.stringify(delta)}${TEXT_END}${this.#commonFields}`)
  }

  #think(item: number, piece: string, delta: string): string {
    if (delta === '' || !this.#withThoughts) return ''
    let text = delta
    if (this.#lastThoughtItem !== item || this.#lastPiece !== piece) {
      // Some providers send the same thought as text and as summary. The form that arrives first is sent.
      const isText = piece.startsWith('text')
      if ((this.#sentAsText.get(item) ?? isText) !== isText) return ''
      this.#sentAsText.set(item, isText)
      if (this.#lastPiece !== '') text = THOUGHT_BREAK + delta
      this.#lastThoughtItem = item
      this.#lastPiece = piece
    }
    return this.#chunk(`${TEXT_START}${JSON.stringify(text)}${THOUGHT_END}${this.#commonFields}`)
  }

  /** Writes the fields that an item gets only at its end. */
  #endItem(index: number, item: OutputItem): string {
    switch (item.type) {
      case 'message':
        return ''
      case 'reasoning':
        return this.#endThought(index, item as ReasoningItem)
      case 'function_call':
      case 'custom_tool_call':
        return this.#parts(callParts(item as CallItem, this.#carrier))
      default:
        return this.#parts(hostedParts(item as HostedItem, this.#carrier))
    }
  }

  #endThought(index: number, item: ReasoningItem): string {
    const isSent = this.#sentAsText.has(index)
    const parts = partsOf(item, this.#carrier, this.#withThoughts && !isSent)
    return this.#parts(this.#lastPiece === '' ? parts : separateThoughts(parts))
  }

  #parts(parts: readonly AnswerPart[]): string {
    if (parts.length === 0) return ''
    return this.#candidate({ content: { parts, role: 'model' }, index: 0 })
  }

  #candidate(candidate: GeminiFields): string {
    return this.#chunk(`{"candidates":[${JSON.stringify(candidate)}],${this.#commonFields}`)
  }

  #end(response: ResponseResource): string {
    if (this.#isOver) return ''
    this.#isOver = true
    const remainingParts = this.#carrier.remainingParts()
    // Clients rely on one part at least.
    const content = { parts: remainingParts.length === 0 ? [{ text: '' }] : remainingParts, role: 'model' }
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
    const { firstPrefix, nextPrefix, suffix } = this.#form
    const prefix = this.#isFirst ? firstPrefix : nextPrefix
    this.#isFirst = false
    return prefix + json + suffix
  }
}
