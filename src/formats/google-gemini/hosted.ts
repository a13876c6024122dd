/**
 * Decodes the output of tools that Google runs: code, images and searches become hosted items, search citations become
 * annotations. Pure. Code is one `code_interpreter_call`; the code, its result and the images it draws come in separate
 * parts.
 */
import { count, filled, type Json, listOrEmpty, record, records, strings } from '../../base/json.ts'
import type { Annotation } from '../../protocol/parts.ts'
import type { Delta, HostedStart } from '../format.ts'
import type { Withheld } from '../withheld.ts'

/** A new code item. It has the provider's id, which a later turn repeats. */
export function codeItem(part: Json): HostedStart {
  const id = filled(part['id'])
  return {
    type: 'code_interpreter_call',
    ...(id === null ? {} : { id }),
    status: 'in_progress',
    code: null,
    container_id: null,
    outputs: null,
  }
}

/** An open code item. */
export class CodeRun {
  readonly #emit: (delta: Delta) => void
  readonly #item: number
  readonly #signature: string | null
  readonly #outputs: Readonly<Record<string, string>>[] = []
  #code: string | null = null
  #status: 'incomplete' | 'completed' | 'failed' = 'incomplete'

  /** `item` must be open. */
  constructor(emit: (delta: Delta) => void, item: number, signature: string | null) {
    this.#emit = emit
    this.#item = item
    this.#signature = signature
    this.#progress('code_interpreter_call.in_progress', {})
  }

  /** True once the result has arrived. */
  get hasResult(): boolean {
    return this.#status !== 'incomplete'
  }

  setCode(part: Json): void {
    const code = typeof part['code'] === 'string' ? part['code'] : ''
    this.#code = code
    this.#progress('code_interpreter_call_code.delta', { delta: code })
    this.#progress('code_interpreter_call_code.done', { code })
    this.#progress('code_interpreter_call.interpreting', {})
  }

  setResult(part: Json): void {
    const logs = part['output']
    if (typeof logs === 'string') this.#outputs.push({ type: 'logs', logs })
    const outcome = part['outcome']
    this.#status = outcome === 'OUTCOME_OK' || outcome === undefined ? 'completed' : 'failed'
  }

  addImage(mediaType: string, base64: string): void {
    this.#outputs.push({ type: 'image', url: `data:${mediaType};base64,${base64}` })
  }

  close(): void {
    if (this.hasResult) this.#progress('code_interpreter_call.completed', {})
    const fields = { code: this.#code, outputs: this.#outputs, status: this.#status }
    this.#emit({
      kind: 'close',
      item: this.#item,
      fields: this.#signature === null ? fields : { ...fields, signature: this.#signature },
    })
  }

  #progress(name: string, fields: Readonly<Record<string, unknown>>): void {
    this.#emit({ kind: 'progress', item: this.#item, name, fields })
  }
}

/** A new image item. */
export function imageItem(): HostedStart {
  return { type: 'image_generation_call', status: 'in_progress', result: null }
}

/** Emits the progress and the end of an open image item. */
export function emitImage(
  emit: (delta: Delta) => void,
  item: number,
  mediaType: string,
  base64: string,
  signature: string | null,
): void {
  for (const stage of ['in_progress', 'generating', 'completed']) {
    emit({ kind: 'progress', item, name: `image_generation_call.${stage}`, fields: {} })
  }
  const fields = { status: 'completed', result: base64, output_format: mediaType.slice('image/'.length) }
  emit({ kind: 'close', item, fields: signature === null ? fields : { ...fields, signature } })
}

/** A new search item. */
export function searchItem(action: Json): HostedStart {
  return { type: 'web_search_call', status: 'in_progress', action }
}

/** Emits the progress and the end of an open search item. */
export function emitSearch(emit: (delta: Delta) => void, item: number, succeeded: boolean): void {
  for (const stage of succeeded ? ['in_progress', 'searching', 'completed'] : ['in_progress', 'searching']) {
    emit({ kind: 'progress', item, name: `web_search_call.${stage}`, fields: {} })
  }
  emit({ kind: 'close', item, fields: { status: succeeded ? 'completed' : 'failed' } })
}

// Citations: grounding metadata names the source of each stretch of text and the searches. Google counts bytes of UTF-8
// over the whole text; annotations count UTF-16 units of one message.

/** Far more than any real reply has; bounds the work for a hostile one. */
const CITATIONS_MAX = 512
/**
 * The maximum length of an address or name. Each citation reads it once, and a chunk may have thousands of citations of
 * one source.
 */
const SOURCE_MAX_CHARS = 8 * 1024
/**
 * The most characters that are searched for quotations with wrong offsets, because each search blocks the thread. It
 * allows two searches of the longest reply, or eighty of one with 100,000 characters.
 */
const SEARCHED_MAX_CHARS = 8 * 1024 * 1024

/** A message of the reply, in order of appearance. */
export interface ReplyText {
  readonly item: number
  text: string
}

interface Stretch {
  readonly startByte: number
  /** Null for the end of the text. */
  readonly endByte: number | null
  /** The text of the stretch if the provider repeats it. */
  readonly quote: string | null
}

interface Citation {
  readonly stretch: Stretch
  readonly annotate: (start: number, end: number) => Annotation
}

interface PlacedAnnotation {
  readonly item: number
  readonly annotation: Annotation
}

/** Collects citations, searches and opened pages of one reply. */
export class Citations {
  readonly #citations: Citation[] = []
  readonly #seen = new Set<string>()
  readonly #queries = new Set<string>()
  readonly #sources = new Set<string>()
  readonly #pages = new Map<string, boolean>()
  readonly #withheld: Withheld

  constructor(withheld: Withheld) {
    this.#withheld = withheld
  }

  /** Distinct searches in their order. */
  get queries(): readonly string[] {
    return [...this.#queries]
  }

  /** Number of distinct searches. */
  get searches(): number {
    return this.#queries.size
  }

  get sources(): readonly string[] {
    return [...this.#sources]
  }

  /** Opened addresses; the value is true if the page loaded. */
  get pages(): ReadonlyMap<string, boolean> {
    return this.#pages
  }

  search(queries: unknown): void {
    for (const query of strings(queries)) this.#addText(this.#queries, query)
  }

  /** Reads all three kinds of metadata of a candidate. */
  read(candidate: Json): void {
    const grounding = record(candidate['groundingMetadata'])
    if (grounding !== null) this.#readGrounding(grounding)
    const citationMetadata = record(candidate['citationMetadata'])
    if (citationMetadata !== null) {
      for (const source of records(citationMetadata['citations'] ?? citationMetadata['citationSources']))
        this.#addSource(source)
    }
    for (const page of records(record(candidate['urlContextMetadata'])?.['urlMetadata'])) {
      const url = filled(page['retrievedUrl'])
      if (url === null || this.#pages.size >= CITATIONS_MAX) continue
      if (!this.#pages.has(url)) this.#withheld.add(url)
      this.#pages.set(url, page['urlRetrievalStatus'] === 'URL_RETRIEVAL_STATUS_SUCCESS')
    }
  }

  #addText(texts: Set<string>, text: string): void {
    if (texts.size >= CITATIONS_MAX || texts.has(text)) return
    texts.add(text)
    this.#withheld.add(text)
  }

  /** All citations as annotations. A citation over two messages belongs to the one in which it begins. */
  annotationsOf(messages: readonly ReplyText[]): readonly PlacedAnnotation[] {
    if (this.#citations.length === 0 || messages.length === 0) return []
    const replyText = messages.map(message => message.text).join('')
    const byteOffsets = this.#citations.flatMap(({ stretch }) => [stretch.startByte, stretch.endByte ?? 0])
    const units = unitsOf(replyText, byteOffsets)
    const annotations: PlacedAnnotation[] = []
    let searchedChars = 0
    for (const { stretch, annotate } of this.#citations) {
      let start = units.get(stretch.startByte) ?? replyText.length
      let end = stretch.endByte === null ? replyText.length : (units.get(stretch.endByte) ?? replyText.length)
      const isWrong = stretch.quote !== null && replyText.slice(start, end) !== stretch.quote
      if (stretch.quote !== null && isWrong && searchedChars < SEARCHED_MAX_CHARS) {
        // Offsets may be relative to a part of the reply, or simply wrong; the quotation is not.
        const position = replyText.indexOf(stretch.quote)
        searchedChars += position === -1 ? replyText.length : position
        if (position !== -1) {
          start = position
          end = position + stretch.quote.length
        }
      }
      const target = messageAt(messages, start)
      const toLocal = (offset: number) =>
        Math.max(0, Math.min(offset - target.start, target.message.text.length))
      annotations.push({
        item: target.message.item,
        annotation: annotate(toLocal(start), Math.max(toLocal(start), toLocal(end))),
      })
    }
    return annotations
  }

  #readGrounding(metadata: Json): void {
    this.search(metadata['webSearchQueries'])
    const chunks = listOrEmpty(metadata['groundingChunks'])
    for (const chunk of chunks) {
      const url = filled(record(record(chunk)?.['web'])?.['uri'])
      if (url !== null) this.#addText(this.#sources, url)
    }
    for (const support of records(metadata['groundingSupports'])) {
      const stretch = stretchOf(record(support['segment']))
      const indices = support['groundingChunkIndices']
      if (stretch === null || !Array.isArray(indices)) continue
      // Repeated indexes would only cost time.
      for (const index of new Set<unknown>(indices)) {
        const chunk = typeof index === 'number' ? record(chunks[index]) : null
        if (chunk !== null) this.#addChunk(stretch, chunk)
      }
    }
  }

  #addChunk(stretch: Stretch, chunk: Json): void {
    const source = record(chunk['web']) ?? record(chunk['maps']) ?? record(chunk['retrievedContext'])
    if (source === null) return
    const url = filled(source['uri'])
    const title = filled(source['title'])
    if (url !== null) {
      this.#addCitation(stretch, url, title, (start, end) => urlCitation(url, title ?? '', start, end))
      return
    }
    const file = filled(source['documentName']) ?? filled(source['fileSearchStore'])
    if (file === null) return
    this.#addCitation(stretch, file, title, (_start, end) => ({
      type: 'file_citation',
      file_id: file,
      filename: title ?? '',
      index: end,
    }))
  }

  #addSource(source: Json): void {
    const url = filled(source['uri'])
    if (url === null) return
    const title = filled(source['title']) ?? ''
    const startByte = count(source['startIndex']) ?? 0
    const stretch = { startByte, endByte: count(source['endIndex']), quote: null }
    this.#addCitation(stretch, url, title, (start, end) => urlCitation(url, title, start, end))
  }

  #addCitation(stretch: Stretch, source: string, title: string | null, annotate: Citation['annotate']): void {
    if (source.length > SOURCE_MAX_CHARS) return
    // Streams repeat the metadata of earlier chunks.
    const key = `${stretch.startByte} ${stretch.endByte} ${source}`
    if (this.#seen.has(key) || this.#citations.length >= CITATIONS_MAX) return
    this.#seen.add(key)
    this.#citations.push({ stretch, annotate })
    this.#withheld.add([key, source, title, stretch])
  }
}

function urlCitation(url: string, title: string, start: number, end: number): Annotation {
  return { type: 'url_citation', url, title, start_index: start, end_index: end }
}

function stretchOf(segment: Json | null): Stretch | null {
  if (segment === null) return null
  const endByte = count(segment['endIndex'])
  const quote = filled(segment['text'])
  if (endByte === null && quote === null) return null
  return { startByte: count(segment['startIndex']) ?? 0, endByte, quote }
}

function messageAt(messages: readonly ReplyText[], offset: number): { message: ReplyText; start: number } {
  let start = 0
  let result: { message: ReplyText; start: number } | null = null
  for (const message of messages) {
    result = { message, start }
    if (offset < start + message.text.length) break
    start += message.text.length
  }
  if (result === null) throw new RangeError('no message to place a citation in')
  return result
}

/**
 * Converts byte offsets to UTF-16 offsets in one pass over the text. An offset inside a character moves to its
 * beginning; the result lacks offsets past the end.
 */
export function unitsOf(text: string, byteOffsets: readonly number[]): ReadonlyMap<number, number> {
  const sortedOffsets = [...new Set(byteOffsets)].sort((a, b) => a - b)
  const units = new Map<number, number>()
  let bytes = 0
  let unit = 0
  for (const offset of sortedOffsets) {
    while (unit < text.length) {
      const code = text.codePointAt(unit) ?? 0
      const size = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4
      if (bytes + size > offset) break
      bytes += size
      unit += size === 4 ? 2 : 1
    }
    if (bytes === offset || unit < text.length) units.set(offset, unit)
  }
  return units
}
