/**
 * The one way out: a request to a provider, with deadlines and back-pressure. Hot path.
 * Four verbs (start, pause, resume, abort) and four callbacks, so that the HTTP client behind it can be replaced.
 */
import { GatewayError } from '../errors.ts'

/** URL and headers are not changed once they were handed in; the same ones again cost less. */
export interface UpstreamRequest {
  /** Absolute URL; host and scheme come from configuration only. */
  readonly url: URL
  readonly headers: Readonly<Record<string, string>>
  readonly body: string
  /** Limit until the response headers, connecting included, and between two chunks of the body. */
  readonly headersTimeoutMs: number
  readonly idleTimeoutMs: number
  /** Calls with different values never share a connection; for credentials of one tenant. Absent: the common pool. */
  readonly isolation?: string | undefined
}

export interface UpstreamHead {
  readonly status: number
  /** Lower-case names; the last of repeated ones. No prototype. */
  readonly headers: Readonly<Record<string, string>>
}

/**
 * Called synchronously from the socket, never from inside `start`. A callback that throws aborts the call, and
 * what it threw comes back through `onError`; nothing more follows `onEnd` (unless it threw) or `onError`.
 */
export interface UpstreamHandler {
  onHead(head: UpstreamHead): void
  /** The bytes are only valid during the call. */
  onData(chunk: Buffer): void
  onEnd(): void
  /** Timeouts are `upstream_timeout`, everything else `provider_unavailable`. Not called after `abort()`. */
  onError(error: GatewayError): void
}

export interface UpstreamCall {
  /**
   * Holds the body back; no deadline runs meanwhile. Called outside `onData`, one more chunk may come before it takes
   * effect. When the provider closes, the end and what was already read from the socket may come while paused.
   */
  pause(): void
  /** Takes effect after the running code; `onData` is never called from inside. */
  resume(): void
  /** Closes the connection at once; no callback follows. Safe to call at any time, also twice. */
  abort(): void
}

export interface Transport {
  /** Never throws: whatever is wrong with the request comes through `onError` later. */
  start(request: UpstreamRequest, handler: UpstreamHandler): UpstreamCall
  /** Closes all connections; calls that are still running fail. */
  close(): Promise<void>
}

const LOST = 'The connection to the provider was lost'
const UNREACHABLE = 'The provider could not be reached'

/** @param sent whether the request had been written to a connection */
export function transportError(error: unknown, sent: boolean): GatewayError {
  if (error instanceof GatewayError) return error
  if (isTimedOut(error)) return timeout('The provider could not be reached in time', error)
  return unavailable(sent ? LOST : UNREACHABLE, error)
}

export function timeout(message: string, cause?: unknown): GatewayError {
  return new GatewayError('upstream_timeout', message, cause === undefined ? {} : { cause })
}

export function unavailable(message: string, cause?: unknown): GatewayError {
  return new GatewayError('provider_unavailable', message, cause === undefined ? {} : { cause })
}

function isTimedOut(error: unknown): boolean {
  return error instanceof Error && Reflect.get(error, 'code') === 'ETIMEDOUT'
}
