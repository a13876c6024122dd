/** What a handler gets and what a route is. Types only. */
import type { Stopwatch } from '../metrics/stages.ts'
import type { KeyNeed } from '../server/authenticate.ts'
import type { Reply } from '../server/reply.ts'
import type { KeyRecord } from '../storage/store.ts'

/** A request that passed the gate, with its key accepted and its body parsed. */
export interface HttpRequest {
  /** Names the request in logs; of inference requests also the generation id. */
  readonly id: string
  /** By lower-case name; repeated ones joined by a comma. */
  readonly headers: ReadonlyMap<string, string>
  /** As the Host header has it, port included. */
  readonly host: string
  /** Values of the `{names}` of the path template, decoded. */
  readonly params: ReadonlyMap<string, string>
  readonly query: URLSearchParams
  /** Parsed JSON; undefined when the method takes no body. */
  readonly body: unknown
  readonly key: KeyRecord
  /** When the request passed what; see stages.ts. */
  readonly watch: Stopwatch
  /** Fires when the client has gone or the total deadline has passed; its reason is a GatewayError. */
  readonly signal: AbortSignal
}

/** Must answer through the reply before it ends; a GatewayError thrown before that is answered with its envelope. */
export type Handler = (request: HttpRequest, reply: Reply) => void | Promise<void>

export type Method = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'

export interface Route {
  readonly method: Method
  /** Relative to the base path, with `{name}` for a segment that varies, e.g. `/models/{author}/{slug}/endpoints`. */
  readonly path: string
  /**
   * The parameter at the end of the path whose value may be any text, encoded separators included; absent
   * everywhere else. See docs/decisions/0008-any-text-in-a-path.md.
   */
  readonly freeParam?: string
  /** Largest body, in bytes; 0 for methods without one. */
  readonly bodyLimitBytes: number
  readonly key: KeyNeed
  readonly handler: Handler
}
