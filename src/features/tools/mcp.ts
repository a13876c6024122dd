/**
 * The mcp server tool: tools of the MCP servers that a request names, if the provider does not call them itself. Each
 * server has one connection for the exchange. Serve threads.
 */
import type { Clock } from '../../base/clock.ts'
import { GatewayError } from '../../base/errors.ts'
import { parseJson, record } from '../../base/json.ts'
import { abortSignalOf } from '../../base/signal.ts'
import type { Exchange } from '../../exchange/exchange.ts'
import type {
  DueCall,
  FunctionDeclaration,
  RequestedTool,
  ServerTool,
  ToolCall,
  ToolDisplay,
  ToolEntry,
  ToolOutcome,
  ToolSession,
} from '../../exchange/server-tool.ts'
import { DIALECT_ABILITIES } from '../../protocol/dialect-abilities.ts'
import type { InputItem } from '../../protocol/items.ts'
import { functionName } from '../../protocol/tools.ts'
import type { ProxyOf } from '../../providers/upstream/egress.ts'
import { type LinkRules, resolverOf } from '../../providers/upstream/pages/fetch-page.ts'
import { ReadTurns } from '../../providers/upstream/read-turns.ts'
import { type DecidedCall, decidedCalls } from './mcp/approval.ts'
import {
  CALL_TIMEOUT_MS,
  createMcpConnection,
  createOldServers,
  LISTING_TIMEOUT_MS,
  type McpConnection,
  type McpConnectionDeps,
} from './mcp/connection.ts'
import { contentText } from './mcp/content.ts'
import { McpFailure, type McpItemError } from './mcp/failure.ts'
import type { McpLibrary } from './mcp/library.ts'
import { listTools, type McpTool, type ToolFilter, ToolListing } from './mcp/listing.ts'
import { type NamedServer, namedServers } from './mcp/servers.ts'
import type { McpSettings } from './settings.ts'

interface McpDeps {
  readonly clock: Clock
  readonly config: { readonly tools: { readonly mcp: McpSettings } }
  readonly mcpLibrary: McpLibrary
  /** The proxy of an address. Default: none. */
  readonly proxyOf?: ProxyOf
  /** Default: from the configuration. */
  readonly rules?: LinkRules
}

/** Maximum calls that one request approves or refuses; no reply asks for more. */
const MAX_DECIDED_CALLS = 128

export function createMcp(deps: McpDeps): ServerTool {
  let session: McpConnectionDeps | null = null
  return {
    name: 'mcp',
    native: ['mcp'],
    open(entries, exchange, display) {
      session ??= sessionDeps(deps)
      return openSession(session, entries, exchange, display)
    },
  }
}

function sessionDeps({
  clock,
  config,
  mcpLibrary: library,
  proxyOf,
  rules: ruleOverrides,
}: McpDeps): McpConnectionDeps {
  const { allowPrivate } = config.tools.mcp
  const proxy = proxyOf === undefined ? {} : { proxyOf }
  const rules: LinkRules = ruleOverrides ?? { allowHttp: false, allowPrivate, ...proxy }
  return {
    clock,
    library,
    rules,
    resolve: resolverOf(rules),
    turns: new ReadTurns(),
    oldServers: createOldServers(clock),
  }
}

/** A server that is used in the exchange. */
interface OpenServer extends NamedServer {
  readonly connection: McpConnection | null
  /** Its allowed tools; null until they are needed. */
  functions: Promise<NamedFunctions> | null
}

/** The tools of a server by function name, and the function names by tool name. */
interface NamedFunctions {
  readonly byFunction: ReadonlyMap<string, McpTool>
  readonly functionOf: ReadonlyMap<string, string>
}

const NO_FUNCTIONS: NamedFunctions = { byFunction: new Map(), functionOf: new Map() }

function openSession(
  deps: McpConnectionDeps,
  entries: readonly ToolEntry[],
  exchange: Exchange,
  display: ToolDisplay,
): ToolSession {
  const servers: readonly OpenServer[] = namedServers(entries, deps.rules).map(entry => ({
    ...entry,
    connection: entry.server === null ? null : createMcpConnection(deps, entry.server),
    functions: null,
  }))
  const byTool = new Map<RequestedTool, OpenServer>(servers.map(server => [server.tool, server]))
  /** Calls that the caller has approved, by id. */
  const approved = new Map<string, DecidedCall>()

  const toolsOf = (server: OpenServer): Promise<NamedFunctions> => {
    server.functions ??= toolsOfServer(deps.clock, server, exchange, display)
    return server.functions
  }
  const targetOf = async ({ tool, name }: Pick<ToolCall, 'tool' | 'name'>) => {
    const server = byTool.get(tool)
    const listedTool = server === undefined ? undefined : (await toolsOf(server)).byFunction.get(name)
    return server === undefined || listedTool === undefined ? null : { server, tool: listedTool }
  }
  /** The declared tools, for code that cannot wait for a listing. */
  const declared = new Map<RequestedTool, ReadonlyMap<string, McpTool>>()
  const asksFirst = ({ tool, name, callId }: ToolCall): boolean => {
    const declaredTool = declared.get(tool)?.get(name)
    return (
      declaredTool !== undefined &&
      !approved.has(callId) &&
      byTool.get(tool)?.asksFirst(declaredTool) !== false
    )
  }
  const fieldsOf = (call: ToolCall): Readonly<Record<string, unknown>> => ({
    type: asksFirst(call) ? 'mcp_approval_request' : 'mcp_call',
    server_label: String(call.tool['server_label']),
    name: declared.get(call.tool)?.get(call.name)?.name ?? call.name,
    arguments: JSON.stringify(call.arguments),
    ...(approved.has(call.callId) ? { approval_request_id: call.callId } : {}),
  })

  return {
    async declare(endpoint) {
      if (endpoint.hosts('mcp')) return servers.map(({ tool }) => ({ native: tool as never }))
      for (const server of servers) checkServed(server, exchange)
      const lists = await Promise.all(servers.map(toolsOf))
      return servers.flatMap((server, index) => {
        const { byFunction } = lists[index] ?? NO_FUNCTIONS
        declared.set(server.tool, byFunction)
        return [...byFunction].map(([name, tool]) => declarationOf(server, name, tool))
      })
    },
    async due(endpoint) {
      const input = exchange.prompt.input
      if (typeof input === 'string') return { calls: [] }
      const isHosted = endpoint.hosts('mcp')
      const calls: DueCall[] = []
      const decisions = decidedCalls(input)
      if (decisions.length > MAX_DECIDED_CALLS)
        throw new GatewayError(
          'invalid_request',
          `input: must contain decisions on at most ${MAX_DECIDED_CALLS} calls at once`,
        )
      for (const call of decisions) {
        const server = servers.find(({ label }) => label === call.serverLabel)
        // The provider runs its own requests itself.
        if (server === undefined || server.connection === null || (isHosted && !call.id.startsWith('st_')))
          continue
        const list = await toolsOf(server)
        declared.set(server.tool, list.byFunction)
        const decidedCall = callOfDecision(server, list, call)
        if (decidedCall.refusal === undefined) approved.set(call.id, call)
        calls.push(decidedCall)
      }
      // Other providers have no form for approvals; the calls contain the same information.
      if (isHosted) return { calls }
      return { calls, prompt: { ...exchange.prompt, input: input.filter(item => !isApproval(item)) } }
    },
    firstForm: fieldsOf,
    async run(call, _progress, signal) {
      const target = await targetOf(call)
      if (target === null)
        return failedOutcome({ item: 'The server has no such tool', message: 'The server has no such tool' })
      if (asksFirst(call))
        return { item: { status: undefined }, result: 'The caller is asked', next: 'end-turn' }
      return await runCall(target.server, target.tool, call, signal, exchange.spans?.toolHeader(signal))
    },
    close() {
      for (const { connection } of servers) connection?.close(!exchange.signal.aborted)
    },
  }
}

/** @throws GatewayError for features that only a provider, or another API, supports */
function checkServed({ path, connection, mayAsk }: OpenServer, { dialect }: Exchange): void {
  if (connection === null)
    throw new GatewayError(
      'invalid_request',
      `${path}.connector_id: this provider has no connectors; name the server in server_url`,
    )
  if (mayAsk && !DIALECT_ABILITIES[dialect].approvals)
    throw new GatewayError(
      'invalid_request',
      `${path}.require_approval: must be never, because this API cannot ask for approvals; use /responses`,
    )
}

/** The tools of a server, from an earlier answer if the conversation has them. A new listing is shown as an item. */
async function toolsOfServer(
  clock: Clock,
  { label, connection, allows }: OpenServer,
  { prompt, signal }: Exchange,
  display: ToolDisplay,
): Promise<NamedFunctions> {
  const replayed = replayedTools(prompt.input, label, allows)
  if (replayed !== null) return namedTools(replayed)
  if (connection === null) return NO_FUNCTIONS
  let tools: readonly McpTool[] = []
  let error: McpItemError | null = null
  const deadlineAtMs = clock.monotonicMs() + LISTING_TIMEOUT_MS
  try {
    tools = await listTools(
      cursor =>
        connection.listPage(cursor, {
          limitMs: Math.max(1, deadlineAtMs - clock.monotonicMs()),
          signal: abortSignalOf(signal),
        }),
      allows,
    )
  } catch (thrown) {
    signal.throwIfAborted()
    if (!(thrown instanceof McpFailure)) throw thrown
    error = thrown.item
  }
  display.item({ type: 'mcp_list_tools', server_label: label, tools, ...(error === null ? {} : { error }) })
  return namedTools(tools)
}

/**
 * The tools listed in an earlier answer; null if there is no listing.
 * @throws GatewayError if there are more than a server may list
 */
function replayedTools(
  input: Exchange['prompt']['input'],
  label: string,
  allows: ToolFilter,
): readonly McpTool[] | null {
  if (typeof input === 'string') return null
  const index = input.findLastIndex(
    item => item.type === 'mcp_list_tools' && item.server_label === label && item.error == null,
  )
  const { tools } = (input[index] ?? {}) as { tools?: readonly unknown[] }
  if (tools === undefined) return null
  const listing = new ToolListing(allows)
  const fault = listing.add(tools)
  if (fault === null) return listing.tools
  throw new GatewayError('invalid_request', `input[${index}].tools: has ${fault}`)
}

/** Two tools with the same function name get different ones. */
function namedTools(tools: readonly McpTool[]): NamedFunctions {
  const byFunction = new Map<string, McpTool>()
  const functionOf = new Map<string, string>()
  /** The last suffix of each name, so that searches do not start again. */
  const lastSuffixes = new Map<string, number>()
  for (const tool of tools) {
    const name = functionName(tool.name)
    const stem = name.slice(0, 60)
    let unusedName = name
    for (let count = lastSuffixes.get(stem) ?? 1; byFunction.has(unusedName); lastSuffixes.set(stem, count))
      unusedName = `${stem}_${++count}`
    byFunction.set(unusedName, tool)
    functionOf.set(tool.name, unusedName)
  }
  return { byFunction, functionOf }
}

function declarationOf(
  { tool, description: serverDescription }: NamedServer,
  name: string,
  mcpTool: McpTool,
): FunctionDeclaration {
  const texts = [mcpTool.description ?? '', serverDescription === null ? '' : `Server: ${serverDescription}`]
  return {
    tool,
    name,
    description: texts.filter(text => text !== '').join('\n\n'),
    parameters: mcpTool.input_schema,
    isForeign: true,
  }
}

function isApproval({ type }: InputItem): boolean {
  return type === 'mcp_approval_request' || type === 'mcp_approval_response'
}

function callOfDecision(server: NamedServer, { functionOf }: NamedFunctions, decision: DecidedCall): DueCall {
  const name = functionOf.get(decision.name)
  const args = record(parseJson(decision.arguments))
  const call = {
    tool: server.tool,
    callId: decision.id,
    name: name ?? functionName(decision.name),
    arguments: args ?? {},
  }
  if (!decision.approve) {
    const reason = decision.reason === null ? '' : `: ${decision.reason}`
    return { ...call, refusal: `The user refused this call${reason}` }
  }
  if (name === undefined) return { ...call, refusal: 'The server has no such tool' }
  return args === null ? { ...call, refusal: 'The arguments are not a JSON object' } : call
}

async function runCall(
  { connection }: OpenServer,
  tool: McpTool,
  call: ToolCall,
  signal: AbortSignal,
  parent: string | undefined,
): Promise<ToolOutcome> {
  if (connection === null)
    return failedOutcome(
      new McpFailure('Only the provider runs this connector, so the gateway cannot call it'),
    )
  try {
    const result = await connection.call(tool, call.arguments, {
      limitMs: CALL_TIMEOUT_MS,
      signal,
      ...(parent === undefined ? {} : { parent }),
    })
    const text = contentText(result)
    if (result['isError'] !== true) return { item: { output: text }, result: text }
    const error = { type: 'mcp_tool_execution_error', content: [{ type: 'text', text }] } as const
    return failedOutcome({ item: error, message: text === '' ? 'The tool failed' : text })
  } catch (thrown) {
    signal.throwIfAborted()
    if (thrown instanceof McpFailure) return failedOutcome(thrown)
    throw thrown
  }
}

function failedOutcome({ item, message }: Pick<McpFailure, 'item' | 'message'>): ToolOutcome {
  return { item: { status: 'failed', output: null, error: item }, result: JSON.stringify({ error: message }) }
}
