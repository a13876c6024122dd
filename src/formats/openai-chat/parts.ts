/** Content parts in the Chat Completions form. Pure. */
import type { GatewayError } from '../../errors.ts'
import type { AssistantPart } from '../../protocol/items.ts'
import type { CacheControl } from '../../protocol/parts.ts'
import type { Quirk } from '../../providers/provider.ts'
import { inexpressible } from '../inexpressible.ts'

export type ChatPart = Record<string, unknown>

/**
 * Turns parts into chat parts. `breakpoints` says whether explicit cache breakpoints of OpenAI are in use.
 * @throws GatewayError `unprocessable` that names the part without a form in this format.
 */
export function chatParts(
  parts: readonly AssistantPart[],
  path: string,
  quirks: ReadonlySet<Quirk>,
  breakpoints: boolean,
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
    return breakpoints && breakpoint !== null ? { ...wire, prompt_cache_breakpoint: breakpoint } : wire
  })
}

export function cacheMark(control: CacheControl): Record<string, unknown> {
  return typeof control.ttl === 'string' ? { type: 'ephemeral', ttl: control.ttl } : { type: 'ephemeral' }
}

/** A single plain text is sent as a string: every provider takes that. */
export function foldParts(parts: readonly ChatPart[]): string | readonly ChatPart[] {
  const only = parts[0]
  if (only === undefined) return ''
  const plain = parts.length === 1 && only['type'] === 'text' && Object.keys(only).length === 2
  return plain && typeof only['text'] === 'string' ? only['text'] : parts
}

export function chatPart(part: AssistantPart, path: string): ChatPart {
  switch (part.type) {
    case 'input_text':
    case 'output_text':
      return { type: 'text', text: part.text }
    // A refusal is what the model said; as text every provider takes it back.
    case 'refusal':
      return { type: 'text', text: part.refusal }
    case 'input_image': {
      if (typeof part.image_url !== 'string') throw unsaid(path, 'an image without an image_url')
      const detail = part.detail === 'original' ? 'high' : part.detail
      const auto = detail === undefined || detail === null || detail === 'auto'
      return { type: 'image_url', image_url: { url: part.image_url, ...(auto ? {} : { detail }) } }
    }
    case 'input_file':
      return { type: 'file', file: file(part, path) }
    case 'input_audio':
      return {
        type: 'input_audio',
        input_audio: { data: part.input_audio.data, format: part.input_audio.format },
      }
    case 'input_video':
      return { type: 'video_url', video_url: { url: part.video_url } }
    default:
      throw unsaid(path, 'this kind of content part')
  }
}

function file(part: Extract<AssistantPart, { type: 'input_file' }>, path: string): Record<string, unknown> {
  const url = part.file_url ?? null
  const inline = url?.startsWith('data:') === true ? url : null
  const data = part.file_data ?? inline
  if (typeof data !== 'string' && typeof part.file_id !== 'string') {
    throw unsaid(path, url === null ? 'a file without data' : 'a file by its address')
  }
  return {
    ...(typeof part.filename === 'string' ? { filename: part.filename } : {}),
    ...(typeof data === 'string' ? { file_data: data } : { file_id: part.file_id }),
  }
}

function unsaid(path: string, what: string): GatewayError {
  return inexpressible(path, `${what} cannot be sent to this provider`)
}
