/**
 * A provider that fails after its head, at clients of every dialect: before the first content the next endpoint is
 * asked, and without one the failure has its own status; after it nobody else is asked.
 */
import { createServer, type ServerResponse } from 'node:http'
import t from 'tap'
import type { FormatName } from '../../src/protocol/provider.ts'
import { awsMessage } from '../support/aws-events.ts'
import { listening } from '../support/listening.ts'
import { startWorld } from '../support/world.ts'

type Format = Exclude<FormatName, `${string}embeddings`>
const FORMATS: readonly Format[] = [
  'openai-responses',
  'openai-chat',
  'anthropic-messages',
  'google-gemini',
  'bedrock-converse',
]

const event = (data: object, name?: string): string =>
  `${name === undefined ? '' : `event: ${name}\n`}data: ${JSON.stringify(data)}\n\n`

const RESPONSE = { id: 'resp_1', object: 'response', model: 'm', status: 'in_progress', output: [] }
const THOUGHT = { type: 'reasoning', id: 'rs_1', summary: [] }
const CHUNK = { id: 'c', object: 'chat.completion.chunk', model: 'm' }
const MESSAGE = { id: 'msg_1', type: 'message', role: 'assistant', model: 'm', content: [] }

/** Signs of life and the opening of a reply, which say nothing yet. */
const OPENING: Readonly<Record<Format, string | Buffer>> = {
  'openai-responses': `: ok\n\n${event({ type: 'response.created', sequence_number: 0, response: RESPONSE }, 'response.created')}`,
  'openai-chat': `: ok\n\n${event({ ...CHUNK, choices: [{ index: 0, delta: { role: 'assistant', content: '' } }] })}`,
  'anthropic-messages': `: ok\n\n${event({ type: 'message_start', message: { ...MESSAGE, usage: { input_tokens: 3 } } }, 'message_start')}${event({ type: 'ping' }, 'ping')}`,
  'google-gemini': ': ok\n\n',
  'bedrock-converse': awsMessage('messageStart', '{"role":"assistant"}'),
}

/** An overload that is told inside a reply with status 200. */
const OVERLOADED: Readonly<Record<Format, string | Buffer>> = {
  'openai-responses': event(
    { type: 'error', sequence_number: 1, code: 'server_is_overloaded', message: 'Overloaded', param: null },
    'error',
  ),
  'openai-chat': event({ error: { message: 'Overloaded', type: 'overloaded_error', code: null } }),
  'anthropic-messages': event(
    { type: 'error', error: { type: 'overloaded_error', message: 'Overloaded' } },
    'error',
  ),
  'google-gemini': event({ error: { code: 503, message: 'Overloaded', status: 'UNAVAILABLE' } }),
  'bedrock-converse': awsMessage('exception:serviceUnavailableException', '{"message":"Overloaded"}'),
}

/** A thought, which is content. */
const THINKING: Readonly<Record<Format, string | Buffer>> = {
  'openai-responses': [
    { type: 'response.output_item.added', output_index: 0, item: THOUGHT },
    {
      type: 'response.reasoning_summary_part.added',
      item_id: 'rs_1',
      output_index: 0,
      summary_index: 0,
      part: { type: 'summary_text', text: '' },
    },
    {
      type: 'response.reasoning_summary_text.delta',
      item_id: 'rs_1',
      output_index: 0,
      summary_index: 0,
      delta: 'Let me see',
    },
  ]
    .map((each, at) => event({ ...each, sequence_number: at + 1 }, each.type))
    .join(''),
  'openai-chat': event({ ...CHUNK, choices: [{ index: 0, delta: { reasoning_content: 'Let me see' } }] }),
  'anthropic-messages':
    event(
      {
        type: 'content_block_start',
        index: 0,
        content_block: { type: 'thinking', thinking: '', signature: '' },
      },
      'content_block_start',
    ) +
    event(
      { type: 'content_block_delta', index: 0, delta: { type: 'thinking_delta', thinking: 'Let me see' } },
      'content_block_delta',
    ),
  'google-gemini': event({
    candidates: [{ index: 0, content: { role: 'model', parts: [{ text: 'Let me see', thought: true }] } }],
  }),
  'bedrock-converse': awsMessage(
    'contentBlockDelta',
    '{"contentBlockIndex":0,"delta":{"reasoningContent":{"text":"Let me see"}}}',
  ),
}

const FAILURE: Readonly<Record<Format, object>> = {
  'openai-responses': {
    ...RESPONSE,
    status: 'failed',
    error: { code: 'server_is_overloaded', message: 'Overloaded' },
  },
  'openai-chat': { error: { message: 'Overloaded', type: 'overloaded_error', code: null } },
  'anthropic-messages': { type: 'error', error: { type: 'overloaded_error', message: 'Overloaded' } },
  'google-gemini': { error: { code: 503, message: 'Overloaded', status: 'UNAVAILABLE' } },
  'bedrock-converse': {},
}

/** `silent` ends without an event, `resets` after its opening, `thinks` after a thought, `unanswered` without a head. */
type Kind = 'overloaded' | 'silent' | 'resets' | 'thinks' | 'unanswered'
const KINDS: readonly Kind[] = ['overloaded', 'silent', 'resets', 'thinks', 'unanswered']

let calls = 0
const server = createServer((request, response) => {
  let body = ''
  request.setEncoding('utf8').on('data', (piece: string) => {
    body += piece
  })
  request.on('end', () => fail(`${request.url} ${body}`, response))
})
const { url } = await listening(server, t)

function fail(request: string, response: ServerResponse): void {
  const [, kind = '', format = ''] = /f\.([a-z]+)\.([a-z-]+)\./.exec(request) ?? []
  calls++
  // Each call has a connection of its own: on a reused one a reset may mean that the request was never read.
  response.shouldKeepAlive = false
  const each = format as Format
  if (kind === 'unanswered') {
    response.socket?.resetAndDestroy()
    return
  }
  const streams = /"stream":true|:stream|converse-stream/.test(request)
  if (!streams && kind === 'overloaded') {
    response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(FAILURE[each]))
    return
  }
  if (!streams && kind !== 'silent') {
    response.writeHead(200, { 'content-type': 'application/json', 'content-length': 500 })
    response.write('{"id":"', () => response.socket?.resetAndDestroy())
    return
  }
  const type = each === 'bedrock-converse' ? 'application/vnd.amazon.eventstream' : 'text/event-stream'
  response.writeHead(200, { 'content-type': streams ? type : 'application/json' })
  if (!streams) {
    response.end()
    return
  }
  response.write(OPENING[each])
  if (kind === 'overloaded') response.end(OVERLOADED[each])
  else if (kind === 'silent') response.end()
  else if (kind === 'thinks')
    response.write(THINKING[each], () => void setImmediate(() => response.socket?.resetAndDestroy()))
  else response.write(each === 'bedrock-converse' ? '' : ': on\n\n', () => response.socket?.resetAndDestroy())
}

const DOORS = ['responses', 'chat', 'messages', 'gemini'] as const
type Door = (typeof DOORS)[number]
const STREAMED = [true, false]
/** Each request has an endpoint of its own, so that none rests after the failure of another. */
const nameOf = (format: Format, kind: Kind, door: Door, stream: boolean): string =>
  `${kind}.${format}.${door}.${stream}`
const endpoint = (format: Format, name: string) => ({ provider: `p-${format}`, upstreamModel: `f.${name}` })

const world = await startWorld({
  providers: FORMATS.map(format => ({
    slug: `p-${format}`,
    name: format,
    format,
    baseUrl: url,
    apiKey: 'k',
  })),
  models: FORMATS.flatMap(format =>
    KINDS.flatMap(kind =>
      DOORS.flatMap(door => STREAMED.map(stream => nameOf(format, kind, door, stream))),
    ).flatMap(name => [
      { id: `alone/${name}`, endpoints: [endpoint(format, name)] },
      {
        id: `backed/${name}`,
        endpoints: [endpoint(format, name), { provider: 'sim', upstreamModel: 'echo' }],
      },
    ]),
  ),
})
t.teardown(() => world.close())
const { gateway } = world

const HELLO = [{ role: 'user', content: 'Hello' }]
interface DoorForm {
  path(model: string, stream: boolean): string
  readonly body: object
  /** What a stream has exactly once at its beginning, and once at its end. */
  readonly begins: RegExp
  readonly ends: RegExp
  readonly failed: RegExp
}
const FORMS: Readonly<Record<Door, DoorForm>> = {
  responses: {
    path: () => '/v1/responses',
    body: { input: 'Hello' },
    begins: /^event: response\.created$/gm,
    ends: /^event: response\.(completed|failed|incomplete)$/gm,
    failed: /^event: response\.failed$/m,
  },
  chat: {
    path: () => '/v1/chat/completions',
    body: { messages: HELLO },
    begins: /"role":"assistant"/g,
    ends: /^data: \[DONE\]$/gm,
    failed: /"finish_reason":"error"/,
  },
  messages: {
    path: () => '/v1/messages',
    body: { max_tokens: 100, messages: HELLO },
    begins: /^event: message_start$/gm,
    ends: /^event: (message_stop|error)$/gm,
    failed: /^event: error$/m,
  },
  gemini: {
    path: (model, stream) =>
      `/v1beta/models/${model}:${stream ? 'streamGenerateContent?alt=sse' : 'generateContent'}`,
    body: { contents: [{ role: 'user', parts: [{ text: 'Hello' }] }] },
    begins: /^/g,
    ends: /"finishReason"|^\{"error"/gm,
    failed: /^\{"error"/m,
  },
}

async function ask(door: Door, model: string, stream: boolean) {
  const { path, body } = FORMS[door]
  const before = calls
  const reply = await fetch(`http://127.0.0.1:${gateway.port}${path(model, stream)}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${gateway.apiKey}`, 'content-type': 'application/json' },
    body: JSON.stringify({ ...body, ...(door === 'gemini' ? {} : { model, stream }) }),
  })
  const text = await reply.text()
  return {
    status: reply.status,
    text,
    /** Calls of the provider that fails. */
    calls: calls - before,
    id: reply.headers.get('x-generation-id'),
  }
}

const count = (text: string, pattern: RegExp): number => [...text.matchAll(pattern)].length

/** A document of Bedrock has no error under 200, and the others' name of an overload differs. */
function expectedStatus(format: Format, kind: Kind, stream: boolean): number {
  if (kind !== 'overloaded' || (format === 'bedrock-converse' && !stream)) return 502
  return format === 'google-gemini' || format === 'bedrock-converse' ? 503 : 529
}

for (const format of FORMATS) {
  t.test(`${format}: a failure inside a reply with status 200`, async t => {
    const ended = new Map<unknown, number>()
    for (const door of DOORS) {
      const { begins, ends, failed } = FORMS[door]
      for (const stream of STREAMED) {
        for (const kind of KINDS) {
          const name = nameOf(format, kind, door, stream)
          const isTold = kind === 'thinks' && stream
          const backed = await ask(door, `backed/${name}`, stream)
          t.equal(backed.status, 200, `${name}: ${backed.text}`)
          t.equal(backed.calls, 1, name)
          ended.set(backed.id, isTold ? 1 : 2)
          if (stream) {
            t.equal(count(backed.text, begins), 1, `${name}: one beginning`)
            t.equal(count(backed.text, ends), 1, `${name}: one end`)
          }
          t.equal(failed.test(backed.text), isTold, `${name}: ${backed.text}`)

          const alone = await ask(door, `alone/${name}`, stream)
          t.equal(alone.calls, 1, name)
          ended.set(alone.id, 1)
          if (isTold) t.match(alone.text, failed, name)
          else t.equal(alone.status, expectedStatus(format, kind, stream), `${name}: ${alone.text}`)
        }
      }
    }
    const records = await world.records()
    for (const { id, attempts } of records.filter(({ id }) => ended.has(id)))
      t.equal(attempts.length, ended.get(id), `attempts in the record of ${id}`)
    t.equal(records.filter(({ id }) => ended.has(id)).length, Math.min(100, ended.size))
  })
}
