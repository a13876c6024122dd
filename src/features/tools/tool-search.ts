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

const RESULTS_DEFAULT = 5
const RESULTS_MAX = 50
const PATTERN_MAX_CHARS = 200
/** Characters of one field that are searched. */
const FIELD_MAX_CHARS = 1_000
/** Arguments of one function that are searched. */
const ARGUMENTS_MAX = 64
/** Limit of instructions of the pattern times characters: about a twentieth of a second at worst. */
const WORK_MAX = 1_500_000
/** Compiling an instruction takes as long as running it on this many characters. */
const COMPILED_AS_CHARS = 64
/** Maximum characters of a pattern with its repeats written out; more take too long to compile. */
const EXPANDED_MAX_CHARS = 20_000
/** RE2 refuses patterns whose nested repeats multiply to more than this. */
const REPEATS_MAX = 1_000
const COUNTED_REPEAT = /\{(\d+)(?:,(\d*))?\}/g
const TOO_LONG = 'query: takes too long on so many tools; use a shorter one'

/** A function that the model does not see at first. */
type Deferred = Tool & {
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

function isDeferred(tool: Pick<Tool, 'type'>): tool is Deferred {
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
  const max = resultsOf(entries[0]?.tool)
  const found = new Set<string>(namedIn(prompt.input))
  const budget = { remaining: WORK_MAX }
  for (const query of earlierQueries(prompt.input)) {
    const foundAgain = searchTools(deferred, query, max, budget)
    if (typeof foundAgain !== 'string') for (const { name } of foundAgain) found.add(name)
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
            maxLength: PATTERN_MAX_CHARS,
            description: 'For example weather|forecast',
          },
        }),
      }))
    },
    shows(tool) {
      if (isNative || !isDeferred(tool)) return tool
      if (!found.has(tool.name)) return null
      return loaded(tool)
    },
    firstForm: ({ tool, arguments: { query } }) => ({
      // The short name is not an item type.
      ...(tool.type === 'tool_search' ? { type: 'gateway:tool_search' } : {}),
      ...(typeof query === 'string' ? { query: query.slice(0, PATTERN_MAX_CHARS) } : {}),
    }),
    run({ arguments: { query } }): ToolOutcome {
      const result = searchTools(deferred, query, max, { remaining: WORK_MAX })
      if (typeof result === 'string')
        return { item: { status: 'incomplete' }, result: JSON.stringify({ error: result }) }
      for (const { name } of result) found.add(name)
      const results = result.map(({ name, description, parameters }) => ({ name, description, parameters }))
      return { item: {}, result: JSON.stringify({ tools: results }) }
    },
  }
}

/** The tool without its deferral, also in the form of the caller's own API. */
function loaded(tool: Deferred): Tool {
  const {
    defer_loading: _,
    native,
    ...shown
  } = tool as Deferred & { defer_loading?: unknown; native?: object }
  if (native === undefined) return shown as Tool
  const { defer_loading: __, ...others } = native as { defer_loading?: unknown }
  return { ...shown, native: others } as Tool
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
  const first = firstDeferred(tools)
  if (first === null) return
  // Clients of the Messages API leave the search to the provider, or name what they want themselves.
  if (!DIALECT_ABILITIES[dialect].bareDeferral) {
    if (entries.length === 0 && !tools.some(isClientSearch))
      throw refuseField(
        first,
        'needs a tool_search in the same request: gateway:tool_search, or one with execution client',
      )
    if (!tools.some(isShown))
      throw refuseField(
        first,
        'must not be set on every tool: apart from the search tool, at least one must be available to the model from the start',
      )
  }
  const isFree =
    choice === undefined ||
    choice === 'auto' ||
    (typeof choice === 'object' && choice.type === 'allowed_tools')
  if (!isFree) throw refuseField('tool_choice', 'must be auto or allowed_tools if tools have defer_loading')
}

/** The path of the flag of the first deferred tool; null: none. */
function firstDeferred(tools: readonly Tool[]): string | null {
  for (const [at, tool] of tools.entries()) {
    if (isDeferred(tool)) return `tools[${at}].defer_loading`
    const inner = tool.type === 'namespace' ? tool.tools.findIndex(isDeferred) : -1
    if (inner !== -1) return `tools[${at}].tools[${inner}].defer_loading`
  }
  return null
}

/** True for a tool that the model sees from the start, or a namespace with one. */
function isShown(tool: Tool): boolean {
  if (tool.type === 'namespace') return tool.tools.some(inner => !isDeferred(inner))
  return serverToolName(tool.type) !== 'tool_search' && tool.type !== 'tool_search' && !isDeferred(tool)
}

/** The matching tools, or the reason why none is searched. */
function searchTools(
  tools: readonly Deferred[],
  query: unknown,
  max: number,
  work: { remaining: number },
): readonly Deferred[] | string {
  if (typeof query !== 'string' || query === '') return 'query: must be a regular expression'
  if (query.length > PATTERN_MAX_CHARS) return `query: must have at most ${PATTERN_MAX_CHARS} characters`
  if (work.remaining < 0 || expandedChars(query) > EXPANDED_MAX_CHARS) return TOO_LONG
  const pattern = patternOf(query)
  if (pattern === null) return 'query: is not a valid RE2 regular expression'
  const size = pattern.programSize()
  work.remaining -= size * COMPILED_AS_CHARS
  const found: Deferred[] = []
  for (const tool of tools) {
    for (const text of textsOf(tool)) {
      work.remaining -= size * text.length
      if (work.remaining < 0) return TOO_LONG
      if (!pattern.matcher(text).find()) continue
      found.push(tool)
      break
    }
    if (found.length === max) break
  }
  return found
}

/** An upper bound of the characters with repeats written out, for any nesting. */
function expandedChars(query: string): number {
  let times = 1
  for (const [, least, most] of query.matchAll(COUNTED_REPEAT)) {
    times *= Math.max(1, Number(least), Number(most ?? 0))
  }
  return query.length * Math.min(times, REPEATS_MAX)
}

function patternOf(query: string): RE2JS | null {
  try {
    return RE2JS.compile(query, RE2JS.CASE_INSENSITIVE)
  } catch {
    return null
  }
}

/** Name, description, and names and descriptions of the arguments. */
function textsOf({ name, description, parameters }: Deferred): readonly string[] {
  const texts = [name, description ?? '']
  const properties = (parameters as { properties?: unknown } | null | undefined)?.properties
  if (typeof properties === 'object' && properties !== null) {
    for (const [key, value] of Object.entries(properties).slice(0, ARGUMENTS_MAX)) {
      const about = (value as { description?: unknown } | null)?.description
      texts.push(key, typeof about === 'string' ? about : '')
    }
  }
  return texts.filter(text => text !== '').map(text => text.slice(0, FIELD_MAX_CHARS))
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
function namedIn(input: Exchange['prompt']['input']): readonly string[] {
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

function resultsOf(tool: RequestedTool | undefined): number {
  const requested = tool?.parameters?.['max_results']
  return typeof requested === 'number' ? Math.min(requested, RESULTS_MAX) : RESULTS_DEFAULT
}
