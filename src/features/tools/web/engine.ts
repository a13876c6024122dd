/**
 * The contract of web engines: APIs that find pages (search) or fetch one (page). A row defines the request and how to
 * read the reply; call-engine.ts sends it. Replies are hostile: the readers accept only texts of the expected type.
 * Pure.
 */
import { textOrEmpty } from '../../../base/json.ts'
import type { PicoUsd } from '../../../base/money.ts'

/** The user's location, from the caller. */
export interface SearchLocation {
  readonly city?: string | null | undefined
  readonly region?: string | null | undefined
  readonly country?: string | null | undefined
  readonly timezone?: string | null | undefined
}

/** One search, with its limits applied. */
export interface SearchQuery {
  readonly query: string
  /** From the caller. Each engine has modes of its own and ignores others. */
  readonly mode: string | null
  readonly maxResults: number
  /** Maximum characters of one result. */
  readonly maxChars: number
  /** An engine gets the filters that its API can express; the tool checks every result itself. */
  readonly allowedDomains: readonly string[]
  readonly excludedDomains: readonly string[]
  readonly location: SearchLocation | null
  /** `YYYY-MM-DD`. */
  readonly publishedAfter: string | null
  readonly publishedBefore: string | null
}

/** A result in the common form. */
export interface SearchResult {
  readonly title: string
  readonly url: string
  readonly text: string
  /** In the engine's format. */
  readonly publishedAt?: string
}

/** A page fetched by an engine. */
export interface EnginePage {
  readonly title: string
  readonly content: string
}

/** An HTTP request to an engine, without its address and key. */
export interface EngineRequest {
  readonly method: 'GET' | 'POST'
  /** Path and query, appended to the base URL. */
  readonly path: string
  /** JSON; empty: none. */
  readonly body: string
}

export type EngineKind = 'exa' | 'parallel' | 'firecrawl' | 'perplexity' | 'searxng'

/** Address and key of an engine, for searches and pages. */
export interface EngineAccess {
  /** Null: the configuration must contain it. */
  readonly baseUrl: string | null
  /** The header with the key; null: the engine needs none. */
  readonly keyHeader: 'authorization' | 'x-api-key' | null
}

export interface SearchEngine extends EngineAccess {
  request(query: SearchQuery): EngineRequest
  /** Null: the reply has no list of results. */
  read(reply: unknown): readonly SearchResult[] | null
  price(query: SearchQuery): PicoUsd
}

export interface PageEngine extends EngineAccess {
  request(url: string, maxChars: number): EngineRequest
  /** A number: the page's status, if the engine reports it; null: no page. */
  read(reply: unknown): EnginePage | number | null
  readonly price: PicoUsd
}

// Readers of replies

export function field(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null && Object.hasOwn(value, name)
    ? (value as Readonly<Record<string, unknown>>)[name]
    : undefined
}

export function textField(value: unknown, name: string): string {
  return textOrEmpty(field(value, name))
}

/** The texts of a list, joined by line ends. */
export function joinedField(value: unknown, name: string): string {
  const found = field(value, name)
  if (!Array.isArray(found)) return ''
  return found.filter(text => typeof text === 'string').join('\n')
}

/** Null if there is no list. */
export function listField(value: unknown, name: string): readonly unknown[] | null {
  const found = field(value, name)
  return Array.isArray(found) ? found : null
}
