/** Google's official client, unchanged, against the door of its API: only its base URL and key are set. */
import { ApiError, FunctionCallingConfigMode, GoogleGenAI, Type } from '@google/genai'
import t from 'tap'
import { simModel } from '../../src/sim/rows.ts'
import { startGateway } from '../support/gateway.ts'
import { FORMATS, firstPart, parrotRows, pieces, speaking, startParrot } from '../support/parrot.ts'

const parrot = await startParrot(t)
const rows = parrotRows(parrot.url)
/** Never over while a test looks. */
const endless = FORMATS.map(format => simModel('write-100000-20', format))
const failing = [429, 500, 503].map(status => simModel(`fail-status-${status}`, 'google-gemini'))
const gateway = await startGateway({ ...rows, models: [...rows.models, ...endless, ...failing] })
t.teardown(() => gateway.close())

const baseUrl = `http://127.0.0.1:${gateway.port}`
// The library prints notices on what its getters leave out and on methods that may change.
t.capture(console, 'warn', () => undefined)
const client = new GoogleGenAI({ apiKey: gateway.apiKey, httpOptions: { baseUrl } })
const PREFIXES = ['', 'chat-', 'messages-', 'gemini-'] as const
const ID = /^gen-\d+-\w{20}$/

const PERSON = {
  type: Type.OBJECT,
  properties: { name: { type: Type.STRING }, age: { type: Type.INTEGER } },
  required: ['name', 'age'],
}
const CITY = { type: Type.OBJECT, properties: { city: { type: Type.STRING } }, required: ['city'] }
const WEATHER = { name: 'get_weather', description: 'Weather of a place', parameters: CITY }
const DOT = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='
const PDF = Buffer.from('%PDF-1.4\n%%EOF').toString('base64')

interface Answer {
  readonly text?: string | undefined
  readonly candidates?: readonly Candidate[] | undefined
  readonly functionCalls?: readonly Call[] | undefined
}
interface Candidate {
  readonly finishReason?: string | undefined
  readonly content?: { readonly parts?: readonly Said[] | undefined } | undefined
}
interface Said {
  readonly thought?: boolean | undefined
  readonly text?: string | undefined
}
interface Call {
  readonly id?: string | undefined
  readonly name?: string | undefined
  readonly args?: Readonly<Record<string, unknown>> | undefined
}

/** What a call throws. */
const thrownBy = (work: Promise<unknown>): Promise<unknown> =>
  work.then(
    () => null,
    (thrown: unknown) => thrown,
  )

/** The error document that the client puts into its message. */
function documentOf(error: unknown): { error: { code: number; status: string; details: unknown[] } } {
  const { message } = error as Error
  return JSON.parse(message.slice(message.indexOf('{')))
}

async function gathered(stream: AsyncGenerator<Answer>) {
  const chunks: Answer[] = []
  for await (const chunk of stream) chunks.push(chunk)
  return { chunks, last: chunks.at(-1), text: chunks.map(chunk => chunk.text ?? '').join('') }
}

for (const prefix of PREFIXES) {
  const named = (model: string) => `sim/${prefix}${model}`
  const over = (model: string) => `${prefix || 'responses-'}${model}`

  t.test(`generateContent answers over ${over('echo')}`, async t => {
    const answer = await client.models.generateContent({
      model: named('echo'),
      contents: 'Grüße, 世界 👋🏽',
      config: { systemInstruction: 'Be brief', temperature: 0.5, maxOutputTokens: 100 },
    })
    t.equal(answer.text, 'Grüße, 世界 👋🏽')
    t.match(answer, {
      responseId: ID,
      modelVersion: named('echo'),
      candidates: [{ finishReason: 'STOP', content: { role: 'model' } }],
      usageMetadata: { promptTokenCount: Number, candidatesTokenCount: Number, totalTokenCount: Number },
    })
  })

  t.test(`generateContentStream iterates chunks over ${over('echo')}`, async t => {
    const stream = await client.models.generateContentStream({
      model: named('echo'),
      contents: 'Hello there',
    })
    const { text, last } = await gathered(stream)
    t.equal(text, 'Hello there')
    t.match(last, {
      candidates: [{ finishReason: 'STOP' }],
      usageMetadata: { promptTokenCount: Number, totalTokenCount: Number },
    })
  })

  t.test(`thoughts are shown to who asks for them over ${over('reason')}`, async t => {
    const asking = { model: named('reason'), contents: 'hi' }
    const shown = await client.models.generateContent({
      ...asking,
      config: { thinkingConfig: { includeThoughts: true, thinkingBudget: 1024 } },
    })
    const parts = shown.candidates?.[0]?.content?.parts ?? []
    t.equal(parts[0]?.thought, true)
    t.not(parts[0]?.text, '')
    t.equal(shown.text, 'hi')
    const hidden = await gathered(await client.models.generateContentStream(asking))
    const all = hidden.chunks.flatMap(chunk => chunk.candidates?.[0]?.content?.parts ?? [])
    t.ok(all.every(part => part.thought !== true))
    t.equal(hidden.text, 'hi')
  })

  t.test(`a stream tells parallel calls over ${over('call-2')}`, async t => {
    const stream = await client.models.generateContentStream({
      model: named('call-2'),
      contents: 'Lisbon?',
      config: { tools: [{ functionDeclarations: [WEATHER] }] },
    })
    const { chunks, last } = await gathered(stream)
    const calls = chunks.flatMap(chunk => chunk.functionCalls ?? [])
    t.equal(calls.length, 2)
    t.equal(new Set(calls.map(call => call.id)).size, 2)
    for (const call of calls) t.match(call, { name: 'get_weather', args: { city: String } })
    t.equal(last?.candidates?.[0]?.finishReason, 'STOP')
  })

  t.test(`structured output over ${over('json')}`, async t => {
    for (const schema of [
      { responseSchema: PERSON },
      {
        responseJsonSchema: {
          type: 'object',
          properties: { name: { type: 'string' }, age: { type: 'integer' } },
          required: ['name', 'age'],
        },
      },
    ]) {
      const answer = await client.models.generateContent({
        model: named('json'),
        contents: 'Anna',
        config: { responseMimeType: 'application/json', ...schema },
      })
      t.match(JSON.parse(answer.text ?? ''), { name: String, age: Number })
    }
  })

  t.test(`aborting a stream ends the call of the provider over ${over('write')}`, async t => {
    const { closedEarly } = gateway.sim.state
    const leaving = new AbortController()
    const stream = await client.models.generateContentStream({
      model: named('write-100000-20'),
      contents: 'go',
      config: { abortSignal: leaving.signal },
    })
    const error = await thrownBy(
      (async () => {
        for await (const chunk of stream) if (chunk.text !== '') leaving.abort()
      })(),
    )
    t.equal((error as Error).name, 'AbortError')
    await gateway.sim.until(state => state.closedEarly > closedEarly)
  })
}

for (const format of FORMATS) {
  for (const streams of [false, true]) {
    t.test(`a chat answers parallel calls over ${format}, ${streams ? 'streamed' : 'whole'}`, async t => {
      const call = (name: string, ...list: readonly string[]) =>
        ({ kind: 'call', name, custom: false, pieces: pieces(...list) }) as const
      parrot.parts = [
        ...speaking('Let me look.'),
        call('weather', '{"city"', ':"Lisbon"}'),
        call('time', '{"city":"Oslo"}'),
      ]
      const functionDeclarations = ['weather', 'time'].map(name => ({ name, parameters: CITY }))
      const chat = client.chats.create({
        model: `parrot/${format}`,
        config: { tools: [{ functionDeclarations }] },
      })
      const send = async (message: Parameters<typeof chat.sendMessage>[0]['message']) => {
        if (!streams) return [await chat.sendMessage({ message })]
        return (await gathered(await chat.sendMessageStream({ message }))).chunks
      }
      const first = await send('Weather in Lisbon, time in Oslo?')
      const calls = first.flatMap(answer => answer.functionCalls ?? [])
      t.match(calls, [
        { name: 'weather', args: { city: 'Lisbon' }, id: String },
        { name: 'time', args: { city: 'Oslo' }, id: String },
      ])
      parrot.parts = speaking('It is ', 'late and warm.')
      const results = calls.map(({ id = '', name = '', args }) => ({
        functionResponse: { id, name, response: { output: `the ${name} of ${args?.['city']}` } },
      }))
      const last = await send(results)
      t.equal(last.map(answer => answer.text ?? '').join(''), 'It is late and warm.')
      const asked = parrot.bodies.at(-1) ?? ''
      for (const word of ['Let me look.', 'the weather of Lisbon', 'the time of Oslo']) t.match(asked, word)
      for (const { id = '' } of calls) t.equal(asked.split(JSON.stringify(id)).length, 3, 'call and result')
    })
  }
}

t.test('a result without an id belongs to the open call of its function', async t => {
  for (const format of FORMATS) {
    parrot.parts = speaking('warm')
    const answer = await client.models.generateContent({
      model: `parrot/${format}`,
      contents: [
        { role: 'user', parts: [{ text: 'Lisbon and Oslo?' }] },
        {
          role: 'model',
          parts: ['Lisbon', 'Oslo'].map(city => ({ functionCall: { name: 'weather', args: { city } } })),
        },
        {
          role: 'user',
          parts: ['warm', 'cold'].map(output => ({
            functionResponse: { name: 'weather', response: { output } },
          })),
        },
      ],
    })
    t.equal(answer.text, 'warm', format)
  }
})

/** What a provider is sent for the parts of one user message, by format. */
const SHOWN = [
  {
    name: 'an image',
    part: { inlineData: { mimeType: 'image/png', data: DOT } },
    forms: {
      'openai-responses': { image_url: `data:image/png;base64,${DOT}` },
      'openai-chat': { image_url: { url: `data:image/png;base64,${DOT}` } },
      'anthropic-messages': { source: { type: 'base64', media_type: 'image/png', data: DOT } },
      'google-gemini': { inlineData: { mimeType: 'image/png', data: DOT } },
    },
  },
  {
    name: 'a PDF file',
    part: { inlineData: { mimeType: 'application/pdf', data: PDF, displayName: 'paper.pdf' } },
    forms: {
      'openai-responses': { file_data: `data:application/pdf;base64,${PDF}`, filename: 'paper.pdf' },
      'openai-chat': { file: { file_data: `data:application/pdf;base64,${PDF}`, filename: 'paper.pdf' } },
      'anthropic-messages': { source: { media_type: 'application/pdf', data: PDF }, title: 'paper.pdf' },
      'google-gemini': { inlineData: { mimeType: 'application/pdf', data: PDF } },
    },
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
] as const

for (const { name, part, forms } of SHOWN) {
  t.test(`${name} reaches each provider in its own form`, async t => {
    for (const [format, form] of Object.entries(forms)) {
      parrot.parts = speaking('A dot')
      const answer = await client.models.generateContent({
        model: `parrot/${format}`,
        contents: [{ role: 'user', parts: [part, { text: 'Look' }] }],
      })
      t.equal(answer.text, 'A dot')
      t.match(firstPart(parrot), form, format)
    }
  })
}

t.test('a function is forced by its name', async t => {
  const choices: Readonly<Record<string, object>> = {
    'openai-responses': { tool_choice: { type: 'function', name: 'get_weather' } },
    'openai-chat': { tool_choice: { function: { name: 'get_weather' } } },
    'anthropic-messages': { tool_choice: { type: 'tool', name: 'get_weather' } },
    'google-gemini': {
      toolConfig: { functionCallingConfig: { mode: 'ANY', allowedFunctionNames: ['get_weather'] } },
    },
  }
  for (const format of FORMATS) {
    parrot.parts = speaking('no')
    await client.models.generateContent({
      model: `parrot/${format}`,
      contents: 'Lisbon?',
      config: {
        tools: [{ functionDeclarations: [WEATHER] }],
        toolConfig: {
          functionCallingConfig: {
            mode: FunctionCallingConfigMode.ANY,
            allowedFunctionNames: ['get_weather'],
          },
        },
      },
    })
    t.match(JSON.parse(parrot.bodies.at(-1) ?? ''), choices[format] ?? {}, format)
  }
})

t.test('failures are errors with the status and the document that the client shows', async t => {
  const stranger = new GoogleGenAI({ apiKey: 'sk-wrong', httpOptions: { baseUrl } })
  const ask = (model: string, config = {}) => client.models.generateContent({ model, contents: 'hi', config })
  const failures: readonly [() => Promise<unknown>, number, string][] = [
    [() => stranger.models.generateContent({ model: 'sim/echo', contents: 'hi' }), 401, 'UNAUTHENTICATED'],
    [() => ask('sim/echo', { temperature: 7 }), 400, 'INVALID_ARGUMENT'],
    [() => ask('nobody/none'), 404, 'NOT_FOUND'],
    [() => ask('sim/gemini-fail-status-429'), 429, 'RESOURCE_EXHAUSTED'],
    [() => ask('sim/gemini-fail-status-503'), 503, 'UNAVAILABLE'],
    [() => ask('sim/gemini-fail-status-500'), 502, 'UNAVAILABLE'],
    [() => client.models.embedContent({ model: 'nobody/none', contents: 'hi' }), 404, 'NOT_FOUND'],
    [() => client.models.countTokens({ model: 'nobody/none', contents: 'hi' }), 404, 'NOT_FOUND'],
    [() => client.models.get({ model: 'nobody/none' }), 404, 'NOT_FOUND'],
  ]
  for (const [work, status, word] of failures) {
    const error = await thrownBy(work())
    t.ok(error instanceof ApiError, word)
    t.equal((error as ApiError).status, status)
    t.match(documentOf(error), { error: { code: status, status: word, message: String } })
  }
  const limited = documentOf(await thrownBy(ask('sim/gemini-fail-status-429')))
  const retry = limited.error.details.find(each => JSON.stringify(each).includes('RetryInfo'))
  t.match(retry, { '@type': 'type.googleapis.com/google.rpc.RetryInfo', retryDelay: /^\d+s$/ })
})

t.test('a failure in mid-stream is thrown by the client', async t => {
  for (const prefix of PREFIXES) {
    const stream = await client.models.generateContentStream({
      model: `sim/${prefix}fail-error-in-stream`,
      contents: 'hi',
    })
    let text = ''
    const error = await thrownBy(
      (async () => {
        for await (const chunk of stream) text += chunk.text ?? ''
      })(),
    )
    // The client has a class for it where the last bytes come alone, and a plain error where the network joins them.
    t.ok(error instanceof Error, prefix)
    t.match((error as Error).message, /got status: UNAVAILABLE|Incomplete JSON segment/)
    t.not(text, '')
  }
})

t.test('tokens are counted', async t => {
  const count = await client.models.countTokens({ model: 'sim/echo', contents: 'Hello there' })
  const longer = await client.models.countTokens({ model: 'sim/echo', contents: 'Hello there '.repeat(50) })
  t.ok((longer.totalTokens ?? 0) > (count.totalTokens ?? 0) + 50)
})

t.test('embeddings are made, one and many', async t => {
  const one = await client.models.embedContent({ model: 'sim/embed', contents: 'Hello' })
  t.equal(one.embeddings?.length, 1)
  t.type(one.embeddings?.[0]?.values?.[0], 'number')
  const two = await client.models.embedContent({
    model: 'sim/embed',
    contents: ['Hello', 'Bye'],
    config: { outputDimensionality: 3, taskType: 'RETRIEVAL_QUERY' },
  })
  t.same(
    two.embeddings?.map((each: { values?: number[] }) => each.values?.length),
    [3, 3],
  )
})

t.test('models are listed in pages, and found', async t => {
  const pager = await client.models.list({ config: { pageSize: 7 } })
  const names: string[] = []
  for await (const model of pager) names.push(model.name ?? '')
  t.ok(names.includes('models/sim/echo'))
  t.equal(new Set(names).size, names.length)
  t.ok(names.length > 14, 'more than two pages')
  const model = await client.models.get({ model: 'sim/echo' })
  t.match(model, { name: 'models/sim/echo', displayName: String, inputTokenLimit: Number })
})

t.test('a signature that a provider gave goes back to it', async t => {
  parrot.parts = [
    { kind: 'reasoning', form: 'text', pieces: pieces('They ', 'greet.') },
    ...speaking('Hello'),
  ]
  const chat = client.chats.create({
    model: 'parrot/anthropic-messages',
    config: { thinkingConfig: { includeThoughts: true, thinkingBudget: 1024 } },
  })
  const first = await gathered(await chat.sendMessageStream({ message: 'Hi' }))
  t.equal(first.text, 'Hello')
  await chat.sendMessage({ message: 'And?' })
  const body = JSON.parse(parrot.bodies.at(-1) ?? '') as { messages?: { content: unknown[] }[] }
  t.match(body.messages?.[1]?.content, [
    { type: 'thinking', thinking: 'They greet.', signature: String },
    { type: 'text', text: 'Hello' },
  ])
})
