/**
 * The contract of a dialect: the API that one kind of client uses. A dialect parses a body into a request, frames
 * events, and writes whole replies and errors. Pure: no I/O, no clock. It uses protocol types only.
 */
import type { GatewayError } from '../base/errors.ts'
import type { StreamEvent } from '../protocol/events.ts'
import type { RateKind, RateStatus } from '../protocol/rate-headers.ts'
import type { DialectName, ResponsesRequest } from '../protocol/request.ts'
import type { GatewayMetadata, ResponseResource, ResponseUsage } from '../protocol/response.ts'

/** Known facts to report beside an error. */
export interface FailureDetails {
  /** Request id or, on inference operations, generation id. */
  readonly id: string
  /** Null unless the caller requested it and routing had begun. */
  readonly metadata: GatewayMetadata | null
  /** Usage of model calls that are billed although nothing of them is delivered; null: none. */
  readonly usage: ResponseUsage | null
  /** The parsed request; null if the body was refused, because that error already uses the client's field names. */
  readonly request: ResponsesRequest | null
}

/** Writes the frames of one streamed answer. Stateful: one instance per answer. */
export interface FrameWriter {
  /** The type of the stream; absent: an event stream. */
  readonly contentType?: string | undefined
  /** A frame without content that keeps the connection alive. Absent: a comment of an event stream. */
  readonly heartbeat?: string
  /** Read after `end`. True: the result of `end` must leave in a write of its own. */
  readonly endsAlone?: boolean
  /** True: clients react to "prompt too long" only if it arrives in the stream, after the opening events. */
  readonly tellsOverflow?: boolean
  /** The frames of one event, each with its blank line; `''` if the dialect writes nothing for it. Hot path. */
  write(event: StreamEvent): string
  /** Like `write`, in pieces of bounded length, each created when it is requested. Absent: all frames are short. */
  pieces?(event: StreamEvent): Iterable<string>
  /** Wraps the inner writer with `wrap`. Absent: the writer has no inner one. */
  wrapInner?(wrap: (inner: FrameWriter) => FrameWriter): FrameWriter
  /** Notes an event whose frames were written without `write`. Absent: `write` must be called for it. Hot path. */
  overhear?(event: StreamEvent): void
  /** Ends the stream after its terminal event, e.g. `data: [DONE]\n\n`. */
  end(): string
  /** Writes a failure after the status was sent (by a heartbeat) but before any terminal event; `end` follows. */
  failure(error: GatewayError, details: FailureDetails): string
  /**
   * The frames of an answer that this API sends instead of the failure, while the status can still change; null or
   * absent: the failure is sent.
   */
  answerInstead?(error: GatewayError, details: FailureDetails): string | null
}

export interface Dialect {
  readonly name: DialectName
  /** The header in which its clients look for the request id, in addition to ours; absent: none. */
  readonly idHeader?: string
  /**
   * Checks a body and turns it into a request. `headers`: by lower-case name; absent where no HTTP request brought it.
   * @throws GatewayError `invalid_request` or `unprocessable` that names the field by its path in this dialect and
   *   never repeats what the client sent.
   */
  parse(body: unknown, headers?: ReadonlyMap<string, string>): ResponsesRequest
  /** `request`: the result of `parse`. */
  frames(request: ResponsesRequest): FrameWriter
  /** The body of a whole reply. */
  body(response: ResponseResource, request: ResponsesRequest): unknown
  /** Replaces the path at the beginning of a text by the client's own field name. Absent: the names are equal. */
  inOwnNames?(text: string, request: ResponsesRequest): string
  /** The error envelope that clients of this dialect expect. */
  failure(error: GatewayError, details: FailureDetails): unknown
  /** Headers of the answer with that envelope. Absent: none. */
  failureHeaders?(error: GatewayError): Readonly<Record<string, string>>
  /** A whole answer that this API sends instead of the failure; null or absent: the failure is sent. */
  answerInstead?(error: GatewayError, details: FailureDetails): unknown
  /** The reason why a request with this query is refused, before its key is looked up; null or absent: none. */
  queryFault?(query: string): string | null
  /** The headers that report a limit per minute. Absent: the usual headers. */
  readonly rateHeaders?: (kind: RateKind, room: RateStatus, nowMs: number) => Readonly<Record<string, string>>
}
