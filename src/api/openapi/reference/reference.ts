/** Serves the reference: the page with the reader's own URL in the examples, the script, and their headers. */
import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import type { JsonSchema } from '../json-schema.ts'
import { READER_URL } from './examples.ts'
import { referencePage } from './page.ts'

export const PAGE_TYPE = 'text/html; charset=utf-8'
export const SCRIPT_TYPE = 'text/javascript; charset=utf-8'

/** No frames, forms or external resources. The style is in the page, the script next to it. */
export const REFERENCE_HEADERS: Readonly<Record<string, string>> = {
  'content-security-policy':
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
}

/** The path of the script, next to `/docs`. */
export const FILTER_PATH = '/docs/filter.js' as const

/** The variable in examples for a reader whose URL is unknown. */
const URL_VARIABLE = '$URL'
/** Maximum cached pages with their own URL, because anybody can request any number of them. */
const MAX_CACHED_PAGES = 8

interface Page {
  readonly json: Buffer
  readonly etag: string
}

export class Reference {
  /** Keyed by URL. */
  readonly #pages = new Map<string, Page>()
  /** The URL goes between two parts. */
  readonly #parts: readonly Buffer[]
  readonly #digest: string

  /** Takes about 20 ms. @param document as built by createDocument */
  constructor(document: JsonSchema) {
    const page = referencePage(document)
    this.#parts = page.split(READER_URL).map(part => Buffer.from(part))
    this.#digest = createHash('sha256').update(page).digest('hex')
  }

  /**
   * Readers with the same URL get the same bytes. After the first few URLs, the examples contain the variable instead.
   * @param url as built by readerUrl; it is not escaped here
   */
  page(url: string): Page {
    const cachedPage = this.#pages.get(url)
    if (cachedPage !== undefined) return cachedPage
    if (this.#pages.size >= MAX_CACHED_PAGES && url !== URL_VARIABLE) return this.page(URL_VARIABLE)
    const page = this.#pageFor(url)
    this.#pages.set(url, page)
    return page
  }

  #pageFor(url: string): Page {
    const urlBytes = Buffer.from(url)
    const json = Buffer.concat(
      this.#parts.flatMap((part, index) => (index === 0 ? [part] : [urlBytes, part])),
    )
    const tag = createHash('sha256').update(this.#digest).update(urlBytes).digest('hex').slice(0, 16)
    return { json, etag: `"${tag}"` }
  }
}

/** The script of the filter, read from disk on each call. */
export function filterScript(): Buffer {
  return readFileSync(new URL('filter.js', import.meta.url))
}

const PLAIN_HOST = /^(?:[a-z0-9._-]{1,253}|\[[0-9a-f:.]{2,45}\])(?::\d{1,5})?$/i

/** The URL that a client used; the variable `$URL` if the host is not a plain name or address. */
export function readerUrl(host: string, isSecure: boolean): string {
  return PLAIN_HOST.test(host) ? `${isSecure ? 'https' : 'http'}://${host}` : URL_VARIABLE
}
