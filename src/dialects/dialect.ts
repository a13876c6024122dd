/**
 * The contract of a dialect: how one kind of client speaks. A dialect parses a body into a request, frames events,
 * and writes whole replies and errors. Pure: no I/O, no clock. It sees protocol types only.
 */
import type { GatewayError } from '../base/errors.ts'
import type { StreamEvent } from '../protocol/events.ts'
import type { RateKind, RateRoom } from '../protocol/rate-headers.ts'
import type { DialectName, ResponsesRequest } from '../protocol/request.ts'
import type { GatewayMetadata, ResponseResource, ResponseUsage } from '../protocol/response.ts'

/** Known facts to report beside an error. */
export interface FailureDetails {
  /** Request id or, on inference operations, generation id. */
  readonly id: string
  /** Null unless the caller asked for it and routing had begun. */
  readonly metadata: GatewayMetadata | null
  /** Usage of model calls that count although nothing of them is delivered; null: none. */
  readonly usage: ResponseUsage | null
  /** The parsed request; null for a refused body, whose error names its fields already. */
  readonly request: ResponsesRequest | null
}

/** Writes the frames of one streamed answer; keeps its state, never shared. */
export interface FrameWriter {
  /** The type of the stream; absent: an event stream. */
  readonly contentType?: string | undefined
  /** A sign of life that says nothing; absent: a comment of an event stream. */
  readonly heartbeat?: string
  /** Asked after `end`. True: what it returned has to leave in a write of its own. */
  readonly endsAlone?: boolean
  /** True: clients act upon a prompt that is too long where the stream tells it after its opening events. */
  readonly tellsOverflow?: boolean
  /** The frames of one event, each with its blank line; `''` where the dialect tells nothing for it. Hot path. */
  write(event: StreamEvent): string
  /** Notes an event whose frames left another way. Absent: `write` has to be called for it. Hot path. */
  overhear?(event: StreamEvent): void
  /** Ends the stream after its terminal event, e.g. `data: [DONE]\n\n`. */
  end(): string
  /** Tells a failure when the status has left (a heartbeat) but no terminal event has; `end` follows. */
  failure(error: GatewayError, details: FailureDetails): string
  /** The frames of an answer in place of the failure, while the status is open; null or absent: it is a failure. */
  instead?(error: GatewayError, details: FailureDetails): string | null
}

export interface Dialect {
  readonly name: DialectName
  /** The header in which its clients look for the id of their request, beside ours; absent: none. */
  readonly idHeader?: string
  /**
   * Checks a body and turns it into a request. `headers`: by lower-case name; absent where no HTTP request brought it.
   * @throws GatewayError `invalid_request` or `unprocessable` that names the field by its path in this dialect and
   *   never repeats what the client sent.
   */
  parse(body: unknown, headers?: ReadonlyMap<string, string>): ResponsesRequest
  /** `request`: what `parse` returned for it. */
  frames(request: ResponsesRequest): FrameWriter
  /** The body of a whole reply. */
  body(response: ResponseResource, request: ResponsesRequest): unknown
  /** The text, which begins with the path of a field, with the client's own name of it; absent: both have the same. */
  inOwnNames?(text: string, request: ResponsesRequest): string
  /** The error envelope that clients of this dialect expect. */
  failure(error: GatewayError, details: FailureDetails): unknown
  /** Headers of the answer with that envelope. Absent: none. */
  failureHeaders?(error: GatewayError): Readonly<Record<string, string>>
  /** A whole answer in place of a failure; null or absent: it is a failure. */
  instead?(error: GatewayError, details: FailureDetails): unknown
  /** The reason why a request with this query is refused, before its key is looked at; null or absent: none. */
  queryFault?(query: string): string | null
  /** Headers that tell a limit per minute. Absent: those of most clients. */
  readonly rateHeaders?: (kind: RateKind, room: RateRoom, nowMs: number) => Readonly<Record<string, string>>
}
