/** Formats search results for a model, with the sources that the answer may cite. Pure. */
import type { Citable } from '../../../protocol/parts.ts'
import type { SearchResult } from './engine.ts'
import { cutText } from './shown-text.ts'

/** Maximum for all results of a search: a tool result is cut at 200,000 characters, and JSON must not be cut. */
const TEXT_MAX_CHARS = 150_000
/** Maximum characters of a result in its citation. */
const CITED_MAX_CHARS = 500

/** The results as JSON, with their numbers; long ones are cut so that all fit. */
export function foundText(
  query: string,
  results: readonly SearchResult[],
  numbers: readonly number[],
): string {
  const share = Math.floor(TEXT_MAX_CHARS / Math.max(1, results.length))
  return JSON.stringify({
    query,
    results: results.map(({ title, url, text, publishedAt }, at) => ({
      number: numbers[at],
      title,
      url,
      ...(publishedAt === undefined ? {} : { published: publishedAt }),
      text: cutText(text, share),
    })),
  })
}

/** The results in the form of citations. */
export function citableOf(results: readonly SearchResult[]): readonly Citable[] {
  return results.map(({ title, url, text }) => {
    const content = cutText(text, CITED_MAX_CHARS)
    return { type: 'url_citation', url, title, ...(content === '' ? {} : { content }) }
  })
}
