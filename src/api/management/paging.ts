/**
 * Reads paging and filter parameters of management operations from the query. Pure. An unknown parameter is ignored, as
 * clients of such interfaces expect; a known one that is malformed or occurs twice is refused by name. Bodies are
 * checked by protocol/json/body.ts.
 */
import { refuseField } from '../../base/errors.ts'
import { withinCharacters } from '../../protocol/json/schema.ts'
import { PAGE_DEFAULT, PAGE_MAX } from '../../protocol/limits.ts'
import type { PageRequest } from '../../storage/store.ts'

export const KEY_HASH = /^[0-9a-f]{64}$/

/** The page that `offset` and `limit` select. @throws GatewayError `invalid_request` */
export function pageOf(query: URLSearchParams): PageRequest {
  return {
    offset: integer(query, 'offset', 0, Number.MAX_SAFE_INTEGER) ?? 0,
    limit: limitOf(query),
  }
}

/** The value of `limit`, or the default. @throws GatewayError `invalid_request` */
export function limitOf(query: URLSearchParams, defaultLimit = PAGE_DEFAULT): number {
  return integer(query, 'limit', 1, PAGE_MAX) ?? defaultLimit
}

/** A list in an answer: its elements, and the ids with which to request the previous and the next page. */
export function listDocument<Item extends { readonly id: string }>(data: readonly Item[], hasMore: boolean) {
  return { data, first_id: data[0]?.id ?? null, last_id: data.at(-1)?.id ?? null, has_more: hasMore }
}

/** The value of `api_key_hash`; undefined if absent. @throws GatewayError `invalid_request` */
export function hashParameter(query: URLSearchParams): string | undefined {
  const value = parameter(query, 'api_key_hash')
  if (value === undefined || KEY_HASH.test(value)) return value
  throw refuseField('api_key_hash', 'must be 64 lowercase hexadecimal characters')
}

/** The parameter; undefined if absent. @throws GatewayError `invalid_request` if it occurs twice. */
export function parameter(query: URLSearchParams, name: string): string | undefined {
  const [value, ...more] = query.getAll(name)
  if (more.length > 0) throw refuseField(name, 'must not be given twice')
  return value
}

/** A text of 1 to `maxCharacters` characters that the storage can compare. @throws GatewayError `invalid_request` */
export function textParameter(
  query: URLSearchParams,
  name: string,
  maxCharacters: number,
): string | undefined {
  const value = parameter(query, name)
  if (value === undefined) return undefined
  if (value === '' || !withinCharacters(value, maxCharacters) || value.includes('\0')) {
    throw refuseField(name, `must have 1 to ${maxCharacters} characters without NUL`)
  }
  return value
}

/** `true` or `false`; false if absent. @throws GatewayError `invalid_request` */
export function flagParameter(query: URLSearchParams, name: string): boolean {
  const value = parameter(query, name)
  if (value !== undefined && value !== 'true' && value !== 'false')
    throw refuseField(name, 'must be true or false')
  return value === 'true'
}

function integer(query: URLSearchParams, name: string, minimum: number, maximum: number): number | undefined {
  const text = parameter(query, name)
  if (text === undefined) return undefined
  const value = Number(text)
  if (!/^\d{1,15}$/.test(text) || value < minimum || value > maximum) {
    const range =
      maximum === Number.MAX_SAFE_INTEGER ? `of at least ${minimum}` : `from ${minimum} to ${maximum}`
    throw refuseField(name, `must be an integer ${range}`)
  }
  return value
}
