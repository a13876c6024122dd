/**
 * Translates between citations of this API and our annotations. Pure. A citation belongs to a whole block of text, an
 * annotation to a range within a longer text: a text is split into blocks where its annotations begin and end.
 */
import { nativeOf } from '../../protocol/json/native.ts'
import type { Annotation } from '../../protocol/parts.ts'

type Citation = Readonly<Record<string, unknown>>

/** A section of a text, with its citations. */
interface CitedText {
  readonly text: string
  readonly citations: readonly Citation[]
}

/** The citation for an annotation; null for kinds that have none. `text`: the text that the annotation belongs to. */
export function citationOf(annotation: Annotation, text: string): Citation | null {
  const nativeCitation = nativeOf(annotation)
  if (nativeCitation !== null) return nativeCitation
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

/** The text in sections, each with its citations; none for an empty text without citations. */
export function citedTexts(text: string, annotations: readonly Annotation[]): readonly CitedText[] {
  const ranges = annotations.flatMap(annotation => {
    const citation = citationOf(annotation, text)
    return citation === null ? [] : [{ citation, ...rangeOf(annotation, text) }]
  })
  const citationsByEnd = new Map<number, Citation[]>()
  const borders = new Set<number>([text.length])
  for (const { citation, start, end } of ranges) {
    if (start > 0) borders.add(start)
    borders.add(end)
    const sameEnd = citationsByEnd.get(end)
    if (sameEnd === undefined) citationsByEnd.set(end, [citation])
    else sameEnd.push(citation)
  }
  const sections: CitedText[] = []
  let from = 0
  for (const to of [...borders].sort((a, b) => a - b)) {
    const citations = citationsByEnd.get(to) ?? []
    if (to > from || citations.length > 0) sections.push({ text: text.slice(from, to), citations })
    from = to
  }
  return sections
}

/** An annotation without a valid range applies to the whole text. */
function rangeOf(annotation: Annotation, text: string): { start: number; end: number } {
  const { start_index: start, end_index: end } = annotation as { start_index?: unknown; end_index?: unknown }
  if (!isPosition(start) || !isPosition(end) || start >= end || end > text.length)
    return { start: 0, end: text.length }
  return { start: afterPair(text, start), end: afterPair(text, end) }
}

function isPosition(value: unknown): value is number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0
}

/** The position, moved past a surrogate pair if it is inside one: half a character is not valid text. */
function afterPair(text: string, position: number): number {
  const unitBefore = text.charCodeAt(position - 1)
  const unitAfter = text.charCodeAt(position)
  const isWithin = unitBefore >= 0xd800 && unitBefore <= 0xdbff && unitAfter >= 0xdc00 && unitAfter <= 0xdfff
  return isWithin ? position + 1 : position
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

/** True if all citations came from a provider of this API, which accepts them back. */
export function areNative(citations: readonly Citation[]): boolean {
  return citations.every(({ type, encrypted_index: index, start_char_index: from, end_char_index: to }) => {
    if (type === 'web_search_result_location') return typeof index === 'string' && index !== ''
    return type !== 'char_location' || from !== to
  })
}
