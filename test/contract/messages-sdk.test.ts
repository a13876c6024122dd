/** The official Anthropic client, unchanged, against POST /messages: only its base URL and key are set. */
import Anthropic, {
  APIError,
  AuthenticationError,
  BadRequestError,
  ContentTooLargeError,
  InternalServerError,
  NotFoundError,
  RateLimitError,
} from '@anthropic-ai/sdk'
import { betaTool } from '@anthropic-ai/sdk/helpers/beta/json-schema'
import { jsonSchemaOutputFormat } from '@anthropic-ai/sdk/helpers/json-schema'
import t from 'tap'
import { simModel } from '../../src/sim/rows.ts'
import { startGateway } from '../support/gateway.ts'
import { FORMATS, firstPart, parrotRows, pieces, speaking, startParrot } from '../support/parrot.ts'

const parrot = await startParrot(t)
const rows = parrotRows(parrot.url)
/** Never over while a test looks. */
const endless = FORMATS.map(format => simModel('write-100000-20', format))
const failing = [413, 429, 500, 503].map(status => simModel(`fail-status-${status}`, 'anthropic-messages'))
const gateway = await startGateway({ ...rows, models: [...rows.models, ...endless, ...failing] })
t.teardown(() => gateway.close())

/** The client adds `/v1/messages` by itself. */
const baseURL = `http://127.0.0.1:${gateway.port}`
const client = new Anthropic({ baseURL, apiKey: gateway.apiKey, maxRetries: 0 })
const PREFIXES = ['', 'chat-', 'messages-', 'gemini-'] as const
const ID = /^gen-\d+-\w{20}$/
const LIMIT = 4000

const user = (content: string) => [{ role: 'user' as const, content }]
const PERSON = {
  type: 'object',
  properties: { name: { type: 'string' }, age: { type: 'integer' } },
  required: ['name', 'age'],
  additionalProperties: false,
} as const
const CITY = {
  type: 'object',
  properties: { city: { type: 'string' } },
  required: ['city'],
  additionalProperties: false,
} as const
const WEATHER: Anthropic.Tool = {
  name: 'get_weather',
  description: 'Weather of a place',
  input_schema: { ...CITY, required: ['city'] },
}
const DOT = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='
const PDF = Buffer.from('%PDF-1.4\n%%EOF').toString('base64')

/** What a call throws. */
const thrownBy = (work: Promise<unknown>): Promise<unknown> =>
  work.then(
    () => null,
    (thrown: unknown) => thrown,
  )

const said = ({ content }: { readonly content: readonly { readonly type: string }[] }): string =>
  content.map(block => (block.type === 'text' && 'text' in block ? block.text : '')).join('')

for (const prefix of PREFIXES) {
  const named = (model: string) => `sim/${prefix}${model}`
  const over = (model: string) => `${prefix || 'responses-'}${model}`
  const asking = (model: string, content: string) => ({
    model: named(model),
    max_tokens: LIMIT,
    messages: user(content),
  })

  t.test(`create answers over ${over('echo')}`, async t => {
    const message = await client.messages.create(asking('echo', 'Grüße, 世界 👋🏽'))
    t.match(message, {
      id: ID,
      type: 'message',
      role: 'assistant',
      model: named('echo'),
      content: [{ type: 'text', text: 'Grüße, 世界 👋🏽', citations: null }],
      stop_reason: 'end_turn',
      stop_sequence: null,
      usage: { input_tokens: Number, output_tokens: Number, service_tier: 'standard' },
    })
    t.match(message._request_id, ID, 'the header that the client reads')
  })

  t.test(`create with stream iterates events over ${over('echo')}`, async t => {
    const stream = await client.messages.create({ ...asking('echo', 'Hello there'), stream: true })
    const events: Anthropic.RawMessageStreamEvent[] = []
    for await (const event of stream) events.push(event)
    t.equal(events[0]?.type, 'message_start')
    t.equal(events.at(-1)?.type, 'message_stop')
    const text = events.map(event =>
      event.type === 'content_block_delta' && event.delta.type === 'text_delta' ? event.delta.text : '',
    )
    t.equal(text.join(''), 'Hello there')
    t.match(events.at(-2), {
      type: 'message_delta',
      delta: { stop_reason: 'end_turn' },
      usage: { input_tokens: Number, output_tokens: Number },
    })
  })

  t.test(`the stream helper tells its events over ${over('echo')}`, async t => {
    const stream = client.messages.stream(asking('echo', 'One two three'))
    let text = ''
    const told: string[] = []
    stream.on('text', delta => {
      text += delta
    })
    stream.on('contentBlock', block => void told.push(block.type))
    stream.on('message', message => void told.push(message.type))
    const final = await stream.finalMessage()
    t.equal(text, 'One two three')
    t.same(told, ['text', 'message'])
    t.equal(await stream.finalText(), 'One two three')
    t.ok(final.usage.input_tokens > 0 && final.usage.output_tokens > 0)
    t.match(stream.request_id, ID)
  })

  t.test(`the stream helper tells thoughts over ${over('reason')}`, async t => {
    const stream = client.messages.stream({
      ...asking('reason', 'hi'),
      thinking: { type: 'enabled', budget_tokens: 1024 },
    })
    let thinking = ''
    stream.on('thinking', delta => {
      thinking += delta
    })
    const final = await stream.finalMessage()
    t.not(thinking, '')
    t.match(final.content, [
      { type: 'thinking', thinking, signature: String },
      { type: 'text', text: 'hi' },
    ])
  })

  t.test(`the stream helper gathers parallel calls over ${over('call-2')}`, async t => {
    const stream = client.messages.stream({ ...asking('call-2', 'Lisbon?'), tools: [WEATHER] })
    const final = await stream.finalMessage()
    const calls = final.content.filter(block => block.type === 'tool_use')
    t.equal(final.stop_reason, 'tool_use')
    t.equal(calls.length, 2)
    t.equal(new Set(calls.map(call => call.id)).size, 2)
    for (const call of calls) t.match(call, { name: 'get_weather', input: { city: String } })
  })

  t.test(`parse reads structured output over ${over('json')}`, async t => {
    const body = { ...asking('json', 'Anna'), output_config: { format: jsonSchemaOutputFormat(PERSON) } }
    const parsed = await client.messages.parse(body)
    t.match(parsed.parsed_output, { name: String, age: Number })
    const streamed = await client.messages.stream(body).finalMessage()
    t.match(streamed.parsed_output, { name: String, age: Number })
  })

  t.test(`leaving a stream ends the call of the provider over ${over('write')}`, async t => {
    const { closedEarly } = gateway.sim.state
    const stream = client.messages.stream(asking('write-100000-20', 'go'))
    for await (const event of stream) if (event.type === 'content_block_delta') break
    await gateway.sim.until(state => state.closedEarly > closedEarly)
    t.equal(stream.aborted, true)
  })
}

for (const format of FORMATS) {
  for (const stream of [false, true]) {
    const how = stream ? 'streamed' : 'whole'
    t.test(`toolRunner answers parallel calls of two functions over ${format}, ${how}`, async t => {
      const ran: string[] = []
      const tool = (name: string) =>
        betaTool({
          name,
          description: `Asks for ${name}`,
          inputSchema: CITY,
          run: ({ city }) => {
            ran.push(`${name} ${city}`)
            if (ran.length === 2) parrot.parts = speaking('It is ', 'late and warm.')
            return `the ${name} of ${city}`
          },
        })
      const call = (name: string, ...list: readonly string[]) =>
        ({ kind: 'call', name, custom: false, pieces: pieces(...list) }) as const
      parrot.parts = [
        ...speaking('Let me look.'),
        call('weather', '{"city"', ':"Lisbon"}'),
        call('time', '{"city":"Oslo"}'),
      ]
      const runner = client.beta.messages.toolRunner({
        model: `parrot/${format}`,
        max_tokens: LIMIT,
        messages: user('Weather in Lisbon, time in Oslo?'),
        tools: [tool('weather'), tool('time')],
        stream,
      })
      const final = await runner.runUntilDone()
      t.equal(said(final), 'It is late and warm.')
      t.same(ran, ['weather Lisbon', 'time Oslo'])
      const asked = parrot.bodies.at(-1) ?? ''
      for (const word of ['Let me look.', 'the weather of Lisbon', 'the time of Oslo']) t.match(asked, word)
    })
  }
}

/** What a provider is sent for the parts of one user message, by format. */
const SHOWN: readonly {
  readonly name: string
  readonly block: Anthropic.ContentBlockParam
  readonly forms: Readonly<Record<string, unknown>>
}[] = [
  {
    name: 'an image',
    block: { type: 'image', source: { type: 'base64', media_type: 'image/png', data: DOT } },
    forms: {
      'openai-responses': { image_url: `data:image/png;base64,${DOT}` },
      'openai-chat': { image_url: { url: `data:image/png;base64,${DOT}` } },
      'anthropic-messages': { source: { type: 'base64', media_type: 'image/png', data: DOT } },
      'google-gemini': { inlineData: { mimeType: 'image/png', data: DOT } },
    },
  },
  {
    name: 'a PDF file',
    block: {
      type: 'document',
      source: { type: 'base64', media_type: 'application/pdf', data: PDF },
      title: 'paper.pdf',
    },
    forms: {
      'openai-responses': { file_data: `data:application/pdf;base64,${PDF}`, filename: 'paper.pdf' },
      'openai-chat': { file: { file_data: `data:application/pdf;base64,${PDF}`, filename: 'paper.pdf' } },
      'anthropic-messages': { source: { media_type: 'application/pdf', data: PDF }, title: 'paper.pdf' },
      'google-gemini': { inlineData: { mimeType: 'application/pdf', data: PDF } },
    },
  },
  {
    name: 'a document of plain text',
    block: { type: 'document', source: { type: 'text', media_type: 'text/plain', data: 'Okapis are shy.' } },
    forms: {
      'openai-responses': { type: 'input_text', text: 'Okapis are shy.' },
      'openai-chat': { type: 'text', text: 'Okapis are shy.' },
      'anthropic-messages': { type: 'document', source: { type: 'text', data: 'Okapis are shy.' } },
      'google-gemini': { text: 'Okapis are shy.' },
    },
  },
]

for (const { name, block, forms } of SHOWN) {
  t.test(`${name} reaches each provider in its own form`, async t => {
    for (const [format, form] of Object.entries(forms)) {
      parrot.parts = speaking('A dot')
      const message = await client.messages.create({
        model: `parrot/${format}`,
        max_tokens: LIMIT,
        messages: [{ role: 'user', content: [block, { type: 'text', text: 'Look' }] }],
      })
      t.equal(said(message), 'A dot')
      t.match(firstPart(parrot), form, format)
    }
  })
}

t.test('a thought with its signature goes back in the next turn', async t => {
  for (const format of FORMATS) {
    parrot.parts = [
      { kind: 'reasoning', form: 'text', pieces: pieces('They ', 'greet.') },
      ...speaking('Hello'),
    ]
    const asking = {
      model: `parrot/${format}`,
      max_tokens: LIMIT,
      thinking: { type: 'enabled' as const, budget_tokens: 1024 },
    }
    const first = await client.messages.stream({ ...asking, messages: user('Hi') }).finalMessage()
    t.match(first.content[0], { type: 'thinking', thinking: 'They greet.' }, format)
    const messages = [...user('Hi'), { role: 'assistant' as const, content: first.content }, ...user('And?')]
    await client.messages.create({ ...asking, messages })
    const body = JSON.parse(parrot.bodies.at(-1) ?? '') as { messages?: { content: unknown[] }[] }
    if (format !== 'anthropic-messages') continue
    const [thought] = first.content as { signature?: string }[]
    // Its maker stands before it, which is nothing to the provider.
    const signature = thought?.signature?.replace(/^gwm1\.[\w-]+\./, '')
    t.not(signature, thought?.signature)
    t.match(body.messages?.[1]?.content[0], { ...thought, signature })
    t.match(body, { thinking: asking.thinking })
  }
})

t.test('failures are the classes that the client has for them', async t => {
  const stranger = new Anthropic({ baseURL, apiKey: 'sk-wrong', maxRetries: 0 })
  const body = { model: 'sim/echo', max_tokens: LIMIT, messages: user('hi') }
  const create = (more: object) => () => client.messages.create({ ...body, ...more })
  const failures: readonly [() => Promise<unknown>, new (...args: never) => Error, object][] = [
    [
      () => stranger.messages.create(body),
      AuthenticationError,
      { status: 401, type: 'authentication_error' },
    ],
    [create({ temperature: 7 }), BadRequestError, { status: 400, type: 'invalid_request_error' }],
    [
      create({ model: 'sim/messages-fail-status-413' }),
      ContentTooLargeError,
      { status: 413, type: 'request_too_large' },
    ],
    [create({ provider: { only: ['nobody'] } }), NotFoundError, { status: 404, type: 'not_found_error' }],
    [
      create({ model: 'sim/messages-fail-status-429' }),
      RateLimitError,
      { status: 429, type: 'rate_limit_error' },
    ],
    [
      create({ model: 'sim/messages-fail-status-503' }),
      InternalServerError,
      { status: 503, type: 'api_error' },
    ],
    [
      create({ model: 'sim/messages-fail-status-500' }),
      InternalServerError,
      { status: 502, type: 'api_error' },
    ],
  ]
  for (const [work, kind, shows] of failures) {
    const error = await thrownBy(work())
    t.ok(error instanceof kind, kind.name)
    t.match(error, { ...shows, apiMessage: String })
    const { requestID, error: envelope } = error as APIError
    t.match(requestID, /./)
    t.match(envelope, { type: 'error', error: { error_type: String } })
  }
  const path = (await thrownBy(
    create({ messages: [{ role: 'user', content: [{ type: 'text', text: 7 }] }] })(),
  )) as APIError
  t.match(path.message, 'messages[0].content[0].text')
  const limited = (await thrownBy(create({ model: 'sim/messages-fail-status-429' })())) as APIError
  t.match(limited.headers?.get('retry-after'), /^\d+$/)
  const thread = (await thrownBy(create({ thread: { id: 'x' } })())) as APIError
  t.match(thread, { status: 400, errorCode: String }, 'a code that the client reads')
})

t.test('a failure in mid-stream is thrown by the client', async t => {
  for (const prefix of PREFIXES) {
    const stream = client.messages.stream({
      model: `sim/${prefix}fail-error-in-stream`,
      max_tokens: LIMIT,
      messages: user('hi'),
    })
    let text = ''
    stream.on('text', delta => {
      text += delta
    })
    const error = await thrownBy(stream.done())
    t.ok(error instanceof APIError, prefix)
    t.match(error, { type: String, error: { type: 'error', error: { message: String } } })
    t.not(text, '')
  }
})

t.test('tokens are counted, and said to be an estimate', async t => {
  const counted = await client.messages.countTokens({ model: 'sim/echo', messages: user('Hello there') })
  t.match(counted, { input_tokens: Number, estimated: true })
  const longer = await client.beta.messages.countTokens({
    model: 'sim/echo',
    messages: user('Hello there '.repeat(50)),
    system: 'Be brief',
    tools: [WEATHER],
  })
  t.ok(longer.input_tokens > counted.input_tokens + 50)
  const error = await thrownBy(client.messages.countTokens({ model: 'nobody/none', messages: user('x') }))
  t.ok(error instanceof NotFoundError)
})

t.test('either kind of key, and flags of the client, are accepted', async t => {
  const bearer = new Anthropic({ baseURL, apiKey: null, authToken: gateway.apiKey, maxRetries: 0 })
  const body = { model: 'parrot/anthropic-messages', max_tokens: LIMIT, messages: user('hi') }
  parrot.parts = speaking('fine')
  t.equal(said(await bearer.messages.create(body)), 'fine')
  const flagged = await client.beta.messages.create({ ...body, betas: ['context-1m-2025-08-07'] })
  t.equal(said(flagged), 'fine')
  const api = new Anthropic({ baseURL: `${baseURL}/api`, apiKey: gateway.apiKey, maxRetries: 0 })
  t.equal(said(await api.messages.create(body)), 'fine', 'the other prefix')
})

t.test('fields that the client does not know reach the gateway through its body', async t => {
  const message = await client.messages.create({
    model: 'sim/messages-fail-status-503',
    max_tokens: LIMIT,
    messages: user('hi'),
    fallbacks: [{ model: 'sim/messages-echo' }],
    session_id: 'one',
  } as Anthropic.MessageCreateParamsNonStreaming)
  t.match(message, { model: 'sim/messages-echo', content: [{ text: 'hi' }] })
})
