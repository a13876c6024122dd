/**
 * Calls to a batch service with one key: JSON documents, uploads, and replies in JSON Lines. Failures are scrubbed like
 * those of live requests. Batch threads; serve threads when they delete data that a provider stores.
 */
import type { Clock } from '../../base/clock.ts'
import { GatewayError } from '../../base/errors.ts'
import { type Json, parseJson, record } from '../../base/json.ts'
import type { Log } from '../../base/log/log.ts'
import type { Format } from '../../formats/format.ts'
import { excessOf, type JsonBounds } from '../../protocol/json/json.ts'
import { LOGPROBS_MAX_COMMAS, LOGPROBS_MAX_PARTS, REPLY_MAX_DEPTH } from '../../protocol/limits.ts'
import type { Provider } from '../../protocol/provider.ts'
import { placeholdersOf } from '../../providers/address.ts'
import { failureInReply, upstreamFailure } from '../../providers/upstream/error-reply.ts'
import { jsonLines, RefusedLines } from '../../providers/upstream/json-lines.ts'
import type { Transport, TransportReason, UpstreamRequest } from '../../providers/upstream/transport.ts'
import { type WholeReply, wholeReply } from '../../providers/upstream/whole-reply.ts'

/** The key with which a service is called. */
export interface ServiceKey {
  /** The authentication headers. */
  readonly headers: Readonly<Record<string, string>>
  /** The address that the key belongs to; null if none is configured. */
  readonly baseUrl: string | null
  /** Id of the caller's own credential; null: the shared key. */
  readonly credentialId: string | null
  readonly secrets: readonly string[]
  /** Its owner, in words for error messages. */
  readonly owner: string
}

export interface ServiceCallsDeps {
  readonly client: Transport
  readonly provider: Provider
  readonly format: Pick<Format, 'failure'>
  readonly key: ServiceKey
  readonly clock: Clock
  readonly log: Pick<Log, 'notice'>
  readonly timeouts: { readonly upstreamHeadersMs: number; readonly upstreamIdleMs: number }
  readonly signal: AbortSignal
}

type CallHeaders = Readonly<Record<string, string>>

/** The path of a call, relative to the provider's base URL. */
interface CallTarget {
  readonly path: string
  /** Prefix before the path of the base URL, for services with several roots. */
  readonly root?: string
  readonly query?: Readonly<Record<string, string>>
}

/** A list of a hundred jobs has a few hundred kilobytes. */
const DOCUMENT_MAX_BYTES = 8 * 1024 * 1024
/** As large as a live reply with images may be, plus what the service writes around it. */
const LINE_MAX_BYTES = 65 * 1024 * 1024
/** A page is in memory at once, and its lines are decoded together. */
const PAGE_MAX_LINES = 64
const PAGE_MAX_BYTES = 4 * 1024 * 1024
/** Limit for all lines of one reply: jobs have a few megabytes, and few of them are collected at the same time. */
const LINES_TIMEOUT_MS = 1_800_000
const DOCUMENT_BOUNDS: JsonBounds = {
  depth: REPLY_MAX_DEPTH,
  parts: LOGPROBS_MAX_PARTS,
  commas: LOGPROBS_MAX_COMMAS,
}

export class ServiceCalls {
  readonly #deps: ServiceCallsDeps

  constructor(deps: ServiceCallsDeps) {
    this.#deps = deps
  }

  /** The error from a reply, without secrets and with the name of its provider. */
  errorForClient(error: GatewayError): GatewayError {
    const { provider, key } = this.#deps
    return failureInReply(error, { secrets: key.secrets, providerName: provider.name })
  }

  get(target: CallTarget, headers: CallHeaders = {}): Promise<Json> {
    return this.#document(this.#request(target, '', headers, 'GET'))
  }

  post(target: CallTarget, body: Json | null, headers: CallHeaders = {}): Promise<Json> {
    return this.#document(this.#request(target, body === null ? '' : JSON.stringify(body), headers))
  }

  /** Sends a text unchanged. */
  upload(target: CallTarget, contentType: string, body: string, headers: CallHeaders = {}): Promise<Json> {
    return this.#document(this.#request(target, body, { 'content-type': contentType, ...headers }))
  }

  /** Deletes an object. Also resolves if it no longer exists. */
  async remove(target: CallTarget, headers: CallHeaders = {}): Promise<void> {
    const reply = await this.#ask(this.#request(target, '', headers, 'DELETE'))
    if (reply.status !== 404) this.#refuse(reply)
  }

  /**
   * The objects of a reply in JSON Lines, page by page. Invalid or too large lines are skipped. A reply without an end
   * is `upstream_timeout`.
   */
  async *lines(target: CallTarget, headers: CallHeaders = {}): AsyncGenerator<readonly Json[], void, void> {
    const { client, signal, log, provider, clock } = this.#deps
    const deadline = new AbortController()
    const timer = clock.after(LINES_TIMEOUT_MS, () => deadline.abort(endlessReplyError(provider)))
    let skipped = 0
    const pages = jsonLines(client, this.#request(target, '', headers, 'GET'), {
      maxLineBytes: LINE_MAX_BYTES,
      pageLines: PAGE_MAX_LINES,
      pageBytes: PAGE_MAX_BYTES,
      accepts: line => excessOf(line, DOCUMENT_BOUNDS) === null,
      signal: AbortSignal.any([signal, deadline.signal]),
      onSkipped: () => void skipped++,
    })
    try {
      for await (const page of pages) {
        const objects = page.map(line => record(parseJson(line)))
        const valid = objects.filter(object => object !== null)
        skipped += objects.length - valid.length
        if (valid.length > 0) yield valid
      }
    } catch (thrown) {
      throw thrown instanceof RefusedLines ? this.#failure(thrown.reply) : thrown
    } finally {
      timer.cancel()
      if (skipped > 0) {
        log.notice('batches', 'provider batch service sent unreadable result lines; they were skipped', {
          provider: provider.slug,
          skipped,
        })
      }
    }
  }

  async #document(request: UpstreamRequest): Promise<Json> {
    const reply = await this.#ask(request)
    this.#refuse(reply)
    const document =
      excessOf(Buffer.from(reply.text), DOCUMENT_BOUNDS) === null ? record(parseJson(reply.text)) : null
    if (document === null) throw invalidReplyError(this.#deps.provider)
    return document
  }

  #ask(request: UpstreamRequest): Promise<WholeReply> {
    const { client, signal } = this.#deps
    return wholeReply(client, request, { maxBytes: DOCUMENT_MAX_BYTES, signal })
  }

  /** @throws GatewayError unless the call succeeded */
  #refuse(reply: WholeReply): void {
    if (reply.status < 200 || reply.status > 299) throw this.#failure(reply)
  }

  #failure({ status, headers, text }: WholeReply): GatewayError {
    const { provider, format, key, clock } = this.#deps
    return upstreamFailure({
      format,
      status,
      headers,
      body: text,
      secrets: key.secrets,
      providerName: provider.name,
      keyOwner: key.owner,
      clock,
    })
  }

  #request(
    { path, root = '', query = {} }: CallTarget,
    body: string,
    headers: CallHeaders,
    method?: 'GET' | 'DELETE',
  ): UpstreamRequest {
    const { provider, key, timeouts } = this.#deps
    if (key.baseUrl === null || placeholdersOf(key.baseUrl).length > 0) {
      throw new GatewayError(
        'provider_unavailable',
        `No base URL is configured for provider ${provider.name} (baseUrl in its row under providers)`,
      )
    }
    const url = new URL(key.baseUrl)
    url.pathname = `${root}${url.pathname === '/' ? '' : url.pathname}${path}`
    for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value)
    return {
      method,
      url,
      headers: { ...provider.headers, ...key.headers, ...headers },
      body,
      headersTimeoutMs: timeouts.upstreamHeadersMs,
      idleTimeoutMs: timeouts.upstreamIdleMs,
      isolation: key.credentialId ?? undefined,
      egress: provider.egress,
    }
  }
}

function invalidReplyError({ name }: Pick<Provider, 'name'>): GatewayError {
  return new GatewayError('provider_unavailable', 'The batch service sent a reply that cannot be parsed', {
    metadata: { provider_name: name },
  })
}

function endlessReplyError({ name }: Pick<Provider, 'name'>): GatewayError {
  return new GatewayError('upstream_timeout', 'The batch service sent an endless list of results', {
    metadata: { provider_name: name },
  })
}

/** Statuses of permanent refusals: of the request, the key, or the requested object. */
const PERMANENT_REFUSALS: ReadonlySet<unknown> = new Set([400, 401, 402, 403, 404, 405, 413, 422])

/** True if the same call would always fail. */
export function isLasting(error: GatewayError): boolean {
  return PERMANENT_REFUSALS.has(error.metadata?.['provider_status'])
}

/** Reasons for which a request cannot have reached the service. */
const UNSENT_REASONS: ReadonlySet<unknown> = new Set<TransportReason>([
  'connection_refused',
  'dns_failure',
  'network_unreachable',
])

/** True if the service cannot have read the request. */
export function isUnsent(error: GatewayError): boolean {
  return UNSENT_REASONS.has(error.metadata?.['reason'])
}

/** Id of a job or a file. Longer or other text is not put into a path. */
const ID = /^[A-Za-z0-9_-]{1,128}$/

/** @throws GatewayError if the value cannot be a part of a path */
export function idOf(value: unknown): string {
  if (typeof value === 'string' && ID.test(value)) return value
  throw new GatewayError('provider_unavailable', 'The batch service sent an invalid id')
}
