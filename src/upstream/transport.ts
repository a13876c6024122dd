/**
 * The contract Transport: a request to a provider, with deadlines and back-pressure. Four verbs (start, pause, resume,
 * abort) and four callbacks, so that the HTTP client behind it can be replaced. Also the errors that every transport
 * reports. Hot path.
 */
import { GatewayError } from '../errors.ts'

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

/**
 * Converts an error of the connection. Its text may name hosts, addresses and bytes of the provider, so only `cause`
 * keeps it.
 * @param sent true if the request was written to a connection
 */
export function transportError(error: unknown, sent: boolean): GatewayError {
  if (error instanceof GatewayError) return error
  if (isTimedOut(error)) return timeout('The provider could not be reached in time', error)
  return unavailable(sent ? LOST : UNREACHABLE, error)
}

/** A failure `upstream_timeout`. */
export function timeout(message: string, cause?: unknown): GatewayError {
  return new GatewayError('upstream_timeout', message, cause === undefined ? {} : { cause })
}

/** A failure `provider_unavailable`. */
export function unavailable(message: string, cause?: unknown): GatewayError {
  return new GatewayError('provider_unavailable', message, cause === undefined ? {} : { cause })
}

function isTimedOut(error: unknown): boolean {
  return error instanceof Error && Reflect.get(error, 'code') === 'ETIMEDOUT'
}
