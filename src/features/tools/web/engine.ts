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
  /** JSON, or an empty text. */
  readonly body: string
}

/** Address and key of an engine, for searches and pages. */
export interface EngineAccess {
  /** Null if only the configuration knows it. */
  readonly baseUrl: string | null
  /** The header with the key; null: the engine needs none. */
  readonly keyHeader: 'authorization' | 'x-api-key' | null
}

export interface SearchEngine extends EngineAccess {
  request(query: SearchQuery): EngineRequest
  /** Null if the reply has no list of results. */
  read(reply: unknown): readonly SearchResult[] | null
  price(query: SearchQuery): PicoUsd
}

export interface PageEngine extends EngineAccess {
  request(url: string, maxChars: number): EngineRequest
  /** The page, or its HTTP status if the engine could not fetch it; null if the reply has neither. */
  read(reply: unknown): EnginePage | number | null
  readonly price: PicoUsd
}

/** A POST request with this body. */
export function post(path: string, body: unknown): EngineRequest {
  return { method: 'POST', path, body: JSON.stringify(body) }
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
  const list = field(value, name)
  if (!Array.isArray(list)) return ''
  return list.filter(text => typeof text === 'string').join('\n')
}

/** Null if there is no list. */
export function listField(value: unknown, name: string): readonly unknown[] | null {
  const list = field(value, name)
  return Array.isArray(list) ? list : null
}
