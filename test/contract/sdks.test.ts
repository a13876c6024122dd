/**
 * The official clients of OpenAI, Anthropic and Google, unchanged, against the doors of their APIs: only their base
 * URL and key are set. What all of them do; what only one does is in the test of that client.
 */
import Anthropic, * as anthropic from '@anthropic-ai/sdk'
import { betaTool } from '@anthropic-ai/sdk/helpers/beta/json-schema'
import { jsonSchemaOutputFormat } from '@anthropic-ai/sdk/helpers/json-schema'
import { ApiError, GoogleGenAI, Type } from '@google/genai'
import OpenAI, * as openai from 'openai'
import { makeParseableResponseFormat } from 'openai/lib/parser'
import t from 'tap'
import { FORMATS, firstPart, pieces, speaking } from '../support/provider.ts'
import { CITY, DOT, ENDLESS, ID, PREFIXES, startSdkWorld, thrownBy } from '../support/world.ts'

const { gateway, parrot } = await startSdkWorld(t)

type Tap = Pick<typeof t, 'equal' | 'match' | 'not' | 'ok' | 'same'>
type Kind = new (...parameters: never[]) => Error
type Parts = Readonly<Record<(typeof FORMATS)[number], object>>

interface Call {
  readonly id?: unknown
  readonly name?: unknown
  readonly input?: unknown
}

interface Sdk {
  readonly name: string
  create(model: string, text: string): Promise<{ readonly answer: object; readonly said: unknown }>
  /** What such an answer has. */
  known(model: string): object
  /** What a stream says, over whose pieces the client iterates; checks their order and their end. */
  stream(t: Tap, model: string, text: string): Promise<string>
  calls(t: Tap, model: string): Promise<readonly Call[]>
  /** A person with name and age, each way in which the client asks for one. */
  parse(model: string): Promise<readonly unknown[]>
  /** Leaves a stream after its first text; whether its client then says so, once the provider was left. */
  leave(model: string): Promise<() => boolean>
  /** Asks with two tools and runs their calls, until the model has said its last. */
  runTools(
    t: Tap,
    model: string,
    stream: boolean,
    run: (name: string, city: string) => string,
  ): Promise<unknown>
  /** What the answer says to this part and the text "Look". */
  show(model: string, part: object): Promise<unknown>
  readonly shown: readonly { readonly name: string; readonly part: object; readonly forms: Parts }[]
  readonly failures: readonly (readonly [work: () => Promise<unknown>, kind: Kind, shows: object])[]
  failed(t: Tap, error: unknown): void
  /** Its wait is told. */
  limited(t: Tap): Promise<void>
  /** What a stream says before it fails. */
  breaksOff(model: string): Promise<{ readonly said: string; readonly error: unknown }>
  brokenOff(t: Tap, error: unknown, how: string): void
}

const user = (content: string) => [{ role: 'user' as const, content }]
const TOOLS = ['weather', 'time'] as const
const QUESTION = 'Weather in Lisbon, time in Oslo?'
const PERSON = {
  type: 'object',
  properties: { name: { type: 'string' }, age: { type: 'integer' } },
  required: ['name', 'age'],
  additionalProperties: false,
} as const
const PDF = Buffer.from('%PDF-1.4\n%%EOF').toString('base64')
const PDF_URL = `data:application/pdf;base64,${PDF}`
const DOT_URL = `data:image/png;base64,${DOT}`

/** What a provider is sent, by format. */
const IMAGE_FORMS = {
  'openai-responses': { image_url: DOT_URL },
  'openai-chat': { image_url: { url: DOT_URL } },
  'anthropic-messages': { source: { type: 'base64', media_type: 'image/png', data: DOT } },
  'google-gemini': { inlineData: { mimeType: 'image/png', data: DOT } },
}
const PDF_FORMS = {
  'openai-responses': { file_data: PDF_URL, filename: 'paper.pdf' },
  'openai-chat': { file: { file_data: PDF_URL, filename: 'paper.pdf' } },
  'anthropic-messages': { source: { media_type: 'application/pdf', data: PDF }, title: 'paper.pdf' },
  'google-gemini': { inlineData: { mimeType: 'application/pdf', data: PDF } },
}

function openaiSdk(): Sdk {
  const chat = new OpenAI({ baseURL: gateway.url, apiKey: gateway.apiKey, maxRetries: 0 }).chat.completions
  const stranger = new OpenAI({ baseURL: gateway.url, apiKey: 'sk-wrong', maxRetries: 0 }).chat.completions
  const said = ({ choices: [choice] }: OpenAI.ChatCompletion) => choice?.message.content
  const body = { model: 'sim/echo', messages: user('hi') }
  const create = (more: object) => () => chat.create({ ...body, ...more })
  return {
    name: 'openai',
    async create(model, text) {
      const answer = await chat.create({ model, messages: user(text) })
      return { answer, said: said(answer) }
    },
    known: model => ({
      id: ID,
      object: 'chat.completion',
      created: Number,
      model,
      choices: {
        length: 1,
        0: { index: 0, finish_reason: 'stop', message: { role: 'assistant', refusal: null } },
      },
      usage: { prompt_tokens: Number, completion_tokens: Number, total_tokens: Number },
    }),
    async stream(t, model, text) {
      const chunks: OpenAI.ChatCompletionChunk[] = []
      for await (const chunk of await chat.create({ model, messages: user(text), stream: true }))
        chunks.push(chunk)
      t.equal(new Set(chunks.map(({ id, model, created }) => `${id} ${model} ${created}`)).size, 1)
      t.equal(chunks.filter(chunk => chunk.choices[0]?.finish_reason != null).length, 1)
      t.same(chunks.at(-1)?.choices, [])
      t.match(chunks.at(-1)?.usage, {
        total_tokens: Number,
        prompt_tokens_details: {},
        completion_tokens_details: {},
      })
      return chunks.map(chunk => chunk.choices[0]?.delta.content ?? '').join('')
    },
    async calls(t, model) {
      const weather = {
        name: 'get_weather',
        description: 'Weather of a place',
        parameters: CITY,
        strict: true,
      }
      const tools = [{ type: 'function' as const, function: weather }]
      const stream = chat.stream({ model, messages: user('Lisbon?'), tools })
      const done: string[] = []
      stream.on('tool_calls.function.arguments.done', ({ name, index }) => void done.push(`${name} ${index}`))
      const [choice] = (await stream.finalChatCompletion()).choices
      t.equal(choice?.finish_reason, 'tool_calls')
      t.same(done, ['get_weather 0', 'get_weather 1'])
      return (choice?.message.tool_calls ?? []).map(call => {
        if (call.type !== 'function') throw new Error('no function')
        return { id: call.id, name: call.function.name, input: JSON.parse(call.function.arguments) }
      })
    },
    async parse(model) {
      const format = makeParseableResponseFormat<{ name: string; age: number }>(
        { type: 'json_schema', json_schema: { name: 'person', strict: true, schema: PERSON } },
        text => JSON.parse(text),
      )
      const asking = { model, messages: user('Anna'), response_format: format }
      const whole = await chat.parse(asking)
      const streamed = await chat.stream(asking).finalChatCompletion()
      return [whole, streamed].map(({ choices: [choice] }) => choice?.message.parsed)
    },
    async leave(model) {
      const stream = await chat.create({ model, messages: user('go'), stream: true })
      for await (const chunk of stream) if (chunk.choices[0]?.delta.content) break
      return () => stream.controller.signal.aborted
    },
    async runTools(t, model, stream, run) {
      const tools = TOOLS.map((name: string) => ({
        type: 'function' as const,
        function: {
          name,
          description: `Asks for ${name}`,
          parameters: { ...CITY, required: ['city'] },
          parse: (text: string) => JSON.parse(text) as { city: string },
          function: ({ city }: { city: string }) => run(name, city),
        },
      }))
      const asking = { model, messages: user(QUESTION), tools }
      const runner = stream ? chat.runTools({ ...asking, stream: true }) : chat.runTools(asking)
      const final = await runner.finalContent()
      t.same(
        runner.messages.map(({ role }) => role),
        ['user', 'assistant', 'tool', 'tool', 'assistant'],
      )
      return final
    },
    async show(model, part) {
      const content = [part as OpenAI.ChatCompletionContentPart, { type: 'text' as const, text: 'Look' }]
      return said(await chat.create({ model, messages: [{ role: 'user', content }] }))
    },
    shown: [
      {
        name: 'an image',
        part: { type: 'image_url', image_url: { url: DOT_URL, detail: 'low' } },
        forms: { ...IMAGE_FORMS, 'openai-chat': { image_url: { url: DOT_URL, detail: 'low' } } },
      },
      {
        name: 'a PDF file',
        part: { type: 'file', file: { file_data: PDF_URL, filename: 'paper.pdf' } },
        forms: PDF_FORMS,
      },
    ],
    failures: [
      [() => stranger.create(body), openai.AuthenticationError, { status: 401, type: 'authentication' }],
      [
        create({ temperature: 7 }),
        openai.BadRequestError,
        { status: 400, type: 'invalid_request', param: 'temperature', code: 400 },
      ],
      [
        create({ messages: [{ role: 'user', content: [{ type: 'text', text: 7 }] }] }),
        openai.BadRequestError,
        { status: 400, param: 'messages[0].content[0].text' },
      ],
      [create({ provider: { only: ['nobody'] } }), openai.NotFoundError, { status: 404, type: 'not_found' }],
      [
        create({ model: 'sim/chat-fail-status-429' }),
        openai.RateLimitError,
        { status: 429, type: 'rate_limit_exceeded' },
      ],
      [
        create({ model: 'sim/chat-fail-status-413' }),
        openai.APIError,
        { status: 413, type: 'payload_too_large' },
      ],
      [
        create({ model: 'sim/chat-fail-status-503' }),
        openai.APIError,
        { status: 503, type: 'provider_overloaded' },
      ],
      [
        create({ model: 'sim/chat-fail-status-500' }),
        openai.APIError,
        { status: 502, type: 'provider_unavailable' },
      ],
    ],
    failed(t, error) {
      t.match((error as openai.APIError).headers?.get('x-request-id'), /./)
    },
    async limited(t) {
      const error = await thrownBy(create({ model: 'sim/chat-fail-status-429' })())
      t.match((error as openai.APIError).headers?.get('retry-after'), /^\d+$/)
    },
    async breaksOff(model) {
      const stream = await chat.create({ model, messages: user('hi'), stream: true })
      let said = ''
      const reading = async () => {
        for await (const chunk of stream) said += chunk.choices[0]?.delta.content ?? ''
      }
      const error = await thrownBy(reading())
      return { said, error }
    },
    brokenOff(t, error, how) {
      t.ok(error instanceof openai.APIError, how)
    },
  }
}

function anthropicSdk(): Sdk {
  // The client adds `/v1/messages` by itself.
  const baseURL = `http://127.0.0.1:${gateway.port}`
  const client = new Anthropic({ baseURL, apiKey: gateway.apiKey, maxRetries: 0 })
  const stranger = new Anthropic({ baseURL, apiKey: 'sk-wrong', maxRetries: 0 })
  const said = ({ content }: { readonly content: readonly { readonly type: string }[] }): string =>
    content.map(block => (block.type === 'text' && 'text' in block ? block.text : '')).join('')
  const asking = (model: string, text: string) => ({ model, max_tokens: 4000, messages: user(text) })
  const body = asking('sim/echo', 'hi')
  const create = (more: object) => () => client.messages.create({ ...body, ...more })
  return {
    name: 'anthropic',
    async create(model, text) {
      const answer = await client.messages.create(asking(model, text))
      return { answer: { ...answer, requestId: answer._request_id }, said: said(answer) }
    },
    known: model => ({
      id: ID,
      // The header that the client reads.
      requestId: ID,
      type: 'message',
      role: 'assistant',
      model,
      content: [{ type: 'text', citations: null }],
      stop_reason: 'end_turn',
      stop_sequence: null,
      usage: { input_tokens: Number, output_tokens: Number, service_tier: 'standard' },
    }),
    async stream(t, model, text) {
      const events: Anthropic.RawMessageStreamEvent[] = []
      for await (const event of await client.messages.create({ ...asking(model, text), stream: true }))
        events.push(event)
      t.equal(events[0]?.type, 'message_start')
      t.equal(events.at(-1)?.type, 'message_stop')
      t.match(events.at(-2), {
        type: 'message_delta',
        delta: { stop_reason: 'end_turn' },
        usage: { input_tokens: Number, output_tokens: Number },
      })
      return events
        .map(event =>
          event.type === 'content_block_delta' && event.delta.type === 'text_delta' ? event.delta.text : '',
        )
        .join('')
    },
    async calls(t, model) {
      const input_schema = { ...CITY, required: ['city'] }
      const tools = [{ name: 'get_weather', description: 'Weather of a place', input_schema }]
      const final = await client.messages.stream({ ...asking(model, 'Lisbon?'), tools }).finalMessage()
      t.equal(final.stop_reason, 'tool_use')
      return final.content.filter(block => block.type === 'tool_use')
    },
    async parse(model) {
      const format = jsonSchemaOutputFormat(PERSON)
      const wanted = { ...asking(model, 'Anna'), output_config: { format } }
      const whole = await client.messages.parse(wanted)
      const streamed = await client.messages.stream(wanted).finalMessage()
      return [whole.parsed_output, streamed.parsed_output]
    },
    async leave(model) {
      const stream = client.messages.stream(asking(model, 'go'))
      for await (const event of stream) if (event.type === 'content_block_delta') break
      return () => stream.aborted
    },
    async runTools(_t, model, stream, run) {
      const tools = TOOLS.map(name =>
        betaTool({
          name,
          description: `Asks for ${name}`,
          inputSchema: CITY,
          run: ({ city }) => run(name, city),
        }),
      )
      const runner = client.beta.messages.toolRunner({ ...asking(model, QUESTION), tools, stream })
      return said(await runner.runUntilDone())
    },
    async show(model, part) {
      const content = [part as Anthropic.ContentBlockParam, { type: 'text' as const, text: 'Look' }]
      return said(
        await client.messages.create({ ...asking(model, ''), messages: [{ role: 'user', content }] }),
      )
    },
    shown: [
      {
        name: 'an image',
        part: { type: 'image', source: { type: 'base64', media_type: 'image/png', data: DOT } },
        forms: IMAGE_FORMS,
      },
      {
        name: 'a PDF file',
        part: {
          type: 'document',
          source: { type: 'base64', media_type: 'application/pdf', data: PDF },
          title: 'paper.pdf',
        },
        forms: PDF_FORMS,
      },
      {
        name: 'a document of plain text',
        part: {
          type: 'document',
          source: { type: 'text', media_type: 'text/plain', data: 'Okapis are shy.' },
        },
        forms: {
          'openai-responses': { type: 'input_text', text: 'Okapis are shy.' },
          'openai-chat': { type: 'text', text: 'Okapis are shy.' },
          'anthropic-messages': { type: 'document', source: { type: 'text', data: 'Okapis are shy.' } },
          'google-gemini': { text: 'Okapis are shy.' },
        },
      },
    ],
    failures: [
      [
        () => stranger.messages.create(body),
        anthropic.AuthenticationError,
        { status: 401, type: 'authentication_error' },
      ],
      [create({ temperature: 7 }), anthropic.BadRequestError, { status: 400, type: 'invalid_request_error' }],
      [
        create({ messages: [{ role: 'user', content: [{ type: 'text', text: 7 }] }] }),
        anthropic.BadRequestError,
        { status: 400, message: 'messages[0].content[0].text' },
      ],
      [
        create({ model: 'sim/messages-fail-status-413' }),
        anthropic.ContentTooLargeError,
        { status: 413, type: 'request_too_large' },
      ],
      [
        create({ provider: { only: ['nobody'] } }),
        anthropic.NotFoundError,
        { status: 404, type: 'not_found_error' },
      ],
      [
        create({ model: 'sim/messages-fail-status-429' }),
        anthropic.RateLimitError,
        { status: 429, type: 'rate_limit_error' },
      ],
      [
        create({ model: 'sim/messages-fail-status-503' }),
        anthropic.InternalServerError,
        { status: 503, type: 'api_error' },
      ],
      [
        create({ model: 'sim/messages-fail-status-500' }),
        anthropic.InternalServerError,
        { status: 502, type: 'api_error' },
      ],
      // A code that the client reads.
      [create({ thread: { id: 'x' } }), anthropic.BadRequestError, { status: 400, errorCode: String }],
    ],
    failed(t, error) {
      t.match(error, { apiMessage: String, requestID: /./ })
      t.match(error, { error: { type: 'error', error: { error_type: String } } })
    },
    async limited(t) {
      const error = await thrownBy(create({ model: 'sim/messages-fail-status-429' })())
      t.match((error as anthropic.APIError).headers?.get('retry-after'), /^\d+$/)
    },
    async breaksOff(model) {
      const stream = client.messages.stream(asking(model, 'hi'))
      let said = ''
      stream.on('text', delta => {
        said += delta
      })
      const error = await thrownBy(stream.done())
      return { said, error }
    },
    brokenOff(t, error, how) {
      t.ok(error instanceof anthropic.APIError, how)
      t.match(error, { type: String, error: { type: 'error', error: { message: String } } })
    },
  }
}

function googleSdk(): Sdk {
  const baseUrl = `http://127.0.0.1:${gateway.port}`
  const { models, chats } = new GoogleGenAI({ apiKey: gateway.apiKey, httpOptions: { baseUrl } })
  const stranger = new GoogleGenAI({ apiKey: 'sk-wrong', httpOptions: { baseUrl } })
  const parameters = { type: Type.OBJECT, properties: { city: { type: Type.STRING } }, required: ['city'] }
  const ask = (model: string, config = {}) => models.generateContent({ model, contents: 'hi', config })
  type Chunk = Awaited<ReturnType<typeof models.generateContent>>
  async function chunksOf(stream: AsyncGenerator<Chunk>): Promise<readonly Chunk[]> {
    const chunks: Chunk[] = []
    for await (const chunk of stream) chunks.push(chunk)
    return chunks
  }
  const said = (chunks: readonly Chunk[]) => chunks.map(({ text }) => text ?? '').join('')
  /** The error document that the client puts into its message. */
  function documentOf(error: unknown): { error: { code: number; status: string; details: unknown[] } } {
    const { message } = error as Error
    return JSON.parse(message.slice(message.indexOf('{')))
  }
  const failure = (work: () => Promise<unknown>, code: number, status: string) =>
    [work, ApiError, { status: code, document: { error: { code, status } } }] as const
  return {
    name: 'google',
    async create(model, contents) {
      const config = { systemInstruction: 'Be brief', temperature: 0.5, maxOutputTokens: 100 }
      const answer = await models.generateContent({ model, contents, config })
      return { answer, said: answer.text }
    },
    known: model => ({
      responseId: ID,
      modelVersion: model,
      candidates: [{ finishReason: 'STOP', content: { role: 'model' } }],
      usageMetadata: { promptTokenCount: Number, candidatesTokenCount: Number, totalTokenCount: Number },
    }),
    async stream(t, model, contents) {
      const chunks = await chunksOf(await models.generateContentStream({ model, contents }))
      t.match(chunks.at(-1), {
        candidates: [{ finishReason: 'STOP' }],
        usageMetadata: { promptTokenCount: Number, totalTokenCount: Number },
      })
      return said(chunks)
    },
    async calls(t, model) {
      const weather = { name: 'get_weather', description: 'Weather of a place', parameters }
      const config = { tools: [{ functionDeclarations: [weather] }] }
      const chunks = await chunksOf(
        await models.generateContentStream({ model, contents: 'Lisbon?', config }),
      )
      t.equal(chunks.at(-1)?.candidates?.[0]?.finishReason, 'STOP')
      return chunks
        .flatMap(({ functionCalls }) => functionCalls ?? [])
        .map(({ id, name, args }) => ({ id, name, input: args }))
    },
    async parse(model) {
      const { additionalProperties: _, ...responseJsonSchema } = PERSON
      const responseSchema = {
        type: Type.OBJECT,
        properties: { name: { type: Type.STRING }, age: { type: Type.INTEGER } },
        required: ['name', 'age'],
      }
      return Promise.all(
        [{ responseSchema }, { responseJsonSchema }].map(async schema => {
          const config = { responseMimeType: 'application/json', ...schema }
          const { text } = await models.generateContent({ model, contents: 'Anna', config })
          return JSON.parse(text ?? '')
        }),
      )
    },
    async leave(model) {
      const leaving = new AbortController()
      const config = { abortSignal: leaving.signal }
      const stream = await models.generateContentStream({ model, contents: 'go', config })
      const reading = async () => {
        for await (const chunk of stream) if (chunk.text !== '') leaving.abort()
      }
      const error = (await thrownBy(reading())) as Error
      return () => error.name === 'AbortError'
    },
    async runTools(t, model, stream, run) {
      const functionDeclarations = TOOLS.map(name => ({ name, parameters }))
      const chat = chats.create({ model, config: { tools: [{ functionDeclarations }] } })
      const send = async (message: Parameters<typeof chat.sendMessage>[0]['message']) =>
        stream ? chunksOf(await chat.sendMessageStream({ message })) : [await chat.sendMessage({ message })]
      const calls = (await send(QUESTION)).flatMap(({ functionCalls }) => functionCalls ?? [])
      t.match(calls, [
        { name: 'weather', args: { city: 'Lisbon' }, id: String },
        { name: 'time', args: { city: 'Oslo' }, id: String },
      ])
      const results = calls.map(({ id = '', name = '', args }) => ({
        functionResponse: { id, name, response: { output: run(name, String(args?.['city'])) } },
      }))
      const last = said(await send(results))
      const asked = parrot.bodies.at(-1) ?? ''
      for (const { id = '' } of calls) t.equal(asked.split(JSON.stringify(id)).length, 3, 'call and result')
      return last
    },
    async show(model, part) {
      const contents = [{ role: 'user', parts: [part, { text: 'Look' }] }]
      return (await models.generateContent({ model, contents })).text
    },
    shown: [
      { name: 'an image', part: { inlineData: { mimeType: 'image/png', data: DOT } }, forms: IMAGE_FORMS },
      {
        name: 'a PDF file',
        part: { inlineData: { mimeType: 'application/pdf', data: PDF, displayName: 'paper.pdf' } },
        forms: PDF_FORMS,
      },
      {
        name: 'an address of an image',
        part: { fileData: { mimeType: 'image/png', fileUri: 'https://example.com/dot' } },
        forms: {
          'openai-responses': { image_url: 'https://example.com/dot' },
          'openai-chat': { image_url: { url: 'https://example.com/dot' } },
          'anthropic-messages': { source: { type: 'url', url: 'https://example.com/dot' } },
          'google-gemini': { fileData: { mimeType: 'image/png', fileUri: 'https://example.com/dot' } },
        },
      },
      {
        name: 'a file of plain text',
        part: {
          inlineData: { mimeType: 'text/plain', data: Buffer.from('Okapis are shy.').toString('base64') },
        },
        forms: {
          'openai-responses': { type: 'input_text', text: 'Okapis are shy.' },
          'openai-chat': { type: 'text', text: 'Okapis are shy.' },
          'anthropic-messages': { type: 'text', text: 'Okapis are shy.' },
          'google-gemini': { inlineData: { mimeType: 'text/plain' } },
        },
      },
    ],
    failures: [
      failure(
        () => stranger.models.generateContent({ model: 'sim/echo', contents: 'hi' }),
        401,
        'UNAUTHENTICATED',
      ),
      failure(() => ask('sim/echo', { temperature: 7 }), 400, 'INVALID_ARGUMENT'),
      failure(() => ask('nobody/none'), 404, 'NOT_FOUND'),
      failure(() => ask('sim/gemini-fail-status-429'), 429, 'RESOURCE_EXHAUSTED'),
      failure(() => ask('sim/gemini-fail-status-503'), 503, 'UNAVAILABLE'),
      failure(() => ask('sim/gemini-fail-status-500'), 502, 'UNAVAILABLE'),
      failure(() => models.embedContent({ model: 'nobody/none', contents: 'hi' }), 404, 'NOT_FOUND'),
      failure(() => models.countTokens({ model: 'nobody/none', contents: 'hi' }), 404, 'NOT_FOUND'),
      failure(() => models.get({ model: 'nobody/none' }), 404, 'NOT_FOUND'),
    ].map(([work, kind, { status, document }]) => [
      async () => {
        const error = (await thrownBy(work())) as Error
        throw Object.assign(error, { document: documentOf(error) })
      },
      kind,
      { status, document },
    ]),
    failed(t, error) {
      t.match(documentOf(error), { error: { message: String } })
    },
    async limited(t) {
      const { details } = documentOf(await thrownBy(ask('sim/gemini-fail-status-429'))).error
      const retry = details.find(each => JSON.stringify(each).includes('RetryInfo'))
      t.match(retry, { '@type': 'type.googleapis.com/google.rpc.RetryInfo', retryDelay: /^\d+s$/ })
    },
    async breaksOff(model) {
      const stream = await models.generateContentStream({ model, contents: 'hi' })
      let text = ''
      const reading = async () => {
        for await (const chunk of stream) text += chunk.text ?? ''
      }
      const error = await thrownBy(reading())
      return { said: text, error }
    },
    brokenOff(t, error, how) {
      // The client has a class for it where the last bytes come alone, and a plain error where the network joins them.
      t.ok(error instanceof Error, how)
      t.match((error as Error).message, /got status: UNAVAILABLE|Incomplete JSON segment/)
    },
  }
}

const call = (name: string, ...list: readonly string[]) =>
  ({ kind: 'call', name, custom: false, pieces: pieces(...list) }) as const

for (const sdk of [openaiSdk(), anthropicSdk(), googleSdk()]) {
  for (const prefix of PREFIXES) {
    const named = (model: string) => `sim/${prefix}${model}`
    const over = (model: string) => `${sdk.name} over ${prefix || 'responses-'}${model}`

    t.test(`a whole answer: ${over('echo')}`, async t => {
      const { answer, said } = await sdk.create(named('echo'), 'Grüße, 世界 👋🏽')
      t.equal(said, 'Grüße, 世界 👋🏽')
      t.match(answer, sdk.known(named('echo')))
    })

    t.test(`a stream is iterated: ${over('echo')}`, async t => {
      t.equal(await sdk.stream(t, named('echo'), 'Hello there'), 'Hello there')
    })

    t.test(`a stream tells parallel calls: ${over('call-2')}`, async t => {
      const calls = await sdk.calls(t, named('call-2'))
      t.equal(calls.length, 2)
      t.equal(new Set(calls.map(({ id }) => id)).size, 2)
      for (const one of calls) t.match(one, { name: 'get_weather', input: { city: String } })
    })

    t.test(`structured output is parsed: ${over('json')}`, async t => {
      const people = await sdk.parse(named('json'))
      t.equal(people.length, 2)
      for (const person of people) t.match(person, { name: String, age: Number })
    })

    t.test(`leaving a stream ends the call of the provider: ${over('write')}`, async t => {
      const { closedEarly } = gateway.sim.state
      const hasLeft = await sdk.leave(named(ENDLESS))
      await gateway.sim.until(state => state.closedEarly > closedEarly)
      t.equal(hasLeft(), true)
    })
  }

  for (const format of FORMATS) {
    for (const stream of [false, true]) {
      const how = `${sdk.name} over ${format}, ${stream ? 'streamed' : 'whole'}`
      t.test(`parallel calls of two functions are run and answered: ${how}`, async t => {
        const ran: string[] = []
        parrot.parts = [
          ...speaking('Let me look.'),
          call('weather', '{"city"', ':"Lisbon"}'),
          call('time', '{"city":"Oslo"}'),
        ]
        const final = await sdk.runTools(t, `parrot/${format}`, stream, (name, city) => {
          ran.push(`${name} ${city}`)
          if (ran.length === 2) parrot.parts = speaking('It is ', 'late and warm.')
          return `the ${name} of ${city}`
        })
        t.equal(final, 'It is late and warm.')
        t.same(ran, ['weather Lisbon', 'time Oslo'])
        const asked = parrot.bodies.at(-1) ?? ''
        for (const word of ['Let me look.', 'the weather of Lisbon', 'the time of Oslo']) t.match(asked, word)
      })
    }
  }

  for (const { name, part, forms } of sdk.shown) {
    t.test(`${name} of ${sdk.name} reaches each provider in its own form`, async t => {
      for (const format of FORMATS) {
        parrot.parts = speaking('A dot')
        t.equal(await sdk.show(`parrot/${format}`, part), 'A dot')
        t.match(firstPart(parrot), forms[format], format)
        t.match(parrot.bodies.at(-1), '"Look"')
      }
    })
  }

  t.test(`failures are the classes that the client has for them: ${sdk.name}`, async t => {
    for (const [work, kind, shows] of sdk.failures) {
      const error = await thrownBy(work())
      t.ok(error instanceof kind, kind.name)
      t.match(error, shows)
      sdk.failed(t, error)
    }
    await sdk.limited(t)
  })

  t.test(`a failure in mid-stream is thrown by the client: ${sdk.name}`, async t => {
    for (const prefix of PREFIXES) {
      const { said, error } = await sdk.breaksOff(`sim/${prefix}fail-error-in-stream`)
      sdk.brokenOff(t, error, prefix)
      t.not(said, '')
    }
  })
}
