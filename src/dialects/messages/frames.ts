/**
 * Writes the events of a response as Messages stream events. Pure. Hot path: deltas of text, thinking and input are
 * serialised by hand.
 *
 * Order: debug events, message_start, ping, for each block start … stop, message_delta with the stop reason and the
 * usage, message_stop. A failure is one `error` event, the last one. One block is open at a time: while a call is open,
 * content of other items waits for its end, because the input of a call cannot be split.
 */
import type { GatewayError } from '../../base/errors.ts'
import type { AnnotationAddedEvent, OutputTextDeltaEvent, StreamEvent } from '../../protocol/events.ts'
import type { HostedItem, MessageItem, OutputItem, ReasoningItem } from '../../protocol/items.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import type { ResponseResource } from '../../protocol/response.ts'
import type { CallItem } from '../chat-completions/answer.ts'
import type { FailureDetails, FrameWriter } from '../dialect.ts'
import {
  blocksOf,
  containerOf,
  editsOf,
  initialMessage,
  type MessageFields,
  messagesUsage,
  reportsOf,
  stopOf,
  textBlock,
  toolUse,
} from './answer.ts'
import { citationOf } from './citations.ts'
import { failureEvent, messagesFailure } from './failure.ts'
import { hostedBlocks, type OutputBlock } from './hosted.ts'
import { callSeal, signatureOf, THOUGHT_BREAK, thinkingBlock } from './thinking-blocks.ts'

interface OpenBlock {
  readonly kind: 'text' | 'thinking' | 'tool_use'
  /** Output index of the block's item. */
  readonly item: number
  /** For a text: its content index. For a thought: the form and number of its last piece. */
  part: string
  /** A delta up to its text. */
  readonly deltaStart: string
}

/** A delta after its text. */
const DELTA_END = '}}\n\n'

/** A text of the answer, as far as it has arrived. */
interface TextState {
  text: string
  /** How many annotations were sent. */
  annotations: number
}

export class MessagesFrames implements FrameWriter {
  readonly #request: ResponsesRequest
  readonly #items: OutputItem[] = []
  #open: OpenBlock | null = null
  /** Number of the next block. */
  #nextIndex = 0
  /** The events of other items that arrived while a call was open, by output index. */
  readonly #waitingEvents = new Map<number, StreamEvent[]>()
  readonly #texts = new Map<string, TextState>()
  /** Thoughts that were sent, by output index: true as text, false as summary. */
  readonly #sentAsText = new Map<number, boolean>()
  #hasBegun = false
  #isFinished = false

  constructor(request: ResponsesRequest) {
    this.#request = request
  }

  write(event: StreamEvent): string {
    const open = this.#open
    if (open?.kind === 'tool_use' && 'output_index' in event && event.output_index !== open.item) {
      const events = this.#waitingEvents.get(event.output_index)
      if (events === undefined) this.#waitingEvents.set(event.output_index, [event])
      else events.push(event)
      return ''
    }
    const frames = this.#framesOf(event)
    return this.#waitingEvents.size === 0 ? frames : frames + this.#writeWaiting()
  }

  end(): string {
    return ''
  }

  failure(error: GatewayError, details: FailureDetails): string {
    return this.#fail(messagesFailure(error, { ...details, request: this.#request }))
  }

  #framesOf(event: StreamEvent): string {
    switch (event.type) {
      case 'response.output_text.delta':
        return this.#text(event)
      case 'response.reasoning_text.delta':
        return this.#think(event.output_index, `text ${event.content_index}`, event.delta)
      case 'response.reasoning_summary_text.delta':
        return this.#think(event.output_index, `summary ${event.summary_index}`, event.delta)
      case 'response.function_call_arguments.delta':
        return this.#input(event.output_index, event.delta)
      case 'response.output_item.added':
        return this.#startItem(event.output_index, event.item)
      case 'response.output_item.done':
        return this.#endItem(event.output_index, event.item)
      case 'response.output_text.annotation.added':
        return this.#annotate(event)
      case 'response.created':
        return this.#begin(event.response)
      case 'response.completed':
      case 'response.incomplete':
        return this.#end(event.response)
      case 'response.failed':
        return this.#fail(failureEvent(event.response, this.#request))
      case 'response.debug':
        return frame('debug', { debug: event.debug })
      default:
        return ''
    }
  }

  #begin(response: ResponseResource): string {
    this.#hasBegun = true
    return frame('message_start', { message: initialMessage(response) }) + frame('ping', {})
  }

  #text(event: OutputTextDeltaEvent): string {
    const { output_index: item, content_index: index, delta } = event
    // Texts of tools that talk, such as the advisor, are not the answer's.
    if (delta === '' || this.#items[item]?.type !== 'message') return ''
    const head = this.#openText(item, index, event.cut === true)
    this.#textState(item, index).text += delta
    return `${head}${this.#open?.deltaStart ?? ''}${JSON.stringify(delta)}${DELTA_END}`
  }

  /** `cut`: the text continues in a block of its own. */
  #openText(item: number, index: number, cut: boolean): string {
    const open = this.#open
    if (!cut && open?.kind === 'text' && open.item === item && open.part === String(index)) return ''
    return this.#startBlock('text', item, textBlock('', []), String(index))
  }

  #textState(item: number, index: number): TextState {
    const key = `${item}:${index}`
    let text = this.#texts.get(key)
    if (text === undefined) {
      text = { text: '', annotations: 0 }
      this.#texts.set(key, text)
    }
    return text
  }

  #annotate({
    output_index: item,
    content_index: index,
    annotation,
    annotation_index: annotationIndex,
  }: AnnotationAddedEvent): string {
    const text = this.#textState(item, index)
    text.annotations = Math.max(text.annotations, annotationIndex + 1)
    return this.#cite(item, index, text, [annotation])
  }

  #cite(
    item: number,
    index: number,
    { text }: TextState,
    annotations: readonly AnnotationAddedEvent['annotation'][],
  ) {
    let frames = ''
    for (const annotation of annotations) {
      const citation = citationOf(annotation, text)
      if (citation === null) continue
      frames += this.#openText(item, index, false)
      frames += this.#delta({ type: 'citations_delta', citation })
    }
    return frames
  }

  #think(item: number, part: string, delta: string): string {
    if (delta === '') return ''
    let head = ''
    let text = delta
    const open = this.#open
    if (open?.kind !== 'thinking' || open.item !== item || open.part !== part) {
      // Some providers send the same thought as text and as summary. The form that arrives first is sent.
      const isText = part.startsWith('text')
      if ((this.#sentAsText.get(item) ?? isText) !== isText) return ''
      this.#sentAsText.set(item, isText)
      if (open?.kind !== 'thinking' || open.item !== item) {
        head = this.#startBlock('thinking', item, { type: 'thinking', thinking: '', signature: '' }, part)
      } else {
        open.part = part
        text = THOUGHT_BREAK + delta
      }
    }
    return `${head}${this.#open?.deltaStart ?? ''}${JSON.stringify(text)}${DELTA_END}`
  }

  #input(item: number, delta: string): string {
    const open = this.#open
    if (delta === '' || open?.kind !== 'tool_use' || open.item !== item) return ''
    return `${open.deltaStart}${JSON.stringify(delta)}${DELTA_END}`
  }

  #startItem(index: number, item: OutputItem): string {
    this.#items[index] = item
    // The name comes late. Clients need it first, so the whole call is written at its end.
    if (item.type !== 'function_call' || item.name === '') return ''
    return this.#startBlock('tool_use', index, toolUse(item), '')
  }

  /** Writes the fields that an item gets only at its end. */
  #endItem(index: number, item: OutputItem): string {
    switch (item.type) {
      case 'message':
        return this.#lateAnnotations(index, item) + this.#stopBlockOf(index)
      case 'reasoning':
        return this.#endThought(index, item)
      case 'function_call':
      case 'custom_tool_call':
        return this.#endCall(index, item)
      default:
        return this.#wholeBlocks(hostedBlocks(item as HostedItem))
    }
  }

  /** Annotations that arrived too late for an event of their own. */
  #lateAnnotations(index: number, { content }: MessageItem): string {
    return content
      .map((part, partIndex) => {
        if (part.type !== 'output_text') return ''
        const text = this.#textState(index, partIndex)
        return this.#cite(index, partIndex, text, part.annotations.slice(text.annotations))
      })
      .join('')
  }

  #endThought(index: number, item: ReasoningItem): string {
    const open = this.#open
    if (open?.kind === 'thinking' && open.item === index) {
      const signature = signatureOf(item)
      const seal = signature === '' ? '' : this.#delta({ type: 'signature_delta', signature })
      return seal + this.#stopBlock()
    }
    // The block of another item may have ended the thought, so only the fields of its end are left to send.
    const block = thinkingBlock(this.#sentAsText.has(index) ? { ...item, content: [], summary: [] } : item)
    return block === null ? '' : this.#wholeBlocks([block])
  }

  #endCall(index: number, item: CallItem): string {
    const isOpen = this.#open?.kind === 'tool_use' && this.#open.item === index
    if (!isOpen) return this.#wholeBlocks(blocksOf(item))
    const seal = callSeal(item)
    return this.#stopBlock() + (seal === null ? '' : this.#wholeBlocks([seal]))
  }

  /** Writes the events that waited for the end of a call, up to the next unfinished call. */
  #writeWaiting(): string {
    let frames = ''
    for (const [item, events] of this.#waitingEvents) {
      if (this.#open?.kind === 'tool_use' || this.#isFinished) break
      this.#waitingEvents.delete(item)
      frames += events.map(event => this.#framesOf(event)).join('')
    }
    return frames
  }

  #end(response: ResponseResource): string {
    if (this.#isFinished || !this.#hasBegun) return ''
    this.#isFinished = true
    const { usage, output } = response
    const delta = { ...stopOf(response), container: containerOf(output) }
    return (
      this.#stopBlock() +
      frame('message_delta', {
        delta,
        usage: messagesUsage(usage, response.service_tier),
        ...editsOf(response),
      }) +
      frame('message_stop', reportsOf(response))
    )
  }

  #fail(failure: MessageFields): string {
    if (this.#isFinished) return ''
    this.#isFinished = true
    return `event: error\ndata: ${JSON.stringify(failure)}\n\n`
  }

  // Blocks

  #startBlock(kind: OpenBlock['kind'], item: number, block: OutputBlock, part: string): string {
    const stop = this.#stopBlock()
    const index = this.#nextIndex++
    this.#open = { kind, item, part, deltaStart: `${DELTA_START}${index},"delta":${DELTA_FIELDS[kind]}` }
    return stop + frame('content_block_start', { index, content_block: block })
  }

  /** A delta of the open block. */
  #delta(delta: MessageFields): string {
    return frame('content_block_delta', { index: this.#nextIndex - 1, delta })
  }

  #stopBlock(): string {
    if (this.#open === null) return ''
    this.#open = null
    return frame('content_block_stop', { index: this.#nextIndex - 1 })
  }

  #stopBlockOf(item: number): string {
    return this.#open?.item === item ? this.#stopBlock() : ''
  }

  /** Blocks that arrive whole. The input of a call is still sent as a delta, because clients expect it there. */
  #wholeBlocks(blocks: readonly OutputBlock[]): string {
    let frames = this.#stopBlock()
    for (const block of blocks) {
      const index = this.#nextIndex++
      const { input } = block
      const isCall = input !== undefined && block['type'] !== 'mcp_tool_use'
      frames += frame('content_block_start', {
        index,
        content_block: isCall ? { ...block, input: {} } : block,
      })
      if (isCall) frames += this.#delta({ type: 'input_json_delta', partial_json: JSON.stringify(input) })
      frames += frame('content_block_stop', { index })
    }
    return frames
  }
}

const DELTA_START = 'event: content_block_delta\ndata: {"type":"content_block_delta","index":'
const DELTA_FIELDS: Readonly<Record<OpenBlock['kind'], string>> = {
  text: '{"type":"text_delta","text":',
  thinking: '{"type":"thinking_delta","thinking":',
  tool_use: '{"type":"input_json_delta","partial_json":',
}

/**
 * JSON escapes CR and LF, and the types are the gateway's own, so the content of a frame cannot start another frame.
 */
function frame(type: string, fields: MessageFields): string {
  return `event: ${type}\ndata: ${JSON.stringify({ type, ...fields })}\n\n`
}
