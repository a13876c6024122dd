/** Search results as a model reads them, and as citations of the answer. Pure. */
import type { UrlCitationAnnotation } from '../../protocol/parts.ts'
import type { SearchResult } from './engine.ts'
import { cutText } from './shown-text.ts'

/** All results of one search: a result of a tool is cut at 200,000 characters, and JSON must not be. */
const TEXT_MAX_CHARS = 150_000
/** Characters of a result in its citation. */
const CITED_MAX_CHARS = 500

/** The results as JSON; long ones are cut so that all fit. */
export function foundText(query: string, results: readonly SearchResult[]): string {
  const share = Math.floor(TEXT_MAX_CHARS / Math.max(1, results.length))
  return JSON.stringify({
    query,
    results: results.map(({ title, url, text, publishedAt }) => ({
      title,
      url,
      ...(publishedAt === undefined ? {} : { published: publishedAt }),
      text: cutText(text, share),
    })),
  })
}

/** Citations of results that are not in `cited` yet; they join it. The model says itself where it used which. */
export function citationsOf(results: readonly SearchResult[], cited: Set<string>): UrlCitationAnnotation[] {
  return results.flatMap(({ title, url, text }) => {
    if (cited.has(url)) return []
    cited.add(url)
    const content = cutText(text, CITED_MAX_CHARS)
    return [
      {
        type: 'url_citation',
        url,
        title,
        start_index: 0,
        end_index: 0,
        ...(content === '' ? {} : { content }),
      } as const,
    ]
  })
}
