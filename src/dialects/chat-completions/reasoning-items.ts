/**
 * Translates reasoning that a client sends back with an assistant message to reasoning items. Pure. Entries of one item
 * are adjacent: they share an id, or precede the signature or encrypted part that ends the item. Clients that only
 * collect the pieces of a stream send one text as many entries, which are joined here.
 */
import { parseJson, recordOrEmpty } from '../../base/json.ts'
import { InputItem } from '../../protocol/items.ts'
import { compile } from '../../protocol/json/schema.ts'
import type { ChatAssistantMessage, ChatToolCall, ReasoningDetail } from './message-schema.ts'

interface Piece {
  readonly type: 'summary_text' | 'reasoning_text'
  text: string
  readonly index: number | null
}

interface OpenItem {
  readonly id: string | null
  format: string | null
  readonly pieces: Piece[]
  signature: string | null
  encryptedContent: string | null
}

interface ReplayedReasoning {
  readonly items: readonly Record<string, unknown>[]
  /** Signatures of calls by the id of the call. */
  readonly signatures: ReadonlyMap<string, string> | null
}

const NO_REASONING: ReplayedReasoning = { items: [], signatures: null }
const TOOL_NAME_PATTERN = /^[a-z_]{1,64}$/

const isItem = compile(InputItem)

export function reasoningItems(
  message: ChatAssistantMessage,
  calls: readonly ChatToolCall[],
): ReplayedReasoning {
  const details = message.reasoning_details
  const text = message.reasoning ?? message.reasoning_content ?? ''
  if (details == null || details.length === 0)
    return text === '' ? NO_REASONING : { ...NO_REASONING, items: [plainItem(text)] }
  const reader = new DetailReader(new Set(calls.map(call => call.id)))
  for (const detail of details) reader.add(detail)
  const { items, signatures, hasReasoning } = reader.finish()
  return { items: hasReasoning || text === '' ? items : [plainItem(text), ...items], signatures }
}

function plainItem(text: string): Record<string, unknown> {
  return { type: 'reasoning', summary: [], content: [{ type: 'reasoning_text', text }] }
}

class DetailReader {
  readonly #callIds: ReadonlySet<string>
  readonly #items: Record<string, unknown>[] = []
  #signatures: Map<string, string> | null = null
  #open: OpenItem | null = null
  #hasReasoning = false

  constructor(callIds: ReadonlySet<string>) {
    this.#callIds = callIds
  }

  add(detail: ReasoningDetail): void {
    switch (detail.type) {
      case 'reasoning.text': {
        const { signature } = detail
        if (detail.text != null && detail.text !== '') this.#addText('reasoning_text', detail.text, detail)
        if (signature == null || signature === '') return
        this.#itemToSeal(detail, 'signature').signature = signature
        return
      }
      case 'reasoning.summary':
        if (detail.summary != null && detail.summary !== '')
          this.#addText('summary_text', detail.summary, detail)
        return
      case 'reasoning.encrypted': {
        if (detail.id != null && this.#callIds.has(detail.id)) {
          this.#signatures ??= new Map()
          this.#signatures.set(detail.id, detail.data)
          return
        }
        this.#itemToSeal(detail, 'encryptedContent').encryptedContent = detail.data
        return
      }
      case 'reasoning.server_tool_call':
        this.#addServerTool(detail)
        return
      default:
        return
    }
  }

  finish(): ReplayedReasoning & { readonly hasReasoning: boolean } {
    this.#close()
    return { items: this.#items, signatures: this.#signatures, hasReasoning: this.#hasReasoning }
  }

  #addText(type: Piece['type'], text: string, detail: DetailOrigin): void {
    const open = this.#itemFor(detail, false)
    const index = detail.index ?? null
    const last = open.pieces.at(-1)
    if (last !== undefined && last.type === type && last.index === index && index !== null) last.text += text
    else open.pieces.push({ type, text, index })
  }

  /** The item that a signature or an encrypted part belongs to. */
  #itemToSeal(detail: DetailOrigin, field: 'signature' | 'encryptedContent'): OpenItem {
    const open = this.#itemFor(detail, true)
    if (open[field] === null) return open
    this.#close()
    return this.#itemFor(detail, true)
  }

  /** The open item if the entry can belong to it, otherwise a new one. */
  #itemFor(detail: DetailOrigin, isSeal: boolean): OpenItem {
    const id = detail.id ?? null
    const format = detail.format ?? null
    let open = this.#open
    if (open !== null) {
      const hasSameId = id !== null && open.id === id
      const hasOtherId = id !== null && open.id !== null && open.id !== id
      const isSealed = open.signature !== null || open.encryptedContent !== null
      if (hasOtherId || (isSealed && !hasSameId) || (!isSeal && isSealed)) open = null
      // An item that began before its source was known has no format yet.
      else if (format !== null && format !== 'unknown') open.format = format
    }
    if (open !== null) return open
    this.#close()
    this.#open = { id, format, pieces: [], signature: null, encryptedContent: null }
    return this.#open
  }

  #close(): void {
    const open = this.#open
    if (open === null) return
    this.#open = null
    this.#hasReasoning = true
    const item: Record<string, unknown> = {
      type: 'reasoning',
      summary: open.pieces.filter(piece => piece.type === 'summary_text').map(partOf),
    }
    if (open.id !== null) item['id'] = open.id
    if (open.format !== null) item['format'] = open.format
    const content = open.pieces.filter(piece => piece.type === 'reasoning_text')
    if (content.length > 0) item['content'] = content.map(partOf)
    if (open.signature !== null) item['signature'] = open.signature
    if (open.encryptedContent !== null) item['encrypted_content'] = open.encryptedContent
    this.#items.push(item)
  }

  /** Adds the item that the entry was made from. Entries that cannot be turned back into items are omitted. */
  #addServerTool(detail: Extract<ReasoningDetail, { type: 'reasoning.server_tool_call' }>): void {
    const { tool_name: name, tool_call_id: id, arguments: input, result } = detail
    if (name == null || !TOOL_NAME_PATTERN.test(name)) return
    const item: Record<string, unknown> = {
      ...objectIn(input),
      ...objectIn(result),
      type: `gateway:${name}`,
      status: 'completed',
    }
    if (id != null) item['id'] = id
    if (!isItem(item)) return
    this.#close()
    this.#items.push(item)
  }
}

interface DetailOrigin {
  readonly id?: string | null
  readonly format?: string | null
  readonly index?: number | null
}

function partOf({ type, text }: Piece): Record<string, unknown> {
  return { type, text }
}

function objectIn(text: string | null | undefined): Readonly<Record<string, unknown>> {
  return text == null ? {} : recordOrEmpty(parseJson(text))
}
