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
const TEXTS: Readonly<Record<string, { readonly whole: string; readonly index: string | null }>> = {
  'response.output_text': { whole: 'text', index: 'content_index' },
  'response.refusal': { whole: 'refusal', index: 'content_index' },
  'response.reasoning_text': { whole: 'text', index: 'content_index' },
  'response.reasoning_summary_text': { whole: 'text', index: 'summary_index' },
  'response.function_call_arguments': { whole: 'arguments', index: null },
  'response.custom_tool_call_input': { whole: 'input', index: null },
}
const PARTS: Readonly<Record<string, string>> = {
  'response.content_part': 'content_index',
  'response.reasoning_summary_part': 'summary_index',
}
const TERMINAL = new Set(['response.completed', 'response.incomplete', 'response.failed'])
const LIFECYCLE = new Set([...TERMINAL, 'response.created', 'response.queued', 'response.in_progress'])

type Event = Readonly<Record<string, unknown>>

export function isTerminal(type: string): boolean {
  return TERMINAL.has(type)
}

/** The violations in a complete stream. */
export function responsesViolations(events: readonly SeenEvent[]): Violation[] {
  return new Reading(events.filter(({ json }) => json !== undefined)).violations()
}

class Reading {
  readonly #events: readonly SeenEvent[]
  readonly #found: Violation[] = []
  /** Open items by id, with their position. */
  readonly #open = new Map<string, number>()
  readonly #done: { readonly place: number; readonly item: Event }[] = []
  readonly #places = new Set<number>()
  readonly #openParts = new Set<string>()
  readonly #texts = new Map<string, string>()
  /** Texts whose `.done` has arrived. */
  readonly #wholes = new Set<string>()

  constructor(events: readonly SeenEvent[]) {
    this.#events = events
  }

  violations(): Violation[] {
    const events = this.#events.map(({ json }) => fields(json))
    for (const [at, { name }] of this.#events.entries()) {
      const type = string(events[at]?.['type'])
      if (type === '') this.#report('names', `event ${at} has no type`)
      else if (name === null) this.#report('names', `event ${at} (${type}) has no event: field`)
      else if (name !== type) this.#report('names', `event ${at}: event: ${name}, but type ${type}`)
    }
    this.#numbers(events)
    this.#lifecycle(events)
    for (const event of events) this.#read(event)
    for (const id of this.#open.keys()) this.#report('items', `item ${id} was added and is never done`)
    for (const key of this.#openParts) this.#report('parts', `part ${key} was added and is never done`)
    for (const [key, text] of this.#texts)
      if (text !== '' && !this.#wholes.has(key))
        this.#report('deltas', `the deltas of ${key} have no done event`)
    this.#final(fields(events.findLast(event => isTerminal(string(event['type'])))?.['response']))
    return this.#found
  }

  #report(rule: string, what: string): void {
    this.#found.push({ rule, what })
  }

  #numbers(events: readonly Event[]): void {
    let last = -1
    for (const { sequence_number: number, type } of events) {
      if (!Number.isInteger(number)) this.#report('sequence', `${string(type)} has no sequence_number`)
      else if ((number as number) <= last || (last === -1 && number !== 0))
        this.#report('sequence', `${number} at ${string(type)} follows ${last === -1 ? 'nothing' : last}`)
      if (Number.isInteger(number)) last = number as number
    }
  }

  #lifecycle(events: readonly Event[]): void {
    if (events[0]?.['type'] !== 'response.created')
      this.#report('opening', `the first event is ${string(events[0]?.['type']) || 'none'}`)
    const ends = events.flatMap(({ type }, at) => (isTerminal(string(type)) ? [at] : []))
    if (ends.length !== 1) this.#report('terminal', `${ends.length} terminal events`)
    else if (ends[0] !== events.length - 1)
      this.#report('terminal', `${string(events.at(-1)?.['type'])} follows the terminal event`)
    const ids = new Set<string>()
    for (const event of events) {
      if (!LIFECYCLE.has(string(event['type']))) continue
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

  #read(event: Event): void {
    const type = string(event['type'])
    const place = event['output_index'] as number
    if (type === 'response.output_item.added') this.#added(fields(event['item']), place)
    else if (type === 'response.output_item.done') this.#itemDone(fields(event['item']), place)
    else {
      const [stem, verb] = [type.replace(/\.[a-z]+$/, ''), type.slice(type.lastIndexOf('.') + 1)]
      const partIndex = Object.hasOwn(PARTS, stem) ? PARTS[stem] : undefined
      const text = Object.hasOwn(TEXTS, stem) ? TEXTS[stem] : undefined
      if (partIndex !== undefined || text !== undefined) this.#belongs(event, place)
      if (partIndex !== undefined) this.#part(verb, partKey(event, partIndex))
      if (text !== undefined) this.#text(verb, event, text)
    }
  }

  #added(item: Event, place: number): void {
    const id = string(item['id'])
    if (id === '') this.#report('items', `the item at ${place} has no id`)
    if (this.#places.has(place)) this.#report('items', `two items have the output_index ${place}`)
    else if (place !== this.#places.size)
      this.#report('items', `the item after ${this.#places.size} others has the output_index ${place}`)
    this.#places.add(place)
    this.#open.set(id, place)
  }

  #itemDone(item: Event, place: number): void {
    const id = string(item['id'])
    if (this.#open.get(id) !== place)
      this.#report('items', `item ${id || 'without id'} is done at ${place}, where it was never added`)
    this.#open.delete(id)
    this.#done.push({ place, item })
    for (const [at, part] of list(item['content']).entries())
      this.#same(`${id}/content_index/${at}`, fields(part))
  }

  /** Checks that a finished part has the text of its deltas. */
  #same(key: string, part: Event): void {
    const text = part['text'] ?? part['refusal']
    if (this.#texts.has(key) && typeof text === 'string' && text !== this.#texts.get(key))
      this.#report('deltas', `the text of ${key} differs from its deltas`)
  }

  #belongs(event: Event, place: number): void {
    const id = string(event['item_id'])
    if (this.#open.get(id) !== place)
      this.#report(
        'items',
        `${string(event['type'])} belongs to ${id || 'no item'} at ${place}, which is not open`,
      )
  }

  #part(verb: string, key: string): void {
    if (verb === 'added') {
      if (this.#openParts.has(key)) this.#report('parts', `part ${key} was added twice`)
      this.#openParts.add(key)
    } else if (verb === 'done' && !this.#openParts.delete(key))
      this.#report('parts', `part ${key} is done, but was never added`)
  }

  #text(
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
      this.#wholes.add(key)
      if (event[whole] !== (this.#texts.get(key) ?? ''))
        this.#report('deltas', `${string(event['type'])} of ${key} differs from its deltas`)
    }
  }

  #final(response: Event): void {
    const output = list(response['output']).map(item => string(fields(item)['id']))
    const done = this.#done
      .toSorted((one, other) => one.place - other.place)
      .map(({ item }) => string(item['id']))
    if (output.join() !== done.join())
      this.#report(
        'final',
        `output has ${output.join(', ') || 'no items'}; ${done.join(', ') || 'no items'} were done`,
      )
    for (const [at, item] of list(response['output']).entries()) {
      const ended = this.#done.find(({ place }) => place === at)?.item
      if (ended !== undefined && textIn(fields(item)) !== textIn(ended))
        this.#report('final', `the text of item ${at} differs from that of its done event`)
    }
    const status = response['status']
    const { input_tokens: input, output_tokens: output_, total_tokens: total } = fields(response['usage'])
    if (
      status !== 'failed' &&
      !(Number.isInteger(input) && Number.isInteger(output_) && Number.isInteger(total))
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
