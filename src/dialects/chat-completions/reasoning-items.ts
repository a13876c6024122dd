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

interface Open {
  readonly id: string | null
  format: string | null
  readonly pieces: Piece[]
  signature: string | null
  encrypted: string | null
}

interface Replayed {
  readonly found: readonly Record<string, unknown>[]
  /** Signatures of calls by the id of the call. */
  readonly signatures: ReadonlyMap<string, string> | null
}

const NOTHING: Replayed = { found: [], signatures: null }
const TOOL_NAME = /^[a-z_]{1,64}$/

const isItem = compile(InputItem)

export function reasoningItems(message: ChatAssistantMessage, calls: readonly ChatToolCall[]): Replayed {
  const details = message.reasoning_details
  const words = message.reasoning ?? message.reasoning_content ?? ''
  if (details == null || details.length === 0)
    return words === '' ? NOTHING : { ...NOTHING, found: [plain(words)] }
  const reader = new DetailReader(new Set(calls.map(call => call.id)))
  for (const detail of details) reader.add(detail)
  const { found, signatures, reasoned } = reader.finish()
  return { found: reasoned || words === '' ? found : [plain(words), ...found], signatures }
}

function plain(text: string): Record<string, unknown> {
  return { type: 'reasoning', summary: [], content: [{ type: 'reasoning_text', text }] }
}

class DetailReader {
  readonly #callIds: ReadonlySet<string>
  readonly #found: Record<string, unknown>[] = []
  #signatures: Map<string, string> | null = null
  #open: Open | null = null
  #reasoned = false

  constructor(callIds: ReadonlySet<string>) {
    this.#callIds = callIds
  }

  add(detail: ReasoningDetail): void {
    switch (detail.type) {
      case 'reasoning.text': {
        const { signature } = detail
        if (detail.text != null && detail.text !== '') this.#addText('reasoning_text', detail.text, detail)
        if (signature == null || signature === '') return
        const open = this.#sealable(detail, 'signature')
        open.signature = signature
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
        this.#sealable(detail, 'encrypted').encrypted = detail.data
        return
      }
      case 'reasoning.server_tool_call':
        this.#serverTool(detail)
        return
      default:
        return
    }
  }

  finish(): Replayed & { readonly reasoned: boolean } {
    this.#close()
    return { found: this.#found, signatures: this.#signatures, reasoned: this.#reasoned }
  }

  #addText(type: Piece['type'], text: string, detail: Origin): void {
    const open = this.#opened(detail, false)
    const index = detail.index ?? null
    const last = open.pieces.at(-1)
    if (last !== undefined && last.type === type && last.index === index && index !== null) last.text += text
    else open.pieces.push({ type, text, index })
  }

  /** The item that a signature or an encrypted part belongs to. */
  #sealable(detail: Origin, field: 'signature' | 'encrypted'): Open {
    const open = this.#opened(detail, true)
    if (open[field] === null) return open
    this.#close()
    return this.#opened(detail, true)
  }

  /** The open item if the entry can belong to it, otherwise a new one. */
  #opened(detail: Origin, seals: boolean): Open {
    const id = detail.id ?? null
    const format = detail.format ?? null
    let open = this.#open
    if (open !== null) {
      const isSame = id !== null && open.id === id
      const other = id !== null && open.id !== null && open.id !== id
      const sealed = open.signature !== null || open.encrypted !== null
      if (other || (sealed && !isSame) || (!seals && sealed)) open = null
      // An item that began before its source was known has no format yet.
      else if (format !== null && format !== 'unknown') open.format = format
    }
    if (open !== null) return open
    this.#close()
    this.#open = { id, format, pieces: [], signature: null, encrypted: null }
    return this.#open
  }

  #close(): void {
    const open = this.#open
    if (open === null) return
    this.#open = null
    this.#reasoned = true
    const item: Record<string, unknown> = {
      type: 'reasoning',
      summary: open.pieces.filter(piece => piece.type === 'summary_text').map(part),
    }
    if (open.id !== null) item['id'] = open.id
    if (open.format !== null) item['format'] = open.format
    const content = open.pieces.filter(piece => piece.type === 'reasoning_text')
    if (content.length > 0) item['content'] = content.map(part)
    if (open.signature !== null) item['signature'] = open.signature
    if (open.encrypted !== null) item['encrypted_content'] = open.encrypted
    this.#found.push(item)
  }

  /** The item that the entry was made from. Entries that cannot be turned back into items are omitted. */
  #serverTool(detail: Extract<ReasoningDetail, { type: 'reasoning.server_tool_call' }>): void {
    const { tool_name: name, tool_call_id: id, arguments: input, result } = detail
    if (name == null || !TOOL_NAME.test(name)) return
    const item: Record<string, unknown> = {
      ...objectIn(input),
      ...objectIn(result),
      type: `gateway:${name}`,
      status: 'completed',
    }
    if (id != null) item['id'] = id
    if (!isItem(item)) return
    this.#close()
    this.#found.push(item)
  }
}

interface Origin {
  readonly id?: string | null
  readonly format?: string | null
  readonly index?: number | null
}

function part({ type, text }: Piece): Record<string, unknown> {
  return { type, text }
}

function objectIn(text: string | null | undefined): Readonly<Record<string, unknown>> {
  return text == null ? {} : recordOrEmpty(parseJson(text))
}
