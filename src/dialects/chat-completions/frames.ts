/**
 * Writes the events of a response as chat chunks. Pure. Hot path: deltas of text, reasoning and arguments are
 * serialised by hand around a prefix that is made once.
 *
 * Order: debug chunks, deltas of one choice, its finish, one chunk with usage, `[DONE]`. A failure ends the choice with
 * `error`.
 */
import type { GatewayError } from '../../base/errors.ts'
import type { OutputTextDeltaEvent, StreamEvent } from '../../protocol/events.ts'
import type { OutputItem, ReasoningItem } from '../../protocol/items.ts'
import type { Annotation } from '../../protocol/parts.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import type { ResponseResource } from '../../protocol/response.ts'
import type { FailureDetails, FrameWriter } from '../dialect.ts'
import {
  type CallItem,
  type ChatFields,
  callSignature,
  chatAnnotation,
  chatCall,
  chatImage,
  chatLogprob,
  chatUsage,
  detailOrigin,
  excludesReasoning,
  finishOf,
  inputOf,
  isCall,
  REASONING_BREAK,
  reasoningSeals,
  serverToolCall,
} from './answer.ts'
import { type ChatError, chatError, failureOf } from './failure.ts'
import { inChatNames } from './paths.ts'

/** Follows the delta in every delta chunk. */
const DELTA_END = '},"finish_reason":null,"native_finish_reason":null,"logprobs":null}]}\n\n'

export class ChatFrames implements FrameWriter {
  readonly #request: ResponsesRequest
  readonly #withReasoning: boolean
  readonly #reasoning = new ReasoningFrames()
  /** The fields that all chunks share; null before the response has begun. */
  #common: ChatFields | null = null
  /** A delta chunk up to its delta. */
  #deltaStart = ''
  /** The role, which goes out with the first delta; then empty. */
  #unsentRole = '"role":"assistant",'
  /** Chunks from before the response began, when its id was not known yet. */
  #earlyDebug: ChatFields[] = []
  readonly #items: OutputItem[] = []
  /** The number of each call, by output index. */
  readonly #calls = new Map<number, number>()
  #contentLength = 0
  #hasRefusal = false
  /**
   * The texts by output index and content index. `offset`: characters of the content before the text; `annotations`:
   * the number that was sent.
   */
  readonly #texts = new Map<string, { offset: number; annotations: number }>()
  #isFinished = false

  constructor(request: ResponsesRequest) {
    this.#request = request
    this.#withReasoning = !excludesReasoning(request)
  }

  write(event: StreamEvent): string {
    switch (event.type) {
      case 'response.output_text.delta':
        return this.#text(event)
      case 'response.reasoning_text.delta':
        return this.#think('text', event.output_index, event.content_index, event.delta)
      case 'response.reasoning_summary_text.delta':
        return this.#think('summary', event.output_index, event.summary_index, event.delta)
      case 'response.function_call_arguments.delta':
        return this.#callInput(event.output_index, 'function', 'arguments', event.delta)
      case 'response.custom_tool_call_input.delta':
        return this.#callInput(event.output_index, 'custom', 'input', event.delta)
      case 'response.refusal.delta':
        if (event.delta === '') return ''
        this.#hasRefusal = true
        return this.#deltaFrame(`"refusal":${JSON.stringify(event.delta)}`)
      case 'response.output_item.added':
        return this.#startItem(event.output_index, event.item)
      case 'response.output_item.done':
        return this.#endItem(event.output_index, event.item)
      case 'response.content_part.added':
        if (event.part.type === 'output_text') this.#textState(event.output_index, event.content_index)
        return ''
      case 'response.output_text.annotation.added': {
        const text = this.#textState(event.output_index, event.content_index)
        text.annotations = Math.max(text.annotations, event.annotation_index + 1)
        return this.#fieldsFrame({ annotations: [chatAnnotation(event.annotation, text.offset)] })
      }
      case 'response.created':
        return this.#begin(event.response)
      case 'response.completed':
      case 'response.incomplete':
        return this.#end(event.response)
      case 'response.failed':
        return this.#fail(failureOf(event.response, this.#request), event.response)
      case 'error':
        return this.#fail(chatError(event.code, inChatNames(event.message, this.#request)), {})
      case 'response.debug':
        if (this.#common === null) {
          this.#earlyDebug.push({ ...event.debug })
          return ''
        }
        return chunk(this.#common, { choices: [], debug: event.debug })
      default:
        return ''
    }
  }

  end(): string {
    return 'data: [DONE]\n\n'
  }

  failure(error: GatewayError, details: FailureDetails): string {
    const { id, metadata, usage } = details
    // The number in a generation id is the second in which it was made.
    const created = Number(/^gen-(\d+)-/.exec(id)?.[1] ?? 0)
    this.#common ??= commonOf({ id, created_at: created, model: this.#request.model ?? '' })
    const message = inChatNames(error.message, this.#request)
    return this.#fail(chatError(error.errorType, message, error.metadata, error.status), {
      usage,
      ...(metadata === null ? {} : { gateway_metadata: metadata }),
    })
  }

  #begin(response: ResponseResource): string {
    const common = commonOf(response)
    this.#common = common
    this.#deltaStart = `data: ${JSON.stringify(common).slice(0, -1)},"choices":[{"index":0,"delta":{`
    const debug = this.#earlyDebug
    this.#earlyDebug = []
    return debug.map(report => chunk(common, { choices: [], debug: report })).join('')
  }

  #text(event: OutputTextDeltaEvent): string {
    // Texts of tools that talk, such as the advisor, are not the answer's.
    if (this.#items[event.output_index]?.type !== 'message') return ''
    if (event.delta === '' && event.logprobs.length === 0) return ''
    this.#contentLength += event.delta.length
    const delta = `"content":${JSON.stringify(event.delta)}`
    if (event.logprobs.length === 0) return this.#deltaFrame(delta)
    const logprobs = JSON.stringify({ content: event.logprobs.map(chatLogprob), refusal: null })
    return `${this.#deltaStart}${this.#releaseRole()}${delta}},"finish_reason":null,"native_finish_reason":null,"logprobs":${logprobs}}]}\n\n`
  }

  #think(kind: 'text' | 'summary', outputIndex: number, partIndex: number, delta: string): string {
    if (delta === '' || !this.#withReasoning) return ''
    return this.#deltaFrame(this.#reasoning.piece(this.#items[outputIndex], kind, partIndex, delta))
  }

  #startItem(outputIndex: number, item: OutputItem): string {
    this.#items[outputIndex] = item
    if (!isCall(item)) return ''
    // The name comes late. Clients need it first, so the whole call is written at its end.
    if (item.name === '') return ''
    return this.#startCall(outputIndex, item, '')
  }

  #startCall(outputIndex: number, item: CallItem, argumentsText: string): string {
    const index = this.#calls.size
    this.#calls.set(outputIndex, index)
    return this.#fieldsFrame({ tool_calls: [chatCall(item, index, argumentsText)] })
  }

  #callInput(outputIndex: number, kind: string, field: string, delta: string): string {
    const index = this.#calls.get(outputIndex)
    if (index === undefined || delta === '') return ''
    return this.#deltaFrame(
      `"tool_calls":[{"index":${index},"${kind}":{"${field}":${JSON.stringify(delta)}}}]`,
    )
  }

  /** Writes the fields that an item has at its end only. */
  #endItem(outputIndex: number, item: OutputItem): string {
    switch (item.type) {
      case 'message':
        return item.content
          .map((part, index) =>
            part.type === 'output_text' ? this.#annotations(outputIndex, index, part.annotations) : '',
          )
          .join('')
      case 'reasoning': {
        if (!this.#withReasoning) return ''
        const details = this.#reasoning.seals(this.#items[outputIndex], item)
        return details.length === 0 ? '' : this.#fieldsFrame({ reasoning_details: details })
      }
      case 'function_call':
      case 'custom_tool_call':
        return (
          (this.#calls.has(outputIndex) ? '' : this.#startCall(outputIndex, item, inputOf(item))) +
          this.#detailFrame(callSignature(item))
        )
      default: {
        const image = chatImage(item)
        const imageFrame = image === null ? '' : this.#fieldsFrame({ images: [image] })
        return imageFrame + this.#detailFrame(serverToolCall(item))
      }
    }
  }

  /** Annotations that arrived too late for an event of their own. */
  #annotations(outputIndex: number, index: number, annotations: readonly Annotation[]): string {
    const text = this.#textState(outputIndex, index)
    const late = annotations
      .slice(text.annotations)
      .map(annotation => chatAnnotation(annotation, text.offset))
    text.annotations = annotations.length
    return late.length === 0 ? '' : this.#fieldsFrame({ annotations: late })
  }

  #textState(outputIndex: number, index: number): { offset: number; annotations: number } {
    const key = `${outputIndex}:${index}`
    let text = this.#texts.get(key)
    if (text === undefined) {
      text = { offset: this.#contentLength, annotations: 0 }
      this.#texts.set(key, text)
    }
    return text
  }

  #detailFrame(detail: ChatFields | null): string {
    return detail === null ? '' : this.#fieldsFrame({ reasoning_details: [this.#reasoning.numbered(detail)] })
  }

  #end(response: ResponseResource): string {
    if (this.#isFinished || this.#common === null) return ''
    this.#isFinished = true
    const isEmpty = this.#contentLength === 0 && this.#calls.size === 0 && !this.#hasRefusal
    return endChunks(this.#common, response, this.#lastDelta(isEmpty))
  }

  #fail(error: ChatError, ending: FailedEnding): string {
    if (this.#isFinished) return ''
    this.#isFinished = true
    return failureChunks(this.#common ?? {}, error, this.#lastDelta(true), ending)
  }

  /** An answer without content gets an empty text. */
  #lastDelta(withContent: boolean): ChatFields {
    const role = this.#releaseRole() === '' ? {} : { role: 'assistant' }
    return withContent ? { ...role, content: '' } : role
  }

  #releaseRole(): string {
    const role = this.#unsentRole
    this.#unsentRole = ''
    return role
  }

  #deltaFrame(json: string): string {
    return this.#deltaStart + this.#releaseRole() + json + DELTA_END
  }

  #fieldsFrame(delta: ChatFields): string {
    return this.#deltaFrame(JSON.stringify(delta).slice(1, -1))
  }
}

// Reasoning: `reasoning` and entries of `reasoning_details`, numbered in the order in which they begin. Entries with
// the same index are one.

interface ReasoningEntry {
  readonly item: OutputItem | undefined
  readonly kind: 'text' | 'summary'
  readonly part: number
  readonly index: number
  /** JSON around the text. */
  readonly before: string
  readonly after: string
}

class ReasoningFrames {
  #entries = 0
  #hasReasoning = false
  #current: ReasoningEntry | null = null
  /** The last text of each item: its signature belongs there. */
  readonly #lastText = new Map<OutputItem, number>()

  /** Members of a delta as JSON, without the braces. */
  piece(item: OutputItem | undefined, kind: ReasoningEntry['kind'], part: number, delta: string): string {
    let entry = this.#current
    let text = delta
    if (entry === null || entry.item !== item || entry.kind !== kind || entry.part !== part) {
      entry = this.#open(item, kind, part)
      if (this.#hasReasoning) text = REASONING_BREAK + delta
      this.#hasReasoning = true
    }
    return `"reasoning":${JSON.stringify(text)},"reasoning_details":[${entry.before}${JSON.stringify(delta)}${entry.after}]`
  }

  /** The entry with the next number. */
  numbered(detail: ChatFields): ChatFields {
    return { ...detail, index: this.#entries++ }
  }

  /**
   * The signature and the encrypted part of a finished reasoning item. `firstForm`: the item as it was first announced.
   */
  seals(firstForm: OutputItem | undefined, item: ReasoningItem): ChatFields[] {
    const { signature, encrypted } = reasoningSeals(item)
    const details: ChatFields[] = []
    if (signature !== null) {
      const index = firstForm === undefined ? undefined : this.#lastText.get(firstForm)
      details.push(index === undefined ? this.numbered(signature) : { ...signature, index })
    }
    if (encrypted !== null) details.push(this.numbered(encrypted))
    return details
  }

  #open(item: OutputItem | undefined, kind: ReasoningEntry['kind'], part: number): ReasoningEntry {
    const index = this.#entries++
    const origin = item?.type === 'reasoning' ? detailOrigin(item) : { format: 'unknown' }
    const entry: ReasoningEntry = {
      item,
      kind,
      part,
      index,
      before: `{"type":"reasoning.${kind}","${kind}":`,
      after: `,${JSON.stringify({ ...origin, index }).slice(1)}`,
    }
    this.#current = entry
    if (kind === 'text' && item !== undefined) this.#lastText.set(item, index)
    return entry
  }
}

// Other chunks: the end of a choice, usage, errors

/** The fields of a failed answer that are known at its end. */
type FailedEnding = Partial<Pick<ResponseResource, 'usage' | 'alignment' | 'gateway_metadata'>>

/** Fields that all chunks of a stream share. */
function commonOf(response: Pick<ResponseResource, 'id' | 'created_at' | 'model' | 'provider'>): ChatFields {
  return {
    id: response.id,
    object: 'chat.completion.chunk',
    created: response.created_at,
    model: response.model,
    provider: response.provider ?? null,
  }
}

/** A chunk as a frame. */
function chunk(common: ChatFields, fields: ChatFields): string {
  return `data: ${JSON.stringify({ ...common, ...fields })}\n\n`
}

/** The finish of the choice, then usage and the other fields that are known only at the end. */
function endChunks(common: ChatFields, response: ResponseResource, delta: ChatFields): string {
  const { usage } = response
  const lastFields = {
    provider: response.provider ?? common['provider'],
    service_tier: response.service_tier,
  }
  const finish = {
    index: 0,
    delta,
    finish_reason: finishOf(response),
    native_finish_reason: response.native_finish_reason ?? null,
    logprobs: null,
  }
  return (
    chunk(common, { ...lastFields, choices: [finish] }) +
    chunk(common, {
      ...lastFields,
      choices: [],
      usage: usage === null ? null : chatUsage(usage),
      ...reportsOf(response),
    })
  )
}

/**
 * An error that ends the choice. A second chunk has the usage of calls that are billed. For a fault of the gateway
 * itself, no routing is reported.
 */
function failureChunks(
  common: ChatFields,
  error: ChatError,
  delta: ChatFields,
  ending: FailedEnding,
): string {
  const finish = { index: 0, delta, finish_reason: 'error', native_finish_reason: null, logprobs: null }
  const { usage = null, gateway_metadata: _, ...unrouted } = ending
  const reportFields = reportsOf(error.code === 500 ? unrouted : ending)
  if (usage === null) return chunk(common, { error, choices: [finish], ...reportFields })
  return (
    chunk(common, { error, choices: [finish] }) +
    chunk(common, { choices: [], usage: chatUsage(usage), ...reportFields })
  )
}

function reportsOf({ alignment, gateway_metadata: metadata }: FailedEnding): ChatFields {
  return {
    ...(alignment === undefined ? {} : { alignment }),
    ...(metadata === undefined ? {} : { gateway_metadata: metadata }),
  }
}
