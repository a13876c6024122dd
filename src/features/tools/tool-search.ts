/**
 * The tool_search server tool: finds deferred functions in the request (`defer_loading`), which the model does not see
 * until then. The model's patterns run on RE2, and are bounded in size and work.
 */
import { RE2JS } from 're2js'
import { refuseField } from '../../base/errors.ts'
import type { Exchange } from '../../exchange/exchange.ts'
import type {
  RequestedTool,
  ServerTool,
  ToolEndpoint,
  ToolEntry,
  ToolOutcome,
  ToolSession,
} from '../../exchange/server-tool.ts'
import { DIALECT_ABILITIES } from '../../protocol/dialect-abilities.ts'
import { serverToolName } from '../../protocol/gateway-tools.ts'
import { objectSchema } from '../../protocol/json/object-schema.ts'
import { TOOL_STEPS_MAX } from '../../protocol/limits.ts'
import { isClientSearch, type Tool } from '../../protocol/tools.ts'

const DEFAULT_RESULTS = 5
const MAX_RESULTS = 50
const MAX_PATTERN_CHARS = 200
/** Only the beginning of a field is searched. */
const MAX_FIELD_CHARS = 1_000
/** Only the first arguments of a function are searched. */
const MAX_ARGUMENTS = 64
/** Limit for the instructions of a pattern times the characters searched: about a twentieth of a second at worst. */
const MAX_WORK = 1_500_000
/** Compiling an instruction takes as long as running it on this number of characters. */
const CHARS_PER_COMPILED_INSTRUCTION = 64
/** Maximum characters of a pattern with its repeats written out: a longer one takes too long to compile. */
const MAX_EXPANDED_CHARS = 20_000
/** RE2 refuses patterns whose nested repeats multiply to more than this. */
const MAX_REPEATS = 1_000
const COUNTED_REPEAT = /\{(\d+)(?:,(\d*))?\}/g
const TOO_MUCH_WORK = 'query: takes too long on so many tools; use a shorter one'

/** A function that the model does not see at first. */
type DeferredTool = Tool & {
  readonly name: string
  readonly description?: string | null
  readonly parameters?: unknown
}

export function createToolSearch(): ServerTool {
  return {
    name: 'tool_search',
    watches: tool => isDeferred(tool) || (tool.type === 'namespace' && tool.tools.some(isDeferred)),
    open: openSession,
  }
}

function isDeferred(tool: Pick<Tool, 'type'>): tool is DeferredTool {
  return (
    (tool.type === 'function' || tool.type === 'custom') &&
    (tool as { defer_loading?: unknown }).defer_loading === true
  )
}

function openSession(entries: readonly ToolEntry[], exchange: Exchange): ToolSession {
  const { prompt } = exchange
  const tools = prompt.tools ?? []
  const deferred = tools.filter(isDeferred)
  checkRequest(entries, exchange, tools)
  const maxResults = maxResultsOf(entries[0]?.tool)
  const foundNames = new Set<string>(namesIn(prompt.input))
  const budget = { remaining: MAX_WORK }
  for (const query of earlierQueries(prompt.input)) {
    const foundAgain = searchTools(deferred, query, maxResults, budget)
    if (typeof foundAgain !== 'string') for (const { name } of foundAgain) foundNames.add(name)
  }
  /** True if the provider of the next call searches itself. */
  let isNative = false
  return {
    declare(endpoint) {
      isNative = searchesItself(endpoint, entries)
      if (isNative) return entries.map(({ tool }) => ({ native: tool as never }))
      return entries.slice(0, 1).map(({ tool }) => ({
        tool,
        name: 'tool_search',
        description:
          'Finds further tools by a case-insensitive regular expression over their names, descriptions and arguments. ' +
          `${deferred.length} tools can be found. What is found can be called from then on.`,
        parameters: objectSchema(['query'], {
          query: {
            type: 'string',
            maxLength: MAX_PATTERN_CHARS,
            description: 'For example weather|forecast',
          },
        }),
      }))
    },
    shows(tool) {
      if (isNative || !isDeferred(tool)) return tool
      if (!foundNames.has(tool.name)) return null
      return withoutDeferral(tool)
    },
    firstForm: ({ tool, arguments: { query } }) => ({
      // The native name `tool_search` is not an item type.
      ...(tool.type === 'tool_search' ? { type: 'gateway:tool_search' } : {}),
      ...(typeof query === 'string' ? { query: query.slice(0, MAX_PATTERN_CHARS) } : {}),
    }),
    run({ arguments: { query } }): ToolOutcome {
      const result = searchTools(deferred, query, maxResults, { remaining: MAX_WORK })
      if (typeof result === 'string')
        return { item: { status: 'incomplete' }, result: JSON.stringify({ error: result }) }
      for (const { name } of result) foundNames.add(name)
      const results = result.map(({ name, description, parameters }) => ({ name, description, parameters }))
      return { item: {}, result: JSON.stringify({ tools: results }) }
    },
  }
}

/** The tool without its deferral, also in the form of the caller's own API. */
function withoutDeferral(tool: DeferredTool): Tool {
  const {
    defer_loading: _,
    native,
    ...shownTool
  } = tool as DeferredTool & { defer_loading?: unknown; native?: object }
  if (native === undefined) return shownTool as Tool
  const { defer_loading: __, ...shownNative } = native as { defer_loading?: unknown }
  return { ...shownTool, native: shownNative } as Tool
}

/** A name with the gateway's prefix means the gateway's search. */
function searchesItself(endpoint: ToolEndpoint, entries: readonly ToolEntry[]): boolean {
  return endpoint.hosts('tool_search') && entries.every(({ tool }) => tool.type === 'tool_search')
}

/** @throws GatewayError that names the field */
function checkRequest(
  entries: readonly ToolEntry[],
  { dialect, request: { tool_choice: choice } }: Exchange,
  tools: readonly Tool[],
): void {
  for (const { tool, path } of entries) {
    if (!DIALECT_ABILITIES[dialect].toolItems)
      throw refuseField(
        `${path}.type`,
        'tool_search works with /responses and /messages, not with chat completions',
      )
    if (tool['defer_loading'] === true)
      throw refuseField(`${path}.defer_loading`, 'must not be set on the tool that finds the others')
  }
  const firstPath = firstDeferred(tools)
  if (firstPath === null) return
  // Clients of the Messages API leave the search to the provider, or name what they want themselves.
  if (!DIALECT_ABILITIES[dialect].bareDeferral) {
    if (entries.length === 0 && !tools.some(isClientSearch))
      throw refuseField(
        firstPath,
        'needs a tool_search in the same request: gateway:tool_search, or one with execution client',
      )
    if (!tools.some(isShown))
      throw refuseField(
        firstPath,
        'must not be set on every tool: apart from the search tool, at least one must be available to the model from the start',
      )
  }
  const allowsChoice =
    choice === undefined ||
    choice === 'auto' ||
    (typeof choice === 'object' && choice.type === 'allowed_tools')
  if (!allowsChoice)
    throw refuseField('tool_choice', 'must be auto or allowed_tools if tools have defer_loading')
}

/** The path of the flag of the first deferred tool; null if no tool is deferred. */
function firstDeferred(tools: readonly Tool[]): string | null {
  for (const [index, tool] of tools.entries()) {
    if (isDeferred(tool)) return `tools[${index}].defer_loading`
    const inner = tool.type === 'namespace' ? tool.tools.findIndex(isDeferred) : -1
    if (inner !== -1) return `tools[${index}].tools[${inner}].defer_loading`
  }
  return null
}

/** True for a tool that the model sees from the start, or a namespace with one. */
function isShown(tool: Tool): boolean {
  if (tool.type === 'namespace') return tool.tools.some(inner => !isDeferred(inner))
  return serverToolName(tool.type) !== 'tool_search' && tool.type !== 'tool_search' && !isDeferred(tool)
}

/** The matching tools, or the reason why nothing is searched. */
function searchTools(
  tools: readonly DeferredTool[],
  query: unknown,
  maxResults: number,
  budget: { remaining: number },
): readonly DeferredTool[] | string {
  if (typeof query !== 'string' || query === '') return 'query: must be a regular expression'
  if (query.length > MAX_PATTERN_CHARS) return `query: must have at most ${MAX_PATTERN_CHARS} characters`
  if (budget.remaining < 0 || expandedChars(query) > MAX_EXPANDED_CHARS) return TOO_MUCH_WORK
  const pattern = patternOf(query)
  if (pattern === null) return 'query: is not a valid RE2 regular expression'
  const size = pattern.programSize()
  budget.remaining -= size * CHARS_PER_COMPILED_INSTRUCTION
  const matchingTools: DeferredTool[] = []
  for (const tool of tools) {
    for (const text of textsOf(tool)) {
      budget.remaining -= size * text.length
      if (budget.remaining < 0) return TOO_MUCH_WORK
      if (!pattern.matcher(text).find()) continue
      matchingTools.push(tool)
      break
    }
    if (matchingTools.length === maxResults) break
  }
  return matchingTools
}

/** An upper bound of the characters with repeats written out, for any nesting. */
function expandedChars(query: string): number {
  let repeats = 1
  for (const [, minRepeats, maxRepeats] of query.matchAll(COUNTED_REPEAT)) {
    repeats *= Math.max(1, Number(minRepeats), Number(maxRepeats ?? 0))
  }
  return query.length * Math.min(repeats, MAX_REPEATS)
}

function patternOf(query: string): RE2JS | null {
  try {
    return RE2JS.compile(query, RE2JS.CASE_INSENSITIVE)
  } catch {
    return null
  }
}

/** The searched texts: name and description of the tool and of its arguments. */
function textsOf({ name, description, parameters }: DeferredTool): readonly string[] {
  const texts = [name, description ?? '']
  const properties = (parameters as { properties?: unknown } | null | undefined)?.properties
  if (typeof properties === 'object' && properties !== null) {
    for (const [key, value] of Object.entries(properties).slice(0, MAX_ARGUMENTS)) {
      const text = (value as { description?: unknown } | null)?.description
      texts.push(key, typeof text === 'string' ? text : '')
    }
  }
  return texts.filter(text => text !== '').map(text => text.slice(0, MAX_FIELD_CHARS))
}

/** The latest queries of earlier answers. */
function earlierQueries(input: Exchange['prompt']['input']): readonly string[] {
  if (typeof input === 'string') return []
  const queries = input.flatMap(item => {
    if (item.type !== 'gateway:tool_search' && item.type !== 'openrouter:tool_search') return []
    const { query } = item as { query?: unknown }
    return typeof query === 'string' ? [query] : []
  })
  return [...new Set(queries)].slice(-TOOL_STEPS_MAX)
}

/** Functions that the model has called in earlier answers, and those in results of the client's own search. */
function namesIn(input: Exchange['prompt']['input']): readonly string[] {
  if (typeof input === 'string') return []
  return input.flatMap(item => {
    if (item.type === 'function_call' || item.type === 'custom_tool_call') return [item.name]
    if (item.type === 'tool_search_output')
      return item.tools.flatMap(tool => ('name' in tool && typeof tool.name === 'string' ? [tool.name] : []))
    return item.type === 'function_call_output' && typeof item.output !== 'string'
      ? item.output.flatMap(referencedTools)
      : []
  })
}

/** The name in a `tool_reference` of the Messages API. */
function referencedTools(part: object): readonly string[] {
  const { native } = part as { readonly native?: { readonly type?: unknown; readonly tool_name?: unknown } }
  return native?.type === 'tool_reference' && typeof native.tool_name === 'string' ? [native.tool_name] : []
}

function maxResultsOf(tool: RequestedTool | undefined): number {
  const requestedCount = tool?.parameters?.['max_results']
  return typeof requestedCount === 'number' ? Math.min(requestedCount, MAX_RESULTS) : DEFAULT_RESULTS
}
