/**
 * The contract Transport: a request to a provider, with deadlines and back-pressure. Four verbs (start, pause, resume,
 * abort) and four callbacks, so that the HTTP client behind it can be replaced. Also the errors that every transport
 * reports. Hot path.
 */
import { GatewayError, systemCode } from '../errors.ts'

/** Do not change URL and headers after the call. Reusing the same objects makes later requests cheaper. */
export interface UpstreamRequest {
  /** Absolute URL. Host and scheme come only from the configuration. */
  readonly url: URL
  readonly headers: Readonly<Record<string, string>>
  readonly body: string
  /** Limit until the response headers, connecting included. */
  readonly headersTimeoutMs: number
  /** Limit between two chunks of the body. */
  readonly idleTimeoutMs: number
  /** Calls with different values never share a connection: for credentials of one tenant. Absent: the common pool. */
  readonly isolation?: string | undefined
}

export interface UpstreamHead {
  readonly status: number
  /** Lower-case names; a repeated header has its last value. No prototype. */
  readonly headers: Readonly<Record<string, string>>
}

/**
 * Callbacks of one call, called synchronously from the socket and never from inside `start`. A callback that throws
 * aborts the call and gets its error through `onError`. Nothing follows `onError`, nor `onEnd` unless that threw.
 */
export interface UpstreamHandler {
  onHead(head: UpstreamHead): void
  /** The bytes are only valid during the call. */
  onData(chunk: Buffer): void
  onEnd(): void
  /** Timeouts are `upstream_timeout`, all other failures `provider_unavailable`. Not called after `abort()`. */
  onError(error: GatewayError): void
}

/** A running call. */
export interface UpstreamCall {
  /**
   * Holds the body back; no deadline runs meanwhile. If called outside `onData`, one more chunk may come. If the
   * provider closes the connection, bytes that were already read and the end may come while paused.
   */
  pause(): void
  /** Takes effect after the running code; never calls `onData` itself. */
  resume(): void
  /** Closes the connection at once; no callback follows. May be called at any time, also twice. */
  abort(): void
}

/** Sends requests to providers. */
export interface Transport {
  /** Never throws: `onError` reports every fault of the request later. */
  start(request: UpstreamRequest, handler: UpstreamHandler): UpstreamCall
  /** Closes all connections; running calls fail. */
  close(): Promise<void>
}

const LOST = 'The connection to the provider was lost'
const UNREACHABLE = 'The provider could not be reached'

/** Why a provider gave no reply: `error.metadata.reason`. Callers learn nothing of the network behind it. */
export type TransportReason =
  | 'connection_refused'
  | 'connection_lost'
  | 'dns_failure'
  | 'network_unreachable'
  | 'proxy_failure'
  | 'timeout'
  | 'tls_failure'

/** By codes of Node, of its resolver and of undici. Codes of TLS are told by their form. */
const REASONS: ReadonlyMap<string, TransportReason> = new Map([
  ['ECONNREFUSED', 'connection_refused'],
  ['ENOTFOUND', 'dns_failure'],
  ['EAI_AGAIN', 'dns_failure'],
  ['EAI_FAIL', 'dns_failure'],
  ['EAI_NODATA', 'dns_failure'],
  ['EAI_NONAME', 'dns_failure'],
  ['EHOSTUNREACH', 'network_unreachable'],
  ['ENETUNREACH', 'network_unreachable'],
  ['EHOSTDOWN', 'network_unreachable'],
  ['ENETDOWN', 'network_unreachable'],
  ['EADDRNOTAVAIL', 'network_unreachable'],
  ['EACCES', 'network_unreachable'],
  ['ETIMEDOUT', 'timeout'],
  ['UND_ERR_CONNECT_TIMEOUT', 'timeout'],
  ['UND_ERR_HEADERS_TIMEOUT', 'timeout'],
  ['UND_ERR_BODY_TIMEOUT', 'timeout'],
  ['UND_ERR_PRX_TLS', 'proxy_failure'],
  ['EPROTO', 'tls_failure'],
])
const TLS_CODE =
  /^(?:ERR_TLS_|ERR_SSL_|CERT_|CRL_|UNABLE_TO_|DEPTH_ZERO_|SELF_SIGNED_|HOSTNAME_MISMATCH|INVALID_CA|INVALID_PURPOSE|PATH_LENGTH_EXCEEDED)/

/**
 * Converts an error of the connection. Its text may name hosts, addresses and bytes of the provider, so only `cause`
 * keeps it.
 * @param sent true if the request was written to a connection
 */
export function transportError(error: unknown, sent: boolean): GatewayError {
  if (error instanceof GatewayError) return error
  const code = systemCode(error)
  const reason =
    REASONS.get(code ?? '') ?? (TLS_CODE.test(code ?? '') ? 'tls_failure' : undefined) ?? 'connection_lost'
  return reason === 'timeout'
    ? new GatewayError('upstream_timeout', 'The provider could not be reached in time', {
        metadata: { reason },
        cause: error,
      })
    : unavailable(sent ? LOST : UNREACHABLE, error, reason)
}

/** What a call waited for in vain. */
export type WaitedFor = 'CONNECT_TIMEOUT' | 'HEADERS_TIMEOUT' | 'IDLE_TIMEOUT'

const LATE: Readonly<Record<WaitedFor, string>> = {
  CONNECT_TIMEOUT: 'The provider could not be reached in time',
  HEADERS_TIMEOUT: 'The provider did not answer in time',
  IDLE_TIMEOUT: 'The provider stopped sending',
}

/** A failure `upstream_timeout`; its cause has the phase as its code. */
export function timeout(phase: WaitedFor): GatewayError {
  const metadata = { reason: 'timeout' satisfies TransportReason }
  const cause = Object.assign(new Error(LATE[phase]), { code: phase })
  return new GatewayError('upstream_timeout', LATE[phase], { metadata, cause })
}

/** A failure `provider_unavailable`. */
export function unavailable(message: string, cause?: unknown, reason?: TransportReason): GatewayError {
  return new GatewayError('provider_unavailable', message, {
    ...(reason === undefined ? undefined : { metadata: { reason } }),
    ...(cause === undefined ? undefined : { cause }),
  })
}
