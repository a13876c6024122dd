/**
 * Decides which messages a provider with the same API may receive unchanged: those in which the gateway has nothing to
 * remove or translate. Pure. Hot path: one check per block.
 */
import type { MessageInput, UserBlock } from './message-schema.ts'
import { isSealedHere } from './thinking-blocks.ts'

type Block = Exclude<MessageInput['content'], string>[number]

const ID_PATTERN = /^[a-zA-Z0-9_-]+$/
const WEB_URL = /^https?:\/\//i
const IMAGE_TYPES: ReadonlySet<string> = new Set(['image/jpeg', 'image/png', 'image/gif', 'image/webp'])

/** True if every block may be sent unchanged. */
export function isPlainContent(content: readonly Block[]): boolean {
  return content.every(isPlain)
}

function isPlain(block: Block): boolean {
  switch (block.type) {
    case 'text':
      // The provider refuses blank texts, and citations that are not its own.
      return block.text.trim() !== '' && (block.citations == null || block.citations.length === 0)
    case 'image':
      return isPlainSource(block.source)
    case 'document':
      return block.source.type === 'text' || isPlainSource(block.source)
    case 'tool_use':
      return ID_PATTERN.test(block.id)
    case 'tool_result':
      return ID_PATTERN.test(block.tool_use_id) && isPlainResult(block.content)
    case 'thinking':
      return block.signature != null && block.signature !== '' && !isSealedHere(block.signature)
    case 'redacted_thinking':
      return block.data !== '' && !isSealedHere(block.data)
    default:
      return false
  }
}

function isPlainResult(content: Extract<UserBlock, { type: 'tool_result' }>['content']): boolean {
  if (content == null) return true
  if (typeof content === 'string') return content !== ''
  return (
    content.length > 0 && content.every(block => block.type === 'tool_reference' || isPlain(block as Block))
  )
}

interface Source {
  readonly type: string
  readonly media_type?: string
  readonly url?: string
}

function isPlainSource(source: object): boolean {
  const { type, media_type, url } = source as Source
  if (type === 'url') return WEB_URL.test(url ?? '')
  return type === 'base64' && (IMAGE_TYPES.has(media_type ?? '') || media_type === 'application/pdf')
}
