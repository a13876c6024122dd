/**
 * Suspended subagents in the input of a request: finds those to resume, and removes their items from the prompt,
 * because the outer model never saw them. Pure, except for encryption.
 */
import { GatewayError } from '../../../base/errors.ts'
import type { Exchange } from '../../../exchange/exchange.ts'
import type { RequestedTool } from '../../../exchange/server-tool.ts'
import type { InputItem } from '../../../protocol/items.ts'
import type { ResponsesRequest } from '../../../protocol/request.ts'
import { functionName } from '../instances.ts'
import { openState, type StateSeal, type SuspendedSubagent } from './subagent-state.ts'

/** A subagent that continues. */
export interface Resumption {
  readonly state: SuspendedSubagent
  readonly subagent: NamedTool
  /** The conversation of its model so far, including results of its calls. */
  readonly input: readonly InputItem[]
}

interface NamedTool {
  readonly tool: RequestedTool
  readonly name: string | null
}

interface SuspendedTask {
  /** By id of the outer model's call. */
  readonly resumptions: ReadonlyMap<string, Resumption>
  /** The prompt for the outer model. */
  readonly prompt: ResponsesRequest
}

type FunctionCall = Extract<InputItem, { type: 'function_call' }>
type FunctionOutput = Extract<InputItem, { type: 'function_call_output' }>

/**
 * @throws GatewayError `invalid_request` if an item belongs to no suspended subagent, or the subagent or an output of a
 * suspended task is missing
 */
export function resumptionsOf(
  { prompt, caller }: Exchange,
  subagents: readonly NamedTool[],
  seal: StateSeal,
): SuspendedTask {
  const { input } = prompt
  if (typeof input === 'string') return { resumptions: new Map(), prompt }
  const states = new Map<string, SuspendedSubagent>()
  for (const [index, item] of input.entries()) {
    if (item.type !== 'function_call' || item.subagent_id == null) continue
    const state = states.get(item.subagent_id) ?? openState(seal, caller, item.subagent_items)
    if (state === null || state.id !== item.subagent_id || !hasCall(state, item)) {
      throw new GatewayError(
        'invalid_request',
        `input[${index}].subagent_id: is not a suspended subagent of this workspace; send all items of its response back unchanged`,
      )
    }
    states.set(state.id, state)
  }
  const outputs = new Map(
    input.flatMap((item): [string, FunctionOutput][] =>
      item.type === 'function_call_output' ? [[item.call_id, item]] : [],
    ),
  )
  const endedCalls = new Set(input.flatMap(item => (isEnded(item) ? [item['call_id']] : [])))
  const resumptions = new Map<string, Resumption>()
  for (const state of latestOf(states)) {
    if (endedCalls.has(state.callId)) continue
    const subagent = subagents.find(({ name }) => name === state.instance)
    if (subagent === undefined) {
      throw new GatewayError(
        'invalid_request',
        state.instance === null
          ? 'tools: the subagent of a suspended task is missing'
          : 'tools: no subagent has the name with which the suspended task was started',
      )
    }
    resumptions.set(state.callId, { state, subagent, input: [...state.items, ...outputsOf(state, outputs)] })
  }
  const projectedCalls = new Set(
    [...states.values()].flatMap(({ calls }) => calls.map(({ callId }) => callId)),
  )
  const items = input.flatMap((item): readonly InputItem[] => {
    if (item.type === 'function_call' && item.subagent_id != null) return []
    if (item.type === 'function_call_output' && projectedCalls.has(item.call_id)) return []
    if (!isSubagent(item)) return [item]
    return isEnded(item) ? asCall(item) : []
  })
  return { resumptions, prompt: { ...prompt, input: items } }
}

function hasCall({ calls }: SuspendedSubagent, { call_id, name }: FunctionCall): boolean {
  return calls.some(call => call.callId === call_id && call.name === name)
}

/** A task that was suspended several times continues with its last state. */
function latestOf(states: ReadonlyMap<string, SuspendedSubagent>): Iterable<SuspendedSubagent> {
  const latest = new Map<string, SuspendedSubagent>()
  for (const state of states.values()) {
    const latestKnown = latest.get(state.callId)
    if (latestKnown === undefined || latestKnown.suspensions < state.suspensions)
      latest.set(state.callId, state)
  }
  return latest.values()
}

/** The outputs of the client's functions, under the ids of the subagent's calls. */
function outputsOf(
  { calls }: SuspendedSubagent,
  outputs: ReadonlyMap<string, FunctionOutput>,
): readonly InputItem[] {
  return calls.map(({ callId, ownCallId }) => {
    const output = outputs.get(callId)
    if (output === undefined) {
      throw new GatewayError(
        'invalid_request',
        `input: the output of the call ${callId} of a suspended subagent is missing`,
      )
    }
    return { type: 'function_call_output', call_id: ownCallId, output: output.output } as InputItem
  })
}

type SubagentItem = Extract<InputItem, { type: `gateway:${string}` | `openrouter:${string}` }>

function isSubagent(item: InputItem): item is SubagentItem {
  return item.type === 'gateway:subagent' || item.type === 'openrouter:subagent'
}

function isEnded(item: InputItem): item is SubagentItem {
  return isSubagent(item) && item.status !== 'in_progress'
}

/** A finished task as a call and its result, because nothing else in the conversation may contain the outcome. */
function asCall(item: SubagentItem): readonly InputItem[] {
  const { call_id, task_name, task_description, outcome, model, error, instance_name } = item
  if (typeof call_id !== 'string') return [item]
  const result =
    error == null ? { status: 'ok', model, task_name, outcome } : { status: 'error', task_name, error }
  return [
    {
      type: 'function_call',
      call_id,
      name: functionName('subagent', typeof instance_name === 'string' ? instance_name : null),
      arguments: JSON.stringify({ task_name, task_description }),
    } as InputItem,
    { type: 'function_call_output', call_id, output: JSON.stringify(result) } as InputItem,
  ]
}
