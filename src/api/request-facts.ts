/**
 * Reads a request's body and the settings outside it, on any transport: headers about the client (`HTTP-Referer`,
 * `X-Title`, agent and session ids), and the data region of the host.
 */
import { callerOf } from '../callers/keys.ts'
import type { FailureDetails } from '../dialects/dialect.ts'
import type { ClientFacts, ClientRequest } from '../exchange/exchange.ts'
import { keptName } from '../pipeline/accounting/client-fields.ts'
import type { Outcome } from '../pipeline/answer/sink.ts'
import { DATA_REGIONS } from '../protocol/data-regions.ts'
import type { DialectName, ResponsesRequest } from '../protocol/request.ts'
import type { ApiRequest, Reply } from './operation.ts'
import { CACHE_HEADER, cacheWish, lossesOf } from './response-cache.ts'

/** Our header, its legacy name, and the name in similar interfaces. The first one counts. */
const METADATA_HEADERS = ['x-gateway-metadata', 'x-gateway-experimental-metadata', 'x-openrouter-metadata']

export function failureDetails(
  call: ClientRequest,
  outcome: Extract<Outcome, { answered: false }>,
): FailureDetails {
  return {
    id: call.context.id,
    metadata: call.withMetadata ? outcome.metadata : null,
    usage: outcome.charged?.usage ?? null,
    request: call.request,
  }
}

/** The pipeline's call for a request with a parsed body. */
export function callOf<Name extends DialectName, Parsed extends ResponsesRequest>(
  { inOwnNames, name }: { readonly name: Name; readonly inOwnNames?: ClientRequest['inOwnNames'] },
  request: ApiRequest,
  reply: Reply,
  dataRegionOf: DataRegionOf,
  parsed: Parsed,
): ClientRequest & { readonly dialect: Name; readonly request: Parsed } {
  const { context, headers } = request
  const cacheHeader = headers.get(CACHE_HEADER)
  const cache = cacheHeader === undefined ? undefined : cacheWish(cacheHeader)
  return {
    context,
    caller: callerOf(request.key),
    dialect: name,
    request: parsed,
    withMetadata: wantsMetadata(headers),
    dataRegion: dataRegionOf(request.host),
    client: clientOf(headers, request.body),
    cache,
    losses: cache === undefined ? request.losses : lossesOf(cache, parsed, request.losses),
    rates: reply,
    inOwnNames,
  }
}

/** Clients describe themselves in these fields, because over a WebSocket all requests share the handshake's headers. */
interface ClientMetadataBody {
  readonly client_metadata?: Readonly<Record<string, unknown>> | null
}

function metadataText(body: unknown, name: string): string | undefined {
  const metadata = (body as ClientMetadataBody).client_metadata
  const value = typeof metadata === 'object' ? metadata?.[name] : undefined
  return typeof value === 'string' && value !== '' ? value : undefined
}

/** Calls no function for the usual client, which names no agent. */
function clientOf(headers: ApiRequest['headers'], body: unknown): ClientFacts | undefined {
  const referer = headers.get('http-referer') ?? headers.get('referer')
  const userAgent = headers.get('user-agent')
  // Our header, and the headers of similar interfaces. The first one counts.
  const title = headers.get('x-gateway-title') ?? headers.get('x-openrouter-title') ?? headers.get('x-title')
  let agent = headers.get('x-agent-id') ?? headers.get('x-claude-code-agent-id') ?? headers.get('thread-id')
  let parentAgent = headers.get('x-claude-code-parent-agent-id') ?? headers.get('x-codex-parent-thread-id')
  if ((body as ClientMetadataBody | null | undefined)?.client_metadata != null) {
    agent = metadataText(body, 'thread_id') ?? agent
    parentAgent = metadataText(body, 'x-codex-parent-thread-id') ?? parentAgent
  }
  if (referer === undefined && userAgent === undefined && title === undefined) {
    if (agent === undefined && parentAgent === undefined) return undefined
  }
  return { referer, title, userAgent, agent, parentAgent }
}

/**
 * Parses the body, with the session that headers name if the body names none. If the request is refused, here or later,
 * its log line contains at least the model.
 */
export function parseBody<Parsed>(
  dialect: { parse(body: unknown, headers: ApiRequest['headers']): Parsed },
  request: ApiRequest,
  reply: Reply,
  body = request.body,
): Parsed {
  const { headers } = request
  const { model, models } = (body ?? {}) as Readonly<Record<string, unknown>>
  const firstModel = model ?? (Array.isArray(models) ? models[0] : undefined)
  reply.requestedModel = typeof firstModel === 'string' ? firstModel : undefined
  let session = headers.get('x-session-id')
  if (session === undefined || session === '') {
    session = headers.get('x-claude-code-session-id') ?? headers.get('session-id')
    if ((body as ClientMetadataBody | null | undefined)?.client_metadata != null) {
      session = metadataText(body, 'session_id') ?? session
    }
    // Invalid values from vendors' clients are ignored instead of refused.
    if (session !== undefined) session = keptName(session)
  }
  const bodyWithSession = session === undefined ? body : withSession(body, session)
  return dialect.parse(bodyWithSession, headers)
}

/** Puts the session from the header into a body without one, so that the same rules check it. */
function withSession(body: unknown, session: string): unknown {
  if (typeof body !== 'object' || body === null) return body
  if (Array.isArray(body) || (body as { session_id?: unknown }).session_id != null) return body
  return { ...body, session_id: session }
}

/** True if a header requests `gateway_metadata`. */
export function wantsMetadata(headers: ReadonlyMap<string, string>): boolean {
  for (const name of METADATA_HEADERS) {
    const value = headers.get(name)
    if (value !== undefined) return value.toLowerCase() === 'enabled'
  }
  return false
}

type Region = NonNullable<ClientRequest['dataRegion']>

/** Hosts of the regions. A name without a port matches every port. */
type RegionHosts = Readonly<Record<Region, readonly string[]>>

/** Finds the region of a Host header; null: data may go anywhere. */
export type DataRegionOf = (host: string) => Region | null

/** Only configured names count, as exact matches. Any other host is global. */
export function createDataRegions(hosts: RegionHosts): DataRegionOf {
  const regions = new Map<string, Region>()
  for (const region of DATA_REGIONS) {
    for (const host of hosts[region]) regions.set(nameOf(host), region)
  }
  if (regions.size === 0) return () => null
  return host => {
    const name = nameOf(host)
    return regions.get(name) ?? regions.get(name.replace(/:\d{1,5}$/, '')) ?? null
  }
}

/** Host names ignore case, and may end in a dot. */
function nameOf(host: string): string {
  return host.toLowerCase().replace(/\.(?=$|:\d{1,5}$)/, '')
}
