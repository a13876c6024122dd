/**
 * Translates `messages` to input items. Pure. Hot path: one walk; a message whose content is a string costs one object.
 * An assistant message becomes the items that the model produced, in order: reasoning, server tools, text, images,
 * calls.
 */
import { refuseField } from '../../base/errors.ts'
import { elementPath } from '../../protocol/json/schema.ts'
import { drawnItem } from '../hosted-items.ts'
import type {
  ChatAnnotation,
  ChatAssistantMessage,
  ChatMessage,
  ChatPart,
  ChatToolCall,
} from './message-schema.ts'
import { reasoningItems } from './reasoning-items.ts'

type Item = Record<string, unknown>

/** Turns checked messages into items; remembers what later messages need of earlier ones. */
export class ChatConversation {
  readonly items: Item[] = []
  /** Ids of calls of custom tools: their outputs have an item kind of their own. */
  #custom: Set<string> | null = null

  /** @throws GatewayError `invalid_request` that names a field of the message. */
  add(message: ChatMessage, index: number): void {
    switch (message.role) {
      case 'assistant':
        this.#assistant(message, index)
        return
      case 'tool':
        this.items.push({
          type: this.#custom?.has(message.tool_call_id) ? 'custom_tool_call_output' : 'function_call_output',
          call_id: message.tool_call_id,
          output: content(message.content, index),
        })
        return
      default: {
        const item: Item = {
          type: 'message',
          role: message.role,
          content: content(message.content, index),
        }
        if (message.name != null) item['name'] = message.name
        this.items.push(item)
      }
    }
  }

  #assistant(message: ChatAssistantMessage, index: number): void {
    refuseLegacy(message, index)
    const { items } = this
    const countBefore = items.length
    const calls = message.tool_calls ?? []
    const { signatures, items: reasoning } = reasoningItems(message, calls)
    if (reasoning.length > 0) items.push(...reasoning)
    const parts = assistantContent(message, index)
    if (parts !== null) items.push({ type: 'message', role: 'assistant', content: parts })
    for (const image of message.images ?? []) items.push(drawnItem(image.image_url.url, items.length))
    for (const call of calls) {
      const item = this.#call(call)
      const signature = signatures?.get(call.id) ?? signatureOf(call)
      if (signature !== null) item['signature'] = signature
      items.push(item)
    }
    // An empty turn still separates the turns before and after it.
    if (items.length === countBefore) items.push({ type: 'message', role: 'assistant', content: '' })
  }

  #call(call: ChatToolCall): Item {
    if (call.type === 'custom') {
      this.#custom ??= new Set()
      this.#custom.add(call.id)
      const { name, input } = call.custom
      return { type: 'custom_tool_call', call_id: call.id, name, input }
    }
    const { name, arguments: text } = call.function
    return { type: 'function_call', call_id: call.id, name, arguments: text }
  }
}

function refuseLegacy(message: ChatAssistantMessage, index: number): void {
  const { function_call, audio } = message as { function_call?: unknown; audio?: unknown }
  const path = elementPath('messages', index)
  if (function_call != null) throw refuseField(`${path}.function_call`, 'must be null: use tool_calls')
  if (audio != null) throw refuseField(`${path}.audio`, 'must be null: audio answers are not stored')
}

function content(value: string | readonly ChatPart[], messageIndex: number): string | Item[] {
  return typeof value === 'string' ? value : inputParts(value, 'input_text', messageIndex)
}

/** The text or refusal of the model; null when there is neither. */
function assistantContent(message: ChatAssistantMessage, messageIndex: number): string | Item[] | null {
  const value = message.content ?? ''
  const refusal = message.refusal ?? ''
  const annotations = message.annotations ?? []
  if (refusal === '' && annotations.length === 0) {
    if (value.length === 0) return null
    return typeof value === 'string' ? value : inputParts(value, 'output_text', messageIndex)
  }
  const parts =
    typeof value === 'string'
      ? value === '' && annotations.length === 0
        ? []
        : [{ type: 'output_text', text: value }]
      : inputParts(value, 'output_text', messageIndex)
  if (annotations.length > 0) annotate(parts, annotations.map(hubAnnotation))
  if (refusal !== '') parts.push({ type: 'refusal', refusal })
  return parts
}

/** Puts the annotations of a chat message on its first text: in a request, annotations belong to a text. */
function annotate(parts: Item[], annotations: readonly Item[]): void {
  let text = parts.find(part => part['type'] === 'output_text')
  if (text === undefined) {
    text = { type: 'output_text', text: '' }
    parts.unshift(text)
  }
  text['annotations'] = annotations
}

type TextType = 'input_text' | 'output_text'

function inputParts(parts: readonly ChatPart[], textType: TextType, messageIndex: number): Item[] {
  return parts.map((part, partIndex) => {
    const item = plainPart(part, textType, messageIndex, partIndex)
    if ('cache_control' in part && part.cache_control != null) item['cache_control'] = part.cache_control
    if ('prompt_cache_breakpoint' in part && part.prompt_cache_breakpoint != null)
      item['prompt_cache_breakpoint'] = part.prompt_cache_breakpoint
    return item
  })
}

function plainPart(part: ChatPart, textType: TextType, messageIndex: number, partIndex: number): Item {
  switch (part.type) {
    case 'text':
      return { type: textType, text: part.text }
    case 'image_url':
      return {
        type: 'input_image',
        detail: part.image_url.detail ?? 'auto',
        image_url: part.image_url.url,
      }
    case 'input_audio':
      return {
        type: 'input_audio',
        input_audio: { data: part.input_audio.data, format: part.input_audio.format },
      }
    case 'file':
      return filePart(part.file, `${elementPath('messages', messageIndex)}.content[${partIndex}].file`)
    case 'video_url': {
      const item: Item = { type: 'input_video', video_url: part.video_url.url }
      if (part.processing != null) item['processing'] = part.processing
      return item
    }
    case 'refusal':
      return { type: 'refusal', refusal: part.refusal }
  }
}

/** Some clients of this API also send a URL in `file_data`. */
function filePart(file: Extract<ChatPart, { type: 'file' }>['file'], path: string): Item {
  const { filename, file_data, file_id, file_url } = file
  const item: Item = { type: 'input_file' }
  if (filename != null) item['filename'] = filename
  if (file_data != null) item[/^https?:\/\//i.test(file_data) ? 'file_url' : 'file_data'] = file_data
  if (file_id != null) item['file_id'] = file_id
  if (file_url != null) item['file_url'] = file_url
  if (file_data == null && file_id == null && file_url == null)
    throw refuseField(`${path}.file_data`, 'is required unless file_id or file_url is given')
  return item
}

function hubAnnotation(annotation: ChatAnnotation): Item {
  return annotation.type === 'url_citation'
    ? { type: 'url_citation', ...annotation.url_citation }
    : { ...annotation }
}

/** Google's signature of a call, if a client sends it back in the field that Google uses. */
function signatureOf(call: ChatToolCall): string | null {
  const google = call.type === 'custom' ? null : call.extra_content?.['google']
  if (typeof google !== 'object' || google === null) return null
  const { thought_signature: signature } = google as { thought_signature?: unknown }
  return typeof signature === 'string' ? signature : null
}
