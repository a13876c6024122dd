/**
 * Writes searches and citations as `groundingMetadata`. Pure. Google's positions count UTF-8 bytes over the whole text
 * of an answer; positions of annotations count UTF-16 units within one message.
 */
import type { MessageItem, OutputItem } from '../../protocol/items.ts'
import { isObject } from '../../protocol/json/schema.ts'
import type { Annotation } from '../../protocol/parts.ts'

type Fields = Readonly<Record<string, unknown>>

/** A source and its number among all sources. */
interface Chunk {
  readonly source: Fields
  readonly number: number
}

interface Support {
  readonly text: string
  readonly start: number
  readonly end: number
  readonly chunk: number
}

/** The field `groundingMetadata`; empty if nothing was searched or cited. */
export function groundingOf(output: readonly OutputItem[]): Fields {
  const chunks = new Map<string, Chunk>()
  const supports: Support[] = []
  const chunkOf = (source: Fields): number => {
    const key = JSON.stringify(source)
    const chunk = chunks.get(key)
    if (chunk !== undefined) return chunk.number
    const number = chunks.size
    chunks.set(key, { source, number })
    return number
  }
  const queries = output.flatMap(queriesIn)
  let byteStart = 0
  for (const item of output) {
    if (item.type !== 'message') continue
    for (const part of (item as MessageItem).content) {
      if (part.type !== 'output_text') continue
      const { text } = part
      const citations = part.annotations.flatMap(annotation => {
        const source = sourceOf(annotation)
        return source === null ? [] : [{ range: rangeOf(annotation, text.length), chunk: chunkOf(source) }]
      })
      const bytesAt = byteOffsets(text, [text.length, ...citations.flatMap(({ range }) => range)])
      const bytesBefore = (position: number): number => byteStart + (bytesAt.get(position) ?? 0)
      for (const { range, chunk } of citations) {
        const [from, to] = range
        supports.push({ text: text.slice(from, to), start: bytesBefore(from), end: bytesBefore(to), chunk })
      }
      byteStart = bytesBefore(text.length)
    }
  }
  for (const source of output.flatMap(sourcesIn)) chunkOf(source)
  if (queries.length === 0 && chunks.size === 0) return {}
  return {
    groundingMetadata: {
      ...(queries.length === 0 ? {} : { webSearchQueries: [...new Set(queries)] }),
      ...(chunks.size === 0 ? {} : { groundingChunks: [...chunks.values()].map(({ source }) => source) }),
      ...(supports.length === 0
        ? {}
        : {
            groundingSupports: supports.map(({ text, start, end, chunk }) => ({
              segment: { startIndex: start, endIndex: end, text },
              groundingChunkIndices: [chunk],
            })),
          }),
    },
  }
}

function sourceOf(annotation: Annotation): Fields | null {
  switch (annotation.type) {
    case 'url_citation':
      return { web: { uri: annotation.url, title: annotation.title } }
    case 'file_citation':
    case 'container_file_citation':
      return { retrievedContext: { title: annotation.filename, documentName: annotation.file_id } }
    default:
      return null
  }
}

/** An annotation without a valid range applies to the whole text. */
function rangeOf(annotation: Annotation, length: number): readonly [from: number, to: number] {
  const { start_index: from, end_index: to } = annotation as { start_index?: unknown; end_index?: unknown }
  const isRange = Number.isInteger(from) && Number.isInteger(to) && Number(from) >= 0
  return isRange && Number(from) < Number(to) && Number(to) <= length
    ? [Number(from), Number(to)]
    : [0, length]
}

/** The number of UTF-8 bytes before each position, counted in one pass over the text. */
function byteOffsets(text: string, positions: readonly number[]): ReadonlyMap<number, number> {
  const offsets = new Map<number, number>()
  let [countedEnd, bytes] = [0, 0]
  for (const position of [...new Set(positions)].sort((a, b) => a - b)) {
    // Half of a surrogate pair counts as three bytes, the whole pair as four.
    const isWithin = isPair(text.charCodeAt(position - 1), text.charCodeAt(position))
    const boundary = isWithin ? position - 1 : position
    if (boundary > countedEnd) bytes += Buffer.byteLength(text.slice(countedEnd, boundary))
    countedEnd = Math.max(countedEnd, boundary)
    offsets.set(position, bytes + (isWithin ? 3 : 0))
  }
  return offsets
}

function isPair(high: number, low: number): boolean {
  return high >= 0xd800 && high <= 0xdbff && low >= 0xdc00 && low <= 0xdfff
}

const SEARCH_TYPES: ReadonlySet<string> = new Set([
  'web_search_call',
  'gateway:web_search',
  'openrouter:web_search',
])

function actionOf(item: OutputItem): Fields | null {
  if (!SEARCH_TYPES.has(item.type)) return null
  const { action } = item as { action?: unknown }
  return isObject(action) ? action : null
}

function queriesIn(item: OutputItem): string[] {
  const action = actionOf(item)
  if (action === null) return []
  const { query, queries } = action
  const values: readonly unknown[] = Array.isArray(queries) ? queries : [query]
  return values.filter(value => typeof value === 'string' && value !== '') as string[]
}

/** Pages that a search found. */
function sourcesIn(item: OutputItem): Fields[] {
  const sources = actionOf(item)?.['sources']
  if (!Array.isArray(sources)) return []
  return sources.flatMap((source: unknown) => {
    const { url, title } = isObject(source) ? source : {}
    if (typeof url !== 'string' || url === '') return []
    return [{ web: { uri: url, title: typeof title === 'string' ? title : '' } }]
  })
}
