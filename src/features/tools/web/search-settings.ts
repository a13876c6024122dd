/**
 * The settings of a web search tool in any of its spellings: under `parameters`, or inline with `filters`. Each model
 * call decides where the search runs: at the provider, or with one of our engines. Pure.
 */
import { refuseField } from '../../../base/errors.ts'
import { filled, texts } from '../../../base/json.ts'
import type { RequestedTool, ToolEndpoint } from '../../../exchange/server-tool.ts'
import { SEARCH_RESULT_MAX_CHARS } from '../../../protocol/limits.ts'
import { type Admits, createAdmits, domainsRefusal } from './domains.ts'
import type { SearchLocation, SearchQuery } from './engine.ts'
import type { WebEngine, WebEngines } from './engines.ts'
import { type XSearch, xQuery, xSearchOf } from './x-search.ts'

export interface SearchSettings {
  /** For errors, for example `tools[0].parameters`. */
  readonly path: string
  readonly engine: string
  readonly mode: string | null
  readonly maxResults: number
  readonly maxTotalResults: number
  readonly maxUses: number
  readonly maxChars: number
  readonly allowedDomains: readonly string[]
  readonly excludedDomains: readonly string[]
  readonly location: SearchLocation | null
  /** Null for a search of the whole web. */
  readonly xSearch: XSearch | null
}

/** A search runs at the provider, or with a search engine. */
type SearchPlace =
  | { readonly native: true }
  /** `engine` is null if none is configured. */
  | { readonly native: false; readonly engine: WebEngine | null }

type Fields = Readonly<Record<string, unknown>>

const DEFAULT_RESULTS = 5
const DEFAULT_TOTAL_RESULTS = 50
const CONTEXT_CHARS: Readonly<Record<string, number>> = { low: 5_000, medium: 15_000, high: 30_000 }
const DEFAULT_CONTEXT = 'medium'

/** @throws GatewayError invalid_request that names the field */
export function searchSettings(fields: Fields, path: string): SearchSettings {
  const filters = (fields['filters'] ?? {}) as Fields
  const allowed = [...texts(fields['allowed_domains']), ...texts(filters['allowed_domains'])]
  const excluded = [
    ...texts(fields['excluded_domains']),
    ...texts(filters['excluded_domains']),
    ...texts(filters['blocked_domains']),
  ]
  refuseDomains(allowed, `${path}.allowed_domains`)
  refuseDomains(excluded, `${path}.excluded_domains`)
  const size = filled(fields['search_context_size']) ?? DEFAULT_CONTEXT
  return {
    path,
    engine: filled(fields['engine']) ?? 'auto',
    mode: filled(fields['mode']),
    maxResults: numberOrNull(fields['max_results']) ?? DEFAULT_RESULTS,
    maxTotalResults: numberOrNull(fields['max_total_results']) ?? DEFAULT_TOTAL_RESULTS,
    maxUses: numberOrNull(fields['max_uses']) ?? Number.POSITIVE_INFINITY,
    maxChars: Math.min(
      SEARCH_RESULT_MAX_CHARS,
      numberOrNull(fields['max_characters']) ?? CONTEXT_CHARS[size] ?? SEARCH_RESULT_MAX_CHARS,
    ),
    allowedDomains: allowed,
    excludedDomains: excluded,
    location: (fields['user_location'] ?? null) as SearchLocation | null,
    xSearch: xSearchOf(fields['x_search'], (field, reason) => {
      throw refuseField(`${path}.x_search.${field}`, reason)
    }),
  }
}

/** @throws GatewayError `invalid_request` if the engine that the settings name does not exist or does not support them */
export function searchPlace(
  settings: SearchSettings,
  engines: Pick<WebEngines, 'byDefault' | 'engineNamed'>,
  endpoint: ToolEndpoint,
): SearchPlace {
  const { engine, path } = settings
  const limitsDomains = settings.allowedDomains.length + settings.excludedDomains.length > 0
  const isHosted = endpoint.hosts('web_search')
  const canLimit = !limitsDomains || endpoint.searchesDomains !== false
  if (engine === 'native') {
    if (!isHosted)
      throw refuseField(`${path}.engine`, 'the provider of this model has no web search of its own')
    if (!canLimit)
      throw refuseField(`${path}.engine`, "the provider's own web search cannot be limited to domains")
    return { native: true }
  }
  // No provider's web search supports the settings of x_search.
  const searchesX = settings.xSearch === null || engines.byDefault === null
  if (engine === 'auto' && isHosted && canLimit && searchesX) return { native: true }
  const isMissing = engine === 'auto' && engines.byDefault === null
  return { native: false, engine: isMissing ? null : engineFor(settings, engines) }
}

/** The engine that the settings select. @throws GatewayError invalid_request */
export function engineFor(
  settings: SearchSettings,
  engines: Pick<WebEngines, 'byDefault' | 'engineNamed'>,
): WebEngine {
  const { engine: engineName, path, allowedDomains, excludedDomains } = settings
  const engine = engineName === 'auto' ? engines.byDefault : engines.engineNamed(engineName)
  if (engine === null) {
    const subject = engineName === 'auto' ? 'no search engine' : `the ${engineName} search engine`
    const state = engineName === 'auto' ? 'is configured' : 'is not configured'
    throw refuseField(`${path}.engine`, `${subject} ${state}; the operator can set tools.webSearch.engines`)
  }
  const hasBothLists = settings.xSearch === null && allowedDomains.length > 0 && excludedDomains.length > 0
  if (hasBothLists && engine.kind !== 'exa' && engine.kind !== 'perplexity')
    throw refuseField(`${path}.excluded_domains`, 'must not be set together with allowed_domains')
  return engine
}

/** The query for the engine, and the test that the address of each result must pass. */
export function searchQuery(
  settings: SearchSettings,
  { kind }: WebEngine,
  terms: Pick<SearchQuery, 'query' | 'maxResults' | 'publishedAfter' | 'publishedBefore'>,
): { query: SearchQuery; admits: Admits } {
  const { mode, maxChars, allowedDomains, location } = settings
  // Perplexity accepts one list: the allowed domains take precedence.
  const excludedDomains = kind === 'perplexity' && allowedDomains.length > 0 ? [] : settings.excludedDomains
  const query = { ...terms, mode, maxChars, allowedDomains, excludedDomains, location }
  if (settings.xSearch !== null) return xQuery(settings.xSearch, query)
  return { query, admits: createAdmits(allowedDomains, excludedDomains) }
}

/** The tool in the form for a provider with its own search. */
export function nativeTool({ type, parameters, ...inline }: RequestedTool): { type: string } {
  const isGateway = type.includes(':')
  return {
    ...(isGateway ? { type: 'web_search' } : { type }),
    ...(isGateway ? parameters : inline),
    engine: 'native',
  } as {
    type: string
  }
}

/** The settings of an entry and their path. */
export function fieldsOf(tool: RequestedTool, path: string): { fields: Fields; path: string } {
  return tool.type.includes(':')
    ? { fields: tool.parameters ?? {}, path: `${path}.parameters` }
    : { fields: tool, path }
}

function refuseDomains(list: readonly string[], path: string): void {
  const reason = domainsRefusal(list)
  if (reason !== null) throw refuseField(path, reason)
}

export function numberOrNull(value: unknown): number | null {
  return typeof value === 'number' ? value : null
}
