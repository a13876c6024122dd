/**
 * The search engines: one row each, with the request, the reply and the price. A new engine is a row here, its kind in
 * protocol/gateway-tools.ts and its goldens in test/fixtures/web. Prices come from the public price lists of 2026. Pure.
 */
import { type PicoUsd, parseUsd } from '../../../base/money.ts'
import type { SearchEngineKind } from '../../../protocol/gateway-tools.ts'
import {
  field,
  joinedField,
  listField,
  post,
  type SearchEngine,
  type SearchLocation,
  type SearchQuery,
  type SearchResult,
  textField,
} from './engine.ts'

/** Results included in the price of one request to Exa. */
const EXA_INCLUDED_RESULTS = 10
const EXA_EXTRA_RESULT_PRICE = parseUsd('0.001')
const EXA_MODE_PRICES: Readonly<Record<string, PicoUsd>> = {
  instant: parseUsd('0.007'),
  fast: parseUsd('0.007'),
  auto: parseUsd('0.007'),
  'deep-lite': parseUsd('0.012'),
  deep: parseUsd('0.012'),
  'deep-reasoning': parseUsd('0.015'),
}
const PARALLEL_MODE_PRICES: Readonly<Record<string, PicoUsd>> = {
  turbo: parseUsd('0.001'),
  fast: parseUsd('0.001'),
  basic: parseUsd('0.005'),
  advanced: parseUsd('0.005'),
}
const PARALLEL_DEFAULT_MODE = 'basic'
const PARALLEL_MAX_QUERY_CHARS = 200
const PARALLEL_MAX_OBJECTIVE_CHARS = 5_000
const FIRECRAWL_MAX_QUERY_CHARS = 500
const PERPLEXITY_MAX_RESULTS = 20
const PERPLEXITY_MAX_DOMAINS = 20
/** Characters per token, for engines that count tokens. */
const CHARS_PER_TOKEN = 4

export const SEARCH_ENGINES: Readonly<Record<SearchEngineKind, SearchEngine>> = {
  // https://exa.ai/docs/reference/search, https://exa.ai/docs/admin/pricing
  exa: {
    baseUrl: 'https://api.exa.ai',
    keyHeader: 'x-api-key',
    request: query =>
      post('/search', {
        query: query.query,
        type: modeIn(EXA_MODE_PRICES, query) ?? 'auto',
        numResults: query.maxResults,
        ...optionalList('includeDomains', query.allowedDomains),
        ...optionalList('excludeDomains', query.excludedDomains),
        ...(query.publishedAfter === null ? {} : { startPublishedDate: dayStart(query.publishedAfter) }),
        ...(query.publishedBefore === null ? {} : { endPublishedDate: dayEnd(query.publishedBefore) }),
        ...countryOf(query.location, 'userLocation', upperCase),
        contents: { text: { maxCharacters: query.maxChars } },
      }),
    read: reply =>
      resultsIn(listField(reply, 'results'), entry => ({
        text: textField(entry, 'text') || joinedField(entry, 'highlights'),
        publishedAt: textField(entry, 'publishedDate'),
      })),
    price: query =>
      (EXA_MODE_PRICES[modeIn(EXA_MODE_PRICES, query) ?? 'auto'] ?? 0) +
      Math.max(0, query.maxResults - EXA_INCLUDED_RESULTS) * EXA_EXTRA_RESULT_PRICE,
  },
  // https://docs.parallel.ai/api-reference/search/search, https://docs.parallel.ai/getting-started/pricing
  parallel: {
    baseUrl: 'https://api.parallel.ai',
    keyHeader: 'x-api-key',
    request: query =>
      post('/v1/search', {
        objective: cutQuery(query.query, PARALLEL_MAX_OBJECTIVE_CHARS),
        search_queries: [cutQuery(query.query, PARALLEL_MAX_QUERY_CHARS)],
        mode: modeIn(PARALLEL_MODE_PRICES, query) ?? PARALLEL_DEFAULT_MODE,
        advanced_settings: {
          max_results: query.maxResults,
          excerpt_settings: { max_chars_per_result: Math.max(100, query.maxChars) },
          ...countryOf(query.location, 'location', lowerCase),
          ...parallelSources(query),
        },
      }),
    read: reply =>
      resultsIn(listField(reply, 'results'), entry => ({
        text: joinedField(entry, 'excerpts'),
        publishedAt: textField(entry, 'publish_date'),
      })),
    price: query => PARALLEL_MODE_PRICES[modeIn(PARALLEL_MODE_PRICES, query) ?? PARALLEL_DEFAULT_MODE] ?? 0,
  },
  // https://docs.firecrawl.dev/api-reference/endpoint/search. Its own plan has credits instead of prices.
  firecrawl: {
    baseUrl: 'https://api.firecrawl.dev',
    keyHeader: 'authorization',
    request: query =>
      post('/v2/search', {
        query: withSites(query, FIRECRAWL_MAX_QUERY_CHARS),
        limit: query.maxResults,
        sources: [{ type: 'web' }],
        ...countryOf(query.location, 'country', upperCase),
        ...addressOf(query.location),
        ...firecrawlDates(query),
        scrapeOptions: { formats: [{ type: 'markdown' }], onlyMainContent: true },
      }),
    read(reply) {
      const data = field(reply, 'data')
      // The first version answers with a plain list.
      const list = Array.isArray(data) ? data : listField(data, 'web')
      return resultsIn(list, entry => ({
        text: textField(entry, 'markdown') || textField(entry, 'description'),
        publishedAt: textField(entry, 'date'),
      }))
    },
    price: () => 0,
  },
  // https://docs.perplexity.ai/api-reference/search-post, https://docs.perplexity.ai/docs/search/quickstart
  perplexity: {
    baseUrl: 'https://api.perplexity.ai',
    keyHeader: 'authorization',
    request: query =>
      post('/search', {
        query: query.query,
        max_results: Math.min(PERPLEXITY_MAX_RESULTS, query.maxResults),
        max_tokens_per_page: Math.max(1, Math.ceil(query.maxChars / CHARS_PER_TOKEN)),
        // A list has either allowed domains or excluded ones.
        ...optionalList(
          'search_domain_filter',
          (query.allowedDomains.length > 0
            ? query.allowedDomains.map(hostOf)
            : wholeHosts(query.excludedDomains).map(host => `-${host}`)
          ).slice(0, PERPLEXITY_MAX_DOMAINS),
        ),
        ...countryOf(query.location, 'country', upperCase),
        ...(query.publishedAfter === null ? {} : { search_after_date_filter: usDate(query.publishedAfter) }),
        ...(query.publishedBefore === null
          ? {}
          : { search_before_date_filter: usDate(query.publishedBefore) }),
      }),
    read: reply =>
      resultsIn(listField(reply, 'results'), entry => ({
        text: textField(entry, 'snippet'),
        publishedAt: textField(entry, 'date') || textField(entry, 'last_updated'),
      })),
    price: () => parseUsd('0.005'),
  },
  // https://docs.searxng.org/dev/search_api.html; `search.formats` of the instance must have json.
  searxng: {
    baseUrl: null,
    keyHeader: null,
    request: query => ({
      method: 'GET',
      path: `/search?${new URLSearchParams({ q: withSites(query, Number.POSITIVE_INFINITY), format: 'json', categories: 'general' })}`,
      body: '',
    }),
    read: reply =>
      resultsIn(listField(reply, 'results'), entry => ({
        text: textField(entry, 'content'),
        publishedAt: textField(entry, 'publishedDate'),
      })),
    price: () => 0,
  },
}

/** Results without an address are skipped. */
function resultsIn(
  list: readonly unknown[] | null,
  read: (entry: unknown) => { text: string; publishedAt: string },
): readonly SearchResult[] | null {
  if (list === null) return null
  return list.flatMap(entry => {
    const url = textField(entry, 'url')
    if (url === '') return []
    const { text, publishedAt } = read(entry)
    return [{ title: textField(entry, 'title'), url, text, ...(publishedAt === '' ? {} : { publishedAt }) }]
  })
}

/** The mode, if the engine has it. */
function modeIn(modes: Readonly<Record<string, unknown>>, { mode }: SearchQuery): string | null {
  return mode !== null && Object.hasOwn(modes, mode) ? mode : null
}

function optionalList(name: string, list: readonly string[]): Record<string, readonly string[]> {
  return list.length === 0 ? {} : { [name]: list }
}

const upperCase = (text: string): string => text.toUpperCase()
const lowerCase = (text: string): string => text.toLowerCase()

/** The country, if it is a two-letter code. */
function countryOf(location: SearchLocation | null, name: string, write: (code: string) => string) {
  const country = location?.country ?? ''
  return /^[A-Za-z]{2}$/.test(country) ? { [name]: write(country) } : {}
}

function addressOf(location: SearchLocation | null) {
  const parts = [location?.city, location?.region].filter(part => part != null && part !== '')
  return parts.length === 0 ? {} : { location: parts.join(',') }
}

function dayStart(day: string): string {
  return `${day}T00:00:00.000Z`
}

function dayEnd(day: string): string {
  return `${day}T23:59:59.999Z`
}

/** `2026-03-01` as `03/01/2026`. */
function usDate(day: string): string {
  const [year, month, date] = day.split('-')
  return `${month}/${date}/${year}`
}

/** The engine ignores excluded domains if there are allowed ones, and does not support paths. */
function parallelSources({ allowedDomains, excludedDomains, publishedAfter }: SearchQuery) {
  const domains =
    allowedDomains.length > 0
      ? { include_domains: allowedDomains.map(hostOf) }
      : optionalList('exclude_domains', wholeHosts(excludedDomains))
  const policy = { ...domains, ...(publishedAfter === null ? {} : { after_date: publishedAfter }) }
  return Object.keys(policy).length === 0 ? {} : { source_policy: policy }
}

function firecrawlDates({ publishedAfter, publishedBefore }: SearchQuery) {
  if (publishedAfter === null && publishedBefore === null) return {}
  const minDate = publishedAfter === null ? '' : `,cd_min:${usDate(publishedAfter)}`
  const maxDate = publishedBefore === null ? '' : `,cd_max:${usDate(publishedBefore)}`
  return { tbs: `cdr:1${minDate}${maxDate}` }
}

/** The query with the domains as search operators that fit, for engines without fields for domains. */
function withSites({ query, allowedDomains, excludedDomains }: SearchQuery, maxChars: number): string {
  let queryText = cutQuery(query, maxChars)
  const allowed = allowedDomains.map(domain => `site:${hostOf(domain)}`)
  const operators = [
    ...(allowed.length > 1 ? [`(${allowed.join(' OR ')})`] : allowed),
    ...wholeHosts(excludedDomains).map(host => `-site:${host}`),
  ]
  for (const operator of operators)
    if (queryText.length + 1 + operator.length <= maxChars) queryText += ` ${operator}`
  return queryText
}

/** The host of a domain list entry, without path and wildcard. */
function hostOf(entry: string): string {
  return entry.replace(/\/.*$/, '').replace(/^\*\./, '')
}

/** The entries without path and wildcard: an engine that only supports hosts would exclude too much for others. */
function wholeHosts(list: readonly string[]): readonly string[] {
  return list.filter(entry => !entry.includes('/') && !entry.includes('*'))
}

function cutQuery(text: string, maxChars: number): string {
  return text.length <= maxChars ? text : text.slice(0, maxChars).toWellFormed()
}
