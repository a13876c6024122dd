/**
 * Events of one response as frames of chat chunks. Pure. Hot path: deltas of text, reasoning and arguments are
 * written by hand around a head that is made once.
 *
 * Order: debug chunks, deltas of one choice, its finish, one chunk with usage, `[DONE]`. A failure ends the choice
 * with `error`.
 */
import type { GatewayError } from '../../errors.ts'
import type { OutputTextDeltaEvent, ResponseStateEvent, StreamEvent } from '../../protocol/events.ts'
import type { OutputItem } from '../../protocol/items.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import type { ResponseResource } from '../../protocol/response.ts'
import type { FailureDetails, FrameWriter } from '../dialect.ts'
import {
  callSignature,
  chatAnnotation,
  chatCall,
  chatImage,
  chatLogprob,
  chatUsage,
  excludesReasoning,
  type Fields,
  finishOf,
  isCall,
  serverToolCall,
} from './answer.ts'
import { type ChatError, chatError, failureOf } from './failure.ts'
import { ReasoningFrames } from './reasoning-frames.ts'

/** Of every delta chunk after its delta. */
const TAIL = '},"finish_reason":null,"native_finish_reason":null,"logprobs":null}]}\n\n'

export class ChatFrames implements FrameWriter {
  readonly #request: ResponsesRequest
  readonly #withReasoning: boolean
  readonly #reasoning = new ReasoningFrames()
  /** The same in all chunks; null before the response began. */
  #common: Fields | null = null
  /** All of a delta chunk before its delta. */
  #head = ''
  /** Goes with the first delta. */
  #role = '"role":"assistant",'
  /** What came before the response began: nobody knew its id. */
  #debug: Fields[] = []
  readonly #items: OutputItem[] = []
  /** Number of the call by output index. */
  readonly #calls = new Map<number, number>()
  #contentLength = 0
  #refused = false
  /** By place of a text: characters of the content before it, and how many of its annotations were told. */
  readonly #texts = new Map<string, { offset: number; annotations: number }>()
  #finished = false

  constructor(request: ResponsesRequest) {
    this.#request = request
    this.#withReasoning = !excludesReasoning(request)
  }

  write(event: StreamEvent): string {
    switch (event.type) {
      case 'response.output_text.delta':
        return this.#text(event)
      case 'response.reasoning_text.delta':
        return this.#withReasoning
          ? this.#delta(
              this.#reasoning.text(this.#items[event.output_index], event.content_index, event.delta),
            )
          : ''
      case 'response.reasoning_summary_text.delta':
        return this.#withReasoning
          ? this.#delta(
              this.#reasoning.summary(this.#items[event.output_index], event.summary_index, event.delta),
            )
          : ''
      case 'response.function_call_arguments.delta':
        return this.#delta(
          `"tool_calls":[{"index":${this.#call(event.output_index)},"function":{"arguments":${JSON.stringify(event.delta)}}}]`,
        )
      case 'response.custom_tool_call_input.delta':
        return this.#delta(
          `"tool_calls":[{"index":${this.#call(event.output_index)},"custom":{"input":${JSON.stringify(event.delta)}}}]`,
        )
      case 'response.refusal.delta':
        if (event.delta === '') return ''
        this.#refused = true
        return this.#delta(`"refusal":${JSON.stringify(event.delta)}`)
      case 'response.output_item.added':
        return this.#added(event.output_index, event.item)
      case 'response.output_item.done':
        return this.#done(event.output_index, event.item)
      case 'response.content_part.added':
        if (event.part.type === 'output_text') this.#place(event.output_index, event.content_index)
        return ''
      case 'response.output_text.annotation.added': {
        const text = this.#place(event.output_index, event.content_index)
        text.annotations = Math.max(text.annotations, event.annotation_index + 1)
        return this.#fields({ annotations: [chatAnnotation(event.annotation, text.offset)] })
      }
      case 'response.created':
        return this.#begin(event.response)
      case 'response.completed':
      case 'response.incomplete':
        return this.#end(event)
      case 'response.failed':
        return this.#fail(failureOf(event.response), event.response)
      case 'error':
        return this.#fail(chatError(event.code, event.message), null)
      case 'response.debug':
        if (this.#common === null) {
          this.#debug.push({ ...event.debug })
          return ''
        }
        return this.#chunk({ choices: [], debug: event.debug })
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
    return this.#fail(chatError(error.errorType, error.message, error.metadata, error.status), {
      usage,
      ...(metadata === null || error.status === 500 ? {} : { gateway_metadata: metadata }),
    })
  }

  #begin(response: ResponseResource): string {
    this.#common = commonOf(response)
    const common = JSON.stringify(this.#common)
    this.#head = `data: ${common.slice(0, -1)},"choices":[{"index":0,"delta":{`
    const debug = this.#debug
    this.#debug = []
    return debug.map(each => this.#chunk({ choices: [], debug: each })).join('')
  }

  #text(event: OutputTextDeltaEvent): string {
    // Texts of tools that talk, such as the advisor, are not the answer's.
    if (event.delta === '' || this.#items[event.output_index]?.type !== 'message') return ''
    this.#contentLength += event.delta.length
    const delta = `"content":${JSON.stringify(event.delta)}`
    if (event.logprobs.length === 0) return this.#delta(delta)
    const logprobs = JSON.stringify({ content: event.logprobs.map(chatLogprob), refusal: null })
    return `${this.#head}${this.#once()}${delta}},"finish_reason":null,"native_finish_reason":null,"logprobs":${logprobs}}]}\n\n`
  }

  #added(outputIndex: number, item: OutputItem): string {
    this.#items[outputIndex] = item
    if (!isCall(item)) return ''
    const index = this.#calls.size
    this.#calls.set(outputIndex, index)
    return this.#fields({ tool_calls: [chatCall(item, index, '')] })
  }

  /** What an item tells at its end only. */
  #done(outputIndex: number, item: OutputItem): string {
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
        return details.length === 0 ? '' : this.#fields({ reasoning_details: details })
      }
      case 'function_call':
      case 'custom_tool_call':
        return this.#detail(callSignature(item))
      default: {
        const image = chatImage(item)
        const drawn = image === null ? '' : this.#fields({ images: [image] })
        return drawn + this.#detail(serverToolCall(item))
      }
    }
  }

  /** Annotations that came too late for an event of their own. */
  #annotations(outputIndex: number, index: number, all: Parameters<typeof chatAnnotation>[0][]): string {
    const text = this.#place(outputIndex, index)
    const late = all.slice(text.annotations)
    text.annotations = all.length
    return late.length === 0
      ? ''
      : this.#fields({ annotations: late.map(each => chatAnnotation(each, text.offset)) })
  }

  #place(outputIndex: number, index: number): { offset: number; annotations: number } {
    const key = `${outputIndex}:${index}`
    let text = this.#texts.get(key)
    if (text === undefined) {
      text = { offset: this.#contentLength, annotations: 0 }
      this.#texts.set(key, text)
    }
    return text
  }

  #call(outputIndex: number): number {
    return this.#calls.get(outputIndex) ?? 0
  }

  #detail(detail: Fields | null): string {
    return detail === null ? '' : this.#fields({ reasoning_details: [this.#reasoning.numbered(detail)] })
  }

  #end(event: ResponseStateEvent): string {
    if (this.#finished) return ''
    this.#finished = true
    const { response } = event
    const { alignment, gateway_metadata: metadata, usage } = response
    const last = this.#last(response)
    const finish = this.#chunk({
      ...last,
      choices: [
        {
          index: 0,
          delta: this.#closing(),
          finish_reason: finishOf(response),
          native_finish_reason: response.native_finish_reason ?? null,
          logprobs: null,
        },
      ],
    })
    return (
      finish +
      this.#chunk({
        ...last,
        choices: [],
        usage: usage === null ? null : chatUsage(usage),
        ...(alignment === undefined ? {} : { alignment }),
        ...(metadata === undefined ? {} : { gateway_metadata: metadata }),
      })
    )
  }

  /** What is known of the answer only at its end. */
  #last(response: ResponseResource): Fields {
    return {
      provider: response.provider ?? this.#common?.['provider'] ?? null,
      service_tier: response.service_tier,
      system_fingerprint: null,
    }
  }

  /** The last delta: an answer that said nothing has an empty text. */
  #closing(): Fields {
    const role = this.#role === '' ? {} : { role: 'assistant' }
    this.#role = ''
    const silent = this.#contentLength === 0 && this.#calls.size === 0 && !this.#refused
    return silent ? { ...role, content: '' } : role
  }

  /** Ends the choice with an error. Usage of calls that count follows in a chunk of its own. */
  #fail(
    error: ChatError,
    ending: Pick<ResponseResource, 'usage' | 'alignment' | 'gateway_metadata'> | null,
  ): string {
    if (this.#finished) return ''
    this.#finished = true
    const role = this.#role === '' ? {} : { role: 'assistant' }
    const usage = ending?.usage ?? null
    const rest = {
      ...(ending?.alignment === undefined ? {} : { alignment: ending.alignment }),
      ...(ending?.gateway_metadata === undefined ? {} : { gateway_metadata: ending.gateway_metadata }),
    }
    const failed = this.#chunk({
      error,
      choices: [
        {
          index: 0,
          delta: { ...role, content: '' },
          finish_reason: 'error',
          native_finish_reason: null,
          logprobs: null,
        },
      ],
      ...(usage === null ? rest : {}),
    })
    return usage === null ? failed : failed + this.#chunk({ choices: [], usage: chatUsage(usage), ...rest })
  }

  #once(): string {
    const role = this.#role
    this.#role = ''
    return role
  }

  #delta(json: string): string {
    return json === '' ? '' : this.#head + this.#once() + json + TAIL
  }

  #fields(delta: Fields): string {
    return this.#delta(JSON.stringify(delta).slice(1, -1))
  }

  #chunk(fields: Fields): string {
    return `data: ${JSON.stringify({ ...this.#common, ...fields })}\n\n`
  }
}

function commonOf(response: Pick<ResponseResource, 'id' | 'created_at' | 'model' | 'provider'>): Fields {
  return {
    id: response.id,
    object: 'chat.completion.chunk',
    created: response.created_at,
    model: response.model,
    provider: response.provider ?? null,
  }
}
