/** Requests of plugins to models: how they are built, and how an answer is read. Pure. */
import type { OutputItem } from '../../protocol/items.ts'
import type { OutputTextPart } from '../../protocol/parts.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'

/** True if the caller does not allow providers that collect data. */
export function isPrivate({ provider }: ResponsesRequest): boolean {
  return provider?.data_collection === 'deny'
}

/** The provider settings of a request; `isPrivate`: its texts must not go to providers that collect data. */
export function privateTerms(isPrivate: boolean): Pick<ResponsesRequest, 'provider'> {
  return isPrivate ? { provider: { data_collection: 'deny' } } : {}
}

/**
 * A request to follow the instructions for `content`, which is quoted as JSON so that it is not read as instructions.
 */
export function question(
  model: string,
  isPrivate: boolean,
  instructions: string,
  content: unknown,
): ResponsesRequest {
  return {
    model,
    ...privateTerms(isPrivate),
    instructions,
    input: [{ type: 'message', role: 'user', content: JSON.stringify(content) }],
  }
}

/** The text of the last message, which is the answer; empty for a refusal. */
export function answerText(output: readonly OutputItem[]): string {
  const lastMessage = output.findLast(item => item.type === 'message')
  if (lastMessage === undefined || !Array.isArray(lastMessage.content)) return ''
  let text = ''
  for (const part of lastMessage.content) if (part.type === 'output_text') text += part.text
  return text
}

/** Replaces each text part by the result of `change`. */
export async function withTextParts(
  output: readonly OutputItem[],
  change: (part: OutputTextPart) => OutputTextPart | Promise<OutputTextPart>,
): Promise<readonly OutputItem[]> {
  const changedItems: OutputItem[] = []
  for (const item of output) {
    if (item.type !== 'message' || !Array.isArray(item.content)) {
      changedItems.push(item)
      continue
    }
    const content = []
    for (const part of item.content) content.push(part.type === 'output_text' ? await change(part) : part)
    changedItems.push({ ...item, content } as OutputItem)
  }
  return changedItems
}
