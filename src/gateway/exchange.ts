/**
 * The one object of a running request. Plugins and tools see the gateway through it; nothing here does I/O.
 */
import type { GatewayError } from '../errors.ts'
import type { FinishReason, Usage } from '../formats/format.ts'
import type { Marks } from '../metrics/stages.ts'
import type { PicoUsd } from '../money.ts'
import type { DialectName } from '../protocol/dialect-name.ts'
import type { ParsedFileAnnotation } from '../protocol/parts.ts'
import type { Accounting, Caller, Reservation } from '../protocol/records.ts'
import type { ResponsesRequest } from '../protocol/request.ts'
import type { AlignmentReport, PipelineStage, ResponseResource, ResponseUsage } from '../protocol/response.ts'
import type { DataRegion, Endpoint, OutgoingKey } from '../providers/provider.ts'

/** What the client asked for, before anything was decided. */
export interface Call {
  /** Generation id: names the exchange in the reply, the `X-Generation-Id` header, logs and usage records. */
  readonly id: string
  readonly caller: Caller
  /** How the client speaks: its unknown fields go on only to a provider that speaks the same. */
  readonly dialect: DialectName
  readonly request: ResponsesRequest
  /** Whether `gateway_metadata` was asked for by header. */
  readonly withMetadata: boolean
  /** Where the data has to stay, by the host that was called; null: anywhere. */
  readonly dataRegion: DataRegion | null
  /** When the exchange passed what; written on its way. */
  readonly marks: Marks
  /** Fires when the client has gone or the total deadline has passed; its reason is a GatewayError. */
  readonly signal: AbortSignal
  /** Id of the exchange on whose behalf the gateway itself asks; absent for what a client asked. */
  readonly parent?: string
}

export interface AskTerms {
  /** The exchange on whose behalf the gateway asks. */
  readonly parent: Pick<Call, 'id' | 'signal' | 'caller'>
  /** Milliseconds from now until it is given up with `deadline_exceeded`. */
  readonly deadlineMs: number
}

/**
 * Asks a model of the catalogue for the gateway itself: no plugins, no own credentials, none of the caller's limits,
 * at the service's own expense. Of the guardrails of the parent's caller those about where data goes hold. Ends with
 * the parent. Rejects with a GatewayError.
 */
export type Ask = (request: ResponsesRequest, terms: AskTerms) => Promise<ResponseResource>

/** What calls of a model came to that are part of the exchange although another call followed them. */
export interface Billed {
  readonly usage: Usage
  readonly inputCost: PicoUsd
  readonly outputCost: PicoUsd
  /** Input, output, and what each call costs by itself. */
  readonly cost: PicoUsd
  /** Every one of them was told by its provider. */
  readonly exact: boolean
}

/** One way to serve the request: an endpoint, with the service's own key or with one of the caller's workspace. */
export interface Candidate {
  readonly endpoint: Endpoint
  /** The workspace's own provider credential; null: the shared key. */
  readonly credential: { readonly id: string } | null
}

/** One try at one candidate. */
export interface Attempt extends Candidate {
  readonly isByok: boolean
  /** Null where the shared key is used, and as long as the own one is not opened. */
  ownKey: OutgoingKey | null
  /** Asked because an earlier turn was judged; what it is sent may quote what nobody is to see. */
  readonly again?: boolean
  /** HTTP status of the provider, null when none arrived. */
  status: number | null
  error: GatewayError | null
}

export interface Exchange extends Call {
  /** What is sent to the model: the request, as guardrails and plugins have rewritten it. */
  prompt: ResponsesRequest
  /** A guardrail of the caller asks that nothing of it be kept anywhere. */
  zeroRetention: boolean
  /** What guardrails and plugins did, in order. */
  readonly pipeline: PipelineStage[]
  /** Documents that were read for it: they go with the first text of its answer, or with its error. */
  readonly parsedFiles: ParsedFileAnnotation[]
  /** What the alignment plugin found; null where it did not run. */
  alignment: AlignmentReport | null
  /** Unix seconds. */
  readonly createdAt: number
  /** Monotonic milliseconds at which the request was accepted. */
  readonly startedMs: number
  /** What was left after routing, in the order in which it is tried. */
  candidates: readonly Candidate[]
  readonly attempts: Attempt[]
  /** Monotonic milliseconds of the first content, null before. */
  firstTokenMs: number | null
  /** The calls whose turns were judged and not delivered; null where there were none. */
  earlier: Billed | null
  usage: Usage | null
  /** At the prices of the catalogue: what the caller pays, or on an own credential what its provider bills. */
  cost: PicoUsd | null
  /** Usage and cost in the form of the response object. */
  shownUsage: ResponseUsage | null
  finish: { readonly reason: FinishReason; readonly native: string | null } | null
  serviceTier: string | null
  upstreamId: string | null
  /** Characters of text, reasoning and arguments that the running attempt has said: what an estimate rests on. */
  outputCharacters: number
  accounting: Accounting
  /** What was set aside for it; null before it is admitted. */
  reservation: Reservation | null
  /**
   * For a plugin that has questions asked before routing: resolves when somebody may serve the request and the caller's
   * limits allow it, so that nothing is spent on one that would be refused. Rejects with why it is.
   */
  admitted?: () => Promise<void>
  /** Its usage record has been written; there is exactly one for each exchange. */
  accounted: boolean
}
