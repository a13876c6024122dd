/**
 * Messages exactly as a client of the Messages API wrote them, next to the items they were translated to. If the
 * provider uses the same API, a message whose items are all unchanged is sent exactly as written, so that the prompt is
 * the same on every call and the provider finds it in its cache. Code that rewrites an item creates a new one, without
 * this original. Pure.
 */
interface WrittenMessage {
  /** Null: the system prompt. */
  readonly role: 'user' | 'assistant' | 'system' | null
  /** Content blocks. */
  readonly content: readonly unknown[]
  readonly items: readonly object[]
}

/** Keyed by the first item. */
const messages = new WeakMap<object, WrittenMessage>()

export function keepMessage(message: WrittenMessage): void {
  const [firstItem] = message.items
  if (firstItem !== undefined) messages.set(firstItem, message)
}

/** The message whose items are at this position, complete and unchanged; null: there is none. */
export function writtenMessageAt(input: readonly object[], index: number): WrittenMessage | null {
  const firstItem = input[index]
  const message = firstItem === undefined ? undefined : messages.get(firstItem)
  if (message === undefined) return null
  return message.items.every((item, offset) => input[index + offset] === item) ? message : null
}
