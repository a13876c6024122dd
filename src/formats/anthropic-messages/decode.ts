/**
 * Decodes one reply of Anthropic's Messages API into Deltas: message, usage, end, and errors inside the stream. A JSON
 * reply is one frame for the same code. Pure. Hot path.
 *
 * A reply is complete with a stop reason and `message_stop`; the official client demands both too, and no known
 * provider omits either. Any other reply was cut off.
 */
import { GatewayError } from '../../base/errors.ts'
import {
  filled,
  type Json,
  listOrEmpty,
  parseFrame,
  record,
  recordOrEmpty,
  textOrEmpty,
  wholeNumber,
} from '../../base/json.ts'
import { tidyMessage } from '../failure.ts'
import { finishReason, isCut } from '../finish-reasons.ts'
import type { AppliedEdit, Decoder, Delta } from '../format.ts'
import { jsonOf, type TakeMessage } from '../whole-message.ts'
import { checkedCount, nameIn } from '../withheld.ts'
import { type Block, IGNORED_BLOCK, impliedBlock, Output, openBlock } from './blocks.ts'
import { bodyError, errorMeaning } from './failure.ts'
import { HostedCalls } from './hosted.ts'
import { serviceTierOf, UsageCount } from './usage.ts'

export class MessageDecoder implements Decoder {
  readonly #emit: (delta: Delta) => void
  readonly #output: Output
  /** Null until a block is neither text nor a call of the client. */
  #hosted: HostedCalls | null = null
  readonly #blocks = new Map<number, Block>()
  readonly #usage = new UsageCount()
  #usageBytes = 0
  /** True once the final usage has arrived. */
  #hasUsage = false
  /** True if a message was emitted whole, without `#output`. */
  #hasWholeMessage = false
  isSettled = false
  #lastIndex = -1
  #messageId: string | null = null
  #isStarted = false
  #stopReason: string | null = null
  /** Details of a refusal. */
  #explanation: string | null = null
  #category: string | null = null
  #stopSequence: string | null = null
  #edits: readonly AppliedEdit[] | null = null
  #isFinished = false
  readonly #takeMessage: TakeMessage | null

  constructor(emit: (delta: Delta) => void, takeMessage: TakeMessage | null = null) {
    this.#emit = emit
    this.#takeMessage = takeMessage
    this.#output = new Output(emit)
  }

  get withheld(): number {
    return this.#output.withheld.bytes
  }

  frame(event: string, data: string): void {
    if (this.#isFinished || event === 'ping' || data === '' || data === '[DONE]') return
    const frame = parseBody(data)
    switch (textOrEmpty(frame['type']) || event) {
      case 'content_block_delta':
        this.#blockDelta(frame)
        return
      case 'content_block_start':
        this.#blockStart(frame)
        return
      case 'content_block_stop':
        this.#blockStop(this.#indexOf(frame))
        return
      case 'message_start':
        this.#start(recordOrEmpty(frame['message']))
        return
      case 'message_delta':
        this.#messageDelta(frame)
        return
      case 'message_stop':
        this.#finish()
        return
      case 'message':
        this.#readWhole(frame, data)
        return
      case 'error':
        throw errorMeaning(null, frame)
    }
    // Some providers behind other clouds omit the type of a JSON body, or of an error with status 200.
    const error = bodyError(null, frame)
    if (error !== null) throw error
    if (Array.isArray(frame['content']) && frame['role'] === 'assistant') this.#readWhole(frame, data)
  }

  end(): void {
    // After the finish and the usage, only the closing mark can be missing.
    if (!this.#isFinished && this.isSettled) this.#finish()
    if (!this.#isFinished)
      throw new GatewayError('provider_unavailable', 'The provider ended the reply before it was complete')
  }

  #readWhole(message: Json, data: string): void {
    this.#start(message, data)
    this.#finish(true)
  }

  /** `document`: the text of a whole reply; null: the reply is streamed. */
  #start(message: Json, document: string | null = null): void {
    const id = nameIn(message['id'])
    if (this.#isStarted) {
      // Some intermediaries repeat the frame. A different message means that an intermediary retried and appended a
      // second reply to a broken one: the first part was already sent, and the two cannot become one reply.
      if (id === this.#messageId) return
      throw new GatewayError(
        'provider_unavailable',
        'The provider began another reply before the first was complete',
      )
    }
    this.#isStarted = true
    this.#messageId = id
    this.#output.replyId = id ?? ''
    this.#readContainer(message)
    this.#emit({ kind: 'start', upstreamId: id, model: nameIn(message['model']) })
    this.#countUsage(message['usage'])
    const onlyText = this.#takeMessage === null || document === null ? null : plainText(message)
    if (onlyText === null) {
      listOrEmpty(message['content']).forEach((block, index) => {
        this.#openBlock(index, recordOrEmpty(block))
        this.#blockStop(index)
      })
    } else {
      const json = jsonOf(onlyText, document ?? '', 'text')
      this.#hasWholeMessage = true
      this.#takeMessage?.({ id: null, phase: null, status: 'completed', text: onlyText, json })
    }
    this.#readStop(message)
    this.#readEdits(message)
  }

  #messageDelta(frame: Json): void {
    const delta = recordOrEmpty(frame['delta'])
    this.#readContainer(delta)
    this.#readStop(delta)
    this.#countUsage(frame['usage'])
    this.#readEdits(frame)
    this.#hasUsage ||= record(frame['usage']) !== null
    this.isSettled = this.#stopReason !== null && this.#hasUsage
  }

  /** Starts a reply whose first frame is missing. */
  #ensureStarted(): void {
    if (!this.#isStarted) this.#start({})
  }

  #readContainer(fields: Json): void {
    const id = nameIn(record(fields['container'])?.['id'])
    if (id !== null) this.#output.containerId = id
  }

  #readStop(fields: Json): void {
    this.#stopReason = nameIn(fields['stop_reason']) ?? this.#stopReason
    const details = record(fields['stop_details'])
    if (details !== null) {
      this.#explanation = nameIn(details['explanation'])
      this.#category = nameIn(details['category'])
    }
    this.#stopSequence = nameIn(fields['stop_sequence']) ?? this.#stopSequence
  }

  /** `fields`: of the message, or of the event outside its delta. */
  #readEdits(fields: Json): void {
    const edits = record(fields['context_management'])?.['applied_edits']
    if (Array.isArray(edits)) this.#edits = appliedEdits(edits)
  }

  #countUsage(usage: unknown): void {
    const fields = record(usage)
    if (fields === null) return
    this.#emit({ kind: 'usage', usage: this.#usage.merge(fields) })
    this.#usageBytes = this.#output.withheld.replace(this.#usageBytes, this.#usage.raw)
  }

  #indexOf(frame: Json): number {
    return wholeNumber(frame['index']) ?? this.#lastIndex
  }

  #blockStart(frame: Json): void {
    this.#openBlock(wholeNumber(frame['index']) ?? this.#lastIndex + 1, recordOrEmpty(frame['content_block']))
  }

  #openBlock(index: number, block: Json): void {
    this.#ensureStarted()
    // If the stop of a block was lost, the block ends when the next one starts at its index.
    this.#blockStop(index)
    this.#lastIndex = index
    let newBlock = openBlock(this.#output, block, index)
    if (newBlock === null) {
      this.#hosted ??= new HostedCalls(this.#output)
      newBlock = this.#hosted.open(block)
    }
    this.#addBlock(index, newBlock ?? IGNORED_BLOCK)
  }

  /** Counts ignored blocks too, because the map holds them until they stop. */
  #addBlock(index: number, block: Block): void {
    checkedCount(this.#blocks.size, 'content blocks')
    this.#blocks.set(index, block)
    this.#output.withheld.addParts(BLOCK_PARTS)
  }

  #blockDelta(frame: Json): void {
    const delta = record(frame['delta'])
    if (delta === null) return
    const index = this.#indexOf(frame)
    const type = textOrEmpty(delta['type'])
    let block = this.#blocks.get(index)
    if (block === undefined) {
      this.#ensureStarted()
      block = impliedBlock(this.#output, type, index) ?? IGNORED_BLOCK
      this.#addBlock(index, block)
      this.#lastIndex = index
    }
    block.delta(type, delta)
  }

  #blockStop(index: number): void {
    const block = this.#blocks.get(index)
    if (block === undefined) return
    this.#blocks.delete(index)
    block.stop()
  }

  #finish(isWhole = false): void {
    const nativeReason = this.#stopReason
    // A reply without a stop reason is complete if it has content, and either its usage or one whole document.
    const hasSaid = this.#hasWholeMessage || this.#output.hasContent
    if (nativeReason === null && !((isWhole || this.#hasUsage) && hasSaid)) return
    this.#ensureStarted()
    for (const index of [...this.#blocks.keys()]) this.#blockStop(index)
    this.#hosted?.end()
    if (nativeReason === 'refusal') this.#refuse()
    this.#output.endMessage()
    const { calls } = this.#output
    const reason =
      nativeReason === null ? (calls === null ? 'stop' : 'tool_calls') : finishReason(nativeReason, hasSaid)
    calls?.finish(isCut(reason))
    this.#isFinished = true
    this.#emit({
      kind: 'finish',
      reason,
      native: nativeReason,
      serviceTier: serviceTierOf(this.#usage.raw),
      ...(this.#stopSequence === null ? undefined : { stopSequence: this.#stopSequence }),
      ...(this.#edits === null ? undefined : { appliedEdits: this.#edits }),
    })
  }

  /** A refusal without output means a blocked prompt; after output, the reply ends with the reason. */
  #refuse(): void {
    const explanation = this.#explanation
    if (this.#output.hasContent) {
      if (explanation !== null) this.#output.refuse(tidyMessage(explanation))
      return
    }
    const category = this.#category
    throw new GatewayError(
      'content_policy_violation',
      explanation === null ? 'The model refused the request' : tidyMessage(explanation),
      { metadata: { provider_code: category === null ? 'refusal' : `refusal:${tidyMessage(category)}` } },
    )
  }
}

/** The text of a message with nothing else; null for any other message. */
function plainText({ content, stop_reason: reason }: Json): string | null {
  // The explanation of a refusal becomes a part of the message.
  if (!Array.isArray(content) || content.length !== 1 || reason === 'refusal') return null
  const block = record(content[0])
  if (block?.['type'] !== 'text' || (Array.isArray(block['citations']) && block['citations'].length > 0))
    return null
  return filled(block['text'])
}

function parseBody(data: string): Json {
  const value = parseFrame(data)
  const frame = record(value)
  if (frame !== null) return frame
  // Google's front ends send errors as a list; all other lists are invalid.
  const error = bodyError(null, value)
  if (error !== null) throw error
  throw new GatewayError('provider_unavailable', 'The provider sent an event in an unknown format')
}

/** Memory of an open block, in objects and fields. */
const BLOCK_PARTS = 3

const EDITS_MAX = 64
const COUNTS_MAX = 16
const EDIT_NAME = /^[a-z0-9_]{1,64}$/

/** Only types and counts: the other fields are not for callers. */
function appliedEdits(edits: readonly unknown[]): readonly AppliedEdit[] {
  return edits.slice(0, EDITS_MAX).flatMap((edit): AppliedEdit[] => {
    const { type, ...counts } = recordOrEmpty(edit)
    if (typeof type !== 'string' || !EDIT_NAME.test(type)) return []
    const numbers = Object.entries(counts).flatMap(([name, value]): [string, number][] =>
      EDIT_NAME.test(name) && typeof value === 'number' ? [[name, value]] : [],
    )
    return [{ type, ...Object.fromEntries(numbers.slice(0, COUNTS_MAX)) }]
  })
}
