/**
 * Anthropic's client throws at a delta of arguments that is blank, and at arguments that are blank in the end: a
 * provider's blanks before or in place of arguments never reach it, in any format.
 */
import { createServer } from 'node:http'
import Anthropic from '@anthropic-ai/sdk'
import t from 'tap'
import { awsMessage } from '../support/aws-events.ts'
import { startGateway } from '../support/gateway.ts'
import { listening } from '../support/listening.ts'

const CHUNK = { id: 'c', object: 'chat.completion.chunk', model: 'm' }
const RESPONSE = { id: 'resp_1', object: 'response', model: 'm', output: [] }
const data = (fields: object): string => `data: ${JSON.stringify(fields)}\n\n`
const named = (fields: { readonly type: string; readonly sequence_number?: number }): string =>
  `event: ${fields.type}\n${data(fields)}`

/** A stream with two calls of a tool, the arguments of each in these pieces. */
const STREAMS: Readonly<Record<string, (pieces: readonly string[]) => string | Buffer>> = {
  'openai-chat': pieces => {
    const delta = (fields: object, finish: string | null = null) =>
      data({ ...CHUNK, choices: [{ index: 0, delta: fields, finish_reason: finish }] })
    const calls = [0, 1].map(index => {
      const opening = { index, id: `call_${index}`, type: 'function', function: { name: 'f', arguments: '' } }
      return [opening, ...pieces.map(piece => ({ index, function: { arguments: piece } }))]
        .map(call => delta({ tool_calls: [call] }))
        .join('')
    })
    const usage = { prompt_tokens: 3, completion_tokens: 2, total_tokens: 5 }
    return `${calls.join('')}${delta({}, 'tool_calls')}${data({ ...CHUNK, choices: [], usage })}data: [DONE]\n\n`
  },
  'openai-responses': pieces => {
    const events = [0, 1].flatMap(output_index => {
      const item = {
        type: 'function_call',
        id: `fc_${output_index}`,
        call_id: `call_${output_index}`,
        name: 'f',
      }
      const args = pieces.join('')
      return [
        {
          type: 'response.output_item.added',
          output_index,
          item: { ...item, arguments: '', status: 'in_progress' },
        },
        ...pieces.map(delta => ({
          type: 'response.function_call_arguments.delta',
          item_id: item.id,
          output_index,
          delta,
        })),
        { type: 'response.function_call_arguments.done', item_id: item.id, output_index, arguments: args },
        {
          type: 'response.output_item.done',
          output_index,
          item: { ...item, arguments: args, status: 'completed' },
        },
      ]
    })
    const usage = { input_tokens: 3, output_tokens: 2, total_tokens: 5 }
    return [
      { type: 'response.created', response: { ...RESPONSE, status: 'in_progress' } },
      ...events,
      { type: 'response.completed', response: { ...RESPONSE, status: 'completed', usage } },
    ]
      .map((event, sequence_number) => named({ ...event, sequence_number }))
      .join('')
  },
  'anthropic-messages': pieces => {
    const message = {
      id: 'msg_1',
      type: 'message',
      role: 'assistant',
      model: 'm',
      content: [],
      stop_reason: null,
    }
    const calls = [0, 1].flatMap(index => [
      {
        type: 'content_block_start',
        index,
        content_block: { type: 'tool_use', id: `toolu_${index}`, name: 'f', input: {} },
      },
      ...pieces.map(partial_json => ({
        type: 'content_block_delta',
        index,
        delta: { type: 'input_json_delta', partial_json },
      })),
      { type: 'content_block_stop', index },
    ])
    return [
      { type: 'message_start', message: { ...message, usage: { input_tokens: 3, output_tokens: 0 } } },
      ...calls,
      { type: 'message_delta', delta: { stop_reason: 'tool_use' }, usage: { output_tokens: 2 } },
      { type: 'message_stop' },
    ]
      .map(named)
      .join('')
  },
  'bedrock-converse': pieces => {
    const calls = [0, 1].flatMap(contentBlockIndex => [
      awsMessage(
        'contentBlockStart',
        JSON.stringify({
          contentBlockIndex,
          start: { toolUse: { toolUseId: `t${contentBlockIndex}`, name: 'f' } },
        }),
      ),
      ...pieces.map(input =>
        awsMessage('contentBlockDelta', JSON.stringify({ contentBlockIndex, delta: { toolUse: { input } } })),
      ),
      awsMessage('contentBlockStop', JSON.stringify({ contentBlockIndex })),
    ])
    return Buffer.concat([
      awsMessage('messageStart', '{"role":"assistant"}'),
      ...calls,
      awsMessage('messageStop', '{"stopReason":"tool_use"}'),
      awsMessage('metadata', '{"usage":{"inputTokens":3,"outputTokens":2,"totalTokens":5}}'),
    ])
  },
}

const PIECES: readonly (readonly [pieces: readonly string[], input: unknown])[] = [
  [[' '], {}],
  [['\n', '\t'], {}],
  [[''], {}],
  [[], {}],
  [[' ', '{"a":', '1}'], { a: 1 }],
  [['{"a":', ' ', '1}', '\n'], { a: 1 }],
]
let stream: string | Buffer = ''
const server = createServer((request, response) => {
  request.resume().on('end', () => {
    const isAws = typeof stream !== 'string'
    response.writeHead(200, {
      'content-type': isAws ? 'application/vnd.amazon.eventstream' : 'text/event-stream',
    })
    response.end(stream)
  })
})
const { url } = await listening(server, t)
const formats = Object.keys(STREAMS)
const gateway = await startGateway({
  providers: formats.map(format => ({
    slug: format,
    name: format,
    format,
    baseUrl: url,
    apiKey: 'k',
  })) as never,
  models: formats.map(format => ({
    id: `blank/${format}`,
    endpoints: [{ provider: format, upstreamModel: 'm' }],
  })),
})
t.teardown(() => gateway.close())
const client = new Anthropic({
  baseURL: gateway.url.replace(/\/v1$/, ''),
  apiKey: gateway.apiKey,
  maxRetries: 0,
})

for (const format of formats) {
  t.test(`${format}: the client reads every call`, async t => {
    for (const [pieces, input] of PIECES) {
      stream = STREAMS[format]?.(pieces) ?? ''
      const deltas: string[] = []
      const reading = client.messages.stream({
        model: `blank/${format}`,
        max_tokens: 99,
        messages: [{ role: 'user', content: 'Go' }],
        tools: [{ name: 'f', input_schema: { type: 'object' } }],
      })
      reading.on('inputJson', partial => void deltas.push(partial))
      const { content } = await reading.finalMessage()
      const at = JSON.stringify(pieces)
      t.same(
        content.map(block => (block.type === 'tool_use' ? block.input : block.type)),
        [input, input],
        at,
      )
    }
  })
}
