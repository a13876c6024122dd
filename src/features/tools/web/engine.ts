/**
 * The contract of web engines: APIs that find pages (search) or fetch one (page). A row defines the request and how to
 * read the reply; call-engine.ts sends it. Replies are hostile: the readers accept only texts of the expected type.
 * Pure.
 */
import { textOrEmpty } from '../../../base/json.ts'
import type { PicoUsd } from '../../../base/money.ts'

/** The place of the user, as the caller gives it. */
export interface SearchLocation {
  readonly city?: string | null | undefined
  readonly region?: string | null | undefined
  readonly country?: string | null | undefined
  readonly timezone?: string | null | undefined
}

/** One search, its bounds already applied. */
export interface SearchQuery {
  readonly query: string
  /** As the caller gives it; each engine has modes of its own and ignores others. */
  readonly mode: string | null
  readonly maxResults: number
  /** Characters of one result. */
  readonly maxChars: number
  /** The engine is told what it can express; the tool checks every result itself. */
  readonly allowedDomains: readonly string[]
  readonly excludedDomains: readonly string[]
  readonly location: SearchLocation | null
  /** `YYYY-MM-DD`. */
  readonly publishedAfter: string | null
  readonly publishedBefore: string | null
}

/** One result in the one shape that all engines are read into. */
export interface SearchResult {
  readonly title: string
  readonly url: string
  readonly text: string
  /** As the engine says it. */
  readonly publishedAt?: string
}

/** A page as an engine fetched it. */
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
  /** Null: the configuration has to give it. */
  readonly baseUrl: string | null
  /** The header that carries the key; null: the engine takes none. */
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
  /** A number: the status with which the page was answered, where the engine says it; null: no page. */
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

/** The texts of a list, one below the other. */
export function joinedField(value: unknown, name: string): string {
  const found = field(value, name)
  if (!Array.isArray(found)) return ''
  return found.filter(text => typeof text === 'string').join('\n')
}

/** Null where there is no list. */
export function listField(value: unknown, name: string): readonly unknown[] | null {
  const found = field(value, name)
  return Array.isArray(found) ? found : null
}
