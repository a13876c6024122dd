/**
 * One Chat Completions reply, streamed or whole, as Deltas. Pure. Hot path.
 * Only choice 0 counts. `<think>` in the text stays text. Audio has no part in the Responses vocabulary: its
 * transcript becomes text. The last finish reason and the last usage win; both may be told early or twice.
 */
import { GatewayError } from '../../errors.ts'
import type { Annotation, Logprob } from '../../protocol/items.ts'
import type { Decoder, Delta, FinishReason } from '../format.ts'
import { filled, type Json, list, parsedFrame, record } from '../json.ts'
import { providerFailure } from '../provider-failure.ts'
import { oneMore } from '../reply-bounds.ts'
import { ChatCalls } from './calls.ts'
import { bareErrorIn, errorIn } from './failure.ts'
import { ChatHosted, chatAnnotation, replyCitations } from './hosted.ts'
import { ChatReasoning } from './reasoning.ts'
import { chatUsage } from './usage.ts'

/** Words for the end beside OpenAI's own, seen at providers; what is not here is `other`. */
const FINISH: ReadonlyMap<string, FinishReason> = new Map([
  ['stop', 'stop'],
  ['end_turn', 'stop'],
  ['stop_sequence', 'stop'],
  ['length', 'length'],
  ['max_tokens', 'length'],
  ['model_length', 'length'],
  ['model_context_window_exceeded', 'length'],
  ['tool_calls', 'tool_calls'],
  ['function_call', 'tool_calls'],
  ['tool_use', 'tool_calls'],
  ['content_filter', 'content_filter'],
  ['sensitive', 'content_filter'],
  ['refusal', 'content_filter'],
])

/** Words that say that the reply broke off: `error` codes as `providerFailure` knows them. */
const BROKEN: ReadonlyMap<string, string> = new Map([
  ['error', 'server_error'],
  ['abort', 'server_error'],
  ['network_error', 'server_error'],
  ['insufficient_system_resource', 'overloaded_error'],
])

export class ChatDecoder implements Decoder {
  readonly #emit: (delta: Delta) => void
  readonly #reasoning: ChatReasoning
  readonly #calls: ChatCalls
  readonly #hosted: ChatHosted
  #items = 0
  #started = false
  #ended = false
  #upstreamId: string | null = null

  /** The open message, the number of its part being written and that part's kind. */
  #message: number | null = null
  #part = -1
  #partKind: 'text' | 'refusal' | null = null
  #textUnits = 0
  #spoke = false
  #logprobs: Logprob[] | null = null
  #annotations: Annotation[] = []
  #citations: readonly unknown[] | null = null
  #searchResults: readonly unknown[] | null = null

  #finish: string | null = null
  #native: string | null = null
  #serviceTier: string | null = null
  /** A body that is the whole reply and says how it finished, be it with a blank: one provider does for calls. */
  #whole = false
  /** Usage in a chunk without choices, then `[DONE]`: how a provider that never gives a finish reason ends. */
  #usageAlone = false
  #sentinel = false

  constructor(emit: (delta: Delta) => void) {
    this.#emit = emit
    const next = () => this.#nextItem()
    this.#reasoning = new ChatReasoning(emit, next, () => this.#closeMessage())
    this.#calls = new ChatCalls(emit, next)
    this.#hosted = new ChatHosted(emit, next)
  }

  frame(event: string, data: string): void {
    if (this.#ended || data === '') return
    if (data.startsWith('[DONE]')) {
      this.#sentinel = true
      if (this.#certain()) this.#complete()
      return
    }
    const body = this.#parse(data)
    const choices = list(body['choices'])
    this.#common(body, choices)
    const error =
      errorIn(body) ?? (event === 'error' || choices === null ? bareErrorIn(body, event === 'error') : null)
    if (error !== null) throw providerFailure(error)
    if (choices === null) return
    for (const element of choices) {
      const choice = record(element)
      const index = choice?.['index']
      if (choice !== null && (index === undefined || index === null || index === 0)) {
        this.#choice(choice, body)
        break
      }
    }
  }

  end(): void {
    if (this.#ended) return
    if (!this.#certain()) {
      throw new GatewayError('provider_unavailable', 'The provider ended the reply before it was finished')
    }
    this.#complete()
  }

  #nextItem(): number {
    const item = oneMore(this.#items, 'output items')
    this.#items++
    return item
  }

  #certain(): boolean {
    return this.#finish !== null || this.#whole || (this.#sentinel && this.#usageAlone)
  }

  #parse(data: string): Json {
    const value = parsedFrame(data)
    const body = record(value)
    if (body !== null) return body
    const error = errorIn(value)
    if (error !== null) throw providerFailure(error)
    throw new GatewayError(
      'provider_unavailable',
      'The provider sent something that is not a chat completion',
    )
  }

  /** What stands beside the choices. Usage first: a failed reply may still be billed. */
  #common(body: Json, choices: readonly unknown[] | null): void {
    if (!this.#started) {
      const upstreamId = filled(body['id'])
      const model = filled(body['model'])
      // Azure begins with a chunk that has neither; the next one knows.
      if (upstreamId !== null || (choices !== null && choices.length > 0)) {
        this.#started = true
        this.#upstreamId = upstreamId
        this.#emit({ kind: 'start', upstreamId, model })
      }
    }
    this.#serviceTier = filled(body['service_tier']) ?? this.#serviceTier
    const usage = record(body['usage']) ?? record(record(body['x_groq'])?.['usage'])
    if (usage !== null) {
      if (choices === null || choices.length === 0) this.#usageAlone = true
      this.#serviceTier ??= filled(usage['service_tier'])
      this.#emit({ kind: 'usage', usage: chatUsage(usage) })
    }
    this.#citations = list(body['citations']) ?? this.#citations
    this.#searchResults = list(body['search_results']) ?? this.#searchResults
  }

  #choice(choice: Json, body: Json): void {
    const delta = record(choice['delta'])
    const whole = record(choice['message'])
    // Perplexity sends the message so far beside each delta, and in a whole reply an empty delta beside it.
    const useWhole = whole !== null && !this.#spokeAtAll() && (delta === null || !says(delta))
    const message = useWhole ? whole : delta
    if (useWhole && delta === null && body['object'] !== 'chat.completion.chunk') {
      this.#whole = typeof choice['finish_reason'] === 'string'
    }
    if (message !== null) {
      this.#keepLogprobs(choice)
      this.#say(message)
    }
    const finish = filled(choice['finish_reason'])
    if (finish !== null) {
      this.#finish = finish
      this.#native = filled(choice['native_finish_reason']) ?? finish
    }
  }

  #say(message: Json): void {
    this.#signed(message)
    if (this.#reasoning.take(message)) this.#spoke = true
    const executed = list(message['executed_tools'])
    if (executed !== null && executed.length > 0) {
      this.#reasoning.close()
      for (let at = 0; at < executed.length; at++) this.#hosted.executed(executed[at], at, this.#upstreamId)
    }
    const annotations = list(message['annotations'])
    if (annotations !== null) this.#annotate(annotations)
    const content = message['content']
    if (typeof content === 'string') this.#text(content)
    else if (Array.isArray(content)) this.#parts(content as readonly unknown[])
    const refusal = filled(message['refusal'])
    if (refusal !== null) this.#refuse(refusal)
    const transcript = filled(record(message['audio'])?.['transcript'])
    if (transcript !== null) this.#text(transcript)
    const images = list(message['images'])
    if (images !== null) for (const image of images) this.#image(image)
    const calls = list(message['tool_calls'])
    if (calls !== null) for (const call of calls) this.#call(record(call))
    const legacy = record(message['function_call'])
    if (legacy !== null && (filled(legacy['name']) !== null || filled(legacy['arguments']) !== null)) {
      this.#call({ function: legacy, index: 0 })
    }
  }

  /** Content as a list: Mistral's thinking and text, images of image models, text of everybody else. */
  #parts(parts: readonly unknown[]): void {
    for (const element of parts) {
      const part = record(element)
      if (part === null) {
        if (typeof element === 'string') this.#text(element)
        continue
      }
      switch (part['type']) {
        case 'thinking':
        case 'reasoning':
          for (const text of texts(part['thinking'] ?? part['reasoning'] ?? part['text'])) {
            if (this.#reasoning.text(text)) this.#spoke = true
          }
          break
        case 'image_url':
          this.#image(part)
          break
        case 'refusal': {
          const refusal = filled(part['refusal'])
          if (refusal !== null) this.#refuse(refusal)
          break
        }
        default: {
          const text = filled(part['text'])
          if (text !== null) this.#text(text)
        }
      }
    }
  }

  #text(text: string): void {
    if (text === '') return
    const item = this.#write('text')
    const logprobs = this.#logprobs
    this.#logprobs = null
    this.#textUnits += text.length
    this.#emit({ kind: 'text', item, part: this.#part, text, logprobs })
    if (this.#annotations.length > 0) this.#flushAnnotations()
  }

  #refuse(text: string): void {
    const item = this.#write('refusal')
    this.#emit({ kind: 'refusal', item, part: this.#part, text })
  }

  /** The message to write to, its current part being of this kind. */
  #write(kind: 'text' | 'refusal'): number {
    this.#spoke = true
    this.#reasoning.close()
    if (this.#message === null) {
      this.#message = this.#nextItem()
      this.#part = -1
      this.#partKind = null
      this.#emit({ kind: 'open', item: this.#message, start: { type: 'message', id: null, phase: null } })
    }
    if (this.#partKind !== kind) {
      this.#part++
      this.#partKind = kind
      this.#textUnits = 0
    }
    return this.#message
  }

  #closeMessage(): void {
    if (this.#message === null) return
    const item = this.#message
    this.#flushAnnotations()
    this.#message = null
    this.#emit({ kind: 'close', item, fields: null })
  }

  #image(image: unknown): void {
    this.#reasoning.close()
    this.#closeMessage()
    this.#hosted.image(image, this.#upstreamId)
  }

  #call(call: Json | null): void {
    if (call === null) return
    this.#reasoning.close()
    // The message stays open: some providers go on writing it, if only blanks, and it is one text.
    this.#calls.take(call)
  }

  /** Google's signature of the whole message: kept as reasoning without words. */
  #signed(message: Json): void {
    const google = record(record(message['extra_content'])?.['google'])
    const signature = filled(google?.['thought_signature'])
    if (signature === null) return
    this.#reasoning.signature(signature, 'google-gemini-v1')
    this.#reasoning.close()
  }

  /** Annotations may come before the text they belong to; they wait for it. */
  #annotate(raw: readonly unknown[]): void {
    for (const element of raw) {
      const annotation = chatAnnotation(element)
      if (annotation !== null) this.#annotations.push(annotation)
    }
    if (this.#message !== null && this.#partKind === 'text') this.#flushAnnotations()
  }

  #flushAnnotations(): void {
    if (this.#message === null || this.#partKind !== 'text') return
    for (const annotation of this.#annotations) {
      this.#emit({ kind: 'annotation', item: this.#message, part: this.#part, annotation })
    }
    this.#annotations = []
  }

  /** Log probabilities wait for the text they belong to: a chunk may carry them ahead. */
  #keepLogprobs(choice: Json): void {
    const content = list(record(choice['logprobs'])?.['content'])
    if (content === null || content.length === 0) return
    this.#logprobs ??= []
    for (const token of content) if (isLogprob(token)) this.#logprobs.push(token)
  }

  #spokeAtAll(): boolean {
    return this.#spoke || this.#calls.any || this.#hosted.any
  }

  #complete(): void {
    this.#ended = true
    const reason = this.#finish === null ? 'other' : (FINISH.get(this.#finish) ?? 'other')
    const broken = BROKEN.get(this.#finish ?? '')
    if (broken !== undefined) {
      throw providerFailure({ status: null, code: broken, message: 'The provider broke the reply off' })
    }
    if (reason === 'content_filter' && !this.#spokeAtAll()) {
      throw new GatewayError(
        'content_policy_violation',
        'The provider refused the request by its content policy',
      )
    }
    if (this.#citations !== null || this.#searchResults !== null) {
      this.#annotations.push(...replyCitations(this.#searchResults, this.#citations, this.#textUnits))
    }
    this.#flushAnnotations()
    this.#reasoning.close()
    this.#calls.finish(reason === 'length' || reason === 'content_filter')
    this.#emit({ kind: 'finish', reason, native: this.#native, serviceTier: this.#serviceTier })
  }
}

/** Texts of a thinking part: a string, or a list of `{type:"text", text}`. */
function texts(value: unknown): readonly string[] {
  if (typeof value === 'string') return [value]
  return (list(value) ?? []).map(part => filled(record(part)?.['text'])).filter(text => text !== null)
}

/** Whether a delta holds anything of the reply itself. */
function says(delta: Json): boolean {
  return [
    'content',
    'reasoning_content',
    'reasoning',
    'reasoning_details',
    'tool_calls',
    'refusal',
    'images',
  ].some(name => {
    const value = delta[name]
    return typeof value === 'string' || Array.isArray(value) ? value.length > 0 : record(value) !== null
  })
}

function isLogprob(value: unknown): value is Logprob {
  const token = record(value)
  return token !== null && typeof token['token'] === 'string' && typeof token['logprob'] === 'number'
}
