/** What Google's client has of its own: thoughts, open calls, forced functions, embeddings, lists of models. */
import { FunctionCallingConfigMode, GoogleGenAI, Type } from '@google/genai'
import t from 'tap'
import { FORMATS, pieces, speaking } from '../support/provider.ts'
import { PREFIXES, startSdkWorld } from '../support/world.ts'

const { gateway, parrot } = await startSdkWorld(t)

const baseUrl = `http://127.0.0.1:${gateway.port}`
// The library prints notices on what its getters leave out and on methods that may change.
t.capture(console, 'warn', () => undefined)
const client = new GoogleGenAI({ apiKey: gateway.apiKey, httpOptions: { baseUrl } })
const CITY = { type: Type.OBJECT, properties: { city: { type: Type.STRING } }, required: ['city'] }
const WEATHER = { name: 'get_weather', description: 'Weather of a place', parameters: CITY }

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

async function gathered(stream: AsyncGenerator<Answer>) {
  const chunks: Answer[] = []
  for await (const chunk of stream) chunks.push(chunk)
  return { chunks, last: chunks.at(-1), text: chunks.map(chunk => chunk.text ?? '').join('') }
}

for (const prefix of PREFIXES) {
  t.test(`thoughts are shown to who asks for them over ${prefix || 'responses-'}reason`, async t => {
    const asking = { model: `sim/${prefix}reason`, contents: 'hi' }
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
