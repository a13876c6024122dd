/** Tools of the Messages API that the client runs, at providers of other APIs: functions there, `tool_use` here. */
import Anthropic from '@anthropic-ai/sdk'
import t from 'tap'
import { startGateway } from '../support/gateway.ts'
import { FORMATS, parrotRows, pieces, startParrot } from '../support/provider.ts'

const parrot = await startParrot(t)
const gateway = await startGateway(parrotRows(parrot.url))
t.teardown(() => gateway.close())
const client = new Anthropic({
  baseURL: gateway.url.replace(/\/v1$/, ''),
  apiKey: gateway.apiKey,
  maxRetries: 0,
})

const tools = [
  { type: 'bash_20250124', name: 'bash', cache_control: { type: 'ephemeral' } },
  { type: 'text_editor_20250728', name: 'str_replace_based_edit_tool', max_characters: 10_000 },
  { type: 'memory_20250818', name: 'memory' },
  {
    type: 'computer_20251124',
    name: 'computer',
    display_width_px: 1024,
    display_height_px: 768,
    enable_zoom: true,
  },
] as unknown as Anthropic.Beta.BetaToolUnion[]
const NAMES = ['bash', 'str_replace_based_edit_tool', 'memory', 'computer']
const ASK = { max_tokens: 200, messages: [{ role: 'user' as const, content: 'Look around' }] }

/** The functions that the provider got, by its format. */
function functionsIn(body: string): readonly { readonly name: string; readonly schema: object }[] {
  type Loose = Record<string, unknown>
  const { tools: sent } = JSON.parse(body) as { tools: Loose[] }
  return sent.flatMap(tool => {
    const declared = (tool['functionDeclarations'] ?? [tool['function'] ?? tool]) as Loose[]
    return declared.map(one => ({
      name: String(one['name']),
      schema: (one['parameters'] ?? one['parametersJsonSchema']) as object,
    }))
  })
}

for (const format of FORMATS.filter(each => each !== 'anthropic-messages')) {
  t.test(`each is a function with its schema, and a call of it is a tool_use (${format})`, async t => {
    for (const stream of [false, true]) {
      parrot.parts = [{ kind: 'call', name: 'bash', custom: false, pieces: pieces('{"command":', '"ls"}') }]
      const body = { model: `parrot/${format}`, ...ASK, tools }
      const said = stream
        ? await client.beta.messages.stream(body).finalMessage()
        : await client.beta.messages.create(body)
      t.match(said, {
        stop_reason: 'tool_use',
        content: [{ type: 'tool_use', name: 'bash', input: { command: 'ls' } }],
      })
      const functions = functionsIn(parrot.bodies.at(-1) ?? '')
      t.same(
        functions.map(({ name }) => name),
        NAMES,
      )
      const text = JSON.stringify(functions)
      for (const word of [
        'restart',
        'view_range',
        'insert_text',
        '/memories',
        'old_path',
        'zoom',
        '1024 by 768',
      ])
        t.ok((parrot.bodies.at(-1) ?? text).includes(word), word)
      t.notMatch(parrot.bodies.at(-1), /_20250|native|undo_edit/)
      const [call] = said.content as { id: string }[]
      await client.beta.messages.create({
        model: `parrot/${format}`,
        max_tokens: 200,
        tools,
        messages: [
          ...ASK.messages,
          { role: 'assistant', content: said.content as Anthropic.Beta.BetaContentBlockParam[] },
          { role: 'user', content: [{ type: 'tool_result', tool_use_id: call?.id ?? '', content: 'a.txt' }] },
        ],
      })
      t.match(parrot.bodies.at(-1), /a\.txt/)
    }
  })

  t.test(`a choice of one is that of its function (${format})`, async t => {
    parrot.parts = [{ kind: 'call', name: 'memory', custom: false, pieces: pieces('{"command":"view"}') }]
    const reply = await client.beta.messages.create({
      model: `parrot/${format}`,
      ...ASK,
      tools,
      tool_choice: { type: 'tool', name: 'memory' },
    })
    t.match(reply.content, [{ type: 'tool_use', name: 'memory' }])
    const sent = JSON.parse(parrot.bodies.at(-1) ?? '') as Record<string, unknown>
    t.match(JSON.stringify(sent['tool_choice'] ?? sent['toolConfig']), '"memory"')
  })
}

t.test('a provider of the API gets them as they came', async t => {
  parrot.parts = [{ kind: 'call', name: 'bash', custom: false, pieces: pieces('{"command":"ls"}') }]
  await client.beta.messages.create({ model: 'parrot/anthropic-messages', ...ASK, tools })
  t.match((JSON.parse(parrot.bodies.at(-1) ?? '') as { tools: unknown }).tools, tools)
})

t.test('older editors take edits back, and odd names and dates are refused by their path', async t => {
  parrot.parts = [{ kind: 'call', name: 'bash', custom: false, pieces: pieces('{}') }]
  const ask = async (tool: object) => {
    const reply = await fetch(`${gateway.url}/messages`, {
      method: 'POST',
      headers: { authorization: `Bearer ${gateway.apiKey}`, 'content-type': 'application/json' },
      body: JSON.stringify({ model: 'parrot/openai-chat', ...ASK, tools: [tool] }),
    })
    return { status: reply.status, text: await reply.text() }
  }
  t.equal((await ask({ type: 'text_editor_20250124', name: 'str_replace_editor' })).status, 200)
  t.match(parrot.bodies.at(-1), /undo_edit/)
  t.notMatch(parrot.bodies.at(-1), /insert_text/)
  const asked = parrot.bodies.length
  for (const tool of [
    { type: 'bash_20250124', name: 'a'.repeat(100_000) },
    { type: 'bash_20250124', name: 'no name' },
    { type: 'bash_20250124', name: { toString: 'x' } },
    { type: 'bash_20250124' },
    { type: 'bash', name: 'bash' },
    { type: 'mcp_toolset', name: 'x' },
  ]) {
    const { status, text } = await ask(tool)
    t.ok([400, 422].includes(status), text)
    t.match(text, /tools\[0\]/)
    t.notMatch(text, 'aaaa')
  }
  t.equal(parrot.bodies.length, asked)
})
