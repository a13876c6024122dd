/**
 * The engines of the configuration at work: which one a request means, one search, one page. Results are checked here,
 * whatever the engine was told: addresses, domains, number and length. Serve threads.
 */
import type { Clock } from '../../clock.ts'
import type { SearchEngineRow } from '../../config/config.ts'
import { type PicoUsd, parseUsd } from '../../money.ts'
import type { Transport } from '../../upstream/transport.ts'
import { type ConfiguredEngine, callEngine, EngineFailure, unreadable } from './call-engine.ts'
import type { Admits } from './domains.ts'
import type { EngineKind, EnginePage, SearchQuery, SearchResult } from './engine.ts'
import { PAGE_ENGINES } from './page-engines.ts'
import { SEARCH_ENGINES } from './search-engines.ts'
import { cutText, shownLine, shownText } from './shown-text.ts'

/** An engine that requests may use. */
export interface Engine extends ConfiguredEngine {
  readonly kind: EngineKind
  readonly searchPrice: PicoUsd | null
  readonly pagePrice: PicoUsd | null
}

export interface WebEnginesDeps {
  readonly client: Transport
  readonly clock: Clock
  readonly engines: readonly SearchEngineRow[]
  /** Null: the first one. */
  readonly byDefault: string | null
  readonly timeoutMs: number
}

export interface Found {
  readonly results: readonly SearchResult[]
  readonly cost: PicoUsd
}

const URL_MAX_CHARS = 2_048
const TITLE_MAX_CHARS = 300

export class WebEngines {
  readonly #deps: WebEnginesDeps
  readonly #engines: readonly Engine[]

  constructor(deps: WebEnginesDeps) {
    this.#deps = deps
    this.#engines = deps.engines.map(configured)
  }

  /** The engine that requests without one get; null: none is configured. */
  get byDefault(): Engine | null {
    const { byDefault } = this.#deps
    return this.#engines.find(({ name }) => byDefault === null || name === byDefault) ?? null
  }

  /** The engine of this name, or else the first of this kind; null: none is configured. */
  named(name: string): Engine | null {
    return (
      this.#engines.find(each => each.name === name) ?? this.#engines.find(each => each.kind === name) ?? null
    )
  }

  /** Rejects with an EngineFailure, or with the reason of the signal. */
  async search(engine: Engine, query: SearchQuery, admits: Admits, signal: AbortSignal): Promise<Found> {
    const row = SEARCH_ENGINES[engine.kind]
    const reply = await this.#within(engine, signal, inner =>
      callEngine(this.#deps.client, row, engine, row.request(query), { ...this.#deps, signal: inner }),
    )
    const results = row.read(reply)
    if (results === null) throw unreadable(engine)
    return { results: kept(results, query, admits), cost: engine.searchPrice ?? row.price(query) }
  }

  /** Null: the engine has no API for pages. Rejects as `search` does. */
  async page(
    engine: Engine,
    url: string,
    maxChars: number,
    signal: AbortSignal,
  ): Promise<{ page: EnginePage | number; cost: PicoUsd } | null> {
    const row = PAGE_ENGINES[engine.kind]
    if (row === undefined) return null
    const reply = await this.#within(engine, signal, inner =>
      callEngine(this.#deps.client, row, engine, row.request(url, maxChars), {
        ...this.#deps,
        signal: inner,
      }),
    )
    const page = row.read(reply)
    if (page === null) throw unreadable(engine)
    return { page, cost: typeof page === 'number' ? 0 : (engine.pagePrice ?? row.price) }
  }

  /** The deadline holds for the whole call, however slowly the reply comes. */
  async #within<T>(
    { name }: Engine,
    signal: AbortSignal,
    work: (signal: AbortSignal) => Promise<T>,
  ): Promise<T> {
    const { clock, timeoutMs } = this.#deps
    const late = new AbortController()
    const timer = clock.after(timeoutMs, () =>
      late.abort(new EngineFailure('engine_timeout', `the engine ${name} did not answer in time`)),
    )
    try {
      return await work(AbortSignal.any([signal, late.signal]))
    } finally {
      timer.cancel()
    }
  }
}

function configured({ name, kind, baseUrl, apiKey, searchPrice, pagePrice }: SearchEngineRow): Engine {
  const base = baseUrl ?? SEARCH_ENGINES[kind].baseUrl ?? ''
  return {
    name,
    kind,
    baseUrl: base.endsWith('/') ? base.slice(0, -1) : base,
    apiKey: apiKey ?? null,
    searchPrice: searchPrice === undefined ? null : parseUsd(searchPrice),
    pagePrice: pagePrice === undefined ? null : parseUsd(pagePrice),
  }
}

/** Results with a web address that the lists admit, each address once. */
function kept(results: readonly SearchResult[], query: SearchQuery, admits: Admits): SearchResult[] {
  const seen = new Set<string>()
  const left: SearchResult[] = []
  for (const { title, url: address, text, publishedAt } of results) {
    if (left.length === query.maxResults) break
    const url = webUrl(address)
    if (url === null || seen.has(url.href) || !admits(url)) continue
    seen.add(url.href)
    const date = publishedAt === undefined ? '' : shownLine(publishedAt, 40)
    left.push({
      title: shownLine(title, TITLE_MAX_CHARS) || url.hostname,
      url: url.href,
      // Twice as much is looked at: hidden characters do not count.
      text: cutText(shownText(text.slice(0, 2 * query.maxChars)).trim(), query.maxChars),
      ...(date === '' ? {} : { publishedAt: date }),
    })
  }
  return left
}

/** Null for what is no web address, or holds a name or a password. */
export function webUrl(address: string): URL | null {
  if (address.length > URL_MAX_CHARS || !URL.canParse(address)) return null
  const url = new URL(address)
  const isWeb = url.protocol === 'https:' || url.protocol === 'http:'
  return isWeb && url.username === '' && url.password === '' ? url : null
}
