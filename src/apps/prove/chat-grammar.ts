/** The grammar of a chat completions stream, as described by the public reference. Pure. */
import type { Violation } from './responses-grammar.ts'
import { DONE, fields, list, type SeenEvent, string } from './sse.ts'

const FINISHES = new Set(['stop', 'length', 'tool_calls', 'content_filter', 'function_call'])

/** The violations in a complete stream with usage. */
export function chatViolations(events: readonly SeenEvent[]): Violation[] {
  const found: Violation[] = []
  const report = (rule: string, what: string): void => void found.push({ rule, what })
  const chunks = events.flatMap(({ json }) => (json === undefined ? [] : [json]))
  const dones = events.flatMap(({ data }, at) => (data === DONE ? [at] : []))
  if (dones.length !== 1) report('done', `[DONE] was sent ${dones.length} times`)
  else if (dones[0] !== events.length - 1) report('done', 'events follow [DONE]')

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
      const says = string(delta['content']) !== '' || list(delta['tool_calls']).length > 0
      if (delta['role'] === 'assistant') hasRole = true
      else if (!hasRole && says) report('role', 'content comes before the role')
      if (says && finishes.length > 0) report('finish', 'content follows the finish_reason')
      if (!Number.isInteger(choice['index'])) report('chunks', 'a choice has no index')
      if (typeof choice['finish_reason'] === 'string') finishes.push(choice['finish_reason'])
    }
  }
  if (!hasRole) report('role', 'no delta has the role')
  if (finishes.length !== 1) report('finish', `${finishes.length} chunks have a finish_reason`)
  for (const finish of finishes) if (!FINISHES.has(finish)) report('finish', `finish_reason is ${finish}`)

  const usages = chunks.filter(chunk => chunk['usage'] !== undefined && chunk['usage'] !== null)
  if (usages.length !== 1) report('usage', `${usages.length} chunks have usage`)
  else if (list(usages[0]?.['choices']).length > 0) report('usage', 'the chunk with usage has choices')
  else if (chunks.at(-1) !== usages[0]) report('usage', 'the chunk with usage is not the last one')
  return found
}
