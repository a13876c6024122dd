/**
 * Decodes one reply of Converse or ConverseStream into Deltas: text, reasoning, calls, usage, end. The same code reads
 * a whole reply, block by block. Pure. Hot path.
 *
 * Usage arrives in an event of its own, usually after the stop; a reply is complete once it has a stop reason.
 */
import { GatewayError } from '../../base/errors.ts'
import {
  filled,
  type Json,
  jsonText,
  listOrEmpty,
  parseFrame,
  record,
  recordOrEmpty,
  textOrEmpty,
  wholeNumber,
} from '../../base/json.ts'
import type { Endpoint } from '../../protocol/provider.ts'
import { Output } from '../anthropic-messages/blocks.ts'
import { type Call, callIdIn } from '../calls.ts'
import { finishReason, isCut } from '../finish-reasons.ts'
import type { Decoder, Delta } from '../format.ts'
import type { ReasoningFormat } from '../reasoning.ts'
import { checkedCount, nameIn } from '../withheld.ts'
import { converseFailure, EXCEPTION_PREFIX, streamFailure } from './failure.ts'
import { familyOf } from './model.ts'
import { serviceTierOf, usageOf } from './usage.ts'

/** An open block and its item; a text block shares the item of its message. */
interface Block {
  readonly kind: 'text' | 'reasoning' | 'call'
  readonly item: number
  /** The signature and the sealed part of reasoning, so far. */
  signature: string
  encryptedContent: string
  /** Null for other blocks. */
  readonly call: Call | null
}

/** Memory of an open block, in objects and fields. */
const BLOCK_PARTS = 3

export class ConverseDecoder implements Decoder {
  readonly #emit: (delta: Delta) => void
  readonly #output: Output
  readonly #reasoningFormat: ReasoningFormat | null
  /** Streams of OpenAI's models count cached tokens in the input; whole replies do not. */
  readonly #isOfOpenAI: boolean
  readonly #blocks = new Map<number, Block>()
  #isStarted = false
  #stopReason: string | null = null
  #stopSequence: string | null = null
  #serviceTier: string | null = null
  #hasUsage = false
  #hasStop = false
  #isFinished = false

  constructor(emit: (delta: Delta) => void, endpoint?: Endpoint) {
    this.#emit = emit
    this.#output = new Output(emit)
    // Claude's signatures are valid in every cloud.
    this.#reasoningFormat =
      endpoint !== undefined && familyOf(endpoint.upstreamModel) === 'claude' ? 'anthropic-claude-v1' : null
    this.#isOfOpenAI = endpoint !== undefined && /(?:^|[./])openai\./.test(endpoint.upstreamModel)
  }

  get withheld(): number {
    return this.#output.withheld.bytes
  }

  frame(event: string, data: string): void {
    if (this.#isFinished) return
    const frame = record(parseFrame(data))
    if (frame === null) {
      throw new GatewayError('provider_unavailable', 'The provider sent an event in an unknown format')
    }
    if (event.startsWith(EXCEPTION_PREFIX)) throw streamFailure(event.slice(EXCEPTION_PREFIX.length), frame)
    if (event !== '') this.#readEvent(event, frame)
    else if (record(frame['output']) !== null) this.#readWhole(frame)
    else this.#readUnnamed(frame)
  }

  end(): void {
    if (this.#isFinished) return
    if (!this.#isComplete()) {
      throw new GatewayError('provider_unavailable', 'The provider ended the reply before it was complete')
    }
    this.#finish()
  }

  #readEvent(type: string, fields: Json): void {
    switch (type) {
      case 'contentBlockDelta':
        this.#readDelta(this.#indexOf(fields), recordOrEmpty(fields['delta']))
        return
      case 'contentBlockStart':
        this.#blockStart(this.#indexOf(fields), recordOrEmpty(fields['start']))
        return
      case 'contentBlockStop':
        this.#blockStop(this.#indexOf(fields))
        return
      case 'messageStart':
        this.#start()
        return
      case 'messageStop':
        this.#readStop(fields)
        if (this.#hasUsage && this.#isComplete()) this.#finish()
        return
      case 'metadata':
        this.#readMetadata(fields, false)
        if (this.#isComplete()) this.#finish()
    }
  }

  /** Reads an event whose type is its only field, as proxies without binary frames send it, or an error under 200. */
  #readUnnamed(frame: Json): void {
    for (const [type, fields] of Object.entries(frame)) {
      const eventFields = record(fields)
      if (eventFields === null) continue
      if (type.endsWith('Exception')) throw streamFailure(type, eventFields)
      this.#readEvent(type, eventFields)
    }
    if (!this.#isStarted && filled(frame['message']) !== null) throw converseFailure(200, jsonText(frame))
  }

  #readWhole(reply: Json): void {
    this.#start()
    const message = recordOrEmpty(recordOrEmpty(reply['output'])['message'])
    listOrEmpty(message['content']).forEach((content, index) => {
      const block = recordOrEmpty(content)
      const call = record(block['toolUse'])
      const reasoning = record(block['reasoningContent'])
      if (call !== null) {
        this.#blockStart(index, { toolUse: call })
        this.#readDelta(index, { toolUse: { input: jsonText(recordOrEmpty(call['input'])) } })
      } else if (reasoning !== null) {
        this.#readDelta(index, {
          reasoningContent: { ...reasoning, ...recordOrEmpty(reasoning['reasoningText']) },
        })
      } else this.#readDelta(index, block)
      this.#blockStop(index)
    })
    this.#readMetadata(reply, true)
    this.#readStop(reply)
    if (this.#isComplete()) this.#finish()
  }

  #start(): void {
    if (this.#isStarted) return
    this.#isStarted = true
    this.#emit({ kind: 'start', upstreamId: null, model: null })
  }

  #indexOf(fields: Json): number {
    return wholeNumber(fields['contentBlockIndex']) ?? 0
  }

  #blockStart(index: number, start: Json): void {
    const call = record(start['toolUse'])
    if (call === null) return
    // If the stop of a block was lost, the block ends when the next one starts at its index.
    this.#blockStop(index)
    this.#start()
    const newCall = this.#output.call({
      isCustom: false,
      id: null,
      callId: callIdIn(call['toolUseId']),
      name: filled(call['name']),
      extra: null,
    })
    this.#addBlock(index, 'call', newCall.item, newCall)
  }

  #readDelta(index: number, delta: Json): void {
    const text = delta['text']
    if (typeof text === 'string') {
      this.#addText(index, text)
      return
    }
    const call = record(delta['toolUse'])
    if (call !== null) {
      this.#blocks.get(index)?.call?.add(textOrEmpty(call['input']))
      return
    }
    const reasoning = record(delta['reasoningContent'])
    if (reasoning !== null) this.#addReasoning(index, reasoning)
  }

  #addText(index: number, piece: string): void {
    this.#start()
    if (this.#blocks.get(index)?.kind !== 'text') {
      this.#blockStop(index)
      this.#addBlock(index, 'text', -1)
    }
    this.#output.text(piece)
  }

  #addReasoning(index: number, reasoning: Json): void {
    let block = this.#blocks.get(index)
    if (block?.kind !== 'reasoning') {
      this.#blockStop(index)
      const start = { type: 'reasoning', id: null, format: this.#reasoningFormat } as const
      block = this.#addBlock(index, 'reasoning', this.#openItem(start))
    }
    const text = textOrEmpty(reasoning['text'])
    if (text !== '') this.#emit({ kind: 'reasoning', item: block.item, form: 'text', part: 0, text })
    const signature = textOrEmpty(reasoning['signature'])
    const ciphertext = textOrEmpty(reasoning['redactedContent'])
    if (signature !== '') this.#output.withheld.add(signature)
    if (ciphertext !== '') this.#output.withheld.add(ciphertext)
    block.signature += signature
    block.encryptedContent += ciphertext
  }

  #openItem(start: Parameters<Output['open']>[0]): number {
    this.#start()
    return this.#output.open(start)
  }

  #addBlock(index: number, kind: Block['kind'], item: number, call: Call | null = null): Block {
    checkedCount(this.#blocks.size, 'content blocks')
    const block: Block = { kind, item, signature: '', encryptedContent: '', call }
    this.#blocks.set(index, block)
    this.#output.withheld.addParts(BLOCK_PARTS)
    return block
  }

  #blockStop(index: number): void {
    const block = this.#blocks.get(index)
    if (block === undefined) return
    this.#blocks.delete(index)
    const { call, kind, item, signature, encryptedContent } = block
    if (kind === 'text') return
    if (call !== null) {
      call.end(null)
      return
    }
    const fields = {
      ...(signature === '' ? undefined : { signature }),
      ...(encryptedContent === '' ? undefined : { encrypted_content: encryptedContent }),
    }
    this.#emit({ kind: 'close', item, fields: Object.keys(fields).length === 0 ? null : fields })
  }

  /** A reply without a stop reason is complete if it has its closing mark, its usage and any content. */
  #isComplete(): boolean {
    return this.#stopReason !== null || (this.#hasStop && this.#hasUsage && this.#output.hasContent)
  }

  #readStop(fields: Json): void {
    this.#hasStop = true
    this.#stopReason = nameIn(fields['stopReason']) ?? this.#stopReason
    const modelFields = recordOrEmpty(fields['additionalModelResponseFields'])
    this.#stopSequence =
      nameIn(modelFields['stop_sequence']) ?? nameIn(record(modelFields['delta'])?.['stop_sequence'])
  }

  #readMetadata(fields: Json, isWhole: boolean): void {
    this.#serviceTier = serviceTierOf(fields)
    const usage = record(fields['usage'])
    if (usage === null) return
    this.#hasUsage = true
    this.#emit({ kind: 'usage', usage: usageOf(usage, this.#isOfOpenAI && !isWhole) })
  }

  #finish(): void {
    const nativeReason = this.#stopReason
    this.#start()
    for (const index of [...this.#blocks.keys()]) this.#blockStop(index)
    const { calls, hasContent } = this.#output
    const reason =
      nativeReason === null
        ? calls === null
          ? 'stop'
          : 'tool_calls'
        : finishReason(nativeReason, hasContent)
    if (reason === 'content_filter' && !hasContent) {
      throw new GatewayError('content_policy_violation', 'The provider blocked the request', {
        metadata: { provider_code: nativeReason },
      })
    }
    this.#output.endMessage()
    calls?.finish(isCut(reason))
    this.#isFinished = true
    this.#emit({
      kind: 'finish',
      reason,
      native: nativeReason,
      serviceTier: this.#serviceTier,
      ...(this.#stopSequence === null ? undefined : { stopSequence: this.#stopSequence }),
    })
  }
}
