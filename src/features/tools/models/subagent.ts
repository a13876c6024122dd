/**
 * The subagent server tool: the model gives a task to another model, which sees only the task and may have tools. A
 * subagent that calls the client's functions is suspended until they have run; subagent-replay.ts resumes it.
 */
import { GatewayError } from '../../../base/errors.ts'
import { itemId, randomText } from '../../../base/ids.ts'
import type { AskAs, Exchange } from '../../../exchange/exchange.ts'
import type {
  FunctionDeclaration,
  RequestedTool,
  ServerTool,
  ToolCall,
  ToolDisplay,
  ToolEntry,
  ToolOutcome,
  ToolSession,
} from '../../../exchange/server-tool.ts'
import { DIALECT_ABILITIES } from '../../../protocol/dialect-abilities.ts'
import type { InputItem, OutputItem } from '../../../protocol/items.ts'
import { objectSchema } from '../../../protocol/json/object-schema.ts'
import type { ResponseResource } from '../../../protocol/response.ts'
import type { Tool } from '../../../protocol/tools.ts'
import { functionName, instanceNames } from '../instances.ts'
import { cutText, innerFailure, replyText } from './inner-reply.ts'
import {
  createInnerTerms,
  type InnerSettings,
  type InnerTerms,
  isWithheld,
  outerModel,
} from './inner-request.ts'
import { type Resumption, resumptionsOf } from './subagent-replay.ts'
import { type ProjectedCall, type StateSeal, type SuspendedSubagent, sealState } from './subagent-state.ts'

interface SubagentDeps {
  readonly askAs: AskAs
  readonly seal: StateSeal
  readonly tools: ReadonlyMap<string, ServerTool>
}

interface SubagentSettings extends InnerSettings {
  readonly instructions?: string | null
  readonly inherit_functions?: boolean | null
  readonly inherited_function_names?: readonly string[] | null
}

type FunctionTool = Extract<Tool, { type: 'function' }>

interface Subagent {
  readonly tool: RequestedTool
  readonly name: string | null
  readonly settings: SubagentSettings
  readonly terms: InnerTerms
  /** The client's functions that it may call. */
  readonly functions: readonly FunctionTool[]
}

const DEFAULT_TOOL_STEPS = 10
const MAX_OUTCOME_CHARS = 150_000
const MAX_TASK_NAME_CHARS = 256
/** A larger limit of the request is not passed to subagents: nearly every model can write this much, but not more. */
const MAX_SHARED_LIMIT_TOKENS = 8_192
/** Maximum suspensions of one task, which then fails. */
const MAX_SUSPENSIONS = 30
const RUN_TIMEOUT_MS = 300_000
/** The call ends before the tool's time limit, so that the model learns the reason. */
const MODEL_TIMEOUT_MS = 290_000

const DEFAULT_INSTRUCTIONS =
  'You work on one task for another model. Do it, then report the outcome: what you found or did, and what is missing.'

export function createSubagent(deps: SubagentDeps): ServerTool {
  const termsOf = createInnerTerms(deps.tools)
  return {
    name: 'subagent',
    asksModels: true,
    runMs: RUN_TIMEOUT_MS,
    open(entries, exchange, display) {
      const names = instanceNames('subagent', entries)
      const subagents = entries.map((entry, index) =>
        subagentOf(entry, names[index] ?? null, exchange, termsOf),
      )
      const { resumptions, prompt } = resumptionsOf(exchange, subagents, deps.seal)
      return { prompt, ...sessionOf(deps, subagents, resumptions, exchange, display) }
    },
  }
}

function subagentOf(
  { tool, path }: ToolEntry,
  name: string | null,
  exchange: Exchange,
  termsOf: ReturnType<typeof createInnerTerms>,
): Subagent {
  const settings = (tool.parameters ?? {}) as SubagentSettings
  const { model, tools, max_tool_calls, max_completion_tokens, reasoning, temperature } = settings
  const inner = { model, tools, max_completion_tokens, reasoning, temperature } as InnerSettings
  return {
    tool,
    name,
    settings,
    terms: {
      ...termsOf(inner, `${path}.parameters`),
      max_tool_calls: max_tool_calls ?? DEFAULT_TOOL_STEPS,
    },
    functions: inheritedTools(settings, exchange, `${path}.parameters`),
  }
}

/** @throws GatewayError `invalid_request` */
function inheritedTools(
  { inherit_functions: inheritsAll, inherited_function_names: names }: SubagentSettings,
  { dialect, prompt }: Exchange,
  path: string,
): readonly FunctionTool[] {
  const field = names == null ? 'inherit_functions' : 'inherited_function_names'
  if (inheritsAll !== true && names == null) return []
  if (!DIALECT_ABILITIES[dialect].innerFunctions) {
    throw new GatewayError('invalid_request', `${path}.${field}: works only with POST /v1/responses`)
  }
  if (inheritsAll === false) return []
  const functions = (prompt.tools ?? []).filter((tool): tool is FunctionTool => tool.type === 'function')
  if (names == null) return functions
  const byName = new Map(functions.toReversed().map(tool => [tool.name, tool]))
  return names.map((name, index) => {
    const inherited = byName.get(name)
    if (inherited !== undefined) return inherited
    throw new GatewayError(
      'invalid_request',
      `${path}.${field}[${index}]: tools contains no function with this name`,
    )
  })
}

/** The token limit of the request, if it is so small that every subagent's model supports it. */
function callerLimit({
  request: { max_output_tokens: requestLimit },
}: Exchange): Pick<InnerTerms, 'max_output_tokens'> {
  return requestLimit == null || requestLimit > MAX_SHARED_LIMIT_TOKENS
    ? {}
    : { max_output_tokens: requestLimit }
}

function sessionOf(
  { askAs, seal }: SubagentDeps,
  subagents: readonly Subagent[],
  resumptions: ReadonlyMap<string, Resumption>,
  exchange: Exchange,
  display: ToolDisplay,
): ToolSession {
  const subagentOfCall = ({ tool }: ToolCall): Subagent => {
    const subagent = subagents.find(candidate => candidate.tool === tool)
    if (subagent === undefined) throw new TypeError('the call belongs to no entry of the request')
    return subagent
  }
  return {
    resumedCalls: () =>
      [...resumptions.values()].map(({ state, subagent }) => ({
        callId: state.callId,
        name: functionName('subagent', state.instance),
        arguments: { task_name: state.taskName, task_description: state.taskDescription },
        tool: subagent.tool,
      })),
    declare: () => subagents.map(declaration),
    firstForm: call => itemFields(call, subagentOfCall(call)),
    async run(call, _progress, signal) {
      const subagent = subagentOfCall(call)
      const { settings, terms, functions } = subagent
      const fields = itemFields(call, subagent)
      const task = textArgument(call, 'task_description')
      if (task === '') return failedOutcome(fields, 'task_description: is required')
      const resumption = resumptions.get(call.callId)
      const input = resumption?.input ?? [{ type: 'message', role: 'user', content: task } as InputItem]
      const tools = [...(terms.tools ?? []), ...functions]
      const model = settings.model ?? outerModel(exchange)
      try {
        const reply = await askAs(
          exchange,
          {
            ...callerLimit(exchange),
            ...terms,
            // A resumed subagent is called before the outer model, so no model has been chosen yet.
            model: model === '' ? (exchange.prompt.models?.[0] ?? '') : model,
            instructions: settings.instructions ?? DEFAULT_INSTRUCTIONS,
            input: [...input],
            ...(tools.length === 0 ? {} : { tools }),
          },
          { deadlineMs: MODEL_TIMEOUT_MS, signal },
        )
        const calls = reply.output.filter(isFunctionCall)
        const functionNames = new Set(functions.map(inherited => inherited.name))
        if (calls.length === 0) return finishedOutcome(fields, reply, isWithheld(exchange))
        if (calls.some(called => !functionNames.has(called.name))) {
          return failedOutcome(fields, 'The subagent called a function that it does not have')
        }
        const suspensions = (resumption?.state.suspensions ?? 0) + 1
        if (suspensions > MAX_SUSPENSIONS)
          return failedOutcome(fields, 'The subagent called functions too often')
        const state = suspendedState(
          call,
          subagent,
          [...input, ...(reply.output as InputItem[])],
          calls,
          suspensions,
        )
        const ciphertext = sealState(seal, exchange.caller, state)
        if (ciphertext === null)
          return failedOutcome(fields, 'The work so far is too long to be continued later')
        showCalls(display, state, calls, ciphertext)
        return { item: { ...fields, status: 'in_progress' }, result: '', next: 'end-turn' }
      } catch (thrown) {
        exchange.signal.throwIfAborted()
        return failedOutcome(fields, innerFailure(thrown).error)
      }
    },
  }
}

function declaration({ tool, name, settings }: Subagent): FunctionDeclaration {
  const purpose =
    settings.instructions == null ? '' : ` Its instructions: ${settings.instructions.slice(0, 500)}`
  return {
    tool,
    name: functionName('subagent', name),
    description: `Gives a task to a subagent, another model. It sees nothing but the description of the task, and reports the outcome.${purpose}`,
    parameters: objectSchema(['task_name', 'task_description'], {
      task_name: { type: 'string', description: 'A short name of the task' },
      task_description: { type: 'string', description: 'The task, with all that the subagent has to know' },
    }),
  }
}

type Fields = Readonly<Record<string, unknown>>

function itemFields(call: ToolCall, { name }: Subagent): Fields {
  return {
    call_id: call.callId,
    task_name: textArgument(call, 'task_name').slice(0, MAX_TASK_NAME_CHARS),
    task_description: textArgument(call, 'task_description'),
    ...(name === null ? {} : { name, instance_name: name }),
  }
}

function textArgument({ arguments: callArguments }: ToolCall, name: string): string {
  const value = callArguments[name]
  return typeof value === 'string' ? value.trim() : ''
}

function finishedOutcome(fields: Fields, reply: ResponseResource, withheld: boolean): ToolOutcome {
  const { model } = reply
  const outcome = cutText(replyText(reply), MAX_OUTCOME_CHARS)
  if (outcome === '') return failedOutcome({ ...fields, model }, 'The subagent gave no answer')
  return {
    item: { ...fields, model, ...(withheld ? {} : { outcome }) },
    result: JSON.stringify({ status: 'ok', model, task_name: fields['task_name'], outcome }),
  }
}

function failedOutcome(fields: Fields, error: string): ToolOutcome {
  return {
    item: { ...fields, status: 'failed', error },
    result: JSON.stringify({ status: 'error', task_name: fields['task_name'], error }),
  }
}

type FunctionCallItem = OutputItem & {
  readonly type: 'function_call'
  readonly call_id: string
  readonly name: string
  readonly arguments: string
}

function isFunctionCall(item: OutputItem): item is FunctionCallItem {
  return item.type === 'function_call'
}

function suspendedState(
  call: ToolCall,
  { name }: Subagent,
  items: readonly InputItem[],
  calls: readonly FunctionCallItem[],
  suspensions: number,
): SuspendedSubagent {
  return {
    id: `sub_${randomText(24)}`,
    callId: call.callId,
    taskName: textArgument(call, 'task_name'),
    taskDescription: textArgument(call, 'task_description'),
    instance: name,
    items,
    // The calls get new ids, because the model's own may equal ids of other calls in the answer.
    calls: calls.map(
      (call): ProjectedCall => ({
        callId: `call_${randomText(24)}`,
        ownCallId: call.call_id,
        name: call.name,
      }),
    ),
    suspensions,
  }
}

/** Shows the subagent's calls as calls for the client. The first one carries the state. */
function showCalls(
  display: ToolDisplay,
  state: SuspendedSubagent,
  calls: readonly FunctionCallItem[],
  ciphertext: readonly Readonly<Record<string, unknown>>[],
): void {
  for (const [index, call] of calls.entries()) {
    display.item({
      type: 'function_call',
      id: itemId('fc'),
      status: 'completed',
      call_id: state.calls[index]?.callId,
      name: call.name,
      arguments: call.arguments,
      subagent_id: state.id,
      ...(index === 0 ? { subagent_items: ciphertext } : {}),
    })
  }
}
