/**
 * A provider whose streams stay open, and clients that read them, in a separate thread, so that everything the
 * gateway's thread holds belongs to the gateway. Run as a worker; messages control it.
 */
import { once } from 'node:events'
import { Agent, createServer, request, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { parentPort } from 'node:worker_threads'
import { awsMessage } from '../support/aws-events.ts'

interface OpenStream {
  readonly script: Script
  readonly isAws: boolean
  readonly number: number
  sent: number
}

export type ToStreams =
  | { readonly open: number; readonly url: string; readonly apiKey: string; readonly model: string }
  | { readonly deltas: number }
  | { readonly end: true }

/** Begins every text, and is found nowhere else in a frame. */
const MARK = '~~'
const EVENTS_AT_ONCE = 50

/** Five characters. Each stream says others, and always others: equal texts may share their memory. */
const textOf = (stream: number, delta: number): string =>
  MARK + ((stream * 1_009 + delta) % 46_656).toString(36).padStart(3, '0')

interface Script {
  readonly begin: readonly [type: string, data: object][]
  delta(text: string, number: number): readonly [type: string, data: object]
}

const chat = (delta: object): Script['begin'][number] => [
  '',
  {
    id: 'open',
    object: 'chat.completion.chunk',
    model: 'm',
    choices: [{ index: 0, delta, finish_reason: null }],
  },
]
const block = (delta: object): Script['begin'][number] => [
  'content_block_delta',
  { type: 'content_block_delta', index: 0, delta },
]
const messages = (content_block: object): Script['begin'] => [
  [
    'message_start',
    {
      type: 'message_start',
      message: {
        id: 'open',
        type: 'message',
        role: 'assistant',
        model: 'm',
        content: [],
        stop_reason: null,
        usage: { input_tokens: 1, output_tokens: 1 },
      },
    },
  ],
  ['content_block_start', { type: 'content_block_start', index: 0, content_block }],
]
const gemini = (part: object): Script['begin'][number] => [
  '',
  { candidates: [{ index: 0, content: { role: 'model', parts: [part] } }], modelVersion: 'm' },
]
const responses = (type: string, fields: object): Script['begin'][number] => [type, { type, ...fields }]
const call = { index: 0, id: 'c', type: 'function', function: { name: 'f', arguments: '' } }

/** The begin of a Responses stream with one item; the events are numbered. */
const began = (item: object, ...events: Script['begin']): Script['begin'] =>
  [
    responses('response.created', {
      response: { id: 'open', object: 'response', status: 'in_progress', model: 'm', output: [] },
    }),
    responses('response.output_item.added', { output_index: 0, item: { status: 'in_progress', ...item } }),
    ...events,
  ].map(([type, data], sequence_number) => [type, { ...data, sequence_number }])
const ofItem = (id: string) => ({ item_id: id, output_index: 0 })
const responsesText: Script = {
  begin: began(
    { id: 'msg_1', type: 'message', role: 'assistant', content: [] },
    responses('response.content_part.added', {
      ...ofItem('msg_1'),
      content_index: 0,
      part: { type: 'output_text', text: '', annotations: [] },
    }),
  ),
  delta: (text, number) =>
    responses('response.output_text.delta', {
      sequence_number: number + 3,
      ...ofItem('msg_1'),
      content_index: 0,
      delta: text,
      logprobs: [],
    }),
}

/** Keys are paths: FORMAT/KIND. */
export const SCRIPTS: Readonly<Record<string, Script>> = {
  'openai-responses/text': responsesText,
  'openai-responses/translated': responsesText,
  'openai-responses/reasoning': {
    begin: began(
      { id: 'rs_1', type: 'reasoning', summary: [] },
      responses('response.reasoning_summary_part.added', {
        ...ofItem('rs_1'),
        summary_index: 0,
        part: { type: 'summary_text', text: '' },
      }),
    ),
    delta: (text, number) =>
      responses('response.reasoning_summary_text.delta', {
        sequence_number: number + 3,
        ...ofItem('rs_1'),
        summary_index: 0,
        delta: text,
      }),
  },
  'openai-responses/call': {
    begin: began({ id: 'fc_1', type: 'function_call', call_id: 'c', name: 'f', arguments: '' }),
    delta: (text, number) =>
      responses('response.function_call_arguments.delta', {
        sequence_number: number + 2,
        ...ofItem('fc_1'),
        delta: text,
      }),
  },
  'openai-chat/text': {
    begin: [chat({ role: 'assistant', content: '' })],
    delta: text => chat({ content: text }),
  },
  'openai-chat/reasoning': {
    begin: [chat({ role: 'assistant', content: '' })],
    delta: text => chat({ reasoning_content: text }),
  },
  'openai-chat/call': {
    begin: [chat({ role: 'assistant', tool_calls: [call] })],
    delta: text => chat({ tool_calls: [{ index: 0, function: { arguments: text } }] }),
  },
  'anthropic-messages/text': {
    begin: messages({ type: 'text', text: '' }),
    delta: text => block({ type: 'text_delta', text }),
  },
  'anthropic-messages/reasoning': {
    begin: messages({ type: 'thinking', thinking: '', signature: '' }),
    delta: text => block({ type: 'thinking_delta', thinking: text }),
  },
  'anthropic-messages/call': {
    begin: messages({ type: 'tool_use', id: 'c', name: 'f', input: {} }),
    delta: text => block({ type: 'input_json_delta', partial_json: text }),
  },
  'google-gemini/text': { begin: [], delta: text => gemini({ text }) },
  'google-gemini/reasoning': { begin: [], delta: text => gemini({ text, thought: true }) },
  'bedrock-converse/text': {
    begin: [['messageStart', { role: 'assistant' }]],
    delta: text => ['contentBlockDelta', { contentBlockIndex: 0, delta: { text } }],
  },
  'bedrock-converse/reasoning': {
    begin: [['messageStart', { role: 'assistant' }]],
    delta: text => ['contentBlockDelta', { contentBlockIndex: 0, delta: { reasoningContent: { text } } }],
  },
  'bedrock-converse/call': {
    begin: [
      ['messageStart', { role: 'assistant' }],
      ['contentBlockStart', { contentBlockIndex: 0, start: { toolUse: { toolUseId: 'c', name: 'f' } } }],
    ],
    delta: text => ['contentBlockDelta', { contentBlockIndex: 0, delta: { toolUse: { input: text } } }],
  },
}

if (parentPort !== null) await serve(parentPort)

async function serve(port: NonNullable<typeof parentPort>): Promise<void> {
  const open = new Map<ServerResponse, OpenStream>()
  let begun = 0
  const server = createServer((asked, response) => {
    asked.resume().on('end', () => {
      const [, format = '', kind = ''] = (asked.url ?? '').split('/')
      const script = SCRIPTS[`${format}/${kind}`]
      if (script === undefined) {
        response.writeHead(404).end()
        return
      }
      const isAws = format === 'bedrock-converse'
      response.writeHead(200, {
        'content-type': isAws ? 'application/vnd.amazon.eventstream' : 'text/event-stream',
      })
      for (const event of script.begin) response.write(written(event, isAws))
      const stream = { script, isAws, number: begun++, sent: 0 }
      open.set(response, stream)
      send(response, stream, 1)
      response.on('close', () => open.delete(response))
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  let agent = new Agent({ maxSockets: Number.POSITIVE_INFINITY })
  let got: { texts: number; tail: string }[] = []
  let wanted = 0
  const tell = (): void => {
    if (wanted > 0 && got.every(({ texts }) => texts >= wanted)) {
      wanted = 0
      port.postMessage('read')
    }
  }
  const read = (url: string, apiKey: string, model: string): void => {
    const one = { texts: 0, tail: '' }
    got.push(one)
    const headers = { authorization: `Bearer ${apiKey}`, 'content-type': 'application/json' }
    const sent = request(`${url}/responses`, { agent, method: 'POST', headers }, reply => {
      reply.setEncoding('latin1').on('data', (more: string) => {
        const text = one.tail + more
        const parts = text.split(MARK)
        one.texts += parts.length - 1
        one.tail = (parts.at(-1) ?? '').slice(-MARK.length + 1)
        tell()
      })
      reply.on('error', () => undefined)
    })
    sent.on('error', () => undefined)
    sent.end(JSON.stringify({ model, input: 'x', stream: true }))
  }
  port.on('message', (message: ToStreams) => {
    if ('open' in message) {
      wanted = 1
      for (let index = 0; index < message.open; index++) read(message.url, message.apiKey, message.model)
    } else if ('deltas' in message) {
      wanted = message.deltas
      pour(open, message.deltas)
    } else {
      // The gateway goes on reading for a while for a client that has left.
      for (const response of open.keys()) response.destroy()
      agent.destroy()
      agent = new Agent({ maxSockets: Number.POSITIVE_INFINITY })
      got = []
    }
  })
  port.postMessage((server.address() as AddressInfo).port)
}

/** A few events for each stream in turn, up to so many. */
function pour(open: ReadonlyMap<ServerResponse, OpenStream>, deltas: number): void {
  let missing = false
  for (const [response, stream] of open) {
    send(response, stream, Math.min(EVENTS_AT_ONCE, deltas - stream.sent))
    missing ||= stream.sent < deltas
  }
  if (missing) setImmediate(() => pour(open, deltas))
}

function send(response: ServerResponse, stream: OpenStream, count: number): void {
  for (let sent = 0; sent < count; sent++, stream.sent++) {
    const text = textOf(stream.number, stream.sent)
    response.write(written(stream.script.delta(text, stream.sent), stream.isAws))
  }
}

function written([type, data]: readonly [type: string, data: object], isAws: boolean): string | Buffer {
  if (isAws) return awsMessage(type, JSON.stringify(data))
  return `${type === '' ? '' : `event: ${type}\n`}data: ${JSON.stringify(data)}\n\n`
}
