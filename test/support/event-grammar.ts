/**
 * The grammar of a Responses event stream, as a checker that shares no code with the answer. Returns the violations
 * as sentences; an empty list means a valid stream.
 */
import { isDeepStrictEqual } from 'node:util'
import { STREAM_EVENT_TYPES, type StreamEvent } from '../../src/protocol/events.ts'

const TERMINAL = new Set(['response.completed', 'response.incomplete', 'response.failed'])
const KNOWN = new Set<string>(STREAM_EVENT_TYPES)

/** Event kinds that carry a piece of a text, with where the whole appears again. */
const TEXTS: Readonly<Record<string, { done: string; whole: string; index: string | null }>> = {
  'response.output_text.delta': { done: 'response.output_text.done', whole: 'text', index: 'content_index' },
  'response.refusal.delta': { done: 'response.refusal.done', whole: 'refusal', index: 'content_index' },
  'response.reasoning_text.delta': {
    done: 'response.reasoning_text.done',
    whole: 'text',
    index: 'content_index',
  },
  'response.reasoning_summary_text.delta': {
    done: 'response.reasoning_summary_text.done',
    whole: 'text',
    index: 'summary_index',
  },
  'response.function_call_arguments.delta': {
    done: 'response.function_call_arguments.done',
    whole: 'arguments',
    index: null,
  },
  'response.custom_tool_call_input.delta': {
    done: 'response.custom_tool_call_input.done',
    whole: 'input',
    index: null,
  },
}
const WHOLES = new Map(Object.values(TEXTS).map(({ done, whole, index }) => [done, { whole, index }]))

type Loose = Record<string, unknown> & { type: string; sequence_number: number }

export function grammarViolations(stream: readonly StreamEvent[]): string[] {
  const events = stream as unknown as readonly Loose[]
  const found: string[] = []
  const complain = (event: Loose, what: string) =>
    found.push(`#${event.sequence_number} ${event.type}: ${what}`)

  let opened = 0
  const items = new Map<string, number>()
  const done: unknown[] = []
  const parts = new Map<string, 'open' | 'done'>()
  const texts = new Map<string, string>()

  events.forEach((event, at) => {
    if (event.sequence_number !== at) complain(event, `sequence_number is not ${at}`)
    if (!KNOWN.has(event.type)) complain(event, 'is not of the documented list')
    if (TERMINAL.has(event.type) !== (at === events.length - 1))
      complain(event, 'terminal events stand last, once')
  })

  const content = events.filter(
    ({ type }) => type !== 'response.debug' && type !== 'response.gateway.continued',
  )
  if (content[0]?.type !== 'response.created') found.push('the stream does not begin with response.created')
  if (content[1]?.type !== 'response.in_progress') found.push('response.in_progress does not follow')

  for (const event of content.slice(2)) {
    const item = event['item'] as { id?: string; type?: string } | undefined
    const index = event['output_index'] as number
    const itemId = (event['item_id'] ?? item?.id) as string | undefined
    if (event.type === 'response.output_item.added') {
      if (index !== opened) complain(event, `output_index ${index}, expected ${opened}`)
      opened++
      if (itemId === undefined) complain(event, 'the item has no id')
      else if (items.has(itemId)) complain(event, `the id ${itemId} is taken`)
      else items.set(itemId, index)
      continue
    }
    if (TERMINAL.has(event.type)) continue
    if (itemId === undefined || items.get(itemId) !== index) {
      complain(event, `belongs to no open item at ${index}`)
      continue
    }
    if (event.type === 'response.output_item.done') {
      done[index] = item
      items.delete(itemId)
      for (const [key, state] of parts) {
        if (key.startsWith(`${itemId}/`) && state === 'open') complain(event, `part ${key} is still open`)
      }
      checkFinished(event, item as Record<string, unknown>, texts, itemId, complain)
      continue
    }
    const partKey = `${itemId}/${'summary_index' in event ? 'summary' : 'content'}/${event['summary_index'] ?? event['content_index']}`
    if (event.type.endsWith('_part.added')) {
      if (parts.has(partKey)) complain(event, 'the part is there already')
      parts.set(partKey, 'open')
    } else if (event.type.endsWith('_part.done')) {
      if (parts.get(partKey) !== 'open') complain(event, 'the part is not open')
      parts.set(partKey, 'done')
      const part = event['part'] as Record<string, unknown>
      const said = texts.get(partKey) ?? ''
      if ((part['text'] ?? part['refusal']) !== said) complain(event, 'the part differs from its deltas')
    }
    const piece = TEXTS[event.type]
    if (piece !== undefined) {
      const key = piece.index === null ? itemId : partKey
      if (piece.index !== null && parts.get(partKey) !== 'open') complain(event, 'the part is not open')
      texts.set(key, (texts.get(key) ?? '') + (event['delta'] as string))
    }
    const whole = WHOLES.get(event.type)
    if (whole !== undefined) {
      const said = texts.get(whole.index === null ? itemId : partKey) ?? ''
      if (event[whole.whole] !== said) complain(event, 'the whole differs from its deltas')
    }
  }

  for (const id of items.keys()) found.push(`item ${id} was added and never done`)
  const last = events.at(-1)
  const final = (last?.['response'] as { output?: unknown[] } | undefined)?.output
  if (!isDeepStrictEqual(final, done)) found.push('the final output differs from the items that were done')
  return found
}

const LEFT = /^(?:(?:gateway|openrouter):(?:bash|apply_patch)|apply_patch_call|shell_call)$/

function checkFinished(
  event: Loose,
  item: Record<string, unknown>,
  texts: ReadonlyMap<string, string>,
  itemId: string,
  complain: (event: Loose, what: string) => void,
): void {
  // A call made by a provider's own program (it names its caller) stays in progress until the client answers it.
  // So does a call of a server tool that is left to the client.
  if (item['status'] === 'in_progress' && item['caller'] === undefined && !LEFT.test(String(item['type']))) {
    complain(event, 'the finished item is still in progress')
  }
  if (item['type'] === 'function_call' && item['arguments'] !== (texts.get(itemId) ?? '')) {
    complain(event, 'arguments differ from their deltas')
  }
  if (item['type'] === 'custom_tool_call' && item['input'] !== (texts.get(itemId) ?? '')) {
    complain(event, 'input differs from its deltas')
  }
  if (item['type'] !== 'message' && item['type'] !== 'reasoning') return
  for (const [list, name] of [
    ['content', 'content'],
    ['summary', 'summary'],
  ] as const) {
    for (const [index, part] of ((item[list] ?? []) as Record<string, unknown>[]).entries()) {
      const said = texts.get(`${itemId}/${name}/${index}`) ?? ''
      if ((part['text'] ?? part['refusal']) !== said)
        complain(event, `${list}[${index}] differs from its deltas`)
    }
  }
}
