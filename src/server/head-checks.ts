/**
 * Decides on a request from its head alone, before any other work: framing and lengths, host, `Content-Encoding`,
 * `Expect`, media types, and the header with the caller's key (`Authorization`, `x-api-key`, `x-goog-api-key`). The
 * underlying HTTP parser accepts more than is safe behind other proxies; the gate refuses every head that two parsers
 * could read differently. Pure.
 */

import { GatewayError } from '../base/errors.ts'
import { CODING_NAMES, codingIn } from './content-coding.ts'

/** A request head as it arrived, copied out of the parser. */
export interface RequestHead {
  /** In the client's spelling. */
  readonly method: string
  /** Undecoded, without the query. */
  readonly path: string
  /** Undecoded, without the question mark. */
  readonly query: string
  /** Alternating names (lower case) and values, in order of arrival. */
  readonly headers: readonly string[]
  /** The reason that the parser could not read the head. */
  readonly fault?: GatewayError
}

export interface AcceptedHead {
  /** Keyed by lower-case name. Repeated headers are joined by a comma. */
  readonly headers: ReadonlyMap<string, string>
  /** Announced bytes; null if the head announces none: the body is chunked, or there is no body. */
  readonly contentLength: number | null
  readonly chunked: boolean
  /** True if there is a body to read. */
  readonly hasBody: boolean
  /** How the body is compressed; null: it is not. */
  readonly coding: string | null
  /** True if the client wants the connection closed, or if its framing makes that the only safe end. */
  readonly closesConnection: boolean
}

export interface GateRules {
  /** False if a body must announce its length (otherwise 411). */
  readonly allowChunked: boolean
}

/** Known methods; any other method is answered with 501. Each path accepts some of them. */
export const METHODS: ReadonlySet<string> = new Set([
  'GET',
  'HEAD',
  'POST',
  'PUT',
  'PATCH',
  'DELETE',
  'OPTIONS',
])
const METHODS_WITH_BODY = new Set(['POST', 'PUT', 'PATCH'])

/** No template with ordinary parameters leads to a longer path. */
const PATH_MAX_CHARS = 2048
/** 256 characters of four bytes each, all escaped: the longest end user. */
const FREE_TEXT_MAX_CHARS = 3072
/** Enough for the filters of a list; the parser's own limit on the whole head is 16 KiB. */
const QUERY_MAX_CHARS = 4096

const PATH = /^\/[A-Za-z0-9\-._~!$&'()*+,;=:@%/]*$/
const QUERY = /^[A-Za-z0-9\-._~!$&'()*+,;=:@%/?[\]]*$/
const DOT_SEGMENT = /\/\.{1,2}(?:\/|$)/
/** Encoded slash, backslash, dot and NUL: proxies disagree on whether they separate segments. */
const ENCODED_SEPARATOR = /%(?:2f|5c|2e|00)/i
const ENCODED_NUL = /%00/
/**
 * A segment that consists of dots once separators and dots are decoded; some readers ignore everything after a
 * semicolon.
 */
const HIDDEN_DOT_SEGMENT = /(?:^|\/|%2f|%5c)(?:\.|%2e){1,2}(?=\/|%2f|%5c|%3b|;|$)/i
const BAD_ESCAPE = /%(?![0-9a-f]{2})/i
const HIGH_ESCAPE = /%[89a-f]/i
const HOST = /^(?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,253})|\[[0-9A-Fa-f:.]{2,45}\])(?::(\d{1,5}))?$/
const CONTENT_LENGTH = /^(?:0|[1-9]\d{0,9})$/
const JSON_TYPE = /^application\/json[ \t]*(?:;[ \t]*charset=(?:utf-8|"utf-8")[ \t]*)?;?$/i

/** Headers that must not be repeated: duplicates would be ambiguous. */
const SINGLE_HEADERS = new Set([
  'host',
  'authorization',
  'x-api-key',
  'x-goog-api-key',
  'content-type',
  'content-length',
  'content-encoding',
  'transfer-encoding',
  'expect',
])

/**
 * Checks a head. `freeText` is the end of the path, if it may be any text; with `anyMedia`, the body need not be JSON.
 * Returns the accepted head, or the error; never throws.
 */
export function inspect(
  head: RequestHead,
  rules: GateRules,
  freeText = '',
  anyMedia = false,
): AcceptedHead | GatewayError {
  if (head.fault !== undefined) return head.fault
  if (!METHODS.has(head.method)) return new GatewayError('not_implemented', 'Method not implemented')
  const target = targetFault(head, freeText)
  if (target !== null) return new GatewayError('invalid_request', target)

  const headers = new Map<string, string>()
  for (let index = 0; index + 1 < head.headers.length; index += 2) {
    const name = head.headers[index] ?? ''
    const value = head.headers[index + 1] ?? ''
    const earlier = headers.get(name)
    if (earlier === undefined) headers.set(name, value)
    else if (SINGLE_HEADERS.has(name))
      return new GatewayError('invalid_request', `More than one ${name} header`)
    else headers.set(name, `${earlier}, ${value}`)
  }
  if (!isHost(headers.get('host'))) return new GatewayError('invalid_request', 'Invalid Host header')
  return framing(head.method, headers, rules, anyMedia)
}

/** @returns the error for a body whose announced length exceeds the operation's limit, or null */
export function lengthFault(accepted: AcceptedHead, limitBytes: number): GatewayError | null {
  if (accepted.contentLength === null || accepted.contentLength <= limitBytes) return null
  return tooLargeError(limitBytes)
}

export function tooLargeError(limitBytes: number): GatewayError {
  return new GatewayError(
    'payload_too_large',
    limitBytes === 0
      ? 'This operation takes no request body: send an empty one (Content-Length: 0)'
      : `Request payload too large: the limit is ${limitBytes} bytes`,
  )
}

function framing(
  method: string,
  headers: ReadonlyMap<string, string>,
  rules: GateRules,
  anyMedia: boolean,
): AcceptedHead | GatewayError {
  const transfer = headers.get('transfer-encoding')
  const length = headers.get('content-length')
  const mayHaveBody = METHODS_WITH_BODY.has(method)
  if (transfer !== undefined) {
    if (transfer !== 'chunked')
      return new GatewayError('invalid_request', 'Invalid Transfer-Encoding header: only chunked is accepted')
    if (length !== undefined) {
      return new GatewayError('invalid_request', 'Send Transfer-Encoding or Content-Length, not both')
    }
  }
  if (length !== undefined && !CONTENT_LENGTH.test(length)) {
    return new GatewayError('invalid_request', 'Invalid Content-Length header: send a number of bytes')
  }
  const contentLength = length === undefined ? null : Number(length)
  const hasBody = transfer !== undefined || (contentLength ?? 0) > 0
  if (hasBody && !mayHaveBody) {
    return new GatewayError('invalid_request', `A ${method} request must not have a body`)
  }
  if (mayHaveBody && length === undefined && (transfer === undefined || !rules.allowChunked)) {
    return new GatewayError(
      'length_required',
      "Content-Length is required, even if there is no body (curl -X POST sends it with -d '')",
    )
  }
  const connection = headers.get('connection')
  const expectation = headers.get('expect')
  if (expectation !== undefined && expectation.toLowerCase() !== '100-continue') {
    return new GatewayError('expectation_failed', 'Unsupported Expect header; only 100-continue is accepted')
  }
  const encoding = headers.get('content-encoding')
  const isCompressed = encoding !== undefined && encoding.toLowerCase() !== 'identity'
  const coding = isCompressed ? codingIn(encoding) : null
  if (isCompressed && (coding === null || anyMedia)) {
    return new GatewayError(
      'unsupported_media_type',
      anyMedia
        ? 'This request body must not be compressed: leave out Content-Encoding'
        : `Content-Encoding must be one of ${CODING_NAMES}`,
    )
  }
  if (hasBody && !anyMedia && !JSON_TYPE.test(headers.get('content-type') ?? '')) {
    return new GatewayError('unsupported_media_type', 'Content-Type must be application/json, in UTF-8')
  }
  return {
    headers,
    contentLength,
    chunked: transfer !== undefined,
    hasBody,
    coding,
    // The parser is too lenient with chunk sizes and trailers for the bytes after a chunked body to be trusted.
    closesConnection:
      transfer !== undefined ||
      (connection !== undefined && connection !== 'keep-alive' && asksToClose(connection)),
  }
}

function targetFault(head: RequestHead, freeText: string): string | null {
  const { path, query } = head
  const end = path.endsWith('/') ? path.length - 1 : path.length
  const template = path.slice(0, end - freeText.length)
  if (
    template.length > PATH_MAX_CHARS ||
    freeText.length > FREE_TEXT_MAX_CHARS ||
    query.length > QUERY_MAX_CHARS
  ) {
    return 'The request target is too long'
  }
  if (!PATH.test(path) || !QUERY.test(query)) return 'Invalid character in the request target'
  if (path.includes('//') || DOT_SEGMENT.test(path)) return 'Empty or dot segment in the request path'
  if (ENCODED_SEPARATOR.test(template) || ENCODED_NUL.test(freeText)) {
    return 'Encoded separator in the request path'
  }
  // Ensures that a reader that decodes the text still finds the path below the same template.
  if (HIDDEN_DOT_SEGMENT.test(freeText)) return 'Encoded dot segment in the request path'
  if (BAD_ESCAPE.test(path) || (query !== '' && (BAD_ESCAPE.test(query) || !isUtf8(query)))) {
    return 'Invalid escape in the request target'
  }
  return null
}

/** True if the escapes are valid UTF-8. Decoding replaces other bytes, so the text would mean something else. */
function isUtf8(query: string): boolean {
  if (!HIGH_ESCAPE.test(query)) return true
  try {
    decodeURIComponent(query)
    return true
  } catch {
    return false
  }
}

function isHost(value: string | undefined): boolean {
  const match = HOST.exec(value ?? '')
  return match !== null && (match[1] === undefined || Number(match[1]) <= 65_535)
}

function asksToClose(connection: string): boolean {
  return connection.split(',').some(token => token.trim().toLowerCase() === 'close')
}

/** Headers in which clients of some APIs send only their key. */
const KEY_HEADERS = ['x-api-key', 'x-goog-api-key'] as const

export function authorizationOf(headers: ReadonlyMap<string, string>): string | undefined {
  const authorization = headers.get('authorization')
  if (authorization !== undefined && authorization !== '') return authorization
  for (const name of KEY_HEADERS) {
    const key = headers.get(name)
    if (key !== undefined && key !== '') return `Bearer ${key}`
  }
  return authorization
}
