/**
 * The request of one attempt to its provider, and the secrets in it. Serve threads. Hot path: URLs and headers of
 * shared keys are created once per endpoint, so that the HTTP client can cache what it derives from them.
 */

import { GatewayError } from '../../base/errors.ts'
import { filled, type Json, texts } from '../../base/json.ts'
import { holdsSecret } from '../../base/scrub.ts'
import type { AttemptRecord, Exchange } from '../../exchange/exchange.ts'
import { EAGER_BETA, isEager } from '../../formats/anthropic-messages/clouds.ts'
import type { Change, Format, WireRequest } from '../../formats/format.ts'
import { lostMarks } from '../../formats/marks/cache-marks.ts'
import { leftOutFields, outgoingRequest } from '../../formats/outgoing.ts'
import { FOREIGN_THOUGHT } from '../../formats/replayed.ts'
import { changedSettings, NO_SUCH_FIELD, SETTINGS, unsentStops } from '../../formats/sent-settings.ts'
import { DIALECT_ABILITIES } from '../../protocol/dialect-abilities.ts'
import { AS_WRITTEN, MARKED_OBJECTS, type MaybeWritten, writtenJson } from '../../protocol/json/as-written.ts'
import { RAW_MIN_MEMORY_BYTES, takeList } from '../../protocol/json/raw-list.ts'
import {
  type Endpoint,
  type OutgoingKey,
  ownKeyScheme,
  type PromptCaching,
  type Provider,
} from '../../protocol/provider.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import { hasSealedContent, openItems } from '../../protocol/sealed-content.ts'
import { baseUrlFor, fillPlaceholders } from '../../providers/address.ts'
import type { Credential } from '../../providers/credentials/catalog.ts'
import { API_OF_FORMAT } from '../../providers/format-apis.ts'
import { fitRequest } from '../../providers/parameters.ts'
import { authHeaders } from '../../providers/upstream/auth.ts'
import { signatureIn } from '../../providers/upstream/aws-signature.ts'
import type { UpstreamRequest } from '../../providers/upstream/transport.ts'
import { LARGE_REQUEST_BYTES, requestJson, withRawList } from '../request-json.ts'
import { makerOf } from '../routing/candidate.ts'
import { type FittedRequest, fittedChanges } from '../tool-calls/client-tools.ts'

/** The keys of attempts: own keys, and shared keys that cannot be sent as they are in their provider's row. */
export interface ProviderKeys {
  ownKey(credential: Credential, endpoint: Endpoint): OutgoingKey | Promise<OutgoingKey>
  sharedKey(endpoint: Endpoint): OutgoingKey | null | Promise<OutgoingKey | null>
}

interface ProviderRequestDeps {
  readonly timeouts: { readonly upstreamHeadersMs: number; readonly upstreamIdleMs: number }
  /** Keyed hash by which a provider may identify the end user. */
  readonly hashEndUser: (organizationId: string, user: string) => string
  /** For providers whose row does not set it. Absent: off. */
  readonly promptCaching?: PromptCaching
  /** Keyed hash instead of a `prompt_cache_key`, which may contain any text. */
  readonly hashCacheKey: (organizationId: string, cacheKey: string) => string
}

/** The headers of a format: the same object for all requests, unless a request needs headers of its own. */
type FormatHeaders = NonNullable<WireRequest['headers']>

const NO_HEADERS: FormatHeaders = {}

/** Creates the requests to providers. One instance per thread. */
export class ProviderRequests {
  readonly #deps: ProviderRequestDeps
  /** Headers with the shared key, by endpoint and by the format's own headers. */
  readonly #headers = new WeakMap<Endpoint, WeakMap<FormatHeaders, UpstreamRequest['headers']>>()
  /** Keyed by endpoint and path; each format has at most two paths. */
  readonly #urls = new WeakMap<Endpoint, Map<string, URL>>()

  constructor(deps: ProviderRequestDeps) {
    this.#deps = deps
  }

  /** The request in the provider's format. Notes on the attempt what the request loses on the way. */
  encode(
    exchange: Exchange,
    attempt: AttemptRecord,
    format: Format,
    prompt: ResponsesRequest,
    fitted: FittedRequest | null = null,
  ): WireRequest {
    const endpoint = attempt.providerKey === null ? attempt.endpoint : deployedEndpoint(attempt)
    const openedPrompt = typeof prompt.input === 'string' ? prompt : withoutForeignSeals(prompt, attempt)
    const supportedRequest =
      endpoint.supportedParameters === null ? openedPrompt : fitRequest(openedPrompt, endpoint)
    const isUsualTier = endpoint.serviceTier === undefined && supportedRequest.service_tier == null
    const tieredRequest = isUsualTier ? supportedRequest : inTier(supportedRequest, attempt)
    const outgoing = outgoingRequest(tieredRequest, format, exchange.dialect)
    const { safety_identifier, user } = exchange.request
    const isNamed = (safety_identifier ?? user) != null
    const markedBefore = MARKED_OBJECTS.count
    const wire = format.encode(
      {
        request:
          outgoing.prompt_cache_key == null
            ? outgoing
            : this.#withHashedCacheKey(outgoing, exchange, attempt),
        stream: exchange.request.stream === true,
        endUser: isNamed ? this.endUserOf(exchange) : null,
        isOwnApi: format.dialect === exchange.dialect,
        isOwnAccount: attempt.credential !== null,
        mayMark:
          (endpoint.promptCaching ?? endpoint.provider.promptCaching ?? this.#deps.promptCaching) === 'auto',
        ...(exchange.prefix === null ? undefined : { isSeen: exchange.prefix.isSeen }),
        ...(DIALECT_ABILITIES[exchange.dialect].nativeFields ? { betas: betasOf(prompt) } : undefined),
      },
      endpoint,
    )
    const reportsAllChanges = exchange.withMetadata || exchange.request.provider?.require_parameters === true
    let isChanged = prompt !== outgoing || wire.changes !== undefined || reportsAllChanges
    if (exchange.clientRequest.losses !== undefined || fitted !== null) isChanged = true
    if (openedPrompt !== prompt) isChanged = true
    if (prompt.stop != null) {
      const stops = unsentStops(format.name, prompt, wire.body)
      if (stops.length > 0) attempt.stops = stops
      isChanged = true
    }
    if (outgoing.reasoning != null || outgoing.text != null) isChanged = true
    if (outgoing.parallel_tool_calls === false) isChanged = true
    const settings = SETTINGS[format.name]
    for (let index = 0; index < settings.length && !isChanged; index++) {
      const { name, outer, inner } = settings[index] as (typeof settings)[number]
      const value = outgoing[name]
      if (value == null) continue
      const sentValue = outer === null ? undefined : wire.body[outer]
      isChanged = (inner === null ? sentValue : (sentValue as Json | undefined)?.[inner]) !== value
    }
    if (isChanged) {
      const lostReasoning = openedPrompt === prompt ? NO_CHANGES : lostThoughts(prompt, openedPrompt)
      noteChanges(exchange, attempt, prompt, {
        outgoing,
        wire,
        format,
        reportsAllChanges,
        fitted,
        lostReasoning,
      })
    }
    if (MARKED_OBJECTS.count !== markedBefore || (exchange.request as MaybeWritten)[AS_WRITTEN] === true)
      return { ...wire, isWritten: true }
    if (exchange.held.bytes < RAW_MIN_MEMORY_BYTES) return wire
    const raw = takeList(exchange.request, wire.body)
    return raw === null ? wire : { ...wire, raw }
  }

  /** The account of a BYOK credential belongs to the caller, so the key may be sent there unhashed. */
  #withHashedCacheKey(
    request: ResponsesRequest,
    { caller }: Exchange,
    { credential }: AttemptRecord,
  ): ResponsesRequest {
    const key = request.prompt_cache_key
    if (key == null || credential !== null) return request
    return { ...request, prompt_cache_key: this.#deps.hashCacheKey(caller.organizationId, key) }
  }

  /** The name by which providers may identify the end user; null if the caller names none. */
  endUserOf({ request, caller }: Exchange): string | null {
    const user = request.safety_identifier ?? request.user ?? null
    return user === null ? null : this.#deps.hashEndUser(caller.organizationId, user)
  }

  /**
   * The request to send; a promise only if it has to be signed.
   * @param heldBytes memory that the exchange holds
   * @param parent the `traceparent` header; undefined: none
   * @param state the `tracestate` header beside it, for rows that propagate it; null or undefined: none
   * @throws (or rejects with) GatewayError `provider_unavailable` if the provider has no address or no usable key.
   */
  address(
    attempt: AttemptRecord,
    wire: WireRequest,
    heldBytes: number,
    parent?: string,
    state?: string | null,
  ): UpstreamRequest | Promise<UpstreamRequest> {
    const { path, headers = NO_HEADERS, body, raw } = wire
    const { endpoint, credential } = attempt
    const baseHeaders = this.#headersOf(attempt, headers)
    const withTrace = parent === undefined ? baseHeaders : { ...baseHeaders, traceparent: parent }
    const takesState = parent !== undefined && state != null && endpoint.provider.propagateTrace === true
    const isLarge = heldBytes >= LARGE_REQUEST_BYTES
    let json = ''
    if (wire.isWritten === true && !isLarge) json = writtenJson(body)
    else if (raw == null) json = isLarge ? requestJson(body, heldBytes) : JSON.stringify(body)
    const request: UpstreamRequest = {
      url: this.#urlOf(attempt, path),
      headers: takesState ? { ...withTrace, tracestate: state } : withTrace,
      body: raw == null ? json : withRawList(body, raw),
      headersTimeoutMs: this.#deps.timeouts.upstreamHeadersMs,
      idleTimeoutMs: this.#deps.timeouts.upstreamIdleMs,
      isolation: credential?.id,
      egress: endpoint.provider.egress,
    }
    if (attempt.span !== undefined) {
      const { url } = request
      attempt.span.host = url.hostname
      attempt.span.port = Number(url.port) || (url.protocol === 'https:' ? 443 : 80)
    }
    const key = attempt.providerKey
    return key?.sign === undefined ? request : signRequest(attempt, key, key.sign, request)
  }

  #headersOf(attempt: AttemptRecord, ofFormat: FormatHeaders): UpstreamRequest['headers'] {
    const { endpoint, credential, providerKey } = attempt
    const isUsual = credential === null && providerKey === null
    const cachedHeaders = isUsual ? this.#headers.get(endpoint)?.get(ofFormat) : undefined
    if (cachedHeaders !== undefined) return cachedHeaders
    const headers = { ...endpoint.provider.headers, ...keyHeaders(attempt), ...ofFormat }
    if (isUsual) {
      const headersByFormat =
        this.#headers.get(endpoint) ?? new WeakMap<FormatHeaders, UpstreamRequest['headers']>()
      this.#headers.set(endpoint, headersByFormat.set(ofFormat, headers))
    }
    return headers
  }

  #urlOf({ endpoint, providerKey }: AttemptRecord, path: string): URL {
    if (providerKey?.callUrl !== undefined) return deploymentUrl(providerKey.callUrl, path, endpoint)
    if (providerKey?.baseUrl !== undefined) return new URL(providerKey.baseUrl + path)
    const urlsByPath = this.#urls.get(endpoint) ?? new Map<string, URL>()
    let url = urlsByPath.get(path)
    if (url === undefined) {
      url = parseUrl(endpoint, path)
      this.#urls.set(endpoint, urlsByPath.set(path, url))
    }
    return url
  }
}

/** The URL of a call to a deployment: its address, and the part of the path that follows the usual one. */
function deploymentUrl(address: string, path: string, { format }: Endpoint): URL {
  const url = new URL(address)
  const usualPath = API_OF_FORMAT[format].deploymentPath
  if (usualPath !== null && path.startsWith(`${usualPath}/`)) url.pathname += path.slice(usualPath.length)
  return url
}

interface Sending {
  readonly outgoing: ResponsesRequest
  readonly wire: WireRequest
  readonly format: Format
  /** True: marks are counted too, for which the whole body is read. */
  readonly reportsAllChanges: boolean
  readonly fitted: FittedRequest | null
  /** The loss of reasoning that only another provider can read. */
  readonly lostReasoning: readonly Change[]
}

/** True if the caller wants no provider for which its request would lose anything. */
export function requiresAll({ provider }: Pick<ResponsesRequest, 'provider'>): boolean {
  return provider?.require_parameters === true
}

/** Notes the fields that the request loses, or has changed, for this provider. */
function noteChanges(
  { clientRequest }: Exchange,
  attempt: AttemptRecord,
  prompt: ResponsesRequest,
  { outgoing, wire, format, reportsAllChanges, fitted, lostReasoning }: Sending,
): void {
  const dropped = (field: string): Change => ({ field, action: 'dropped', reason: NO_SUCH_FIELD })
  const changes: Change[] = [
    ...leftOutFields(prompt, outgoing)
      .filter(name => name !== 'stop')
      .map(dropped),
    ...(attempt.stops === undefined ? [] : [STOPS_ADDED]),
    ...changedSettings(format.name, outgoing, wire.body),
    ...(reportsAllChanges ? lostMarks(prompt, wire.body) : []).map(
      (field): Change => ({
        field,
        action: field === 'cache_control' ? 'dropped' : 'changed',
        reason: 'the provider accepts fewer or shorter cache marks',
      }),
    ),
    ...lostReasoning,
    ...(fitted === null ? (wire.changes ?? []) : fittedChanges(fitted, wire.changes ?? [])).filter(
      ({ field }) => !lostReasoning.some(change => change.field === field),
    ),
    ...(clientRequest.losses ?? []),
  ]
  if (changes.length > 0) attempt.changes = changes
}

const STOPS_ADDED: Change = {
  field: 'stop',
  action: 'added',
  reason: 'the gateway looks for the stop sequences that the provider does not accept',
}

const NO_CHANGES: readonly Change[] = []
/** More are not reported, because a conversation may have thousands of items. */
const MAX_LOST_THOUGHTS = 100

/** Reasoning that lost what only another provider can read. */
function lostThoughts(prompt: ResponsesRequest, openedPrompt: ResponsesRequest): readonly Change[] {
  const [before, after] = [prompt.input, openedPrompt.input]
  if (typeof before === 'string' || typeof after === 'string') return NO_CHANGES
  const changes: Change[] = []
  for (const [index, item] of before.entries()) {
    if (changes.length === MAX_LOST_THOUGHTS) break
    if (item.type !== 'reasoning' || item === after[index]) continue
    const openedItem = after[index] as typeof item
    if (isSealed(item) && !isSealed(openedItem))
      changes.push({ field: `input[${index}]`, action: 'dropped', reason: FOREIGN_THOUGHT })
  }
  return changes
}

function isSealed(item: { readonly signature?: unknown; readonly encrypted_content?: unknown }): boolean {
  return filled(item.signature) !== null || filled(item.encrypted_content) !== null
}

/** The prompt as this provider may see it: without data sealed by others. */
function withoutForeignSeals(prompt: ResponsesRequest, attempt: AttemptRecord): ResponsesRequest {
  const { input } = prompt
  if (typeof input === 'string' || !hasSealedContent(input)) return prompt
  return { ...prompt, input: [...openItems(input, makerOf(attempt))] }
}

function betasOf(request: ResponsesRequest): readonly string[] {
  const { betas, tools } = request as {
    readonly betas?: unknown
    readonly tools?: readonly NativeTool[] | null
  }
  const isEagerly = tools?.some(({ native }) => native != null && isEager(native)) === true
  return isEagerly ? [...texts(betas), EAGER_BETA] : texts(betas)
}

/** A tool with fields of the client's own API. */
interface NativeTool {
  readonly native?: object | null
}

/**
 * The request in the service tier of the endpoint, whose prices are charged. If the row has no tiers, the caller may
 * choose one only if the provider bills the caller.
 */
function inTier(request: ResponsesRequest, { endpoint, credential }: AttemptRecord): ResponsesRequest {
  const requestedTier = request.service_tier
  const tier = endpoint.serviceTier
  if (tier !== undefined) return requestedTier === tier ? request : { ...request, service_tier: tier }
  if (requestedTier == null || credential !== null) return request
  const { service_tier: _tier, ...otherFields } = request
  return otherFields
}

/** The endpoint, with the model name that the key's deployment uses. */
export function deployedEndpoint({ endpoint, providerKey }: AttemptRecord): Endpoint {
  const upstreamModel = providerKey?.upstreamModel
  return upstreamModel === undefined ? endpoint : { ...endpoint, upstreamModel }
}

/** Every part of the key that was sent; none of them may reach a caller. */
export function secretsOf({ endpoint: { provider }, providerKey }: AttemptRecord): readonly string[] {
  if (providerKey !== null) return providerKey.secrets
  let secrets = sharedSecrets.get(provider)
  if (secrets === undefined) {
    secrets = provider.apiKey === null ? [] : [provider.apiKey]
    sharedSecrets.set(provider, secrets)
  }
  return secrets
}

/** One list for each provider, because a known list is searched for faster. */
const sharedSecrets = new WeakMap<Provider, readonly string[]>()

/** Returns a provider-chosen name that we keep or show; null if it repeats the provider's key. */
export function harmlessName(name: string | null, attempt: AttemptRecord): string | null {
  return name === null || holdsSecret(name, secretsOf(attempt)) ? null : name
}

/** Describes the owner of the key that was sent, in words for the caller. */
export function keyOwner({ credential }: Pick<AttemptRecord, 'credential'>): string {
  return credential === null
    ? "the gateway's key"
    : `the workspace's own key ${credential.name ?? credential.label}`
}

/** An attempt with a BYOK credential must never be sent with the shared key. */
function keyHeaders({ credential, providerKey, endpoint }: AttemptRecord): Record<string, string> {
  const { auth, apiKey } = endpoint.provider
  if (providerKey === null) {
    return credential === null ? authHeaders(auth, apiKey) : authHeaders(ownKeyScheme(endpoint), null)
  }
  const { sign, scheme, text, headers } = providerKey
  if (sign !== undefined) return { ...headers }
  const usualScheme = credential === null ? auth : ownKeyScheme(endpoint)
  return { ...headers, ...authHeaders(scheme ?? usualScheme, text) }
}

/** Adds the headers of a signature, and keeps the signature out of replies. */
async function signRequest(
  attempt: AttemptRecord,
  key: OutgoingKey,
  sign: NonNullable<OutgoingKey['sign']>,
  request: UpstreamRequest,
): Promise<UpstreamRequest> {
  const { url, headers, body } = request
  const signedHeaders = await sign({ method: 'POST', url, headers, body })
  attempt.providerKey = { ...key, secrets: [...key.secrets, ...signatureIn(signedHeaders)] }
  return { ...request, headers: { ...headers, ...signedHeaders } }
}

function parseUrl(endpoint: Endpoint, path: string): URL {
  const { provider, format } = endpoint
  const baseUrl = baseUrlFor(provider, format)
  if (baseUrl === null) {
    throw new GatewayError(
      'provider_unavailable',
      `No base URL is configured for provider ${provider.name} (baseUrl in its row under providers)`,
    )
  }
  // If the key does not fill the gaps in the address, the values of the row are used.
  const { region } = provider
  return new URL(fillPlaceholders(baseUrl, region === undefined ? {} : { region }, provider) + path)
}
