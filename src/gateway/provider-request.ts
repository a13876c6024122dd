/**
 * The request of one attempt to its provider, and the secrets in it. Serve threads. Hot path: URLs and headers of
 * shared keys are made once for each endpoint, so that the client can keep with them what it derives from them.
 */
import { GatewayError } from '../errors.ts'
import type { Format, WireRequest } from '../formats/format.ts'
import { outgoingRequest } from '../formats/outgoing.ts'
import type { ResponsesRequest } from '../protocol/request.ts'
import { type Endpoint, ownKeyScheme } from '../providers/provider.ts'
import { authHeaders } from '../upstream/auth.ts'
import type { UpstreamRequest } from '../upstream/transport.ts'
import type { AttemptRecord, Exchange } from './exchange.ts'
import { requestJson } from './request-json.ts'
import { fitRequest } from './routing/rank.ts'

export interface ProviderRequestDeps {
  readonly timeouts: { readonly upstreamHeadersMs: number; readonly upstreamIdleMs: number }
  /** Keyed hash under which a provider may know the end user. */
  readonly hashEndUser: (organizationId: string, user: string) => string
}

/** Makes the requests to providers. One per thread. */
export class ProviderRequests {
  readonly #deps: ProviderRequestDeps
  /** Headers with the shared key, by endpoint. */
  readonly #headers = new WeakMap<Endpoint, UpstreamRequest['headers']>()
  /** By endpoint and path, of which each format has two at most. */
  readonly #urls = new WeakMap<Endpoint, Map<string, URL>>()

  constructor(deps: ProviderRequestDeps) {
    this.#deps = deps
  }

  /** The request in the provider's format. */
  encode(
    exchange: Exchange,
    { endpoint }: AttemptRecord,
    format: Format,
    prompt: ResponsesRequest,
  ): WireRequest {
    return format.encode(
      {
        request: outgoingRequest(fitRequest(prompt, endpoint), format, exchange.dialect),
        stream: exchange.request.stream === true,
        endUser: this.endUserOf(exchange),
      },
      endpoint,
    )
  }

  /** The name under which providers may know the end user; null where the caller names none. */
  endUserOf({ request, caller }: Exchange): string | null {
    const user = request.safety_identifier ?? request.user ?? null
    return user === null ? null : this.#deps.hashEndUser(caller.organizationId, user)
  }

  /**
   * @param heldBytes memory that the exchange holds
   * @throws GatewayError `provider_unavailable` if the provider has no address or no usable key.
   */
  address(attempt: AttemptRecord, { path, headers, body }: WireRequest, heldBytes: number): UpstreamRequest {
    const { endpoint, credential } = attempt
    const usual = this.#headersOf(attempt)
    return {
      url: this.#urlOf(endpoint, path),
      headers: headers === undefined ? usual : { ...usual, ...headers },
      body: requestJson(body, heldBytes),
      headersTimeoutMs: this.#deps.timeouts.upstreamHeadersMs,
      idleTimeoutMs: this.#deps.timeouts.upstreamIdleMs,
      isolation: credential?.id,
      egress: endpoint.provider.egress,
    }
  }

  #headersOf(attempt: AttemptRecord): UpstreamRequest['headers'] {
    const { endpoint, credential } = attempt
    const known = credential === null ? this.#headers.get(endpoint) : undefined
    if (known !== undefined) return known
    const headers = { ...endpoint.provider.headers, ...keyHeaders(attempt) }
    if (credential === null) this.#headers.set(endpoint, headers)
    return headers
  }

  #urlOf(endpoint: Endpoint, path: string): URL {
    const known = this.#urls.get(endpoint) ?? new Map<string, URL>()
    let url = known.get(path)
    if (url === undefined) {
      url = parseUrl(endpoint, path)
      this.#urls.set(endpoint, known.set(path, url))
    }
    return url
  }
}

/** Every part of the key that was sent: none of them may reach a caller. */
export function secretsOf({ endpoint, ownKey }: AttemptRecord): readonly string[] {
  if (ownKey !== null) return ownKey.secrets
  return endpoint.provider.apiKey === null ? [] : [endpoint.provider.apiKey]
}

/** The owner of the key that was sent, in words for the caller. */
export function keyOwner({ credential }: AttemptRecord): string {
  return credential === null
    ? "the gateway's key"
    : `the workspace's own key ${credential.name ?? credential.label}`
}

/** An attempt with an own credential must never leave with the shared key. */
function keyHeaders({ credential, ownKey, endpoint }: AttemptRecord): Record<string, string> {
  if (credential === null) return authHeaders(endpoint.provider.auth, endpoint.provider.apiKey)
  return authHeaders(ownKeyScheme(endpoint), ownKey?.text ?? null)
}

function parseUrl(endpoint: Endpoint, path: string): URL {
  const { baseUrl, name } = endpoint.provider
  if (baseUrl === null) {
    throw new GatewayError('provider_unavailable', `No base URL is configured for provider ${name}`)
  }
  return new URL(baseUrl + path)
}
