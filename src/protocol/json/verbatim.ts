/**
 * Messages exactly as a client of the Messages API wrote them, next to the items they were translated to. If the
 * provider uses the same API, a message whose items are all unchanged is sent exactly as written, so that the prompt is
 * the same on every call and the provider finds it in its cache. Code that rewrites an item creates a new one, without
 * this original. Pure.
 */
interface WrittenMessage {
  /** Null: the system prompt. */
  readonly role: 'user' | 'assistant' | 'system' | null
  /** Blocks. */
  readonly content: readonly unknown[]
  readonly items: readonly object[]
}

/** Keyed by the first item. */
const messages = new WeakMap<object, WrittenMessage>()

export function keepWritten(message: WrittenMessage): void {
  const [first] = message.items
  if (first !== undefined) messages.set(first, message)
}

/** The message whose items are at this position, complete and unchanged; null: there is none. */
export function writtenAt(input: readonly object[], at: number): WrittenMessage | null {
  const first = input[at]
  const message = first === undefined ? undefined : messages.get(first)
  if (message === undefined) return null
  return message.items.every((item, index) => input[at + index] === item) ? message : null
}
