/** How long the turns of one answer may go on: `max_tool_calls` and `stop_server_tools_when`. Pure. */
import { UNITS_PER_USD } from '../money.ts'
import { TOOL_STEPS_MAX } from '../protocol/limits.ts'
import type { ResponsesRequest, StopCondition } from '../protocol/request.ts'
import type { Bill } from './bill.ts'
import type { Finish } from './exchange.ts'

/** Bounds a request whose own conditions never hold. */
const CONDITIONED_CALLS_MAX = 4 * TOOL_STEPS_MAX

/** A turn with calls of server tools, as the conditions see it. */
export interface ToolTurn {
  readonly bill: Bill
  readonly finish: Finish
  /** Names and types of the tools that it called. */
  readonly called: readonly string[]
}

export class ToolBudget {
  #callsLeft: number
  readonly #conditions: readonly StopCondition[]

  constructor(calls: number, conditions: readonly StopCondition[]) {
    this.#callsLeft = calls
    this.#conditions = conditions
  }

  /** True when one more call may run. */
  takeCall(): boolean {
    if (this.#callsLeft <= 0) return false
    this.#callsLeft--
    return true
  }

  /** True when the next turn has to be the last, without tools. Asked after the calls of a turn have run. */
  isSpent(turn: ToolTurn): boolean {
    return this.#callsLeft <= 0 || this.#conditions.some(condition => holds(condition, turn))
  }
}

/** `stop_server_tools_when` replaces `max_tool_calls`. */
export function budgetOf({ max_tool_calls, stop_server_tools_when: stop }: ResponsesRequest): ToolBudget {
  if (stop === undefined) return new ToolBudget(max_tool_calls ?? TOOL_STEPS_MAX, [])
  return new ToolBudget(CONDITIONED_CALLS_MAX, Array.isArray(stop) ? stop : [stop])
}

function holds(condition: StopCondition, { bill, finish, called }: ToolTurn): boolean {
  const { total } = bill
  switch (condition.type) {
    case 'step_count_is':
      return bill.turns >= condition.step_count
    case 'has_tool_call':
      return called.includes(condition.tool_name)
    case 'max_tokens_used':
      return total !== null && total.usage.inputTokens + total.usage.outputTokens >= condition.max_tokens
    case 'max_cost':
      // Dollars are no binary fractions: 0.017 of them would come to a fraction of a unit more.
      return (bill.cost ?? 0) >= Math.round(condition.max_cost_in_dollars * UNITS_PER_USD)
    case 'finish_reason_is':
      return condition.reason === finish.reason || condition.reason === finish.native
  }
}
