/**
 * Input items as Anthropic's `system` and its turns. Pure.
 *
 * - Neighbours of one role become one turn; within a user turn tool results come first, as the API wants them.
 * - Later system and developer messages join `system` too, in order: they keep their authority, which a user
 *   turn would not give them, at the price of their place and of the prompt cache behind them.
 * - What a provider ran on its side is left out when replayed (see replayed.ts): the API takes such blocks back
 *   only with the sealed contents that the items do not carry.
 * - Reasoning of other providers is left out: it cannot be verified here.
 */
import type { InputItem } from '../../protocol/items.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import type { Tool } from '../../protocol/tools.ts'
import { inexpressible } from '../inexpressible.ts'
import { isSpent, refusedItem, replayedCall } from '../replayed.ts'
import { openCompaction } from './compaction.ts'
import { contentBlocks, textBlocks, type WireBlock } from './parts.ts'

export interface Turn {
  readonly role: 'user' | 'assistant'
  readonly content: WireBlock[]
}

export interface Conversation {
  readonly system: readonly WireBlock[]
  readonly turns: readonly Turn[]
  /** Tools that join the request's own, with the path that names them. */
  readonly tools: readonly { readonly tool: Tool; readonly path: string }[]
  /** The last effort that the input itself set; undefined when it set none. */
  readonly effort: ReasoningEffort | undefined
  /** Whether a compaction is among the turns: the API knows these only by a beta flag. */
  readonly compacted: boolean
}

type ReasoningEffort = NonNullable<ResponsesRequest['reasoning']>['effort']

/** @throws GatewayError `unprocessable` naming the item that cannot be expressed */
export function conversation(request: ResponsesRequest): Conversation {
  const writer = new Writer()
  if (request.instructions != null) writer.system.push(...textBlocks(request.instructions))
  if (typeof request.input === 'string') writer.add('user', textBlocks(request.input))
  else
    for (const [index, item] of request.input.entries()) {
      for (const one of replayedCall(item, index) ?? [item]) writer.item(one, `input[${index}]`)
    }
  if (writer.turns.length === 0)
    throw inexpressible('input', 'must hold at least one message that is not a system message')
  return { ...writer, turns: writer.turns.map(ordered) }
}

class Writer {
  readonly system: WireBlock[] = []
  readonly turns: Turn[] = []
  readonly tools: { tool: Tool; path: string }[] = []
  effort: ReasoningEffort | undefined = undefined
  compacted = false

  add(role: Turn['role'], blocks: readonly WireBlock[]): void {
    if (blocks.length === 0) return
    const last = this.turns.at(-1)
    if (last?.role === role) last.content.push(...blocks)
    else this.turns.push({ role, content: [...blocks] })
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
      case 'function_call_output':
      case 'custom_tool_call_output':
        this.#result(item.call_id, toolOutput(item.output, `${path}.output`))
        return
      case 'apply_patch_call_output':
        this.#result(item.call_id, item.output ?? item.status, item.status === 'failed')
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
      case 'additional_tools':
        for (const [index, tool] of item.tools.entries())
          this.tools.push({ tool, path: `${path}.tools[${index}]` })
        return
      case 'configuration_update':
        this.effort = item.reasoning.effort
        return
    }
    if (!isSpent(item.type)) throw refusedItem(item.type, path)
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
    this.system.push(...blocks)
  }

  #functionCall(item: Extract<InputItem, { type: 'function_call' }>, path: string): void {
    this.#call(item.call_id, item.name, parsedArguments(item.arguments, path), callerOf(item))
  }

  #call(callId: string, name: string, input: unknown, more: WireBlock = {}): void {
    this.add('assistant', [{ type: 'tool_use', id: toolUseId(callId), name, input, ...more }])
  }

  #result(callId: string, content: string | WireBlock[], failed = false): void {
    const block: WireBlock = { type: 'tool_result', tool_use_id: toolUseId(callId) }
    if (content.length > 0) block['content'] = content
    if (failed) block['is_error'] = true
    this.add('user', [block])
  }

  #compaction(item: Extract<InputItem, { type: 'compaction' | 'context_compaction' }>, path: string): void {
    const block = openCompaction(item.encrypted_content)
    if (block === null)
      throw inexpressible(path, 'was made by another provider and cannot be read by this one')
    this.compacted = true
    this.add('assistant', [{ ...block }])
  }
}

/** Results answer the calls of the turn before, so nothing may stand between; otherwise the order stays. */
function ordered(turn: Turn): Turn {
  if (turn.role === 'assistant') return turn
  const isResult = (block: WireBlock): boolean => block['type'] === 'tool_result'
  return {
    role: 'user',
    content: [...turn.content.filter(isResult), ...turn.content.filter(block => !isResult(block))],
  }
}

/** Ids of other providers may hold characters that this API refuses; a call and its result change alike. */
function toolUseId(callId: string): string {
  return callId.replace(/[^a-zA-Z0-9_-]/g, '_')
}

function parsedArguments(json: string, path: string): unknown {
  if (json.trim() === '') return {}
  let value: unknown
  try {
    value = JSON.parse(json)
  } catch {
    throw inexpressible(path, 'must be JSON')
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw inexpressible(path, 'must be a JSON object')
  return value
}

/** A call made from inside a code execution says so again. */
function callerOf(item: object): WireBlock {
  const caller = (item as { readonly caller?: unknown }).caller
  return typeof caller === 'object' && caller !== null ? { caller } : {}
}

function toolOutput(
  output: Extract<InputItem, { type: 'function_call_output' }>['output'],
  path: string,
): string | WireBlock[] {
  return typeof output === 'string' ? output : contentBlocks(output, path)
}

type Reasoning = Extract<InputItem, { type: 'reasoning' }>

/** A block goes back only with what proves that Anthropic wrote it. */
function thinkingBlocks(item: Reasoning): WireBlock[] {
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
