/**
 * The one object of a running request. Plugins and tools see the gateway through it; nothing here does I/O.
 */
import type { GatewayError } from './errors.ts'
import type { FinishReason, Usage } from './formats/format.ts'
import type { PicoUsd } from './money.ts'
import type { Accounting, Caller } from './protocol/records.ts'
import type { ResponsesRequest } from './protocol/request.ts'
import type { ResponseUsage } from './protocol/response.ts'
import type { Endpoint } from './providers/provider.ts'
import type { Marks } from './stages.ts'

/** What the client asked for, before anything was decided. */
export interface Call {
  /** Generation id: names the exchange in the reply, the `X-Generation-Id` header, logs and usage records. */
  readonly id: string
  readonly caller: Caller
  readonly request: ResponsesRequest
  /** Whether `gateway_metadata` was asked for by header. */
  readonly withMetadata: boolean
  /** When the exchange passed what; written on its way. */
  readonly marks: Marks
  /** Fires when the client has gone or the total deadline has passed; its reason is a GatewayError. */
  readonly signal: AbortSignal
}

/** One try at one endpoint. */
export interface Attempt {
  readonly endpoint: Endpoint
  readonly isByok: boolean
  /** HTTP status of the provider, null when none arrived. */
  status: number | null
  error: GatewayError | null
}

export interface Exchange extends Call {
  /** Unix seconds. */
  readonly createdAt: number
  /** Monotonic milliseconds at which the request was accepted. */
  readonly startedMs: number
  /** Endpoints that were left after routing, in the order in which they are tried. */
  candidates: readonly Endpoint[]
  readonly attempts: Attempt[]
  /** Monotonic milliseconds of the first content, null before. */
  firstTokenMs: number | null
  usage: Usage | null
  cost: PicoUsd | null
  /** Usage and cost in the form of the response object. */
  shownUsage: ResponseUsage | null
  finish: { readonly reason: FinishReason; readonly native: string | null } | null
  serviceTier: string | null
  upstreamId: string | null
  /** Characters of text, reasoning and arguments that the running attempt has said: what an estimate rests on. */
  outputCharacters: number
  accounting: Accounting
  /** Its usage record has been written; there is exactly one for each exchange. */
  accounted: boolean
}
