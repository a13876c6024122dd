/** What one try sends to its provider, and what of it must not be told again. Serve threads. */
import { GatewayError } from '../errors.ts'
import type { Format, WireRequest } from '../formats/format.ts'
import { outgoingRequest } from '../formats/outgoing.ts'
import type { ResponsesRequest } from '../protocol/request.ts'
import { type Endpoint, ownKeyScheme } from '../providers/provider.ts'
import { authHeaders } from '../upstream/auth.ts'
import type { UpstreamRequest } from '../upstream/transport.ts'
import type { AttemptRecord, Exchange } from './exchange.ts'
import { fitRequest } from './routing/rank.ts'

export interface ProviderRequestDeps {
  readonly timeouts: { readonly upstreamHeadersMs: number; readonly upstreamIdleMs: number }
  /** Keyed hash under which a provider may know the end user. */
  readonly hashEndUser: (organizationId: string, user: string) => string
}

/** The request in the provider's words. */
export function wireRequest(
  deps: ProviderRequestDeps,
  exchange: Exchange,
  { endpoint }: AttemptRecord,
  format: Format,
  prompt: ResponsesRequest,
): WireRequest {
  const user = exchange.request.safety_identifier ?? exchange.request.user ?? null
  return format.encode(
    {
      request: outgoingRequest(fitRequest(prompt, endpoint), format, exchange.dialect),
      stream: exchange.request.stream === true,
      endUser: user === null ? null : deps.hashEndUser(exchange.caller.organizationId, user),
    },
    endpoint,
  )
}

/** @throws GatewayError when the operator has not said where the provider is */
export function upstreamRequest(
  { timeouts }: ProviderRequestDeps,
  attempt: AttemptRecord,
  wire: WireRequest,
): UpstreamRequest {
  const { endpoint, credential } = attempt
  return {
    url: endpointUrl(endpoint, wire.path),
    headers:
      wire.headers === undefined ? usualHeaders(attempt) : { ...usualHeaders(attempt), ...wire.headers },
    body: JSON.stringify(wire.body),
    headersTimeoutMs: timeouts.upstreamHeadersMs,
    idleTimeoutMs: timeouts.upstreamIdleMs,
    isolation: credential?.id,
  }
}

/** Texts of the key that was sent, in all its parts: none may come back to a caller. */
export function secretsOf({ endpoint, ownKey }: AttemptRecord): readonly string[] {
  if (ownKey !== null) return ownKey.secrets
  return endpoint.provider.apiKey === null ? [] : [endpoint.provider.apiKey]
}

/** With the shared key, by endpoint. */
const sharedHeaders = new WeakMap<Endpoint, UpstreamRequest['headers']>()

/** Made once where the key is shared, so that the client can keep with them what it works out of them. */
function usualHeaders(attempt: AttemptRecord): UpstreamRequest['headers'] {
  const { endpoint, credential } = attempt
  const known = credential === null ? sharedHeaders.get(endpoint) : undefined
  if (known !== undefined) return known
  const headers = { ...endpoint.provider.headers, ...keyHeaders(attempt) }
  if (credential === null) sharedHeaders.set(endpoint, headers)
  return headers
}

/** An own attempt without its key must not go out with the shared one. */
function keyHeaders({ credential, ownKey, endpoint }: AttemptRecord): Record<string, string> {
  if (credential === null) return authHeaders(endpoint.provider.auth, endpoint.provider.apiKey)
  return authHeaders(ownKeyScheme(endpoint), ownKey?.text ?? null)
}

/** By endpoint and path, of which each format has two at most. */
const urls = new WeakMap<Endpoint, Map<string, URL>>()

function endpointUrl(endpoint: Endpoint, path: string): URL {
  const known = urls.get(endpoint) ?? new Map<string, URL>()
  let url = known.get(path)
  if (url === undefined) {
    url = parsedUrl(endpoint, path)
    urls.set(endpoint, known.set(path, url))
  }
  return url
}

function parsedUrl(endpoint: Endpoint, path: string): URL {
  const { baseUrl, name } = endpoint.provider
  if (baseUrl === null) {
    throw new GatewayError('provider_unavailable', `No base URL is configured for provider ${name}`)
  }
  return new URL(baseUrl + path)
}
