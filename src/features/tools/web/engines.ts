/**
 * The configured engines: finds the one that a request names, searches, and fetches pages. Results are always checked
 * here, even if the engine got the same restrictions: addresses, domains, number and length. Serve threads.
 */
import type { Clock } from '../../../base/clock.ts'
import { SlotQueue } from '../../../base/fairness/slot-queue.ts'
import { type PicoUsd, parseUsd } from '../../../base/money.ts'
import type { SearchEngineKind } from '../../../protocol/gateway-tools.ts'
import type { Transport } from '../../../providers/upstream/transport.ts'
import type { SearchEngineRow } from '../settings.ts'
import { type ConfiguredEngine, callEngine, EngineFailure, unreadableReply } from './call-engine.ts'
import type { Admits } from './domains.ts'
import type { EnginePage, SearchQuery, SearchResult } from './engine.ts'
import { PAGE_ENGINES } from './page-engines.ts'
import { SEARCH_ENGINES } from './search-engines.ts'
import { cutText, visibleText, visibleTitle } from './shown-text.ts'

/** An engine for requests. */
export interface WebEngine extends ConfiguredEngine {
  readonly kind: SearchEngineKind
  readonly searchPrice: PicoUsd | null
  readonly pagePrice: PicoUsd | null
}

interface WebEnginesDeps {
  readonly client: Transport
  readonly clock: Clock
  readonly engines: readonly SearchEngineRow[]
  /** The name of the default engine; null for the first one. */
  readonly byDefault: string | null
  readonly timeoutMs: number
  /** True if the engines are simulated: only simulated models get their results. Default: false. */
  readonly isSimulated?: boolean
}

interface EngineFindings {
  readonly results: readonly SearchResult[]
  readonly cost: PicoUsd
}

/** The key on whose behalf an engine is called, and the signal that ends the call. */
interface EngineTerms {
  /** Hash of the API key. */
  readonly keyHash: string
  readonly signal: AbortSignal
}

/** Maximum concurrent calls of a thread: each may hold a reply of a few megabytes. */
const MAX_CALLS = 64
const MAX_CALLS_PER_KEY = 16
const MAX_URL_CHARS = 2_048
const MAX_TITLE_CHARS = 300

const NO_ENGINES: Pick<WebEngines, 'byDefault' | 'engineNamed'> = { byDefault: null, engineNamed: () => null }

export class WebEngines {
  readonly #deps: WebEnginesDeps
  readonly #engines: readonly WebEngine[]
  readonly #slots: SlotQueue

  constructor(deps: WebEnginesDeps) {
    this.#deps = deps
    this.#engines = deps.engines.map(engineOf)
    this.#slots = new SlotQueue({
      clock: deps.clock,
      slots: MAX_CALLS,
      perKey: MAX_CALLS_PER_KEY,
      waitMs: deps.timeoutMs,
    })
  }

  /** The engine for requests that name none; null if none is configured. */
  get byDefault(): WebEngine | null {
    const { byDefault } = this.#deps
    return this.#engines.find(({ name }) => byDefault === null || name === byDefault) ?? null
  }

  /** The first engine of the kind with this name; null if none is configured. */
  engineNamed(name: string): WebEngine | null {
    return this.#engines.find(({ kind }) => kind === name) ?? null
  }

  /** The engines for a model; a real model gets no simulated ones. */
  servingModel(isSimulated: boolean): Pick<WebEngines, 'byDefault' | 'engineNamed'> {
    return this.#deps.isSimulated !== true || isSimulated ? this : NO_ENGINES
  }

  /** The price of a search that the engine answers. */
  searchFee({ searchPrice, kind }: WebEngine, query: SearchQuery): PicoUsd {
    return searchPrice ?? SEARCH_ENGINES[kind].price(query)
  }

  /** The price of a page that was found. */
  pageFee({ pagePrice, kind }: WebEngine): PicoUsd {
    return pagePrice ?? PAGE_ENGINES[kind]?.price ?? 0
  }

  /** Searches. Rejects with an EngineFailure, or with the reason of the signal. */
  async search(
    engine: WebEngine,
    query: SearchQuery,
    admits: Admits,
    terms: EngineTerms,
  ): Promise<EngineFindings> {
    const row = SEARCH_ENGINES[engine.kind]
    const reply = await this.#withSlot(engine, terms, callSignal =>
      callEngine(this.#deps.client, row, engine, row.request(query), { ...this.#deps, signal: callSignal }),
    )
    const results = row.read(reply)
    if (results === null) throw unreadableReply(engine)
    return { results: admittedResults(results, query, admits), cost: this.searchFee(engine, query) }
  }

  /** Fetches a page; null if the engine has no API for pages. Rejects like `search`. */
  async page(
    engine: WebEngine,
    url: string,
    maxChars: number,
    terms: EngineTerms,
  ): Promise<{ page: EnginePage | number; cost: PicoUsd } | null> {
    const row = PAGE_ENGINES[engine.kind]
    if (row === undefined) return null
    const reply = await this.#withSlot(engine, terms, callSignal =>
      callEngine(this.#deps.client, row, engine, row.request(url, maxChars), {
        ...this.#deps,
        signal: callSignal,
      }),
    )
    const page = row.read(reply)
    if (page === null) throw unreadableReply(engine)
    return { page, cost: typeof page === 'number' ? 0 : this.pageFee(engine) }
  }

  /** The deadline covers the whole call, even if the reply comes slowly. Waiting for a slot has the same limit. */
  async #withSlot<T>(
    { name }: WebEngine,
    { keyHash, signal }: EngineTerms,
    work: (signal: AbortSignal) => Promise<T>,
  ): Promise<T> {
    const { clock, timeoutMs } = this.#deps
    const leaveSlot = await this.#slots.enter(keyHash, signal)
    if (leaveSlot === null) throw new EngineFailure('engine_busy', 'too many searches are running')
    const deadline = new AbortController()
    const timer = clock.after(timeoutMs, () =>
      deadline.abort(new EngineFailure('engine_timeout', `the ${name} engine did not answer in time`)),
    )
    try {
      return await work(AbortSignal.any([signal, deadline.signal]))
    } finally {
      timer.cancel()
      leaveSlot()
    }
  }
}

function engineOf({ name, kind, baseUrl, apiKey, searchPrice, pagePrice }: SearchEngineRow): WebEngine {
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

/** Results with a web address that the lists allow, each address once. */
function admittedResults(
  results: readonly SearchResult[],
  query: SearchQuery,
  admits: Admits,
): SearchResult[] {
  const seenUrls = new Set<string>()
  const accepted: SearchResult[] = []
  for (const { title, url: address, text, publishedAt } of results) {
    if (accepted.length === query.maxResults) break
    const url = webUrl(address)
    if (url === null || seenUrls.has(url.href) || !admits(url)) continue
    seenUrls.add(url.href)
    const date = publishedAt === undefined ? '' : visibleTitle(publishedAt, 40)
    accepted.push({
      title: visibleTitle(title, MAX_TITLE_CHARS) || url.hostname,
      url: url.href,
      // Twice as many characters are processed, because hidden ones do not count.
      text: cutText(visibleText(text.slice(0, 2 * query.maxChars)).trim(), query.maxChars),
      ...(date === '' ? {} : { publishedAt: date }),
    })
  }
  return accepted
}

/** The parsed address; null if it is not a web address, or contains a user name or a password. */
export function webUrl(address: string): URL | null {
  if (address.length > MAX_URL_CHARS || !URL.canParse(address)) return null
  const url = new URL(address)
  const isWeb = url.protocol === 'https:' || url.protocol === 'http:'
  return isWeb && url.username === '' && url.password === '' ? url : null
}
