/**
 * Replies with values of wrong types anywhere, through decoder, answer and every dialect, whole and streamed. A reply
 * is told, or it fails as the provider's: nothing in it is a fault of the gateway.
 */
import fc from 'fast-check'
import t from 'tap'
import { GatewayError } from '../../src/base/errors.ts'
import { parseJson } from '../../src/base/json.ts'
import { FORMATS } from '../../src/formats/table.ts'
import type { StreamEvent } from '../../src/protocol/events.ts'
import { PROVIDER_RUN_TYPES } from '../../src/protocol/hosted-items.ts'
import type { FormatName } from '../../src/protocol/provider.ts'
import { eventsOfReply } from '../support/assemble-reply.ts'
import { readFrames } from '../support/decode-reply.ts'
import {
  chatCompletions,
  gemini,
  messages,
  parseResponsesRequest,
  responsesDialect,
} from '../support/dialects.ts'
import { goldens } from '../support/goldens.ts'
import { search } from '../support/property.ts'
import { finalOf } from './answers.ts'
import * as chatStream from './chat-stream.ts'
import * as geminiStream from './gemini-stream.ts'
import * as messagesStream from './messages-stream.ts'

type Json = Record<string, unknown>
type Frame = readonly [event: string, data: string]

const RESPONSES = parseResponsesRequest({ model: 'acme/recorded', input: 'hi' })

const DIALECTS = [
  { name: 'responses', dialect: responsesDialect, request: RESPONSES },
  { name: 'chat completions', dialect: chatCompletions, request: chatStream.REQUEST },
  { name: 'messages', dialect: messages, request: messagesStream.REQUEST },
  { name: 'gemini', dialect: gemini, request: geminiStream.REQUEST },
]

/** Values that a reader may trust: some break even a conversion to text. */
const JUNK: readonly unknown[] = [
  null,
  0,
  -1,
  1e9,
  '',
  'x',
  true,
  [],
  {},
  [null],
  [[]],
  ['x'],
  [{}],
  { toString: 1, valueOf: 1 },
  [{ toString: 1, valueOf: 1 }],
  'message',
  'reasoning',
  'function_call',
  'custom_tool_call',
  'web_search_call',
  'code_interpreter_call',
  'image_generation_call',
  'mcp_call',
  'file_search_call',
  'compaction',
  'gateway:advisor',
  'gateway:bash',
  'openrouter:web_search',
  'tool_search_output',
]

/** @throws Error where a dialect throws, or where the reply ends as a fault of the gateway */
function tell(format: FormatName, frames: readonly Frame[]): StreamEvent[] {
  const events = eventsOfReply(
    format,
    decoder => {
      for (const [event, data] of frames) decoder.frame(event, data)
    },
    error => {
      if (!(error instanceof GatewayError) || error.status === 500) throw error
    },
  )
  const response = finalOf(events)
  for (const { name, dialect, request } of DIALECTS) {
    try {
      const writer = dialect.frames(request)
      for (const event of events) writer.write(event)
      writer.end()
      if (response.status !== 'failed') JSON.stringify(dialect.body(response, request))
    } catch (error) {
      throw new Error(`${name} cannot tell the reply`, { cause: error })
    }
  }
  return events
}

/** Replaces a value somewhere in the document; a frame that is none stays as it is. */
function spoil(data: string, at: number, to: number): string {
  const document = parseJson(data)
  if (typeof document !== 'object' || document === null) return data
  const root = { data: document }
  const places: [holder: Json, key: string][] = []
  const visit = (holder: Json): void => {
    for (const [key, value] of Object.entries(holder)) {
      places.push([holder, key])
      if (typeof value === 'object' && value !== null) visit(value as Json)
    }
  }
  visit(root.data as Json)
  const [holder, key] = places[at % Math.max(1, places.length)] ?? [root as Json, 'data']
  holder[key] = structuredClone(JUNK[to % JUNK.length])
  return JSON.stringify(root.data)
}

function framesOf(format: FormatName, bytes: Buffer, streamed: boolean): readonly Frame[] {
  if (!streamed) return [['', bytes.toString('utf8')]]
  const frames: Frame[] = []
  const decoder = {
    frame: (event: string, data: string) => void frames.push([event, data]),
    withheld: 0,
    end: () => undefined,
  }
  readFrames(FORMATS[format], decoder, [bytes])
  return frames
}

const damage = fc.record({
  reply: fc.nat(),
  steps: fc.array(fc.record({ frame: fc.nat(), at: fc.nat(), to: fc.nat() }), { minLength: 1, maxLength: 4 }),
})

for (const format of Object.keys(FORMATS) as FormatName[]) {
  const replies = goldens(format).map(({ bytes, streamed }) => framesOf(format, bytes, streamed))
  t.test(`${format}: a damaged reply is never a fault of the gateway`, async () => {
    fc.assert(
      fc.property(damage, ({ reply, steps }) => {
        const frames = [...(replies[reply % replies.length] ?? [])]
        for (const { frame, at, to } of steps) {
          const index = frame % frames.length
          const [event, data] = frames[index] as Frame
          frames[index] = [event, spoil(data, at, to)]
        }
        tell(format, frames)
      }),
      search(1500),
    )
  })
}

/** Error bodies with every member that a format reads. */
const ERRORS: readonly Json[] = [
  {
    error: {
      code: 429,
      status: 'RESOURCE_EXHAUSTED',
      type: 'rate_limit_error',
      param: 'input',
      message: 'Too many',
      details: [
        { '@type': 'type.googleapis.com/google.rpc.RetryInfo', retryDelay: '3s' },
        { '@type': 'type.googleapis.com/google.rpc.QuotaFailure', violations: [{ quotaId: 'PerDay' }] },
      ],
      metadata: { raw: '{"error":{"message":"x"}}', provider_name: 'acme' },
    },
    request_id: 'req_1',
  },
  { type: 'error', error: { type: 'overloaded_error', message: 'Overloaded' } },
  { message: 'Too many', __type: 'ThrottlingException', code: 'x' },
  { detail: [{ loc: ['body', 'model'], msg: 'required', type: 'missing' }], object: 'error' },
]

t.test('an error body with values of wrong types is an error of the provider', async () => {
  const places = fc.record({
    body: fc.nat(),
    at: fc.nat(),
    to: fc.nat(),
    status: fc.constantFrom(400, 429, 500),
  })
  fc.assert(
    fc.property(places, ({ body, at, to, status }) => {
      const text = spoil(JSON.stringify(ERRORS[body % ERRORS.length]), at, to)
      for (const format of Object.values(FORMATS)) {
        const error = format.failure(status, text)
        if (!(error instanceof GatewayError) || error.status === 500) throw new Error('not of the provider')
      }
    }),
    search(2000),
  )
})

/** Types whose items the dialects read, and a type that nobody knows. */
const ITEM_TYPES = [
  'message',
  'reasoning',
  'function_call',
  'custom_tool_call',
  ...PROVIDER_RUN_TYPES,
  'compaction',
  'tool_search_call',
  'shell_call_output',
  'gateway:advisor',
  'gateway:image_generation',
  'openrouter:web_search',
  'gateway:web_fetch',
  'gateway:code_interpreter',
  'unknown_call',
]
const WRONG = [null, 0, 'x', [null], { toString: 1, valueOf: 1 }, [{ toString: 1, valueOf: 1 }]]
const ITEM_FIELDS = [
  'id',
  'role',
  'status',
  'phase',
  'content',
  'summary',
  'format',
  'encrypted_content',
  'signature',
  'call_id',
  'name',
  'arguments',
  'input',
  'action',
  'outputs',
  'output',
  'result',
  'results',
  'queries',
  'error',
  'code',
  'container_id',
  'server_label',
  'tools',
  'url',
  'imageUrl',
  'advice',
  'sources',
  'namespace',
  'detail_id',
]

t.test('an item of any type with any field of a wrong type is told, or fails as the provider', async () => {
  for (const type of ITEM_TYPES) {
    for (const field of ITEM_FIELDS) {
      for (const value of WRONG) {
        const item = { id: 'it_1', type, [field]: value }
        const response = { id: 'resp_1', object: 'response', status: 'completed', model: 'm', output: [item] }
        const event = (name: string, fields: Json): Frame => [name, JSON.stringify({ type: name, ...fields })]
        tell('openai-responses', [
          event('response.output_item.added', { output_index: 0, item }),
          event('response.output_item.done', { output_index: 0, item }),
          event('response.completed', { response }),
        ])
        tell('openai-responses', [['', JSON.stringify(response)]])
      }
    }
  }
})

t.test(
  'a message of another role than the assistant ends the reply as a failure of the provider',
  async t => {
    for (const role of ['user', 'system', '', [[]], 1]) {
      const item = { type: 'message', id: 'm1', role, content: 'x' }
      const response = { object: 'response', status: 'completed', output: [item] }
      const added = { type: 'response.output_item.added', output_index: 0, item }
      for (const frame of [response, added]) {
        const events = tell('openai-responses', [['', JSON.stringify(frame)]])
        t.match(finalOf(events), { status: 'failed', error_type: 'provider_unavailable' })
      }
    }
  },
)
