/** Writes a finished response as a whole chat completion. Pure. */
import type { MessageItem, OutputItem, ReasoningItem } from '../../protocol/items.ts'
import type { ResponseResource } from '../../protocol/response.ts'
import {
  type ChatFields,
  callSignature,
  chatAnnotation,
  chatCall,
  chatImage,
  chatLogprob,
  chatUsage,
  detailOrigin,
  finishOf,
  inputOf,
  REASONING_BREAK,
  reasoningSeals,
  serverToolCall,
} from './answer.ts'

/** `withReasoning`: false leaves out reasoning and its seals; only signatures of calls stay. */
export function chatBody(response: ResponseResource, withReasoning: boolean): ChatFields {
  const message = new Message(withReasoning)
  for (const item of response.output) message.add(item)
  const { alignment, debug, gateway_metadata: metadata, usage } = response
  return {
    id: response.id,
    object: 'chat.completion',
    created: response.created_at,
    model: response.model,
    provider: response.provider ?? null,
    service_tier: response.service_tier,
    system_fingerprint: null,
    choices: [
      {
        index: 0,
        finish_reason: finishOf(response),
        native_finish_reason: response.native_finish_reason ?? null,
        logprobs: message.logprobs,
        message: message.fields(),
      },
    ],
    usage: usage === null ? null : chatUsage(usage),
    ...(alignment === undefined ? {} : { alignment }),
    ...(debug === undefined ? {} : { debug }),
    ...(metadata === undefined ? {} : { gateway_metadata: metadata }),
  }
}

/** The message that items make together. */
export class Message {
  readonly #withReasoning: boolean
  #content = ''
  #refusal: string | null = null
  readonly #reasoning: string[] = []
  readonly #details: ChatFields[] = []
  readonly #calls: ChatFields[] = []
  readonly #images: ChatFields[] = []
  readonly #annotations: ChatFields[] = []
  readonly #logprobs: ChatFields[] = []

  constructor(withReasoning: boolean) {
    this.#withReasoning = withReasoning
  }

  get logprobs(): ChatFields | null {
    return this.#logprobs.length === 0 ? null : { content: this.#logprobs, refusal: null }
  }

  add(item: OutputItem): void {
    switch (item.type) {
      case 'message':
        this.#addMessage(item)
        return
      case 'reasoning':
        if (this.#withReasoning) this.#addReasoning(item)
        return
      case 'function_call':
      case 'custom_tool_call': {
        this.#calls.push(chatCall(item, this.#calls.length, inputOf(item)))
        this.#addDetail(callSignature(item))
        return
      }
      default: {
        const image = chatImage(item)
        if (image !== null) this.#images.push(image)
        this.#addDetail(serverToolCall(item))
      }
    }
  }

  /** `content` is a string; it is null only if there are calls or a refusal. */
  fields(): ChatFields {
    const emptyContent = this.#calls.length > 0 || this.#refusal !== null ? null : ''
    return {
      role: 'assistant',
      content: this.#content === '' ? emptyContent : this.#content,
      refusal: this.#refusal,
      reasoning: this.#reasoning.length === 0 ? null : this.#reasoning.join(REASONING_BREAK),
      ...(this.#details.length === 0 ? {} : { reasoning_details: this.#details }),
      ...(this.#calls.length === 0 ? {} : { tool_calls: this.#calls }),
      ...(this.#annotations.length === 0 ? {} : { annotations: this.#annotations }),
      ...(this.#images.length === 0 ? {} : { images: this.#images }),
    }
  }

  #addMessage(item: MessageItem): void {
    for (const part of item.content) {
      if (part.type === 'refusal') {
        if (part.refusal !== '') this.#refusal = (this.#refusal ?? '') + part.refusal
        continue
      }
      const offset = this.#content.length
      this.#content += part.text
      for (const annotation of part.annotations) this.#annotations.push(chatAnnotation(annotation, offset))
      for (const logprob of part.logprobs ?? []) this.#logprobs.push(chatLogprob(logprob))
    }
  }

  /** Adds raw thinking before its summary, as streams have it. */
  #addReasoning(item: ReasoningItem): void {
    const origin = detailOrigin(item)
    let last: ChatFields | null = null
    for (const { text } of item.content ?? []) {
      if (text === '') continue
      this.#reasoning.push(text)
      last = { type: 'reasoning.text', text, ...origin }
      this.#addDetail(last)
    }
    for (const { text: summary } of item.summary) {
      if (summary === '') continue
      this.#reasoning.push(summary)
      this.#addDetail({ type: 'reasoning.summary', summary, ...origin })
    }
    const { signature, encrypted } = reasoningSeals(item)
    if (last === null) this.#addDetail(signature)
    else if (signature !== null) Object.assign(last, { ...signature, text: last['text'] })
    this.#addDetail(encrypted)
  }

  #addDetail(detail: ChatFields | null): void {
    if (detail === null) return
    detail['index'] = this.#details.length
    this.#details.push(detail)
  }
}
