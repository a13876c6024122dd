/**
 * The contract of operations: the request that a handler gets, the reply that it writes, and the row of the table. The
 * server implements `Reply` and `RawBody`; handlers know no transport. Types only.
 */

import type { GatewayError } from '../base/errors.ts'
import type { Dialect, FailureDetails } from '../dialects/dialect.ts'
import type { RequestContext } from '../exchange/exchange.ts'
import type { ExchangeSummary } from '../pipeline/answer/sink.ts'
import type { KeyRecord, KeyRole } from '../protocol/management/keys.ts'
import type { RateSink } from '../protocol/rate-headers.ts'

/** The facts of a request that its handler sees, from accept to log line. */
export interface ApiContext extends RequestContext {
  /** Address of the client's connection. */
  readonly address: string
  /** From here on the signal does not fire when the client goes: `onLeft` is called instead. */
  outlive(onLeft: () => void): void
  /** Ends the work on the request for this reason; the first reason counts. */
  abort(reason: GatewayError): void
  /**
   * Call it once the end user is known, before any work: null, or a promise while the API key has all its requests
   * open. Rejects, or throws, when this one may not wait (longer).
   */
  waitForPlace(fields: EndUserFields): Promise<void> | null
}

/** A request that passed the gate, with its key accepted. `Body` follows from the row's `accept`. */
export interface ApiRequest<Body = unknown, Key = KeyRecord> {
  readonly context: ApiContext
  /** By lower-case name; repeated ones joined by a comma. */
  readonly headers: ReadonlyMap<string, string>
  /** As the Host header has it, port included. */
  readonly host: string
  /** Values of the `{names}` of the path template, decoded. */
  readonly params: ReadonlyMap<string, string>
  readonly query: URLSearchParams
  /** Parsed JSON; a `RawBody` where the row accepts raw bodies; undefined when the method takes no body. */
  readonly body: Body
  /** SHA-256 of the body as it arrived, in hex; null: no header asks for a proof, or there is no whole body. */
  readonly bodyDigest: string | null
  /** Null where the row asks for no key. */
  readonly key: Key
}

/** The fields by which a request names its end user; the first one counts. */
export interface EndUserFields {
  readonly safety_identifier?: string | null | undefined
  readonly user?: string | undefined
}

/** A body that is handed over as it arrives, so that it never has to fit into memory. */
export interface RawBody {
  /** Bytes announced; null when the body is chunked. */
  readonly contentLength: number | null
  /**
   * Reads the body to its end, once. Resolves after the last chunk was taken.
   * @throws GatewayError `payload_too_large`, `deadline_exceeded` or the reason of the abort; or what the reader throws
   */
  read(reader: BodyReader): Promise<void>
}

/** Takes the chunks of a body. `at`: where the chunk is in the body, in bytes. */
export interface BodyReader {
  /** The chunk is the reader's until the promise resolves; while it is pending the client is held back. */
  write(chunk: Uint8Array, at: number): Promise<void>
  /**
   * Takes a chunk before it returns, perhaps while earlier ones are pending: the client sends faster than it can be
   * held back.
   */
  writeNow(chunk: Uint8Array, at: number): void
}

/** Known facts to report beside an error. */
export type FailureContext = Pick<FailureDetails, 'metadata' | 'usage' | 'request'>

/** Chunks of a stream that are made one after the other. */
export interface MoreChunks {
  /** Bytes of memory that they hold until they are made. */
  readonly bytes: number
  /** Null: there is none. */
  next(): string | null
}

/** The answer to one request: one document, or a stream. Does nothing once the client has gone. */
export interface Reply extends RateSink {
  /** The log line's fields beyond the status; set by handlers that know them. */
  summary: ExchangeSummary | undefined
  /** The model that the body names, for the log line of a request that ends without a summary. */
  requestedModel: string | undefined
  /** The failure that was reported to the client, in the envelope or within the stream. */
  error: GatewayError | null
  /** Status that was sent; 0 before. */
  readonly status: number
  /** The status line has left. */
  readonly started: boolean
  /** The answer is complete. */
  readonly ended: boolean
  /** Adds a header to the answer. @throws Error when the name is not a token: names are ours, never foreign. */
  header(name: string, value: string): void
  /** Answers with one JSON document. */
  json(status: number, document: unknown): void
  /** Answers 200 with a document that is written already. Default content type: JSON. */
  written(bytes: string | Buffer, contentType?: string): void
  /** Answers 304: the client has the document. */
  notModified(): void
  /** Answers with the error envelope of the operation's dialect. */
  failure(error: GatewayError, context?: FailureContext): void
  /**
   * Begins a stream with its first bytes. Default content type: an event stream; blank lines may then follow each
   * chunk, so chunks of one must end where a frame ends. False: the reader is slow.
   */
  openStream(chunk: string | Buffer, contentType?: string): boolean
  /** Begins an event stream that comes in slices: a chunk of it may end within a frame. */
  openSlices(): boolean
  /**
   * Sends more of the stream; bytes are copied. `endsFrame`: of a stream in slices, that this one ends with a frame.
   * False: the reader is slow, but the chunk was taken.
   */
  writeStream(chunk: string | Buffer, endsFrame?: boolean): boolean
  /**
   * Sends the last bytes of the stream. `more` has what follows them, made chunk by chunk as the reader takes them.
   */
  endStream(chunk: string | Buffer, more?: MoreChunks): void
  /**
   * Sets what to call when a slow reader has taken something: with true when writing may go on, with false when more
   * is waiting. One callback; a later call replaces it. `hasDeadline`: the caller aborts if a reader takes nothing for
   * long; otherwise the server does, after some 10 s.
   */
  onProgress(callback: (drained: boolean) => void, hasDeadline?: boolean): void
  /** Drops the connection: what began cannot be completed. */
  abort(): void
}

/** Must answer through the reply before it ends; a GatewayError thrown before that is answered with its envelope. */
export type Handler = (request: ApiRequest, reply: Reply) => void | Promise<void>
/** Handler of a body that is read as it arrives. */
export type RawHandler = (request: ApiRequest<RawBody>, reply: Reply) => void | Promise<void>
/** Handler of requests without a key. */
export type OpenHandler = (request: ApiRequest<undefined, null>, reply: Reply) => void | Promise<void>

export type Method = 'GET' | 'HEAD' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'

/** Kind of key that an operation asks for. `any`: both kinds; `none`: the Authorization header is not looked at. */
type KeyNeed = 'none' | 'inference' | 'management' | 'any'

/** Times of an operation with very large bodies or answers. */
export interface OperationTimes {
  /** From the head of a request to the last byte of its body. */
  readonly uploadMs: number
  /** From the head of a request to the end of its answer. */
  readonly requestMs: number
}

interface OperationBase {
  /** The operationId of the interface description. */
  readonly id: string
  /** One line for the interface description. */
  readonly summary: string
  readonly method: Method
  /** Relative to the base path, with `{name}` for a segment that varies, e.g. `/models/{author}/{slug}/endpoints`. */
  readonly path: string
  /** Base paths of the row, where they are not the usual ones; empty: the root. */
  readonly bases?: readonly string[]
  /** Clients ask it all the time and learn nothing from it: it has no line in the log. */
  readonly isQuiet?: true
  /**
   * The parameter at the end of the path whose value may be any text, encoded separators included; absent
   * everywhere else. See docs/decisions/0008-any-text-in-a-path.md.
   */
  readonly freeParam?: string
  /** The free parameter takes the rest of the path, slashes included. */
  readonly takesRest?: true
  /**
   * The word after the last colon of the path, which alone finds the operation: the path is one of those of Google's
   * clients, whatever is before it. The free parameter is what is between `models/`, which may be missing, and it.
   */
  readonly verb?: string
  /** Dialect of an inference operation, also for all its errors. Null: the gateway's own envelope. */
  readonly dialect: Pick<
    Dialect,
    'name' | 'failure' | 'failureHeaders' | 'rateHeaders' | 'idHeader' | 'queryFault'
  > | null
  /**
   * False for an operation in a dialect that asks no model: its answers have no generation, and no limit counts them.
   */
  readonly generates?: false
  /** Largest body, in bytes; 0 for operations without one. */
  readonly bodyLimitBytes: number
  /** Absent: the settings for all operations; otherwise these, where they are longer. */
  readonly times?: OperationTimes
}

/** One row of the table of operations. */
export type Operation = OperationBase &
  (
    | {
        readonly key: Exclude<KeyNeed, 'management' | 'none'>
        readonly accept: 'json' | 'none'
        readonly handler: Handler
      }
    | {
        readonly key: 'management'
        /** The least role that may use it. */
        readonly role: KeyRole
        readonly accept: 'json' | 'none'
        readonly handler: Handler
      }
    | {
        readonly key: Exclude<KeyNeed, 'management' | 'none'>
        readonly accept: 'raw'
        readonly media: 'json' | 'any'
        readonly handler: RawHandler
      }
    | { readonly key: 'none'; readonly accept: 'none'; readonly handler: OpenHandler }
  )
