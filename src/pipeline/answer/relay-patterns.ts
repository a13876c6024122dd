/**
 * Learned relay patterns: which frames of a provider can be relayed to a dialect's clients, and which frames are sent
 * instead. Provider and client may use the same API or different ones. Pure.
 */
import type { StreamEvent } from '../../protocol/events.ts'
import type { DialectName } from '../../protocol/request.ts'
import { FramePattern, type FrameSlot, type JsonSpan, spansIn } from '../../providers/upstream/scan.ts'
import { type DecodedFrame, FrameTemplate, type LearnFrame, type Lesson } from './relay.ts'

/** Dialects with event streams that are relayed. */
type StreamDialect = Exclude<DialectName, 'gemini' | 'embeddings'>

/**
 * Returns the function that learns from frames of a provider with the API `from`, for clients of the API `to`; null if
 * nothing can be relayed.
 */
export function lessonsFor(from: DialectName, to: DialectName): LearnFrame | null {
  return LESSONS[from][to] ?? null
}

type Members = Readonly<Record<string, unknown>>

const DATA_PREFIX = 'data: '
const NUMBER_FIELD = 'sequence_number'

const RESPONSES_SLOTS: ReadonlyMap<string, FrameSlot> = new Map([
  ['sequence_number', 'number'],
  ['delta', 'delta'],
  ['obfuscation', 'padding'],
])

/**
 * A single frame is proof enough: all its members are those of the event, so the next frame can differ only in its
 * slots.
 */
function learnResponses({ event, data, last, ourFrame }: DecodedFrame): Lesson | null {
  const spans = last.type === event ? spansIn(data) : null
  if (spans === null) return null
  const frame = JSON.parse(data) as Members
  const { sequence_number: number, delta } = frame
  if (typeof number !== 'number' || typeof delta !== 'string' || !hasMembersOf(frame, last)) return null
  const slots = slotsIn(spans, path => RESPONSES_SLOTS.get(path) ?? null)
  const pattern = new FramePattern(event, data, slots, true)
  const ahead = number - last.sequence_number
  if (ahead === 0) return { pattern, template: null, ahead, isProven: true }
  // The provider numbers events that we leave out, or its numbers begin with 1.
  const template = templateOf(ourFrame, path =>
    path === 'delta' ? 'delta' : path === 'sequence_number' ? 'number' : null,
  )
  return template === null ? null : { pattern, template, ahead, isProven: true }
}

/** True if the frame has the members of the event, except for padding and the number. */
function hasMembersOf({ obfuscation, ...frame }: Members, event: StreamEvent): boolean {
  const keys = Object.keys(frame)
  return (
    (obfuscation === undefined || typeof obfuscation === 'string') &&
    keys.length === Object.keys(event).length &&
    keys.every(key => {
      const value = frame[key]
      const ownValue: unknown = Object.hasOwn(event, key) ? Reflect.get(event, key) : undefined
      if (key === 'sequence_number') return true
      if (Array.isArray(value)) return value.length === 0 && Array.isArray(ownValue) && ownValue.length === 0
      return (typeof value === 'string' || typeof value === 'number') && ownValue === value
    })
  )
}

/** The parts of a provider's delta frame, by the provider's API. */
interface Source {
  /** Members that may hold the text. */
  readonly texts: ReadonlySet<string>
  /** Members that differ from frame to frame but carry no content. */
  readonly slots: ReadonlyMap<string, 'number' | 'padding'>
  /**
   * True if the member is the same in every frame of a kind, or carries no content. Frames with other members are
   * decoded.
   */
  isInert(path: string, span: JsonSpan, json: string): boolean
  /** True if the provider hides the length of its texts with blanks before the last brace. */
  readonly hasBlanks: boolean
}

/** Members that may hold the text, in chunks of providers and in ours. */
const CHAT_TEXTS: ReadonlySet<string> = new Set([
  'choices.0.delta.content',
  'choices.0.delta.content.0.thinking.0.text',
  'choices.0.delta.reasoning_content',
  'choices.0.delta.reasoning',
  'choices.0.delta.reasoning_details.0.text',
  'choices.0.delta.reasoning_details.0.summary',
  'choices.0.delta.tool_calls.0.function.arguments',
])
const CHAT_CHOICE = 'choices.'
/**
 * Other members of a choice that are the same in every frame, or carry no content. Any other member may add to the
 * answer once in each frame (annotations, log probabilities), or change the effect of a text (the name of a call).
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
const RESPONSES_INERT: ReadonlySet<string> = new Set([
  'type',
  'item_id',
  'output_index',
  'content_index',
  'summary_index',
])
const MESSAGES_TEXTS: ReadonlySet<string> = new Set(['delta.text', 'delta.thinking', 'delta.partial_json'])
const MESSAGES_INERT: ReadonlySet<string> = new Set(['type', 'index', 'delta.type'])

const SOURCES: Readonly<Record<StreamDialect, Source>> = {
  responses: {
    texts: new Set(['delta']),
    slots: new Map([
      ['sequence_number', 'number'],
      ['obfuscation', 'padding'],
    ]),
    isInert: path => RESPONSES_INERT.has(path),
    hasBlanks: false,
  },
  'chat-completions': {
    texts: CHAT_TEXTS,
    // Two members hide the length of the text; the id matters only in the first frame.
    slots: new Map([
      ['obfuscation', 'padding'],
      ['p', 'padding'],
      ['id', 'padding'],
    ]),
    isInert: (path, { start, end, isString }, json) =>
      !path.startsWith(CHAT_CHOICE) ||
      CHAT_INERT.has(path) ||
      (isString ? start === end : json.slice(start, end) === 'null'),
    hasBlanks: false,
  },
  messages: {
    texts: MESSAGES_TEXTS,
    slots: new Map(),
    isInert: path => MESSAGES_INERT.has(path),
    hasBlanks: true,
  },
}

/** Members of our frames that differ from frame to frame. */
const VARIABLE_MEMBERS: Readonly<Record<StreamDialect, ReadonlySet<string>>> = {
  responses: new Set(['delta', NUMBER_FIELD]),
  'chat-completions': CHAT_TEXTS,
  messages: MESSAGES_TEXTS,
}

/**
 * A frame is a lesson once the previous frame has taught the same: the first frame of an answer may contain its role,
 * and the first frame of a part may open items.
 */
function learnPair(
  source: Source,
  variableMembers: ReadonlySet<string>,
  frame: DecodedFrame,
  before: Lesson | null,
): Lesson | null {
  const { event, data, last } = frame
  const delta = 'delta' in last ? last.delta : null
  if (typeof delta !== 'string' || delta === '') return null
  if (before !== null && confirms(frame, delta, before)) return { ...before, isProven: true }
  const spans = spansIn(data)
  if (spans === null) return null
  let hasFound = false
  let ahead = 0
  const slots: (JsonSpan & { readonly slot: FrameSlot })[] = []
  for (const [path, span] of spans) {
    const slot = source.slots.get(path)
    if (slot !== undefined && span.isString === (slot === 'padding')) {
      if (slot === 'number') ahead = Number(data.slice(span.start, span.end)) - last.sequence_number
      slots.push({ ...span, slot })
    } else if (source.texts.has(path) && containsText(data, span, delta)) {
      slots.push({ ...span, slot: hasFound ? 'copy' : 'delta' })
      hasFound = true
    } else if (!source.texts.has(path) && !source.isInert(path, span, data)) return null
  }
  if (!hasFound || !Number.isSafeInteger(ahead)) return null
  if (source.hasBlanks) slots.push({ ...blanksAtEnd(data), isString: false, slot: 'blank' })
  const template = templateOf(frame.ourFrame, (path, span, json) => {
    if (!variableMembers.has(path)) return null
    if (path === NUMBER_FIELD) return 'number'
    return containsText(json, span, delta) ? 'delta' : null
  })
  if (template === null) return null
  return { pattern: new FramePattern(event, data, slots, false), template, ahead, isProven: false }
}

/** True if the frame is of the lesson's kind, and the dialect wrote only the template around its text. */
function confirms(
  { event, data, events, last, ourFrame }: DecodedFrame,
  delta: string,
  lesson: Lesson,
): boolean {
  const number = last.sequence_number
  const text = events === 1 ? lesson.pattern.deltaOf(event, data, number + lesson.ahead) : null
  if (text === null || JSON.parse(`"${text}"`) !== delta) return false
  return lesson.template?.frame(JSON.stringify(delta).slice(1, -1), number) === ourFrame
}

/** Members of a delta with its text, by the type of the delta. */
const TEXT_MEMBERS: ReadonlyMap<unknown, string> = new Map([
  ['text_delta', 'text'],
  ['thinking_delta', 'thinking'],
  ['input_json_delta', 'partial_json'],
])

/**
 * One frame is proof enough: all its members are those of our frame, and the block that it belongs to stays open as
 * long as frames of this kind follow one another. The frame that begins a block produces more than one of ours and
 * teaches nothing. The provider hides the length of its texts with blanks before the last brace.
 */
function learnMessages({ event, data, events, last, ourFrame }: DecodedFrame): Lesson | null {
  const delta = 'delta' in last ? last.delta : null
  if (events !== 1 || typeof delta !== 'string' || !ourFrame.startsWith(`event: ${event}\n${DATA_PREFIX}`))
    return null
  const json = ourFrame.slice(ourFrame.indexOf(DATA_PREFIX) + DATA_PREFIX.length, -2)
  const spans = json.includes('\n') ? null : spansIn(data)
  if (spans === null) return null
  const frame = JSON.parse(data) as Members
  const ownFrame = JSON.parse(json) as Members
  const member = TEXT_MEMBERS.get((frame['delta'] as Members | null | undefined)?.['type'])
  if (member === undefined || !isSameDelta(frame, ownFrame, member, delta)) return null
  const path = `delta.${member}`
  const text = slotsIn(spans, memberPath => (memberPath === path ? 'delta' : null))
  const slots = [...text, { ...blanksAtEnd(data), isString: false, slot: 'blank' as const }]
  const pattern = new FramePattern(event, data, slots, false)
  if (frame['index'] === ownFrame['index']) return { pattern, template: null, ahead: 0, isProven: true }
  const template = templateOf(ourFrame, memberPath => (memberPath === path ? 'delta' : null))
  return template === null ? null : { pattern, template, ahead: 0, isProven: true }
}

/** True if both frames contain the text and, apart from the number of the block, nothing else. */
function isSameDelta(frame: Members, ownFrame: Members, member: string, text: string): boolean {
  const theirDelta = frame['delta'] as Members
  const ourDelta = ownFrame['delta'] as Members | undefined
  return (
    text !== '' &&
    Object.keys(frame).length === 3 &&
    Object.keys(theirDelta).length === 2 &&
    theirDelta[member] === text &&
    ourDelta?.[member] === text &&
    ourDelta['type'] === theirDelta['type'] &&
    frame['type'] === ownFrame['type'] &&
    typeof frame['index'] === 'number'
  )
}

/** The blanks before the last brace; there may be none. */
function blanksAtEnd(data: string): { start: number; end: number } {
  const end = data.lastIndexOf('}')
  const start = data.slice(0, end).trimEnd().length
  return { start, end }
}

function containsText(json: string, { start, end, isString }: JsonSpan, text: string): boolean {
  return isString && JSON.parse(json.slice(start - 1, end + 1)) === text
}

function slotsIn(
  spans: ReadonlyMap<string, JsonSpan>,
  slotOf: (path: string, span: JsonSpan) => FrameSlot | null,
): readonly (JsonSpan & { readonly slot: FrameSlot })[] {
  return [...spans].flatMap(([path, span]) => {
    const slot = slotOf(path, span)
    return slot === null ? [] : [{ ...span, slot }]
  })
}

/** The template of a frame of the gateway; null if it has no slot for the text. */
function templateOf(
  frame: string,
  slotOf: (path: string, span: JsonSpan, json: string) => 'delta' | 'number' | null,
): FrameTemplate | null {
  const from = frame.indexOf(DATA_PREFIX) + DATA_PREFIX.length
  const json = frame.slice(from, -2)
  const spans = spansIn(json)
  if (spans === null) return null
  const slots = [...spans].flatMap(([path, span]) => {
    const slot = slotOf(path, span, json)
    return slot === null ? [] : [{ ...span, slot }]
  })
  if (!slots.some(({ slot }) => slot === 'delta')) return null
  return new FrameTemplate(frame.slice(0, from), json, slots)
}

function lessonsFrom(from: StreamDialect): Readonly<Record<StreamDialect, LearnFrame>> {
  const to =
    (variableMembers: ReadonlySet<string>): LearnFrame =>
    (frame, before) =>
      learnPair(SOURCES[from], variableMembers, frame, before)
  return {
    responses: to(VARIABLE_MEMBERS.responses),
    'chat-completions': to(VARIABLE_MEMBERS['chat-completions']),
    messages: to(VARIABLE_MEMBERS.messages),
  }
}

type Lessons = Readonly<Partial<Record<DialectName, LearnFrame>>>

/** Keyed by the dialect of the provider, then by the dialect of the client. */
const LESSONS: Readonly<Record<DialectName, Lessons>> = {
  responses: { ...lessonsFrom('responses'), responses: learnResponses },
  'chat-completions': lessonsFrom('chat-completions'),
  messages: { ...lessonsFrom('messages'), messages: learnMessages },
  // A chunk of Google's API has its own usage and end, so no chunk is like the next.
  gemini: {},
  // Embeddings are never streamed.
  embeddings: {},
}
