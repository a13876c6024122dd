/** Items of an earlier answer as items of this one. Pure. */
import { type ItemPrefix, itemId } from '../../base/ids.ts'
import type { Delta } from '../../formats/format.ts'
import type { OutputItem } from '../../protocol/items.ts'

const PREFIXES: Readonly<Record<string, ItemPrefix>> = {
  message: 'msg',
  function_call: 'fc',
  custom_tool_call: 'ctc',
}

/**
 * The id of a repeated item: a new one, because no two items may have the same id. A thought keeps its id, because what
 * its maker has sealed may be bound to that id.
 */
export function freshId({ id, type }: OutputItem): string {
  if (type === 'reasoning' && id !== undefined) return id
  return itemId(PREFIXES[type] ?? 'st')
}

/** The deltas that build an item anew; null for an item of a tool, which has none. `key`: the number of the item. */
export function deltasOf(item: OutputItem, key: number): Content[] | null {
  const start = startOf(item)
  if (start === null) return null
  const { id: _id, ...fields } = item
  return [{ kind: 'open', item: key, start }, ...piecesOf(item, key), { kind: 'close', item: key, fields }]
}

type Content = Exclude<Delta, { kind: 'start' | 'usage' | 'finish' }>

type Start = Extract<Content, { kind: 'open' }>['start']

function startOf(item: OutputItem): Start | null {
  switch (item.type) {
    case 'message':
      return { type: 'message', id: null, phase: item.phase ?? null }
    case 'reasoning':
      return { type: 'reasoning', id: freshId(item), format: (item.format ?? null) as never }
    case 'function_call':
    case 'custom_tool_call': {
      const { type, call_id: callId, name } = item as { type: 'function_call'; call_id: string; name: string }
      const { id: _id, status: _status, ...extra } = withoutCall(item)
      return { type, id: null, callId, name, extra }
    }
    default:
      return null
  }
}

function withoutCall(item: OutputItem): Record<string, unknown> {
  const {
    type: _type,
    call_id: _callId,
    name: _name,
    arguments: _arguments,
    input: _input,
    ...otherFields
  } = item as Record<string, unknown>
  return otherFields
}

function piecesOf(item: OutputItem, key: number): Content[] {
  if (item.type === 'message') {
    return item.content.flatMap((content, part): Content[] => {
      if (content.type === 'refusal') return [{ kind: 'refusal', item: key, part, text: content.refusal }]
      if (content.type !== 'output_text') return []
      const text = { kind: 'text', item: key, part, text: content.text } as const
      return [
        { ...text, logprobs: content.logprobs ?? null },
        ...(content.annotations ?? []).map(
          annotation => ({ kind: 'annotation', item: key, part, annotation }) as const,
        ),
      ]
    })
  }
  if (item.type === 'reasoning') {
    const piece = (form: 'text' | 'summary') => (content: { readonly text: string }, part: number) =>
      ({ kind: 'reasoning', item: key, form, part, text: content.text }) as const
    return [...(item.content ?? []).map(piece('text')), ...(item.summary ?? []).map(piece('summary'))]
  }
  const { arguments: text, input } = item as { readonly arguments?: string; readonly input?: string }
  return [{ kind: 'arguments', item: key, text: text ?? input ?? '' }]
}
