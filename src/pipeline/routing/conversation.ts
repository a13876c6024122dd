/** The parts of a conversation that stay the same from turn to turn. Pure. */
import type { ResponsesRequest } from '../../protocol/request.ts'

/** True if the conversation already contains an answer. */
export function hasAnswer({ input }: ResponsesRequest): boolean {
  return Array.isArray(input) && input.some(item => ('role' in item ? item.role === 'assistant' : true))
}

/** Enough of a message to distinguish conversations; two with the same beginning can share a cache. */
const MESSAGE_MAX_CHARS = 4_096

/** The key of a conversation; null if nothing in the request stays the same from turn to turn. */
export function conversationOf(request: ResponsesRequest): string | null {
  if (request.session_id !== undefined) return `session:${request.session_id}`
  if (request.prompt_cache_key != null) return `cache-key:${request.prompt_cache_key}`
  const { instructions, input } = request
  if (typeof input === 'string') return messages(instructions, input)
  let system: unknown = instructions ?? null
  let first: unknown = null
  for (const item of input ?? []) {
    if (!('role' in item) || !('content' in item)) continue
    if (item.role === 'system' || item.role === 'developer') system ??= item.content
    else first ??= item.content
    if (system !== null && first !== null) break
  }
  return system === null && first === null ? null : messages(system, first)
}

function messages(system: unknown, first: unknown): string {
  return `messages:${beginningOf(system)}\n${beginningOf(first)}`
}

function beginningOf(content: unknown): string {
  if (content == null) return ''
  const text = typeof content === 'string' ? content : textOf(content)
  return text.slice(0, MESSAGE_MAX_CHARS)
}

/** The texts of content parts; for images and files only the first characters. */
function textOf(content: unknown): string {
  if (!Array.isArray(content)) return ''
  return content
    .slice(0, 8)
    .flatMap((part: unknown) => (typeof part === 'object' && part !== null ? Object.values(part) : []))
    .filter(value => typeof value === 'string')
    .map(value => value.slice(0, MESSAGE_MAX_CHARS))
    .join('\n')
}
