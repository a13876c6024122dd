/** Formats search results for a model, with the sources that the answer may cite. Pure. */
import type { Citable } from '../../../protocol/parts.ts'
import type { SearchResult } from './engine.ts'
import { cutText } from './shown-text.ts'

/** Maximum of all results together: a tool result is cut at 200,000 characters, and JSON must not be cut. */
const MAX_TEXT_CHARS = 150_000
/** Maximum characters of a result in its citation. */
const MAX_CITED_CHARS = 500

/** The results as JSON, with their numbers; long ones are cut so that all fit. */
export function foundText(
  query: string,
  results: readonly SearchResult[],
  numbers: readonly number[],
): string {
  const maxChars = Math.floor(MAX_TEXT_CHARS / Math.max(1, results.length))
  return JSON.stringify({
    query,
    results: results.map(({ title, url, text, publishedAt }, index) => ({
      number: numbers[index],
      title,
      url,
      ...(publishedAt === undefined ? {} : { published: publishedAt }),
      text: cutText(text, maxChars),
    })),
  })
}

/** The results in the form of citations. */
export function citableOf(results: readonly SearchResult[]): readonly Citable[] {
  return results.map(({ title, url, text }) => {
    const content = cutText(text, MAX_CITED_CHARS)
    return { type: 'url_citation', url, title, ...(content === '' ? {} : { content }) }
  })
}
