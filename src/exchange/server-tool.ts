/**
 * The contract of server tools: a tool that the gateway runs when the model calls it. Tools are in features/tools, and table.ts
 * there lists them. A request that names a tool opens a session of that tool, which keeps state until the exchange ends. Types
 * only.
 */

import type { PicoUsd } from '../base/money.ts'
import type { ServerToolName } from '../protocol/gateway-tools.ts'
import type { Annotation, Citable } from '../protocol/parts.ts'
import type { ResponsesRequest } from '../protocol/request.ts'
import type { Tool } from '../protocol/tools.ts'
import type { Exchange } from './exchange.ts'

/** A server tool as the request names it: by `gateway:<name>`, or by the spelling of a provider. */
export interface RequestedTool {
  readonly type: string
  readonly parameters?: Readonly<Record<string, unknown>> | null
  readonly [field: string]: unknown
}

/** An entry of `tools` with its path for errors, e.g. `tools[2]`. */
export interface ToolEntry {
  readonly tool: RequestedTool
  readonly path: string
}

/** A function as the model sees it. */
export interface FunctionDeclaration {
  /** The entry of the request that it belongs to. */
  readonly tool: RequestedTool
  /** Letters, digits, `_` and `-`; a name that the caller uses gets a suffix. */
  readonly name: string
  readonly description: string
  /** JSON schema of the arguments. */
  readonly parameters: Readonly<Record<string, unknown>>
  /** True if description and schema come from outside, e.g. from an MCP server: guardrails check them first. */
  readonly isForeign?: boolean
}

/** The provider runs the tool itself: this form of it goes out. */
export interface NativeDeclaration {
  readonly native: Tool
}

/** The tool, which the request names in a provider's spelling, cannot run anywhere: it is left out. */
export interface MissingDeclaration {
  readonly tool: RequestedTool
  /** The reason, for the caller. */
  readonly missing: string
}

export type ToolDeclaration = FunctionDeclaration | NativeDeclaration | MissingDeclaration

/** The endpoint of the next model call, as sessions see it. */
export interface ToolEndpoint {
  /** True if the provider runs native tools of this type itself, e.g. `web_search`. */
  hosts(type: string): boolean
  /** False: its own web search cannot be limited to domains. Default: true. */
  readonly searchesDomains?: boolean
  /** True if the model is simulated. Default: false. */
  readonly isSimulated?: boolean
}

/** A call of the model, its arguments parsed. */
export interface ToolCall {
  readonly callId: string
  /** The declared name, without a suffix. */
  readonly name: string
  readonly arguments: Readonly<Record<string, unknown>>
  readonly tool: RequestedTool
}

/** A call from an earlier answer that runs before the model is called, for example an approved one. */
export interface DueCall {
  readonly tool: RequestedTool
  readonly callId: string
  /** As `declare` names the function. */
  readonly name: string
  readonly arguments: Readonly<Record<string, unknown>>
  /** Set if it does not run: the text for the model. */
  readonly refusal?: string
}

/** A progress event of the item: `name` follows `response.` in its type. */
interface ToolEvent {
  readonly name: string
  readonly fields: Readonly<Record<string, unknown>>
}

export type ToolProgress = (event: ToolEvent) => void

/** Additions of a session to the answer, besides the item of a call. */
export interface ToolDisplay {
  /** Adds a finished item to the answer, for example `mcp_list_tools`: in `declare` before the model's text. */
  item(item: { readonly type: string; readonly [field: string]: unknown }): void
  /** The next text of the model gets these annotations. */
  annotate(annotations: readonly Annotation[]): void
  /** Results of a search that later texts of the model may cite. Returns their numbers for citations. */
  cite(results: readonly Citable[]): readonly number[]
}

export interface ToolOutcome {
  /**
   * Fields of the finished item, which the client sees; `status` is `completed` unless it says otherwise. `type` is
   * that of the tool in the request unless `firstForm` says otherwise. An item that stays `in_progress` has no end in this
   * answer.
   */
  readonly item: Readonly<Record<string, unknown>>
  /** Text that the model gets. */
  readonly result: string
  /** Fee of the call; absent: none. */
  readonly cost?: PicoUsd
  /** Searches that count in `web_search_requests`; absent: 0. */
  readonly searches?: number
  /** Absent: the model is called again. `end-turn`: the client has to act first. */
  readonly next?: 'ask-model' | 'end-turn'
}

/** The calls that run before the model is called. */
export interface DueCalls {
  readonly calls: readonly DueCall[]
  /** The prompt without the parts that only the gateway understands; absent: unchanged. */
  readonly prompt?: ResponsesRequest
}

/** A server tool at work in one exchange. */
export interface ToolSession {
  /** The prompt without the parts that the session has taken over; absent: unchanged. */
  readonly prompt?: ResponsesRequest
  /** Called before each turn. Rejects with a GatewayError that ends the exchange. */
  declare(endpoint: ToolEndpoint): readonly ToolDeclaration[] | Promise<readonly ToolDeclaration[]>
  /** Another tool of the request in the form for the model now; null: not visible yet. Called after `declare`. */
  shows?(tool: Tool): Tool | null
  /** Called once, before the first turn. `endpoint`: the one that is tried first. */
  due?(endpoint: ToolEndpoint): Promise<DueCalls>
  /** The fee of a call, known before it runs; absent: none. It is owed unless the outcome contains another one. */
  fee?(call: ToolCall): PicoUsd
  /** Fields that the item of a call shows while it runs. */
  firstForm(call: ToolCall): Readonly<Record<string, unknown>>
  /**
   * True for a call that the client runs: the turn ends with it. `run` is then only called for the fields of its item.
   * Absent: the client runs no calls.
   */
  leaves?(call: ToolCall): boolean
  /**
   * Runs one call; several may run at a time. Ends when the signal fires, which is that of the exchange or the deadline
   * of the call. A failure that the model should know of is an outcome; if it throws, the model gets "The tool failed"
   * and the log the cause.
   */
  run(call: ToolCall, progress: ToolProgress, signal: AbortSignal): ToolOutcome | Promise<ToolOutcome>
  /** Calls that an earlier answer has left open, and that this request continues: they run before the first turn. */
  resumedCalls?(): readonly ToolCall[]
  /** Called once when the exchange ends, however it ends. Must not throw. */
  close?(): void
}

export interface ServerTool {
  /** Its name in `gateway:<name>` and `openrouter:<name>`. */
  readonly name: ServerToolName | 'mcp'
  /** Types of native tools of providers that it serves where the endpoint has none, e.g. `local_shell`. */
  readonly native?: readonly string[]
  /** True for another tool that needs an open session of this one, even if the request does not name this one. */
  watches?(tool: Tool): boolean
  /** Milliseconds that one call may take; default 60,000. */
  readonly runMs?: number
  /** True: requests of other tools cannot use it, because it calls models itself. */
  readonly asksModels?: boolean
  /** @throws (or rejects with) GatewayError that names the entry by its path */
  open(
    entries: readonly ToolEntry[],
    exchange: Exchange,
    display: ToolDisplay,
  ): ToolSession | Promise<ToolSession>
}
