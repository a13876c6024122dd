/**
 * Encodes input items and their content parts as Anthropic's `system` and turns. Pure.
 *
 * - Neighbours of one role become one turn.
 * - A message from a client of this API is sent unchanged if dialects/messages/verbatim.ts allows it and nothing has
 *   changed it; the rules below are for all others.
 * - Later system messages of such a client keep their position. Those of other clients, and developer messages, join
 *   `system` in order: not every model accepts them within the conversation, and as user turns they would lose their
 *   authority.
 * - The encoder omits items of tools that a provider ran (see formats/replayed.ts), unless they hold Anthropic's own
 *   blocks: the API accepts such blocks only with encrypted contents, which other items lack.
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
import { actionsIn, COMPUTER_NAME, inputOf } from './computer.ts'
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
  readonly hasCompaction: boolean
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
  else writer.addAll(request.input)
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
  hasCompaction = false
  readonly omissions: Change[] = []
  /** The number of actions of each computer call, by call id. */
  readonly #actionCounts = new Map<string, number>()

  add(role: MessagesTurn['role'], blocks: readonly MessagesBlock[]): void {
    if (blocks.length === 0) return
    const last = this.turns.at(-1)
    if (last?.role === role && last instanceof OpenTurn) last.content.push(...blocks)
    else this.turns.push(new OpenTurn(role, blocks))
  }

  addAll(input: readonly InputItem[]): void {
    for (let index = 0; index < input.length; index++) {
      const verbatim = writtenMessageAt(input, index)
      if (verbatim !== null) {
        const content = verbatim.content as readonly MessagesBlock[]
        if (verbatim.role === null) this.system.push(...content)
        else this.turns.push({ role: verbatim.role, content })
        index += verbatim.items.length - 1
        continue
      }
      this.addItem(input[index] as InputItem, `input[${index}]`)
    }
  }

  addItem(item: InputItem, path: string): void {
    switch (item.type) {
      case undefined:
      case 'message':
        this.#addMessage(item, path)
        return
      case 'reasoning':
        this.#addThought(item, path)
        return
      case 'web_search_call':
      case 'code_interpreter_call':
      case 'mcp_call':
      case 'gateway:tool_search':
      case 'gateway:advisor':
        this.#addHosted(item, path)
        return
      case 'function_call':
        this.#addFunctionCall(item)
        return
      case 'computer_call':
        this.#addComputerCall(item)
        return
      case 'computer_call_output':
        this.#addScreenshot(item, `${path}.output`)
        return
      case 'function_call_output':
        this.#addResult(item.call_id, toolOutput(item.output, `${path}.output`), {
          ...(item.is_error === true ? { is_error: true } : {}),
          ...nativeFields(item),
        })
        return
      case 'compaction':
      case 'context_compaction':
        this.#addCompaction(item, path)
        return
      case 'configuration_update':
        this.effort = item.reasoning.effort
        return
    }
    omitItem(String(item.type), path, this.omissions)
  }

  #addThought(item: Reasoning, path: string): void {
    const blocks = thinkingBlocks(item)
    if (blocks.length === 0) noteOmittedThought(item, 'anthropic-claude-v1', path, this.omissions)
    this.add('assistant', blocks)
  }

  /** Only the provider's own blocks go back. */
  #addHosted(item: object, path: string): void {
    const blocks = ownBlocks(item)
    if (blocks.length === 0) noteOmittedItem(path, this.omissions)
    this.add('assistant', blocks)
  }

  #addMessage(
    item: Extract<InputItem, { role: 'user' | 'assistant' | 'system' | 'developer'; content: unknown }>,
    path: string,
  ): void {
    const blocks = contentBlocks(item.content, `${path}.content`)
    if (item.role === 'user' || item.role === 'assistant') {
      this.add(item.role, blocks)
      return
    }
    if (blocks.some(block => block['type'] !== 'text'))
      throw inexpressible(`${path}.content`, 'this provider accepts only text in system messages')
    if (nativeFields(item)['in_place'] === true) this.add('system', blocks)
    else this.system.push(...blocks)
  }

  #addFunctionCall(item: Extract<InputItem, { type: 'function_call' }>): void {
    const extraFields = { ...callerOf(item), ...nativeFields(item) }
    // preconditions/ has made the arguments the text of an object.
    this.#addCall(item.call_id, item.name, recordOrEmpty(parseWritten(item.arguments)), extraFields)
  }

  #addCall(callId: string, name: string, input: unknown, extraFields: MessagesBlock = {}): void {
    this.add('assistant', [{ type: 'tool_use', id: callId, name, input, ...extraFields }])
  }

  /** This API takes one action per call; an item of another provider may have several. */
  #addComputerCall(item: Extract<InputItem, { type: 'computer_call' }>): void {
    const actions = actionsIn(item)
    this.#actionCounts.set(item.call_id, actions.length)
    for (const [index, action] of actions.entries())
      this.#addCall(partId(item.call_id, index), COMPUTER_NAME, inputOf(action))
  }

  /** The screenshot shows the screen after the last action. */
  #addScreenshot(item: Extract<InputItem, { type: 'computer_call_output' }>, path: string): void {
    const lastIndex = (this.#actionCounts.get(item.call_id) ?? 1) - 1
    for (let index = 0; index < lastIndex; index++) this.#addResult(partId(item.call_id, index), 'done')
    const image = imageBlock({ ...item.output, type: 'input_image' }, path)
    this.#addResult(partId(item.call_id, lastIndex), [image])
  }

  #addResult(callId: string, content: string | MessagesBlock[], extraFields: MessagesBlock = {}): void {
    const block: MessagesBlock = { type: 'tool_result', tool_use_id: callId }
    if (content.length > 0) block['content'] = content
    this.add('user', [{ ...block, ...extraFields }])
  }

  #addCompaction(
    item: Extract<InputItem, { type: 'compaction' | 'context_compaction' }>,
    path: string,
  ): void {
    const block = openCompaction(item.encrypted_content) ?? nativeBlock(item)
    if (block === null)
      throw inexpressible(path, 'was made by another provider and cannot be read by this one')
    this.hasCompaction = true
    this.add('assistant', [{ ...block }])
  }
}

function partId(callId: string, index: number): string {
  return index === 0 ? callId : `${callId}_${index + 1}`
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
  return 'sealedText' in thought
    ? [{ type: 'redacted_thinking', data: thought.sealedText }]
    : [{ type: 'thinking', thinking: thought.text, signature: thought.signature }]
}
