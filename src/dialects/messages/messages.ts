/**
 * Translates `system` and `messages` to input items. Pure. Hot path: one walk; a message whose content is a string
 * costs one item. A message of the model becomes the items that it produced, in order; a message of a user is split at
 * tool results, which are items of their own.
 */
import { writtenJson } from '../../protocol/json/as-written.ts'
import { keepMessage } from '../../protocol/json/verbatim.ts'
import { drawnItem } from '../hosted-items.ts'
import { contentPart, type Item, imageUrl, partsWithImages } from './content.ts'
import {
  type AssistantBlock,
  isServerToolResult,
  type MessageInput,
  type ServerToolResult,
  type TextBlock,
  type ToolResultBlock,
  type ToolUseBlock,
  type UserBlock,
} from './message-schema.ts'
import { ReplayedCalls } from './replayed-tools.ts'
import { thoughtOf } from './thinking-blocks.ts'
import { isPlainContent } from './verbatim.ts'

/** The position in the body from which an item comes. */
export interface BlockPosition {
  /** Index of the message; null: the system prompt. */
  readonly message: number | null
  /** Index of its first block; null: its content is a string, or it has none. */
  readonly block: number | null
  /** True: each part of the item comes from a block of its own. */
  readonly isDivided: boolean
}

/** Marks a system message within the conversation: a provider of this API gets it at the same position. */
const IN_PLACE = { in_place: true }

/** Turns checked messages into items; remembers what later messages need of earlier ones. */
export class MessagesConversation {
  readonly items: Item[] = []
  /** One for each item. */
  readonly positions: BlockPosition[] = []
  readonly #tools = new ReplayedCalls()

  addSystem(blocks: readonly TextBlock[]): void {
    if (blocks.length === 0) return
    const item = { type: 'message', role: 'system', content: textParts(blocks) }
    this.#push(item, null, 0, true)
    if (isPlainContent(blocks)) keepMessage({ role: null, content: blocks, items: [item] })
  }

  add(message: MessageInput, index: number): void {
    const { role, content } = message
    if (typeof content === 'string' || content.length === 0) {
      const item = { type: 'message', role, content: typeof content === 'string' ? content : '' }
      this.#push(role === 'system' ? { ...item, native: IN_PLACE } : item, index, null)
      return
    }
    const countBefore = this.items.length
    this.#addBlocks(message, index)
    if (isPlainContent(content)) keepMessage({ role, content, items: this.items.slice(countBefore) })
  }

  #addBlocks({ role, content }: MessageInput, index: number): void {
    switch (role) {
      case 'user':
        this.#addUserBlocks(content as readonly UserBlock[], index)
        return
      case 'assistant':
        this.#addModelBlocks(content as readonly (AssistantBlock | ServerToolResult)[], index)
        return
      case 'system':
        this.#push(
          { type: 'message', role, content: textParts(content as readonly TextBlock[]), native: IN_PLACE },
          index,
          0,
          true,
        )
    }
  }

  #addUserBlocks(blocks: readonly UserBlock[], index: number): void {
    let messageParts: Item[] | null = null
    for (const [blockIndex, block] of blocks.entries()) {
      if (block.type === 'tool_result') {
        messageParts = null
        this.#push(outputItem(block), index, blockIndex)
        continue
      }
      const imageParts = partsWithImages(block)
      if (imageParts !== null) {
        messageParts = null
        this.#push({ type: 'message', role: 'user', content: imageParts }, index, blockIndex)
        continue
      }
      if (messageParts === null) {
        messageParts = []
        this.#push({ type: 'message', role: 'user', content: messageParts }, index, blockIndex, true)
      }
      messageParts.push(contentPart(block))
    }
  }

  #addModelBlocks(blocks: readonly (AssistantBlock | ServerToolResult)[], index: number): void {
    const countBefore = this.items.length
    const calls: Item[] = []
    const signatures = new Map<string, string>()
    let messageParts: Item[] | null = null
    for (const [blockIndex, block] of blocks.entries()) {
      if (!isServerToolResult(block) && block.type === 'text') {
        if (messageParts === null) {
          messageParts = []
          this.#push({ type: 'message', role: 'assistant', content: messageParts }, index, blockIndex, true)
        }
        messageParts.push(contentPart(block, 'output_text'))
        continue
      }
      messageParts = null
      const item = isServerToolResult(block) ? this.#tools.result(block) : this.#modelItem(block, signatures)
      if (item === null) continue
      if (item['type'] === 'function_call') calls.push(item)
      this.#push(item, index, blockIndex)
    }
    for (const call of calls) {
      const signature = signatures.get(String(call['call_id']))
      if (signature !== undefined) call['signature'] = signature
    }
    // An empty turn still separates the turns before and after it.
    if (this.items.length === countBefore)
      this.#push({ type: 'message', role: 'assistant', content: '' }, index, null)
  }

  /** The item of a block; null if the block becomes no item of its own. */
  #modelItem(block: Exclude<AssistantBlock, TextBlock>, signatures: Map<string, string>): Item | null {
    switch (block.type) {
      case 'thinking':
      case 'redacted_thinking': {
        const thought = thoughtOf(block)
        if (thought === null) return null
        if ('item' in thought) return thought.item
        signatures.set(thought.callId, thought.signature)
        return null
      }
      case 'tool_use':
        return callItem(block)
      case 'server_tool_use':
      case 'mcp_tool_use':
        return this.#tools.call(block)
      case 'image': {
        const { source } = block
        return drawnItem(source.type === 'file' ? source.file_id : imageUrl(source), this.items.length)
      }
      case 'compaction':
        return { type: 'compaction', encrypted_content: block.encrypted_content ?? '', native: block }
    }
  }

  #push(item: Item, message: number | null, block: number | null, isDivided = false): void {
    this.items.push(item)
    this.positions.push({ message, block, isDivided })
  }
}

function textParts(blocks: readonly TextBlock[]): Item[] {
  return blocks.map(block => contentPart(block))
}

function callItem({ id, name, input, caller, toolset_name, cache_control }: ToolUseBlock): Item {
  const item: Item = {
    type: 'function_call',
    call_id: id,
    name,
    arguments: writtenJson(input ?? {}),
  }
  const native: Item = {}
  if (caller != null && caller['type'] !== 'direct') native['caller'] = caller
  if (toolset_name != null) native['toolset_name'] = toolset_name
  if (cache_control != null) native['cache_control'] = cache_control
  if (Object.keys(native).length > 0) item['native'] = native
  return item
}

function outputItem(block: ToolResultBlock): Item {
  const { tool_use_id, content, is_error, toolset_name, cache_control } = block
  const item: Item = {
    type: 'function_call_output',
    call_id: tool_use_id,
    output: typeof content === 'string' ? content : (content ?? []).map(element => contentPart(element)),
  }
  if (content == null || content.length === 0) item['output'] = ''
  if (is_error === true) item['is_error'] = true
  const native: Item = {}
  if (toolset_name != null) native['toolset_name'] = toolset_name
  if (cache_control != null) native['cache_control'] = cache_control
  if (Object.keys(native).length > 0) item['native'] = native
  return item
}
