/**
 * The contract of operations: the request that a handler gets, the reply that it writes, and the row of the table. The
 * server implements `Reply` and `RawBody`; handlers know no transport. Types only.
 */

import type { GatewayError } from '../base/errors.ts'
import type { Dialect, FailureDetails } from '../dialects/dialect.ts'
import type { ClientRequest, RequestContext } from '../exchange/exchange.ts'
import type { ExchangeSummary } from '../pipeline/answer/sink.ts'
import type { KeyRecord, KeyRole } from '../protocol/management/keys.ts'
import type { RateSink } from '../protocol/rate-headers.ts'

/** The context of a request that its handler sees, from accept to log line. */
export interface ApiContext extends RequestContext {
  /** Address of the client's connection. */
  readonly address: string
  /** Path template of the operation. */
  readonly route: string
  outlive(onLeft: () => void): boolean
  abort(reason: GatewayError): void
  /**
   * Call it once the end user is known, before any work. Returns null, or a promise while the API key is at its limit
   * of open requests. Rejects, or throws, if this request may not wait (any longer).
   */
  waitForSlot(fields: EndUserFields): Promise<void> | null
}

/** An admitted request with an accepted key. `Body` follows from the row's `accept`. */
export interface ApiRequest<Body = unknown, Key = KeyRecord> {
  readonly context: ApiContext
  /** Keyed by lower-case name; repeated ones are joined by a comma. */
  readonly headers: ReadonlyMap<string, string>
  /** The Host header, including the port. */
  readonly host: string
  /** Values of the `{names}` in the path template, decoded. */
  readonly params: ReadonlyMap<string, string>
  readonly query: URLSearchParams
  /** Parsed JSON; a `RawBody` if the row accepts raw bodies; undefined if the method has no body. */
  readonly body: Body
  /** SHA-256 of the received body, in hex; null: no header requests a proof, or the body is not complete. */
  readonly bodyDigest: string | null
  /** Null if the row requires no key. */
  readonly key: Key
  /** Fields that the request loses before it reaches the pipeline; absent: none. */
  readonly losses?: ClientRequest['losses']
}

/** The fields in which a request may name its end user; the first one counts. */
export interface EndUserFields {
  readonly safety_identifier?: string | null | undefined
  readonly user?: string | undefined
}

/** A body that is passed on as it arrives, so that it never has to fit into memory. */
export interface RawBody {
  /** Announced length in bytes; null if the body is chunked. */
  readonly contentLength: number | null
  /**
   * The pieces of a received body without its Content-Encoding; null: it has none.
   * @throws GatewayError `payload_too_large` or `invalid_request`, while they are read
   */
  readonly decode: ((sent: SentBody) => AsyncIterable<Uint8Array>) | null
  /**
   * Reads the body to its end, once. Resolves after the last chunk was processed.
   * @throws GatewayError `payload_too_large`, `deadline_exceeded` or the reason of the abort; or an error of the reader
   */
  read(reader: BodyReader): Promise<void>
}

/** A received body, which can be read in pieces. */
export interface SentBody {
  readonly bytes: number
  pieces(): AsyncIterable<Uint8Array>
}

/** Receives the chunks of a body. `offset`: position of the chunk in the body, in bytes. */
export interface BodyReader {
  /** The chunk belongs to the reader until the promise resolves; while it is pending the client is paused. */
  write(chunk: Uint8Array, offset: number): Promise<void>
  /**
   * Processes a chunk before it returns, perhaps while earlier ones are pending, if the client sends faster than it can
   * be paused.
   */
  writeNow(chunk: Uint8Array, offset: number): void
}

/** Facts to report together with an error. */
export type FailureContext = Pick<FailureDetails, 'metadata' | 'usage' | 'request'>

/** Chunks of a stream that are created one after the other. */
export interface MoreChunks {
  /** Bytes of memory that they use before they are created. */
  readonly bytes: number
  /** Null: there are no more. */
  next(): string | null
}

/** The beginning of an answer. */
export interface AnswerHead {
  readonly status: number
  /** Names and values alternate; those that another answer with the same body needs. */
  readonly headers: readonly string[]
  /** The body: one document, chunks that each end with a frame of an event stream, or other chunks. */
  readonly form: 'document' | 'events' | 'chunks'
}

/** Gets an answer as the client does, and still gets the rest after the client has left. */
export interface ReplyCopy {
  begin(head: AnswerHead): void
  /** The rest of the answer has originals of masked values, and must be kept sealed. */
  seal(): void
  /** Adds bytes of the body, in order. */
  add(chunk: string | Buffer): void
  /** The body is complete. */
  complete(): void
  /** @param isFlowing false if the client is slow. Returns the value for the writer. */
  flows(isFlowing: boolean): boolean
  /** Sets the callback of the writer for a slow client that has read something. */
  onProgress(callback: (isDrained: boolean) => void): void
}

/** A stream that can still report a failure. */
export interface FailableStream {
  fail(error: GatewayError, details: FailureDetails): void
}

/** The answer to one request: one document, or a stream. Does nothing once the client has left. */
export interface Reply extends RateSink {
  /** The log line's fields in addition to the status, set by handlers that know them. */
  summary: ExchangeSummary | undefined
  /** The model that the body names, for the log line of a request without a summary. */
  requestedModel: string | undefined
  /** The failure that was reported to the client, in the envelope or in the stream. */
  error: GatewayError | null
  /** Id of the generation whose answer this is; undefined: it is the request's own. */
  replayOf: string | undefined
  /** The stream of the answer; null: it has none, or its failure is reported in another way. */
  stream: FailableStream | null
  /** The status that was sent; 0 before. */
  readonly status: number
  /** True after the status line was sent. */
  readonly started: boolean
  /** True once the answer is complete. */
  readonly ended: boolean
  /**
   * Adds a header to the answer. @throws Error if the name is not a token: names come from the gateway, never from
   * outside.
   */
  header(name: string, value: string): void
  /** Answers with one JSON document. */
  json(status: number, document: unknown): void
  /** Answers 200 with a serialized document. Default content type: JSON. */
  written(bytes: string | Buffer, contentType?: string): void
  /** Answers 304: the client already has the document. */
  notModified(): void
  /** Answers with the error envelope of the operation's dialect. */
  failure(error: GatewayError, context?: FailureContext): void
  /**
   * Begins a stream with its first bytes. Default content type: an event stream; blank lines may then follow each
   * chunk, so each chunk must end with a frame. Returns false if the reader is slow.
   */
  openStream(chunk: string | Buffer, contentType?: string): boolean
  /** Begins an event stream in slices: a chunk may end within a frame. */
  openSlices(): boolean
  /**
   * Sends more of the stream; bytes are copied. `endsFrame`: in a stream of slices, this one ends with a frame. Returns
   * false if the reader is slow; the chunk was accepted anyway.
   */
  writeStream(chunk: string | Buffer, endsFrame?: boolean): boolean
  /** Sends the last bytes of the stream. `more` supplies further chunks one by one as the reader reads them. */
  endStream(chunk: string | Buffer, more?: MoreChunks): void
  /**
   * Sets the callback for a slow reader that has read something: called with true when writing may continue, with false
   * when more is waiting. A later call replaces it. `hasDeadline`: the caller aborts if a reader reads nothing for
   * long; otherwise the server does, after about 10 s.
   */
  onProgress(callback: (isDrained: boolean) => void, hasDeadline?: boolean): void
  /** Drops the connection, because a started answer cannot be completed. */
  abort(): void
  /** The rest of the answer has originals of masked values: a copy keeps it sealed. */
  seal(): void
  /** Gives the whole answer to this copy too. Call it before anything of the answer is sent. */
  copyTo(copy: ReplyCopy): void
  /**
   * Sends an earlier answer: its status, its headers (instead of those of the same name) and its document. Without a
   * document, a stream begins as usual.
   */
  repeat(head: AnswerHead, document?: string): void
}

/** Must answer through the reply before it ends. A GatewayError thrown before that is answered with its envelope. */
export type Handler = (request: ApiRequest, reply: Reply) => void | Promise<void>
/** Handler of a body that is read as it arrives. */
export type RawHandler = (request: ApiRequest<RawBody>, reply: Reply) => void | Promise<void>
/** Handler of requests without a key. */
export type OpenHandler = (request: ApiRequest<undefined, null>, reply: Reply) => void | Promise<void>

export type Method = 'GET' | 'HEAD' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'

/** Kind of key that an operation requires. `any`: both kinds; `none`: the Authorization header is ignored. */
type KeyNeed = 'none' | 'inference' | 'management' | 'any'

/** Time limits of an operation with very large bodies or answers. */
export interface OperationTimes {
  /** From the acceptance of the key to the last byte of the body. */
  readonly uploadMs: number
  /** From the request's head to the end of its answer. */
  readonly requestMs: number
}

interface OperationBase {
  /** The operationId of the interface description. */
  readonly id: string
  /** One line for the interface description. */
  readonly summary: string
  readonly method: Method
  /**
   * Relative to the base path, with `{name}` for a variable segment, for example `/models/{author}/{slug}/endpoints`.
   */
  readonly path: string
  /** Base paths of the row if they differ from the usual ones; empty: the root. */
  readonly bases?: readonly string[]
  /** Clients poll it all the time, so it has no line in the log. */
  readonly isQuiet?: true
  /**
   * The parameter at the end of the path, or before its action, whose value may be any text, including encoded
   * separators; otherwise absent. See docs/decisions/0008-any-text-in-a-path.md.
   */
  readonly freeParam?: string
  /** The free parameter is the rest of the path, including slashes. */
  readonly takesRest?: true
  /**
   * The word after the last colon of the path, which alone selects the operation: such paths belong to Google's
   * clients. The free parameter is the text between `models/`, which may be missing, and this word.
   */
  readonly verb?: string
  /** Dialect of an inference operation, also for all its errors. Null: the gateway's own envelope. */
  readonly dialect: Pick<
    Dialect,
    'name' | 'failure' | 'failureHeaders' | 'rateHeaders' | 'idHeader' | 'queryFault'
  > | null
  /**
   * False for an operation in a dialect that calls no model: its answers have no generation, and limits do not count
   * them.
   */
  readonly generates?: false
  /** Maximum body size in bytes; 0 for operations without a body. */
  readonly bodyLimitBytes: number
  /** Absent: the general settings; otherwise these, if they are longer. */
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
        /** The minimum role. */
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
