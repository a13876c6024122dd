/**
 * Writes searches and citations as `groundingMetadata`. Pure. Google's positions count UTF-8 bytes over the whole text
 * of an answer; those of annotations count UTF-16 units within one message.
 */
import type { Annotation, MessageItem, OutputItem } from '../../protocol/items.ts'
import { isObject } from '../../protocol/json/schema.ts'

type Fields = Readonly<Record<string, unknown>>

interface Support {
  readonly text: string
  readonly start: number
  readonly end: number
  readonly chunk: number
}

/** Empty where nothing was searched or cited. */
export function groundingOf(output: readonly OutputItem[]): Fields {
  const chunks = new Map<string, Fields>()
  const supports: Support[] = []
  const queries = output.flatMap(queriesIn)
  let before = 0
  for (const item of output) {
    if (item.type !== 'message') continue
    for (const part of (item as MessageItem).content) {
      if (part.type !== 'output_text') continue
      for (const annotation of part.annotations) {
        const source = sourceOf(annotation)
        if (source === null) continue
        const key = JSON.stringify(source)
        if (!chunks.has(key)) chunks.set(key, source)
        supports.push({ ...rangeOf(annotation, part.text, before), chunk: [...chunks.keys()].indexOf(key) })
      }
      before += Buffer.byteLength(part.text)
    }
  }
  for (const source of output.flatMap(sourcesIn)) {
    const key = JSON.stringify(source)
    if (!chunks.has(key)) chunks.set(key, source)
  }
  if (queries.length === 0 && chunks.size === 0) return {}
  return {
    groundingMetadata: {
      ...(queries.length === 0 ? {} : { webSearchQueries: [...new Set(queries)] }),
      ...(chunks.size === 0 ? {} : { groundingChunks: [...chunks.values()] }),
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

/** An annotation without a proper place belongs to the whole text. */
function rangeOf(annotation: Annotation, text: string, before: number): Omit<Support, 'chunk'> {
  const { start_index: from, end_index: to } = annotation as { start_index?: unknown; end_index?: unknown }
  const isPlaced = typeof from === 'number' && typeof to === 'number' && from < to && to <= text.length
  const [start, end] = isPlaced ? [from, to] : [0, text.length]
  const at = before + Buffer.byteLength(text.slice(0, start))
  const cited = text.slice(start, end)
  return { text: cited, start: at, end: at + Buffer.byteLength(cited) }
}

const SEARCHES: ReadonlySet<string> = new Set([
  'web_search_call',
  'gateway:web_search',
  'openrouter:web_search',
])

function actionOf(item: OutputItem): Fields | null {
  if (!SEARCHES.has(item.type)) return null
  const { action } = item as { action?: unknown }
  return isObject(action) ? action : null
}

function queriesIn(item: OutputItem): string[] {
  const action = actionOf(item)
  if (action === null) return []
  const { query, queries } = action
  const all: readonly unknown[] = Array.isArray(queries) ? queries : [query]
  return all.filter(one => typeof one === 'string' && one !== '') as string[]
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
