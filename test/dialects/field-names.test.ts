/** Field names in another spelling, which a provider's parser may read as fields that the gateway checks. */
import fc from 'fast-check'
import t, { type Test } from 'tap'
import { ChatBody } from '../../src/dialects/chat-completions/body-schema.ts'
import { createChatParser } from '../../src/dialects/chat-completions/parse.ts'
import { createEmbeddingsParser } from '../../src/dialects/embeddings/parse.ts'
import { spellingCheck } from '../../src/dialects/field-names.ts'
import { GeminiBody } from '../../src/dialects/gemini/body-schema.ts'
import { createGeminiEmbeddings } from '../../src/dialects/gemini/embeddings.ts'
import { camelCase } from '../../src/dialects/gemini/names.ts'
import { createGeminiParser } from '../../src/dialects/gemini/parse.ts'
import { MessagesBody } from '../../src/dialects/messages/body-schema.ts'
import { createMessagesParser } from '../../src/dialects/messages/parse.ts'
import { createResponsesParser } from '../../src/dialects/responses.ts'
import { ResponsesRequest } from '../../src/protocol/request.ts'
import { search } from '../support/property.ts'
import { recordings, withoutRecordings } from '../support/recordings.ts'

const OFFERED = { plugins: new Set<string>(), tools: new Set(['datetime']), routers: new Set<string>() }
const user = { role: 'user', content: 'hi' }
const model = 'a/b'
const parameters = { type: 'object', properties: {} }
const text = { parts: [{ text: 'hi' }] }

type Body = Readonly<Record<string, unknown>>
interface Door {
  readonly parse: (body: unknown) => unknown
  readonly body: Body
  /** A field of the body with which some requests cost more than others. */
  readonly known: readonly string[]
}

const batch = createGeminiEmbeddings(OFFERED, true)
const DOORS: Readonly<Record<string, Door>> = {
  responses: {
    parse: createResponsesParser(OFFERED),
    body: { model, input: 'hi' },
    known: ['model', 'input', 'max_output_tokens', 'service_tier', 'tools', 'n', 'best_of', 'conversation'],
  },
  chat: {
    parse: createChatParser(OFFERED),
    body: { model, messages: [user] },
    known: [
      'model',
      'messages',
      'max_tokens',
      'n',
      'best_of',
      'functions',
      'service_tier',
      'web_search_options',
    ],
  },
  messages: {
    parse: body => createMessagesParser(OFFERED)(body),
    body: { model, max_tokens: 9, messages: [user] },
    known: ['model', 'messages', 'max_tokens', 'thinking', 'speed', 'mcp_servers', 'thread', 'tools'],
  },
  gemini: {
    parse: body => createGeminiParser(OFFERED)(body),
    body: { model, contents: [text] },
    known: ['model', 'contents', 'generationConfig', 'serviceTier', 'cachedContent', 'toolConfig', 'tools'],
  },
  embeddings: {
    parse: createEmbeddingsParser(OFFERED),
    body: { model, input: 'hi' },
    known: ['model', 'input', 'dimensions', 'encoding_format', 'models', 'task_type', 'output_dtype'],
  },
  'gemini embeddings': {
    parse: body => batch.parse(body),
    body: { model, requests: [{ content: text }] },
    known: ['requests', 'model', 'provider', 'user'],
  },
}

function faultOf(parse: Door['parse'], body: unknown): string | null {
  try {
    parse(body)
    return null
  } catch (thrown) {
    return (thrown as Error).message
  }
}

/** What Go's JSON reads as the same name: any case, with the long s and the sign of kelvin. */
const asGo = (name: string) => name.replaceAll('ſ', 's').replaceAll('K', 'k').toLowerCase()
const lenient = (name: string) => asGo(name).replaceAll(/[_-]/g, '')

/** Spellings of a name that one of these parsers reads as the same. */
const spelling = (name: string) =>
  fc
    .array(fc.constantFrom('same', 'upper', 'other', 'line', 'dash'), {
      minLength: name.length,
      maxLength: name.length,
    })
    .map(ways =>
      [...name]
        .map((letter, at) => {
          switch (ways[at]) {
            case 'upper':
              return letter.toUpperCase()
            case 'other':
              return letter === 's' ? 'ſ' : letter === 'k' ? 'K' : letter
            case 'line':
              return letter === '_' ? '' : letter
            case 'dash':
              return letter === '_' ? '-' : letter
            default:
              return letter
          }
        })
        .join(''),
    )

for (const [door, { parse, body, known }] of Object.entries(DOORS)) {
  t.test(`${door}: the usual body passes, and fields that nobody knows go on`, async t => {
    t.equal(faultOf(parse, body), null)
    const unknown = {
      chat_template_kwargs: {},
      enable_thinking: true,
      keep_alive: 5,
      'x-vendor': 1,
      vendorField: 1,
    }
    t.equal(faultOf(parse, { ...body, ...unknown }), null)
  })

  t.test(`${door}: no spelling that a lenient parser reads as a known field passes`, async () => {
    const spellings = fc.constantFrom(...known).chain(name => spelling(name).map(other => ({ name, other })))
    fc.assert(
      fc.property(spellings, ({ name, other }) => {
        if (lenient(other) !== lenient(name)) throw new Error('the test spells another name')
        // Google's API reads both of these.
        const isSnake = door.startsWith('gemini') && other === name
        if (other === name || isSnake) return true
        const fault = faultOf(parse, { ...body, [other]: 1 })
        return fault?.startsWith(`${other}: must be spelled `) === true
      }),
      search(300),
    )
  })
}

const refuses = (t: Test, door: string, more: Body, expected: string | RegExp) => {
  const { parse, body } = DOORS[door] as Door
  t.match(faultOf(parse, { ...body, ...more }), expected, JSON.stringify(more))
}

/** The check of each dialect in which clients wrote the recorded requests. */
const RECORDED = {
  'openai-responses': spellingCheck(ResponsesRequest),
  'openai-chat': spellingCheck(ChatBody),
  'anthropic-messages': spellingCheck(MessagesBody),
  'google-gemini': spellingCheck(GeminiBody, { usualSpelling: camelCase }),
}

t.test('every recorded request of a client passes', { skip: withoutRecordings }, async t => {
  for (const [format, check] of Object.entries(RECORDED)) {
    const requests = recordings(format).flatMap(recording => recording.request() ?? [])
    t.ok(requests.length > 50, `${requests.length} requests of ${format}`)
    for (const request of requests) t.equal(faultOf(check, request), null)
  }
})

t.test('so it is with members of objects that a schema declares', async t => {
  const fn = { name: 'f', parameters }
  const message = { ...user, Content: 'other' }
  refuses(t, 'chat', { messages: [message] }, 'messages[0].Content: must be spelled content')
  refuses(
    t,
    'chat',
    { messages: [{ ...user, Tool_Calls: [] }] },
    'messages[0].Tool_Calls: must be spelled tool_calls',
  )
  refuses(
    t,
    'chat',
    { tools: [{ type: 'function', function: { ...fn, Name: 'g' } }] },
    'tools[0].function.Name: must be spelled name',
  )
  refuses(
    t,
    'chat',
    { response_format: { type: 'text', JSON_Schema: {} } },
    'response_format.JSON_Schema: must be spelled json_schema',
  )
  refuses(t, 'chat', { reasoning: { Effort: 'high' } }, 'reasoning.Effort: must be spelled effort')
  refuses(t, 'responses', { reasoning: { maxTokens: 9 } }, 'reasoning.maxTokens: must be spelled max_tokens')
  const item = { type: 'message', role: 'user', content: [{ type: 'input_text', text: 'a', Text: 'b' }] }
  refuses(t, 'responses', { input: [item] }, 'input[0].content[0].Text: must be spelled text')
  refuses(
    t,
    'responses',
    { tools: [{ type: 'function', ...fn, Strict: true }] },
    'tools[0].Strict: must be spelled strict',
  )
  refuses(
    t,
    'messages',
    { thinking: { type: 'enabled', budget_tokens: 1_024, Budget_Tokens: 9_000 } },
    'thinking.Budget_Tokens: must be spelled budget_tokens',
  )
  const content = [{ type: 'text', text: 'a', cacheControl: {} }]
  refuses(
    t,
    'messages',
    { messages: [{ role: 'user', content }] },
    'messages[0].content[0].cacheControl: must be spelled cache_control',
  )
  refuses(
    t,
    'gemini',
    { generationConfig: { Max_Output_Tokens: 9 } },
    'generationConfig.Max_Output_Tokens: must be spelled maxOutputTokens',
  )
  refuses(
    t,
    'gemini',
    { contents: [{ parts: [{ text: 'a', Text: 'b' }] }] },
    'contents[0].parts[0].Text: must be spelled text',
  )
  refuses(
    t,
    'gemini embeddings',
    { requests: [{ content: text, TaskType: 'x' }] },
    'requests[0].TaskType: must be spelled taskType',
  )
})

t.test('where callers choose names, any spelling is one', async t => {
  const { parse, body } = DOORS['chat'] as Door
  const properties = { Model: { type: 'string' }, N: { type: 'number' }, maxTokens: { type: 'number' } }
  const tool = { type: 'function', function: { name: 'f', parameters: { type: 'object', properties } } }
  t.equal(faultOf(parse, { ...body, tools: [tool] }), null)
  t.equal(faultOf(parse, { ...body, metadata: { User: 'a', Model: 'b' } }), null)
  t.equal(
    faultOf(parse, { ...body, vendor: { N: 5, Model: 'b' } }),
    null,
    'nor inside a field that nobody knows',
  )
  const called = { role: 'model', parts: [{ functionCall: { name: 'f', args: { Model: 'a', N: 1 } } }] }
  const gemini = DOORS['gemini'] as Door
  t.equal(faultOf(gemini.parse, { ...gemini.body, contents: [text, called] }), null)
})

t.test('fields of another API in its own spelling go on, since vendors use them too', async t => {
  const { parse, body } = DOORS['chat'] as Door
  for (const name of ['thinking', 'safetySettings', 'stop_sequences', 'mcp_servers'])
    t.equal(faultOf(parse, { ...body, [name]: null }), null, name)
  refuses(t, 'chat', { Safety_Settings: [] }, 'Safety_Settings: must be spelled safetySettings')
  refuses(t, 'chat', { Thinking: {} }, 'Thinking: must be spelled thinking')
})

t.test("Google's fields have two spellings, and one of them at a time", async t => {
  const { parse, body } = DOORS['gemini'] as Door
  const snake = {
    system_instruction: text,
    generation_config: { max_output_tokens: 9, thinking_config: { thinking_budget: 0 } },
    tool_config: { function_calling_config: { mode: 'AUTO' } },
  }
  t.equal(faultOf(parse, { ...body, ...snake }), null)
  refuses(
    t,
    'gemini',
    { system_instruction: text, systemInstruction: text },
    'system_instruction: must be left out: systemInstruction is the same field',
  )
  refuses(
    t,
    'gemini',
    { generationConfig: { top_p: 0.5, topP: 1 } },
    'generationConfig.top_p: must be left out: topP is the same field',
  )
})

t.test(
  'a name of any length or alphabet is looked at, and only those like a known one are repeated',
  async t => {
    const { parse, body } = DOORS['chat'] as Door
    t.equal(faultOf(parse, { ...body, ['s'.repeat(100_000)]: 1 }), null)
    t.equal(faultOf(parse, { ...body, 'service\u200btier': 1 }), '*: must be spelled service_tier')
    t.equal(faultOf(parse, { ...body, servıce_tıer: 1 }), 'servıce_tıer: must be spelled service_tier')
    t.equal(faultOf(parse, null), 'body: must be an object')
  },
)
