/** Borders of frames: a reader that splits a stream at blank lines finds frames and heartbeats, and nothing else. */
import { once } from 'node:events'
import { createServer, request, type ServerResponse } from 'node:http'
import t, { type Test } from 'tap'
import { startGateway, type TestGatewayOptions } from '../support/gateway.ts'
import { listening } from '../support/listening.ts'
import { TestClock } from '../support/test-clock.ts'
import { TEST_FRONT } from '../support/test-front.ts'

const HEARTBEAT_MS = 1_000
const LONG_MS = 3_600_000
const turn = () => new Promise(resolve => setImmediate(resolve))

const chunk = (delta: object, more: object = {}): string =>
  `data: ${JSON.stringify({ id: 'c', object: 'chat.completion.chunk', model: 'm', choices: [{ index: 0, delta, ...more }] })}\n\n`
const event = (type: string, body: object): string =>
  `event: ${type}\ndata: ${JSON.stringify({ type, ...body })}\n\n`
const words = Array.from({ length: 12 }, (_, at) => `word ${at} `)

const message = { id: 'i', type: 'message', role: 'assistant', status: 'in_progress', content: [] }
const part = { type: 'output_text', text: '', annotations: [] }
const whole = { ...part, text: words.join('') }
const done = { ...message, status: 'completed', content: [whole] }
const response = { id: 'r', object: 'response', created_at: 1, status: 'in_progress', model: 'm', output: [] }
const usage = { input_tokens: 1, output_tokens: 12, total_tokens: 13 }
const place = { item_id: 'i', output_index: 0, content_index: 0 }

/** What a provider of each format says. */
const FRAMES = {
  'openai-chat': [
    chunk({ role: 'assistant', content: '' }),
    ...words.map(content => chunk({ content })),
    chunk({}, { finish_reason: 'stop' }),
    'data: [DONE]\n\n',
  ],
  'openai-responses': [
    event('response.created', { response, sequence_number: 0 }),
    event('response.output_item.added', { output_index: 0, item: message, sequence_number: 1 }),
    event('response.content_part.added', { ...place, part, sequence_number: 2 }),
    ...words.map((delta, at) =>
      event('response.output_text.delta', { ...place, delta, sequence_number: 3 + at }),
    ),
    event('response.output_text.done', { ...place, text: words.join(''), sequence_number: 20 }),
    event('response.content_part.done', { ...place, part: whole, sequence_number: 21 }),
    event('response.output_item.done', { output_index: 0, item: done, sequence_number: 22 }),
    event('response.completed', {
      response: { ...response, status: 'completed', output: [done], usage },
      sequence_number: 23,
    }),
  ],
  'anthropic-messages': [
    event('message_start', {
      message: {
        id: 'm',
        type: 'message',
        role: 'assistant',
        content: [],
        model: 'm',
        usage: { input_tokens: 1 },
      },
    }),
    event('content_block_start', { index: 0, content_block: { type: 'text', text: '' } }),
    ...words.map(text => event('content_block_delta', { index: 0, delta: { type: 'text_delta', text } })),
    event('content_block_stop', { index: 0 }),
    event('message_delta', { delta: { stop_reason: 'end_turn' }, usage: { output_tokens: 12 } }),
    event('message_stop', {}),
  ],
} as const
type Format = keyof typeof FRAMES
const FORMATS = Object.keys(FRAMES) as Format[]

const HI = [{ role: 'user', content: 'hi' }]
const DIALECTS = [
  { path: '/responses', body: { input: 'hi' }, frame: /^(?:event: \S+\ndata: \{.+\}|data: \[DONE\])$/ },
  { path: '/chat/completions', body: { messages: HI }, frame: /^data: (?:\{.+\}|\[DONE\])$/ },
  { path: '/messages', body: { messages: HI, max_tokens: 50 }, frame: /^event: \S+\ndata: \{.+\}$/ },
] as const

async function start(t: Test, options: TestGatewayOptions = {}) {
  const clock = new TestClock()
  const asked: { readonly format: Format; readonly reply: ServerResponse }[] = []
  const provider = createServer((asking, reply) => {
    const format = (asking.url ?? '').split('/')[1] as Format
    asking.resume().on('end', () => {
      reply.writeHead(200, { 'content-type': 'text/event-stream' })
      asked.push({ format, reply })
    })
  })
  const { port } = await listening(provider, t)
  const gateway = await startGateway({
    clock,
    timeouts: {
      heartbeatMs: HEARTBEAT_MS,
      upstreamHeadersMs: LONG_MS,
      upstreamIdleMs: LONG_MS,
      requestMs: LONG_MS,
    },
    providers: FORMATS.map(format => ({
      slug: format,
      name: format,
      format,
      baseUrl: `http://127.0.0.1:${port}/${format}`,
    })),
    models: FORMATS.map(format => ({
      id: `m/${format}`,
      endpoints: [{ provider: format, upstreamModel: 'm' }],
    })),
    ...options,
  })
  t.teardown(() => gateway.close())
  /** Asks, and sends the frames of the provider one by one, or together. Returns the stream. */
  const stream = async (path: string, format: Format, body: object, isPaced: boolean): Promise<string> => {
    const at = asked.length
    const sending = request(`${gateway.url}${path}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${gateway.apiKey}`, 'content-type': 'application/json' },
    })
    sending.end(JSON.stringify({ model: `m/${format}`, stream: true, ...body }))
    while (asked[at] === undefined) await turn()
    const { reply } = asked[at]
    const frames: readonly string[] = FRAMES[format]
    let text = ''
    sending.on('response', read =>
      read.setEncoding('utf8').on('data', (piece: string) => {
        text += piece
      }),
    )
    if (isPaced) {
      const [first = '', ...rest] = frames
      for (const frame of [first, rest[0] ?? '', rest[1] ?? '', rest[2] ?? '']) reply.write(frame)
      while (!text.includes('word')) await turn()
      clock.advance(HEARTBEAT_MS)
      while (!text.includes(': GATEWAY')) await turn()
      for (const frame of rest.slice(3)) {
        reply.write(frame)
        for (let turns = 0; turns < 5; turns++) await turn()
      }
    } else reply.write(frames.join(''))
    reply.end()
    if (sending.destroyed === false) await once(sending, 'close')
    return text
  }
  return { stream }
}

t.test('one blank line stands between frames, paced and not, relayed and translated', async t => {
  const { stream } = await start(t)
  for (const { path, body, frame } of DIALECTS) {
    for (const format of FORMATS) {
      for (const isPaced of [true, false]) {
        const name = `${path} over ${format}, ${isPaced ? 'paced' : 'at once'}`
        const pieces = (await stream(path, format, body, isPaced)).split('\n\n')
        t.equal(pieces.pop(), '', `${name}: it ends with a blank line`)
        t.ok(pieces.length > words.length, `${name}: ${pieces.length} pieces`)
        const odd = pieces.filter(piece => piece !== ': GATEWAY PROCESSING' && !frame.test(piece))
        t.same(odd, [], `${name}: nothing else`)
        t.equal(
          pieces.some(piece => piece.startsWith(':')),
          isPaced,
          `${name}: heartbeats`,
        )
      }
    }
  }
})

t.test('with listen.chunkFlush, comments stand between frames, and nothing else', async t => {
  const { stream } = await start(t, { chunkFlush: true })
  for (const { path, body, frame } of DIALECTS) {
    const pieces = (await stream(path, 'openai-chat', body, true)).split('\n\n')
    t.equal(pieces.pop(), '', path)
    // The other front needs none: see the allowed differences of decision 44.
    t.equal(pieces.includes(':'), TEST_FRONT !== 'node', path)
    const odd = pieces.filter(
      piece => piece !== ':' && piece !== ': GATEWAY PROCESSING' && !frame.test(piece),
    )
    t.same(odd, [], path)
  }
})
