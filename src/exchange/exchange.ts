/** Exchange: one client request from admission to account. Plugins and tools see the gateway through it. No I/O. */
import type { GatewayError } from '../base/errors.ts'
import { shortList } from '../base/lists.ts'
import type { ExchangeLine } from '../base/log/log.ts'
import type { Stopwatch } from '../base/metrics/stages.ts'
import type { PicoUsd, PriceFactor } from '../base/money.ts'
import type { RequestSignal } from '../base/signal.ts'
import type { AttemptNotes } from '../base/telemetry/ended-trace.ts'
import type { ExchangeSpans, TraceParent } from '../base/telemetry/request-trace.ts'
import type { CallerContext } from '../base/telemetry/trace-context.ts'
import type { AppliedEdit, Change, FinishReason, Usage, WireRequest } from '../formats/format.ts'
import type { DataRegion, Region } from '../protocol/data-regions.ts'
import { DIALECT_ABILITIES } from '../protocol/dialect-abilities.ts'
import type { StreamEvent } from '../protocol/events.ts'
import type { OutputItem } from '../protocol/items.ts'
import type { Endpoint, OutgoingKey } from '../protocol/provider.ts'
import type { RateSink } from '../protocol/rate-headers.ts'
import type { CacheMiss, Caller, Reservation } from '../protocol/records.ts'
import type { DialectName, ResponsesRequest } from '../protocol/request.ts'
import type { PipelineStage, ResponseResource, RoutingStrategy } from '../protocol/response.ts'
import type { RolloutPart } from '../protocol/rollout.ts'
import type { HealthEntry } from '../providers/health/health.ts'
import { Bill } from './bill.ts'
import type { Masks } from './masks.ts'
import {
  type AttemptFigures,
  type InnerCallNote,
  type LossyCandidate,
  type PassedCandidate,
  type RankingNotes,
  type ToolCallNote,
  UNRANKED,
} from './reasons.ts'

/** Counts the memory of one request. */
export interface Held {
  /** Bytes currently held. */
  readonly bytes: number
  /** Adds bytes (negative: releases them). False if the memory is exhausted; the request should then end. */
  count(bytes: number): boolean
}

/** For values that are too small to be counted. */
export const UNCOUNTED: Held = { bytes: 0, count: () => true }

/** The endpoints that streams of one exchange may rely on. */
export interface StreamTrust {
  /** True if a stream of this endpoint may reserve piece by piece. */
  isVisible(endpoint: Endpoint, request: Pick<ResponsesRequest, 'reasoning'>): boolean
  /** Call it when the exchange is over. Later calls do nothing. */
  leave(): void
}

/** Prompts that the conversation of an exchange sent before. */
export interface PromptPrefix {
  /** True if the prompt begins with one that was sent recently enough to still be in a cache. */
  readonly isSeen: () => boolean
  /** Null if no miss is known. */
  readonly miss: CacheMiss | null
}

/** The terms of a request that is a batch line. */
export interface BatchTerms {
  readonly priceFactor: PriceFactor
  /**
   * Called once, before the usage record is written. False: no record is written and nothing is charged, because the
   * request already has a record, or will run again under its id.
   */
  accounts(end: EndedExchange): boolean
  /**
   * Offers the only model call of the exchange to a batch service of its provider, with the reservation. True: the
   * service has the call, and the exchange ends without accounting. Absent: the gateway itself makes the call.
   */
  readonly submit?: ((call: DeferredCall) => boolean) | undefined
  /** The reply to a call that was submitted earlier; absent: the model is called. */
  readonly collected?: CollectedReply | undefined
}

/** A model call that may be submitted to its provider's batch service. */
export interface DeferredCall {
  readonly exchange: Exchange
  readonly attempt: AttemptRecord
  readonly wire: WireRequest
  /** The amount reserved for it under the caller's limits. */
  readonly reservedAmount: PicoUsd
}

/** The reply of a batch service to a call that another exchange submitted. */
export interface CollectedReply {
  /** The endpoint and the credential with which the request was submitted. */
  readonly candidate: Candidate
  /** Null: the shared key, exactly as in the row. */
  readonly providerKey: OutgoingKey | null
  /** Settled with the real cost; the reserved amount is counted elsewhere. */
  readonly reservation: Reservation
  readonly reply: StoredReply
}

/** The reply of a batch service to a request, with its body as JSON; or the reason that there is no reply. */
export type StoredReply =
  | { readonly status: number; readonly body: string }
  | { readonly error: GatewayError }

/** The facts of one request from accept to log line, whatever its source. One object, passed on by reference. */
export interface RequestContext {
  /** Names the request in replies, logs and usage records; the generation id of inference requests. */
  readonly id: string
  /** Times of its stages; see base/metrics/stages.ts. */
  readonly watch: Stopwatch
  /** Counts the memory that the request holds, until it is over. */
  readonly held: Held
  /**
   * Fires when the work on the request has to end: the client has disconnected, the deadline has passed, a right was
   * lost. Its reason is a GatewayError.
   */
  readonly signal: RequestSignal
  /** The parent span in the caller's own trace; null if the caller sends no trace. */
  readonly callerContext: CallerContext | null
  /** The exchange of the request, set by the exchange itself when it is created; absent: there is none yet. */
  running?: RunningWork | undefined
  /** The destination of its spans; null while tracing is off. */
  readonly trace: TraceParent | null
  /**
   * After this call the signal does not fire when the client leaves: `onLeft` is called instead. False: an earlier call
   * has set its own callback, which stays. Absent: there is no client.
   */
  outlive?(onLeft: () => void): boolean
  /** Ends the work on the request for this reason; only the first reason counts. Absent: there is no client. */
  abort?(reason: GatewayError): void
}

/** The exchange of an open request. */
export type RunningWork = Exchange & {
  /** Sends the client the error of a lost right at once, before the stream ends. False: nothing was sent. */
  tellLostRight?(reason: GatewayError): boolean
}

/** The end of a request, made once. Log line, console row and explanation are made from it. */
export interface RequestEnd {
  readonly line: ExchangeLine
  readonly watch: Stopwatch
  /** Monotonic milliseconds. */
  readonly endedMs: number
  /** The milliseconds of each stage, as `Stopwatch.read` writes them. Valid only until the next request ends. */
  readonly spentMs: Float64Array
  /** Null: the key is unknown. */
  readonly keyHash: string | null
  readonly error: GatewayError | null
  /** Absent: the request was refused before it had an exchange, or calls no model. */
  readonly exchange: Exchange | undefined
}

/** A client's request as the operation passes it in, before any decision about it. */
export interface ClientRequest {
  readonly context: RequestContext
  readonly caller: Caller
  /** The client's dialect: its unknown fields are passed on only to a provider with the same API. */
  readonly dialect: DialectName
  readonly request: ResponsesRequest
  /** True if a header asked for `gateway_metadata`. */
  readonly withMetadata: boolean
  /** The region in which the data must stay, according to the host that was called; null: any. */
  readonly dataRegion: DataRegion | null
  /** Id of the exchange for which the gateway makes this call; absent for requests of clients. */
  readonly parent?: string | undefined
  /** Absent outside batches. Pins of conversations do not apply in batches. */
  readonly batch?: BatchTerms | undefined
  /** Optional observer, called for every exchange that this request creates. */
  readonly witness?: Witness | undefined
  /** Absent if the client states nothing, or there is no client. */
  readonly client?: ClientFacts | undefined
  /** The client's own wish about the response cache; absent: it has none. */
  readonly cache?: CacheWish | undefined
  /** Fields that the request lost before it came here; absent: none. */
  readonly losses?: readonly Change[] | undefined
  /** Absent if the limits need not be reported. */
  readonly rates?: RateSink | undefined
  /** The placeholders of the exchange for which the gateway makes this call. */
  readonly masks?: Masks | null
  /** Replaces the path at the beginning of a text by the client's own field name. Absent: both are equal. */
  readonly inOwnNames?: ((text: string, request: ResponsesRequest) => string) | undefined
}

/** The header `X-Gateway-Cache` of a request. */
export interface CacheWish {
  /** `refresh`: a new answer, which replaces the kept one. */
  readonly action: 'on' | 'off' | 'refresh'
  /** Null: as its key, its workspace or the configuration says. */
  readonly seconds: number | null
}

/** Facts that a client states about itself, in headers. */
export interface ClientFacts {
  readonly referer: string | undefined
  /** The name of its app. */
  readonly title: string | undefined
  readonly userAgent: string | undefined
  /** The agent that calls, and the agent it works for, as the client names them. */
  readonly agent: string | undefined
  readonly parentAgent: string | undefined
}

/** Observes the exchange of a request, and the exchanges of calls that the gateway makes for it, from their start. */
export interface Witness {
  observe(exchange: Exchange): void
}

interface AskTerms {
  /** The exchange for which the gateway makes the call. */
  readonly parent: Pick<Exchange, 'id' | 'signal' | 'caller' | 'held'> &
    Partial<Pick<Exchange, 'spans' | 'clientRequest'>>
  /** Milliseconds from now until the call is given up with `deadline_exceeded`. */
  readonly deadlineMs: number
}

/**
 * Calls a model of the catalogue for the gateway itself: no plugins, no own credentials, none of the caller's limits,
 * at the service's own expense. Guardrails of the parent's caller that restrict where data may go still apply. Ends
 * with the parent. Rejects with a GatewayError.
 */
export type Ask = (request: ResponsesRequest, terms: AskTerms) => Promise<ResponseResource>

interface AskAsTerms {
  /** Milliseconds from now until the call is given up with `deadline_exceeded`. */
  readonly deadlineMs: number
  /** Ends the call, in addition to the signal of the exchange. */
  readonly signal?: AbortSignal
  /** Receives the events of the reply as they arrive; absent: the reply is requested whole. */
  readonly onEvent?: (event: StreamEvent) => void
}

/**
 * Calls a model of the catalogue on behalf of the caller: with the caller's own credentials, guardrails and limits, and
 * the caller's preferences on where data may go. Server tools of the request run, except those that call models
 * themselves. The call has its own usage record, which names the exchange, and it counts in the bill of the exchange.
 * Ends with the exchange. Rejects with a GatewayError.
 */
export type AskAs = (
  exchange: Exchange,
  request: ResponsesRequest,
  terms: AskAsTerms,
) => Promise<ResponseResource>

/** A BYOK credential, without its key. */
interface OwnCredential {
  readonly id: string
  readonly name: string | null
  /** Masked. */
  readonly label: string
  /** The region that its owner declares; null: none. */
  readonly declaredRegion: Region | null
  /** The data policy that its owner declares; null: the endpoint's policy applies. */
  readonly declaredZdr: boolean | null
}

/** One way to serve the request: an endpoint, with the service's own key or with a key of the caller's workspace. */
export interface Candidate {
  readonly endpoint: Endpoint
  /** The workspace's own provider credential; null: the shared key. */
  readonly credential: OwnCredential | null
  /** The health of the endpoint with this key, as ranking found it; absent if ranking has not checked it. */
  state?: { readonly isOpen: boolean }
}

/** The record of one attempt at one candidate. */
export interface AttemptRecord extends Candidate, AttemptFigures {
  readonly isByok: boolean
  /** Null if the shared key is sent as in the row, and until another key has been opened. */
  providerKey: OutgoingKey | null
  /** The provider's own id of its reply. */
  upstreamId: string | null
  /** The provider's HTTP status; null if none arrived. */
  status: number | null
  error: GatewayError | null
  /** True if the gateway refused the provider's output, which the provider bills all the same. */
  isRefused: boolean
  /** True if the request was passed to the transport. */
  isStarted: boolean
  /** True if another attempt of the same model call answered first, so this one was closed. */
  isOutrun?: true
  /** Characters of the answer before this attempt continued it; absent: it began the answer, or delivered nothing. */
  continuedAt?: number
  /** Usage of its part of an answer in several parts. */
  partUsage?: Usage
  /** For its span; absent while tracing is off. */
  span?: AttemptNotes
  /** Receives the outcome; absent for a stored reply. */
  health?: HealthEntry
  /** Fields that the gateway dropped or changed on the way to the provider; absent: none. */
  changes?: readonly Change[]
  /** Stop sequences that the provider does not get, so that the gateway looks for them; absent: none. */
  stops?: readonly string[]
  /** The stop sequence that ended the reply; absent: none. */
  stoppedBy?: string
}

/** The earlier answer that a request got. */
export interface RepeatedAnswer {
  /** Describes the candidate of the earlier answer like an attempt. Not one of the exchange's attempts. */
  readonly attempt: AttemptRecord
  /** The generation of the answer. */
  readonly source: string
  /** Unix seconds of its end; null: it has not ended. */
  endedAt: number | null
}

/** How a model ended its reply. */
export interface Finish {
  readonly reason: FinishReason
  /** The provider's own name for it. */
  readonly native: string | null
  readonly serviceTier: string | null
  /** The stop sequence that the provider found; absent if it reported none. */
  readonly stopSequence?: string | null
  /** Prompt edits that the provider made; absent if it reported none. */
  readonly appliedEdits?: readonly AppliedEdit[]
}

/** A finished model call, as plugins judge it: they accept it, or ask for another one. */
export interface Turn {
  readonly attempt: AttemptRecord
  /** Final items, in order. */
  readonly output: readonly OutputItem[]
  readonly finish: FinishReason
  /** 1 for the first turn of the exchange. */
  readonly number: number
}

const NO_NAMES: ReadonlySet<string> = new Set()
const NO_CANDIDATES: readonly never[] = []

function openSpans(exchange: Exchange, { request, parentId }: TraceParent): ExchangeSpans {
  const operation = DIALECT_ABILITIES[exchange.dialect].embeds ? 'embeddings' : 'chat'
  return request.open(exchange, operation, parentId)
}

/**
 * One client request from admission to account. Its fields are in parts, and each part has an owner: only the owner
 * writes it, which `test/exchange/owners.test.ts` checks.
 */
export class Exchange {
  // The request: never changed.

  /** The request before any change. */
  readonly clientRequest: ClientRequest
  readonly id: string
  readonly caller: Caller
  readonly dialect: DialectName
  readonly request: ResponsesRequest
  readonly withMetadata: boolean
  readonly dataRegion: DataRegion | null
  readonly watch: Stopwatch
  readonly held: Held
  readonly signal: RequestSignal
  readonly parent: string | undefined
  readonly batch: BatchTerms | undefined
  readonly client: ClientFacts | undefined
  /** Null while tracing is off. */
  readonly spans: ExchangeSpans | null
  /** Unix seconds. */
  readonly createdAt: number

  // The prompt: stages and turns.

  /** The request as guardrails, plugins and turns have rewritten it. */
  prompt: ResponsesRequest
  /** The placeholders in the prompt; null: nothing in it was masked. */
  masks: Masks | null = null
  /** True if a guardrail of the caller forbids storing anything from the exchange. */
  zeroRetention = false
  /**
   * Server tools that the caller's workspace has disabled; looked up only for a request that leads to a server tool.
   */
  disabledTools: ReadonlySet<string> = NO_NAMES
  /**
   * For a plugin that calls other models before routing: resolves if some endpoint may serve the request and the
   * caller's limits allow it, so that nothing is spent on a request that would be refused. Rejects with the reason.
   * `prompt`: the request to check; default: the exchange's request.
   */
  admitEarly: ((prompt?: ResponsesRequest) => Promise<void>) | null = null

  // Routing: the ranking, and the plugin that chooses a model.

  /** How the model was chosen. */
  strategy: RoutingStrategy
  /** The router that the request names, in its usual spelling; null: it names models. */
  router: string | null = null
  /** All candidates, in the order in which they are tried. */
  candidates: readonly Candidate[] = []
  /** How routing arrived at its candidates. */
  ranking: RankingNotes = UNRANKED
  /** Its part in the rollout of its route; null: it has none. */
  rollout: RolloutPart | null = null
  /** Null if nothing of the conversation is remembered. */
  prefix: PromptPrefix | null = null

  // Money: accounting.

  readonly bill: Bill
  /** True if the caller's limits refused the request, so it leaves no usage record. */
  overLimit = false
  /** The reservation under the caller's limits; null before admission. */
  reservation: Reservation | null = null
  /** Endpoints at which its streams may reserve piece by piece; null before admission or without limits. */
  trust: StreamTrust | null = null

  // The reply: model calls.

  readonly attempts: AttemptRecord[] = shortList()
  /** The earlier answer that the exchange delivers; null: it makes a new one. */
  repeated: RepeatedAnswer | null = null
  /** Candidates that could not be called when their turn came. */
  passedOver: readonly PassedCandidate[] = NO_CANDIDATES
  /** Candidates left out because they would not get the whole request, which its caller requires. */
  lossy: readonly LossyCandidate[] = NO_CANDIDATES
  /** Monotonic milliseconds of the first content; null before. */
  firstTokenMs: number | null = null
  /** The end of the last turn; null if it failed. */
  finish: Finish | null = null

  // Notes for reports: written by each part that acts on the request.

  /** Actions of guardrails and plugins, in order. */
  readonly pipeline: PipelineStage[] = []
  /** Calls of server tools; null if none has ended. See `noteToolCall`. */
  toolCalls: ToolCallNote[] | null = null
  /** Model calls of tools and plugins; null if none has ended. See `noteInnerCall`. */
  innerCalls: InnerCallNote[] | null = null

  constructor(clientRequest: ClientRequest, createdAt: number) {
    const { context } = clientRequest
    this.clientRequest = clientRequest
    this.id = context.id
    this.watch = context.watch
    this.held = context.held
    this.signal = context.signal
    this.caller = clientRequest.caller
    this.dialect = clientRequest.dialect
    this.request = clientRequest.request
    this.withMetadata = clientRequest.withMetadata
    this.dataRegion = clientRequest.dataRegion
    this.parent = clientRequest.parent
    this.batch = clientRequest.batch
    this.client = clientRequest.client
    this.spans = context.trace === null ? null : openSpans(this, context.trace)
    this.bill = new Bill(clientRequest.batch?.priceFactor)
    this.createdAt = createdAt
    this.prompt = clientRequest.request
    this.strategy = (clientRequest.request.models?.length ?? 0) > 0 ? 'fallback' : 'direct'
    context.running = this
    clientRequest.witness?.observe(this)
  }
}

/**
 * The end of an exchange, made once when nothing can change any more. Usage record, metrics, last event, log line and
 * explanation are computed from it.
 */
export interface EndedExchange<AnyExchange extends Exchange = Exchange> {
  readonly exchange: AnyExchange
  /** Null: the reply ended well. */
  readonly error: GatewayError | null
  /** Monotonic milliseconds. */
  readonly endedMs: number
  /**
   * The attempt that answered, or the last one that failed; without attempts, the one that describes the earlier
   * answer. Undefined: there is neither.
   */
  readonly last: AttemptRecord | undefined
  /** True if the caller's own credential was used, so that the provider bills the caller. */
  readonly isByok: boolean
  /** The charge for model calls and tools, without `fees`. */
  readonly cost: PicoUsd
  /** Fees of tools that are charged apart: on a BYOK credential they count as if the request used a shared key. */
  readonly fees: PicoUsd
  /**
   * The service tier that was charged, `default` for the standard one. It is the tier of the endpoint, whose prices
   * apply; with an own credential it is the tier that the provider reports, if any, because the provider sends the
   * bill. Null if there was no answer, or the request was for embeddings, which have no tier.
   */
  readonly serviceTier: string | null
}

/** Makes the end of an exchange. `error` is null if the reply ended well; `endedMs`: monotonic milliseconds of now. */
export function endOf<AnyExchange extends Exchange>(
  exchange: AnyExchange,
  error: GatewayError | null,
  endedMs: number,
): EndedExchange<AnyExchange> {
  const { bill, dialect, finish } = exchange
  const last = exchange.attempts.at(-1) ?? exchange.repeated?.attempt
  const isByok = last?.isByok === true
  const fees = isByok ? bill.tools.cost : 0
  let serviceTier: string | null = null
  if (last !== undefined && finish !== null && !DIALECT_ABILITIES[dialect].embeds) {
    const reportedTier = last.credential === null ? null : finish.serviceTier
    serviceTier = reportedTier ?? last.endpoint.serviceTier ?? 'default'
  }
  return { exchange, error, endedMs, last, isByok, cost: (bill.cost ?? 0) - fees, fees, serviceTier }
}
