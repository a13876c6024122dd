/**
 * Habits of real providers that their references do not mention, with the result that a client must see. Every row
 * comes from public reports about providers, local servers and relays. The scripted provider replays them. Pure.
 */
import { FUNCTION_NAME } from './dialects.ts'

type Fields = Readonly<Record<string, unknown>>

/** One event of a stream: fields to which the provider adds its envelope, or the complete line. */
type HabitEvent = Fields | string

/** The provider's output in one wire format. */
export interface HabitReply {
  readonly events?: readonly HabitEvent[]
  /** A reply that is not streamed. */
  readonly document?: Fields
  /** The connection stays open after the last event. */
  readonly staysOpen?: true
}

/** The result that the client must see; absent fields are not checked. */
interface ExpectedResult {
  readonly text?: string
  /** The arguments of the calls, in their order. */
  readonly calls?: readonly Fields[]
  readonly end: 'ended' | 'failed'
  /** Input and output tokens. */
  readonly usage?: readonly [number, number]
}

export interface Habit {
  readonly name: string
  readonly asserts: string
  readonly matters: string
  readonly chat?: HabitReply
  readonly responses?: HabitReply
  readonly expected: ExpectedResult
}

const WRONG_CALL_HARM = 'the tool runs with the wrong arguments, or the call cannot be parsed'
const FALSE_END_HARM = 'a client takes a broken answer for a finished one'
const WRONG_USAGE_HARM = 'callers are billed, and set limits, by these numbers'
/** More than a mebibyte, but small enough to read an answer that repeats it five times. */
const BIG_CHARS = 1_300_000
const BIG_TEXT = 'x'.repeat(BIG_CHARS)

const USAGE = { prompt_tokens: 7, completion_tokens: 5, total_tokens: 12 } as const
const USAGE_TOKENS = [7, 5] as const
const OPENING_CHUNK = delta({ role: 'assistant', content: '' })
const CLOSING_CHUNKS = [{ choices: [], usage: USAGE }, 'data: [DONE]'] as const
const OSLO = { location: 'Oslo' } as const
const ROME = { location: 'Rome' } as const

function delta(fields: Fields | null, finish: string | null = null): Fields {
  return { choices: [{ index: 0, delta: fields, finish_reason: finish }] }
}

/** Pieces of calls, one event each. */
function callChunks(...calls: readonly Fields[]): readonly Fields[] {
  return calls.map(call => delta({ tool_calls: [call] }))
}

/** The first piece of a call of the function. */
function callStart(id: string, text: unknown, index?: number): Fields {
  return {
    ...(index === undefined ? {} : { index }),
    id,
    type: 'function',
    function: { name: FUNCTION_NAME, arguments: text },
  }
}

/** A whole stream of calls. */
function callStream(...calls: readonly Fields[]): HabitReply {
  return { events: [OPENING_CHUNK, ...callChunks(...calls), delta({}, 'tool_calls'), ...CLOSING_CHUNKS] }
}

/** A whole stream of text. */
function textStream(...events: readonly HabitEvent[]): HabitReply {
  return { events: [OPENING_CHUNK, ...events, delta({}, 'stop'), ...CLOSING_CHUNKS] }
}

function completion(message: Fields, finish: string | null): HabitReply {
  const choice = { index: 0, message: { role: 'assistant', ...message }, finish_reason: finish }
  return { document: { choices: [choice], usage: USAGE } }
}

const RESPONSES_USAGE = { input_tokens: 7, output_tokens: 5, total_tokens: 12 } as const

function callItem(text: string, status = 'completed'): Fields {
  return {
    type: 'function_call',
    id: 'fc_1',
    call_id: 'call_1',
    name: FUNCTION_NAME,
    arguments: text,
    status,
  }
}

function messageItem(text: string): Fields {
  const content = [{ type: 'output_text', text, annotations: [] }]
  return { type: 'message', id: 'msg_1', role: 'assistant', status: 'completed', content }
}

/** A Responses stream of one item. */
function responsesStream(item: Fields, added: Fields, ...events: readonly Fields[]): HabitReply {
  return {
    events: [
      { type: 'response.created', response: { status: 'in_progress', output: [] } },
      { type: 'response.output_item.added', output_index: 0, item: added },
      ...events,
      { type: 'response.output_item.done', output_index: 0, item },
      {
        type: 'response.completed',
        response: { status: 'completed', output: [item], usage: RESPONSES_USAGE },
      },
    ],
  }
}

function argumentsEvent(kind: 'delta' | 'done', text: string): Fields {
  const field = kind === 'delta' ? 'delta' : 'arguments'
  return { type: `response.function_call_arguments.${kind}`, item_id: 'fc_1', output_index: 0, [field]: text }
}

export const HABITS: readonly Habit[] = [
  {
    name: 'calls-without-index',
    asserts: 'two calls whose pieces have ids and no index stay two calls',
    matters: WRONG_CALL_HARM,
    chat: callStream(callStart('call_a', '{"location":"Oslo"}'), callStart('call_b', '{"location":"Rome"}')),
    expected: { calls: [OSLO, ROME], end: 'ended' },
  },
  {
    name: 'call-opened-with-null',
    asserts: 'a call that opens with null for its arguments gets the arguments that follow',
    matters: WRONG_CALL_HARM,
    chat: callStream(callStart('call_a', null, 0), {
      index: 0,
      function: { arguments: '{"location":"Oslo"}' },
    }),
    expected: { calls: [OSLO], end: 'ended' },
  },
  {
    name: 'call-opened-with-braces',
    asserts: 'a call that begins with {} as a placeholder gets only the arguments that follow',
    matters: WRONG_CALL_HARM,
    chat: callStream(callStart('call_a', '{}', 0), {
      index: 0,
      function: { arguments: '{"location":"Oslo"}' },
    }),
    expected: { calls: [OSLO], end: 'ended' },
  },
  {
    name: 'call-pieces-without-id',
    asserts: 'pieces of a call whose id and name are null or empty continue it',
    matters: WRONG_CALL_HARM,
    chat: callStream(
      callStart('call_a', '{"loc', 0),
      { index: 0, id: null, type: 'function', function: { name: null, arguments: 'ation":' } },
      { index: 0, id: '', type: 'function', function: { name: '', arguments: '"Oslo"}' } },
    ),
    expected: { calls: [OSLO], end: 'ended' },
  },
  {
    name: 'call-pieces-new-ids',
    asserts: 'pieces of one index are one call, even if each has an id of its own',
    matters: WRONG_CALL_HARM,
    chat: callStream(callStart('call_a', '{"location":', 0), {
      index: 0,
      id: 'call_b',
      function: { arguments: '"Oslo"}' },
    }),
    expected: { calls: [OSLO], end: 'ended' },
  },
  {
    name: 'calls-of-one-id',
    asserts: 'two calls that a whole reply gives the same id stay two calls, with ids that differ',
    matters: WRONG_CALL_HARM,
    chat: completion(
      {
        content: null,
        tool_calls: [callStart('call_0', '{"location":"Oslo"}'), callStart('call_0', '{"location":"Rome"}')],
      },
      'tool_calls',
    ),
    expected: { calls: [OSLO, ROME], end: 'ended' },
  },
  {
    name: 'arguments-as-object',
    asserts: 'arguments that the provider sends as an object reach the client as the text of it',
    matters: WRONG_CALL_HARM,
    chat: completion({ content: null, tool_calls: [callStart('call_a', OSLO)] }, 'tool_calls'),
    expected: { calls: [OSLO], end: 'ended' },
  },
  {
    name: 'arguments-at-the-end',
    asserts:
      'arguments that the provider sends only with the last events of a call are passed on complete, once',
    matters: WRONG_CALL_HARM,
    responses: responsesStream(
      callItem('{"location":"Oslo"}'),
      callItem('', 'in_progress'),
      argumentsEvent('done', '{"location":"Oslo"}'),
    ),
    expected: { calls: [OSLO], end: 'ended' },
  },
  {
    name: 'arguments-by-halves',
    asserts:
      'arguments whose second half the provider sends only with the finished call are passed on complete, once',
    matters: WRONG_CALL_HARM,
    responses: responsesStream(
      callItem('{"location":"Oslo"}'),
      callItem('', 'in_progress'),
      argumentsEvent('delta', '{"location":'),
    ),
    expected: { calls: [OSLO], end: 'ended' },
  },
  {
    name: 'text-at-the-end',
    asserts: 'text that the provider sends only with the finished message is passed on, once',
    matters: 'the answer is empty',
    responses: responsesStream(messageItem('Hello'), {
      ...messageItem(''),
      content: [],
      status: 'in_progress',
    }),
    expected: { text: 'Hello', end: 'ended' },
  },
  {
    name: 'content-of-parts',
    asserts: 'content that is a list of text parts reaches the client as text',
    matters: 'the answer is empty',
    chat: completion(
      {
        content: [
          { type: 'text', text: 'Hel' },
          { type: 'text', text: 'lo' },
        ],
      },
      'stop',
    ),
    expected: { text: 'Hello', end: 'ended' },
  },
  {
    name: 'empty-chunks',
    asserts: 'chunks without choices, and choices without a delta, change nothing',
    matters: 'the stream breaks off in the middle of an answer',
    chat: textStream(
      { choices: [] },
      delta({ content: 'Hel' }),
      delta(null),
      { choices: null },
      delta({ content: 'lo' }),
    ),
    expected: { text: 'Hello', end: 'ended', usage: USAGE_TOKENS },
  },
  {
    name: 'no-space-after-data',
    asserts: 'events without a space after "data:" are read',
    matters: 'the answer is empty',
    chat: {
      events: [
        'data:{"choices":[{"index":0,"delta":{"role":"assistant","content":"Hello"}}]}',
        'data:{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}',
        `data:${JSON.stringify({ choices: [], usage: USAGE })}`,
        'data:[DONE]',
      ],
    },
    expected: { text: 'Hello', end: 'ended', usage: USAGE_TOKENS },
  },
  {
    name: 'split-character',
    asserts: 'a character that two events share arrives whole',
    matters: 'the text has broken characters, which some parsers refuse',
    chat: textStream(
      'data: {"choices":[{"index":0,"delta":{"content":"a\\ud83d"}}]}',
      'data: {"choices":[{"index":0,"delta":{"content":"\\ude42b"}}]}',
    ),
    expected: { text: 'a\u{1f642}b', end: 'ended' },
  },
  {
    name: 'big-event',
    asserts: 'an event of more than a mebibyte is passed on unchanged',
    matters: 'pictures, and the content of files, arrive in one event',
    chat: textStream(delta({ content: BIG_TEXT })),
    responses: responsesStream(
      messageItem(BIG_TEXT),
      { ...messageItem(''), content: [], status: 'in_progress' },
      {
        type: 'response.output_text.delta',
        item_id: 'msg_1',
        output_index: 0,
        content_index: 0,
        delta: BIG_TEXT,
      },
    ),
    expected: { text: BIG_TEXT, end: 'ended' },
  },
  {
    name: 'finish-in-capitals',
    asserts: 'a finish_reason in capital letters ends the answer properly',
    matters: 'clients wait, retry, or report a failure that did not happen',
    chat: { events: [OPENING_CHUNK, delta({ content: 'Hello' }), delta({}, 'STOP'), ...CLOSING_CHUNKS] },
    expected: { text: 'Hello', end: 'ended', usage: USAGE_TOKENS },
  },
  {
    name: 'whole-without-finish',
    asserts: 'a whole reply with text and no finish_reason is an answer',
    matters: 'an answer that was paid for is thrown away',
    chat: completion({ content: 'Hello' }, null),
    expected: { text: 'Hello', end: 'ended', usage: USAGE_TOKENS },
  },
  {
    name: 'end-without-done',
    asserts: 'a stream with its finish_reason and usage is finished without [DONE]',
    matters: 'an answer that was paid for is reported as a failure',
    chat: {
      events: [OPENING_CHUNK, delta({ content: 'Hello' }), delta({}, 'stop'), { choices: [], usage: USAGE }],
    },
    expected: { text: 'Hello', end: 'ended', usage: USAGE_TOKENS },
  },
  {
    name: 'finished-and-silent',
    asserts: 'a finished answer ends even if the provider keeps the connection open',
    matters: 'clients wait for minutes for nothing',
    chat: {
      events: [OPENING_CHUNK, delta({ content: 'Hello' }), delta({}, 'stop'), { choices: [], usage: USAGE }],
      staysOpen: true,
    },
    expected: { text: 'Hello', end: 'ended', usage: USAGE_TOKENS },
  },
  {
    name: 'finish-of-failure',
    asserts: 'a finish_reason that says the generation failed is not a normal end',
    matters: FALSE_END_HARM,
    chat: { events: [OPENING_CHUNK, delta({ content: 'Hel' }), delta({}, 'error'), ...CLOSING_CHUNKS] },
    expected: { end: 'failed' },
  },
  {
    name: 'end-without-finish',
    asserts: 'a stream that has neither finish_reason nor usage is not a normal end, even with [DONE]',
    matters: FALSE_END_HARM,
    chat: { events: [OPENING_CHUNK, delta({ content: 'Hel' }), 'data: [DONE]'] },
    expected: { end: 'failed' },
  },
  {
    name: 'error-in-a-stream-of-200',
    asserts: 'an error as the first event of a stream with status 200 is a failure',
    matters: 'the client gets an empty answer, and does not retry',
    chat: {
      events: ['data: {"error":{"message":"overloaded","type":"server_error","code":503}}', 'data: [DONE]'],
    },
    expected: { end: 'failed' },
  },
  {
    name: 'stream-without-events',
    asserts: 'a stream with status 200 and no event at all is a failure',
    matters: 'the client gets an empty answer, and does not retry',
    chat: { events: [] },
    responses: { events: [] },
    expected: { end: 'failed' },
  },
  {
    name: 'usage-in-a-choice',
    asserts: 'usage that stands in the choice is reported',
    matters: WRONG_USAGE_HARM,
    chat: {
      events: [
        OPENING_CHUNK,
        delta({ content: 'Hello' }),
        { choices: [{ index: 0, delta: {}, finish_reason: 'stop', usage: USAGE }] },
        'data: [DONE]',
      ],
    },
    expected: { text: 'Hello', end: 'ended', usage: USAGE_TOKENS },
  },
  {
    name: 'late-zero-usage',
    asserts: 'zero counts at the end of a stream do not replace earlier counts',
    matters: WRONG_USAGE_HARM,
    chat: {
      events: [
        OPENING_CHUNK,
        delta({ content: 'Hello' }),
        { ...delta({}, 'stop'), usage: USAGE },
        { choices: [], usage: { prompt_tokens: 0, completion_tokens: 0, total_tokens: 0 } },
        'data: [DONE]',
      ],
    },
    expected: { text: 'Hello', end: 'ended', usage: USAGE_TOKENS },
  },
  {
    name: 'usage-in-every-chunk',
    asserts: 'if counts grow from chunk to chunk, the last ones are reported',
    matters: WRONG_USAGE_HARM,
    chat: {
      events: [
        OPENING_CHUNK,
        { ...delta({ content: 'Hel' }), usage: { prompt_tokens: 7, completion_tokens: 1, total_tokens: 8 } },
        { ...delta({ content: 'lo' }), usage: { prompt_tokens: 7, completion_tokens: 2, total_tokens: 9 } },
        { ...delta({}, 'stop'), usage: USAGE },
        'data: [DONE]',
      ],
    },
    expected: { text: 'Hello', end: 'ended', usage: USAGE_TOKENS },
  },
]
