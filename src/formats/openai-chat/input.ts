/**
 * Encodes `instructions` and `input` as Chat Completions messages. Pure.
 * A turn of the model is several items in the Responses vocabulary and one assistant message here.
 *
 * The encoder omits reasoning of earlier turns, which most providers ignore or refuse. Quirks of the provider's row
 * send it back: as `reasoning_details` if signed or encrypted (`reasoning-object`), as `reasoning_content`
 * (`replay-reasoning`), as content parts (`thinking-parts`), or as Google's signature (`thought-signatures`). Of the
 * model's other items only messages and calls have a form here; see formats/replayed.ts for the rest.
 */
import type { GatewayError } from '../../base/errors.ts'
import type { AssistantMessage, InputItem, InputMessage, InputReasoning } from '../../protocol/items.ts'
import type { AssistantPart, CacheControl, InputPart } from '../../protocol/parts.ts'
import type { Quirk } from '../../protocol/provider.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import { inexpressible } from '../failure.ts'
import type { Change } from '../format.ts'
import { dataUrlOf, nameFor } from '../inline-files.ts'
import { noteOmittedThought, omitItem } from '../replayed.ts'

type Message = Record<string, unknown>

/**
 * The messages of a request. Items that the provider does not get are noted in `omissions`.
 * @throws GatewayError `unprocessable` that names the item or part without a form in this format.
 */
export function chatMessages(
  request: ResponsesRequest,
  quirks: ReadonlySet<Quirk>,
  omissions: Change[] = [],
): readonly Message[] {
  const conversation = new Conversation(
    quirks,
    request.prompt_cache_options !== undefined && request.prompt_cache_options !== null,
    omissions,
  )
  if (typeof request.instructions === 'string')
    conversation.push({ role: 'system', content: request.instructions })
  if (typeof request.input === 'string') conversation.push({ role: 'user', content: request.input })
  else for (const [index, item] of request.input.entries()) conversation.addItem(item, `input[${index}]`)
  const messages = conversation.finish()
  if (request.cache_control !== undefined && quirks.has('cache-control'))
    markLast(messages, cacheMark(request.cache_control))
  return messages
}

/** Adds the top-level `cache_control` as a breakpoint at the end of the prompt. */
function markLast(messages: readonly Message[], mark: Record<string, unknown>): void {
  const last = messages.findLast(message => message['role'] === 'user' || message['role'] === 'system')
  if (last === undefined) return
  const content = last['content']
  const parts: ChatPart[] = Array.isArray(content)
    ? [...(content as ChatPart[])]
    : [{ type: 'text', text: content }]
  const lastPart = parts.at(-1)
  if (lastPart === undefined) return
  parts[parts.length - 1] = { ...lastPart, cache_control: mark }
  last['content'] = parts
}

interface Turn {
  parts: ChatPart[]
  /** Null: the turn has no thought that the provider wants back. */
  thinking: string | null
  details: Record<string, unknown>[]
  calls: Record<string, unknown>[]
  signature: string | null
  /** True if the items contained an assistant message, even an empty one. */
  hasMessage: boolean
}

class Conversation {
  readonly #quirks: ReadonlySet<Quirk>
  readonly #takesBreakpoints: boolean
  readonly #messages: Message[] = []
  readonly #omissions: Change[]
  #turn: Turn | null = null

  constructor(quirks: ReadonlySet<Quirk>, takesBreakpoints: boolean, omissions: Change[]) {
    this.#omissions = omissions
    this.#quirks = quirks
    this.#takesBreakpoints = takesBreakpoints
  }

  push(message: Message): void {
    this.#endTurn()
    this.#messages.push(message)
  }

  finish(): readonly Message[] {
    this.#endTurn()
    return this.#messages
  }

  addItem(item: InputItem, path: string): void {
    switch (item.type) {
      case undefined:
      case 'message':
        this.#addMessage(item, path)
        return
      case 'reasoning':
        this.#addReasoning(item, path)
        return
      case 'function_call':
        this.#addCall(item, path, {
          type: 'function',
          function: { name: item.name, arguments: item.arguments.trim() === '' ? '{}' : item.arguments },
        })
        return
      case 'custom_tool_call':
        this.#addCall(item, path, { type: 'custom', custom: { name: item.name, input: item.input } })
        return
      case 'function_call_output':
      case 'custom_tool_call_output':
        // preconditions/ has reduced results to text.
        this.push({
          role: 'tool',
          tool_call_id: item.call_id,
          content: typeof item.output === 'string' ? item.output : textOf(item.output),
        })
        return
      default:
        omitItem(item.type, path, this.#omissions)
    }
  }

  #addMessage(item: InputMessage, path: string): void {
    if (item.role === 'assistant') {
      this.#addAssistant(item, `${path}.content`)
      return
    }
    this.#endTurn()
    const role = item.role === 'developer' && this.#quirks.has('system-role') ? 'system' : item.role
    // A field of the chat dialect, so it is sent only to a provider of this format.
    const { name } = item as { name?: unknown }
    this.#messages.push({
      role,
      content: this.#contentOf(item.content, `${path}.content`),
      ...(typeof name === 'string' ? { name } : {}),
    })
  }

  #contentOf(content: InputMessage['content'], path: string): string | readonly ChatPart[] {
    if (content === null) return ''
    if (typeof content === 'string') return content
    return foldParts(chatParts(content, path, this.#quirks, this.#takesBreakpoints))
  }

  #addAssistant(item: AssistantMessage, path: string): void {
    // Two consecutive messages of the model stay separate, but text after its calls must come before their outputs.
    if (this.#turn?.hasMessage === true && this.#turn.calls.length === 0) this.#endTurn()
    const turn = this.#beginTurn()
    turn.hasMessage = true
    if (item.content === null) return
    const parts: readonly ChatPart[] =
      typeof item.content === 'string'
        ? [{ type: 'text', text: item.content }]
        : chatParts(item.content, path, this.#quirks, this.#takesBreakpoints)
    turn.parts.push(...parts)
  }

  #addReasoning(item: InputReasoning, path: string): void {
    const text = (item.content ?? []).map(part => part.text).join('')
    const summary = (item.summary ?? []).map(part => part.text).join('\n')
    const details = this.#quirks.has('reasoning-object') ? reasoningDetails(item, text) : []
    const wantsText = this.#quirks.has('replay-reasoning') || this.#quirks.has('thinking-parts')
    const signature =
      this.#quirks.has('thought-signatures') && item.format === 'google-gemini-v1'
        ? (item.signature ?? null)
        : null
    if (details.length === 0 && !wantsText && signature === null) {
      noteOmittedThought(item, null, path, this.#omissions)
      return
    }
    // Reasoning after a message begins the next turn; after calls without outputs it still belongs to their turn.
    if (this.#turn?.hasMessage === true && this.#turn.calls.length === 0 && wantsText) this.#endTurn()
    const turn = this.#beginTurn()
    for (const detail of details) turn.details.push({ ...detail, index: turn.details.length })
    if (wantsText) turn.thinking = (turn.thinking ?? '') + (text === '' ? summary : text)
    turn.signature ??= signature
  }

  #addCall(
    item: Extract<InputItem, { type: 'function_call' | 'custom_tool_call' }>,
    path: string,
    body: Record<string, unknown>,
  ): void {
    if (typeof item.namespace === 'string') {
      throw inexpressible(`${path}.namespace`, 'namespaces cannot be sent to this provider')
    }
    const signature: unknown = (item as Record<string, unknown>)['signature']
    const isSigned = typeof signature === 'string' && this.#quirks.has('thought-signatures')
    this.#beginTurn().calls.push({
      id: item.call_id,
      ...body,
      ...(isSigned ? { extra_content: { google: { thought_signature: signature } } } : {}),
    })
  }

  #beginTurn(): Turn {
    this.#turn ??= { parts: [], thinking: null, details: [], calls: [], signature: null, hasMessage: false }
    return this.#turn
  }

  #endTurn(): void {
    const turn = this.#turn
    if (turn === null) return
    this.#turn = null
    const { thinking } = turn
    const asParts = thinking !== null && thinking !== '' && this.#quirks.has('thinking-parts')
    const content = asParts
      ? [{ type: 'thinking', thinking: [{ type: 'text', text: thinking }] }, ...turn.parts]
      : assistantContent(turn)
    this.#messages.push({
      role: 'assistant',
      content,
      ...(thinking !== null && this.#quirks.has('replay-reasoning') ? { reasoning_content: thinking } : {}),
      ...(turn.details.length > 0 ? { reasoning_details: turn.details } : {}),
      ...(turn.calls.length > 0 ? { tool_calls: turn.calls } : {}),
      ...(turn.signature === null
        ? {}
        : { extra_content: { google: { thought_signature: turn.signature } } }),
    })
  }
}

function textOf(output: readonly InputPart[]): string {
  return output.map(part => (part.type === 'input_text' ? part.text : '')).join('\n')
}

/** The content of an assistant message. Several texts become one string: many providers accept only that. */
function assistantContent(turn: Turn): string | readonly ChatPart[] | null {
  if (turn.parts.length === 0) return turn.calls.length > 0 ? null : ''
  const isPlain = turn.parts.every(part => part['type'] === 'text' && !isMarked(part))
  return isPlain ? turn.parts.map(part => part['text']).join('') : turn.parts
}

function isMarked(part: ChatPart): boolean {
  return part['cache_control'] !== undefined || part['prompt_cache_breakpoint'] !== undefined
}

/** The details of one reasoning item; empty for plain text, which no provider can verify. */
function reasoningDetails(item: InputReasoning, text: string): Record<string, unknown>[] {
  const signature = item.signature ?? null
  const encryptedContent = item.encrypted_content ?? null
  if (signature === null && encryptedContent === null) return []
  const lateId: unknown = (item as Record<string, unknown>)['detail_id']
  const id = typeof lateId === 'string' ? lateId : item.id
  const origin = {
    ...(typeof item.format === 'string' ? { format: item.format } : {}),
    ...(typeof id === 'string' ? { id } : {}),
  }
  const details: Record<string, unknown>[] = []
  for (const part of item.summary ?? [])
    details.push({ type: 'reasoning.summary', summary: part.text, ...origin })
  if (text !== '' || signature !== null) {
    details.push({ type: 'reasoning.text', text, ...(signature === null ? {} : { signature }), ...origin })
  }
  if (encryptedContent !== null)
    details.push({ type: 'reasoning.encrypted', data: encryptedContent, ...origin })
  return details
}

// Content parts

type ChatPart = Record<string, unknown>

/**
 * Encodes content parts. `takesBreakpoints`: the request uses OpenAI's explicit cache breakpoints.
 * @throws GatewayError `unprocessable` that names the part without a form in this format.
 */
function chatParts(
  parts: readonly AssistantPart[],
  path: string,
  quirks: ReadonlySet<Quirk>,
  takesBreakpoints: boolean,
): readonly ChatPart[] {
  return parts.map((part, index) => {
    const wire = chatPart(part, `${path}[${index}]`)
    if (!('cache_control' in part) && !('prompt_cache_breakpoint' in part)) return wire
    const control = part.cache_control ?? null
    const breakpoint = part.prompt_cache_breakpoint ?? null
    if (quirks.has('cache-control')) {
      if (control !== null) return { ...wire, cache_control: cacheMark(control) }
      return breakpoint === null ? wire : { ...wire, cache_control: { type: 'ephemeral' } }
    }
    const mark =
      breakpoint ?? (control !== null && quirks.has('cache-breakpoints') ? EXPLICIT_BREAKPOINT : null)
    return mark !== null && (takesBreakpoints || quirks.has('cache-breakpoints'))
      ? { ...wire, prompt_cache_breakpoint: mark }
      : wire
  })
}

const EXPLICIT_BREAKPOINT = { mode: 'explicit' } as const

function cacheMark(control: CacheControl): Record<string, unknown> {
  return typeof control.ttl === 'string' ? { type: 'ephemeral', ttl: control.ttl } : { type: 'ephemeral' }
}

/** A single plain text as a string, which every provider accepts; other parts unchanged. */
function foldParts(parts: readonly ChatPart[]): string | readonly ChatPart[] {
  const first = parts[0]
  if (first === undefined) return ''
  const isPlain = parts.length === 1 && first['type'] === 'text' && Object.keys(first).length === 2
  return isPlain && typeof first['text'] === 'string' ? first['text'] : parts
}

function chatPart(part: AssistantPart, path: string): ChatPart {
  switch (part.type) {
    case 'input_text':
    case 'output_text':
      return { type: 'text', text: part.text }
    // A refusal is text of the model; every provider accepts it as text.
    case 'refusal':
      return { type: 'text', text: part.refusal }
    case 'input_image': {
      if (typeof part.image_url !== 'string') throw refusePart(path, 'an image without an image_url')
      const detail = part.detail === 'original' ? 'high' : part.detail
      const isAuto = detail === undefined || detail === null || detail === 'auto'
      return { type: 'image_url', image_url: { url: part.image_url, ...(isAuto ? {} : { detail }) } }
    }
    case 'input_file':
      return { type: 'file', file: fileOf(part, path) }
    case 'input_audio':
      return {
        type: 'input_audio',
        input_audio: { data: part.input_audio.data, format: part.input_audio.format },
      }
    case 'input_video':
      return { type: 'video_url', video_url: { url: part.video_url } }
    default:
      throw refusePart(path, 'this kind of content part')
  }
}

function fileOf(part: Extract<AssistantPart, { type: 'input_file' }>, path: string): Record<string, unknown> {
  const url = part.file_url ?? null
  const inline = url?.startsWith('data:') === true ? url : null
  const data = part.file_data ?? inline
  if (typeof data !== 'string' && typeof part.file_id !== 'string') {
    throw refusePart(path, url === null ? 'a file without data' : 'a file by URL')
  }
  if (typeof data !== 'string')
    return {
      ...(typeof part.filename === 'string' ? { filename: part.filename } : {}),
      file_id: part.file_id,
    }
  const file_data = dataUrlOf(data)
  return { filename: part.filename ?? nameFor(file_data), file_data }
}

function refusePart(path: string, kind: string): GatewayError {
  return inexpressible(path, `${kind} cannot be sent to this provider`)
}
