/**
 * The contract of observers: captures watch the requests of an operator's choice. While no capture runs, a request
 * costs a check of `isIdle`. Types only.
 */
import type { OutputItem } from '../protocol/items.ts'
import type { Transport } from '../providers/upstream/transport.ts'
import type { ClientRequest, EndedExchange } from './exchange.ts'

export interface Observer {
  /** True: it watches no request at all. */
  readonly isIdle: boolean
  /** Null: it does not watch this request. */
  open(request: ClientRequest): Observation | null
}

/** One watched request, until `end` or `drop` is called. */
export interface Observation {
  /** The same transport, whose calls are watched. */
  recordingTransport(transport: Transport): Transport
  /** The request is over. */
  end(end: EndedExchange, reply: ObservedReply): void
  /** Forgets the request: another exchange answers it, or its end could not be written. Does nothing after `end`. */
  drop(): void
}

/** Facts about the reply that only the pipeline knows when the request is over. */
export interface ObservedReply {
  /** True if guardrails check the reply: the bytes of its provider may contain what the caller must not see. */
  readonly isReplyGuarded: boolean
  /** Items that were sent to the client; null: none. */
  readonly output: readonly OutputItem[] | null
}
