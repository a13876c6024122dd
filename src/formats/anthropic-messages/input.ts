/**
 * Encodes input items and their content parts as Anthropic's `system` and turns. Pure.
 *
 * - Neighbours of one role become one turn; in a user turn tool results come first, as the API demands.
 * - A message of a client of this API leaves as it came, if it may (dialects/messages/verbatim.ts) and nothing has
 *   changed it; the rules below are for all others.
 * - Later system messages of such a client keep their place. Those of others, and of developers, join `system` in
 *   order: not every model takes them in the conversation, and a user turn would take their authority away.
 * - The encoder omits items of tools that a provider ran (see outgoing.ts): the API accepts such blocks only with
 *   sealed contents that the items lack.
 * - It omits reasoning of other providers, which Anthropic cannot verify.
 * - It refuses audio, video and files by id with their path: the API has no block for them.
 */
import type { AssistantPart, InputFile, InputImage, InputItem, InputPart } from '../../protocol/items.ts'
import { writtenAt } from '../../protocol/json/verbatim.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import { inexpressible } from '../failure.ts'
import { recordOrEmpty, records } from '../json.ts'
import { callArguments, refuseItem } from '../outgoing.ts'
import { isSpent, replayAsCall } from '../replayed.ts'
import { openCompaction } from './blocks.ts'
import { actionsIn, COMPUTER, inputOf } from './computer.ts'

export interface MessagesTurn {
  readonly role: 'user' | 'assistant' | 'system'
  readonly content: readonly MessagesBlock[]
}

interface MessagesConversation {
  readonly system: readonly MessagesBlock[]
  readonly turns: readonly MessagesTurn[]
  /** The last effort that the input sets; undefined if it sets none. */
  readonly effort: ReasoningEffort | undefined
  /** True if a turn holds a compaction, which needs a beta flag. */
  readonly compacted: boolean
}

type ReasoningEffort = NonNullable<ResponsesRequest['reasoning']>['effort']

/**
 * The system prompt and turns of a request.
 * @throws GatewayError `unprocessable` that names the item without a form in this API
 */
export function conversation(request: ResponsesRequest): MessagesConversation {
  const writer = new Writer()
  if (request.instructions != null) writer.system.push(...textBlocks(request.instructions))
  if (typeof request.input === 'string') writer.add('user', textBlocks(request.input))
  else writer.all(request.input)
  if (!writer.turns.some(turn => turn.role !== 'system'))
    throw inexpressible('input', 'must hold at least one message that is neither empty nor a system message')
  return {
    ...writer,
    turns: writer.turns.map(turn => (turn instanceof OpenTurn ? resultsFirst(turn) : turn)),
  }
}

/** A turn to which neighbours of its role are added. */
class OpenTurn implements MessagesTurn {
  readonly role: MessagesTurn['role']
  readonly content: MessagesBlock[]

  constructor(role: MessagesTurn['role'], content: readonly MessagesBlock[]) {
    this.role = role
    this.content = [...content]
  }
}

class Writer {
  readonly system: MessagesBlock[] = []
  readonly turns: MessagesTurn[] = []
  effort: ReasoningEffort | undefined = undefined
  compacted = false
  /** Actions of the computer by call. */
  readonly #actions = new Map<string, number>()

  add(role: MessagesTurn['role'], blocks: readonly MessagesBlock[]): void {
    if (blocks.length === 0) return
    const last = this.turns.at(-1)
    if (last?.role === role && last instanceof OpenTurn) last.content.push(...blocks)
    else this.turns.push(new OpenTurn(role, blocks))
  }

  all(input: readonly InputItem[]): void {
    for (let at = 0; at < input.length; at++) {
      const written = writtenAt(input, at)
      if (written !== null) {
        const content = written.content as readonly MessagesBlock[]
        if (written.role === null) this.system.push(...content)
        else this.turns.push({ role: written.role, content })
        at += written.items.length - 1
        continue
      }
      const item = input[at] as InputItem
      for (const one of replayAsCall(item, at) ?? [item]) this.item(one, `input[${at}]`)
    }
  }

  item(item: InputItem, path: string): void {
    switch (item.type) {
      case undefined:
      case 'message':
        this.#message(item, path)
        return
      case 'reasoning':
        this.add('assistant', thinkingBlocks(item))
        return
      case 'web_search_call':
      case 'code_interpreter_call':
      case 'mcp_call':
      case 'gateway:tool_search':
      case 'gateway:advisor':
        this.add('assistant', ownBlocks(item))
        return
      case 'function_call':
        this.#functionCall(item, `${path}.arguments`)
        return
      case 'custom_tool_call':
        this.#call(item.call_id, item.name, { input: item.input })
        return
      case 'apply_patch_call':
        this.#call(item.call_id, 'apply_patch', { ...item.operation })
        return
      case 'shell_call':
        this.#call(item.call_id, 'shell', { ...item.action })
        return
      case 'local_shell_call':
        this.#call(item.call_id, 'local_shell', { ...item.action })
        return
      case 'computer_call':
        this.#computerCall(item)
        return
      case 'computer_call_output':
        this.#screenshot(item, `${path}.output`)
        return
      case 'function_call_output':
      case 'custom_tool_call_output':
        this.#result(item.call_id, toolOutput(item.output, `${path}.output`), nativeFields(item))
        return
      case 'apply_patch_call_output':
        this.#result(
          item.call_id,
          item.output ?? item.status,
          item.status === 'failed' ? { is_error: true } : {},
        )
        return
      case 'shell_call_output':
        this.#result(item.call_id, JSON.stringify(item.output))
        return
      case 'local_shell_call_output':
        this.#result(item.id, item.output)
        return
      case 'compaction':
      case 'context_compaction':
        this.#compaction(item, path)
        return
      case 'configuration_update':
        this.effort = item.reasoning.effort
        return
    }
    if (!isSpent(item.type)) throw refuseItem(item.type, path)
  }

  #message(
    item: Extract<InputItem, { role: 'user' | 'assistant' | 'system' | 'developer'; content: unknown }>,
    path: string,
  ): void {
    const blocks = contentBlocks(item.content, `${path}.content`)
    if (item.role === 'user' || item.role === 'assistant') {
      this.add(item.role, blocks)
      return
    }
    const other = blocks.findIndex(block => block['type'] !== 'text')
    if (other !== -1)
      throw inexpressible(`${path}.content`, 'this provider takes only text in system messages')
    if (nativeFields(item)['in_place'] === true) this.add('system', blocks)
    else this.system.push(...blocks)
  }

  #functionCall(item: Extract<InputItem, { type: 'function_call' }>, path: string): void {
    const more = { ...callerOf(item), ...nativeFields(item) }
    this.#call(item.call_id, item.name, callArguments(item.arguments, path), more)
  }

  #call(callId: string, name: string, input: unknown, more: MessagesBlock = {}): void {
    this.add('assistant', [{ type: 'tool_use', id: toolUseId(callId), name, input, ...more }])
  }

  /** The API takes one action a call; an item of another provider may have several. */
  #computerCall(item: Extract<InputItem, { type: 'computer_call' }>): void {
    const actions = actionsIn(item)
    this.#actions.set(item.call_id, actions.length)
    for (const [at, action] of actions.entries())
      this.#call(partId(item.call_id, at), COMPUTER, inputOf(action))
  }

  /** The screenshot is that after the last action. */
  #screenshot(item: Extract<InputItem, { type: 'computer_call_output' }>, path: string): void {
    const last = (this.#actions.get(item.call_id) ?? 1) - 1
    for (let at = 0; at < last; at++) this.#result(partId(item.call_id, at), 'done')
    const image = imageBlock({ ...item.output, type: 'input_image' }, path)
    this.#result(partId(item.call_id, last), [image])
  }

  #result(callId: string, content: string | MessagesBlock[], more: MessagesBlock = {}): void {
    const block: MessagesBlock = { type: 'tool_result', tool_use_id: toolUseId(callId) }
    if (content.length > 0) block['content'] = content
    this.add('user', [{ ...block, ...more }])
  }

  #compaction(item: Extract<InputItem, { type: 'compaction' | 'context_compaction' }>, path: string): void {
    const block = openCompaction(item.encrypted_content) ?? nativeBlock(item)
    if (block === null)
      throw inexpressible(path, 'was made by another provider and cannot be read by this one')
    this.compacted = true
    this.add('assistant', [{ ...block }])
  }
}

function partId(callId: string, at: number): string {
  return at === 0 ? callId : `${callId}_${at + 1}`
}

/** Moves tool results to the front of a user turn, directly after their calls; keeps all other order. */
function resultsFirst(turn: MessagesTurn): MessagesTurn {
  if (turn.role !== 'user') return turn
  const isResult = (block: MessagesBlock): boolean => block['type'] === 'tool_result'
  return {
    role: 'user',
    content: [...turn.content.filter(isResult), ...turn.content.filter(block => !isResult(block))],
  }
}

/** Replaces characters that this API refuses in ids; a call and its result change alike. */
function toolUseId(callId: string): string {
  return callId.replace(/[^a-zA-Z0-9_-]/g, '_')
}

/** Fields that only this API knows, of an item that came from a client of the same. */
function nativeFields(item: object): MessagesBlock {
  return recordOrEmpty((item as { readonly native?: unknown }).native)
}

/** The whole block where the client sent one that a part cannot say; null: the part says it. */
function nativeBlock(item: object): MessagesBlock | null {
  const native = nativeFields(item)
  return typeof native['type'] === 'string' ? native : null
}

/** The blocks of a tool that Anthropic ran, where they came back as it made them; else the item is left out. */
function ownBlocks(item: object): readonly MessagesBlock[] {
  return [...records(nativeFields(item)['blocks'])]
}

/** The caller of a tool call, if a code execution made the call. */
function callerOf(item: object): MessagesBlock {
  const caller = (item as { readonly caller?: unknown }).caller
  return typeof caller === 'object' && caller !== null ? { caller } : {}
}

function toolOutput(
  output: Extract<InputItem, { type: 'function_call_output' }>['output'],
  path: string,
): string | MessagesBlock[] {
  return typeof output === 'string' ? output : contentBlocks(output, path)
}

type Reasoning = Extract<InputItem, { type: 'reasoning' }>

/** A thinking block goes back only with Anthropic's signature or encryption. */
function thinkingBlocks(item: Reasoning): MessagesBlock[] {
  const ours = item.format === 'anthropic-claude-v1'
  if (item.signature != null && item.signature !== '' && (ours || item.format == null)) {
    const raw = item.content?.map(part => part.text).join('') ?? ''
    const thinking = raw === '' ? (item.summary?.map(part => part.text).join('') ?? '') : raw
    return [{ type: 'thinking', thinking, signature: item.signature }]
  }
  if (ours && item.encrypted_content != null && item.encrypted_content !== '') {
    return [{ type: 'redacted_thinking', data: item.encrypted_content }]
  }
  return []
}

// Content parts

/** A content block on the wire. */
export type MessagesBlock = Record<string, unknown>

const IMAGE_TYPES: ReadonlySet<string> = new Set(['image/jpeg', 'image/png', 'image/gif', 'image/webp'])

/** The beginning of a PDF file (`%PDF`) in base64. */
const PDF_START = 'JVBERi'

/** A text block; no block for blank text, which the API refuses. */
function textBlocks(text: string): MessagesBlock[] {
  return text.trim() === '' ? [] : [{ type: 'text', text }]
}

/** Blocks of a message's content or of a tool's output. @throws GatewayError `unprocessable` */
function contentBlocks(
  content: string | readonly (InputPart | AssistantPart)[] | null,
  path: string,
): MessagesBlock[] {
  if (content === null) return []
  if (typeof content === 'string') return textBlocks(content)
  return content.flatMap((part, index) => partBlocks(part, `${path}[${index}]`))
}

function partBlocks(part: InputPart | AssistantPart, path: string): MessagesBlock[] {
  const native = nativeBlock(part)
  if (native !== null) return [native]
  return plainBlocks(part, path).map(block => ({
    ...markBlock(block, part as CacheMarks),
    ...nativeFields(part),
  }))
}

function plainBlocks(part: InputPart | AssistantPart, path: string): MessagesBlock[] {
  switch (part.type) {
    case 'input_text':
    case 'output_text':
      return textBlocks(part.text)
    case 'refusal':
      return textBlocks(part.refusal)
    case 'input_image':
      return [imageBlock(part, path)]
    case 'input_file':
      return [fileBlock(part, path)]
    case 'input_audio':
      throw inexpressible(path, 'this provider takes no audio')
    case 'input_video':
      throw inexpressible(path, 'this provider takes no video')
    default:
      throw inexpressible(path, 'this provider takes no content of this type')
  }
}

interface CacheMarks {
  readonly cache_control?:
    | { readonly type: 'ephemeral'; readonly ttl?: '5m' | '1h' | null }
    | null
    | undefined
  readonly prompt_cache_breakpoint?: unknown
}

/** Adds the cache breakpoint of the part. */
function markBlock(block: MessagesBlock, part: CacheMarks): MessagesBlock {
  const cache = cacheControl(part.cache_control)
  if (cache !== null) return { ...block, cache_control: cache }
  if (part.prompt_cache_breakpoint == null) return block
  return { ...block, cache_control: { type: 'ephemeral' } }
}

/** `cache_control` on the wire; null if there is none. */
export function cacheControl(given: CacheMarks['cache_control']): Record<string, unknown> | null {
  if (given == null) return null
  return given.ttl == null ? { type: 'ephemeral' } : { type: 'ephemeral', ttl: given.ttl }
}

function imageBlock(part: InputImage, path: string): MessagesBlock {
  const url = part.image_url
  if (url == null || url === '')
    throw inexpressible(`${path}.file_id`, 'this provider takes images by URL or inline only')
  return { type: 'image', source: imageSource(url, `${path}.image_url`) }
}

function imageSource(url: string, path: string): MessagesBlock {
  const inline = dataUrl(url)
  if (inline === null) return { type: 'url', url: webUrl(url, path) }
  const media_type = inline.mediaType === 'image/jpg' ? 'image/jpeg' : inline.mediaType
  if (!inline.base64 || !IMAGE_TYPES.has(media_type)) {
    throw inexpressible(path, 'must be a JPEG, PNG, GIF or WebP image in base64')
  }
  return { type: 'base64', media_type, data: inline.data }
}

function fileBlock(part: InputFile, path: string): MessagesBlock {
  const title = part.filename == null || part.filename === '' ? {} : { title: part.filename }
  if (part.file_data != null && part.file_data !== '') {
    const source = fileSource(part.file_data, `${path}.file_data`)
    return source['media_type'] === undefined || !IMAGE_TYPES.has(String(source['media_type']))
      ? { type: 'document', source, ...title }
      : { type: 'image', source }
  }
  if (part.file_url != null && part.file_url !== '') {
    return {
      type: 'document',
      source: { type: 'url', url: webUrl(part.file_url, `${path}.file_url`) },
      ...title,
    }
  }
  throw inexpressible(`${path}.file_id`, 'this provider takes files by URL or inline only')
}

function fileSource(file: string, path: string): MessagesBlock {
  const inline = dataUrl(file)
  if (inline === null) {
    if (file.startsWith(PDF_START)) return { type: 'base64', media_type: 'application/pdf', data: file }
    throw inexpressible(path, 'must be a data URL that tells the type of the file, or a PDF file in base64')
  }
  if (inline.mediaType.startsWith('image/')) return imageSource(file, path)
  if (inline.mediaType === 'application/pdf' && inline.base64) {
    return { type: 'base64', media_type: 'application/pdf', data: inline.data }
  }
  if (inline.mediaType.startsWith('text/') && inline.base64) {
    return {
      type: 'text',
      media_type: 'text/plain',
      data: Buffer.from(inline.data, 'base64').toString('utf8'),
    }
  }
  throw inexpressible(path, 'must be a PDF, text or image file in base64')
}

interface DataUrl {
  /** Lower case, without parameters. */
  readonly mediaType: string
  readonly base64: boolean
  readonly data: string
}

/** The pieces of a data URL; null for anything else. Does not scan the data, which may have many megabytes. */
function dataUrl(url: string): DataUrl | null {
  if (url.slice(0, 5).toLowerCase() !== 'data:') return null
  const comma = url.indexOf(',')
  if (comma === -1) return { mediaType: '', base64: false, data: '' }
  const [mediaType = '', ...parameters] = url.slice(5, comma).toLowerCase().split(';')
  const base64 = parameters.at(-1)?.trim() === 'base64'
  return { mediaType: mediaType.trim(), base64, data: url.slice(comma + 1) }
}

function webUrl(url: string, path: string): string {
  if (!/^https?:\/\//i.test(url)) throw inexpressible(path, 'must be an http(s) URL or a data URL')
  return url
}
