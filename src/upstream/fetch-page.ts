/**
 * Gets what a link of a caller leads to, without being led into our own network: the name is resolved once, every
 * address of it has to be public, the connection goes to the addresses that were checked, and each redirect begins
 * anew. Bounded in bytes, time, hops and number. Serve threads.
 */
import { request as httpRequest, type IncomingMessage, type RequestOptions } from 'node:http'
import { request as httpsRequest } from 'node:https'
import { isIP, type LookupFunction } from 'node:net'
import type { Clock } from '../clock.ts'
import {
  type Address,
  createServerLookup,
  createSystemLookup,
  isPublicAddress,
  LineError,
  type ResolveName,
} from './resolve-name.ts'

/** Why a link was not followed; `busy` is the only one that is not its own fault. */
export type PageFault = 'refused' | 'unreachable' | 'timeout' | 'too_large' | 'wrong_type' | 'busy'

/** The message is about "the link", repeats nothing of it, and is fit for the caller. */
export class PageError extends Error {
  override readonly name = 'PageError'
  readonly fault: PageFault

  constructor(fault: PageFault, message: string) {
    super(message)
    this.fault = fault
  }
}

export interface Page {
  readonly bytes: Uint8Array
  /** Media type without parameters, in lower case. */
  readonly type: string
}

export interface PageTerms {
  /** Media types that are of use. */
  readonly types: readonly string[]
  readonly signal: AbortSignal
}

/** Rejects with a PageError, or with the reason of the signal. */
export type FetchPage = (address: string, terms: PageTerms) => Promise<Page>

export interface PageFetcherParts {
  readonly clock: Clock
  /** Also plain HTTP, to public addresses. */
  readonly allowHttp: boolean
  /** Any address, any port and plain HTTP: for installations whose documents lie in their own network. */
  readonly allowPrivate: boolean
  readonly maxBytes: number
  /** For all of a link: names, redirects and bytes. */
  readonly timeoutMs: number
  /**
   * All addresses of a name; may never answer. Default: what the DNS servers say, and where private addresses are
   * allowed, what this machine says.
   */
  readonly resolve?: (name: string) => Promise<readonly Address[]>
  /** Which addresses may be asked. Default: public ones. */
  readonly isPublic?: (address: string) => boolean
  /** Which ports, as a URL writes them. Default: 80 and 443. */
  readonly ports?: ReadonlySet<string>
}

/** What a thread fetches at once; what it holds is this times `maxBytes`. */
const RUNNING_MAX = 16
const REDIRECTS_MAX = 3
const LINK_MAX_CHARS = 2_048
const HEAD_MAX_BYTES = 16 * 1024
/** A client that tries one after the other needs no more. */
const ADDRESSES_MAX = 4
const REDIRECTS: ReadonlySet<number> = new Set([301, 302, 303, 307, 308])
const PORTS: ReadonlySet<string> = new Set(['', '80', '443'])

export function createPageFetcher(parts: PageFetcherParts): FetchPage {
  const resolve =
    parts.resolve === undefined && !parts.allowPrivate
      ? createServerLookup()
      : createSystemLookup(parts.resolve)
  let running = 0
  return async (address, { types, signal }) => {
    signal.throwIfAborted()
    if (running >= RUNNING_MAX) throw new PageError('busy', 'too many links are being followed')
    running++
    const ending = new AbortController()
    const leave = (): void => ending.abort(signal.reason)
    signal.addEventListener('abort', leave, { once: true })
    const timer = parts.clock.after(parts.timeoutMs, () =>
      ending.abort(new PageError('timeout', 'the link takes too long')),
    )
    try {
      return await follow(parts, resolve, address, types, ending.signal)
    } catch (thrown) {
      signal.throwIfAborted()
      if (thrown instanceof LineError) throw new PageError('busy', 'too many names are being looked up')
      // Whatever broke then broke because of it.
      ending.signal.throwIfAborted()
      throw thrown instanceof PageError ? thrown : unreachable()
    } finally {
      timer.cancel()
      signal.removeEventListener('abort', leave)
      running--
    }
  }
}

async function follow(
  parts: PageFetcherParts,
  resolve: ResolveName,
  address: string,
  types: readonly string[],
  signal: AbortSignal,
): Promise<Page> {
  let url = checkedUrl(parts, address)
  for (let hops = 0; ; hops++) {
    const answer = await ask(parts, url, await addressesOf(parts, resolve, url, signal), signal)
    try {
      const status = answer.statusCode ?? 0
      const { location } = answer.headers
      if (!REDIRECTS.has(status) || location === undefined) return await read(parts, answer, types)
      if (hops === REDIRECTS_MAX) throw refused('leads on more than three times')
      url = checkedUrl(parts, location, url)
    } finally {
      answer.destroy()
    }
  }
}

function checkedUrl(
  { allowHttp, allowPrivate, ports = PORTS }: PageFetcherParts,
  link: string,
  base?: URL,
): URL {
  if (link.length > LINK_MAX_CHARS) throw refused('is longer than 2,048 characters')
  if (!URL.canParse(link, base?.href)) throw refused('is no URL')
  const url = new URL(link, base)
  const isHttp = url.protocol === 'http:'
  if (!isHttp && url.protocol !== 'https:') throw refused('does not begin with https://')
  if (isHttp && !allowHttp && !allowPrivate) throw refused('leads to plain HTTP; only HTTPS is followed')
  if (url.username !== '' || url.password !== '') throw refused('holds a name or a password')
  if (!allowPrivate && !ports.has(url.port)) throw refused('leads to a port other than 80 and 443')
  return url
}

/** @throws PageError the same for a name that is not there, and one of an address that nobody may know of. */
async function addressesOf(
  { allowPrivate, isPublic = isPublicAddress }: PageFetcherParts,
  resolve: ResolveName,
  url: URL,
  signal: AbortSignal,
): Promise<readonly Address[]> {
  const host = bareHost(url)
  const family = isIP(host)
  const found = family === 0 ? await addressesBy(resolve, host, signal) : [{ address: host, family }]
  const usable = allowPrivate || found.every(({ address }) => isPublic(address))
  if (found.length === 0 || !usable) throw refused('leads to no public address')
  return found.slice(0, ADDRESSES_MAX)
}

/** None of a name that is not there. */
async function addressesBy(
  resolve: ResolveName,
  name: string,
  signal: AbortSignal,
): Promise<readonly Address[]> {
  try {
    return await resolve(name, signal)
  } catch (thrown) {
    if (thrown instanceof LineError) throw thrown
    signal.throwIfAborted()
    return []
  }
}

function ask(
  { allowPrivate, isPublic = isPublicAddress }: PageFetcherParts,
  url: URL,
  addresses: readonly Address[],
  signal: AbortSignal,
): Promise<IncomingMessage> {
  const options: RequestOptions = {
    method: 'GET',
    hostname: bareHost(url),
    port: url.port,
    path: `${url.pathname}${url.search}`,
    headers: { accept: '*/*', 'accept-encoding': 'identity', 'user-agent': 'sluice' },
    // A connection of its own, which nobody uses again.
    agent: false,
    lookup: pinned(addresses),
    maxHeaderSize: HEAD_MAX_BYTES,
    signal,
  }
  return new Promise((resolve, reject) => {
    const request = url.protocol === 'https:' ? httpsRequest(options) : httpRequest(options)
    request.on('socket', socket => {
      socket.once('connect', () => {
        // Of what was checked only the effect counts.
        if (!allowPrivate && !isPublic(socket.remoteAddress ?? ''))
          request.destroy(refused('leads to no public address'))
      })
    })
    request.on('response', resolve)
    request.on('error', reject)
    request.on('close', () => reject(unreachable()))
    request.end()
  })
}

/** The connection goes where the check looked, whatever the name means by now. */
function pinned(addresses: readonly Address[]): LookupFunction {
  return (_name, { all }, callback) => {
    const [first] = addresses
    process.nextTick(() => {
      if (all === true) callback(null, [...addresses])
      else callback(null, first?.address ?? '', first?.family)
    })
  }
}

async function read(
  { maxBytes }: PageFetcherParts,
  answer: IncomingMessage,
  types: readonly string[],
): Promise<Page> {
  const { statusCode, headers } = answer
  if (statusCode !== 200) throw new PageError('unreachable', `the link is answered with ${statusCode}`)
  const type = (headers['content-type'] ?? '').split(';', 1)[0]?.trim().toLowerCase() ?? ''
  if (!types.includes(type)) throw new PageError('wrong_type', `the link leads to no ${types[0]}`)
  // None was asked for, and what it would unfold to nobody knows.
  if ((headers['content-encoding'] ?? 'identity').toLowerCase() !== 'identity')
    throw new PageError('wrong_type', 'the link is answered in a compressed form')
  if (Number(headers['content-length'] ?? 0) > maxBytes) throw tooLarge(maxBytes)
  const chunks: Buffer[] = []
  let length = 0
  for await (const chunk of answer as AsyncIterable<Buffer>) {
    length += chunk.length
    if (length > maxBytes) throw tooLarge(maxBytes)
    chunks.push(chunk)
  }
  if (!answer.complete) throw unreachable()
  const bytes = new Uint8Array(length)
  let at = 0
  for (const chunk of chunks) {
    bytes.set(chunk, at)
    at += chunk.length
  }
  return { bytes, type }
}

function bareHost({ hostname }: URL): string {
  return hostname.startsWith('[') ? hostname.slice(1, -1) : hostname
}

function refused(why: string): PageError {
  return new PageError('refused', `the link ${why}`)
}

function unreachable(): PageError {
  return new PageError('unreachable', 'the link cannot be reached')
}

function tooLarge(maxBytes: number): PageError {
  return new PageError('too_large', `the link leads to more than ${maxBytes} bytes`)
}
