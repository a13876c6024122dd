/**
 * A tool that a workspace has disabled cannot be reached: each way of a request to it, at each door that has the way,
 * before providers of each format. Nobody is asked.
 */
import t, { type Test } from 'tap'
import { FORMATS } from '../../src/formats/table.ts'
import type { FormatName } from '../../src/protocol/provider.ts'
import { startGateway } from '../support/gateway.ts'
import { caller } from '../support/management.ts'
import { ScriptedProvider } from '../support/provider.ts'

type Fields = Readonly<Record<string, unknown>>

const FORMAT_NAMES = Object.keys(FORMATS) as FormatName[]

interface Way {
  readonly name: string
  readonly tool: string
  readonly fields: Fields
  readonly doors: readonly DoorName[]
  /** The field that the refusal names. */
  readonly path: RegExp
}

const BODIES = {
  responses: { path: '/responses', body: { input: 'hi' } },
  chat: { path: '/chat/completions', body: { messages: [{ role: 'user', content: 'hi' }] } },
  messages: { path: '/messages', body: { max_tokens: 50, messages: [{ role: 'user', content: 'hi' }] } },
} as const
type DoorName = keyof typeof BODIES
const ALL = Object.keys(BODIES) as DoorName[]

const named = (tool: string, type: string, doors: readonly DoorName[], more: Fields = {}): Way => ({
  name: `tools: ${type}`,
  tool,
  fields: { tools: [{ type, ...more }] },
  doors,
  path: /tools[.[]0/,
})
const plugin = (tool: string, id: string, doors: readonly DoorName[] = ALL): Way => ({
  name: `plugin ${id}`,
  tool,
  fields: { plugins: [{ id }] },
  doors,
  path: /plugins\[0\]/,
})
const added = (tool: string, type: string, more: Fields = {}): Way => ({
  name: `additional_tools: ${type}`,
  tool,
  fields: {
    input: [
      { type: 'message', role: 'user', content: 'hi' },
      { type: 'additional_tools', role: 'developer', tools: [{ type, ...more }] },
    ],
  },
  doors: ['responses'],
  path: /input\[1\]\.tools\[0\]/,
})
const field = (name: string, value: unknown): Way => ({
  name,
  tool: 'web_search',
  fields: { [name]: value },
  doors: ['chat'],
  path: new RegExp(name),
})

const CONTAINER = { container: { type: 'auto' } }
const RESPONSES: readonly DoorName[] = ['responses']
const MESSAGES: readonly DoorName[] = ['messages']

const WAYS: readonly Way[] = [
  ...['web_search', 'web_fetch', 'code_interpreter', 'bash'].flatMap(tool =>
    ['gateway', 'openrouter'].map(prefix => named(tool, `${prefix}:${tool}`, ALL)),
  ),
  named('shell', 'gateway:shell', ['responses', 'messages']),
  named('fusion', 'gateway:fusion', ALL),
  ...['web_search', 'web_search_2025_08_26', 'web_search_preview', 'web_search_preview_2025_03_11'].map(
    type => named('web_search', type, ['responses', 'chat']),
  ),
  named('code_interpreter', 'code_interpreter', ['responses', 'chat'], CONTAINER),
  named('shell', 'shell', RESPONSES),
  named('shell', 'local_shell', RESPONSES),
  ...['web_search_20250305', 'web_search_20260209'].map(type =>
    named('web_search', type, MESSAGES, { name: 'web_search' }),
  ),
  ...['web_fetch_20250910', 'web_fetch_20260209'].map(type =>
    named('web_fetch', type, MESSAGES, { name: 'web_fetch' }),
  ),
  ...['code_execution_20250522', 'code_execution_20250825'].map(type =>
    named('code_interpreter', type, MESSAGES, { name: 'code_execution' }),
  ),
  added('web_search', 'web_search'),
  added('web_search', 'gateway:web_search'),
  added('code_interpreter', 'code_interpreter', CONTAINER),
  added('shell', 'shell'),
  plugin('web_search', 'web'),
  plugin('web_fetch', 'web-fetch'),
  plugin('fusion', 'fusion'),
  {
    name: ':online',
    tool: 'web_search',
    fields: { model: 'm/openai-chat:online' },
    doors: ALL,
    path: /model/,
  },
  { name: 'gateway/fusion', tool: 'fusion', fields: { model: 'gateway/fusion' }, doors: ALL, path: /model/ },
  field('web_search_options', {}),
  field('search_parameters', { mode: 'on' }),
  field('enable_search', true),
  {
    name: 'tools of a subagent',
    tool: 'web_search',
    fields: {
      tools: [{ type: 'gateway:subagent', parameters: { tools: [{ type: 'gateway:web_search' }] } }],
    },
    doors: RESPONSES,
    path: /tools\[0\]\.parameters\.tools\[0\]/,
  },
  {
    name: 'tools of a panel',
    tool: 'web_fetch',
    fields: { plugins: [{ id: 'fusion', tools: [{ type: 'gateway:web_fetch' }] }] },
    doors: RESPONSES,
    path: /plugins\[0\]\.tools\[0\]/,
  },
]

async function start(t: Test) {
  const provider = new ScriptedProvider()
  const baseUrl = await provider.listen()
  const endpoint = (format: string) => ({ provider: format, upstreamModel: format })
  const gateway = await startGateway({
    providers: FORMAT_NAMES.map(format => ({ slug: format, format, baseUrl, apiKey: 'k' })),
    models: [
      ...FORMAT_NAMES.map(format => ({ id: `m/${format}`, endpoints: [endpoint(format)] })),
      ...['a', 'b'].map(name => ({
        id: `m/${name}`,
        endpoints: [{ provider: 'openai-chat', upstreamModel: name }],
      })),
    ],
    fusion: { panel: ['m/a', 'm/b'] },
  })
  t.teardown(async () => {
    await gateway.close()
    await provider.close()
  })
  const manage = caller(gateway.url, gateway.managementKey)
  const asks = caller(gateway.url, gateway.apiKey)
  const disable = async (tools: readonly string[] | null) => {
    const answer = await manage('PATCH', '/workspaces/ws_default', { disabled_server_tools: tools })
    t.equal(answer.status, 200)
  }
  const ask = (door: DoorName, format: FormatName, fields: Fields) => {
    const { path, body } = BODIES[door]
    return asks('POST', path, { model: `m/${format}`, ...body, ...fields })
  }
  const askGoogle = (format: FormatName, fields: Fields) =>
    asks('POST', `/models/m/${format}:generateContent`, {
      contents: [{ role: 'user', parts: [{ text: 'hi' }] }],
      ...fields,
    })
  return { provider, disable, ask, askGoogle }
}

t.test('every way to a disabled tool is closed, at every door, before every format', async t => {
  const { provider, disable, ask } = await start(t)
  const sum = { asked: 0 }
  for (const way of WAYS) {
    await disable([way.tool])
    for (const door of way.doors) {
      for (const format of FORMAT_NAMES) {
        const told = await ask(door, format, way.fields)
        const label = `${way.name} at ${door} before ${format}`
        t.equal(told.status, 403, `${label}: ${told.text.slice(0, 200)}`)
        t.match(told.message, `the ${way.tool} server tool is disabled in this workspace`, label)
        t.match(told.message, way.path, label)
        sum.asked++
      }
    }
  }
  t.equal(provider.asked.length, 0, 'nobody was asked')
  t.comment(`${sum.asked} requests`)
})

t.test('the ways of clients of Google to a disabled tool are closed', async t => {
  const { provider, disable, askGoogle } = await start(t)
  for (const [tool, entry] of [
    ['web_search', { googleSearch: {} }],
    ['web_search', { googleSearchRetrieval: {} }],
    ['web_search', { enterpriseWebSearch: {} }],
    ['web_search', { exaAiSearch: {} }],
    ['web_search', { parallelAiSearch: {} }],
    ['web_search', { type: 'gateway:web_search' }],
    ['web_fetch', { urlContext: {} }],
    ['code_interpreter', { codeExecution: {} }],
  ] as const) {
    await disable([tool])
    for (const format of FORMAT_NAMES) {
      const told = await askGoogle(format, { tools: [entry] })
      const label = `${JSON.stringify(entry)} before ${format}`
      t.equal(told.status, 403, `${label}: ${told.text.slice(0, 200)}`)
      t.match(told.message, `the ${tool} server tool is disabled in this workspace`, label)
      t.match(told.message, /^tools\[0\]/, label)
    }
  }
  t.equal(provider.asked.length, 0, 'nobody was asked')
})

t.test('a way to another tool stays open', async t => {
  const { provider, disable, ask } = await start(t)
  await disable(['web_fetch'])
  provider.script('openai-chat', [{ text: 'Fine' }, { text: 'Fine' }])
  t.equal((await ask('chat', 'openai-chat', { web_search_options: {} })).status, 200)
  const off = { plugins: [{ id: 'web-fetch' }, { id: 'web', enabled: false }] }
  t.equal((await ask('responses', 'openai-chat', { plugins: off.plugins.slice(1) })).status, 200)
})

t.test('fusion offers its panel what is left', async t => {
  const { provider, disable, ask } = await start(t)
  const calls = [{ name: 'fusion', arguments: '{}' }]
  const ways: readonly Fields[] = [
    { tools: [{ type: 'gateway:fusion', parameters: { model: 'm/b' } }] },
    { plugins: [{ id: 'fusion', model: 'm/b' }] },
    { model: 'gateway/fusion', plugins: [{ id: 'fusion', model: 'm/openai-chat' }] },
  ]
  for (const [disabled, left] of [
    [['web_fetch'], /^$/],
    [['web_search'], /web_fetch/],
    [['web_search', 'web_fetch'], /^$/],
  ] as const) {
    await disable(disabled)
    for (const fields of ways) {
      provider.asked.length = 0
      provider.script('openai-chat', [{ calls }, { text: '{}' }, { text: 'So.' }])
      provider.script('a', [{ text: 'A' }])
      provider.script('b', [{ text: 'B' }, { text: '{}' }])
      const told = await ask('responses', 'openai-chat', fields)
      t.equal(told.status, 200, told.text)
      const [panel] = provider.asked.filter(({ model }) => model === 'a')
      t.ok(panel, 'the panel was asked')
      const tools = (panel?.body['tools'] ?? []) as { function: { name: string } }[]
      t.match(tools.map(tool => tool.function.name).join(' '), left)
      t.notMatch(told.text, 'all_panels_failed')
      t.notMatch(told.text, 'failed_models')
    }
  }
})
