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
import { type Block, IGNORED, type Output } from './blocks.ts'

/** The known parts of a call. */
interface Call {
  /** The block that began the call; empty if this reply has only its result. */
  readonly use: Json
  readonly input: Json
  readonly result: Json | null
  readonly containerId: string | null
}

interface Kind {
  readonly type: HostedItem['type']
  /** The status of a failed call and of a call without a result in this reply. It depends on the kind of call. */
  readonly wrong: 'failed' | 'incomplete'
  readonly pending: 'incomplete' | 'in_progress'
  /** Names of the progress events at the start of a call, after its input, and after its result. */
  readonly started: string | null
  readonly called: string | null
  readonly done: string | null
  /** The known fields of the item. */
  fields(call: Call): Json
}

const CODE: Kind = {
  type: 'code_interpreter_call',
  wrong: 'failed',
  pending: 'incomplete',
  started: 'code_interpreter_call.in_progress',
  called: 'code_interpreter_call.interpreting',
  done: 'code_interpreter_call.completed',
  fields: call => ({
    code: codeOf(call.input),
    container_id: call.containerId,
    outputs: outputsOf(call.result),
  }),
}

/** A kind without progress events. */
const SILENT = { started: null, called: null, done: null }

/** A search and the opening of a page are two actions of one kind of item. */
const WEB: Omit<Kind, 'fields'> = {
  type: 'web_search_call',
  wrong: 'failed',
  pending: 'in_progress',
  started: 'web_search_call.in_progress',
  called: 'web_search_call.searching',
  done: 'web_search_call.completed',
}

const KINDS: Readonly<Record<'search' | 'fetch' | 'toolSearch' | 'advisor' | 'mcp', Kind>> = {
  search: { ...WEB, fields: call => ({ action: searchAction(call) }) },
  fetch: { ...WEB, fields: call => ({ action: { type: 'open_page', url: fetchedUrl(call) } }) },
  toolSearch: {
    type: 'gateway:tool_search',
    wrong: 'incomplete',
    pending: 'incomplete',
    ...SILENT,
    fields: call => ({ query: filled(call.input['query']) ?? textOrEmpty(call.input['pattern']) }),
  },
  advisor: {
    type: 'gateway:advisor',
    wrong: 'failed',
    pending: 'incomplete',
    ...SILENT,
    fields: adviceFields,
  },
  mcp: {
    type: 'mcp_call',
    wrong: 'failed',
    pending: 'incomplete',
    ...SILENT,
    fields: mcpFields,
  },
}

const BY_TOOL: ReadonlyMap<string, Kind> = new Map([
  ['web_search', KINDS.search],
  ['web_fetch', KINDS.fetch],
  ['code_execution', CODE],
  ['bash_code_execution', CODE],
  ['text_editor_code_execution', CODE],
  ['tool_search_tool_regex', KINDS.toolSearch],
  ['tool_search_tool_bm25', KINDS.toolSearch],
  ['advisor', KINDS.advisor],
])

const BY_RESULT: ReadonlyMap<string, Kind> = new Map([
  ['web_search_tool_result', KINDS.search],
  ['web_fetch_tool_result', KINDS.fetch],
  ['code_execution_tool_result', CODE],
  ['bash_code_execution_tool_result', CODE],
  ['text_editor_code_execution_tool_result', CODE],
  ['tool_search_tool_result', KINDS.toolSearch],
  ['advisor_tool_result', KINDS.advisor],
  ['mcp_tool_result', KINDS.mcp],
])

/** Calls of Anthropic's own tools in one reply. */
export class HostedCalls {
  readonly #output: Output
  readonly #running = new Map<string, HostedCall>()
  /** Number of calls without an id so far. */
  #unnamed = 0

  constructor(output: Output) {
    this.#output = output
  }

  /** Opens a block; null if it is neither a hosted call nor a result of one. */
  open(block: Json): Block | null {
    const type = textOrEmpty(block['type'])
    if (type === 'server_tool_use' || type === 'mcp_tool_use') {
      const kind = type === 'mcp_tool_use' ? KINDS.mcp : BY_TOOL.get(textOrEmpty(block['name']))
      return kind === undefined ? IGNORED : this.#begin(kind, textOrEmpty(block['id']), block)
    }
    const kind = BY_RESULT.get(type)
    if (kind === undefined) return null
    const id = textOrEmpty(block['tool_use_id'])
    const [name, call] = this.#calledFor(kind, id)
    this.#running.delete(name)
    call.finish(block)
    return IGNORED
  }

  /**
   * The call that a result belongs to. Some intermediaries change ids: then it is the oldest open call of the kind. If
   * no call of the kind is open, the call was part of an earlier reply, and the item begins and ends here.
   */
  #calledFor(kind: Kind, id: string): readonly [id: string, call: HostedCall] {
    const own = this.#running.get(id)
    if (own !== undefined) return [id, own]
    for (const entry of this.#running) if (entry[1].kind === kind) return entry
    return [id, this.#begin(kind, id, {})]
  }

  /** Call at the end of the reply. Calls without a result continue in the next turn. */
  end(): void {
    for (const call of this.#running.values()) call.finish(null)
    this.#running.clear()
  }

  #begin(kind: Kind, id: string, use: Json): HostedCall {
    this.#running.get(id)?.finish(null)
    const call = new HostedCall(
      this.#output,
      kind,
      id === '' ? `st_${kind.type}_${this.#unnamed++}` : id,
      use,
    )
    this.#running.set(id, call)
    return call
  }
}

class HostedCall implements Block {
  readonly kind: Kind
  readonly #output: Output
  readonly #use: Json
  readonly #item: number
  readonly #json = new LongText()
  #input: Json
  /** True once the whole call is known. A result may come before the end of its call's block. */
  #called = false

  constructor(output: Output, kind: Kind, id: string, use: Json) {
    this.#output = output
    this.kind = kind
    this.#use = use
    this.#input = recordOrEmpty(use['input'])
    const item: HostedItem = { type: kind.type, id, status: 'in_progress', ...kind.fields(this.#call(null)) }
    this.#item = output.open({ type: 'hosted', item })
    this.#progress(kind.started, {})
  }

  delta(type: string, delta: Json): void {
    if (type !== 'input_json_delta') return
    const piece = textOrEmpty(delta['partial_json'])
    this.#json.add(piece)
    this.#output.withheld.add(piece)
  }

  stop(): void {
    if (this.#called) return
    this.#called = true
    if (this.#json.length > 0) this.#input = recordOrEmpty(parseJson(this.#json.toString()))
    if (this.kind === CODE) {
      const code = codeOf(this.#input)
      this.#progress('code_interpreter_call_code.delta', { delta: code })
      this.#progress('code_interpreter_call_code.done', { code })
    }
    this.#progress(this.kind.called, {})
  }

  /** `result`: the result block; null if the reply ends without one. */
  finish(result: Json | null): void {
    if (this.#use['type'] === undefined) this.#called = true
    this.stop()
    const isFailure = result !== null && isWrong(result)
    if (result !== null && !isFailure) this.#progress(this.kind.done, {})
    const status = result === null ? this.kind.pending : isFailure ? this.kind.wrong : 'completed'
    const fields = { status, ...this.kind.fields(this.#call(result)) }
    // Both blocks have encrypted parts and are sent back unchanged.
    const use = this.#use['type'] === undefined ? [] : [{ ...this.#use, input: this.#input }]
    const blocks = result === null ? use : [...use, result]
    this.#output.emit({ kind: 'close', item: this.#item, fields: withNative(fields, { blocks }) })
  }

  #call(result: Json | null): Call {
    return { use: this.#use, input: this.#input, result, containerId: this.#output.containerId }
  }

  #progress(name: string | null, fields: Json): void {
    if (name !== null) this.#output.emit({ kind: 'progress', item: this.#item, name, fields })
  }
}

/** True for a failed call: its content has an error type, or an MCP result has a flag. */
function isWrong(result: Json): boolean {
  return result['is_error'] === true || textOrEmpty(record(result['content'])?.['type']).endsWith('_error')
}

function searchAction(call: Call): Json {
  const action = { type: 'search', query: textOrEmpty(call.input['query']) }
  if (call.result === null) return action
  const sources = listOrEmpty(call.result['content']).flatMap(found => {
    const url = filled(record(found)?.['url'])
    return url === null ? [] : [{ type: 'url', url }]
  })
  return { ...action, sources }
}

function fetchedUrl(call: Call): string {
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

function adviceFields(call: Call): Json {
  const content = record(call.result?.['content'])
  if (content === null) return {}
  const error = filled(content['error_code'])
  if (error !== null) return { error }
  // Redacted advice is readable for the model alone.
  const advice = filled(content['text'])
  return advice === null ? {} : { advice }
}

function mcpFields(call: Call): Json {
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
