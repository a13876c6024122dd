/**
 * The contract of a wire format: how the gateway uses one kind of provider API. Pure: no I/O, no clock, no config. A
 * format turns all output of a model into Deltas; `pipeline/answer/answer.ts` alone turns these into items, ids,
 * indexes and events.
 */
import type { GatewayError } from '../base/errors.ts'
import type { Annotation, Logprob } from '../protocol/parts.ts'
import type { Endpoint, FormatName } from '../protocol/provider.ts'
import type { DialectName, ResponsesRequest } from '../protocol/request.ts'
import type { ReasoningFormat } from './reasoning.ts'
import type { TakeMessage } from './whole-message.ts'

/** A request as an encoder sees it: validated, routed, and stripped by `outgoingRequest`. */
export interface ModelRequest {
  readonly request: ResponsesRequest
  readonly stream: boolean
  /** Keyed hash of the end user, or null; the raw `user` and `safety_identifier` are never forwarded. */
  readonly endUser: string | null
  /** The caller speaks the provider's API, which judges the marks that the caller set. Absent: it does not. */
  readonly isOwnApi?: boolean
  /** Cache marks of our own may be set where the caller sets none. Absent: they may not. */
  readonly mayMark?: boolean
  /** True if the prompt begins with one that was sent within the lifetime of a cache. Absent: it does not. */
  readonly isSeen?: () => boolean
  /** The provider's account is the caller's. Absent: it is the gateway's. */
  readonly isOwnAccount?: boolean
  /** Features of the Messages API that the caller requests, in order. Absent: none. */
  readonly betas?: readonly string[]
}

/** A field that the gateway dropped or changed on the way to a provider. */
export interface Change {
  /** The path in the request, as encoders name it in errors; `header:NAME` for a header. */
  readonly field: string
  /** `added`: the receiver needs something beside it; nothing that the caller wrote is lost. */
  readonly action: 'dropped' | 'changed' | 'moved' | 'added'
  readonly reason: string
}

/** The HTTP request to send. The path is relative to the provider's base URL and begins with a slash. */
export interface WireRequest {
  readonly path: string
  /** Headers that the format itself needs (a version, a beta flag), without authentication. Absent: none. */
  readonly headers?: Readonly<Record<string, string>>
  readonly body: Readonly<Record<string, unknown>>
  /** A field of the body that is already JSON; null or absent: the whole body is serialised. */
  readonly raw?: { readonly name: string; readonly json: string } | null
  /** True: some of its objects have a text of their own (protocol/json/as-written.ts). */
  readonly isWritten?: true
  /** Absent: all of the request goes out as the caller wrote it. */
  readonly changes?: readonly Change[]
}

/** How the bytes of a reply are divided into frames. `aws-events`: binary messages of AWS. */
export type Framing = 'sse' | 'aws-events' | 'json'

export type FinishReason =
  | 'stop'
  | 'tool_calls'
  /** The output limit or the context window was reached. */
  | 'length'
  /** The provider's filter, or the model's refusal stop, ended the reply after some output. */
  | 'content_filter'
  /** An unknown reason; the reply ended cleanly. */
  | 'other'

/** Token counts with one meaning for all providers. All are integers >= 0. */
export interface Usage {
  /** All tokens that the model read, including cache reads, cache writes and tool-use prompts. */
  readonly inputTokens: number
  readonly cachedTokens: number
  readonly cacheWriteTokens: number
  /** Cache-write tokens that stay for an hour; absent: none. */
  readonly cacheWrite1hTokens?: number
  /** The audio part of the input; absent: none. */
  readonly audioTokens?: number
  /** The part of the input that is prompts of tools which the provider ran; absent: none, or unknown. */
  readonly toolPromptTokens?: number
  /** All tokens that the model wrote, including reasoning. */
  readonly outputTokens: number
  readonly reasoningTokens: number
  /** Searches that the provider ran and may bill. */
  readonly webSearchRequests: number
}

export const ZERO_USAGE: Usage = {
  inputTokens: 0,
  cachedTokens: 0,
  cacheWriteTokens: 0,
  outputTokens: 0,
  reasoningTokens: 0,
  webSearchRequests: 0,
}

/** A new item of a tool that the provider runs. The answer makes an id if the item has none. */
export interface HostedStart {
  readonly type: string
  readonly [field: string]: unknown
}

/** The start of an output item. `id` is the provider's own if a later turn needs it, else null. */
export type ItemStart =
  | { readonly type: 'message'; readonly id: string | null; readonly phase: string | null }
  | { readonly type: 'reasoning'; readonly id: string | null; readonly format: ReasoningFormat | null }
  | {
      readonly type: 'function_call'
      readonly id: string | null
      /** Null if the provider sends none; the answer makes one. */
      readonly callId: string | null
      readonly name: string
      /** Fields that pass unchanged: `namespace`, `async`, `signature` and the like. */
      readonly extra: Readonly<Record<string, unknown>> | null
    }
  | {
      readonly type: 'custom_tool_call'
      readonly id: string | null
      readonly callId: string | null
      readonly name: string
      readonly extra: Readonly<Record<string, unknown>> | null
    }
  /** Any other kind (a tool that the provider ran), as a whole item in its in-progress form. */
  | { readonly type: 'hosted'; readonly item: HostedStart }

/**
 * A piece of a model's output. `item` is a number that the decoder chooses, unique in this reply, in order of
 * appearance; `part` counts content parts (or summary parts) of that item from 0. Several items may be open at once.
 */
export type Delta =
  /** The reply has begun. Emitted once, as soon as known. */
  | { readonly kind: 'start'; readonly upstreamId: string | null; readonly model: string | null }
  | { readonly kind: 'open'; readonly item: number; readonly start: ItemStart }
  | {
      readonly kind: 'text'
      readonly item: number
      readonly part: number
      readonly text: string
      readonly logprobs: readonly Logprob[] | null
      /** The provider began another block of text here, because its citations change. */
      readonly cut?: true
    }
  | { readonly kind: 'refusal'; readonly item: number; readonly part: number; readonly text: string }
  | {
      readonly kind: 'annotation'
      readonly item: number
      readonly part: number
      readonly annotation: Annotation
    }
  /** `text`: raw thinking; `summary`: the provider's summary of it. */
  | {
      readonly kind: 'reasoning'
      readonly item: number
      readonly form: 'text' | 'summary'
      readonly part: number
      readonly text: string
    }
  /** A piece of a function call's arguments or of a custom tool call's input. */
  | { readonly kind: 'arguments'; readonly item: number; readonly text: string }
  /**
   * A progress event of a hosted item: `name` follows `response.` in the event type, e.g. `web_search_call.searching`
   * or `code_interpreter_call_code.delta`; `fields` are its own fields, without `item_id` and `output_index`. Only
   * names of the documented event list are emitted.
   */
  | {
      readonly kind: 'progress'
      readonly item: number
      readonly name: string
      readonly fields: Readonly<Record<string, unknown>>
    }
  /**
   * The item is complete. The answer merges `fields` into the finished item: `signature`, `encrypted_content`,
   * `phase`, `status`, or for a hosted item everything in its final form. The finish closes items that are still open.
   */
  | {
      readonly kind: 'close'
      readonly item: number
      readonly fields: Readonly<Record<string, unknown>> | null
    }
  /** Cumulative: merged with an earlier one by `mergedUsage`, never summed. */
  | { readonly kind: 'usage'; readonly usage: Usage }
  /** Emitted at most once, when the end is certain. `native` is the provider's own reason. */
  | {
      readonly kind: 'finish'
      readonly reason: FinishReason
      readonly native: string | null
      readonly serviceTier: string | null
      /** The stop sequence that ended the output; absent: the provider named none. */
      readonly stopSequence?: string | null
      /** Edits of the input, in the provider's own form; absent: the provider reported none. */
      readonly appliedEdits?: readonly AppliedEdit[]
    }

/** An edit that a provider made in what the model read: its type, and counts. */
export type AppliedEdit = Readonly<Record<string, string | number>>

/** Decodes one reply. Each attempt has its own. */
export interface Decoder {
  /**
   * Reads one frame: an SSE event (`event` is '' if the stream names none), a message of AWS (`event` is its type, or
   * `exception:` and the type of the exception), or the whole JSON body (`event` '', `isWhole`). A whole body was not
   * cut, even if it has no word for its end.
   * @throws GatewayError if the frame reports a failure or has an unknown shape.
   */
  frame(event: string, data: string, isWhole?: boolean): void
  /**
   * True once the reply has reported both finish and usage, so that nothing important can follow. Written only by the
   * decoder. Absent: such a reply ends by itself.
   */
  readonly isSettled?: boolean
  /** At most this many bytes of memory are used by what the decoder will emit later; see `Withheld`. */
  readonly withheld: number
  /**
   * Call when the upstream has ended. Emits deltas that waited for it (usage, finish).
   * @throws GatewayError `provider_unavailable` if the reply had no finish: a reply that was cut off is never a
   * success.
   */
  end(): void
}

/** The computer tool of a format in which the model uses it by function calls. */
export interface ComputerUse {
  readonly name: string
  /** The action of a call's arguments, in the Responses vocabulary. */
  action(input: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>>
}

/** Token counting of one format. It is free of charge at all known providers. */
export interface TokenCounting {
  /** The call for a request that is encoded already. */
  request(wire: WireRequest, endpoint: Endpoint): WireRequest
  /** The token count in a reply; null: none. */
  tokens(reply: Readonly<Record<string, unknown>>): number | null
}

/** Summaries of conversations that the providers of a format make themselves. */
interface CompactionFormat {
  /** True: the setting turns it on. False: only a provider's row does. */
  readonly bySetting: boolean
  /**
   * The format of requests for a summary. `threshold`: the number of input tokens from which the provider makes one in
   * addition to the answer; null: a summary now, without an answer.
   */
  format(threshold: number | null): Format
}

/** One wire format. */
export interface Format {
  readonly name: FormatName
  /**
   * The client dialect with the same stream frames, so that the relay can pass them on. Unknown fields of its clients
   * are sent to the provider. Null if no dialect matches.
   */
  readonly dialect: DialectName | null
  /** True if the provider loads files by URL; otherwise they travel inside the request. */
  readonly filesByLink: boolean
  /** True if its providers cut a prompt that is too long where `truncation` is `auto`. */
  readonly truncates: boolean
  /** Types of native tools that it can express: its providers run them. */
  readonly hosts: ReadonlySet<string>
  /**
   * Support for custom tools. True: providers of this format accept them by default; false: they do not, unless the
   * provider's row says otherwise. Null: the format cannot express them. Without support, they are sent as functions.
   */
  readonly customTools: boolean | null
  /** Absent: the format has no computer use, or has items for its calls. */
  readonly computer?: ComputerUse
  /** Absent: its providers do not count tokens. */
  readonly counting?: TokenCounting
  /** Absent: its providers make no summaries. */
  readonly compaction?: CompactionFormat
  /**
   * Another API of the same provider, for a request that this format cannot express; null: not needed. Absent: there is
   * none.
   */
  readonly variant?: (request: ResponsesRequest, dialect: DialectName, endpoint: Endpoint) => Format | null
  /** False: tool search cannot be limited to domains. Default: true. */
  readonly searchesDomains?: boolean
  /**
   * Makes the request fit the provider (see preconditions/prepare.ts), and writes it.
   * @throws GatewayError `unprocessable` when this format cannot express the request.
   */
  encode(request: ModelRequest, endpoint: Endpoint): WireRequest
  framing(stream: boolean): Framing
  /**
   * `endpoint`: the source of the reply; without it, the decoder marks no reasoning as one vendor's own. `takeMessage`:
   * gets messages of a whole reply in place of their deltas, where the format can; null or absent: all comes as deltas.
   */
  decoder(emit: (delta: Delta) => void, endpoint?: Endpoint, takeMessage?: TakeMessage | null): Decoder
  /**
   * The error for a reply with a status other than 2xx. The message is the provider's, cut to 500 characters (2,000 if
   * clients of this format parse it); the caller must scrub secrets from it. `body` may be anything: JSON, HTML, empty.
   */
  failure(status: number, body: string): GatewayError
}
