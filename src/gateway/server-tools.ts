/** Server tools of one request: declares them to the model, and runs its calls. Serve threads. */
import type { Clock } from '../clock.ts'
import type { GatewayError } from '../errors.ts'
import type { Log } from '../log/log.ts'
import { type GatewayTool, serverToolName } from '../protocol/gateway-tools.ts'
import type { InputItem } from '../protocol/items.ts'
import type { ResponsesRequest } from '../protocol/request.ts'
import type { Tool } from '../protocol/tools.ts'
import { isPending } from '../ready.ts'
import type { ServerTool, ToolCall, ToolEvent, ToolOutcome } from '../tools/tool.ts'
import type { Answer } from './answer/answer.ts'
import type { Exchange } from './exchange.ts'
import type { Guarding } from './guard/guard.ts'
import {
  budgetOf,
  callItem,
  type DeclaredFunction,
  type PendingCall,
  type RequestedTool,
  type ToolBudget,
} from './tool-calls.ts'

export interface ServerToolDeps {
  /** By name, e.g. `datetime`. */
  readonly tools: ReadonlyMap<string, ServerTool>
  readonly clock: Clock
  readonly log: Log
}

/** The exchange as server tools need it. */
export interface ToolExchange extends Exchange {
  readonly answer: Answer
  readonly guarding: Guarding | null
}

/** The prompt of a turn with its server tools as functions. */
export interface Declared {
  readonly prompt: ResponsesRequest
  /** By the name that the model sees. */
  readonly functions: ReadonlyMap<string, DeclaredFunction>
}

/** One call of a tool may take so long. */
const RUN_MAX_MS = 60_000
/** Calls of one turn that run at the same time. */
const PARALLEL_MAX = 8
/** Characters of a result that the model gets. */
const RESULT_MAX_CHARS = 200_000

/** Null when the request names no server tool. */
export function serverToolsOf(deps: ServerToolDeps, request: ResponsesRequest): ServerTools | null {
  if (request.tools == null || !request.tools.some(tool => toolOf(deps, tool) !== null)) return null
  return new ServerTools(deps, request)
}

/** Null for a tool that the gateway does not run. */
function toolOf({ tools }: ServerToolDeps, tool: Tool): RequestedTool | null {
  const name = serverToolName(tool.type)
  const server = name === null ? undefined : tools.get(name)
  return server === undefined ? null : { server, tool: tool as GatewayTool }
}

export class ServerTools {
  readonly #deps: ServerToolDeps
  readonly budget: ToolBudget

  constructor(deps: ServerToolDeps, request: ResponsesRequest) {
    this.#deps = deps
    this.budget = budgetOf(request)
  }

  /** The prompt of the next turn. `off`: the model may call no tool any more. */
  async declare(exchange: ToolExchange, off: boolean): Promise<Declared> {
    const { prompt } = exchange
    const rest: Tool[] = []
    const named: RequestedTool[] = []
    for (const tool of prompt.tools ?? []) {
      const found = toolOf(this.#deps, tool)
      if (found === null) rest.push(tool)
      else named.push(found)
    }
    const taken = new Set(rest.map(nameOf))
    const used = new Map<string, number>()
    const functions = new Map<string, DeclaredFunction>()
    const declared: Tool[] = []
    for (const each of named) {
      for (const { name, description, parameters } of await each.server.declare(each.tool, exchange)) {
        const free = freeName(name, taken, used)
        taken.add(free)
        functions.set(free, { ...each, name })
        declared.push({ type: 'function', name: free, description, parameters, strict: null } as Tool)
      }
    }
    const tools = [...rest, ...declared]
    const { tool_choice: _, ...others } = prompt
    const choice = off ? 'none' : this.#choice(prompt, exchange.bill.turns === 0, functions)
    return {
      prompt: { ...others, tools, ...(choice === undefined ? {} : { tool_choice: choice }) },
      functions,
    }
  }

  /** A tool that has to be called has to be called once: with the same choice the model would never answer. */
  #choice(
    { tool_choice }: ResponsesRequest,
    first: boolean,
    functions: ReadonlyMap<string, DeclaredFunction>,
  ): ResponsesRequest['tool_choice'] {
    if (tool_choice === undefined || typeof tool_choice === 'string') {
      return !first && tool_choice === 'required' ? 'auto' : tool_choice
    }
    if (tool_choice.type === 'allowed_tools') return allowedFunctions(tool_choice, first, functions)
    const forced = serverToolName(tool_choice.type)
    if (forced === null) return first ? tool_choice : 'auto'
    if (!first) return 'auto'
    const name = [...functions].find(([, { server }]) => server.name === forced)?.[0]
    return name === undefined ? 'auto' : { type: 'function', name }
  }

  /**
   * Runs the calls of a turn, some at a time, and shows each as an item of the answer. Resolves with the items that
   * the model gets: each call and its result. Rejects with the reason of the signal, or of the guardrail that refuses
   * a result; calls that still run then say nothing any more.
   */
  async run(calls: readonly PendingCall[], exchange: ToolExchange): Promise<ToolRun> {
    const outcomes: (string | null)[] = calls.map(() => null)
    let endsTurn = false
    let failed = false
    const isOver = (): boolean => failed || exchange.signal.aborted
    const work = calls.map((call, at) => ({ call, at }))
    const worker = async (): Promise<void> => {
      for (let next = work.shift(); next !== undefined && !isOver(); next = work.shift()) {
        const outcome = await this.#runOne(next.call, exchange, isOver)
        if (outcome === null) return
        const result = cutResult(outcome.result)
        const guard = exchange.guarding?.input ?? null
        outcomes[next.at] = guard === null ? result : await guard.text(exchange, result)
        endsTurn ||= outcome.next === 'end-turn'
      }
    }
    const workers = Array.from({ length: Math.min(PARALLEL_MAX, calls.length) }, worker)
    try {
      await untilAborted(exchange.signal, Promise.all(workers))
    } catch (thrown) {
      failed = true
      throw thrown
    }
    const items = calls.map(callItem) as InputItem[]
    const results = calls.map(
      ({ callId }, at) =>
        ({ type: 'function_call_output', call_id: callId, output: outcomes[at] ?? '' }) as InputItem,
    )
    return { items: [...items, ...results], endsTurn }
  }

  /** Null when the exchange ended before the call did. */
  async #runOne(
    pending: PendingCall,
    exchange: ToolExchange,
    isOver: () => boolean,
  ): Promise<ToolOutcome | null> {
    const { answer, bill } = exchange
    const { tool, server, name } = pending.declared
    const args = argumentsOf(pending.arguments.toString())
    const call: ToolCall = { callId: pending.callId, name, arguments: args ?? {} }
    // A malformed call counts too: otherwise a model that repeats it would never stop. A call that does not run is told
    // to the model alone: an item of it would come back as a call that has a result.
    if (!this.budget.takeCall() || args === null) {
      bill.addToolCall(false)
      return failureOutcome(
        args === null
          ? 'The arguments are no JSON object'
          : 'The limit of tool calls of this request is reached',
      )
    }
    answer.hold()
    const item = answer.addItem({ type: tool.type, status: 'in_progress', ...server.begun(call, tool) })
    answer.flush()
    const outcome = await this.#outcome(pending, call, exchange, ({ name, fields }) => {
      if (!isOver()) item.progress(name, fields)
    })
    if (isOver()) return null
    bill.addToolCall(true, outcome.cost ?? 0)
    answer.hold()
    answer.endItem(item, { status: outcome.ran ? 'completed' : 'incomplete', ...outcome.item }, 'completed')
    answer.flush()
    return outcome
  }

  async #outcome(
    { declared }: PendingCall,
    call: ToolCall,
    exchange: ToolExchange,
    progress: (event: ToolEvent) => void,
  ): Promise<ToolOutcome & { ran: boolean }> {
    try {
      const running = declared.server.run(call, declared.tool, exchange, progress)
      const outcome = isPending(running) ? await this.#timed(running) : running
      return { ...outcome, ran: true }
    } catch (thrown) {
      exchange.signal.throwIfAborted()
      this.#deps.log.fault('server tool failed', thrown)
      return {
        ...failureOutcome(thrown instanceof ToolTimeout ? 'The tool took too long' : 'The tool failed'),
        ran: false,
      }
    }
  }

  #timed<T>(running: Promise<T>): Promise<T> {
    const late = Promise.withResolvers<never>()
    const timer = this.#deps.clock.after(RUN_MAX_MS, () => late.reject(new ToolTimeout()))
    return Promise.race([running, late.promise]).finally(() => timer.cancel())
  }
}

/** The calls of a turn have run. */
export interface ToolRun {
  /** For the prompt of the next turn. */
  readonly items: readonly InputItem[]
  /** A tool leaves the next step to the client. */
  readonly endsTurn: boolean
}

class ToolTimeout extends Error {}

function failureOutcome(message: string): ToolOutcome & { ran: boolean } {
  return { item: {}, result: JSON.stringify({ error: message }), ran: false }
}

/** Null when it is no JSON object. A call without arguments has none. */
function argumentsOf(text: string): Record<string, unknown> | null {
  if (text.trim() === '') return {}
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === 'object' && value !== null && !Array.isArray(value)
      ? (value as Record<string, unknown>)
      : null
  } catch {
    return null
  }
}

function cutResult(result: string): string {
  if (result.length <= RESULT_MAX_CHARS) return result
  return `${result.slice(0, RESULT_MAX_CHARS).toWellFormed()}\n[The result was cut after ${RESULT_MAX_CHARS} characters]`
}

type AllowedTools = Extract<ResponsesRequest['tool_choice'], { type: 'allowed_tools' }>

/** The same choice with server tools by the names of their functions; after the first turn nothing is required. */
function allowedFunctions(
  choice: AllowedTools,
  first: boolean,
  functions: ReadonlyMap<string, DeclaredFunction>,
): AllowedTools {
  const tools = choice.tools.flatMap(tool => {
    const server = typeof tool['type'] === 'string' ? serverToolName(tool['type']) : null
    if (server === null) return [tool]
    return [...functions].flatMap(([name, each]) =>
      each.server.name === server ? [{ type: 'function', name }] : [],
    )
  })
  return { ...choice, mode: first ? choice.mode : 'auto', tools }
}

function nameOf(tool: Tool): string {
  return 'name' in tool && typeof tool.name === 'string' ? tool.name : ''
}

/** The name, with a suffix where it is taken. `used`: the last suffix of each name, so that no search begins anew. */
function freeName(name: string, taken: ReadonlySet<string>, used: Map<string, number>): string {
  let count = used.get(name) ?? 1
  let free = count === 1 ? name : `${name}_${count}`
  while (taken.has(free)) free = `${name}_${++count}`
  used.set(name, count)
  return free
}

/** Rejects with the reason of the signal as soon as it fires, whatever is still running. */
function untilAborted<T>(signal: AbortSignal, work: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = (): void => reject(signal.reason as GatewayError)
    if (signal.aborted) abort()
    signal.addEventListener('abort', abort, { once: true })
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort))
  })
}
