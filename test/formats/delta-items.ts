/**
 * Turns the deltas of one reply into finished items, and refuses sequences that break the Delta contract. Tests compare
 * the items with the provider's own statement of the whole reply.
 */
import type { Delta, Usage } from '../../src/formats/format.ts'
import { mergedUsage } from '../../src/formats/usage.ts'

export interface Collected {
  readonly start: { readonly upstreamId: string | null; readonly model: string | null } | null
  /** Items in order of appearance, in the wire form of the Responses vocabulary. */
  readonly items: readonly Readonly<Record<string, unknown>>[]
  /** All output text, refusals not included. */
  readonly text: string
  readonly refusal: string
  /** All reasoning: summaries and raw text. */
  readonly reasoning: string
  readonly calls: readonly {
    readonly callId: string | null
    readonly name: string
    readonly arguments: string
  }[]
  readonly progress: readonly { readonly item: number; readonly name: string; readonly fields: unknown }[]
  readonly usage: Usage | null
  readonly finish: {
    readonly reason: string
    readonly native: string | null
    readonly serviceTier: string | null
    readonly stopSequence?: string
  } | null
}

type Opening = Extract<Delta, { kind: 'open' }>['start']
type Annotations = Extract<Delta, { kind: 'annotation' }>['annotation'][]

interface Part {
  type: 'output_text' | 'refusal'
  text: string
  annotations: Annotations
  logprobs: unknown[]
}

interface Building {
  readonly start: Opening
  readonly parts: (Part | undefined)[]
  readonly summary: (string | undefined)[]
  readonly raw: (string | undefined)[]
  /** Arguments of a function call, or the input of a custom tool call. */
  input: string
  fields: Readonly<Record<string, unknown>> | null
  closed: boolean
}

/** @throws Error when the deltas break their contract, e.g. text for an item that was never opened. */
export function collect(deltas: readonly Delta[]): Collected {
  const building = new Map<number, Building>()
  const order: Building[] = []
  const progress: { item: number; name: string; fields: unknown }[] = []
  let start: Collected['start'] = null
  let usage: Usage | null = null
  let finish: Collected['finish'] = null

  const open = (item: number, ...types: Opening['type'][]): Building => {
    const found = building.get(item)
    if (found === undefined) throw new Error(`item ${item} is used before it is opened`)
    if (found.closed) throw new Error(`item ${item} is used after it was closed`)
    if (types.length > 0 && !types.includes(found.start.type)) {
      throw new Error(`a ${found.start.type} cannot take a delta of ${types.join(' or ')}`)
    }
    return found
  }
  const part = (item: number, index: number, type: Part['type']): Part => {
    const parts = open(item, 'message', 'hosted').parts
    const found = parts[index] ?? { type, text: '', annotations: [], logprobs: [] }
    if (found.type !== type) throw new Error(`part ${index} of item ${item} is a ${found.type} and a ${type}`)
    parts[index] = found
    return found
  }

  for (const delta of deltas) {
    if (finish !== null) throw new Error(`a ${delta.kind} delta comes after the finish`)
    switch (delta.kind) {
      case 'start':
        if (start !== null) throw new Error('a second start')
        start = { upstreamId: delta.upstreamId, model: delta.model }
        break
      case 'open': {
        if (building.has(delta.item)) throw new Error(`item ${delta.item} is opened twice`)
        const item: Building = {
          start: delta.start,
          parts: [],
          summary: [],
          raw: [],
          input: '',
          fields: null,
          closed: false,
        }
        building.set(delta.item, item)
        order.push(item)
        break
      }
      case 'text': {
        const target = part(delta.item, delta.part, 'output_text')
        target.text += delta.text
        if (delta.logprobs !== null) target.logprobs.push(...delta.logprobs)
        break
      }
      case 'refusal':
        part(delta.item, delta.part, 'refusal').text += delta.text
        break
      case 'annotation':
        part(delta.item, delta.part, 'output_text').annotations.push(delta.annotation)
        break
      case 'reasoning': {
        const item = open(delta.item, 'reasoning')
        const list = delta.form === 'summary' ? item.summary : item.raw
        list[delta.part] = (list[delta.part] ?? '') + delta.text
        break
      }
      case 'arguments':
        open(delta.item, 'function_call', 'custom_tool_call').input += delta.text
        break
      case 'progress':
        open(delta.item)
        progress.push({ item: delta.item, name: delta.name, fields: delta.fields })
        break
      case 'close': {
        const item = open(delta.item)
        item.closed = true
        item.fields = delta.fields
        break
      }
      case 'usage':
        usage = usage === null ? delta.usage : mergedUsage(usage, delta.usage)
        break
      case 'finish': {
        const { reason, native, serviceTier, stopSequence } = delta
        finish = { reason, native, serviceTier, ...(stopSequence == null ? {} : { stopSequence }) }
        break
      }
    }
  }

  const parts = order.flatMap(item => present(item.parts))
  return {
    start,
    items: order.map(wireItem),
    text: joined(parts.filter(one => one.type === 'output_text')),
    refusal: joined(parts.filter(one => one.type === 'refusal')),
    reasoning: order.map(item => [...present(item.summary), ...present(item.raw)].join('')).join(''),
    calls: order.flatMap(item =>
      item.start.type === 'function_call' || item.start.type === 'custom_tool_call'
        ? [{ callId: item.start.callId, name: item.start.name, arguments: item.input }]
        : [],
    ),
    progress,
    usage,
    finish,
  }
}

function joined(parts: readonly Part[]): string {
  return parts.map(one => one.text).join('')
}

function present<T>(list: readonly (T | undefined)[]): T[] {
  return list.filter(one => one !== undefined)
}

function wireItem(item: Building): Record<string, unknown> {
  const { start, fields } = item
  switch (start.type) {
    case 'message':
      return {
        type: 'message',
        id: start.id,
        ...(start.phase === null ? {} : { phase: start.phase }),
        content: present(item.parts).map(wirePart),
        ...fields,
      }
    case 'reasoning':
      return {
        type: 'reasoning',
        id: start.id,
        format: start.format,
        summary: present(item.summary).map(text => ({ type: 'summary_text', text })),
        content: present(item.raw).map(text => ({ type: 'reasoning_text', text })),
        ...fields,
      }
    case 'function_call':
      return {
        type: start.type,
        id: start.id,
        call_id: start.callId,
        name: start.name,
        arguments: item.input,
        ...start.extra,
        ...fields,
      }
    case 'custom_tool_call':
      return {
        type: start.type,
        id: start.id,
        call_id: start.callId,
        name: start.name,
        input: item.input,
        ...start.extra,
        ...fields,
      }
    case 'hosted':
      return { ...start.item, ...fields }
  }
}

function wirePart(one: Part): Record<string, unknown> {
  if (one.type === 'refusal') return { type: 'refusal', refusal: one.text }
  return { type: 'output_text', text: one.text, annotations: one.annotations, logprobs: one.logprobs }
}
