/** Server tools of one exchange: declares them to the model, and runs its calls. Serve threads. */
import type { Clock } from '../clock.ts'
import { GatewayError, overloaded } from '../errors.ts'
import { LongText } from '../formats/long-text.ts'
import type { Log } from '../log/log.ts'
import type { Metrics } from '../metrics/metrics.ts'
import type { PicoUsd } from '../money.ts'
import { serverToolName } from '../protocol/gateway-tools.ts'
import type { InputItem, OutputItem } from '../protocol/items.ts'
import type { ResponsesRequest } from '../protocol/request.ts'
import type { PipelineStage } from '../protocol/response.ts'
import type { Tool } from '../protocol/tools.ts'
import { isPending } from '../ready.ts'
import { abortSignalOf, type RequestSignal } from '../signal.ts'
import type {
  RequestedTool,
  ServerTool,
  ToolCall,
  ToolDisplay,
  ToolEntry,
  ToolOutcome,
  ToolPlace,
  ToolProgress,
  ToolSession,
} from '../tools/tool.ts'
import type { Answer } from './answer/answer.ts'
import { withAddedTools } from './control-items.ts'
import { createDeclarationGuard } from './declaration-guard.ts'
import type { Exchange } from './exchange.ts'
import type { Guarding } from './guard/guard.ts'
import { budgetOf, callItem, type DeclaredFunction, type PendingCall, type ToolBudget } from './tool-calls.ts'
import { functionChoice } from './tool-choice.ts'

export interface ServerToolDeps {
  /** By name, e.g. `datetime`. */
  readonly tools: ReadonlyMap<string, ServerTool>
  readonly clock: Clock
  readonly log: Log
  readonly metrics: Metrics
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

/** One call of a tool may take so long, unless the tool says otherwise. */
const RUN_MAX_MS = 60_000
/** Calls of one turn that run at the same time. */
const PARALLEL_MAX = 8
/** Characters of a result that the model gets. */
const RESULT_MAX_CHARS = 200_000

interface OpenTool {
  readonly server: ServerTool
  readonly session: ToolSession
}

/**
 * Opens the server tools that the prompt names; null if it names none. A promise only where there are some.
 * @throws (or rejects with) GatewayError of a tool that cannot serve its entry
 */
export function openServerTools(
  deps: ServerToolDeps,
  exchange: ToolExchange,
): ServerTools | null | Promise<ServerTools> {
  const added = withAddedTools(exchange.prompt, tool => isServed(deps, exchange, tool))
  if (added !== null) exchange.prompt = added.prompt
  const { tools } = exchange.prompt
  if (tools == null || !tools.some(tool => isServed(deps, exchange, tool))) return null
  return ServerTools.open(deps, exchange, tools, added?.toolPaths ?? NO_PATHS)
}

const NO_PATHS: readonly string[] = []

function isServed(deps: ServerToolDeps, exchange: ToolExchange, tool: Tool): boolean {
  return toolOf(deps, exchange, tool.type) !== null || watchersOf(deps, tool).length > 0
}

/** Tools that work on another tool of the request. */
function watchersOf({ tools }: Pick<ServerToolDeps, 'tools'>, tool: Tool): readonly ServerTool[] {
  return [...tools.values()].filter(server => server.watches?.(tool) === true)
}

/** Null for a tool that the gateway does not run. */
function toolOf(
  { tools }: Pick<ServerToolDeps, 'tools'>,
  { parent }: Pick<Exchange, 'parent'>,
  type: string,
): ServerTool | null {
  const name = serverToolName(type)
  const found = name === null ? nativeTool(tools, type) : tools.get(name)
  // A tool that asks models is not run for what a tool asks: it would never end.
  return found === undefined || (parent !== undefined && found.asksModels === true) ? null : found
}

function nativeTool(tools: ReadonlyMap<string, ServerTool>, type: string): ServerTool | undefined {
  for (const tool of tools.values()) if (tool.native?.includes(type) === true) return tool
  return undefined
}

export class ServerTools {
  readonly #deps: ServerToolDeps
  readonly #open: readonly OpenTool[]
  readonly budget: ToolBudget
  readonly #guarded = createDeclarationGuard()
  /** Of the answer's metadata; null as long as no call has run. */
  #stage: (PipelineStage & { data: { mode: 'sdk'; tools: string[] } }) | null = null

  private constructor(deps: ServerToolDeps, request: ResponsesRequest, open: readonly OpenTool[]) {
    this.#deps = deps
    this.#open = open
    this.budget = budgetOf(request)
  }

  static async open(
    deps: ServerToolDeps,
    exchange: ToolExchange,
    tools: readonly Tool[],
    paths: readonly string[],
  ): Promise<ServerTools> {
    const entries = new Map<ServerTool, ToolEntry[]>()
    for (const [index, tool] of tools.entries()) {
      const server = toolOf(deps, exchange, tool.type)
      if (server === null) {
        for (const watcher of watchersOf(deps, tool)) if (!entries.has(watcher)) entries.set(watcher, [])
        continue
      }
      const path = paths[index] ?? `tools[${index}]`
      const list = entries.get(server) ?? []
      list.push({ tool: tool as RequestedTool, path })
      entries.set(server, list)
    }
    const display = displayOf(exchange)
    const open: OpenTool[] = []
    try {
      for (const [server, list] of entries) {
        open.push({ server, session: await server.open(list, exchange, display) })
      }
    } catch (thrown) {
      for (const { session } of open) session.close?.()
      throw thrown
    }
    return new ServerTools(deps, exchange.request, open)
  }

  /** Ends all sessions. Call it when the exchange is over. */
  close(): void {
    for (const { session } of this.#open) {
      try {
        session.close?.()
      } catch (thrown) {
        this.#deps.log.fault('server tool failed', thrown)
      }
    }
  }

  /** Calls that an earlier answer has left open. */
  get resumed(): readonly PendingCall[] {
    return this.#open.flatMap(({ server, session }) =>
      (session.resumed?.() ?? []).map(({ callId, name, tool, arguments: said }): PendingCall => {
        const text = new LongText()
        text.add(JSON.stringify(said))
        const start = { type: 'function_call', id: null, callId, name, extra: null } as const
        return { declared: { server, session, tool, name }, callId, arguments: text, start, fields: null }
      }),
    )
  }

  /** The prompt of the next turn. `off`: the model may call no tool any more. */
  async declare(exchange: ToolExchange, place: ToolPlace, off: boolean): Promise<Declared> {
    const { prompt } = exchange
    const others = (prompt.tools ?? []).filter(({ type }) => toolOf(this.#deps, exchange, type) === null)
    const taken = new Set(others.map(nameOf))
    const used = new Map<string, number>()
    const functions = new Map<string, DeclaredFunction>()
    const declared: Tool[] = []
    for (const { server, session } of this.#open) {
      const declarations = await session.declare(place)
      for (const declaration of await this.#guarded(declarations, exchange)) {
        if ('native' in declaration) {
          declared.push(declaration.native)
          continue
        }
        const { name, tool, description, parameters } = declaration
        const free = freeName(name, taken, used)
        taken.add(free)
        functions.set(free, { server, session, tool, name })
        declared.push({ type: 'function', name: free, description, parameters, strict: null } as Tool)
      }
    }
    const seen = others.flatMap(tool => shownTool(this.#open, tool) ?? [])
    const tools = [...seen, ...declared]
    const { tool_choice: _, ...fields } = prompt
    const serverOf = (type: string): ServerTool | null => toolOf(this.#deps, exchange, type)
    const choice = off ? 'none' : functionChoice(exchange, functions, declared, serverOf)
    return {
      prompt: { ...fields, tools, ...(choice === undefined ? {} : { tool_choice: choice }) },
      functions,
    }
  }

  /**
   * Runs the calls that an earlier answer asked for, e.g. approved ones, one after the other. Their items wait until
   * the model begins, so that another endpoint may still be tried. Resolves with the items that the model gets.
   */
  async runDue(exchange: ToolExchange, place: ToolPlace): Promise<readonly InputItem[]> {
    const { answer, bill } = exchange
    const items: InputItem[] = []
    for (const { server, session } of this.#open) {
      for (const due of (await session.due?.(place)) ?? []) {
        const { tool, name, callId, refusal } = due
        let result = refusal ?? 'The limit of tool calls of this request is reached'
        if (refusal === undefined && !this.budget.takeCall()) bill.addToolCall(false)
        else if (refusal === undefined) {
          const startedMs = this.#deps.clock.monotonicMs()
          const outcome = await this.#outcome({ server, session }, due, exchange, () => undefined)
          exchange.signal.throwIfAborted()
          this.#count(exchange, server.name, outcome, startedMs)
          bill.addToolCall(true, outcome.cost ?? 0, outcome.searches)
          const status = outcome.ran === true ? 'completed' : 'incomplete'
          answer.show({ type: tool.type, ...session.begun(due), status, ...outcome.item })
          result = cutResult(outcome.result)
          holdResult(exchange, result)
          const guard = exchange.guarding?.input ?? null
          if (guard !== null) result = await guard.text(exchange, result)
        }
        const call = {
          type: 'function_call',
          call_id: callId,
          name,
          arguments: JSON.stringify(due.arguments),
        }
        items.push(
          call as InputItem,
          { type: 'function_call_output', call_id: callId, output: result } as InputItem,
        )
      }
    }
    return items
  }

  /**
   * Runs the calls of a turn, some at a time, and shows each as an item of the answer. Resolves with the items that
   * the model gets: each call and its result. Rejects with the reason of the signal, or of the guardrail that refuses
   * a result; calls that still run then say nothing any more.
   */
  async run(calls: readonly PendingCall[], exchange: ToolExchange): Promise<ToolRun> {
    const outcomes: (string | null)[] = calls.map(() => null)
    const said: OutputItem[] = []
    let endsTurn = false
    let failed = false
    const isOver = (): boolean => failed || exchange.signal.aborted
    const work = calls.map((call, at) => ({ call, at }))
    const worker = async (): Promise<void> => {
      for (let next = work.shift(); next !== undefined && !isOver(); next = work.shift()) {
        const outcome = await this.#runOne(next.call, exchange, isOver, said)
        if (outcome === null) return
        const result = cutResult(outcome.result)
        holdResult(exchange, result)
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
    return { items: [...items, ...results], said, endsTurn }
  }

  /** Null when the exchange ended before the call did. */
  async #runOne(
    pending: PendingCall,
    exchange: ToolExchange,
    isOver: () => boolean,
    said: OutputItem[],
  ): Promise<ToolOutcome | null> {
    const { answer, bill } = exchange
    const { tool, session, server, name } = pending.declared
    const { metrics, clock } = this.#deps
    const args = argumentsOf(pending.arguments.toString())
    const call: ToolCall = { callId: pending.callId, name, arguments: args ?? {}, tool }
    // A malformed call counts too: otherwise a model that repeats it would never stop. A call that does not run is told
    // to the model alone: an item of it would come back as a call that has a result.
    if (!this.budget.takeCall() || args === null) {
      bill.addToolCall(false)
      metrics.serverToolCalls.inc({ tool: server.name, outcome: args === null ? 'malformed' : 'over_budget' })
      return failureOutcome(
        args === null
          ? 'The arguments are no JSON object'
          : 'The limit of tool calls of this request is reached',
      )
    }
    const fee = session.fee?.(call) ?? 0
    if (fee > 0 && !(await canOwe(exchange, fee))) {
      bill.addToolCall(false)
      metrics.serverToolCalls.inc({ tool: server.name, outcome: 'over_budget' })
      return failureOutcome('The limits of this API key leave too little for this call')
    }
    if (isOver()) return null
    answer.hold()
    const item = answer.addItem({ type: tool.type, status: 'in_progress', ...session.begun(call) })
    answer.flush()
    const startedMs = clock.monotonicMs()
    const outcome = await this.#outcome({ server, session }, call, exchange, ({ name, fields }) => {
      if (!isOver()) item.progress(name, fields)
    })
    this.#count(exchange, server.name, outcome, startedMs)
    if (isOver()) return null
    bill.dropFee(fee)
    bill.addToolCall(true, outcome.cost ?? 0, outcome.searches)
    if (outcome.item['status'] === 'in_progress') {
      answer.leaveItem(item)
      return outcome
    }
    answer.hold()
    const shown = answer.endItem(
      item,
      { status: outcome.ran === true ? 'completed' : 'incomplete', ...outcome.item },
      'completed',
    )
    if (server.asksModels === true) said.push(shown)
    answer.flush()
    return outcome
  }

  #count(exchange: ToolExchange, tool: string, { ran, item }: RanOutcome, startedMs: number): void {
    const { metrics, clock } = this.#deps
    metrics.serverToolSeconds.observe({ tool }, (clock.monotonicMs() - startedMs) / 1000)
    const isFailed = item['error'] != null || item['status'] === 'failed' || item['status'] === 'incomplete'
    const outcome = ran === true ? (isFailed ? 'refused' : 'completed') : ran
    metrics.serverToolCalls.inc({ tool, outcome })
    if (this.#stage === null) {
      this.#stage = { type: 'server_tools', name: 'server-tools', data: { mode: 'sdk', tools: [] } }
      exchange.pipeline.push(this.#stage)
    }
    const { tools } = this.#stage.data
    if (!tools.includes(tool)) tools.push(tool)
  }

  async #outcome(
    { server, session }: OpenTool,
    call: ToolCall,
    exchange: ToolExchange,
    progress: ToolProgress,
  ): Promise<RanOutcome> {
    const ending = new AbortController()
    try {
      const running = session.run(
        call,
        progress,
        AbortSignal.any([abortSignalOf(exchange.signal), ending.signal]),
      )
      const outcome = isPending(running) ? await this.#timed(running, ending, server) : running
      return { ...outcome, ran: true }
    } catch (thrown) {
      exchange.signal.throwIfAborted()
      if (thrown instanceof ToolTimeout) return failureOutcome('The tool took too long', 'timeout')
      this.#deps.log.fault('server tool failed', thrown)
      return failureOutcome('The tool failed', 'failed')
    }
  }

  #timed<T>(running: Promise<T>, ending: AbortController, { runMs = RUN_MAX_MS }: ServerTool): Promise<T> {
    const late = Promise.withResolvers<never>()
    const timer = this.#deps.clock.after(runMs, () => {
      const timeout = new ToolTimeout()
      late.reject(timeout)
      ending.abort(timeout)
    })
    return Promise.race([running, late.promise]).finally(() => timer.cancel())
  }
}

/** Puts the fee of a call on the bill. False: the limits of the caller do not allow it. */
async function canOwe({ bill, reservation, attempts }: ToolExchange, fee: PicoUsd): Promise<boolean> {
  bill.holdFee(fee)
  const isOwn = attempts.at(-1)?.isByok === true
  const allowance = reservation?.allowance ?? null
  if (allowance === null) return true
  // No own credential pays for the tool: limits that leave it out count the fees all the same.
  if (
    (await allowance.cover(bill.closedCost, isOwn)) &&
    (!isOwn || (await allowance.cover(bill.tools.cost, false)))
  )
    return true
  bill.dropFee(fee)
  return false
}

/** Shows what sessions bring beside the items of their calls. */
function displayOf({ answer }: ToolExchange): ToolDisplay {
  return {
    item(item) {
      const { type, arguments: said } = item
      const isCall = type === 'function_call' && typeof said === 'string'
      answer.hold()
      if (isCall) showCall(answer, item, said)
      else answer.show(item)
      answer.flush()
    },
    annotate: annotations => answer.note(annotations),
    cite: results => answer.cite(results, false),
  }
}

/** Shows a function call of our own, which the client has to answer. */
function showCall(answer: Answer, item: Parameters<ToolDisplay['item']>[0], said: string): void {
  const builder = answer.addItem({ ...item, status: 'in_progress', arguments: '' })
  builder.progress('function_call_arguments.delta', { delta: said })
  builder.progress('function_call_arguments.done', { name: item['name'], arguments: said })
  answer.endItem(builder, item, 'completed')
}

/** The calls of a turn have run. */
export interface ToolRun {
  /** For the prompt of the next turn. */
  readonly items: readonly InputItem[]
  /** Items that show what other models said. */
  readonly said: readonly OutputItem[]
  /** A tool leaves the next step to the client. */
  readonly endsTurn: boolean
}

/** The deadline of a tool. It also ends the model calls of the tool, with the error of any other deadline. */
class ToolTimeout extends GatewayError {
  constructor() {
    super('deadline_exceeded', 'The tool took too long')
  }
}

/** `ran`: true, or why it did not. */
type RanOutcome = ToolOutcome & { readonly ran: true | 'timeout' | 'failed' | 'none' }

function failureOutcome(message: string, ran: RanOutcome['ran'] = 'none'): RanOutcome {
  return { item: {}, result: JSON.stringify({ error: message }), ran }
}

/** Another tool of the request as sessions let the model see it; null: not yet. */
function shownTool(open: readonly OpenTool[], tool: Tool): Tool | null {
  let shown: Tool | null = tool
  for (const { session } of open) {
    if (shown !== null && session.shows !== undefined) shown = session.shows(shown)
  }
  return shown
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

/** Counts a result with the request, in the prompt and in its item. @throws GatewayError `overloaded` */
function holdResult({ held }: Pick<Exchange, 'held'>, result: string): void {
  const isLatin = Buffer.byteLength(result) === result.length
  if (!held.hold(2 * result.length * (isLatin ? 1 : 2))) throw overloaded()
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
function untilAborted<T>(signal: RequestSignal, work: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = (): void => reject(signal.reason as GatewayError)
    if (signal.aborted) abort()
    signal.addEventListener('abort', abort, { once: true })
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort))
  })
}
