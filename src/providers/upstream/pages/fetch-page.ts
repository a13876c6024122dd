/**
 * Fetches a caller's link without exposing our own network. The name is resolved once, all of its addresses must be
 * public, the connection goes to a checked address (even through a proxy), and each redirect is checked again. Bounded
 * in bytes, time, hops and concurrent fetches. Serve threads.
 */
import { isIP, type LookupFunction, Socket } from 'node:net'
import type { buildConnector } from 'undici'
import type { Clock } from '../../../base/clock.ts'
import { SlotQueue } from '../../../base/fairness/slot-queue.ts'
import type { ProxyOf } from '../egress.ts'
import { throughProxy } from '../proxy-tunnel.ts'
import { ReadTurns } from '../read-turns.ts'
import { FineChunks, type PartedReply, requestWithin } from '../undici/request.ts'
import { undici } from '../undici/undici.ts'
import { isPublicAddress } from './public-addresses.ts'
import {
  type Address,
  createServerLookup,
  createSystemLookup,
  QueueTimeout,
  type ResolveName,
} from './resolve-name.ts'

/** The reason that a link was not fetched. Only `busy` is not the link's fault. */
type PageFault = 'refused' | 'unreachable' | 'timeout' | 'too_large' | 'wrong_type' | 'busy'

/**
 * The error for a link that was not fetched. Its message may be shown to the caller and contains nothing of the link.
 */
export class PageError extends Error {
  override readonly name = 'PageError'
  readonly fault: PageFault
  /** The status of the reply, if it was not 200. */
  readonly status: number | null

  constructor(fault: PageFault, message: string, status: number | null = null) {
    super(message)
    this.fault = fault
    this.status = status
  }
}

/** The document behind a link. */
export interface FetchedPage {
  readonly bytes: Uint8Array
  /** Media type without parameters, in lower case. */
  readonly type: string
  /** As stated in the header; null if it states none. */
  readonly charset: string | null
  /** The address after all redirects. */
  readonly url: string
}

interface PageTerms {
  /** Accepted media types; messages name the first one. */
  readonly types: readonly string[]
  readonly signal: AbortSignal
  /** Hash of the API key on whose behalf the link is followed. */
  readonly key: string
  /** Called for the link and for each redirect; false means that it is not followed. Default: all are followed. */
  readonly admits?: (url: URL) => boolean
  /** True if the page is for a simulated model. Default: false. */
  readonly isSimulated?: boolean
}

/** Fetches a link. Rejects with a PageError, or with the reason of the signal. */
export type FetchPage = (address: string, terms: PageTerms) => Promise<FetchedPage>

/** Rules for where a caller's link may lead. */
export interface LinkRules {
  /** Allows plain HTTP to public addresses. */
  readonly allowHttp: boolean
  /** Allows any address, any port and plain HTTP: for installations with documents in their own network. */
  readonly allowPrivate: boolean
  /** The proxy for a link. It is only asked for a tunnel to the checked address. Default: none. */
  readonly proxyOf?: ProxyOf
  /**
   * Resolves to all addresses of a name; may never answer. Default: the DNS servers, or the resolver of this machine
   * if private addresses are allowed.
   */
  readonly resolve?: (name: string) => Promise<readonly Address[]>
  /** True for addresses that may be contacted. Default: public ones. */
  readonly isPublic?: (address: string) => boolean
  /** Allowed ports, as written in a URL. Default: 80 and 443. */
  readonly ports?: ReadonlySet<string>
}

export interface PageFetcherDeps extends LinkRules {
  readonly clock: Clock
  readonly maxBytes: number
  /**
   * Time limit for the whole fetch: name lookups, redirects and bytes. Before the fetch, a link may wait for a slot for
   * the same time.
   */
  readonly timeoutMs: number
}

/** Links that one thread follows at the same time, because each may hold a whole page. */
const FETCHES_MAX = 16
const FETCHES_PER_KEY = 4
const REDIRECTS_MAX = 3
const LINK_MAX_CHARS = 2_048
const HEAD_MAX_BYTES = 16 * 1024
/** Maximum number of addresses of a name that are tried, one after the other. */
const ADDRESSES_MAX = 4
const REDIRECTS: ReadonlySet<number> = new Set([301, 302, 303, 307, 308])
const PORTS: ReadonlySet<string> = new Set(['', '80', '443'])

/** Creates the page fetcher of one thread. */
export function createPageFetcher(deps: PageFetcherDeps): FetchPage {
  const resolve = resolverOf(deps)
  const turns = new ReadTurns()
  const slots = new SlotQueue({
    clock: deps.clock,
    slots: FETCHES_MAX,
    perKey: FETCHES_PER_KEY,
    waitMs: deps.timeoutMs,
  })
  return async (address, terms) => {
    const { signal } = terms
    signal.throwIfAborted()
    const leaveSlot = await slots.enter(terms.key, signal)
    if (leaveSlot === null) throw new PageError('busy', 'too many links are being followed at the moment')
    const fetchAbort = new AbortController()
    const onAbort = (): void => fetchAbort.abort(signal.reason)
    signal.addEventListener('abort', onAbort, { once: true })
    const timer = deps.clock.after(deps.timeoutMs, () =>
      fetchAbort.abort(new PageError('timeout', 'the link took too long to answer')),
    )
    try {
      return await followLink(deps, resolve, turns, address, { ...terms, signal: fetchAbort.signal })
    } catch (thrown) {
      signal.throwIfAborted()
      if (thrown instanceof QueueTimeout)
        throw new PageError('busy', 'too many host names are being looked up at the moment')
      // A failure after the deadline is a consequence of it.
      fetchAbort.signal.throwIfAborted()
      throw thrown instanceof PageError ? thrown : unreachable()
    } finally {
      timer.cancel()
      signal.removeEventListener('abort', onAbort)
      leaveSlot()
    }
  }
}

/** Resolves the names of links. */
export function resolverOf({ allowPrivate, resolve }: LinkRules): ResolveName {
  return resolve === undefined && !allowPrivate ? createServerLookup() : createSystemLookup(resolve)
}

async function followLink(
  deps: PageFetcherDeps,
  resolve: ResolveName,
  turns: ReadTurns,
  address: string,
  { types, signal, admits = () => true }: PageTerms,
): Promise<FetchedPage> {
  let url = checkUrl(deps, address)
  for (let redirects = 0; ; redirects++) {
    if (!admits(url)) throw refusal('leads to a domain that this request does not allow')
    const answer = await sendRequest(deps, turns, url, await addressesOf(deps, resolve, url, signal), signal)
    try {
      const { location } = answer.headers
      const isLast = !REDIRECTS.has(answer.statusCode) || typeof location !== 'string'
      if (isLast) return { ...(await readDocument(deps, answer, types)), url: url.href }
      if (redirects === REDIRECTS_MAX) throw refusal('redirects more than three times')
      url = checkUrl(deps, location, url)
    } finally {
      answer.close()
    }
  }
}

/** @throws PageError for a link that is refused regardless of what its name resolves to */
export function checkUrl(
  { allowHttp, allowPrivate, ports = PORTS }: LinkRules,
  link: string,
  base?: URL,
): URL {
  if (link.length > LINK_MAX_CHARS) throw refusal('is longer than 2,048 characters')
  if (!URL.canParse(link, base?.href)) throw refusal('is not a URL')
  const url = new URL(link, base)
  const isHttp = url.protocol === 'http:'
  if (!isHttp && url.protocol !== 'https:') throw refusal('does not begin with https://')
  if (isHttp && !allowHttp && !allowPrivate) throw refusal('leads to plain HTTP; only HTTPS is followed')
  if (url.username !== '' || url.password !== '') throw refusal('contains a user name or a password')
  if (!allowPrivate && !ports.has(url.port)) throw refusal('leads to a port other than 80 and 443')
  return url
}

/**
 * The addresses of a URL's host. Rejects with a PageError, the same for an unknown name and for a private address, so
 * that callers cannot distinguish the two; with a QueueTimeout; or with the reason of the signal.
 */
export async function addressesOf(
  { allowPrivate, isPublic = isPublicAddress }: LinkRules,
  resolve: ResolveName,
  url: URL,
  signal: AbortSignal,
): Promise<readonly Address[]> {
  const host = bareHost(url)
  const family = isIP(host)
  const addresses = family === 0 ? await addressesBy(resolve, host, signal) : [{ address: host, family }]
  const usable = allowPrivate || addresses.every(({ address }) => isPublic(address))
  if (addresses.length === 0 || !usable) throw refusal('does not lead to a public address')
  return addresses.slice(0, ADDRESSES_MAX)
}

/** The addresses of a name; empty if the lookup fails, for example for an unknown name. */
async function addressesBy(
  resolve: ResolveName,
  name: string,
  signal: AbortSignal,
): Promise<readonly Address[]> {
  try {
    return await resolve(name, signal)
  } catch (thrown) {
    if (thrown instanceof QueueTimeout) throw thrown
    signal.throwIfAborted()
    return []
  }
}

/** A reply whose body was not read. */
interface Answer extends PartedReply {
  /** Closes the connection. */
  close(): void
}

/** Options of undici for one request on one connection, which is never reused. Only the fetch has a deadline. */
const CLIENT_OPTIONS = {
  allowH2: false,
  pipelining: 0,
  maxHeaderSize: HEAD_MAX_BYTES,
  headersTimeout: 0,
  bodyTimeout: 0,
} as const
/** NODE_TLS_REJECT_UNAUTHORIZED has no effect. */
const TLS_OPTIONS = { allowH2: false, rejectUnauthorized: true, timeout: 0 } as const

async function sendRequest(
  deps: PageFetcherDeps,
  turns: ReadTurns,
  url: URL,
  addresses: readonly Address[],
  signal: AbortSignal,
): Promise<Answer> {
  const connect = connectorTo(deps, url, addresses, signal)
  const client = new (undici().Client)(url.origin, { ...CLIENT_OPTIONS, connect })
  const onAbort = (): void => void client.destroy().catch(() => undefined)
  try {
    const headers = { host: url.host, accept: '*/*', 'accept-encoding': 'identity', 'user-agent': 'sluice' }
    const path = `${url.pathname}${url.search}`
    const reply = await requestWithin(client, { path, method: 'GET', headers }, turns, signal)
    return { ...reply, close: onAbort }
  } catch (thrown) {
    onAbort()
    throw thrown
  }
}

/**
 * Connects only to the checked addresses, directly or through tunnels of the proxy for the address. The certificate is
 * checked against the name. The signal closes all connections, including those that are being opened.
 */
export function connectorTo(
  rules: LinkRules,
  url: URL,
  addresses: readonly Address[],
  signal: AbortSignal,
): buildConnector.connector {
  const { allowPrivate, isPublic = isPublicAddress } = rules
  const proxy = rules.proxyOf?.(url) ?? null
  const open = undici().buildConnector({
    ...TLS_OPTIONS,
    lookup: pinTo(addresses),
  } as buildConnector.BuildOptions)
  if (proxy !== null) {
    return (options, callback) => {
      tunnelTo(proxy, url, addresses, signal).then(
        tunnel => {
          closeWith(signal, tunnel)
          if (url.protocol === 'https:') open({ ...options, httpSocket: tunnel }, callback)
          else callback(null, tunnel)
        },
        (thrown: Error) => callback(thrown, null),
      )
    }
  }
  return (options, callback) => {
    const socket: unknown = open(options, callback)
    if (!(socket instanceof Socket)) return
    closeWith(signal, socket)
    socket.once('connect', () => {
      // Checks the address that the connection really has.
      if (!allowPrivate && !isPublic(socket.remoteAddress ?? '')) {
        socket.destroy(refusal('does not lead to a public address'))
      }
    })
  }
}

/** Opens a tunnel to the first address that the proxy can reach. */
async function tunnelTo(
  proxy: string,
  { protocol, port: explicitPort }: URL,
  addresses: readonly Address[],
  signal: AbortSignal,
): Promise<Socket> {
  const port = explicitPort === '' ? (protocol === 'http:' ? 80 : 443) : explicitPort
  for (const { address, family } of addresses) {
    try {
      return await throughProxy(proxy, `${family === 6 ? `[${address}]` : address}:${port}`, signal)
    } catch {
      signal.throwIfAborted()
    }
  }
  throw unreachable()
}

function closeWith(signal: AbortSignal, socket: Socket): void {
  const close = (): void => void socket.destroy()
  if (signal.aborted) close()
  else signal.addEventListener('abort', close, { once: true })
  socket.once('close', () => signal.removeEventListener('abort', close))
}

/** A lookup that returns the checked addresses, even if the name has changed since. */
function pinTo(addresses: readonly Address[]): LookupFunction {
  return (_name, { all }, callback) => {
    const [firstAddress] = addresses
    process.nextTick(() => {
      if (all === true) callback(null, [...addresses])
      else callback(null, firstAddress?.address ?? '', firstAddress?.family)
    })
  }
}

async function readDocument(
  { maxBytes }: PageFetcherDeps,
  { statusCode, headers, body }: Answer,
  types: readonly string[],
): Promise<Omit<FetchedPage, 'url'>> {
  if (statusCode !== 200)
    throw new PageError('unreachable', `the link answered with status ${statusCode}`, statusCode)
  const contentType = firstOf(headers['content-type'], '')
  const type = contentType.split(';', 1)[0]?.trim().toLowerCase() ?? ''
  if (!types.includes(type))
    throw new PageError('wrong_type', `the link does not point to a document of type ${types[0]}`)
  // The gateway asked for no compression, and the decompressed size is unknown.
  if (firstOf(headers['content-encoding'], 'identity').toLowerCase() !== 'identity')
    throw new PageError('wrong_type', 'the link answered with compressed content')
  if (Number(headers['content-length'] ?? 0) > maxBytes) throw tooLarge(maxBytes)
  const chunks: Buffer[] = []
  let length = 0
  try {
    for await (const chunk of body) {
      length += chunk.length
      if (length > maxBytes) throw tooLarge(maxBytes)
      chunks.push(chunk)
    }
  } catch (thrown) {
    throw thrown instanceof FineChunks ? refusal('answers in chunks that are too small') : thrown
  }
  const bytes = new Uint8Array(length)
  let offset = 0
  for (const chunk of chunks) {
    bytes.set(chunk, offset)
    offset += chunk.length
  }
  return { bytes, type, charset: /;\s*charset\s*=\s*"?([\w.:-]{1,40})/i.exec(contentType)?.[1] ?? null }
}

/** The first value of a repeated header. */
function firstOf(value: string | readonly string[] | undefined, fallback: string): string {
  return (typeof value === 'string' ? value : value?.[0]) ?? fallback
}

function bareHost({ hostname }: URL): string {
  return hostname.startsWith('[') ? hostname.slice(1, -1) : hostname
}

function refusal(problem: string): PageError {
  return new PageError('refused', `the link ${problem}`)
}

function unreachable(): PageError {
  return new PageError('unreachable', 'the link cannot be reached')
}

function tooLarge(maxBytes: number): PageError {
  return new PageError('too_large', `the link answered with more than ${maxBytes} bytes`)
}
