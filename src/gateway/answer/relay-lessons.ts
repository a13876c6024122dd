/**
 * Lessons of the relay, by dialect: learns which frames of a provider can be relayed, and which frames leave in their
 * place. A dialect without a row has no relay. Pure.
 */

import type { StreamEvent } from '../../protocol/events.ts'
import type { DialectName } from '../../protocol/request.ts'
import { FramePattern, type FrameSlot, type Place, placesIn } from '../../upstream/scan.ts'
import { type DecodedFrame, FrameTemplate, type LearnFrame, type Lesson } from './relay.ts'

export const RELAYS: Partial<Record<DialectName, LearnFrame>> = {
  responses: learnResponses,
  'chat-completions': learnChat,
  messages: learnMessages,
}

type Members = Readonly<Record<string, unknown>>

const DATA = 'data: '

const RESPONSES_SLOTS: ReadonlyMap<string, FrameSlot> = new Map([
  ['sequence_number', 'number'],
  ['delta', 'delta'],
  ['obfuscation', 'padding'],
])

/** One frame is proof enough: all its members are those of the event, so the next one can differ in its slots only. */
function learnResponses({ event, data, last, written }: DecodedFrame): Lesson | null {
  const places = last.type === event ? placesIn(data) : null
  if (places === null) return null
  const frame = JSON.parse(data) as Members
  const { sequence_number: number, delta } = frame
  if (typeof number !== 'number' || typeof delta !== 'string' || !isSaidBy(frame, last)) return null
  const slots = slotsIn(places, path => RESPONSES_SLOTS.get(path) ?? null)
  const pattern = new FramePattern(event, data, slots, true)
  const ahead = number - last.sequence_number
  if (ahead === 0) return { pattern, template: null, ahead, isProven: true }
  // The provider numbers events that we leave out, or begins with 1.
  const template = templateOf(written, path =>
    path === 'delta' ? 'delta' : path === 'sequence_number' ? 'number' : null,
  )
  return template === null ? null : { pattern, template, ahead, isProven: true }
}

/** The frame has the members of the event, but for padding and the number. */
function isSaidBy({ obfuscation, ...frame }: Members, event: StreamEvent): boolean {
  const keys = Object.keys(frame)
  return (
    (obfuscation === undefined || typeof obfuscation === 'string') &&
    keys.length === Object.keys(event).length &&
    keys.every(key => {
      const value = frame[key]
      const made: unknown = Object.hasOwn(event, key) ? Reflect.get(event, key) : undefined
      if (key === 'sequence_number') return true
      if (Array.isArray(value)) return value.length === 0 && Array.isArray(made) && made.length === 0
      return (typeof value === 'string' || typeof value === 'number') && made === value
    })
  )
}

/** Members that may hold the text, in frames of providers and in ours. */
const CHAT_TEXTS: ReadonlySet<string> = new Set([
  'choices.0.delta.content',
  'choices.0.delta.content.0.thinking.0.text',
  'choices.0.delta.reasoning_content',
  'choices.0.delta.reasoning',
  'choices.0.delta.reasoning_details.0.text',
  'choices.0.delta.reasoning_details.0.summary',
  'choices.0.delta.tool_calls.0.function.arguments',
])
/** Members that the decoder does not read: two hide the length of the text; the id counts in the first frame only. */
const CHAT_PADDING: ReadonlySet<string> = new Set(['obfuscation', 'p', 'id'])
const CHAT_CHOICE = 'choices.'
/**
 * Other members of a choice that say the same in every frame, or nothing. Any other one may add to the answer once in
 * each frame (annotations, log probabilities), or make the effect of a text depend on it (the name of a call).
 */
const CHAT_INERT: ReadonlySet<string> = new Set([
  'choices.0.index',
  'choices.0.finish_reason',
  'choices.0.native_finish_reason',
  'choices.0.delta.role',
  'choices.0.delta.content.0.type',
  'choices.0.delta.content.0.closed',
  'choices.0.delta.content.0.thinking.0.type',
  'choices.0.delta.reasoning_details.0.type',
  'choices.0.delta.reasoning_details.0.format',
  'choices.0.delta.reasoning_details.0.index',
  'choices.0.delta.reasoning_details.0.id',
  'choices.0.delta.tool_calls.0.index',
  'choices.0.delta.tool_calls.0.id',
  'choices.0.delta.tool_calls.0.type',
])

/**
 * A frame is a lesson once the frame before it has taught the same: the first one of an answer has its role, and the
 * first one of a part may open items.
 */
function learnChat(frame: DecodedFrame, before: Lesson | null): Lesson | null {
  const { event, data, last, written } = frame
  const delta = 'delta' in last ? last.delta : null
  if (typeof delta !== 'string' || delta === '') return null
  if (before !== null && confirms(frame, delta, before)) return { ...before, isProven: true }
  const places = placesIn(data)
  if (places === null) return null
  let found = false
  const slots = slotsIn(places, (path, place) => {
    if (!place.isString) return null
    if (CHAT_PADDING.has(path)) return 'padding'
    if (!CHAT_TEXTS.has(path) || !holds(data, place, delta)) return null
    const slot = found ? 'copy' : 'delta'
    found = true
    return slot
  })
  if (!found || ![...places].every(([path, place]) => isInert(path, place, data))) return null
  const template = templateOf(written, (path, place, json) =>
    CHAT_TEXTS.has(path) && holds(json, place, delta) ? 'delta' : null,
  )
  if (template === null) return null
  return { pattern: new FramePattern(event, data, slots, false), template, ahead: 0, isProven: false }
}

/** The member is a text, or has no effect in a frame that follows one of its kind. */
function isInert(path: string, { start, end, isString }: Place, json: string): boolean {
  if (!path.startsWith(CHAT_CHOICE) || CHAT_TEXTS.has(path) || CHAT_INERT.has(path)) return true
  return isString ? start === end : json.slice(start, end) === 'null'
}

/** The frame is of the kind of the lesson, and the dialect wrote the template around its text and nothing else. */
function confirms({ event, data, events, written }: DecodedFrame, delta: string, lesson: Lesson): boolean {
  const text = events === 1 ? lesson.pattern.deltaOf(event, data, 0) : null
  if (text === null || JSON.parse(`"${text}"`) !== delta) return false
  return lesson.template?.frame(JSON.stringify(delta).slice(1, -1)) === written
}

/** Members of a delta with its text, by the type of the delta. */
const MESSAGES_TEXTS: ReadonlyMap<unknown, string> = new Map([
  ['text_delta', 'text'],
  ['thinking_delta', 'thinking'],
  ['input_json_delta', 'partial_json'],
])

/**
 * One frame is proof enough: all its members are those of our frame, and the block that it belongs to stays open as
 * long as frames of this kind follow one another. The frame that begins a block makes more than one of ours and teaches
 * nothing. The provider hides the length of its texts by blanks before the last brace.
 */
function learnMessages({ event, data, events, last, written }: DecodedFrame): Lesson | null {
  const delta = 'delta' in last ? last.delta : null
  if (events !== 1 || typeof delta !== 'string' || !written.startsWith(`event: ${event}\n${DATA}`))
    return null
  const json = written.slice(written.indexOf(DATA) + DATA.length, -2)
  const places = json.includes('\n') ? null : placesIn(data)
  if (places === null) return null
  const frame = JSON.parse(data) as Members
  const ours = JSON.parse(json) as Members
  const member = MESSAGES_TEXTS.get((frame['delta'] as Members | null | undefined)?.['type'])
  if (member === undefined || !isSameDelta(frame, ours, member, delta)) return null
  const path = `delta.${member}`
  const text = slotsIn(places, each => (each === path ? 'delta' : null))
  const slots = [...text, { ...blanksAtEnd(data), isString: false, slot: 'blank' as const }]
  const pattern = new FramePattern(event, data, slots, false)
  if (frame['index'] === ours['index']) return { pattern, template: null, ahead: 0, isProven: true }
  const template = templateOf(written, each => (each === path ? 'delta' : null))
  return template === null ? null : { pattern, template, ahead: 0, isProven: true }
}

/** Both frames say the text, and nothing else but the number of the block. */
function isSameDelta(frame: Members, ours: Members, member: string, text: string): boolean {
  const told = frame['delta'] as Members
  const say = ours['delta'] as Members | undefined
  return (
    text !== '' &&
    Object.keys(frame).length === 3 &&
    Object.keys(told).length === 2 &&
    told[member] === text &&
    say?.[member] === text &&
    say['type'] === told['type'] &&
    frame['type'] === ours['type'] &&
    typeof frame['index'] === 'number'
  )
}

/** The blanks before the last brace; there may be none. */
function blanksAtEnd(data: string): { start: number; end: number } {
  const end = data.lastIndexOf('}')
  const start = data.slice(0, end).trimEnd().length
  return { start, end }
}

function holds(json: string, { start, end, isString }: Place, text: string): boolean {
  return isString && JSON.parse(json.slice(start - 1, end + 1)) === text
}

function slotsIn(
  places: ReadonlyMap<string, Place>,
  slotOf: (path: string, place: Place) => FrameSlot | null,
): readonly (Place & { readonly slot: FrameSlot })[] {
  return [...places].flatMap(([path, place]) => {
    const slot = slotOf(path, place)
    return slot === null ? [] : [{ ...place, slot }]
  })
}

/** The template of a frame of ours; null if it has no slot for the text. */
function templateOf(
  written: string,
  slotOf: (path: string, place: Place, json: string) => 'delta' | 'number' | null,
): FrameTemplate | null {
  const from = written.indexOf(DATA) + DATA.length
  const json = written.slice(from, -2)
  const places = placesIn(json)
  if (places === null) return null
  const slots = [...places].flatMap(([path, place]) => {
    const slot = slotOf(path, place, json)
    return slot === null ? [] : [{ ...place, slot }]
  })
  if (!slots.some(({ slot }) => slot === 'delta')) return null
  return new FrameTemplate(written.slice(0, from), json, slots)
}
