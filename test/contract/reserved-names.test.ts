/**
 * Functions of a caller that are named like tools which providers or the gateway run: through each door, at each
 * format, streamed and whole, alone and beside such a tool. No receiver gets a name that it reserves or that another
 * tool has, and a call comes back to the caller as a call of the caller's own function.
 */
import t from 'tap'
import { startGateway } from '../support/gateway.ts'
import { FORMATS, type Parrot, parrotRows, pieces, startParrot } from '../support/provider.ts'

type Loose = Record<string, unknown>

const parrot: Parrot = await startParrot(t)
const rows = parrotRows(parrot.url)
const gateway = await startGateway({
  ...rows,
  providers: [
    ...(rows.providers ?? []),
    { slug: 'openai', baseUrl: parrot.url, apiKey: 'k' },
    { slug: 'xai', baseUrl: parrot.url, apiKey: 'k' },
  ],
  models: [
    ...(rows.models ?? []),
    { id: 'openai/gpt-6', endpoints: [{ provider: 'openai' }] },
    { id: 'openai/chat', endpoints: [{ provider: 'openai', format: 'openai-chat', upstreamModel: 'gpt-6' }] },
    { id: 'x-ai/grok-4.5', endpoints: [{ provider: 'xai' }] },
  ],
})
t.teardown(() => gateway.close())

const NAMES = [
  'web_search',
  'web_fetch',
  'x_search',
  'google_search',
  'code_execution',
  'code_interpreter',
  'computer',
  'bash',
  'shell',
  'local_shell',
  'text_editor',
  'str_replace_based_edit_tool',
  'apply_patch',
  'tool_search',
  'tool_search_tool_regex',
  'memory',
  'file_search',
  'image_generation',
  'python',
  'mcp',
  'datetime',
]
const MODELS = [...FORMATS.map(format => `parrot/${format}`), 'openai/gpt-6', 'openai/chat', 'x-ai/grok-4.5']
/** What the receivers reserve, written out here, so that the table cannot agree with itself. */
const RESERVED: Readonly<Record<string, readonly string[]>> = {
  'openai/gpt-6': ['python', 'tool_search'],
  'openai/chat': ['python', 'tool_search'],
  'x-ai/grok-4.5': ['web_search'],
}
const SCHEMA = { type: 'object', properties: { a: { type: 'string' } } }
const SCHEMA2 = { type: 'object', properties: { query: { type: 'string' } } }

interface Door {
  path(model: string, stream: boolean): string
  /** @param beside a tool of the API, in the spelling of the Responses API */
  body(model: string, stream: boolean, name: string, beside: Loose | null): Loose | null
  /** The type and the name of the calls in an answer, or in the events of a stream. */
  calls(events: readonly Loose[]): readonly string[]
}

const list = (value: unknown): readonly Loose[] => (Array.isArray(value) ? (value as Loose[]) : [])

const DOORS: Readonly<Record<string, Door>> = {
  responses: {
    path: () => '/responses',
    body: (model, stream, name, beside) => ({
      model,
      stream,
      input: [
        { role: 'user', content: 'Go' },
        { type: 'function_call', call_id: 'c0', name, arguments: '{"a":"0"}' },
        { type: 'function_call_output', call_id: 'c0', output: 'done' },
        { role: 'user', content: 'Again' },
      ],
      tools: [{ type: 'function', name, parameters: SCHEMA }, ...(beside === null ? [] : [beside])],
    }),
    calls: events =>
      list(((events.at(-1)?.['response'] ?? events[0]) as Loose)['output'])
        .filter(({ type }) => type !== 'message' && type !== 'reasoning')
        .map(({ type, name }) => `${type} ${name}`),
  },
  chat: {
    path: () => '/chat/completions',
    body: (model, stream, name, beside) =>
      beside === null
        ? {
            model,
            stream,
            messages: [
              { role: 'user', content: 'Go' },
              {
                role: 'assistant',
                content: null,
                tool_calls: [{ id: 'c0', type: 'function', function: { name, arguments: '{"a":"0"}' } }],
              },
              { role: 'tool', tool_call_id: 'c0', content: 'done' },
              { role: 'user', content: 'Again' },
            ],
            tools: [{ type: 'function', function: { name, parameters: SCHEMA } }],
          }
        : null,
    calls: events =>
      events.flatMap(event =>
        list(event['choices']).flatMap(choice =>
          list(((choice['delta'] ?? choice['message']) as Loose)['tool_calls']).flatMap(call => {
            const { name } = call['function'] as Loose
            return name === undefined ? [] : [`${call['type']} ${name}`]
          }),
        ),
      ),
  },
  messages: {
    path: () => '/messages',
    body: (model, stream, name, beside) =>
      beside === null
        ? {
            model,
            stream,
            max_tokens: 200,
            messages: [
              { role: 'user', content: 'Go' },
              { role: 'assistant', content: [{ type: 'tool_use', id: 'c0', name, input: { a: '0' } }] },
              { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'c0', content: 'done' }] },
              { role: 'user', content: 'Again' },
            ],
            tools: [{ name, input_schema: SCHEMA }],
          }
        : null,
    calls: events =>
      events
        .flatMap(event => [event['content_block'] as Loose | undefined, ...list(event['content'])])
        .flatMap(block =>
          block === undefined || block['type'] === 'text' ? [] : [`${block['type']} ${block['name']}`],
        ),
  },
  gemini: {
    path: (model, stream) =>
      `/../v1beta/models/${model}:${stream ? 'streamGenerateContent?alt=sse' : 'generateContent'}`,
    body: (_model, _stream, name, beside) =>
      beside === null
        ? {
            contents: [
              { role: 'user', parts: [{ text: 'Go' }] },
              { role: 'model', parts: [{ functionCall: { id: 'c0', name, args: { a: '0' } } }] },
              {
                role: 'user',
                parts: [{ functionResponse: { id: 'c0', name, response: { output: 'done' } } }],
              },
              { role: 'user', parts: [{ text: 'Again' }] },
            ],
            tools: [{ functionDeclarations: [{ name, parametersJsonSchema: SCHEMA }] }],
          }
        : null,
    calls: events =>
      events.flatMap(event =>
        list(event['candidates']).flatMap(({ content }) =>
          list((content as Loose | undefined)?.['parts']).flatMap(part =>
            part['functionCall'] === undefined
              ? []
              : [`functionCall ${(part['functionCall'] as Loose)['name']}`],
          ),
        ),
      ),
  },
}
const TYPES: Readonly<Record<string, string>> = {
  responses: 'function_call',
  chat: 'function',
  messages: 'tool_use',
  gemini: 'functionCall',
}

/** The names of all tools that a body declares, with the function first: it alone has a schema with `a`. */
function declared(text: string): { readonly own: string; readonly names: readonly string[] } {
  const { tools } = JSON.parse(text) as { tools?: Loose[] }
  const flat = list(tools).flatMap(tool => list(tool['functionDeclarations'] ?? [tool['function'] ?? tool]))
  const own = flat.find(tool => JSON.stringify(tool).includes('"a":{"type":"string"}'))
  return {
    own: String(own?.['name']),
    names: flat.flatMap(({ name }) => (name === undefined ? [] : [String(name)])),
  }
}

async function ask(door: Door, model: string, stream: boolean, body: Loose) {
  const reply = await fetch(new URL(`${gateway.url}${door.path(model, stream)}`), {
    method: 'POST',
    headers: { authorization: `Bearer ${gateway.apiKey}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  })
  const text = await reply.text()
  if (reply.status !== 200) return { status: reply.status, text, events: [] }
  const events = text.startsWith('{')
    ? [JSON.parse(text) as Loose]
    : [...text.matchAll(/^data: (\{.*)$/gm)].map(([, json = '']) => JSON.parse(json) as Loose)
  return { status: 200, text, events }
}

/** Asks twice: first for the name that the provider gets, then with a reply that calls it. */
async function check(doorName: string, model: string, name: string, beside: Loose | null): Promise<boolean> {
  const door = DOORS[doorName] as Door
  for (const stream of [false, true]) {
    const body = door.body(model, stream, name, beside)
    if (body === null) return false
    const title = `${name} through ${doorName} at ${model}${stream ? ', streamed' : ''}${beside === null ? '' : `, beside ${beside['type']}`}`
    parrot.parts = [{ kind: 'text', pieces: pieces('Yes') }]
    const first = await ask(door, model, stream, body)
    // The format has no tool of this type, which is told by its path.
    if (first.status !== 200 && beside !== null) {
      t.match(first.text, /tools\[1\]/, title)
      return false
    }
    t.equal(first.status, 200, `${title}: ${first.text}`)
    const { own, names } = declared(parrot.bodies.at(-1) ?? '{}')
    t.equal(new Set(names).size, names.length, `${title}: names differ (${names})`)
    t.notOk(RESERVED[model]?.includes(own), `${title}: ${own} is not reserved`)
    t.match(
      parrot.bodies.at(-1),
      new RegExp(`"name":"${own}".*"name":"${own}"`),
      `${title}: the call has it too`,
    )
    parrot.parts = [{ kind: 'call', name: own, custom: false, pieces: pieces('{"a":', '"1"}') }]
    const { events, text } = await ask(door, model, stream, body)
    t.same(door.calls(events), [`${TYPES[doorName]} ${name}`], `${title}: ${text.slice(0, 300)}`)
  }
  return true
}

t.test('alone', async t => {
  let size = 0
  for (const door of Object.keys(DOORS))
    for (const model of MODELS) for (const name of NAMES) if (await check(door, model, name, null)) size++
  t.comment(`${size} of ${size} cases`)
  t.equal(size, Object.keys(DOORS).length * MODELS.length * NAMES.length)
})

t.test('beside the tool of that name', async t => {
  const beside: readonly (readonly [name: string, tool: Loose])[] = [
    ['web_search', { type: 'web_search' }],
    ['web_search', { type: 'gateway:web_search' }],
    ['web_fetch', { type: 'gateway:web_fetch' }],
    ['code_execution', { type: 'code_interpreter', container: { type: 'auto' } }],
    [
      'computer',
      { type: 'computer_use_preview', display_width: 800, display_height: 600, environment: 'linux' },
    ],
    ['tool_search', { type: 'tool_search', execution: 'client', description: 'd', parameters: SCHEMA2 }],
    ['tool_search_tool_regex', { type: 'tool_search' }],
    ['datetime', { type: 'gateway:datetime' }],
    ['apply_patch', { type: 'apply_patch' }],
    ['shell', { type: 'shell' }],
    ['local_shell', { type: 'local_shell' }],
  ]
  let size = 0
  for (const model of MODELS)
    for (const [name, tool] of beside) if (await check('responses', model, name, tool)) size++
  t.comment(`${size} of ${MODELS.length * beside.length} cases; the other tools are refused by their path`)
  t.ok(size > 40)
})

t.test("a tool of the gateway's own runs although the provider gets it under another name", async t => {
  const tools = [
    { type: 'gateway:tool_search' },
    { type: 'function', name: 'near', parameters: { type: 'object', properties: {} } },
    { type: 'function', name: 'far', description: 'd', parameters: SCHEMA, defer_loading: true },
  ]
  const body = { model: 'openai/chat', input: 'Go', tools, max_tool_calls: 1 }
  parrot.parts = [{ kind: 'text', pieces: pieces('Yes') }]
  const door = DOORS['responses'] as Door
  await ask(door, 'openai/chat', false, body)
  const name = declared(parrot.bodies.at(-1) ?? '').names.find(each => each.startsWith('tool_search')) ?? ''
  t.match(name, /^tool_search_[0-9a-f]{8}$/)
  parrot.parts = [{ kind: 'call', name, custom: false, pieces: pieces('{"query":"far"}') }]
  for (const stream of [false, true]) {
    const before = parrot.bodies.length
    const { events, text } = await ask(door, 'openai/chat', stream, { ...body, stream })
    t.same(door.calls(events), ['gateway:tool_search undefined'], text.slice(0, 500))
    t.equal(parrot.bodies.length - before, 2, 'a second turn')
    const [, again] = (JSON.parse(parrot.bodies.at(-1) ?? '') as { messages: Loose[] }).messages
    t.match(again, { tool_calls: [{ function: { name } }] }, 'with the name that the provider knows')
  }
})
