/** Exchange: one client request from admission to account. Plugins and tools see the gateway through it. No I/O. */
import type { GatewayError } from '../errors.ts'
import type { AppliedEdit, FinishReason, WireRequest } from '../formats/format.ts'
import type { HealthEntry } from '../health/health.ts'
import { shortList } from '../lists.ts'
import type { Stopwatch } from '../metrics/stages.ts'
import type { PicoUsd, PriceFactor } from '../money.ts'
import { DIALECT_ABILITIES } from '../protocol/dialect-abilities.ts'
import type { StreamEvent } from '../protocol/events.ts'
import type { OutputItem } from '../protocol/items.ts'
import type { DataRegion } from '../protocol/management/guardrails.ts'
import type { RateSink } from '../protocol/rate.ts'
import type { CacheMiss, Caller, Reservation } from '../protocol/records.ts'
import type { DialectName, ResponsesRequest } from '../protocol/request.ts'
import type { PipelineStage, ResponseResource, RoutingStrategy } from '../protocol/response.ts'
import type { Endpoint, OutgoingKey } from '../providers/provider.ts'
import type { RequestSignal } from '../signal.ts'
import type { AttemptNotes } from '../telemetry/ended-trace.ts'
import type { ExchangeSpans, TracePlace } from '../telemetry/request-trace.ts'
import type { CallerContext } from '../telemetry/trace-context.ts'
import { Bill } from './bill.ts'
import {
  type AttemptFigures,
  type InnerCallNote,
  type PassedCandidate,
  type RankingNotes,
  type ToolCallNote,
  UNRANKED,
} from './reasons.ts'

/** Counts the memory of one request. */
export interface Held {
  /** Bytes that it holds now. */
  readonly bytes: number
  /** Counts more bytes, or fewer. False: there is no room for what the request holds now, and it should end. */
  hold(bytes: number): boolean
}

/** For values too small to be counted. */
export const UNCOUNTED: Held = { bytes: 0, hold: () => true }

/** The endpoints that streams of one exchange may rely on. */
export interface StreamTrust {
  /** True if a stream of this endpoint may reserve piece by piece. */
  isVisible(endpoint: Endpoint, request: Pick<ResponsesRequest, 'reasoning'>): boolean
  /** The exchange is over. Later calls do nothing. */
  leave(): void
}

/** Prompts that the conversation of an exchange sent before. */
export interface PromptPrefix {
  /** True if the prompt begins with one that was sent so shortly before that a cache may have it. */
  readonly isSeen: () => boolean
  /** Null: none that is known. */
  readonly miss: CacheMiss | null
}

/** The terms of a request that is a batch line. */
export interface BatchTerms {
  readonly priceFactor: PriceFactor
  /**
   * Called once, before the usage record is written; `error` is null when the reply ended well. False: no record is
   * written and nothing is charged, because the request has a record already or will be run again under its id.
   */
  accounts(exchange: Exchange, error: GatewayError | null): boolean
  /**
   * Offers the only model call of the exchange to a batch service of its provider, with the reservation. True: it has
   * the call, and the exchange ends without an account. Absent: the gateway itself asks.
   */
  readonly submit?: ((call: DeferredCall) => boolean) | undefined
  /** The reply to a call that went there before; absent: the model is asked. */
  readonly collected?: CollectedReply | undefined
}

/** A model call that may be submitted to its provider's batch service. */
export interface DeferredCall {
  readonly exchange: Exchange
  readonly attempt: AttemptRecord
  readonly wire: WireRequest
  /** The part of the caller's limits that is reserved for it. */
  readonly reserved: PicoUsd
}

/** The reply of a batch service to a call that another exchange submitted. */
export interface CollectedReply {
  /** The endpoint and the credential with which the request was submitted. */
  readonly candidate: Candidate
  /** Null: the shared key, as the row carries it. */
  readonly providerKey: OutgoingKey | null
  /** Charged with the real cost; what was reserved counts elsewhere. */
  readonly reservation: Reservation
  readonly reply: StoredReply
}

/** The reply of a batch service to a request, with its body as JSON; or the reason that there is no reply. */
export type StoredReply =
  | { readonly status: number; readonly body: string }
  | { readonly error: GatewayError }

/** A client's request as the operation passes it in, before any decision about it. */
export interface ClientRequest {
  /** Generation id: names the exchange in the reply, the `X-Generation-Id` header, logs and usage records. */
  readonly id: string
  readonly caller: Caller
  /** How the client speaks: its unknown fields go on only to a provider that speaks the same. */
  readonly dialect: DialectName
  readonly request: ResponsesRequest
  /** True when a header asked for `gateway_metadata`. */
  readonly withMetadata: boolean
  /** The region in which the data has to stay, by the host that was called; null: any. */
  readonly dataRegion: DataRegion | null
  readonly watch: Stopwatch
  /** Counts what the exchange holds, until the request is over. */
  readonly held: Held
  /** Fires when the client has gone or the total deadline has passed; its reason is a GatewayError. */
  readonly signal: RequestSignal
  /** Id of the exchange on whose behalf the gateway itself asks; absent for what a client asked. */
  readonly parent?: string | undefined
  /** Absent for what does not come from a batch. Pins of conversations do not hold in batches. */
  readonly batch?: BatchTerms | undefined
  /** Optional observer, called for every exchange that this request creates. */
  readonly witness?: Witness | undefined
  /** Absent: the client did not say, or it is no client. */
  readonly client?: ClientFacts | undefined
  /** Absent: nobody is told of limits. */
  readonly rates?: RateSink | undefined
  /** The place in the caller's own trace; absent or null: it names none. */
  readonly callerContext?: CallerContext | null
  /** Where its spans go; absent or null while traces are off. */
  readonly trace?: TracePlace | null
}

/** Facts that a client states about itself, in headers. */
export interface ClientFacts {
  readonly referer: string | undefined
  /** The name of its app. */
  readonly title: string | undefined
  readonly userAgent: string | undefined
  /** The agent that asks, and the one that it works for, in names of the client. */
  readonly agent: string | undefined
  readonly parentAgent: string | undefined
}

/** Observes the exchange of a request, and the exchanges of calls that the gateway makes for it, from their start. */
export interface Witness {
  saw(exchange: Exchange): void
}

export interface AskTerms {
  /** The exchange on whose behalf the gateway asks. */
  readonly parent: Pick<ClientRequest, 'id' | 'signal' | 'caller' | 'held' | 'witness'> & {
    readonly spans?: ExchangeSpans | null
  }
  /** Milliseconds from now until it is given up with `deadline_exceeded`. */
  readonly deadlineMs: number
}

/**
 * Calls a model of the catalogue for the gateway itself: no plugins, no own credentials, none of the caller's limits,
 * at the service's own expense. Guardrails of the parent's caller that restrict where data may go still apply. Ends
 * with the parent. Rejects with a GatewayError.
 */
export type Ask = (request: ResponsesRequest, terms: AskTerms) => Promise<ResponseResource>

export interface AskAsTerms {
  /** Milliseconds from now until it is given up with `deadline_exceeded`. */
  readonly deadlineMs: number
  /** Ends the call, beside the signal of the exchange. */
  readonly signal?: AbortSignal
  /** Takes the events of the reply as they come; absent: the reply is asked for as a whole. */
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
export interface OwnCredential {
  readonly id: string
  readonly name: string | null
  /** Masked. */
  readonly label: string
  /** The region that its owner declares; null: none. */
  readonly declaredRegion: DataRegion | 'global' | null
  /** The data policy that its owner declares; null: that of the endpoint holds. */
  readonly declaredZdr: boolean | null
}

/** One way to serve the request: an endpoint, with the service's own key or with a key of the caller's workspace. */
export interface Candidate {
  readonly endpoint: Endpoint
  /** The workspace's own provider credential; null: the shared key. */
  readonly credential: OwnCredential | null
  /** The health of the endpoint with this key, as ranking found it; absent: ranking has not looked it up. */
  state?: { readonly isOpen: boolean }
}

/** The record of one attempt at one candidate. */
export interface AttemptRecord extends Candidate, AttemptFigures {
  readonly isByok: boolean
  /** Null where the row carries the shared key as it is, and as long as another one is not opened. */
  providerKey: OutgoingKey | null
  /** The provider's own id of its reply. */
  upstreamId: string | null
  /** HTTP status of the provider; null when none arrived. */
  status: number | null
  error: GatewayError | null
  /** The gateway refused what the provider said; the provider bills it all the same. */
  isRefused: boolean
  /** The request was handed to the transport. */
  isStarted: boolean
  /** Another attempt of the same model call answered first, so this one was closed. */
  isOutrun?: true
  /** For its span; absent while traces are off. */
  span?: AttemptNotes
  /** Takes the report on its outcome; absent for a reply that was stored. */
  health?: HealthEntry
}

/** How a model ended its reply. */
export interface Finish {
  readonly reason: FinishReason
  /** The provider's own name for it. */
  readonly native: string | null
  readonly serviceTier: string | null
  /** The stop sequence that the provider found; absent: it said none. */
  readonly stopSequence?: string | null
  /** Edits of the prompt that the provider made; absent: it said none. */
  readonly appliedEdits?: readonly AppliedEdit[]
}

/** One model call that counts, as plugins judge it. */
export interface Turn {
  readonly attempt: AttemptRecord
  /** Final items, in their order. */
  readonly output: readonly OutputItem[]
  readonly finish: FinishReason
  /** 1 for the first turn of the exchange. */
  readonly number: number
}

const NO_NAMES: ReadonlySet<string> = new Set()
const NOBODY: readonly never[] = []

function openSpans(asked: ClientRequest, { request, parentId }: TracePlace): ExchangeSpans {
  const operation = DIALECT_ABILITIES[asked.dialect].embeds ? 'embeddings' : 'chat'
  return request.open(asked, operation, parentId)
}

export class Exchange implements ClientRequest {
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
  readonly witness: Witness | undefined
  readonly client: ClientFacts | undefined
  readonly rates: RateSink | undefined
  readonly callerContext: CallerContext | null
  /** Null while traces are off. */
  readonly spans: ExchangeSpans | null
  /** Unix seconds. */
  readonly createdAt: number
  /** The request as guardrails, plugins and turns have rewritten it. */
  prompt: ResponsesRequest
  /** True when a guardrail of the caller forbids storing anything from it. */
  zeroRetention = false
  /** Actions of guardrails and plugins, in order. */
  readonly pipeline: PipelineStage[] = []
  /** Fields of the caller that the provider asked last has no form for; noted where the metadata is asked for. */
  leftOut: readonly string[] = []
  /** All candidates, in the order in which they are tried. */
  candidates: readonly Candidate[] = []
  /** Tokens, about, that plugins have cut out of the prompt. */
  removedTokens = 0
  /** Server tools that the caller's workspace has disabled; looked up only for a request that comes to any. */
  disabledTools: ReadonlySet<string> = NO_NAMES
  /** Null: nothing of the conversation is remembered. */
  prefix: PromptPrefix | null = null
  /** How the model was chosen. */
  strategy: RoutingStrategy
  /** The router that the request names, in our spelling; null: it names models. */
  router: string | null = null
  /** Told of each model that has answered; null: nobody asks. */
  onModel: ((modelId: string) => void) | null = null
  readonly attempts: AttemptRecord[] = shortList()
  /** How routing came to its candidates. */
  ranking: RankingNotes = UNRANKED
  /** Candidates that must not be asked when it was their turn. */
  passedOver: readonly PassedCandidate[] = NOBODY
  /** Calls of server tools, and model calls for them; null: none has ended. */
  toolCalls: ToolCallNote[] | null = null
  innerCalls: InnerCallNote[] | null = null
  readonly bill: Bill
  /** Of the last turn; null when it failed. */
  finish: Finish | null = null
  /** Monotonic milliseconds of the first content; null before. */
  firstTokenMs: number | null = null
  /** The limits of the caller refused it: it leaves no usage record. */
  overLimit = false
  /** The reservation by the limits of the caller; null before admission. */
  reservation: Reservation | null = null
  /** Endpoints on which its streams may rely to reserve piece by piece; null before admission or without limits. */
  trust: StreamTrust | null = null
  /**
   * For a plugin that asks other models before routing: resolves when somebody may serve the request and the caller's
   * limits allow it, so that nothing is spent on one that would be refused. Rejects with the reason.
   */
  admitEarly: (() => Promise<void>) | null = null

  constructor(asked: ClientRequest, createdAt: number) {
    this.id = asked.id
    this.caller = asked.caller
    this.dialect = asked.dialect
    this.request = asked.request
    this.withMetadata = asked.withMetadata
    this.dataRegion = asked.dataRegion
    this.watch = asked.watch
    this.held = asked.held
    this.signal = asked.signal
    this.parent = asked.parent
    this.batch = asked.batch
    this.witness = asked.witness
    this.client = asked.client
    this.rates = asked.rates
    this.callerContext = asked.callerContext ?? null
    const { trace } = asked
    this.spans = trace == null ? null : openSpans(asked, trace)
    this.bill = new Bill(asked.batch?.priceFactor)
    this.createdAt = createdAt
    this.prompt = asked.request
    this.strategy = (asked.request.models?.length ?? 0) > 0 ? 'fallback' : 'direct'
    this.witness?.saw(this)
  }
}
