/**
 * Content blocks that the model writes: text with citations, thinking, client tool calls, compaction. A block arrives
 * whole (in a JSON reply) or in pieces; the same code handles both. hosted.ts has the blocks of Anthropic's own tools.
 * `Output` turns blocks into items: it numbers them and joins neighbouring text blocks into one message, because the
 * API cuts a paragraph at every citation. Pure. Hot path.
 */
import { filled, type Json, jsonText, parseJson, record, textOrEmpty, wholeNumber } from '../../base/json.ts'
import { withNative } from '../../protocol/json/native.ts'
import type { Annotation } from '../../protocol/parts.ts'
import { type Call, type CallStart, Calls, callIdIn } from '../calls.ts'
import type { Delta, ItemStart } from '../format.ts'
import { checkedCount, Withheld } from '../withheld.ts'

export class Output {
  readonly #emit: (delta: Delta) => void
  #nextItem = 0
  #message: number | null = null
  #textLength = 0
  #hasOutput = false
  /** Null until a call has come. Only this class writes it. */
  calls: Calls | null = null
  /** True: the next text starts a block of its own. */
  #startsBlock = false
  /** Only the blocks write it. */
  readonly withheld = new Withheld()
  /** The container that runs the code of this reply; null while unknown. */
  containerId: string | null = null
  /** The id of the reply, for items that need an id and have none. */
  replyId = ''

  constructor(emit: (delta: Delta) => void) {
    this.#emit = emit
  }

  /** True once the model has produced any output, including reasoning. */
  get hasContent(): boolean {
    return this.#hasOutput
  }

  /** The open message item; null if the next text starts a new one. */
  get message(): number | null {
    return this.#message
  }

  /** Length of the open message's text in UTF-16 units, the unit of annotations. */
  get textLength(): number {
    return this.#message === null ? 0 : this.#textLength
  }

  /** Opens an item that is not a message, and completes the open message. */
  open(start: ItemStart): number {
    const item = this.#beginItem()
    this.#emit({ kind: 'open', item, start })
    return item
  }

  /** Opens a call. The call ends by itself if the reply continues after it. */
  call(start: CallStart): Call {
    this.calls ??= new Calls(this.#emit, this.withheld)
    return this.calls.begin(this.#beginItem(), start)
  }

  emit(delta: Delta): void {
    this.#emit(delta)
  }

  text(piece: string): void {
    if (piece === '') return
    const item = this.#openMessage()
    const isCut = this.#startsBlock && this.#textLength > 0
    this.#startsBlock = false
    this.#textLength += piece.length
    if (isCut) this.#emit({ kind: 'text', item, part: 0, text: piece, logprobs: null, cut: isCut })
    else this.#emit({ kind: 'text', item, part: 0, text: piece, logprobs: null })
  }

  /** Divides the text here, because the following text has other citations. */
  cut(): void {
    this.#startsBlock = true
  }

  annotate(item: number, annotation: Annotation): void {
    this.#emit({ kind: 'annotation', item, part: 0, annotation })
  }

  /** Adds the provider's explanation of a refusal as the last part of the last message. */
  refuse(explanation: string): void {
    const part = this.#message === null ? 0 : 1
    const item = this.#openMessage()
    this.#emit({ kind: 'refusal', item, part, text: explanation })
  }

  endMessage(): void {
    if (this.#message === null) return
    const item = this.#message
    this.#message = null
    this.#emit({ kind: 'close', item, fields: null })
  }

  #beginItem(): number {
    this.endMessage()
    this.calls?.settle()
    this.#hasOutput = true
    return this.#numberItem()
  }

  #numberItem(): number {
    const item = checkedCount(this.#nextItem, 'output items')
    this.#nextItem++
    return item
  }

  #openMessage(): number {
    if (this.#message === null) {
      this.calls?.settle()
      this.#message = this.#numberItem()
      this.#textLength = 0
      this.#hasOutput = true
      this.#emit({ kind: 'open', item: this.#message, start: { type: 'message', id: null, phase: null } })
    }
    return this.#message
  }
}

// Blocks

/** An open content block. Call `stop` exactly once. */
export interface Block {
  delta(type: string, delta: Json): void
  stop(): void
}

/** Reads a block that is unknown or carries nothing for the caller. */
export const IGNORED_BLOCK: Block = { delta: () => undefined, stop: () => undefined }

type Opener = (output: Output, block: Json, index: number) => Block

const OPENERS: ReadonlyMap<string, Opener> = new Map<string, Opener>([
  ['text', (output, block) => new TextBlock(output, block)],
  ['thinking', (output, block) => new ThinkingBlock(output, block)],
  ['redacted_thinking', redactedThinking],
  ['tool_use', (output, block) => new ToolUseBlock(output, block)],
  ['compaction', (output, block, index) => new CompactionBlock(output, block, index)],
])

/** The block type that a delta without a started block implies: some intermediaries omit the start. */
const IMPLIED_TYPES: ReadonlyMap<string, string> = new Map([
  ['text_delta', 'text'],
  ['thinking_delta', 'thinking'],
])

/** Opens a block that the model wrote; null for the provider's own tools (see `HostedCalls`) and for unknown types. */
export function openBlock(output: Output, block: Json, index: number): Block | null {
  return OPENERS.get(textOrEmpty(block['type']))?.(output, block, index) ?? null
}

export function impliedBlock(output: Output, deltaType: string, index: number): Block | null {
  const type = IMPLIED_TYPES.get(deltaType)
  return type === undefined ? null : openBlock(output, { type }, index)
}

class TextBlock implements Block {
  readonly #output: Output
  readonly #message: number | null
  readonly #start: number
  readonly #citations: Json[] = []

  constructor(output: Output, block: Json) {
    this.#output = output
    this.#message = output.message
    this.#start = output.textLength
    const citations = block['citations']
    if (Array.isArray(citations)) for (const citation of citations) this.#cite(citation)
    output.text(textOrEmpty(block['text']))
  }

  delta(type: string, delta: Json): void {
    if (type === 'text_delta') this.#output.text(textOrEmpty(delta['text']))
    else if (type === 'citations_delta') this.#cite(delta['citation'])
  }

  /** Citations arrive before their text, so where they end is known only now. */
  stop(): void {
    if (this.#citations.length === 0) return
    const item = this.#output.message
    if (item === null) return
    const start = this.#message === null || this.#message === item ? this.#start : 0
    for (const citation of this.#citations) {
      const annotation = annotationOf(citation, start, this.#output.textLength)
      if (annotation !== null) this.#output.annotate(item, withNative(annotation, citation))
    }
    this.#output.cut()
  }

  #cite(citation: unknown): void {
    const fields = record(citation)
    if (fields === null) return
    if (this.#citations.length === 0) this.#output.cut()
    this.#citations.push(fields)
    this.#output.withheld.add(fields)
  }
}

function annotationOf(citation: Json, start_index: number, end_index: number): Annotation | null {
  switch (citation['type']) {
    case 'web_search_result_location':
      return urlCitation(textOrEmpty(citation['url']), citation, start_index, end_index)
    case 'search_result_location':
      return urlCitation(textOrEmpty(citation['source']), citation, start_index, end_index)
    case 'char_location':
    case 'page_location':
    case 'content_block_location': {
      // A place in a document that the caller sent. The provider names the document by its number.
      const index = wholeNumber(citation['document_index']) ?? 0
      return {
        type: 'file_citation',
        file_id: filled(citation['file_id']) ?? `document_${index}`,
        filename: textOrEmpty(citation['document_title']),
        index,
      }
    }
    default:
      return null
  }
}

function urlCitation(url: string, citation: Json, start_index: number, end_index: number): Annotation | null {
  if (url === '') return null
  const content = filled(citation['cited_text'])
  const annotation = {
    type: 'url_citation' as const,
    url,
    title: textOrEmpty(citation['title']),
    start_index,
    end_index,
  }
  return content === null ? annotation : { ...annotation, content }
}

class ThinkingBlock implements Block {
  readonly #output: Output
  readonly #item: number
  #signature: string | null

  constructor(output: Output, block: Json) {
    this.#output = output
    this.#item = output.open({ type: 'reasoning', id: null, format: 'anthropic-claude-v1' })
    this.#signature = filled(block['signature'])
    this.#addThinking(textOrEmpty(block['thinking']))
  }

  delta(type: string, delta: Json): void {
    if (type === 'thinking_delta') this.#addThinking(textOrEmpty(delta['thinking']))
    // A signature arrives whole; a second one replaces the first.
    else if (type === 'signature_delta') {
      this.#signature = filled(delta['signature']) ?? this.#signature
      this.#output.withheld.add(this.#signature)
    }
  }

  stop(): void {
    const fields = this.#signature === null ? null : { signature: this.#signature }
    this.#output.emit({ kind: 'close', item: this.#item, fields })
  }

  #addThinking(piece: string): void {
    if (piece === '') return
    this.#output.emit({ kind: 'reasoning', item: this.#item, form: 'text', part: 0, text: piece })
  }
}

function redactedThinking(output: Output, block: Json): Block {
  const item = output.open({ type: 'reasoning', id: null, format: 'anthropic-claude-v1' })
  const fields = { encrypted_content: textOrEmpty(block['data']) }
  return { delta: () => undefined, stop: () => output.emit({ kind: 'close', item, fields }) }
}

class ToolUseBlock implements Block {
  readonly #call: Call
  readonly #input: Json | null

  constructor(output: Output, block: Json) {
    this.#input = record(block['input'])
    const caller = record(block['caller'])
    this.#call = output.call({
      isCustom: false,
      id: null,
      callId: callIdIn(block['id']),
      name: filled(block['name']),
      // A call made from inside a code execution must say so again when it is sent back.
      extra: caller === null || caller['type'] === 'direct' ? null : { caller },
    })
  }

  delta(type: string, delta: Json): void {
    if (type === 'input_json_delta') this.#call.add(textOrEmpty(delta['partial_json']))
  }

  /** The input of the start event counts only if no pieces follow. */
  stop(): void {
    const input = this.#input
    // Every stream begins a call with an empty object.
    if (input !== null && Object.keys(input).length > 0) this.#call.complete(input)
    this.#call.end(null)
  }
}

class CompactionBlock implements Block {
  readonly #output: Output
  readonly #item: number
  readonly #fields: Map<string, unknown>

  constructor(output: Output, block: Json, index: number) {
    this.#output = output
    this.#fields = new Map(Object.entries(block))
    const id = `cmp_${output.replyId.replace(/^msg_/, '')}_${index}`
    this.#item = output.open({ type: 'hosted', item: { type: 'compaction', id, encrypted_content: '' } })
  }

  delta(type: string, delta: Json): void {
    if (type !== 'compaction_delta') return
    for (const [name, value] of Object.entries(delta)) if (name !== 'type') this.#fields.set(name, value)
    this.#output.withheld.add(delta)
  }

  stop(): void {
    const block = Object.fromEntries(this.#fields)
    // A compaction without content has failed and is ignored.
    const ciphertext =
      block['content'] == null && block['encrypted_content'] == null ? '' : sealCompaction(block)
    const fields = withNative({ encrypted_content: ciphertext }, { blocks: [block] })
    this.#output.emit({ kind: 'close', item: this.#item, fields })
  }
}

// Compactions: the whole block travels in the `encrypted_content` of a compaction item. A block has several fields that
// must return unchanged; the item has one that only its maker reads.

/** Marks packed blocks; compactions of other providers lack it, and Anthropic cannot read them. */
const COMPACTION_MARK = 'anthropic-claude-v1:'

/** The fields of a block that are sent back. */
const REPLAYED_FIELDS = ['content', 'encrypted_content', 'signature', 'tool_changes'] as const

/** Packs a compaction block into one string. */
export function sealCompaction(block: Json): string {
  return COMPACTION_MARK + Buffer.from(jsonText(replayedFields(block))).toString('base64url')
}

function replayedFields(block: Json): Json {
  return Object.fromEntries(
    REPLAYED_FIELDS.flatMap(name => (block[name] === undefined ? [] : [[name, block[name]] as const])),
  )
}

/** Unpacks a compaction block; null for a compaction of another provider. */
export function openCompaction(encryptedContent: unknown): Json | null {
  const ciphertext = textOrEmpty(encryptedContent)
  if (!ciphertext.startsWith(COMPACTION_MARK)) return null
  const json = Buffer.from(ciphertext.slice(COMPACTION_MARK.length), 'base64url').toString('utf8')
  const block = record(parseJson(json))
  return block === null ? null : { type: 'compaction', ...replayedFields(block) }
}
