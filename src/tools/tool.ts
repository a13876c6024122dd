/**
 * The contract of server tools: a tool that the gateway runs when the model calls it. One file per tool; table.ts lists
 * them. Types only.
 */
import type { Exchange } from '../gateway/exchange.ts'
import type { PicoUsd } from '../money.ts'
import type { GatewayTool } from '../protocol/gateway-tools.ts'

/** A function as the model sees it. */
export interface FunctionDeclaration {
  /** Letters, digits, `_` and `-`; a name that the caller uses gets a suffix. */
  readonly name: string
  readonly description: string
  /** JSON schema of the arguments. */
  readonly parameters: Readonly<Record<string, unknown>>
}

/** A call of the model, its arguments parsed. */
export interface ToolCall {
  readonly callId: string
  /** The declared name, without a suffix. */
  readonly name: string
  readonly arguments: Readonly<Record<string, unknown>>
}

/** A progress event of the item: `name` follows `response.` in its type. */
export interface ToolEvent {
  readonly name: string
  readonly fields: Readonly<Record<string, unknown>>
}

export interface ToolOutcome {
  /** Fields of the finished item, which the client sees; `status` is `completed` unless it says otherwise. */
  readonly item: Readonly<Record<string, unknown>>
  /** Text that the model gets. */
  readonly result: string
  /** Fee of the call; absent: none. */
  readonly cost?: PicoUsd
  /** Absent: the model is asked again. `end-turn`: the client has to act first. */
  readonly next?: 'ask-model' | 'end-turn'
}

export interface ServerTool {
  /** Its name in `gateway:<name>` and `openrouter:<name>`. */
  readonly name: string
  /** Fields that its item shows while the call runs. */
  begun(call: ToolCall, tool: GatewayTool): Readonly<Record<string, unknown>>
  /** Asked before each turn. */
  declare(
    tool: GatewayTool,
    exchange: Exchange,
  ): readonly FunctionDeclaration[] | Promise<readonly FunctionDeclaration[]>
  /**
   * Runs one call. Ends when the signal of the exchange fires. A failure that the model should know of is an outcome;
   * if it throws, the model gets "The tool failed" and the log the cause.
   */
  run(
    call: ToolCall,
    tool: GatewayTool,
    exchange: Exchange,
    progress: (event: ToolEvent) => void,
  ): ToolOutcome | Promise<ToolOutcome>
}
