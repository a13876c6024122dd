/**
 * The contract of a wire format: how one kind of provider API is spoken. Pure: no I/O, no clock, no config.
 * Everything a model says reaches the rest of the gateway as Deltas; `gateway/answer/assemble.ts` alone turns them
 * into items, ids, indexes and events.
 */
import type { GatewayError } from '../errors.ts'
import type { Annotation, Logprob } from '../protocol/items.ts'
import type { DialectName, ResponsesRequest } from '../protocol/request.ts'
import type { Endpoint, FormatName } from '../providers/provider.ts'
import type { ReasoningFormat } from './reasoning-format.ts'

/** A request as an encoder sees it: validated, routed, and stripped by `outgoingRequest`. */
export interface ModelRequest {
  readonly request: ResponsesRequest
  readonly stream: boolean
  /** Keyed hash of the end user, or null; the raw `user` and `safety_identifier` are never forwarded. */
  readonly endUser: string | null
}

/** What to send. The path is relative to the provider's base URL and begins with a slash. */
export interface WireRequest {
  readonly path: string
  /** Headers the format itself needs (a version, a beta flag); authentication is not among them. Absent: none. */
  readonly headers?: Readonly<Record<string, string>>
  readonly body: Readonly<Record<string, unknown>>
}

/** How the reply's bytes are cut into frames. */
export type Framing = 'sse' | 'json'

export type FinishReason =
  | 'stop'
  | 'tool_calls'
  /** The output limit or the context window was reached. */
  | 'length'
  /** The provider's filter, or the model's refusal stop, ended the reply after some output. */
  | 'content_filter'
  /** A reason we do not know; the reply ended cleanly. */
  | 'other'

/** Tokens brought to one meaning, whatever a provider counts where. All counts are integers >= 0. */
export interface Usage {
  /** Everything the model read: cache reads and writes and tool-use prompts included. */
  readonly inputTokens: number
  readonly cachedTokens: number
  readonly cacheWriteTokens: number
  /** Everything it wrote, reasoning included. */
  readonly outputTokens: number
  readonly reasoningTokens: number
  /** Searches that the provider ran and may bill. */
  readonly webSearchRequests: number
}

/** An item that a provider executed, as it begins. Without an id of its own it gets one from the assembler. */
export interface HostedStart {
  readonly type: string
  readonly [field: string]: unknown
}

/** The beginning of an output item. `id` is the provider's own, kept when it must survive a later turn. */
export type ItemStart =
  | { readonly type: 'message'; readonly id: string | null; readonly phase: string | null }
  | { readonly type: 'reasoning'; readonly id: string | null; readonly format: ReasoningFormat | null }
  | {
      readonly type: 'function_call'
      readonly id: string | null
      /** Null when the provider gives none; the assembler makes one. */
      readonly callId: string | null
      readonly name: string
      /** Fields kept as they came: `namespace`, `async`, `signature` and the like. */
      readonly extra: Readonly<Record<string, unknown>> | null
    }
  | {
      readonly type: 'custom_tool_call'
      readonly id: string | null
      readonly callId: string | null
      readonly name: string
      readonly extra: Readonly<Record<string, unknown>> | null
    }
  /** Any other kind (what a provider executed on its side), as a whole item in its in-progress form. */
  | { readonly type: 'hosted'; readonly item: HostedStart }

/**
 * What a model said. `item` is a number the decoder chooses, unique in this reply, in order of appearance;
 * `part` counts content parts (or summary parts) of that item from 0. Several items may be open at once.
 */
export type Delta =
  /** First sign of life; emitted once, as soon as known. */
  | { readonly kind: 'start'; readonly upstreamId: string | null; readonly model: string | null }
  | { readonly kind: 'open'; readonly item: number; readonly start: ItemStart }
  | {
      readonly kind: 'text'
      readonly item: number
      readonly part: number
      readonly text: string
      readonly logprobs: readonly Logprob[] | null
    }
  | { readonly kind: 'refusal'; readonly item: number; readonly part: number; readonly text: string }
  | {
      readonly kind: 'annotation'
      readonly item: number
      readonly part: number
      readonly annotation: Annotation
    }
  /** `text`: raw thinking; `summary`: what the provider calls a summary. */
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
   * A progress event of a hosted item: `name` is what follows `response.` in the event type, e.g.
   * `web_search_call.searching` or `code_interpreter_call_code.delta`; `fields` are its own fields beside
   * `item_id` and `output_index`. Only names of the documented event list are emitted.
   */
  | {
      readonly kind: 'progress'
      readonly item: number
      readonly name: string
      readonly fields: Readonly<Record<string, unknown>>
    }
  /**
   * The item is complete. `fields` are merged into the finished item: `signature`, `encrypted_content`, `phase`,
   * `status`, or for a hosted item everything in its final form. Items still open at the finish are closed then.
   */
  | {
      readonly kind: 'close'
      readonly item: number
      readonly fields: Readonly<Record<string, unknown>> | null
    }
  /** Replaces what an earlier usage delta said; never summed. */
  | { readonly kind: 'usage'; readonly usage: Usage }
  /** Emitted at most once, when the end is certain; `native` is the provider's own word. */
  | {
      readonly kind: 'finish'
      readonly reason: FinishReason
      readonly native: string | null
      readonly serviceTier: string | null
    }

/** The state of one reply; created per attempt, never shared. */
export interface Decoder {
  /**
   * Takes one frame: an SSE event (`event` is '' when the stream names none) or the whole JSON body (`event` '').
   * @throws GatewayError when the frame says that the request failed, or cannot be understood.
   */
  frame(event: string, data: string): void
  /**
   * The upstream has ended. Emits what was held back (usage, finish).
   * @throws GatewayError `provider_unavailable` when no finish was seen: a cut reply is never a success.
   */
  end(): void
}

export interface Format {
  readonly name: FormatName
  /**
   * The client dialect whose stream frames are this format's own: such frames can be relayed as they come, and
   * unknown fields of such callers go on. Null when no dialect speaks like it.
   */
  readonly dialect: DialectName | null
  /** True when a file may be given by its address; otherwise it has to travel inside the request. */
  readonly filesByLink: boolean
  /** @throws GatewayError `unprocessable` when the request holds something this format cannot express. */
  encode(request: ModelRequest, endpoint: Endpoint): WireRequest
  framing(stream: boolean): Framing
  /** `endpoint`: where the reply comes from; without it, reasoning is not marked as one vendor's own. */
  decoder(emit: (delta: Delta) => void, endpoint?: Endpoint): Decoder
  /**
   * What a reply with a status other than 2xx means. The message is the provider's, cut to 500 characters;
   * the caller scrubs secrets from it. `body` may be anything: JSON, HTML, empty.
   */
  failure(status: number, body: string): GatewayError
}
