/**
 * The transport contract: a request to a provider, with deadlines and back-pressure. It has four verbs (start, pause,
 * resume, abort) and four callbacks, so that the HTTP client behind it can be replaced. Also the limits that every
 * transport enforces, and the errors that it reports. Hot path.
 */
import type { Clock } from '../../base/clock.ts'
import { GatewayError, isError, systemCode } from '../../base/errors.ts'
import type { Log } from '../../base/log/log.ts'
import type { Egress } from '../../protocol/provider.ts'

/** Do not change URL and headers after the call. Reusing the same objects makes later requests cheaper. */
export interface UpstreamRequest {
  /** Absent: POST. GET and DELETE have no body. */
  readonly method?: 'GET' | 'DELETE' | undefined
  /** Absolute URL. Host and scheme come only from the configuration. */
  readonly url: URL
  readonly headers: Readonly<Record<string, string>>
  /** Empty if there is none. */
  readonly body: string
  /** Time limit until the response headers, including connecting. */
  readonly headersTimeoutMs: number
  /** Time limit between two chunks of the body. */
  readonly idleTimeoutMs: number
  /** Calls with different values never share a connection: for credentials of one tenant. Absent: the shared pool. */
  readonly isolation?: string | undefined
  /**
   * Proxy, transport and TLS of the request, from the provider's row. Absent: directly, unless the environment names a
   * proxy.
   */
  readonly egress?: Egress | undefined
}

export interface UpstreamHead {
  readonly status: number
  /** Lower-case names; a repeated header has its last value. No prototype. */
  readonly headers: Readonly<Record<string, string>>
}

/**
 * Callbacks of one call, called synchronously from the socket and never from inside `start`. A callback that throws
 * aborts the call and gets its error through `onError`. `onError` is the last callback; so is `onEnd`, unless it throws.
 * `readMs`: monotonic milliseconds of the read that is being processed, the same for everything in one read; absent:
 * now.
 */
export interface UpstreamHandler {
  onHead(head: UpstreamHead, readMs?: number): void
  /**
   * The bytes are valid only during the call or, with `isLast`, until `onEnd` has returned, which follows immediately.
   */
  onData(chunk: Buffer, isLast?: boolean, readMs?: number): void
  onEnd(readMs?: number): void
  /**
   * Timeouts are `upstream_timeout`, all other failures of the provider or the network `provider_unavailable`. Not
   * called after `abort()`.
   */
  onError(error: GatewayError): void
}

/** A running call. */
export interface UpstreamCall {
  /**
   * Stops reading the body; no deadline runs meanwhile. If called outside `onData`, one more chunk may arrive. If the
   * provider closes the connection, bytes that were already read and the end may arrive while paused.
   */
  pause(): void
  /** Takes effect after the running code; never calls `onData` itself. */
  resume(): void
  /** Closes the connection immediately; no callback follows. May be called at any time, even twice. */
  abort(): void
}

/** Sends requests to providers. */
export interface Transport {
  /**
   * Never throws: `onError` reports every fault of the request later.
   * @param nowMs monotonic; absent: the transport reads the clock
   */
  start(request: UpstreamRequest, handler: UpstreamHandler, nowMs?: number): UpstreamCall
  /** Closes all connections; running calls fail. */
  close(): Promise<void>
}

/** Options of a transport; `DEFAULT_LIMITS` has the defaults. */
export interface TransportOptions {
  readonly clock: Clock
  /** Logs the error of a handler whose `onError` throws. */
  readonly log: Pick<Log, 'fault'>
  /** Time limit for getting a connection: queueing, name lookup, TCP, proxy and TLS together. */
  readonly connectTimeoutMs?: number
  readonly keepAliveMs?: number
  /**
   * A connection older than this carries no further call, so that the gateway notices if a provider's address has
   * changed.
   */
  readonly maxAgeMs?: number
  /** Maximum number of connections per origin and isolation; further calls wait for one. */
  readonly maxConnections?: number
  readonly maxHeaderBytes?: number
  /** Limit for the body of one reply, streamed or not. */
  readonly maxResponseBytes?: number
  /** Maximum number of pools, one per origin and isolation. */
  readonly maxPools?: number
  readonly userAgent?: string
  /** Called when a request is sent again because the kept connection was closed as it arrived. */
  readonly onReplay?: () => void
}

export const DEFAULT_LIMITS = {
  connectTimeoutMs: 10_000,
  // Servers commonly close after 5 s. Closing first avoids writing to a connection that is about to close.
  keepAliveMs: 4_000,
  // DNS entries of providers commonly live for a minute; a few times that keeps handshakes rare.
  maxAgeMs: 300_000,
  // As many as a thread has requests by default, so no call waits unless the operator wants it.
  maxConnections: 10_000,
  // The limit of Node's own client.
  maxHeaderBytes: 16 * 1024,
  maxResponseBytes: 64 * 1024 * 1024,
  maxPools: 1024,
  userAgent: 'sluice',
} as const

const LOST_MESSAGE = 'The connection to the provider was lost'
const UNREACHABLE_MESSAGE = 'The provider could not be reached'

/**
 * The reason that no reply, or only a part of one, arrived: `error.metadata.reason`. Callers learn nothing about the
 * network behind it.
 */
export type TransportReason =
  | 'connection_refused'
  | 'connection_lost'
  | 'dns_failure'
  | 'network_unreachable'
  | 'proxy_failure'
  | 'timeout'
  | 'tls_failure'

/** Keyed by codes of Node, of its resolver and of undici. TLS codes are recognized by their form. */
const REASON_OF_CODE: ReadonlyMap<string, TransportReason> = new Map([
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
 * Converts a connection error. Its text may name hosts, addresses and bytes of the provider, so only `cause` keeps it.
 * @param isSent true if the request was written to a connection
 */
export function transportError(error: unknown, isSent: boolean): GatewayError {
  if (error instanceof GatewayError) return error
  const code = systemCode(error)
  const reason =
    REASON_OF_CODE.get(code ?? '') ??
    (TLS_CODE.test(code ?? '') ? 'tls_failure' : undefined) ??
    'connection_lost'
  return reason === 'timeout'
    ? new GatewayError('upstream_timeout', 'The provider could not be reached in time', {
        metadata: { reason },
        cause: error,
      })
    : unavailable(isSent ? LOST_MESSAGE : UNREACHABLE_MESSAGE, error, reason)
}

/** The phase in which a call timed out. */
export type TimeoutKind = 'CONNECT_TIMEOUT' | 'HEADERS_TIMEOUT' | 'IDLE_TIMEOUT'

const TIMEOUT_MESSAGES: Readonly<Record<TimeoutKind, string>> = {
  CONNECT_TIMEOUT: 'The provider could not be reached in time',
  HEADERS_TIMEOUT: 'The provider did not answer in time',
  IDLE_TIMEOUT: 'The provider stopped sending',
}

/** A failure `upstream_timeout`; the code of its cause is the phase. */
export function timeoutError(phase: TimeoutKind): GatewayError {
  const metadata = { reason: 'timeout' satisfies TransportReason }
  const cause = Object.assign(new Error(TIMEOUT_MESSAGES[phase]), { code: phase })
  return new GatewayError('upstream_timeout', TIMEOUT_MESSAGES[phase], { metadata, cause })
}

/** For each reason, whether a connection was open, so that the provider may have got the request. */
const WAS_CONNECTED: Readonly<Record<TransportReason, boolean>> = {
  connection_refused: false,
  connection_lost: true,
  dns_failure: false,
  network_unreachable: false,
  proxy_failure: false,
  // Its cause names the phase.
  timeout: true,
  tls_failure: false,
}

/** True if the call failed before a connection was open, so that nothing was sent. */
export function isUnconnected({ metadata, cause }: GatewayError): boolean {
  if (isError(cause) && Reflect.get(cause, 'code') === ('CONNECT_TIMEOUT' satisfies TimeoutKind)) return true
  const reason = metadata?.['reason']
  return typeof reason === 'string' && WAS_CONNECTED[reason as TransportReason] === false
}

/** A failure `provider_unavailable`. */
export function unavailable(message: string, cause?: unknown, reason?: TransportReason): GatewayError {
  return new GatewayError('provider_unavailable', message, {
    ...(reason === undefined ? undefined : { metadata: { reason } }),
    ...(cause === undefined ? undefined : { cause }),
  })
}
