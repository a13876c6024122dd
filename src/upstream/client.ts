/**
 * The one way out: a request to a provider, with deadlines and back-pressure. Hot path.
 * Four verbs (start, pause, resume, abort) and four callbacks, so that the HTTP client behind it can be replaced.
 */
import type { GatewayError } from '../errors.ts'

export interface UpstreamRequest {
  /** Absolute URL; host and scheme come from configuration only. */
  readonly url: URL
  readonly headers: Readonly<Record<string, string>>
  readonly body: string
  /** Limit until the response headers, and between two chunks of the body. */
  readonly headersTimeoutMs: number
  readonly idleTimeoutMs: number
}

export interface UpstreamHead {
  readonly status: number
  /** Lower-case names; the last of repeated ones. */
  readonly headers: Readonly<Record<string, string>>
}

/** Called synchronously from the socket. After `onEnd` or `onError` (exactly one of them) nothing more comes. */
export interface UpstreamHandler {
  onHead(head: UpstreamHead): void
  /** The bytes are only valid during the call. */
  onData(chunk: Buffer): void
  onEnd(): void
  /** Timeouts are `upstream_timeout`, everything else `provider_unavailable`. Not called after `abort()`. */
  onError(error: GatewayError): void
}

export interface UpstreamCall {
  pause(): void
  resume(): void
  /** Closes the connection at once; no callback follows. Safe to call at any time, also twice. */
  abort(): void
}

export interface UpstreamClient {
  start(request: UpstreamRequest, handler: UpstreamHandler): UpstreamCall
  /** Closes all connections. */
  close(): Promise<void>
}
