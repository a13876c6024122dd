/**
 * Encodes input items and their content parts as Anthropic's `system` and turns. Pure.
 *
 * - Neighbours of one role become one turn.
 * - A message from a client of this API is sent unchanged if dialects/messages/verbatim.ts allows it and nothing has
 *   changed it; the rules below are for all others.
 * - Later system messages of such a client keep their position. Those of other clients, and developer messages, join
 *   `system` in order: not every model accepts them within the conversation, and as user turns they would lose their
 *   authority.
 * - The encoder omits items of tools that a provider ran (see formats/outgoing.ts): the API accepts such blocks only with
 *   encrypted contents that the items lack.
 * - It omits reasoning of other providers, which Anthropic cannot verify.
 * - It refuses audio, video and files by id with their path: the API has no block for them.
 */
import { recordOrEmpty, records } from '../../base/json.ts'
import type { InputItem } from '../../protocol/items.ts'
import { parseWritten } from '../../protocol/json/as-written.ts'
import { writtenMessageAt } from '../../protocol/json/verbatim.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import { inexpressible } from '../failure.ts'
import type { Change } from '../format.ts'
import { claudeThought, noteOmittedItem, noteOmittedThought, omitItem } from '../replayed.ts'
import { openCompaction } from './blocks.ts'
import { actionsIn, COMPUTER, inputOf } from './computer.ts'
import {
  contentBlocks,
  imageBlock,
  type MessagesBlock,
  nativeBlock,
  nativeFields,
  textBlocks,
} from './content.ts'

export interface MessagesTurn {
  readonly role: 'user' | 'assistant' | 'system'
  readonly content: readonly MessagesBlock[]
}

interface MessagesConversation {
  readonly system: readonly MessagesBlock[]
  readonly turns: readonly MessagesTurn[]
  /** The last effort that the input sets; undefined if it sets none. */
  readonly effort: ReasoningEffort | undefined
  /** True if a turn contains a compaction, which needs a beta flag. */
  readonly compacted: boolean
  /** Items that this provider does not get. */
  readonly omissions: readonly Change[]
}

type ReasoningEffort = NonNullable<ResponsesRequest['reasoning']>['effort']

/**
 * The system prompt and turns of a request.
 * @throws GatewayError `unprocessable` that names an item that this API cannot express
 */
export function conversation(request: ResponsesRequest): MessagesConversation {
  const writer = new Writer()
  if (request.instructions != null) writer.system.push(...textBlocks(request.instructions))
  if (typeof request.input === 'string') writer.add('user', textBlocks(request.input))
  else writer.all(request.input)
  if (!writer.turns.some(turn => turn.role !== 'system'))
    throw inexpressible(
      'input',
      'must contain at least one message that is neither empty nor a system message',
    )
  return writer
}

/** A turn, to which consecutive items of its role are added. */
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
  readonly omissions: Change[] = []
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
      const written = writtenMessageAt(input, at)
      if (written !== null) {
        const content = written.content as readonly MessagesBlock[]
        if (written.role === null) this.system.push(...content)
        else this.turns.push({ role: written.role, content })
        at += written.items.length - 1
        continue
      }
      this.item(input[at] as InputItem, `input[${at}]`)
    }
  }

  item(item: InputItem, path: string): void {
    switch (item.type) {
      case undefined:
      case 'message':
        this.#message(item, path)
        return
      case 'reasoning':
        this.#thought(item, path)
        return
      case 'web_search_call':
      case 'code_interpreter_call':
      case 'mcp_call':
      case 'gateway:tool_search':
      case 'gateway:advisor':
        this.#hosted(item, path)
        return
      case 'function_call':
        this.#functionCall(item)
        return
      case 'computer_call':
        this.#computerCall(item)
        return
      case 'computer_call_output':
        this.#screenshot(item, `${path}.output`)
        return
      case 'function_call_output':
        this.#result(item.call_id, toolOutput(item.output, `${path}.output`), {
          ...(item.is_error === true ? { is_error: true } : {}),
          ...nativeFields(item),
        })
        return
      case 'compaction':
      case 'context_compaction':
        this.#compaction(item, path)
        return
      case 'configuration_update':
        this.effort = item.reasoning.effort
        return
    }
    omitItem(String(item.type), path, this.omissions)
  }

  #thought(item: Reasoning, path: string): void {
    const blocks = thinkingBlocks(item)
    if (blocks.length === 0) noteOmittedThought(item, 'anthropic-claude-v1', path, this.omissions)
    this.add('assistant', blocks)
  }

  /** Only the provider's own blocks go back. */
  #hosted(item: object, path: string): void {
    const blocks = ownBlocks(item)
    if (blocks.length === 0) noteOmittedItem(path, this.omissions)
    this.add('assistant', blocks)
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
      throw inexpressible(`${path}.content`, 'this provider accepts only text in system messages')
    if (nativeFields(item)['in_place'] === true) this.add('system', blocks)
    else this.system.push(...blocks)
  }

  #functionCall(item: Extract<InputItem, { type: 'function_call' }>): void {
    const more = { ...callerOf(item), ...nativeFields(item) }
    // The text of an object; see preconditions/.
    this.#call(item.call_id, item.name, recordOrEmpty(parseWritten(item.arguments)), more)
  }

  #call(callId: string, name: string, input: unknown, more: MessagesBlock = {}): void {
    this.add('assistant', [{ type: 'tool_use', id: callId, name, input, ...more }])
  }

  /** This API takes one action per call; an item of another provider may have several. */
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
    const block: MessagesBlock = { type: 'tool_result', tool_use_id: callId }
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

/** The original blocks of a tool that Anthropic ran; empty if the client did not send them back unchanged. */
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
  const thought = claudeThought(item)
  if (thought === null) return []
  return 'sealed' in thought
    ? [{ type: 'redacted_thinking', data: thought.sealed }]
    : [{ type: 'thinking', thinking: thought.text, signature: thought.signature }]
}
