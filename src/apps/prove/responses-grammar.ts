/**
 * The grammar of a Responses stream: which event may follow which, and which totals must match. It checks the promises
 * of the public reference; unknown events may occur anywhere. Pure.
 */
import { fields, list, type SeenEvent, string } from './sse.ts'

export interface Violation {
  readonly rule: string
  readonly what: string
}

/** Events with pieces of a text: the field with the full text in `.done`, and the field that distinguishes parts. */
const TEXT_EVENTS: Readonly<Record<string, { readonly whole: string; readonly index: string | null }>> = {
  'response.output_text': { whole: 'text', index: 'content_index' },
  'response.refusal': { whole: 'refusal', index: 'content_index' },
  'response.reasoning_text': { whole: 'text', index: 'content_index' },
  'response.reasoning_summary_text': { whole: 'text', index: 'summary_index' },
  'response.function_call_arguments': { whole: 'arguments', index: null },
  'response.custom_tool_call_input': { whole: 'input', index: null },
}
const PART_EVENTS: Readonly<Record<string, string>> = {
  'response.content_part': 'content_index',
  'response.reasoning_summary_part': 'summary_index',
}
const TERMINAL_EVENTS = new Set(['response.completed', 'response.incomplete', 'response.failed'])
const LIFECYCLE_EVENTS = new Set([
  ...TERMINAL_EVENTS,
  'response.created',
  'response.queued',
  'response.in_progress',
])

type Event = Readonly<Record<string, unknown>>

export function isTerminal(type: string): boolean {
  return TERMINAL_EVENTS.has(type)
}

/** The violations in a complete stream. */
export function responsesViolations(events: readonly SeenEvent[]): Violation[] {
  return new StreamReading(events.filter(({ json }) => json !== undefined)).violations()
}

class StreamReading {
  readonly #events: readonly SeenEvent[]
  readonly #violations: Violation[] = []
  /** Open items by id, with their position. */
  readonly #openItems = new Map<string, number>()
  readonly #doneItems: { readonly place: number; readonly item: Event }[] = []
  readonly #outputIndexes = new Set<number>()
  readonly #openParts = new Set<string>()
  readonly #texts = new Map<string, string>()
  /** Texts whose `.done` has arrived. */
  readonly #doneTexts = new Set<string>()

  constructor(events: readonly SeenEvent[]) {
    this.#events = events
  }

  violations(): Violation[] {
    const events = this.#events.map(({ json }) => fields(json))
    for (const [index, { name }] of this.#events.entries()) {
      const type = string(events[index]?.['type'])
      if (type === '') this.#report('names', `event ${index} has no type`)
      else if (name === null) this.#report('names', `event ${index} (${type}) has no event: field`)
      else if (name !== type) this.#report('names', `event ${index}: event: ${name}, but type ${type}`)
    }
    this.#checkNumbers(events)
    this.#checkLifecycle(events)
    for (const event of events) this.#readEvent(event)
    for (const id of this.#openItems.keys()) this.#report('items', `item ${id} was added and is never done`)
    for (const key of this.#openParts) this.#report('parts', `part ${key} was added and is never done`)
    for (const [key, text] of this.#texts)
      if (text !== '' && !this.#doneTexts.has(key))
        this.#report('deltas', `the deltas of ${key} have no done event`)
    this.#checkFinal(fields(events.findLast(event => isTerminal(string(event['type'])))?.['response']))
    return this.#violations
  }

  #report(rule: string, what: string): void {
    this.#violations.push({ rule, what })
  }

  #checkNumbers(events: readonly Event[]): void {
    let last = -1
    for (const { sequence_number: number, type } of events) {
      if (!Number.isInteger(number)) this.#report('sequence', `${string(type)} has no sequence_number`)
      else if ((number as number) <= last || (last === -1 && number !== 0))
        this.#report('sequence', `${number} at ${string(type)} follows ${last === -1 ? 'nothing' : last}`)
      if (Number.isInteger(number)) last = number as number
    }
  }

  #checkLifecycle(events: readonly Event[]): void {
    if (events[0]?.['type'] !== 'response.created')
      this.#report('opening', `the first event is ${string(events[0]?.['type']) || 'none'}`)
    const ends = events.flatMap(({ type }, index) => (isTerminal(string(type)) ? [index] : []))
    if (ends.length !== 1) this.#report('terminal', `${ends.length} terminal events`)
    else if (ends[0] !== events.length - 1)
      this.#report('terminal', `${string(events.at(-1)?.['type'])} follows the terminal event`)
    const ids = new Set<string>()
    for (const event of events) {
      if (!LIFECYCLE_EVENTS.has(string(event['type']))) continue
      const response = fields(event['response'])
      ids.add(string(response['id']))
      const status = string(response['status'])
      const kind = string(event['type']).slice('response.'.length)
      if (isTerminal(string(event['type'])) && status !== kind)
        this.#report('terminal', `${string(event['type'])} carries the status ${status || 'none'}`)
    }
    if (ids.size > 1 || ids.has(''))
      this.#report('ids', `the response has the ids ${[...ids].map(id => id || 'none').join(', ')}`)
  }

  #readEvent(event: Event): void {
    const type = string(event['type'])
    const outputIndex = event['output_index'] as number
    if (type === 'response.output_item.added') this.#onItemAdded(fields(event['item']), outputIndex)
    else if (type === 'response.output_item.done') this.#onItemDone(fields(event['item']), outputIndex)
    else {
      const [stem, verb] = [type.replace(/\.[a-z]+$/, ''), type.slice(type.lastIndexOf('.') + 1)]
      const partIndex = Object.hasOwn(PART_EVENTS, stem) ? PART_EVENTS[stem] : undefined
      const text = Object.hasOwn(TEXT_EVENTS, stem) ? TEXT_EVENTS[stem] : undefined
      if (partIndex !== undefined || text !== undefined) this.#checkItem(event, outputIndex)
      if (partIndex !== undefined) this.#onPart(verb, partKey(event, partIndex))
      if (text !== undefined) this.#onText(verb, event, text)
    }
  }

  #onItemAdded(item: Event, outputIndex: number): void {
    const id = string(item['id'])
    if (id === '') this.#report('items', `the item at ${outputIndex} has no id`)
    if (this.#outputIndexes.has(outputIndex))
      this.#report('items', `two items have the output_index ${outputIndex}`)
    else if (outputIndex !== this.#outputIndexes.size)
      this.#report(
        'items',
        `the item after ${this.#outputIndexes.size} others has the output_index ${outputIndex}`,
      )
    this.#outputIndexes.add(outputIndex)
    this.#openItems.set(id, outputIndex)
  }

  #onItemDone(item: Event, outputIndex: number): void {
    const id = string(item['id'])
    if (this.#openItems.get(id) !== outputIndex)
      this.#report('items', `item ${id || 'without id'} is done at ${outputIndex}, where it was never added`)
    this.#openItems.delete(id)
    this.#doneItems.push({ place: outputIndex, item })
    for (const [index, part] of list(item['content']).entries())
      this.#compareText(`${id}/content_index/${index}`, fields(part))
  }

  /** Checks that a finished part has the text of its deltas. */
  #compareText(key: string, part: Event): void {
    const text = part['text'] ?? part['refusal']
    if (this.#texts.has(key) && typeof text === 'string' && text !== this.#texts.get(key))
      this.#report('deltas', `the text of ${key} differs from its deltas`)
  }

  #checkItem(event: Event, outputIndex: number): void {
    const id = string(event['item_id'])
    if (this.#openItems.get(id) !== outputIndex)
      this.#report(
        'items',
        `${string(event['type'])} belongs to ${id || 'no item'} at ${outputIndex}, which is not open`,
      )
  }

  #onPart(verb: string, key: string): void {
    if (verb === 'added') {
      if (this.#openParts.has(key)) this.#report('parts', `part ${key} was added twice`)
      this.#openParts.add(key)
    } else if (verb === 'done' && !this.#openParts.delete(key))
      this.#report('parts', `part ${key} is done, but was never added`)
  }

  #onText(
    verb: string,
    event: Event,
    { whole, index }: { readonly whole: string; readonly index: string | null },
  ): void {
    const key = index === null ? string(event['item_id']) : partKey(event, index)
    const isPart = index === 'content_index' && !string(event['type']).startsWith('response.reasoning')
    if (verb === 'delta') {
      if (typeof event['delta'] !== 'string') this.#report('deltas', `a delta of ${key} is not text`)
      if (isPart && !this.#openParts.has(key))
        this.#report('parts', `a delta belongs to part ${key}, which is not open`)
      this.#texts.set(key, (this.#texts.get(key) ?? '') + string(event['delta']))
    } else if (verb === 'done') {
      this.#doneTexts.add(key)
      if (event[whole] !== (this.#texts.get(key) ?? ''))
        this.#report('deltas', `${string(event['type'])} of ${key} differs from its deltas`)
    }
  }

  #checkFinal(response: Event): void {
    const output = list(response['output']).map(item => string(fields(item)['id']))
    const doneIds = this.#doneItems
      .toSorted((a, b) => a.place - b.place)
      .map(({ item }) => string(item['id']))
    if (output.join() !== doneIds.join())
      this.#report(
        'final',
        `output has ${output.join(', ') || 'no items'}; ${doneIds.join(', ') || 'no items'} were done`,
      )
    for (const [index, item] of list(response['output']).entries()) {
      const doneItem = this.#doneItems.find(({ place }) => place === index)?.item
      if (doneItem !== undefined && textIn(fields(item)) !== textIn(doneItem))
        this.#report('final', `the text of item ${index} differs from that of its done event`)
    }
    const status = response['status']
    const {
      input_tokens: input,
      output_tokens: outputTokens,
      total_tokens: total,
    } = fields(response['usage'])
    if (
      status !== 'failed' &&
      !(Number.isInteger(input) && Number.isInteger(outputTokens) && Number.isInteger(total))
    )
      this.#report(
        'usage',
        'the usage of the terminal event lacks input_tokens, output_tokens or total_tokens',
      )
  }
}

function partKey(event: Event, index: string): string {
  return `${string(event['item_id'])}/${index}/${String(event[index])}`
}

/** All text of an item: content, arguments, input. */
export function textIn(item: Event): string {
  const content = list(item['content'])
    .map(part => string(fields(part)['text']) + string(fields(part)['refusal']))
    .join('')
  return content + string(item['arguments']) + string(item['input'])
}
