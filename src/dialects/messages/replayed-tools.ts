/**
 * Translates server-tool blocks that a client sends back to items. Pure. A call and its result become one item, at the
 * position of the call; the result may come in a later message. Blocks that Anthropic made stay unchanged, because
 * Anthropic accepts them back.
 */
import { recordOrEmpty, textOrEmpty } from '../../base/json.ts'
import { InputItem } from '../../protocol/items.ts'
import { compile, isObject } from '../../protocol/json/schema.ts'
import type { Item } from './content.ts'
import { GATEWAY_RESULTS, type ServerToolResult, type ServerToolUseBlock } from './message-schema.ts'

type Fields = Readonly<Record<string, unknown>>

interface ItemKind {
  readonly type: string
  /** Status of a call without a result. */
  readonly pending: string
  fields(input: Fields, content: unknown): Item
}

const SEARCH_KIND: ItemKind = {
  type: 'web_search_call',
  pending: 'in_progress',
  fields: ({ query }, content) => ({
    action: {
      type: 'search',
      query: textOrEmpty(query),
      ...(Array.isArray(content) ? { sources: sources(content) } : {}),
    },
  }),
}
const FETCH_KIND: ItemKind = {
  type: 'web_search_call',
  pending: 'in_progress',
  fields: ({ url }) => ({ action: { type: 'open_page', url: textOrEmpty(url) } }),
}
const CODE_KIND: ItemKind = {
  type: 'code_interpreter_call',
  pending: 'incomplete',
  fields: ({ code, command }, content) => ({
    code: textOrEmpty(code) || textOrEmpty(command),
    ...(isObject(content) ? { outputs: outputs(content) } : {}),
  }),
}
const TOOL_SEARCH_KIND: ItemKind = {
  type: 'gateway:tool_search',
  pending: 'incomplete',
  fields: ({ query, pattern }) => ({ query: textOrEmpty(query) || textOrEmpty(pattern) }),
}
const ADVISOR_KIND: ItemKind = {
  type: 'gateway:advisor',
  pending: 'incomplete',
  fields: (_, content) => (isObject(content) ? { advice: textOrEmpty(content['text']) } : {}),
}

const KIND_BY_TOOL: ReadonlyMap<string, ItemKind> = new Map([
  ['web_search', SEARCH_KIND],
  ['web_fetch', FETCH_KIND],
  ['code_execution', CODE_KIND],
  ['bash_code_execution', CODE_KIND],
  ['text_editor_code_execution', CODE_KIND],
  ['tool_search_tool_regex', TOOL_SEARCH_KIND],
  ['tool_search_tool_bm25', TOOL_SEARCH_KIND],
  ['advisor', ADVISOR_KIND],
])
/** For a result whose call is missing from the messages. */
const KIND_BY_RESULT: ReadonlyMap<string, ItemKind> = new Map([
  ['web_search_tool_result', SEARCH_KIND],
  ['web_fetch_tool_result', FETCH_KIND],
  ['code_execution_tool_result', CODE_KIND],
  ['bash_code_execution_tool_result', CODE_KIND],
  ['text_editor_code_execution_tool_result', CODE_KIND],
  ['tool_search_tool_result', TOOL_SEARCH_KIND],
  ['advisor_tool_result', ADVISOR_KIND],
])

/** Ids that Anthropic gives to calls of its tools. */
const ANTHROPIC_ID = /^(?:srvtoolu|mcptoolu)_/

const isItem = compile(InputItem)

interface ReplayedCall {
  readonly call: ServerToolUseBlock
  /** Null for a tool of the gateway: its item begins with the result. */
  readonly item: Item | null
}

/** The calls of one conversation. */
export class ReplayedCalls {
  readonly #calls = new Map<string, ReplayedCall>()

  /** The item of a call, which is complete once its result has arrived; null: it has none yet. */
  call(block: ServerToolUseBlock): Item | null {
    const isKnown = block.type === 'mcp_tool_use' || KIND_BY_TOOL.has(block.name)
    const item: Item | null = isKnown ? {} : null
    this.#calls.set(block.id, { call: block, item })
    if (item !== null) fill(item, block, null)
    return item
  }

  /** Joins the result to its call, or makes the item; null: no new item. */
  result(block: ServerToolResult): Item | null {
    const openCall = this.#calls.get(block.tool_use_id)
    const gatewayResult = GATEWAY_RESULTS.get(block.type)
    if (gatewayResult !== undefined) return gatewayItem(gatewayResult, openCall?.call.input ?? {}, block)
    if (openCall?.item != null) {
      fill(openCall.item, openCall.call, block)
      return null
    }
    const item: Item = {}
    fill(item, null, block)
    return isItem(item) ? item : null
  }
}

/** Writes the fields of the item: first without a result, and again with it. */
function fill(item: Item, call: ServerToolUseBlock | null, result: ServerToolResult | null): void {
  const id = call?.id ?? result?.tool_use_id ?? ''
  Object.assign(item, call?.type === 'mcp_tool_use' ? mcpFields(call, result) : toolFields(call, result), {
    id,
  })
  if (!ANTHROPIC_ID.test(id)) return
  const blocks = [call, result].filter(block => block !== null)
  item['native'] = { blocks }
}

function toolFields(call: ServerToolUseBlock | null, result: ServerToolResult | null): Item {
  const kind =
    KIND_BY_TOOL.get(call?.name ?? '') ?? KIND_BY_RESULT.get(result?.type ?? '') ?? TOOL_SEARCH_KIND
  const status = result === null ? kind.pending : 'completed'
  return { type: kind.type, status, ...kind.fields(call?.input ?? {}, result?.content) }
}

/** The item as the gateway sent it; null if the client has changed its fields. */
function gatewayItem(
  type: string,
  input: Fields,
  { tool_use_id: id, content }: ServerToolResult,
): Item | null {
  const { native: _, ...fields } = { ...input, ...(isObject(content) ? content : {}) }
  const item = { ...fields, type, id, status: 'completed' }
  return isItem(item) ? item : null
}

function mcpFields(
  { name, server_name, input }: Extract<ServerToolUseBlock, { type: 'mcp_tool_use' }>,
  result: ServerToolResult | null,
): Item {
  const fields: Item = {
    type: 'mcp_call',
    name,
    server_label: server_name,
    arguments: JSON.stringify(input ?? {}),
  }
  if (result !== null) fields[result.is_error === true ? 'error' : 'output'] = textOf(result.content)
  return fields
}

function textOf(content: unknown): string {
  if (typeof content === 'string') return content
  if (!Array.isArray(content)) return ''
  return content.map((part: unknown) => textOrEmpty(recordOrEmpty(part)['text'])).join('')
}

function sources(content: readonly unknown[]): Item[] {
  return content.flatMap(result => {
    const url = textOrEmpty(recordOrEmpty(result)['url'])
    return url === '' ? [] : [{ type: 'url', url }]
  })
}

function outputs(content: Fields): Item[] {
  return ['stdout', 'stderr'].flatMap(name => {
    const logs = textOrEmpty(content[name])
    return logs === '' ? [] : [{ type: 'logs', logs }]
  })
}
