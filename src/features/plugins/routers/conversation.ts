/** The parts of a request that routers read: user texts, tool results, and the model that answered last. Pure. */
import type { ResponsesRequest } from '../../../protocol/request.ts'

/** Items that are searched for tool results, from the end: a conversation may have thousands. */
const MAX_ITEMS = 64
/** Characters of one text, unless the reader asks for more. */
const MAX_TEXT_CHARS = 4_000

interface UserWords {
  /** The user's first message; empty if there is none. */
  readonly first: string
  readonly latest: string
}

export interface ToolResult {
  /** The name of the tool; empty if the call is missing. */
  readonly name: string
  readonly text: string
}

interface AnyItem {
  readonly type?: unknown
  readonly role?: unknown
  readonly content?: unknown
  readonly output?: unknown
  readonly call_id?: unknown
  readonly name?: unknown
  readonly model?: unknown
}

export function userWords({ input }: ResponsesRequest, maxChars = MAX_TEXT_CHARS): UserWords {
  if (typeof input === 'string') {
    const text = input.slice(0, maxChars)
    return { first: text, latest: text }
  }
  const items = input as readonly AnyItem[]
  const isUser = ({ role }: AnyItem): boolean => role === 'user'
  return {
    first: textOf(items.find(isUser)?.content, maxChars),
    latest: textOf(items.findLast(isUser)?.content, maxChars),
  }
}

/** The system's instructions, truncated. */
export function instructionsOf({ instructions, input }: ResponsesRequest): string {
  if (typeof instructions === 'string') return instructions.slice(0, MAX_TEXT_CHARS)
  if (typeof input === 'string') return ''
  const items = input as readonly AnyItem[]
  return textOf(items.find(({ role }) => role === 'system' || role === 'developer')?.content)
}

/** True if the request brings tool results to the model, and no new message of the user. */
export function isToolTurn({ input }: ResponsesRequest): boolean {
  return typeof input !== 'string' && isResult((input as readonly AnyItem[]).at(-1))
}

/** Tool results since the user's last message, oldest first. */
export function recentResults({ input }: ResponsesRequest): readonly ToolResult[] {
  if (typeof input === 'string') return []
  const items = (input as readonly AnyItem[]).slice(-MAX_ITEMS)
  const start = items.findLastIndex(({ role }) => role === 'user') + 1
  const names = new Map<unknown, string>()
  for (const { call_id, name } of items) if (typeof name === 'string') names.set(call_id, name)
  return items
    .slice(start)
    .filter(isResult)
    .map(({ call_id, output, content }) => ({
      name: names.get(call_id) ?? '',
      text: textOf(output ?? content),
    }))
}

/** The `model` that the assistant's latest message carries; null if it carries none. */
export function lastAssistantModel({ input }: ResponsesRequest): string | null {
  if (typeof input === 'string') return null
  const lastMessage = (input as readonly AnyItem[]).findLast(({ role }) => role === 'assistant')
  return typeof lastMessage?.model === 'string' ? lastMessage.model : null
}

/** The request without the `model` of assistant messages, which is not a field of a message. */
export function withoutModels(request: ResponsesRequest): ResponsesRequest {
  const { input } = request
  if (typeof input === 'string' || !input.some(item => 'model' in item && 'role' in item)) return request
  const stripped = input.map(item => {
    if (!('model' in item) || !('role' in item)) return item
    const { model: _model, ...message } = item as typeof item & { readonly model: unknown }
    return message as typeof item
  })
  return { ...request, input: stripped }
}

function isResult(item: AnyItem | undefined): boolean {
  const { type } = item ?? {}
  return typeof type === 'string' && (type.endsWith('_call_output') || type === 'mcp_approval_response')
}

function textOf(content: unknown, maxChars = MAX_TEXT_CHARS): string {
  if (typeof content === 'string') return content.slice(0, maxChars)
  if (!Array.isArray(content)) return ''
  let text = ''
  for (const part of content as readonly ({ readonly text?: unknown } | null)[]) {
    if (typeof part?.text === 'string') text += text === '' ? part.text : `\n${part.text}`
    if (text.length >= maxChars) break
  }
  return text.slice(0, maxChars)
}
