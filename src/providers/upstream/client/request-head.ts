/**
 * The head of a request to a provider, with the headers of every request (`User-Agent`, `Accept-Encoding`). Names and
 * values are checked, so that no key and no configuration row can change the framing or the host. The results are
 * cached with the URL and the headers, because most requests reuse those of earlier requests. Pure.
 */
import type { GatewayError } from '../../../base/errors.ts'
import { type UpstreamRequest, unavailable } from '../transport.ts'

const HEADER_NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/
const HEADER_VALUE = /^[\x20-\x7e]*$/

/** Headers that only the transport may set: framing, hop-by-hop and host, and encodings that it cannot read. */
export const RESERVED_HEADERS: ReadonlySet<string> = new Set([
  'host',
  'connection',
  'content-length',
  'transfer-encoding',
  'upgrade',
  'expect',
  'keep-alive',
  'te',
  'trailer',
  'accept-encoding',
  'proxy-authorization',
  'proxy-connection',
])

/** The part of a URL that appears in the request line. */
interface Target {
  readonly path: string
  /** The request line after its method, and the headers that belong to it, with their line ends. */
  readonly lines: string
}

/** Checked header names and values: as pairs in one list, and as lines with their ends. */
interface Headers {
  readonly list: readonly string[]
  readonly lines: string
}

export class RequestHeads {
  readonly #userAgent: string
  readonly #targets = new WeakMap<URL, Target>()
  readonly #headers = new WeakMap<UpstreamRequest['headers'], Headers>()

  constructor(userAgent: string) {
    this.#userAgent = userAgent
  }

  /**
   * The whole request as written in HTTP/1.1.
   * @throws GatewayError `provider_unavailable` if the provider's row leads to a request that cannot be sent
   */
  request({ method, url, headers, body }: UpstreamRequest): string {
    const { lines } = this.#headers.get(headers) ?? this.#newHeaders(headers)
    const head = `${(this.#targets.get(url) ?? this.#newTarget(url)).lines}${lines}`
    if (method !== undefined) return `${method} ${head}\r\n`
    return `POST ${head}content-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`
  }

  /**
   * Path with query, and the headers as a list of names and values, without those for framing.
   * @throws GatewayError `provider_unavailable`, like `request`
   */
  parts({ url, headers }: UpstreamRequest): { readonly path: string; readonly headers: readonly string[] } {
    const target = this.#targets.get(url) ?? this.#newTarget(url)
    return { path: target.path, headers: (this.#headers.get(headers) ?? this.#newHeaders(headers)).list }
  }

  #newTarget(url: URL): Target {
    const target = makeTarget(url)
    this.#targets.set(url, target)
    return target
  }

  #newHeaders(ownHeaders: UpstreamRequest['headers']): Headers {
    const headers = makeHeaders(ownHeaders, this.#userAgent)
    this.#headers.set(ownHeaders, headers)
    return headers
  }
}

function makeTarget(url: URL): Target {
  if (url.protocol !== 'https:' && url.protocol !== 'http:') {
    throw unavailable('The provider is configured with a baseUrl that is not HTTP or HTTPS')
  }
  const path = `${url.pathname}${url.search}`
  return { path, lines: `${path} HTTP/1.1\r\nhost: ${url.host}\r\nconnection: keep-alive\r\n` }
}

/**
 * `headers` may replace `content-type` and `user-agent`.
 * @throws GatewayError `provider_unavailable`, without echoing the header's value.
 */
function makeHeaders(headers: UpstreamRequest['headers'], userAgent: string): Headers {
  const merged = new Map([
    ['accept-encoding', 'identity'],
    ['content-type', 'application/json'],
    ['user-agent', userAgent],
  ])
  for (const [name, value] of Object.entries(headers)) {
    const lowerName = name.toLowerCase()
    if (!HEADER_NAME.test(name) || RESERVED_HEADERS.has(lowerName)) throw invalidHeader()
    if (typeof value !== 'string' || !HEADER_VALUE.test(value)) throw invalidHeader()
    merged.set(lowerName, value)
  }
  let lines = ''
  for (const [name, value] of merged) lines += `${name}: ${value}\r\n`
  return { list: [...merged].flat(), lines }
}

function invalidHeader(): GatewayError {
  return unavailable(
    'The provider is configured with a header that cannot be sent (headers in its row under providers)',
  )
}
