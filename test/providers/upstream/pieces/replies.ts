/** Replies of some 900 kB, less than one event may have, each in the form of one kind of server that the gateway reads from. */
import { awsEvents } from '../../../support/aws-events.ts'

export interface PiecesReply {
  readonly type: string
  readonly body: Buffer
}

const BYTES = 900_000
const DELTA_CHARS = 500
const WORDS = 'word '.repeat(DELTA_CHARS / 5)
const DELTAS = BYTES / DELTA_CHARS
const TEXT = WORDS.repeat(DELTAS)
const STREAM = 'text/event-stream'
const JSON_TYPE = 'application/json'

/** Makes the reply once. */
function always(make: () => PiecesReply): () => PiecesReply {
  let reply: PiecesReply | null = null
  return () => (reply ??= make())
}

type Fields = Readonly<Record<string, unknown>>

function json(document: object): PiecesReply {
  return { type: JSON_TYPE, body: Buffer.from(JSON.stringify(document)) }
}

/** Frames without names: `before`, one for each delta, `after`. */
function stream(before: readonly object[], delta: object, after: readonly (object | string)[]): PiecesReply {
  const frames = [...before, ...Array.from({ length: DELTAS }, () => delta), ...after]
  const text = frames.map(each => `data: ${typeof each === 'string' ? each : JSON.stringify(each)}\n\n`)
  return { type: STREAM, body: Buffer.from(text.join('')) }
}

/** Frames that are named by their `type`. */
function named(frames: readonly { readonly type: string }[]): PiecesReply {
  const text = frames.map(each => `event: ${each.type}\ndata: ${JSON.stringify(each)}\n\n`)
  return { type: STREAM, body: Buffer.from(text.join('')) }
}

/** Comments before an event. */
function commented({ body }: PiecesReply): PiecesReply {
  return { type: STREAM, body: Buffer.concat([Buffer.from(':\n\n'.repeat(BYTES / 3)), body]) }
}

const chatUsage = { prompt_tokens: 1, completion_tokens: 5, total_tokens: 6 }
const chatChunk = (choice: Fields, more: Fields = {}) => ({
  id: 'c',
  object: 'chat.completion.chunk',
  created: 1,
  model: 'm',
  choices: [{ index: 0, finish_reason: null, delta: {}, ...choice }],
  ...more,
})
const shortChat = stream([], chatChunk({ delta: { content: '' } }), [
  chatChunk({ delta: { content: 'Hi' } }),
  chatChunk({ finish_reason: 'stop' }, { usage: chatUsage }),
  '[DONE]',
])

const message = (status: string, content: readonly object[]) => ({
  type: 'message',
  id: 'msg_1',
  role: 'assistant',
  status,
  content,
})
const part = (text: string) => ({ type: 'output_text', text, annotations: [] })
const response = (status: string, output: readonly object[]) => ({
  id: 'resp_1',
  object: 'response',
  created_at: 1,
  status,
  model: 'm',
  output,
  usage: { input_tokens: 1, output_tokens: 5, total_tokens: 6 },
})
const place = { item_id: 'msg_1', output_index: 0, content_index: 0 }
const claude = (content: readonly object[]) => ({
  id: 'msg_1',
  type: 'message',
  role: 'assistant',
  model: 'm',
  content,
  stop_reason: 'end_turn',
  stop_sequence: null,
  usage: { input_tokens: 1, output_tokens: 5 },
})
const gemini = (text: string, more: Fields = {}) => ({
  candidates: [{ content: { parts: [{ text }], role: 'model' }, index: 0, ...more }],
  usageMetadata: { promptTokenCount: 1, candidatesTokenCount: 5, totalTokenCount: 6 },
})
const bedrockUsage = { usage: { inputTokens: 1, outputTokens: 5, totalTokens: 6 } }

function bedrockStream(): PiecesReply {
  const frames: readonly (readonly [string, object])[] = [
    ['messageStart', { role: 'assistant' }],
    ...Array.from(
      { length: DELTAS },
      () => ['contentBlockDelta', { contentBlockIndex: 0, delta: { text: WORDS } }] as const,
    ),
    ['contentBlockStop', { contentBlockIndex: 0 }],
    ['messageStop', { stopReason: 'end_turn' }],
    ['metadata', bedrockUsage],
  ]
  const text = frames.map(([type, data]) => `event: ${type}\ndata: ${JSON.stringify(data)}`).join('\n\n')
  return { type: 'application/vnd.amazon.eventstream', body: Buffer.concat(awsEvents(text)) }
}

/** An MCP server of the older protocol, whose tool answers as `answer` says. */
function mcp(asked: string, answer: (message: object) => PiecesReply): PiecesReply | null {
  const { id, method } = JSON.parse(asked === '' ? '{}' : asked) as { id?: number; method?: string }
  const result = (fields: Fields) => ({ jsonrpc: '2.0', id, result: fields })
  if (method === 'initialize') {
    return json(
      result({
        protocolVersion: '2025-06-18',
        capabilities: { tools: {} },
        serverInfo: { name: 's', version: '1' },
      }),
    )
  }
  if (method === 'server/discover')
    return json({ jsonrpc: '2.0', id, error: { code: -32_601, message: 'unknown' } })
  if (method === 'tools/call') return answer(result({ content: [{ type: 'text', text: TEXT }] }))
  return id === undefined ? { type: JSON_TYPE, body: Buffer.alloc(0) } : null
}

const mcpEvent = (message: object): PiecesReply => ({
  type: STREAM,
  body: Buffer.from(`event: message\ndata: ${JSON.stringify(message)}\n\n`),
})

/** By name: what answers a request with this body. Null: not found. */
export const REPLIES: Readonly<Record<string, (asked: string) => PiecesReply | null>> = {
  'chat-stream': always(() =>
    stream([], chatChunk({ delta: { content: WORDS } }), [
      chatChunk({ finish_reason: 'stop' }, { usage: chatUsage }),
      '[DONE]',
    ]),
  ),
  'chat-comments': always(() => commented(shortChat)),
  'chat-whole': always(() =>
    json({
      id: 'c',
      object: 'chat.completion',
      created: 1,
      model: 'm',
      choices: [{ index: 0, finish_reason: 'stop', message: { role: 'assistant', content: TEXT } }],
      usage: chatUsage,
    }),
  ),
  'responses-stream': always(() =>
    named([
      { type: 'response.created', response: response('in_progress', []) } as never,
      { type: 'response.output_item.added', output_index: 0, item: message('in_progress', []) } as never,
      { type: 'response.content_part.added', ...place, part: part('') } as never,
      ...Array.from({ length: DELTAS }, () => ({
        type: 'response.output_text.delta',
        ...place,
        delta: WORDS,
      })),
      { type: 'response.output_text.done', ...place, text: TEXT } as never,
      {
        type: 'response.completed',
        response: response('completed', [message('completed', [part(TEXT)])]),
      } as never,
    ]),
  ),
  'responses-whole': always(() => json(response('completed', [message('completed', [part(TEXT)])]))),
  'messages-stream': always(() =>
    named([
      { type: 'message_start', message: { ...claude([]), stop_reason: null } } as never,
      { type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } } as never,
      ...Array.from({ length: DELTAS }, () => ({
        type: 'content_block_delta',
        index: 0,
        delta: { type: 'text_delta', text: WORDS },
      })),
      { type: 'content_block_stop', index: 0 } as never,
      {
        type: 'message_delta',
        delta: { stop_reason: 'end_turn', stop_sequence: null },
        usage: { output_tokens: 5 },
      } as never,
      { type: 'message_stop' },
    ]),
  ),
  'messages-whole': always(() => json(claude([{ type: 'text', text: TEXT }]))),
  'gemini-stream': always(() => stream([], gemini(WORDS), [gemini('.', { finishReason: 'STOP' })])),
  'gemini-whole': always(() => json(gemini(TEXT, { finishReason: 'STOP' }))),
  'bedrock-stream': always(bedrockStream),
  'bedrock-whole': always(() =>
    json({
      output: { message: { role: 'assistant', content: [{ text: TEXT }] } },
      stopReason: 'end_turn',
      ...bedrockUsage,
    }),
  ),
  embeddings: always(() =>
    json({
      object: 'list',
      model: 'm',
      data: Array.from({ length: 16 }, (_, index) => ({
        object: 'embedding',
        index,
        embedding: Array.from({ length: 8_000 }, () => 0.12345678),
      })),
      usage: { prompt_tokens: 1, total_tokens: 1 },
    }),
  ),
  page: always(() => ({ type: 'text/plain', body: Buffer.from(TEXT) })),
  'mcp-json': asked => mcp(asked, json),
  'mcp-event': asked => mcp(asked, mcpEvent),
  'mcp-comments': asked =>
    mcp(asked, answer => {
      const { id } = answer as { id: number }
      return commented(mcpEvent({ jsonrpc: '2.0', id, result: { content: [{ type: 'text', text: 'Hi' }] } }))
    }),
  search: always(() => json({ results: [{ url: 'https://a.example/', title: 'A', text: TEXT }] })),
  lines: always(() => ({
    type: 'application/jsonl',
    body: Buffer.from(`${JSON.stringify({ text: WORDS })}\n`.repeat(DELTAS)),
  })),
  document: always(() => json({ text: TEXT })),
  object: always(() => ({ type: 'application/octet-stream', body: Buffer.from(TEXT) })),
}
