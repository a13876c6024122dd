/**
 * The header block of an outgoing request, from an allow-list of shapes: what we send is ours, and nothing that a
 * key or a configuration row holds can bend the framing, change the host or throw inside the HTTP client. Pure.
 */
import { GatewayError } from '../errors.ts'

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

/**
 * Names and values in turns. `content-type` and `user-agent` may be replaced by the caller.
 * @throws GatewayError `provider_unavailable`, without echoing the header's value.
 */
export function requestHeaders(headers: Readonly<Record<string, string>>, userAgent: string): string[] {
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
  return [...all].flat()
}

function refused(): GatewayError {
  return new GatewayError(
    'provider_unavailable',
    'The provider is configured with a header that cannot be sent',
  )
}
