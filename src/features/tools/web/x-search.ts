/**
 * `x_search`: a search for posts on X, through a web search engine. The engine is limited to the domains of X; handles
 * and days are checked here, from the URL of each result. Pure.
 */
import type { Admits } from './domains.ts'
import type { SearchQuery } from './engine.ts'

/** The caller's settings, checked. */
export interface XSearch {
  /** In lower case, without `@`; null: no list. */
  readonly allowed: ReadonlySet<string> | null
  readonly excluded: ReadonlySet<string>
  /** `YYYY-MM-DD`, both inclusive. */
  readonly from: string | null
  readonly to: string | null
}

const X_DOMAINS = ['x.com', 'twitter.com']
const X_HOST = /^(?:www\.|mobile\.)?(?:x|twitter)\.com$/
/** Ids of posts count milliseconds since this time, shifted by 22 bits. */
const ID_EPOCH_MS = 1_288_834_974_657n
const ID_SHIFT_BITS = 22n
const POST_PATH = /^\/([^/]+)\/status\/(\d{1,19})(?:\/|$)/
const DAY_MS = 86_400_000

/** The checked setting; null if it is absent. `refuse` gets the invalid field. */
export function xSearchOf(value: unknown, refuse: (field: string, reason: string) => never): XSearch | null {
  if (typeof value !== 'object' || value === null) return null
  const fields = value as Readonly<Record<string, unknown>>
  const handles = (name: string): ReadonlySet<string> => {
    const list = fields[name]
    return new Set(
      Array.isArray(list) ? list.map(handle => String(handle).replace(/^@/, '').toLowerCase()) : [],
    )
  }
  const day = (name: string): string | null => {
    const text = fields[name]
    if (typeof text !== 'string' || text === '') return null
    const dayText = /^\d{4}-\d\d-\d\d(?=T|$)/.exec(text)?.[0] ?? ''
    return Number.isNaN(Date.parse(dayText)) ? refuse(name, 'must be a day as YYYY-MM-DD') : dayText
  }
  const allowed = handles('allowed_x_handles')
  return {
    allowed: allowed.size === 0 ? null : allowed,
    excluded: handles('excluded_x_handles'),
    from: day('from_date'),
    to: day('to_date'),
  }
}

/** The query for the engine, and the conditions for its results. */
export function xQuery(
  { allowed, excluded, from, to }: XSearch,
  query: SearchQuery,
): { query: SearchQuery; admits: Admits } {
  const publishedAfter = later(query.publishedAfter, from)
  const publishedBefore = earlier(query.publishedBefore, to)
  const words = allowed === null ? [] : [...allowed].map(handle => `@${handle}`)
  return {
    query: {
      ...query,
      query: [query.query, ...words].join(' '),
      allowedDomains: X_DOMAINS,
      excludedDomains: [],
      publishedAfter,
      publishedBefore,
    },
    admits(url) {
      if (!X_HOST.test(url.hostname)) return false
      const handle = url.pathname.split('/', 2)[1]?.toLowerCase() ?? ''
      if (excluded.has(handle) || (allowed !== null && !allowed.has(handle))) return false
      return isPostedWithin(url, publishedAfter, publishedBefore)
    },
  }
}

/** True if a post was made within these days, which its id shows; false for another page. Without days: true. */
function isPostedWithin({ pathname }: URL, after: string | null, before: string | null): boolean {
  if (after === null && before === null) return true
  const id = POST_PATH.exec(pathname)?.[2]
  if (id === undefined) return false
  const postedMs = Number((BigInt(id) >> ID_SHIFT_BITS) + ID_EPOCH_MS)
  return (
    (after === null || postedMs >= Date.parse(after)) &&
    (before === null || postedMs < Date.parse(before) + DAY_MS)
  )
}

function later(a: string | null, b: string | null): string | null {
  if (a === null || b === null) return a ?? b
  return a > b ? a : b
}

function earlier(a: string | null, b: string | null): string | null {
  if (a === null || b === null) return a ?? b
  return a < b ? a : b
}
