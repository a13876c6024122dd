/** The official OpenAI client, unchanged, against POST /chat/completions: only its base URL and key are set. */
import OpenAI, { APIError, AuthenticationError, BadRequestError, NotFoundError, RateLimitError } from 'openai'
import { makeParseableResponseFormat } from 'openai/lib/parser'
import t from 'tap'
import { simModel } from '../../src/sim/rows.ts'
import { startGateway } from '../support/gateway.ts'
import { FORMATS, parrotRows, pieces, speaking, startParrot } from '../support/parrot.ts'

const parrot = await startParrot(t)
const rows = parrotRows(parrot.url)
/** Never over while a test looks. */
const endless = FORMATS.map(format => simModel('write-100000-20', format))
const failing = [413, 429, 500, 503].map(status => simModel(`fail-status-${status}`, 'openai-chat'))
const gateway = await startGateway({ ...rows, models: [...rows.models, ...endless, ...failing] })
t.teardown(() => gateway.close())

const client = new OpenAI({ baseURL: gateway.url, apiKey: gateway.apiKey, maxRetries: 0 })
const chat = client.chat.completions
const PREFIXES = ['', 'chat-', 'messages-', 'gemini-'] as const
const ID = /^gen-\d+-\w{20}$/

const user = (content: string) => [{ role: 'user' as const, content }]
const PERSON = {
  type: 'json_schema' as const,
  json_schema: {
    name: 'person',
    strict: true,
    schema: {
      type: 'object',
      properties: { name: { type: 'string' }, age: { type: 'integer' } },
      required: ['name', 'age'],
      additionalProperties: false,
    },
  },
}
const CITY = {
  type: 'object',
  properties: { city: { type: 'string' } },
  required: ['city'],
  additionalProperties: false,
}
const WEATHER = {
  type: 'function' as const,
  function: { name: 'get_weather', description: 'Weather of a place', parameters: CITY, strict: true },
}

/** What a call throws. */
const thrownBy = (work: Promise<unknown>): Promise<unknown> =>
  work.then(
    () => null,
    (thrown: unknown) => thrown,
  )

for (const prefix of PREFIXES) {
  const named = (model: string) => `sim/${prefix}${model}`
  const over = (model: string) => `${prefix || 'responses-'}${model}`

  t.test(`create answers over ${over('echo')}`, async t => {
    const completion = await chat.create({ model: named('echo'), messages: user('Grüße, 世界 👋🏽') })
    t.match(completion, {
      id: ID,
      object: 'chat.completion',
      created: Number,
      model: named('echo'),
      choices: [
        {
          index: 0,
          finish_reason: 'stop',
          message: { role: 'assistant', content: 'Grüße, 世界 👋🏽', refusal: null },
        },
      ],
      usage: { prompt_tokens: Number, completion_tokens: Number, total_tokens: Number },
    })
    t.equal(completion.choices.length, 1)
  })

  t.test(`create with stream iterates chunks over ${over('echo')}`, async t => {
    const stream = await chat.create({ model: named('echo'), messages: user('Hello there'), stream: true })
    const chunks: OpenAI.ChatCompletionChunk[] = []
    for await (const chunk of stream) chunks.push(chunk)
    t.equal(new Set(chunks.map(({ id, model, created }) => `${id} ${model} ${created}`)).size, 1)
    t.equal(chunks.map(chunk => chunk.choices[0]?.delta.content ?? '').join(''), 'Hello there')
    t.equal(chunks.filter(chunk => chunk.choices[0]?.finish_reason != null).length, 1)
    t.same(chunks.at(-1)?.choices, [])
    t.match(chunks.at(-1)?.usage, {
      total_tokens: Number,
      prompt_tokens_details: {},
      completion_tokens_details: {},
    })
  })

  t.test(`the stream helper tells its events over ${over('echo')}`, async t => {
    const stream = chat.stream({ model: named('echo'), messages: user('One two three') })
    const told: string[] = []
    let said = ''
    stream.on('content', delta => {
      said += delta
    })
    stream.on('content.delta', () => void told.push('delta'))
    stream.on('content.done', ({ content }) => void told.push(content))
    const final = await stream.finalChatCompletion()
    t.equal(said, 'One two three')
    t.equal(told.at(-1), 'One two three')
    t.equal(told[0], 'delta')
    t.equal(final.choices[0]?.message.content, 'One two three')
    t.match(await stream.totalUsage(), { total_tokens: Number })
  })

  t.test(`the stream helper gathers parallel calls over ${over('call-2')}`, async t => {
    const stream = chat.stream({ model: named('call-2'), messages: user('Lisbon?'), tools: [WEATHER] })
    const done: string[] = []
    stream.on('tool_calls.function.arguments.done', ({ name, index }) => void done.push(`${name} ${index}`))
    const final = await stream.finalChatCompletion()
    const calls = final.choices[0]?.message.tool_calls ?? []
    t.equal(final.choices[0]?.finish_reason, 'tool_calls')
    t.equal(calls.length, 2)
    t.equal(new Set(calls.map(call => call.id)).size, 2)
    for (const call of calls) {
      if (call.type !== 'function') throw new Error('no function')
      t.match(JSON.parse(call.function.arguments), { city: String })
    }
    t.same(done, ['get_weather 0', 'get_weather 1'])
  })

  t.test(`parse reads structured output over ${over('json')}`, async t => {
    const format = makeParseableResponseFormat<{ name: string; age: number }>(PERSON, text =>
      JSON.parse(text),
    )
    const body = { model: named('json'), messages: user('Anna'), response_format: format }
    const parsed = await chat.parse(body)
    t.match(parsed.choices[0]?.message.parsed, { name: String, age: Number })
    const streamed = await chat.stream(body).finalChatCompletion()
    t.match(streamed.choices[0]?.message.parsed, { name: String, age: Number })
  })

  t.test(`leaving a stream ends the call of the provider over ${over('write')}`, async t => {
    const { closedEarly } = gateway.sim.state
    const stream = await chat.create({ model: named('write-100000-20'), messages: user('go'), stream: true })
    for await (const chunk of stream) if (chunk.choices[0]?.delta.content) break
    await gateway.sim.until(state => state.closedEarly > closedEarly)
    t.equal(stream.controller.signal.aborted, true)
  })
}

for (const format of FORMATS) {
  for (const stream of [false, true]) {
    const how = stream ? 'streamed' : 'whole'
    t.test(`runTools answers parallel calls of two functions over ${format}, ${how}`, async t => {
      const ran: string[] = []
      const tool = (name: string) => ({
        type: 'function' as const,
        function: {
          name,
          description: `Asks for ${name}`,
          parameters: CITY,
          parse: (text: string) => JSON.parse(text) as { city: string },
          function: ({ city }: { city: string }) => {
            ran.push(`${name} ${city}`)
            if (ran.length === 2) parrot.parts = speaking('It is ', 'late and warm.')
            return `the ${name} of ${city}`
          },
        },
      })
      const call = (name: string, ...list: readonly string[]) =>
        ({ kind: 'call', name, custom: false, pieces: pieces(...list) }) as const
      parrot.parts = [
        ...speaking('Let me look.'),
        call('weather', '{"city"', ':"Lisbon"}'),
        call('time', '{"city":"Oslo"}'),
      ]
      const body = {
        model: `parrot/${format}`,
        messages: user('Weather in Lisbon, time in Oslo?'),
        tools: [tool('weather'), tool('time')],
      }
      const runner = stream ? chat.runTools({ ...body, stream: true }) : chat.runTools(body)
      t.equal(await runner.finalContent(), 'It is late and warm.')
      t.same(ran, ['weather Lisbon', 'time Oslo'])
      t.same(
        runner.messages.map(({ role }) => role),
        ['user', 'assistant', 'tool', 'tool', 'assistant'],
      )
      const asked = parrot.bodies.at(-1) ?? ''
      for (const said of ['Let me look.', 'the weather of Lisbon', 'the time of Oslo']) t.match(asked, said)
    })
  }
}

t.test('an image reaches the provider in its own form', async t => {
  const data =
    'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='
  const forms: Record<string, unknown> = {
    'openai-responses': {
      input: [{ content: [{ type: 'input_text' }, { image_url: `data:image/png;base64,${data}` }] }],
    },
    'openai-chat': {
      messages: [
        {
          content: [{ type: 'text' }, { image_url: { url: `data:image/png;base64,${data}`, detail: 'low' } }],
        },
      ],
    },
    'anthropic-messages': {
      messages: [
        { content: [{ type: 'text' }, { source: { type: 'base64', media_type: 'image/png', data } }] },
      ],
    },
    'google-gemini': {
      contents: [{ parts: [{ text: 'Look' }, { inlineData: { mimeType: 'image/png', data } }] }],
    },
  }
  for (const [format, form] of Object.entries(forms)) {
    parrot.parts = speaking('A dot')
    const completion = await chat.create({
      model: `parrot/${format}`,
      messages: [
        {
          role: 'user',
          content: [
            { type: 'text', text: 'Look' },
            { type: 'image_url', image_url: { url: `data:image/png;base64,${data}`, detail: 'low' } },
          ],
        },
      ],
    })
    t.equal(completion.choices[0]?.message.content, 'A dot')
    t.match(JSON.parse(parrot.bodies.at(-1) ?? ''), form, format)
  }
})

t.test('failures are the classes that the client has for them', async t => {
  const stranger = new OpenAI({ baseURL: gateway.url, apiKey: 'sk-wrong', maxRetries: 0 })
  const body = { model: 'sim/echo', messages: user('hi') }
  const failures: readonly [Promise<unknown>, typeof APIError<number>, object][] = [
    [stranger.chat.completions.create(body), AuthenticationError, { status: 401, type: 'authentication' }],
    [
      chat.create({ ...body, temperature: 7 }),
      BadRequestError,
      { status: 400, type: 'invalid_request', param: 'temperature', code: 400 },
    ],
    [
      chat.create({ ...body, messages: [{ role: 'user', content: [{ type: 'text', text: 7 as never }] }] }),
      BadRequestError,
      { status: 400, param: 'messages[0].content[0].text' },
    ],
    [
      chat.create({ ...body, provider: { only: ['nobody'] } } as typeof body),
      NotFoundError,
      { status: 404, type: 'not_found' },
    ],
    [
      chat.create({ ...body, model: 'sim/chat-fail-status-429' }),
      RateLimitError,
      { status: 429, type: 'rate_limit_exceeded' },
    ],
    [
      chat.create({ ...body, model: 'sim/chat-fail-status-413' }),
      APIError,
      { status: 413, type: 'payload_too_large' },
    ],
    [
      chat.create({ ...body, model: 'sim/chat-fail-status-503' }),
      APIError,
      { status: 503, type: 'provider_overloaded' },
    ],
    [
      chat.create({ ...body, model: 'sim/chat-fail-status-500' }),
      APIError,
      { status: 502, type: 'provider_unavailable' },
    ],
  ]
  for (const [work, kind, shows] of failures) {
    const error = await thrownBy(work)
    t.ok(error instanceof kind, kind.name)
    t.match(error, shows)
    t.match((error as APIError).headers?.get('x-request-id'), /./)
  }
  const limited = (await thrownBy(chat.create({ ...body, model: 'sim/chat-fail-status-429' }))) as APIError
  t.match(limited.headers?.get('retry-after'), /^\d+$/)
})

t.test('a failure in mid-stream is thrown by the client', async t => {
  for (const prefix of PREFIXES) {
    const stream = await chat.create({
      model: `sim/${prefix}fail-error-in-stream`,
      messages: user('hi'),
      stream: true,
    })
    let said = ''
    const error = await thrownBy(
      (async () => {
        for await (const chunk of stream) said += chunk.choices[0]?.delta.content ?? ''
      })(),
    )
    t.ok(error instanceof APIError, prefix)
    t.not(said, '')
  }
})

t.test('fields that the client does not know reach the gateway through its body', async t => {
  const completion = await chat.create({
    model: 'sim/chat-reason',
    messages: user('hi'),
    reasoning: { effort: 'low', exclude: true },
    session_id: 'one',
  } as unknown as OpenAI.ChatCompletionCreateParamsNonStreaming)
  t.match(completion.choices[0]?.message, { content: 'hi', reasoning: null })
})
