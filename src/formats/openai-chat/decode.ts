/**
 * Decodes one Chat Completions reply, streamed or whole, into Deltas. Pure. Hot path. Only choice 0 counts. `<think>`
 * in the text stays text. The Responses vocabulary has no part for audio, so its transcript becomes text. The last
 * finish reason and the last usage win; both may come early or twice.
 */
import { GatewayError } from '../../base/errors.ts'
import { filled, type Json, list, parseFrame, record } from '../../base/json.ts'
import { Calls, callIdIn, inputText } from '../calls.ts'
import { providerFailure } from '../failure.ts'
import { finishReason, isCut } from '../finish-reasons.ts'
import type { Decoder, Delta } from '../format.ts'
import { jsonOf, type TakeMessage, type WholeMessage } from '../whole-message.ts'
import { checkedCount, nameIn, Withheld } from '../withheld.ts'
import { bareErrorIn, errorIn } from './failure.ts'
import { ChatHosted } from './hosted.ts'
import { ChatReasoning, ChatText, hasReplyContent, thinkingTexts } from './message.ts'
import { chatUsage } from './usage.ts'

export class ChatDecoder implements Decoder {
  readonly #emit: (delta: Delta) => void
  readonly #message: ChatText
  readonly #reasoning: ChatReasoning
  /** Null until a call has come. */
  #calls: Calls | null = null
  /** Null until there is one: few replies have any. */
  #hosted: ChatHosted | null = null
  readonly #withheld = new Withheld()
  #itemCount = 0
  #isStarted = false
  #isEnded = false
  #upstreamId: string | null = null

  /** True once reasoning has arrived. */
  #hasReasoning = false
  /** The latest lists of citations and search results, and their sizes. */
  #citations: readonly unknown[] | null = null
  #searchResults: readonly unknown[] | null = null
  #citationBytes = 0
  #resultBytes = 0

  #finish: string | null = null
  #nativeFinish: string | null = null
  #stopSequence: string | null = null
  #serviceTier: string | null = null
  /** True for a whole reply, which cannot be cut off. Some servers send no finish reason in it, or '' for calls. */
  #isWholeReply = false
  #hasUsage = false
  #hasSentinel = false
  isSettled = false
  readonly #takeMessage: TakeMessage | null
  /** The only text of a whole reply; its status is known at the end. */
  #wholeText: Pick<WholeMessage, 'text' | 'json'> | null = null

  constructor(emit: (delta: Delta) => void, takeMessage: TakeMessage | null = null) {
    this.#emit = emit
    this.#takeMessage = takeMessage
    const nextItem = this.#nextItem
    const withheld = this.#withheld
    this.#message = new ChatText(emit, nextItem, withheld, () => this.#reasoning.close())
    this.#reasoning = new ChatReasoning(emit, nextItem, withheld, () => this.#message.close())
  }

  get withheld(): number {
    return this.#withheld.bytes
  }

  frame(event: string, data: string): void {
    if (this.#isEnded || data === '') return
    if (data.startsWith('[DONE]')) {
      this.#hasSentinel = true
      if (this.#isComplete()) this.#finishReply()
      return
    }
    const body = this.#parseBody(data)
    const choices = list(body['choices'])
    this.#readCommon(body, choices)
    if (choices === null || event === 'error' || body['error'] != null) this.#throwError(event, body, choices)
    if (choices === null) return
    for (const element of choices) {
      const choice = record(element)
      const index = choice?.['index']
      if (choice !== null && (index === undefined || index === null || index === 0)) {
        this.#readChoice(choice, body, data)
        break
      }
    }
    this.isSettled = this.#finish !== null && this.#hasUsage
  }

  end(): void {
    if (this.#isEnded) return
    if (!this.#isComplete()) {
      throw new GatewayError('provider_unavailable', 'The provider ended the reply before it was complete')
    }
    this.#finishReply()
  }

  readonly #nextItem = (): number => {
    const item = checkedCount(this.#itemCount, 'output items')
    this.#itemCount++
    return item
  }

  #isComplete(): boolean {
    if (this.#finish !== null) return true
    // Without a finish reason, a stream is complete only with its usage and its closing mark.
    return this.#isWholeReply ? this.#hasContent() : this.#hasSentinel && this.#hasUsage
  }

  #parseBody(data: string): Json {
    const value = parseFrame(data)
    const body = record(value)
    if (body !== null) return body
    const error = errorIn(value)
    if (error !== null) throw providerFailure(error)
    throw new GatewayError('provider_unavailable', 'The provider sent a body that is not a chat completion')
  }

  /** Reads the fields outside the choices, even of a frame with an error: the provider may bill a failed reply. */
  #readCommon(body: Json, choices: readonly unknown[] | null): void {
    if (!this.#isStarted) {
      const upstreamId = nameIn(body['id'])
      const model = filled(body['model'])
      // Azure begins with a chunk without id and choices; the next chunk has both.
      if (upstreamId !== null || (choices !== null && choices.length > 0)) {
        this.#isStarted = true
        this.#upstreamId = upstreamId
        this.#emit({ kind: 'start', upstreamId, model })
      }
    }
    let usage: Json | null = null
    for (const key in body) {
      switch (key) {
        case 'service_tier':
          this.#serviceTier = nameIn(body[key]) ?? this.#serviceTier
          break
        case 'usage':
          usage = record(body[key]) ?? usage
          break
        case 'citations':
          this.#citations = list(body[key]) ?? this.#citations
          this.#citationBytes = this.#withheld.replace(this.#citationBytes, this.#citations)
          break
        case 'search_results':
          this.#searchResults = list(body[key]) ?? this.#searchResults
          this.#resultBytes = this.#withheld.replace(this.#resultBytes, this.#searchResults)
          break
        default:
          // Fields of single vendors, such as `x_groq`.
          if (key.startsWith('x_')) usage ??= record(record(body[key])?.['usage'])
      }
    }
    if (usage === null) return
    this.#hasUsage = true
    this.#serviceTier ??= nameIn(usage['service_tier'])
    this.#emit({ kind: 'usage', usage: chatUsage(usage) })
  }

  /** @throws GatewayError for a frame with an error */
  #throwError(event: string, body: Json, choices: readonly unknown[] | null): void {
    const isErrorEvent = event === 'error'
    const error = errorIn(body) ?? (isErrorEvent || choices === null ? bareErrorIn(body, isErrorEvent) : null)
    if (error !== null) throw providerFailure(error)
  }

  #readChoice(choice: Json, body: Json, data: string): void {
    const delta = record(choice['delta'])
    const wholeMessage = record(choice['message'])
    // Perplexity sends the message so far next to each delta; in a whole reply, next to an empty delta.
    const usesWhole =
      wholeMessage !== null && !this.#hasContent() && (delta === null || !hasReplyContent(delta))
    const message = usesWhole ? wholeMessage : delta
    if (usesWhole && delta === null && body['object'] !== 'chat.completion.chunk') {
      this.#isWholeReply = true
    }
    const wholeText =
      this.#takeMessage !== null && this.#isWholeReply ? this.#plainText(message, choice) : null
    if (wholeText !== null) this.#wholeText = { text: wholeText, json: jsonOf(wholeText, data, 'content') }
    else if (message !== null) {
      const { logprobs } = choice
      this.#message.keepLogprobs(logprobs)
      this.#addMessage(message, usesWhole)
      this.#message.weighLogprobs(logprobs)
    }
    const finish = nameIn(choice['finish_reason'])
    if (finish !== null) {
      this.#finish = finish
      this.#nativeFinish = nameIn(choice['native_finish_reason']) ?? finish
      // vLLM and SGLang say which sequence ended the text; a number is a token of the model's own.
      const { stop_reason: stopReason, matched_stop: matchedStop } = choice
      if (stopReason !== undefined || matchedStop !== undefined)
        this.#stopSequence = nameIn(stopReason) ?? nameIn(matchedStop)
    }
    const usage = choice['usage']
    if (usage !== undefined && body['usage'] == null) {
      const counts = record(usage)
      if (counts === null) return
      this.#hasUsage = true
      this.#emit({ kind: 'usage', usage: chatUsage(counts) })
    }
  }

  /** The text of a message with nothing else; null for any other message. */
  #plainText(message: Json | null, choice: Json): string | null {
    if (message === null || this.#citations !== null || this.#searchResults !== null) return null
    if ((list(record(choice['logprobs'])?.['content'])?.length ?? 0) > 0) return null
    for (const key in message) {
      const value = message[key]
      if (key === 'role' || key === 'content' || value === null || value === '') continue
      if (!Array.isArray(value) || value.length > 0) return null
    }
    return filled(message['content'])
  }

  /** Reads a delta in a fixed order, whatever the order of its keys. Most deltas hold content only. */
  #addMessage(message: Json, isWhole: boolean): void {
    let content: unknown
    let hasMore = false
    for (const key in message) {
      const value = message[key]
      if (key === 'content') content = value
      else if (key !== 'role' && value !== null && value !== '') hasMore = true
    }
    if (hasMore) this.#beforeContent(message)
    if (typeof content === 'string') this.#message.text(content)
    else if (Array.isArray(content)) this.#readParts(content as readonly unknown[])
    if (hasMore) this.#afterContent(message, isWhole)
  }

  #beforeContent(message: Json): void {
    this.#readSignature(message)
    if (this.#reasoning.read(message)) this.#hasReasoning = true
    const executedTools = list(message['executed_tools'])
    if (executedTools !== null && executedTools.length > 0) {
      this.#reasoning.close()
      this.#hosted ??= new ChatHosted(this.#emit, this.#nextItem)
      for (let index = 0; index < executedTools.length; index++)
        this.#hosted.addExecuted(executedTools[index], index, this.#upstreamId)
    }
    const annotations = list(message['annotations'])
    if (annotations !== null) this.#message.annotate(annotations)
  }

  #afterContent(message: Json, isWhole: boolean): void {
    const refusal = filled(message['refusal'])
    if (refusal !== null) this.#message.refuse(refusal)
    const transcript = filled(record(message['audio'])?.['transcript'])
    if (transcript !== null) this.#message.text(transcript)
    const images = list(message['images'])
    if (images !== null) for (const image of images) this.#addImage(image)
    const calls = list(message['tool_calls'])
    if (calls !== null) for (const call of calls) this.#addCall(record(call), isWhole)
    const legacyCall = record(message['function_call'])
    if (
      legacyCall !== null &&
      (filled(legacyCall['name']) !== null || filled(legacyCall['arguments']) !== null)
    ) {
      this.#addCall({ function: legacyCall, index: 0 }, isWhole)
    }
  }

  /** Reads content as a list: thinking and text (Mistral), images (image models), or text (all others). */
  #readParts(parts: readonly unknown[]): void {
    for (const element of parts) {
      const part = record(element)
      if (part === null) {
        if (typeof element === 'string') this.#message.text(element)
        continue
      }
      switch (part['type']) {
        case 'thinking':
        case 'reasoning':
          for (const text of thinkingTexts(part['thinking'] ?? part['reasoning'] ?? part['text'])) {
            if (this.#reasoning.text(text)) this.#hasReasoning = true
          }
          break
        case 'image_url':
          this.#addImage(part)
          break
        case 'refusal': {
          const refusal = filled(part['refusal'])
          if (refusal !== null) this.#message.refuse(refusal)
          break
        }
        default: {
          const text = filled(part['text'])
          if (text !== null) this.#message.text(text)
        }
      }
    }
  }

  #addImage(image: unknown): void {
    this.#reasoning.close()
    this.#message.close()
    this.#hosted ??= new ChatHosted(this.#emit, this.#nextItem)
    this.#hosted.addImage(image, this.#upstreamId)
  }

  /**
   * Reads an element of `tool_calls`, or `{function}` around a legacy `function_call`. In a whole reply each is a call
   * of its own.
   */
  #addCall(call: Json | null, isWhole: boolean): void {
    if (call === null) return
    this.#reasoning.close()
    // The message stays open: some providers continue it, even if only with blanks, and it is one text.
    const custom = record(call['custom'])
    const functionCall = record(call['function'])
    // After the first piece of a stream, pieces have neither type nor name.
    const isCustom =
      custom !== null &&
      (call['type'] === 'custom' || filled(custom['name']) !== null || functionCall === null)
    const body = isCustom ? custom : functionCall
    const { index } = call
    const signature = signatureIn(call)
    const start = {
      isCustom,
      id: null,
      callId: callIdIn(call['id']),
      name: filled(body?.['name']),
      extra: signature === null ? null : { signature },
    }
    const input = isCustom ? body?.['input'] : body?.['arguments']
    this.#calls ??= new Calls(this.#emit, this.#withheld)
    if (isWhole) this.#calls.begin(this.#nextItem(), start).complete(input)
    else {
      const piece = { ...start, index: typeof index === 'number' ? index : null, input: inputText(input) }
      this.#calls.piece(piece, this.#nextItem)
    }
  }

  /** Reads Google's signature of the whole message as reasoning without text. */
  #readSignature(message: Json): void {
    const google = record(record(message['extra_content'])?.['google'])
    const signature = filled(google?.['thought_signature'])
    if (signature === null) return
    this.#reasoning.addSignature(signature, 'google-gemini-v1')
    this.#reasoning.close()
  }

  #hasContent(): boolean {
    return (
      this.#wholeText !== null ||
      this.#hasReasoning ||
      this.#message.hasText ||
      this.#calls !== null ||
      this.#hosted?.hasItems === true
    )
  }

  #finishReply(): void {
    this.#isEnded = true
    const nativeReason = this.#finish
    const reason =
      nativeReason === null
        ? this.#calls === null
          ? 'stop'
          : 'tool_calls'
        : finishReason(nativeReason, this.#wholeText !== null || this.#itemCount > 0)
    if (reason === 'content_filter' && !this.#hasContent()) {
      throw new GatewayError(
        'content_policy_violation',
        'The provider refused the request because of its content policy',
      )
    }
    if (this.#wholeText !== null) {
      this.#takeMessage?.({
        id: null,
        phase: null,
        status: isCut(reason) ? 'incomplete' : 'completed',
        ...this.#wholeText,
      })
    }
    this.#message.cite(this.#searchResults, this.#citations)
    this.#reasoning.close()
    if (this.#calls !== null) {
      // Only the call was cut off, not the text before it.
      this.#message.close()
      this.#calls.finish(isCut(reason))
    }
    this.#emit({
      kind: 'finish',
      reason,
      native: this.#nativeFinish,
      serviceTier: this.#serviceTier,
      ...(this.#stopSequence === null || reason !== 'stop'
        ? undefined
        : { stopSequence: this.#stopSequence }),
    })
  }
}

/** Google signs calls; a later turn must send the signature back. */
function signatureIn(call: Json): string | null {
  const google = record(record(call['extra_content'])?.['google'])
  return filled(google?.['thought_signature']) ?? filled(call['thought_signature'])
}
