/**
 * Continuation: a stream of text that breaks after its first content is continued at another endpoint, which gets the
 * text so far. A repetition of that text is cut, so that the client reads one answer. Off unless a setting, a row or
 * the request turns it on. Serve threads; a stream that does not break never comes here.
 */
import type { GatewayError } from '../../base/errors.ts'
import type { AttemptRecord, Exchange } from '../../exchange/exchange.ts'
import type { Delta, WireRequest } from '../../formats/format.ts'
import type { InputItem } from '../../protocol/items.ts'
import type { Annotation } from '../../protocol/parts.ts'
import type { ContinueStreams, Continues, Endpoint } from '../../protocol/provider.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import type { CallFigures } from '../accounting/charge.ts'
import { quartersIn } from '../accounting/estimate.ts'
import type { Content, OpenText } from '../answer/answer.ts'
import type { RunningExchange } from '../exchange-stages.ts'
import type { AttemptTarget } from './attempt-target.ts'

/** Continuations of one answer that have delivered text. */
const MAX_CONTINUATIONS = 2
/** A shorter repetition may be meant. */
const REPEAT_MIN_CHARS = 12
const REPEAT_MAX_CHARS = 200
/** Output limits of some providers begin here. */
const MIN_OUTPUT_TOKENS = 16
/** Offset of item numbers in a continuation, so that they differ from the earlier decoder's. */
const ITEM_OFFSET = 1_000_000

/** Parts of a token in which text is counted. */
const QUARTERS = 4

const INSTRUCTION =
  'Your answer was cut off. Continue it exactly where it stops, beginning with the very next character. Do not repeat or comment on anything.'

/** A reply that broke. */
export interface BrokenReply {
  readonly record: AttemptRecord
  readonly figures: CallFigures
  readonly error: GatewayError
}

/** The text to continue, and the way in which its endpoint continues it. */
export interface Continuation {
  readonly text: OpenText
  readonly way: Continues
  /** White space at the end of the text, which the endpoint did not get. */
  readonly space: string
}

/** The wish of the caller, the endpoint or the setting about broken streams. */
export function wishOf(
  { request }: Pick<Exchange, 'request'>,
  { continueStreams, provider }: Endpoint,
  setting: ContinueStreams,
): ContinueStreams {
  return request.provider?.continue_streams ?? continueStreams ?? provider.continueStreams ?? setting
}

/** How the endpoint continues an answer; null if it does not, or only by an instruction that is not wished. */
export function wayOf({ continues, provider }: Endpoint, wish: ContinueStreams): Continues | null {
  const way = continues ?? provider.continues ?? null
  return way === 'instruction' && wish !== 'instruction' ? null : way
}

/** The text to continue; null if a continuation could be wrong, or if there have been too many. */
export function continuable(
  { answer, attempts, plugins, prompt }: RunningExchange,
  { record, error }: BrokenReply,
): OpenText | null {
  if (record.isRefused || error.retry !== 'endpoint' || plugins?.judges === true) return null
  const format = prompt.text?.format
  if (format?.type === 'json_schema' && format.strict === true) return null
  if (attempts.filter(({ continuedAt }) => continuedAt !== undefined).length >= MAX_CONTINUATIONS) return null
  return answer.openText()
}

/** The prompt of a continuation: the first one, and the text so far, if there is any, as the last message. */
export function continuedPrompt(
  prompt: ResponsesRequest,
  { text, space, way }: Continuation,
  saidTokens: number,
): ResponsesRequest {
  const textSoFar = text.text.slice(0, text.text.length - space.length)
  const before: readonly InputItem[] =
    typeof prompt.input === 'string'
      ? [{ type: 'message', role: 'user', content: prompt.input }]
      : prompt.input
  const instructedInput =
    textSoFar === ''
      ? []
      : [
          {
            type: 'message',
            role: 'assistant',
            content: [{ type: 'output_text', text: textSoFar, annotations: [] }],
          },
          ...(way === 'instruction' ? [{ type: 'message', role: 'user', content: INSTRUCTION }] : []),
        ]
  const input = [...before, ...instructedInput] as InputItem[]
  const { max_output_tokens: maxTokens } = prompt
  if (maxTokens == null) return { ...prompt, input }
  return { ...prompt, input, max_output_tokens: Math.max(MIN_OUTPUT_TOKENS, maxTokens - saidTokens) }
}

/** Approximate tokens of a text. */
export function tokensIn(text: string): number {
  return Math.floor(quartersIn(text) / QUARTERS)
}

export function continuationOf(text: OpenText, way: Continues): Continuation {
  return { text, way, space: /\s*$/.exec(text.text.slice(-REPEAT_MAX_CHARS))?.[0] ?? '' }
}

/** The request with a mark on its last message, for endpoints that need one. */
export function withPrefixMark(wire: WireRequest): WireRequest {
  const { messages } = wire.body
  if (!Array.isArray(messages)) return wire
  const last: unknown = messages.at(-1)
  return {
    ...wire,
    body: { ...wire.body, messages: [...messages.slice(0, -1), { ...(last as object), prefix: true }] },
  }
}

/**
 * The number of characters at the beginning of a continuation that repeat the end of the text; null while further
 * characters may make the repetition longer. `isWhole`: no more follow. Takes time that does not depend on the length of
 * the text.
 */
export function repeatLength(
  text: string,
  space: string,
  beginning: string,
  isWhole: boolean,
): number | null {
  const end = text.slice(-REPEAT_MAX_CHARS)
  const trimmedEnd = text.slice(0, text.length - space.length).slice(-REPEAT_MAX_CHARS)
  if (
    !isWhole &&
    beginning.length < REPEAT_MAX_CHARS &&
    (mayRepeat(end, beginning) || mayRepeat(trimmedEnd, beginning))
  )
    return null
  const fullRepeat = longestRepeat(end, beginning)
  if (fullRepeat >= REPEAT_MIN_CHARS) return fullRepeat
  const trimmedRepeat = longestRepeat(trimmedEnd, beginning)
  const from = trimmedRepeat >= REPEAT_MIN_CHARS ? trimmedRepeat : 0
  // The client has the white space that the endpoint did not get.
  let spaces = 0
  while (spaces < space.length && beginning[from + spaces] === space[spaces]) spaces++
  return from + spaces
}

/** True if the beginning received so far may still turn out to repeat an end of the text. */
function mayRepeat(end: string, beginning: string): boolean {
  for (let index = 0; index < end.length; index++)
    if (end.startsWith(beginning, index) || beginning.startsWith(end.slice(index))) return true
  return false
}

function longestRepeat(end: string, beginning: string): number {
  for (let length = Math.min(end.length, beginning.length); length > 0; length--)
    if (end.endsWith(beginning.slice(0, length))) return length
  return 0
}

type TextDelta = Extract<Delta, { kind: 'text' }>

/** Receives the deltas of a continuation, as the rest of the message that broke. One per attempt. */
export class ContinuedReply implements AttemptTarget {
  readonly #target: AttemptTarget
  readonly #continuation: Continuation
  /** Called when the first text has come. */
  readonly #onText: () => void
  /** The number of the message in this reply; null before. */
  #item: number | null = null
  /** Thoughts, which would stand in the middle of the message. */
  readonly #thoughts = new Set<number>()
  /** The beginning, until the repeated part is known; null afterwards. */
  #beginning: TextDelta | null = null
  #isDecided = false
  #cutChars = 0

  constructor(target: AttemptTarget, continuation: Continuation, onText: () => void) {
    this.#target = target
    this.#continuation = continuation
    this.#onText = onText
  }

  get sink(): AttemptTarget['sink'] {
    return this.#target.sink
  }

  receive(delta: Content): void {
    if (this.#thoughts.has(delta.item)) return
    if (delta.kind === 'open' && delta.start.type === 'reasoning') {
      this.#thoughts.add(delta.item)
      return
    }
    if (delta.kind === 'open' && delta.start.type === 'message' && this.#item === null) {
      this.#item = delta.item
      return
    }
    if (delta.item !== this.#item) {
      this.#decide(true)
      this.#target.receive({ ...delta, item: this.#continuation.text.item + ITEM_OFFSET + delta.item })
      return
    }
    if (delta.kind === 'text' && !this.#isDecided) {
      this.#beginning = this.#beginning === null ? delta : join(this.#beginning, delta)
      this.#decide(false)
      return
    }
    this.#decide(true)
    this.#target.receive(this.#placed(delta))
  }

  end(done: () => void): void {
    this.#decide(true)
    this.#target.end(done)
  }

  close(): void {
    this.#target.close()
  }

  /** Cuts the repeated part off the beginning, once it is known. */
  #decide(isWhole: boolean): void {
    const beginning = this.#beginning
    if (this.#isDecided || beginning === null) return
    const { text, space } = this.#continuation
    const repeatedChars = repeatLength(text.text, space, beginning.text, isWhole)
    if (repeatedChars === null) return
    this.#isDecided = true
    this.#beginning = null
    this.#cutChars = repeatedChars
    this.#onText()
    const remainingText = beginning.text.slice(repeatedChars)
    if (remainingText !== '')
      this.#target.receive(
        this.#placed({
          ...beginning,
          text: remainingText,
          logprobs: repeatedChars === 0 ? beginning.logprobs : null,
        }),
      )
  }

  #placed(delta: Content): Content {
    const { item, part, text } = this.#continuation.text
    const placedDelta = 'part' in delta ? { ...delta, item, part: part + delta.part } : { ...delta, item }
    if (placedDelta.kind !== 'annotation') return placedDelta
    return { ...placedDelta, annotation: move(placedDelta.annotation, text.length - this.#cutChars) }
  }
}

function join(before: TextDelta, delta: TextDelta): TextDelta {
  const logprobs =
    before.logprobs === null || delta.logprobs === null ? null : [...before.logprobs, ...delta.logprobs]
  return { ...delta, text: before.text + delta.text, logprobs }
}

/** The annotation, moved by this many characters. */
function move(annotation: Annotation, by: number): Annotation {
  const positions: Record<string, number> = {}
  for (const name of ['start_index', 'end_index', 'index']) {
    const position: unknown = Reflect.get(annotation, name)
    if (typeof position === 'number') positions[name] = position + by
  }
  return { ...annotation, ...positions }
}
