/**
 * Translates between citations of this API and our annotations. Pure. A citation belongs to a whole block of text, an
 * annotation to a range within a longer text: a text is split into blocks where its annotations begin and end.
 */

import { nativeOf } from '../../protocol/json/native.ts'
import type { Annotation } from '../../protocol/parts.ts'

type Citation = Readonly<Record<string, unknown>>

/** A stretch of a text, with its citations. */
interface CitedText {
  readonly text: string
  readonly citations: readonly Citation[]
}

/** The citation for an annotation; null for kinds that have none. `text`: the text that the annotation belongs to. */
export function citationOf(annotation: Annotation, text: string): Citation | null {
  const native = nativeOf(annotation)
  if (native !== null) return native
  switch (annotation.type) {
    case 'url_citation': {
      const { url, title, content, start_index, end_index } = annotation
      return {
        type: 'web_search_result_location',
        cited_text: content ?? text.slice(start_index, end_index),
        url,
        title,
        encrypted_index: '',
      }
    }
    case 'file_citation':
    case 'container_file_citation':
      return {
        type: 'char_location',
        cited_text: '',
        document_index: annotation.type === 'file_citation' ? annotation.index : 0,
        document_title: annotation.filename,
        file_id: annotation.file_id,
        start_char_index: 0,
        end_char_index: 0,
      }
    default:
      return null
  }
}

/** The text in stretches, each with its citations; none for an empty text without any. */
export function citedTexts(text: string, annotations: readonly Annotation[]): readonly CitedText[] {
  const placed = annotations.flatMap(annotation => {
    const citation = citationOf(annotation, text)
    return citation === null ? [] : [{ citation, ...rangeOf(annotation, text) }]
  })
  const ends = new Map<number, Citation[]>()
  const borders = new Set<number>([text.length])
  for (const { citation, start, end } of placed) {
    if (start > 0) borders.add(start)
    borders.add(end)
    const sameEnd = ends.get(end)
    if (sameEnd === undefined) ends.set(end, [citation])
    else sameEnd.push(citation)
  }
  const stretches: CitedText[] = []
  let from = 0
  for (const to of [...borders].sort((a, b) => a - b)) {
    const citations = ends.get(to) ?? []
    if (to > from || citations.length > 0) stretches.push({ text: text.slice(from, to), citations })
    from = to
  }
  return stretches
}

/** An annotation without a proper place belongs to the end of the text. */
function rangeOf(annotation: Annotation, text: string): { start: number; end: number } {
  const { start_index: start, end_index: end } = annotation as { start_index?: unknown; end_index?: unknown }
  if (!isPlace(start) || !isPlace(end) || start >= end || end > text.length)
    return { start: 0, end: text.length }
  return { start: afterPair(text, start), end: afterPair(text, end) }
}

function isPlace(value: unknown): value is number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0
}

/** The position, moved past a surrogate pair if it is inside one: half a character is not valid text. */
function afterPair(text: string, at: number): number {
  const before = text.charCodeAt(at - 1)
  const after = text.charCodeAt(at)
  const isWithin = before >= 0xd800 && before <= 0xdbff && after >= 0xdc00 && after <= 0xdfff
  return isWithin ? at + 1 : at
}

/** Annotations for citations that a client sends back with a text; places in its own documents have none. */
export function annotationsOf(citations: readonly Citation[], length: number): readonly Annotation[] {
  return citations.flatMap((citation): Annotation[] => {
    const { type, cited_text: content, title } = citation
    const url = type === 'search_result_location' ? citation['source'] : citation['url']
    if (typeof url !== 'string' || url === '') return []
    return [
      {
        type: 'url_citation',
        url,
        title: typeof title === 'string' ? title : '',
        start_index: 0,
        end_index: length,
        ...(typeof content === 'string' && content !== '' ? { content } : {}),
      },
    ]
  })
}

/** True if all citations are as this API's own provider gave them. */
export function goBack(citations: readonly Citation[]): boolean {
  return citations.every(({ type, encrypted_index: index, start_char_index: from, end_char_index: to }) => {
    if (type === 'web_search_result_location') return typeof index === 'string' && index !== ''
    return type !== 'char_location' || from !== to
  })
}
