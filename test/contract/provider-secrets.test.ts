/**
 * A provider that repeats the key it was given, in every place where it can say something: the key reaches no
 * answer and no log line.
 */
import { createServer } from 'node:http'
import t from 'tap'
import { startGateway } from '../support/gateway.ts'
import { listening } from '../support/listening.ts'

const KEY = 'sk-canary-0123456789abcdef0123456789abcdef'
const SAYING = `Incorrect API key provided: ${KEY}. See https://provider.example/keys?key=${KEY}`

const FORMATS = ['openai-responses', 'openai-chat', 'anthropic-messages', 'google-gemini'] as const
type Format = (typeof FORMATS)[number]

/** The error object of a format, as it stands in a body. */
const ERRORS: Readonly<Record<Format, unknown>> = {
  'openai-responses': { error: { message: SAYING, type: KEY, code: KEY, param: null } },
  'openai-chat': { error: { message: SAYING, type: KEY, code: KEY } },
  'anthropic-messages': { type: 'error', error: { type: KEY, message: SAYING } },
  'google-gemini': { error: { code: 500, message: SAYING, status: KEY } },
}
/** What comes before the error in a stream, so that the failure has to be told in-stream. */
const BEGINNINGS: Readonly<Record<Format, readonly (readonly [event: string, data: unknown])[]>> = {
  'openai-responses': [
    [
      'response.created',
      {
        type: 'response.created',
        sequence_number: 0,
        response: { id: 'resp_1', object: 'response', status: 'in_progress', output: [] },
      },
    ],
    [
      'response.in_progress',
      {
        type: 'response.in_progress',
        sequence_number: 1,
        response: { id: 'resp_1', object: 'response', status: 'in_progress', output: [] },
      },
    ],
    [
      'response.output_item.added',
      {
        type: 'response.output_item.added',
        sequence_number: 2,
        output_index: 0,
        item: { id: 'msg_1', type: 'message', role: 'assistant', status: 'in_progress', content: [] },
      },
    ],
    [
      'response.content_part.added',
      {
        type: 'response.content_part.added',
        sequence_number: 3,
        item_id: 'msg_1',
        output_index: 0,
        content_index: 0,
        part: { type: 'output_text', text: '', annotations: [] },
      },
    ],
    [
      'response.output_text.delta',
      {
        type: 'response.output_text.delta',
        sequence_number: 4,
        item_id: 'msg_1',
        output_index: 0,
        content_index: 0,
        delta: 'Hello',
        logprobs: [],
      },
    ],
  ],
  'openai-chat': [
    [
      '',
      {
        id: 'c',
        object: 'chat.completion.chunk',
        choices: [{ index: 0, delta: { role: 'assistant', content: 'Hello' } }],
      },
    ],
  ],
  'anthropic-messages': [
    [
      'message_start',
      {
        type: 'message_start',
        message: {
          id: 'm',
          type: 'message',
          role: 'assistant',
          content: [],
          model: 'x',
          stop_reason: null,
          usage: { input_tokens: 1, output_tokens: 1 },
        },
      },
    ],
    [
      'content_block_start',
      { type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } },
    ],
    [
      'content_block_delta',
      { type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: 'Hello' } },
    ],
  ],
  'google-gemini': [
    ['', { candidates: [{ index: 0, content: { role: 'model', parts: [{ text: 'Hello' }] } }] }],
  ],
}

const frame = (event: string, data: unknown) =>
  `${event === '' ? '' : `event: ${event}\n`}data: ${JSON.stringify(data)}\n\n`
const errorFrame = (format: Format) =>
  format === 'openai-responses'
    ? frame('error', { type: 'error', sequence_number: 5, code: KEY, message: SAYING, param: null })
    : frame(format === 'anthropic-messages' ? 'error' : '', ERRORS[format])

const BEHAVIOURS = [
  'refuses',
  'refuses-in-html',
  'errs-under-200',
  'errs-first',
  'errs-midway',
  'nonsense',
] as const

const upstream = createServer((request, response) => {
  // The base URL's path says format and behaviour.
  const [, format, behaviour] = (request.url ?? '').split('/') as [
    string,
    Format,
    (typeof BEHAVIOURS)[number],
  ]
  request.resume()
  const stream = () => response.writeHead(200, { 'content-type': 'text/event-stream' })
  switch (behaviour) {
    case 'refuses':
      response.writeHead(401, { 'content-type': 'application/json' }).end(JSON.stringify(ERRORS[format]))
      break
    case 'refuses-in-html':
      response.writeHead(500, { 'content-type': 'text/html' }).end(`<html>${SAYING}</html>`)
      break
    case 'errs-under-200':
      response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(ERRORS[format]))
      break
    case 'errs-first':
      stream().end(errorFrame(format))
      break
    case 'errs-midway':
      stream().end(
        BEGINNINGS[format].map(([event, data]) => frame(event, data)).join('') + errorFrame(format),
      )
      break
    case 'nonsense':
      stream().end(`data: {"${KEY}": \n\n`)
      break
  }
})
const { port } = await listening(upstream, t)

const slug = (format: string, behaviour: string) => `p-${format}-${behaviour}`
const pairs = FORMATS.flatMap(format => BEHAVIOURS.map(behaviour => ({ format, behaviour })))
const gateway = await startGateway({
  providers: pairs.map(({ format, behaviour }) => ({
    slug: slug(format, behaviour),
    format,
    baseUrl: `http://127.0.0.1:${port}/${format}/${behaviour}`,
    apiKey: KEY,
  })),
  models: pairs.map(({ format, behaviour }) => ({
    id: `leaky/${slug(format, behaviour)}`,
    endpoints: [{ provider: slug(format, behaviour) }],
  })),
})
t.teardown(() => gateway.close())

for (const { format, behaviour } of pairs) {
  for (const stream of [false, true]) {
    t.test(`${format} ${behaviour}, ${stream ? 'streamed' : 'whole'}`, async t => {
      const reply = await gateway.respond(
        {
          model: `leaky/${slug(format, behaviour)}`,
          input: 'hi',
          stream,
          debug: { echo_upstream_body: true },
        },
        { headers: { 'x-gateway-metadata': 'enabled' } },
      )
      const text = await reply.text()
      t.match(text, /"error_type"/, 'the failure is told')
      // A piece of the key is a leak as well.
      for (const piece of [KEY, KEY.slice(0, 20), KEY.slice(-20)]) t.notMatch(text, piece)
    })
  }
}

t.test('the log has no trace of it', async t => {
  t.ok(gateway.lines.length >= pairs.length * 2)
  t.notMatch(JSON.stringify(gateway.lines), KEY.slice(0, 20))
})
