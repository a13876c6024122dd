/** The grammar of a chat completions stream, as described by the public reference. Pure. */
import type { Violation } from './responses-grammar.ts'
import { DONE, fields, list, type SeenEvent, string } from './sse.ts'

const FINISH_REASONS = new Set(['stop', 'length', 'tool_calls', 'content_filter', 'function_call'])

/** The violations in a complete stream with usage. */
export function chatViolations(events: readonly SeenEvent[]): Violation[] {
  const violations: Violation[] = []
  const report = (rule: string, what: string): void => void violations.push({ rule, what })
  const chunks = events.flatMap(({ json }) => (json === undefined ? [] : [json]))
  const doneIndexes = events.flatMap(({ data }, index) => (data === DONE ? [index] : []))
  if (doneIndexes.length !== 1) report('done', `[DONE] was sent ${doneIndexes.length} times`)
  else if (doneIndexes[0] !== events.length - 1) report('done', 'events follow [DONE]')

  for (const name of ['id', 'created', 'model'] as const) {
    const values = new Set(chunks.map(chunk => chunk[name]))
    if (values.has(undefined)) report('chunks', `a chunk has no ${name}`)
    else if (values.size > 1 && name !== 'model')
      report('chunks', `chunks differ in ${name}: ${[...values].slice(0, 3).join(', ')}`)
  }
  for (const chunk of chunks) {
    if (chunk['object'] !== 'chat.completion.chunk') report('chunks', `object is ${String(chunk['object'])}`)
    if (!Array.isArray(chunk['choices'])) report('chunks', 'a chunk has no choices')
  }

  let hasRole = false
  const finishes: string[] = []
  for (const chunk of chunks) {
    for (const choice of list(chunk['choices']).map(fields)) {
      const delta = fields(choice['delta'])
      const hasContent = string(delta['content']) !== '' || list(delta['tool_calls']).length > 0
      if (delta['role'] === 'assistant') hasRole = true
      else if (!hasRole && hasContent) report('role', 'content comes before the role')
      if (hasContent && finishes.length > 0) report('finish', 'content follows the finish_reason')
      if (!Number.isInteger(choice['index'])) report('chunks', 'a choice has no index')
      if (typeof choice['finish_reason'] === 'string') finishes.push(choice['finish_reason'])
    }
  }
  if (!hasRole) report('role', 'no delta has the role')
  if (finishes.length !== 1) report('finish', `${finishes.length} chunks have a finish_reason`)
  for (const finish of finishes)
    if (!FINISH_REASONS.has(finish)) report('finish', `finish_reason is ${finish}`)

  const usages = chunks.filter(chunk => chunk['usage'] !== undefined && chunk['usage'] !== null)
  if (usages.length !== 1) report('usage', `${usages.length} chunks have usage`)
  else if (list(usages[0]?.['choices']).length > 0) report('usage', 'the chunk with usage has choices')
  else if (chunks.at(-1) !== usages[0]) report('usage', 'the chunk with usage is not the last one')
  return violations
}
