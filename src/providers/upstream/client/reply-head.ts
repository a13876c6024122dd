/** Parses the head of a reply, and defines the faults of replies. Hot path. */
import type { GatewayError } from '../../../base/errors.ts'
import { unavailable } from '../transport.ts'

export const TAB = 9
export const CR = 13
export const SPACE = 32

export interface ReplyHead {
  readonly status: number
  /** Lower-case names; a repeated header has its last value. No prototype. */
  readonly headers: Readonly<Record<string, string>>
}
const STATUS = /^HTTP\/1\.([01]) ([1-9]\d\d)(?: .*)?$/
export const FIELD = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+:/
const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/
/** Control characters, and line ends that are not CRLF. */
const FORBIDDEN = /[^\t\r\n\x20-\x7e\x80-\xff]|\r(?!\n)|(?<!\r)\n/
const LENGTH = /^\d{1,15}$/
/** One of the options of a Connection header. */
const CLOSES = /(?:^|,)[ \t]*close[ \t]*(?:,|$)/i

/** Reads the lines in one pass, without building a list of them, because every reply has a head. */
export function parseHead(text: string) {
  if (FORBIDDEN.test(text)) throw invalid()
  const first = text.indexOf('\r\n')
  const status = STATUS.exec(first === -1 ? text : text.slice(0, first))
  if (status === null) throw invalid()
  const headers: Record<string, string> = Object.create(null)
  let length: number | null = null
  let encoding: string | null = null
  let isClosing = false
  for (let at = first, next = first; next !== -1; at = next) {
    at += 2
    next = text.indexOf('\r\n', at)
    const end = next === -1 ? text.length : next
    const colon = text.indexOf(':', at)
    if (colon === -1 || colon >= end) throw invalid()
    const name = nameOf(text.slice(at, colon))
    let [from, to] = [colon + 1, end]
    // Removes spaces and tabs; other white space belongs to the value.
    while (from < to && (text.charCodeAt(from) === SPACE || text.charCodeAt(from) === TAB)) from++
    while (to > from && (text.charCodeAt(to - 1) === SPACE || text.charCodeAt(to - 1) === TAB)) to--
    const value = text.slice(from, to)
    headers[name] = value
    if (name === 'content-length') {
      if (length !== null || !LENGTH.test(value)) throw wrongLength()
      length = Number(value)
    } else if (name === 'transfer-encoding') {
      encoding = encoding === null ? value.toLowerCase() : `${encoding},${value}`
    } else if (name === 'connection') isClosing ||= CLOSES.test(value)
  }
  return { status: Number(status[2]), minor: Number(status[1]), headers, length, encoding, isClosing }
}

/** Lower-case names of headers, by their original spelling: providers repeat a few dozen. */
const names = new Map<string, string>()
const NAMES_MAX = 512
const NAME_MAX_CHARS = 64

/** @throws GatewayError for an invalid name */
function nameOf(spelling: string): string {
  const known = names.get(spelling)
  if (known !== undefined) return known
  if (!TOKEN.test(spelling)) throw invalid()
  const name = spelling.toLowerCase()
  if (names.size < NAMES_MAX && spelling.length <= NAME_MAX_CHARS) names.set(spelling, name)
  return name
}

/**
 * Rejects text immediately if it can no longer become a head. @param from start of the text that has not been examined
 * yet
 */
export function refuseBareFeeds(text: string, from: number): void {
  for (let at = text.indexOf('\n', from); at !== -1; at = text.indexOf('\n', at + 1)) {
    if (text.charCodeAt(at - 1) !== CR) throw invalid()
  }
}

export function invalid(): Error {
  return unavailable('The provider sent a reply that is not valid HTTP')
}

export function wrongLength(): Error {
  return unavailable('The provider sent a reply of the wrong length')
}

export function tooLargeBody(): Error {
  return unavailable('The provider sent a reply that is too large')
}

/** The chunks of a reply are too small; see `REPLY_PIECES`. */
export function tooFinelyCut(): GatewayError {
  return unavailable('The provider sent a reply in chunks that are too small')
}

export function tooLargeHead(): Error {
  return unavailable('The provider sent headers that are too large')
}
