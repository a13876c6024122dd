/**
 * External engines that fetch pages, as an alternative to the gateway's own HTTP client: one row each, its kind in
 * protocol/gateway-tools.ts. Pure.
 */
import { parseUsd } from '../../../base/money.ts'
import type { PAGE_ENGINE_KINDS, SearchEngineKind } from '../../../protocol/gateway-tools.ts'
import { field, listField, type PageEngine, post, textField } from './engine.ts'

type PageEngineKind = (typeof PAGE_ENGINE_KINDS)[number]
type SearchOnlyKind = Exclude<SearchEngineKind, PageEngineKind>

/** Exactly the kinds that requests may name: one row more or less does not compile. */
export const PAGE_ENGINES: Readonly<
  Record<PageEngineKind, PageEngine> & Partial<Record<SearchOnlyKind, undefined>>
> = {
  // https://exa.ai/docs/reference/get-contents
  exa: {
    baseUrl: 'https://api.exa.ai',
    keyHeader: 'x-api-key',
    request: (url, maxChars) => post('/contents', { urls: [url], text: { maxCharacters: maxChars } }),
    read(reply) {
      const [page] = listField(reply, 'results') ?? []
      if (page !== undefined) return { title: textField(page, 'title'), content: textField(page, 'text') }
      const [status] = listField(reply, 'statuses') ?? []
      return statusIn(field(status, 'error'), 'httpStatusCode')
    },
    price: parseUsd('0.001'),
  },
  // https://docs.parallel.ai/api-reference/extract/extract, https://docs.parallel.ai/extract/advanced-extract-settings
  parallel: {
    baseUrl: 'https://api.parallel.ai',
    keyHeader: 'x-api-key',
    request: (url, maxChars) =>
      post('/v1/extract', {
        urls: [url],
        advanced_settings: { full_content: { max_chars_per_result: maxChars } },
      }),
    read(reply) {
      const [page] = listField(reply, 'results') ?? []
      if (page !== undefined)
        return { title: textField(page, 'title'), content: textField(page, 'full_content') }
      const [error] = listField(reply, 'errors') ?? []
      return statusIn(error, 'http_status_code')
    },
    price: parseUsd('0.001'),
  },
  // https://docs.firecrawl.dev/api-reference/endpoint/scrape
  firecrawl: {
    baseUrl: 'https://api.firecrawl.dev',
    keyHeader: 'authorization',
    request: url => post('/v2/scrape', { url, formats: ['markdown'], onlyMainContent: true }),
    read(reply) {
      const data = field(reply, 'data')
      const metadata = field(data, 'metadata')
      const status = statusIn(metadata, 'statusCode')
      if (status !== null && status >= 400) return status
      const content = field(data, 'markdown')
      return typeof content === 'string' ? { title: textField(metadata, 'title'), content } : null
    },
    price: 0,
  },
}

function statusIn(value: unknown, name: string): number | null {
  const status = field(value, name)
  return typeof status === 'number' && Number.isInteger(status) && status >= 100 && status <= 599
    ? status
    : null
}
