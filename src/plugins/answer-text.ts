/** Reads and replaces the text parts of an answer. Pure. */
import type { OutputItem, OutputTextPart } from '../protocol/items.ts'

/** The text of the last message, which is the answer; empty for a refusal. */
export function answerText(output: readonly OutputItem[]): string {
  const last = output.findLast(item => item.type === 'message')
  if (last === undefined || !Array.isArray(last.content)) return ''
  let text = ''
  for (const part of last.content) if (part.type === 'output_text') text += part.text
  return text
}

/** Replaces each text part by the result of `change`. */
export async function withTextParts(
  output: readonly OutputItem[],
  change: (part: OutputTextPart) => OutputTextPart | Promise<OutputTextPart>,
): Promise<readonly OutputItem[]> {
  const changed: OutputItem[] = []
  for (const item of output) {
    if (item.type !== 'message' || !Array.isArray(item.content)) {
      changed.push(item)
      continue
    }
    const content = []
    for (const part of item.content) content.push(part.type === 'output_text' ? await change(part) : part)
    changed.push({ ...item, content } as OutputItem)
  }
  return changed
}
