/** Server-tool calls: removes them from a reply before the client sees it, and limits their number. Pure. */

import { itemId } from '../../base/ids.ts'
import { UNITS_PER_USD } from '../../base/money.ts'
import type { Bill } from '../../exchange/bill.ts'
import type { Finish } from '../../exchange/exchange.ts'
import type { RequestedTool, ServerTool, ToolEndpoint, ToolSession } from '../../exchange/server-tool.ts'
import type { Format, ItemStart } from '../../formats/format.ts'
import { LongText } from '../../formats/long-text.ts'
import { preconditionsOf } from '../../formats/preconditions/table.ts'
import { serverToolName } from '../../protocol/gateway-tools.ts'
import type { InputItem, OutputItem } from '../../protocol/items.ts'
import { TOOL_STEPS_MAX } from '../../protocol/limits.ts'
import type { Endpoint } from '../../protocol/provider.ts'
import type { ResponsesRequest, StopCondition } from '../../protocol/request.ts'
import type { Content } from '../answer/answer.ts'
import type { CallerName } from './namespaces.ts'

type CallStart = Extract<ItemStart, { type: 'function_call' }>

/** A function that the model sees for a server tool. */
export interface DeclaredFunction {
  readonly server: ServerTool
  readonly session: ToolSession
  /** The entry of the request. */
  readonly tool: RequestedTool
  /** The declared name, without the suffix that keeps it apart from others. */
  readonly name: string
}

/** The endpoint, as sessions of server tools see it. */
export function toolEndpointOf(
  { provider }: Pick<Endpoint, 'provider'>,
  { hosts, searchesDomains = true }: Format,
): ToolEndpoint {
  const runsTools = !provider.quirks.includes('no-native-tools')
  const isSimulated = provider.quirks.includes('simulated')
  return { hosts: type => runsTools && hosts.has(type), searchesDomains, isSimulated }
}

/** The same for a request, whose functions may exclude tools that the provider runs. */
export function toolEndpointFor(
  { tools }: ResponsesRequest,
  endpoint: Endpoint,
  format: Format,
): ToolEndpoint {
  const toolEndpoint = toolEndpointOf(endpoint, format)
  if (preconditionsOf(format.name, endpoint).hosted !== 'alone') return toolEndpoint
  const hasOthers = tools?.some(({ type }) => !toolEndpoint.hosts(serverToolName(type) ?? type)) === true
  return hasOthers ? { ...toolEndpoint, hosts: () => false } : toolEndpoint
}

/** A call of a server tool as the model made it. */
export interface PendingCall {
  /** Null if there is no function of this name. */
  readonly declaration: DeclaredFunction | null
  readonly callId: string
  /** JSON, as the model wrote it. */
  readonly arguments: LongText
  readonly start: CallStart
  fields: Readonly<Record<string, unknown>> | null
}

/** The rules for unknown calls and for calls that the client runs. */
interface ToolCallTerms {
  /** True if the caller has no functions, so that an undeclared name is a mistake by the model. */
  readonly takesUnknown?: boolean
  /** True if calls for the client wait for the server tools that the model called before them. */
  readonly holdsCalls?: boolean
}

const SAME_NAMES: ReadonlyMap<string, CallerName> = new Map()

export class ToolCalls {
  readonly #functions: ReadonlyMap<string, DeclaredFunction>
  readonly #terms: ToolCallTerms
  readonly #open = new Map<number, PendingCall>()
  /** In the order of the model's calls. */
  readonly pending: PendingCall[] = []
  /** The gateway's names of tools, keyed by the names that the model sees, where the two differ. */
  #names: ReadonlyMap<string, CallerName> = SAME_NAMES
  readonly #heldDeltas: Content[] = []
  readonly #heldItems = new Set<number>()

  /** `functions`: server tools by the name that the model sees. */
  constructor(functions: ReadonlyMap<string, DeclaredFunction>, terms: ToolCallTerms = {}) {
    this.#functions = functions
    this.#terms = terms
  }

  /** Call it before the reply if the provider gets some tools under other names. */
  useNames(names: ReadonlyMap<string, CallerName>): void {
    this.#names = names
  }

  /** True if calls for the client are waiting. */
  get hasHeld(): boolean {
    return this.#heldDeltas.length > 0
  }

  /** Releases the waiting calls, and returns their deltas. */
  release(): readonly Content[] {
    this.#heldItems.clear()
    return this.#heldDeltas.splice(0)
  }

  /** True if the delta belongs to a server-tool call, or to a call that waits. */
  intercept(delta: Content): boolean {
    if (delta.kind === 'open') {
      const { type } = delta.start
      if (type !== 'function_call') return type === 'custom_tool_call' && this.#isHeld(delta)
      const callerName = this.#names.get(delta.start.name)
      const name = callerName?.namespace === null ? callerName.name : delta.start.name
      const declaration = this.#functions.get(name) ?? null
      if (declaration === null && this.#terms.takesUnknown !== true) return this.#isHeld(delta)
      const callId = delta.start.callId ?? itemId('fc').replace('fc_', 'call_')
      const call: PendingCall = {
        declaration,
        callId,
        arguments: new LongText(),
        start: name === delta.start.name ? delta.start : { ...delta.start, name },
        fields: null,
      }
      this.#open.set(delta.item, call)
      this.pending.push(call)
      return true
    }
    const call = this.#open.get(delta.item)
    if (call === undefined) {
      if (!this.#heldItems.has(delta.item)) return false
      this.#heldDeltas.push(delta)
      return true
    }
    if (delta.kind === 'arguments') call.arguments.add(delta.text)
    else if (delta.kind === 'close') {
      call.fields = delta.fields
      // A call that was cut is not run.
      if (call.fields?.['status'] === 'incomplete') this.pending.splice(this.pending.indexOf(call), 1)
    }
    return true
  }

  /** Holds a call for the client if it comes after a server-tool call, because items keep the model's order. */
  #isHeld(delta: Content & { readonly item: number }): boolean {
    if (this.#terms.holdsCalls !== true || this.pending.length === 0) return false
    this.#heldItems.add(delta.item)
    this.#heldDeltas.push(delta)
    return true
  }
}

/** Builds the item for a call, as the model gets it back and plugins judge it. */
export function callItem({
  callId,
  arguments: callArguments,
  start,
  fields,
}: PendingCall): OutputItem & InputItem {
  return {
    ...start.extra,
    ...fields,
    id: start.id ?? itemId('fc'),
    type: 'function_call',
    status: 'completed',
    call_id: callId,
    name: start.name,
    arguments: callArguments.length === 0 ? '{}' : callArguments.toString(),
  } as OutputItem & InputItem
}

/** Limit for a request whose own conditions never apply. */
const CONDITIONED_CALLS_MAX = 4 * TOOL_STEPS_MAX

/** A turn with server-tool calls, as the stop conditions see it. */
export interface ToolTurn {
  readonly bill: Bill
  readonly finish: Finish
  /** Names and types of the tools that were called. */
  readonly calledNames: readonly string[]
}

export class ToolBudget {
  #callsLeft: number
  readonly #conditions: readonly StopCondition[]

  constructor(calls: number, conditions: readonly StopCondition[]) {
    this.#callsLeft = calls
    this.#conditions = conditions
  }

  /** True if one more call may run. */
  takeCall(): boolean {
    if (this.#callsLeft <= 0) return false
    this.#callsLeft--
    return true
  }

  /** True if the next turn must be the last, without tools. Call it after the calls of a turn have run. */
  isSpent(turn: ToolTurn): boolean {
    return this.#callsLeft <= 0 || this.#conditions.some(condition => isMet(condition, turn))
  }
}

/** The budget of tool calls: `stop_server_tools_when` replaces `max_tool_calls`. */
export function budgetOf({ max_tool_calls, stop_server_tools_when: stop }: ResponsesRequest): ToolBudget {
  if (stop == null) return new ToolBudget(max_tool_calls ?? TOOL_STEPS_MAX, [])
  return new ToolBudget(CONDITIONED_CALLS_MAX, Array.isArray(stop) ? stop : [stop])
}

function isMet(condition: StopCondition, { bill, finish, calledNames }: ToolTurn): boolean {
  switch (condition.type) {
    case 'step_count_is':
      return bill.turns >= condition.step_count
    case 'has_tool_call':
      return calledNames.includes(condition.tool_name)
    case 'max_tokens_used':
      return bill.tokens >= condition.max_tokens
    case 'max_cost':
      // Rounded, because decimal dollars have no exact binary form: 0.017 would exceed its units by a fraction.
      return (bill.cost ?? 0) + bill.inner.cost >= Math.round(condition.max_cost_in_dollars * UNITS_PER_USD)
    case 'finish_reason_is':
      return condition.reason === finish.reason || condition.reason === finish.native
  }
}
