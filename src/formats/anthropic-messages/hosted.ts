/**
 * Tools that Anthropic runs: a `server_tool_use` (or `mcp_tool_use`) block and, later in this reply or the next, a
 * `*_tool_result` block with the same id. Both together are one item; the table KINDS maps tools to items. Pure.
 */
import {
  filled,
  type Json,
  jsonText,
  listOrEmpty,
  parseJson,
  record,
  recordOrEmpty,
  textOrEmpty,
} from '../../base/json.ts'
import type { HostedItem } from '../../protocol/items.ts'
import { withNative } from '../../protocol/json/native.ts'
import { LongText } from '../long-text.ts'
import { type Block, IGNORED_BLOCK, type Output } from './blocks.ts'

/** The known parts of a call. */
interface CallParts {
  /** The block that began the call; empty if this reply has only its result. */
  readonly use: Json
  readonly input: Json
  readonly result: Json | null
  readonly containerId: string | null
}

interface ToolKind {
  readonly type: HostedItem['type']
  /** The status of a failed call and of a call without a result in this reply. It depends on the kind of call. */
  readonly failedStatus: 'failed' | 'incomplete'
  readonly pendingStatus: 'incomplete' | 'in_progress'
  /** Names of the progress events at the start of a call, after its input, and after its result. */
  readonly startEvent: string | null
  readonly inputEvent: string | null
  readonly resultEvent: string | null
  /** The known fields of the item. */
  fields(call: CallParts): Json
}

const CODE_KIND: ToolKind = {
  type: 'code_interpreter_call',
  failedStatus: 'failed',
  pendingStatus: 'incomplete',
  startEvent: 'code_interpreter_call.in_progress',
  inputEvent: 'code_interpreter_call.interpreting',
  resultEvent: 'code_interpreter_call.completed',
  fields: call => ({
    code: codeOf(call.input),
    container_id: call.containerId,
    outputs: outputsOf(call.result),
  }),
}

/** A kind without progress events. */
const NO_EVENTS = { startEvent: null, inputEvent: null, resultEvent: null }

/** A search and the opening of a page are two actions of one kind of item. */
const WEB_KIND: Omit<ToolKind, 'fields'> = {
  type: 'web_search_call',
  failedStatus: 'failed',
  pendingStatus: 'in_progress',
  startEvent: 'web_search_call.in_progress',
  inputEvent: 'web_search_call.searching',
  resultEvent: 'web_search_call.completed',
}

const TOOL_KINDS: Readonly<Record<'search' | 'fetch' | 'toolSearch' | 'advisor' | 'mcp', ToolKind>> = {
  search: { ...WEB_KIND, fields: call => ({ action: searchAction(call) }) },
  fetch: { ...WEB_KIND, fields: call => ({ action: { type: 'open_page', url: fetchedUrl(call) } }) },
  toolSearch: {
    type: 'gateway:tool_search',
    failedStatus: 'incomplete',
    pendingStatus: 'incomplete',
    ...NO_EVENTS,
    fields: call => ({ query: filled(call.input['query']) ?? textOrEmpty(call.input['pattern']) }),
  },
  advisor: {
    type: 'gateway:advisor',
    failedStatus: 'failed',
    pendingStatus: 'incomplete',
    ...NO_EVENTS,
    fields: adviceFields,
  },
  mcp: {
    type: 'mcp_call',
    failedStatus: 'failed',
    pendingStatus: 'incomplete',
    ...NO_EVENTS,
    fields: mcpFields,
  },
}

const KIND_BY_TOOL: ReadonlyMap<string, ToolKind> = new Map([
  ['web_search', TOOL_KINDS.search],
  ['web_fetch', TOOL_KINDS.fetch],
  ['code_execution', CODE_KIND],
  ['bash_code_execution', CODE_KIND],
  ['text_editor_code_execution', CODE_KIND],
  ['tool_search_tool_regex', TOOL_KINDS.toolSearch],
  ['tool_search_tool_bm25', TOOL_KINDS.toolSearch],
  ['advisor', TOOL_KINDS.advisor],
])

const KIND_BY_RESULT: ReadonlyMap<string, ToolKind> = new Map([
  ['web_search_tool_result', TOOL_KINDS.search],
  ['web_fetch_tool_result', TOOL_KINDS.fetch],
  ['code_execution_tool_result', CODE_KIND],
  ['bash_code_execution_tool_result', CODE_KIND],
  ['text_editor_code_execution_tool_result', CODE_KIND],
  ['tool_search_tool_result', TOOL_KINDS.toolSearch],
  ['advisor_tool_result', TOOL_KINDS.advisor],
  ['mcp_tool_result', TOOL_KINDS.mcp],
])

/** Calls of Anthropic's own tools in one reply. */
export class HostedCalls {
  readonly #output: Output
  readonly #running = new Map<string, HostedCall>()
  /** Number of calls without an id so far. */
  #unnamedCount = 0

  constructor(output: Output) {
    this.#output = output
  }

  /** Opens a block; null if it is neither a hosted call nor a result of one. */
  open(block: Json): Block | null {
    const type = textOrEmpty(block['type'])
    if (type === 'server_tool_use' || type === 'mcp_tool_use') {
      const kind = type === 'mcp_tool_use' ? TOOL_KINDS.mcp : KIND_BY_TOOL.get(textOrEmpty(block['name']))
      return kind === undefined ? IGNORED_BLOCK : this.#beginCall(kind, textOrEmpty(block['id']), block)
    }
    const kind = KIND_BY_RESULT.get(type)
    if (kind === undefined) return null
    const id = textOrEmpty(block['tool_use_id'])
    const [name, call] = this.#callFor(kind, id)
    this.#running.delete(name)
    call.finish(block)
    return IGNORED_BLOCK
  }

  /**
   * The call that a result belongs to. Some intermediaries change ids: then it is the oldest open call of the kind. If
   * no call of the kind is open, the call was part of an earlier reply, and the item begins and ends here.
   */
  #callFor(kind: ToolKind, id: string): readonly [id: string, call: HostedCall] {
    const callWithId = this.#running.get(id)
    if (callWithId !== undefined) return [id, callWithId]
    for (const entry of this.#running) if (entry[1].kind === kind) return entry
    return [id, this.#beginCall(kind, id, {})]
  }

  /** Ends the open calls, at the end of the reply. A call without a result continues in the next turn. */
  end(): void {
    for (const call of this.#running.values()) call.finish(null)
    this.#running.clear()
  }

  #beginCall(kind: ToolKind, id: string, use: Json): HostedCall {
    this.#running.get(id)?.finish(null)
    const call = new HostedCall(
      this.#output,
      kind,
      id === '' ? `st_${kind.type}_${this.#unnamedCount++}` : id,
      use,
    )
    this.#running.set(id, call)
    return call
  }
}

class HostedCall implements Block {
  readonly kind: ToolKind
  readonly #output: Output
  readonly #use: Json
  readonly #item: number
  readonly #json = new LongText()
  #input: Json
  /** True once the whole call is known. A result may come before the end of its call's block. */
  #isInputComplete = false

  constructor(output: Output, kind: ToolKind, id: string, use: Json) {
    this.#output = output
    this.kind = kind
    this.#use = use
    this.#input = recordOrEmpty(use['input'])
    const fields = kind.fields(this.#callParts(null))
    const item: HostedItem = { type: kind.type, id, status: 'in_progress', ...fields }
    this.#item = output.open({ type: 'hosted', item })
    this.#progress(kind.startEvent, {})
  }

  delta(type: string, delta: Json): void {
    if (type !== 'input_json_delta') return
    const piece = textOrEmpty(delta['partial_json'])
    this.#json.add(piece)
    this.#output.withheld.add(piece)
  }

  stop(): void {
    if (this.#isInputComplete) return
    this.#isInputComplete = true
    if (this.#json.length > 0) this.#input = recordOrEmpty(parseJson(this.#json.toString()))
    if (this.kind === CODE_KIND) {
      const code = codeOf(this.#input)
      this.#progress('code_interpreter_call_code.delta', { delta: code })
      this.#progress('code_interpreter_call_code.done', { code })
    }
    this.#progress(this.kind.inputEvent, {})
  }

  /** `result`: the result block; null if the reply ends without one. */
  finish(result: Json | null): void {
    if (this.#use['type'] === undefined) this.#isInputComplete = true
    this.stop()
    const isFailure = result !== null && isFailed(result)
    if (result !== null && !isFailure) this.#progress(this.kind.resultEvent, {})
    const status =
      result === null ? this.kind.pendingStatus : isFailure ? this.kind.failedStatus : 'completed'
    const fields = { status, ...this.kind.fields(this.#callParts(result)) }
    // Both blocks have encrypted parts and are sent back unchanged.
    const use = this.#use['type'] === undefined ? [] : [{ ...this.#use, input: this.#input }]
    const blocks = result === null ? use : [...use, result]
    this.#output.emit({ kind: 'close', item: this.#item, fields: withNative(fields, { blocks }) })
  }

  #callParts(result: Json | null): CallParts {
    return { use: this.#use, input: this.#input, result, containerId: this.#output.containerId }
  }

  #progress(name: string | null, fields: Json): void {
    if (name !== null) this.#output.emit({ kind: 'progress', item: this.#item, name, fields })
  }
}

/** True for a failed call: its content has an error type, or an MCP result has a flag. */
function isFailed(result: Json): boolean {
  return result['is_error'] === true || textOrEmpty(record(result['content'])?.['type']).endsWith('_error')
}

function searchAction(call: CallParts): Json {
  const action = { type: 'search', query: textOrEmpty(call.input['query']) }
  if (call.result === null) return action
  const sources = listOrEmpty(call.result['content']).flatMap(result => {
    const url = filled(record(result)?.['url'])
    return url === null ? [] : [{ type: 'url', url }]
  })
  return { ...action, sources }
}

function fetchedUrl(call: CallParts): string {
  return filled(call.input['url']) ?? textOrEmpty(record(call.result?.['content'])?.['url'])
}

/** The code of a call; the several fields of a text editor's command become JSON. */
function codeOf(input: Json): string {
  return (
    filled(input['code']) ?? (input['path'] === undefined ? textOrEmpty(input['command']) : jsonText(input))
  )
}

/** The printed text, then the written files; null without a result. */
function outputsOf(result: Json | null): Json[] | null {
  if (result === null) return null
  const content = recordOrEmpty(result['content'])
  const logs = printedTexts(content).map(text => ({ type: 'logs', logs: text }))
  const files = listOrEmpty(content['content']).flatMap(file => {
    const id = filled(record(file)?.['file_id'])
    return id === null ? [] : [{ type: 'file', id }]
  })
  return [...logs, ...files]
}

function printedTexts(content: Json): string[] {
  const type = textOrEmpty(content['type'])
  if (type.endsWith('_error'))
    return [[content['error_code'], content['error_message']].map(textOrEmpty).filter(Boolean).join(': ')]
  if (type === 'text_editor_code_execution_view_result') return [textOrEmpty(content['content'])]
  if (type === 'text_editor_code_execution_create_result') {
    return [content['is_file_update'] === true ? 'file updated' : 'file created']
  }
  if (type === 'text_editor_code_execution_str_replace_result')
    return [listOrEmpty(content['lines']).map(textOrEmpty).join('\n')]
  return [textOrEmpty(content['stdout']), textOrEmpty(content['stderr'])].filter(text => text !== '')
}

function adviceFields(call: CallParts): Json {
  const content = record(call.result?.['content'])
  if (content === null) return {}
  const error = filled(content['error_code'])
  if (error !== null) return { error }
  // Redacted advice is readable for the model alone.
  const advice = filled(content['text'])
  return advice === null ? {} : { advice }
}

function mcpFields(call: CallParts): Json {
  const fields = {
    name: textOrEmpty(call.use['name']),
    server_label: textOrEmpty(call.use['server_name']),
    arguments: jsonText(call.input),
  }
  if (call.result === null) return fields
  const content = call.result['content']
  const output =
    typeof content === 'string'
      ? content
      : listOrEmpty(content)
          .map(part => textOrEmpty(record(part)?.['text']))
          .join('')
  return call.result['is_error'] === true ? { ...fields, error: output } : { ...fields, output }
}
