/**
 * The head of an outgoing request, from an allow-list of shapes: what we send is ours, and nothing that a key or a
 * configuration row holds can bend the framing or change the host.
 */
import type { GatewayError } from '../errors.ts'
import type { UpstreamRequest } from './transport.ts'
import { unavailable } from './transport-error.ts'

const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/
const VALUE = /^[\x20-\x7e]*$/

/** Framing, hop-by-hop and host headers belong to the client underneath; an encoded reply could not be read. */
const OURS = new Set([
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

/** Writes requests. What a URL and headers come to is kept with them: most requests bring those of earlier ones. */
export class RequestHeads {
  readonly #userAgent: string
  readonly #targets = new WeakMap<URL, string>()
  readonly #lines = new WeakMap<UpstreamRequest['headers'], string>()

  constructor(userAgent: string) {
    this.#userAgent = userAgent
  }

  /** @throws GatewayError `provider_unavailable` when the provider's row makes a request that cannot be sent */
  request({ url, headers, body }: UpstreamRequest): string {
    const target = keptIn(this.#targets, url, targetLines)
    const lines = keptIn(this.#lines, headers, all => requestHeaders(all, this.#userAgent))
    return `${target}${lines}content-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`
  }
}

function keptIn<Key extends object>(
  kept: WeakMap<Key, string>,
  key: Key,
  make: (key: Key) => string,
): string {
  let text = kept.get(key)
  if (text === undefined) {
    text = make(key)
    kept.set(key, text)
  }
  return text
}

function targetLines(url: URL): string {
  if (url.protocol !== 'https:' && url.protocol !== 'http:') {
    throw unavailable('The provider is configured with a URL that is not HTTP')
  }
  return `POST ${url.pathname}${url.search} HTTP/1.1\r\nhost: ${url.host}\r\nconnection: keep-alive\r\n`
}

/**
 * Lines, each with its end. `content-type` and `user-agent` may be replaced by the caller.
 * @throws GatewayError `provider_unavailable`, without echoing the header's value.
 */
function requestHeaders(headers: Readonly<Record<string, string>>, userAgent: string): string {
  const all = new Map([
    ['accept-encoding', 'identity'],
    ['content-type', 'application/json'],
    ['user-agent', userAgent],
  ])
  for (const [name, value] of Object.entries(headers)) {
    const lower = name.toLowerCase()
    if (!TOKEN.test(name) || OURS.has(lower)) throw refused()
    if (typeof value !== 'string' || !VALUE.test(value)) throw refused()
    all.set(lower, value)
  }
  let lines = ''
  for (const [name, value] of all) lines += `${name}: ${value}\r\n`
  return lines
}

function refused(): GatewayError {
  return unavailable('The provider is configured with a header that cannot be sent')
}
