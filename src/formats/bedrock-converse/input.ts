/**
 * Encodes input items as `system` and `messages` of Converse. Pure.
 *
 * - Neighbours of one role become one message.
 * - Later system and developer messages join `system` too, in order.
 * - The encoder omits items of tools that a provider ran (see formats/replayed.ts), and reasoning without a signature that the
 *   model can verify.
 * - It refuses what the API has no block for, with the path.
 */
import { isRecord, recordOrEmpty } from '../../base/json.ts'
import type { InputItem } from '../../protocol/items.ts'
import { parseWritten } from '../../protocol/json/as-written.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import { inexpressible } from '../failure.ts'
import type { Change } from '../format.ts'
import { claudeThought, noteOmittedThought, omitItem } from '../replayed.ts'
import { type ConverseBlock, contentBlocks, textBlocks } from './content.ts'
import { type Family, takesCachePoints } from './model.ts'

export interface ConverseMessage {
  readonly role: 'user' | 'assistant'
  readonly content: ConverseBlock[]
}

export interface ConverseConversation {
  readonly system: readonly ConverseBlock[]
  readonly messages: readonly ConverseMessage[]
  /** Names of the functions that were called, in order. */
  readonly calledNames: readonly string[]
  /** The last effort that the input sets; undefined if it sets none. */
  readonly effort: ReasoningEffort | undefined
  /** Items that this provider does not get. */
  readonly omissions: readonly Change[]
}

type ReasoningEffort = NonNullable<ResponsesRequest['reasoning']>['effort']

/** @throws GatewayError `unprocessable` that names the item without a form in this API */
export function encodeConversation(request: ResponsesRequest, family: Family): ConverseConversation {
  const writer = new Writer(family)
  if (request.instructions != null) writer.system.push(...textBlocks(request.instructions))
  if (typeof request.input === 'string') writer.add('user', textBlocks(request.input))
  else for (const [index, item] of request.input.entries()) writer.addItem(item, `input[${index}]`)
  if (writer.messages.length === 0) {
    throw inexpressible('input', 'must contain at least one message that is not a system message')
  }
  return {
    system: writer.system,
    messages: writer.messages.map(tidyMessage),
    calledNames: [...writer.called],
    effort: writer.effort,
    omissions: writer.omissions,
  }
}

class Writer {
  readonly system: ConverseBlock[] = []
  readonly messages: ConverseMessage[] = []
  readonly called = new Set<string>()
  effort: ReasoningEffort | undefined = undefined
  readonly omissions: Change[] = []
  readonly #family: Family
  readonly #takesCachePoints: boolean

  constructor(family: Family) {
    this.#family = family
    this.#takesCachePoints = takesCachePoints(family)
  }

  add(role: ConverseMessage['role'], blocks: readonly ConverseBlock[]): void {
    if (blocks.length === 0) return
    const last = this.messages.at(-1)
    if (last?.role === role) last.content.push(...blocks)
    else this.messages.push({ role, content: [...blocks] })
  }

  addItem(item: InputItem, path: string): void {
    switch (item.type) {
      case undefined:
      case 'message':
        this.#addMessage(item, path)
        return
      case 'reasoning':
        this.add('assistant', this.#reasoningBlocks(item, path))
        return
      case 'function_call':
        // preconditions/ has made the arguments the text of an object.
        this.#addCall(item.call_id, item.name, recordOrEmpty(parseWritten(item.arguments)))
        return
      case 'function_call_output':
        this.#addResult(
          item.call_id,
          contentBlocks(item.output, `${path}.output`, false),
          item.is_error === true,
        )
        return
      case 'configuration_update':
        this.effort = item.reasoning.effort
        return
    }
    omitItem(String(item.type), path, this.omissions)
  }

  #addMessage(
    item: Extract<InputItem, { role: 'user' | 'assistant' | 'system' | 'developer'; content: unknown }>,
    path: string,
  ): void {
    const blocks = contentBlocks(item.content, `${path}.content`, this.#takesCachePoints)
    if (item.role === 'user' || item.role === 'assistant') {
      this.add(item.role, blocks)
      return
    }
    if (blocks.some(block => block['text'] === undefined && block['cachePoint'] === undefined)) {
      throw inexpressible(`${path}.content`, 'this provider accepts only text in system messages')
    }
    this.system.push(...blocks)
  }

  #addCall(callId: string, name: string, input: unknown): void {
    this.called.add(name)
    this.add('assistant', [{ toolUse: { toolUseId: callId, name, input } }])
  }

  #addResult(callId: string, content: readonly ConverseBlock[], isError: boolean): void {
    const result: ConverseBlock = { toolUseId: callId, content: resultBlocks(content) }
    if (isError) result['status'] = 'error'
    this.add('user', [{ toolResult: result }])
  }

  /** Only Claude signs its thoughts; the signatures are valid at Anthropic and in every cloud. */
  #reasoningBlocks(item: Extract<InputItem, { type: 'reasoning' }>, path: string): ConverseBlock[] {
    const thought = this.#family === 'claude' ? claudeThought(item) : null
    if (thought === null) {
      noteOmittedThought(item, this.#family === 'claude' ? 'anthropic-claude-v1' : null, path, this.omissions)
      return []
    }
    if ('sealedText' in thought) return [{ reasoningContent: { redactedContent: thought.sealedText } }]
    return [{ reasoningContent: { reasoningText: thought } }]
  }
}

/** The API requires a block with text in each result, even if the tool returned nothing. */
function resultBlocks(content: readonly ConverseBlock[]): readonly ConverseBlock[] {
  return content.length === 0 ? [{ text: '(no output)' }] : content
}

/** Gives documents of one message different names, and adds the text that the API demands beside documents. */
function tidyMessage({ role, content }: ConverseMessage): ConverseMessage {
  if (role === 'assistant') return { role, content: trimEnd(content) }
  const documents = content.flatMap(block => (isRecord(block['document']) ? [block['document']] : []))
  if (documents.length === 0) return { role, content }
  const nameCounts = new Map<string, number>()
  const uniqueContent = content.map(block => {
    const document = block['document']
    if (!isRecord(document)) return block
    const name = String(document['name'])
    const count = (nameCounts.get(name) ?? 0) + 1
    nameCounts.set(name, count)
    return count === 1 ? block : { document: { ...document, name: `${name} (${count})` } }
  })
  const hasText = content.some(block => block['text'] !== undefined)
  return { role, content: hasText ? uniqueContent : [{ text: 'The document:' }, ...uniqueContent] }
}

/** Claude refuses to continue a text that ends in white space. */
function trimEnd(content: readonly ConverseBlock[]): ConverseBlock[] {
  const last = content.at(-1)
  const text = last?.['text']
  return typeof text === 'string' ? [...content.slice(0, -1), { text: text.trimEnd() }] : [...content]
}
