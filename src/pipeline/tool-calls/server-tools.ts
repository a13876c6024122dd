/** Server tools of one exchange: declares them to the model, and runs its calls. Serve threads. */
import type { Exchange } from '../../exchange/exchange.ts'
import type {
  FunctionDeclaration,
  MissingDeclaration,
  RequestedTool,
  ServerTool,
  ToolDeclaration,
  ToolDisplay,
  ToolEndpoint,
  ToolEntry,
} from '../../exchange/server-tool.ts'
import { LongText } from '../../formats/long-text.ts'
import { serverToolName } from '../../protocol/gateway-tools.ts'
import type { InputItem } from '../../protocol/items.ts'
import { NAME_MAX_CHARS } from '../../protocol/limits.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import { isClientSearch, type Tool } from '../../protocol/tools.ts'
import type { Guarding } from '../guard/guard.ts'
import { withAddedTools } from './control-items.ts'
import { budgetOf, type DeclaredFunction, type PendingCall, type ToolBudget } from './tool-calls.ts'
import { functionChoice } from './tool-choice.ts'
import {
  BUDGET_SPENT,
  type OpenTool,
  showCall,
  type ToolExchange,
  type ToolRun,
  type ToolRunDeps,
  ToolRunner,
} from './tool-run.ts'

export interface ServerToolDeps extends ToolRunDeps {
  /** Keyed by name, e.g. `datetime`. */
  readonly tools: ReadonlyMap<string, ServerTool>
}

/** The prompt of a turn, with its server tools as functions. */
interface DeclaredPrompt {
  readonly prompt: ResponsesRequest
  /** Keyed by the name that the model sees. */
  readonly functions: ReadonlyMap<string, DeclaredFunction>
  /** True if the caller declared no function, so that an unknown name is a mistake by the model. */
  readonly takesUnknown: boolean
}

/**
 * Opens the server tools that the prompt names; null if it names none. Returns a promise only if there are some.
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
  return toolOf(deps, exchange, tool) !== null || watchersOf(deps, tool).length > 0
}

/** Server tools that need an open session because of another tool of the request. */
function watchersOf({ tools }: Pick<ServerToolDeps, 'tools'>, tool: Tool): readonly ServerTool[] {
  return [...tools.values()].filter(server => server.watches?.(tool) === true)
}

/** Null for a tool that the gateway does not run. */
function toolOf(
  { tools }: Pick<ServerToolDeps, 'tools'>,
  { parent }: Pick<Exchange, 'parent'>,
  tool: Pick<Tool, 'type'> | { readonly type: string },
): ServerTool | null {
  const { type } = tool
  if (isClientSearch(tool)) return null
  const name = serverToolName(type)
  const server = name === null ? nativeTool(tools, type) : tools.get(name)
  // A tool that calls models is not run for a request that a tool makes, because that would never end.
  return server === undefined || (parent !== undefined && server.asksModels === true) ? null : server
}

function nativeTool(tools: ReadonlyMap<string, ServerTool>, type: string): ServerTool | undefined {
  for (const tool of tools.values()) if (tool.native?.includes(type) === true) return tool
  return undefined
}

export class ServerTools {
  readonly #deps: ServerToolDeps
  readonly #open: readonly OpenTool[]
  readonly #runner: ToolRunner
  /** Texts of declarations from outside after guardrails, keyed by the texts before. */
  readonly #guardedTexts = new Map<string, string>()
  readonly #leftOutTypes = new Set<string>()

  private constructor(deps: ServerToolDeps, request: ResponsesRequest, open: readonly OpenTool[]) {
    this.#deps = deps
    this.#open = open
    this.#runner = new ToolRunner(deps, budgetOf(request))
  }

  get budget(): ToolBudget {
    return this.#runner.budget
  }

  static async open(
    deps: ServerToolDeps,
    exchange: ToolExchange,
    tools: readonly Tool[],
    paths: readonly string[],
  ): Promise<ServerTools> {
    const entries = new Map<ServerTool, ToolEntry[]>()
    for (const [index, tool] of tools.entries()) {
      const server = toolOf(deps, exchange, tool)
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
        const opening = server.open(list, exchange, display)
        const session = opening instanceof Promise ? await opening : opening
        open.push({ server, session })
        exchange.prompt = session.prompt ?? exchange.prompt
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
        this.#deps.log.fault('gateway', 'server tool failed', thrown)
      }
    }
  }

  /** Calls that an earlier answer left open. */
  get resumed(): readonly PendingCall[] {
    return this.#open.flatMap(({ server, session }) =>
      (session.resumedCalls?.() ?? []).map(
        ({ callId, name, tool, arguments: callArguments }): PendingCall => {
          const text = new LongText()
          text.add(JSON.stringify(callArguments))
          const start = { type: 'function_call', id: null, callId, name, extra: null } as const
          return {
            declaration: { server, session, tool, name },
            callId,
            arguments: text,
            start,
            fields: null,
          }
        },
      ),
    )
  }

  /** Informs the caller, once, of a tool that nothing here can run. */
  #leaveOut({ pipeline }: ToolExchange, { tool: { type }, missing }: MissingDeclaration): void {
    if (this.#leftOutTypes.has(type)) return
    this.#leftOutTypes.add(type)
    pipeline.push({
      type: 'server_tools',
      name: 'left-out',
      summary: `${type} was left out: ${missing}`,
      data: { tools: [type] },
    })
  }

  /** The prompt of the next turn. `isOff`: the model may call no more tools. */
  async declare(exchange: ToolExchange, endpoint: ToolEndpoint, isOff: boolean): Promise<DeclaredPrompt> {
    const { prompt } = exchange
    const otherTools = (prompt.tools ?? []).filter(tool => toolOf(this.#deps, exchange, tool) === null)
    const usedNames = new Set(otherTools.map(nameOf))
    const useCounts = new Map<string, number>()
    const functions = new Map<string, DeclaredFunction>()
    const declaredTools: Tool[] = []
    for (const { server, session } of this.#open) {
      // Most sessions answer at once, and declare nothing that a guardrail has to judge.
      const declarations = session.declare(endpoint)
      const allowedDeclarations = guardDeclarations(
        this.#guardedTexts,
        declarations instanceof Promise ? await declarations : declarations,
        exchange,
      )
      for (const declaration of allowedDeclarations instanceof Promise
        ? await allowedDeclarations
        : allowedDeclarations) {
        if ('native' in declaration) {
          declaredTools.push(declaration.native)
          continue
        }
        if ('missing' in declaration) {
          this.#leaveOut(exchange, declaration)
          continue
        }
        const { name, tool, description, parameters } = declaration
        const unusedName = freeName(name, usedNames, useCounts)
        usedNames.add(unusedName)
        functions.set(unusedName, { server, session, tool, name })
        declaredTools.push({
          type: 'function',
          name: unusedName,
          description,
          parameters,
          strict: null,
        } as Tool)
      }
    }
    const shownTools = otherTools.flatMap(tool => shownTool(this.#open, tool) ?? [])
    const tools = [...shownTools, ...declaredTools]
    const { tool_choice: _, ...fields } = prompt
    const serverOf = (type: string): ServerTool | null => toolOf(this.#deps, exchange, { type })
    const choice = isOff ? 'none' : functionChoice(exchange, functions, declaredTools, serverOf)
    const { tools: _tools, ...withoutTools } = fields
    return {
      prompt:
        tools.length === 0
          ? withoutTools
          : { ...fields, tools, ...(choice === undefined ? {} : { tool_choice: choice }) },
      functions,
      takesUnknown: otherTools.length === 0 && !declaresLater(prompt),
    }
  }

  /**
   * Runs the calls that an earlier answer asked for, such as approved ones, one after the other. Their items wait until
   * the model begins, so that another endpoint can still be tried. Resolves with the items for the model.
   */
  async runDue(exchange: ToolExchange, endpoint: ToolEndpoint): Promise<readonly InputItem[]> {
    const { answer, bill } = exchange
    const items: InputItem[] = []
    for (const { server, session } of this.#open) {
      if (session.due === undefined) continue
      const { calls, prompt } = await session.due(endpoint)
      exchange.prompt = prompt ?? exchange.prompt
      for (const dueCall of calls) {
        const { tool, name, callId, refusal } = dueCall
        let result: string = refusal ?? BUDGET_SPENT
        if (refusal === undefined && !this.budget.takeCall()) bill.addToolCall(false)
        else if (refusal === undefined) {
          const startedMs = this.#deps.clock.monotonicMs()
          const outcome = await this.#runner.outcome({ server, session }, dueCall, exchange, () => undefined)
          exchange.signal.throwIfAborted()
          this.#runner.noteOutcome(exchange, server.name, outcome, startedMs)
          bill.addToolCall(true, outcome.cost ?? 0, outcome.searches)
          const status = outcome.ran === true ? 'completed' : 'incomplete'
          answer.show({ type: tool.type, ...session.firstForm(dueCall), status, ...outcome.item })
          result = await this.#runner.resultForModel(exchange, outcome.result)
        }
        const call = {
          type: 'function_call',
          call_id: callId,
          name,
          arguments: JSON.stringify(dueCall.arguments),
        }
        items.push(
          call as InputItem,
          { type: 'function_call_output', call_id: callId, output: result } as InputItem,
        )
      }
    }
    return items
  }

  /** See `ToolRunner`. */
  run(calls: readonly PendingCall[], exchange: ToolExchange): Promise<ToolRun> {
    return this.#runner.run(calls, exchange)
  }
}

/** Shows output of sessions other than the items of their calls. */
function displayOf({ answer }: ToolExchange): ToolDisplay {
  return {
    item(item) {
      const { type, arguments: callArguments } = item
      const isCall = type === 'function_call' && typeof callArguments === 'string'
      answer.hold()
      if (isCall) showCall(answer, item, callArguments)
      else answer.show(item)
      answer.flush()
    },
    annotate: annotations => answer.annotateNext(annotations),
    cite: results => answer.cite(results, false),
  }
}

/** Another tool of the request, in the form in which sessions show it to the model; null if they do not show it yet. */
function shownTool(open: readonly OpenTool[], tool: Tool): Tool | null {
  let visibleTool: Tool | null = tool
  for (const { session } of open) {
    if (visibleTool !== null && session.shows !== undefined) visibleTool = session.shows(visibleTool)
  }
  return visibleTool
}

/** True if items of the input declare functions of their own. */
function declaresLater({ input }: ResponsesRequest): boolean {
  return (
    typeof input !== 'string' && input.some(({ type }) => type !== undefined && DECLARING_ITEMS.has(type))
  )
}

const DECLARING_ITEMS: ReadonlySet<string> = new Set(['additional_tools', 'tool_search_output'])

function nameOf(tool: Tool): string {
  return 'name' in tool && typeof tool.name === 'string' ? tool.name : ''
}

/** The name, with a suffix if it is taken. `useCounts`: the last suffix of each name, so that no search starts over. */
function freeName(name: string, usedNames: ReadonlySet<string>, useCounts: Map<string, number>): string {
  let count = useCounts.get(name) ?? 1
  let unusedName = count === 1 ? name : withNumber(name, count)
  while (usedNames.has(unusedName)) unusedName = withNumber(name, ++count)
  useCounts.set(name, count)
  return unusedName
}

/** The name with the number, short enough for every provider. */
function withNumber(name: string, count: number): string {
  return `${name.slice(0, NAME_MAX_CHARS - 1 - String(count).length)}_${count}`
}

// Guardrails on tool declarations from outside, such as tools of MCP servers.

type GuardedExchange = Exchange & { readonly guarding: Guarding | null }

/**
 * The declarations, as the caller's guardrails leave them; a promise only if they judge any. Each text is judged once.
 * Rejects with the error of a guardrail that blocks.
 */
function guardDeclarations(
  guardedTexts: Map<string, string>,
  declarations: readonly ToolDeclaration[],
  exchange: GuardedExchange,
): readonly ToolDeclaration[] | Promise<readonly ToolDeclaration[]> {
  const guard = exchange.guarding?.input ?? null
  if (guard === null) return declarations
  const foreignDeclarations = declarations.flatMap(declaration =>
    'isForeign' in declaration && declaration.isForeign === true ? [declaration] : [],
  )
  if (foreignDeclarations.length === 0) return declarations
  return judge(guard, guardedTexts, declarations, foreignDeclarations, exchange)
}

async function judge(
  guard: NonNullable<Guarding['input']>,
  guardedTexts: Map<string, string>,
  declarations: readonly ToolDeclaration[],
  foreignDeclarations: readonly FunctionDeclaration[],
  exchange: GuardedExchange,
): Promise<readonly ToolDeclaration[]> {
  const texts = JSON.stringify(
    foreignDeclarations.map(({ description, parameters }) => ({ description, parameters })),
  )
  const guardedText = guardedTexts.get(texts) ?? (await guard.text(exchange, texts))
  guardedTexts.set(texts, guardedText)
  if (guardedText === texts) return declarations
  const rewrittenTexts = parseRewritten(guardedText)
  return declarations.flatMap(declaration => {
    const index = foreignDeclarations.indexOf(declaration as FunctionDeclaration)
    if (index === -1) return [declaration]
    const rewritten = rewrittenTexts[index]
    return rewritten === undefined ? [] : [{ ...(declaration as FunctionDeclaration), ...rewritten }]
  })
}

/** Descriptions and schemas as rewritten by a guardrail; none if the result is not JSON. */
function parseRewritten(text: string): readonly Pick<FunctionDeclaration, 'description' | 'parameters'>[] {
  try {
    return JSON.parse(text) as ReturnType<typeof parseRewritten>
  } catch {
    return []
  }
}
