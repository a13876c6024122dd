/**
 * Every server tool and tool plugin, streamed and whole: what it does when it succeeds, when it fails, when the budget
 * is spent, when the client leaves, when the deadline passes, and when the workspace has disabled it. Prints N/N.
 */
import { createServer, type RequestListener } from 'node:http'
import t, { type Test } from 'tap'
import { FORMATS } from '../../src/formats/table.ts'
import { loadConfig } from '../../src/process/config/config.ts'
import type { StreamEvent } from '../../src/protocol/events.ts'
import type { FormatName } from '../../src/protocol/provider.ts'
import type { ResponseResource } from '../../src/protocol/response.ts'
import { parseResponsesRequest } from '../support/dialects.ts'
import { endpointOf } from '../support/endpoint.ts'
import { grammarViolations } from '../support/event-grammar.ts'
import { parseEventStream, startGateway, type TestGateway } from '../support/gateway.ts'
import { listening } from '../support/listening.ts'
import { caller } from '../support/management.ts'
import { startMcpServer } from '../support/mcp-server.ts'
import { ScriptedProvider, type ScriptedReply } from '../support/provider.ts'

type Fields = Readonly<Record<string, unknown>>

interface World {
  readonly gateway: TestGateway
  readonly provider: ScriptedProvider
  readonly pages: string
  readonly mcpUrl: string
}

interface Row {
  readonly name: string
  /** The request beside model and input. */
  readonly fields: (world: World) => Fields
  /** The function that the model sees; null for a plugin that works without a call. */
  readonly calls: string | null
  readonly works: Fields
  /** Type of the item; null: none. */
  readonly item: string | null
  /** Arguments that the tool refuses, and its words to the model; null: there are none. */
  readonly fails: readonly [Fields, RegExp] | null
  /** Its name for `disabled_server_tools`; null: it cannot be disabled. */
  readonly disabled: string | null
  /** Answers of other models that it asks. */
  readonly others?: readonly ScriptedReply[]
  /** The client has to act: the turn ends with the call. */
  readonly endsTurn?: true
}

const SAYS: ScriptedReply = { text: 'So it is.' }
const ADVICE = JSON.stringify({
  consensus: [],
  contradictions: [],
  partial_coverage: [],
  unique_insights: [],
  blind_spots: [],
})
const PATCH = { type: 'create_file', path: 'a.txt', diff: '+one\n' }
const tool = (type: string, parameters?: Fields, more: Fields = {}) => ({
  tools: [{ type, ...(parameters === undefined ? {} : { parameters }), ...more }],
})

/** A tool of the gateway under its own name, unless the row says otherwise. */
function row(name: string, works: Fields, fails: Row['fails'], more: Partial<Row> = {}): Row {
  const type = `gateway:${name}`
  return { name, fields: () => tool(type), calls: name, works, item: type, fails, disabled: name, ...more }
}

/** The same tool by another type, as the providers spell it. */
function spelled(type: string, row: Row, item: string, more: Fields = {}): Row {
  const isOurs = type.includes(':')
  return {
    ...row,
    name: type,
    fields: () => (isOurs ? tool(type) : tool(type, undefined, more)),
    item: isOurs ? type : item,
  }
}

const SEARCH = row('web_search', { query: 'tea' }, [{}, /query/])
const FETCH = row('web_fetch', { url: 'PAGES/page' }, [{ url: 'PAGES/missing' }, /HTTP 404/])
const IMAGE = row('image_generation', { prompt: 'a cat' }, [{}, /prompt/])
const FILE_SEARCH = row('file_search', { query: 'one', queries: ['one'] }, [{}, /quer/])
const SHELL = row('shell', { commands: ['echo hi'] }, [{}, /commands/])
const PYTHON = row('code_interpreter', { code: 'print(1)' }, [{}, /code/])
const PATCHING = row(
  'apply_patch',
  { operation: PATCH },
  [{ operation: { ...PATCH, diff: 'no plus' } }, /diff|patch|line/i],
  { endsTurn: true },
)
const FUSION = { analysis_models: ['acme/side'], model: 'acme/analyst' }
const FUSING = row('fusion', {}, null, { fields: () => tool('gateway:fusion', FUSION), others: [SAYS] })

const ROWS: readonly Row[] = [
  row('datetime', { timezone: 'UTC' }, [{ timezone: 'Nowhere' }, /IANA/]),
  ...['gateway:web_search', 'openrouter:web_search', 'web_search', 'web_search_preview'].map(type =>
    spelled(type, SEARCH, 'web_search_call'),
  ),
  FETCH,
  {
    ...IMAGE,
    name: 'gateway:image_generation',
    fields: () => tool('gateway:image_generation', { model: 'acme/draw' }),
  },
  spelled('image_generation', IMAGE, 'image_generation_call', { model: 'acme/draw' }),
  FUSING,
  { ...FUSING, name: 'plugin fusion', fields: () => ({ plugins: [{ id: 'fusion', ...FUSION }] }) },
  row('advisor', { prompt: 'Help' }, [{}, /prompt/], {
    fields: () => tool('gateway:advisor', { model: 'acme/side' }),
    others: [SAYS],
  }),
  row('subagent', { task_name: 't', task_description: 'Do it' }, [{}, /task_/], {
    fields: () => tool('gateway:subagent', { model: 'acme/side' }),
    others: [SAYS],
  }),
  row('files', { operation: 'write', filename: 'a.txt', content: 'one' }, [
    { operation: 'read', filename: 'none.txt' },
    /file/i,
  ]),
  ...['gateway:file_search', 'file_search'].map(type =>
    spelled(type, FILE_SEARCH, 'file_search_call', { vector_store_ids: ['workspace'] }),
  ),
  row('memory', { action: 'write', key: 'k', value: 'v' }, [{ action: 'nonsense' }, /action/]),
  row('text_editor', { command: 'create', path: 'b.txt', file_text: 'one' }, [
    { command: 'view', path: 'none.txt' },
    /file/i,
  ]),
  row('experimental__search_models', { query: 'side' }, null),
  row(
    'tool_search',
    { query: 'weather', pattern: 'weather', regex: 'weather' },
    [{ query: '(', pattern: '(', regex: '(' }, /pattern|regular|regex/i],
    {
      fields: () => ({
        tools: [
          { type: 'gateway:tool_search' },
          { type: 'function', name: 'always', parameters: { type: 'object' } },
          { type: 'function', name: 'weather', parameters: { type: 'object' }, defer_loading: true },
        ],
      }),
    },
  ),
  row('bash', { command: 'echo hi' }, [{}, /command/], {
    fields: () => tool('gateway:bash', { engine: 'gateway' }),
  }),
  ...['gateway:shell', 'shell'].map(type => spelled(type, SHELL, 'shell_call')),
  { ...spelled('local_shell', SHELL, 'shell_call'), calls: 'local_shell' },
  ...['gateway:code_interpreter', 'code_interpreter'].map(type =>
    spelled(type, PYTHON, 'code_interpreter_call', { container: { type: 'auto' } }),
  ),
  ...['gateway:apply_patch', 'apply_patch'].map(type => spelled(type, PATCHING, 'apply_patch_call')),
  row('mcp', { a: 1, b: 2 }, [{ a: 'fail', b: 2 }, /cannot add|Invalid|error/i], {
    fields: ({ mcpUrl }) =>
      tool('mcp', undefined, { server_label: 's', server_url: mcpUrl, require_approval: 'never' }),
    calls: 'add',
    item: 'mcp_call',
    disabled: null,
  }),
  {
    ...SEARCH,
    name: 'plugin web',
    fields: () => ({ plugins: [{ id: 'web' }] }),
    calls: null,
    works: {},
    item: null,
    fails: null,
  },
  { ...FETCH, name: 'plugin web-fetch', fields: () => ({ plugins: [{ id: 'web-fetch' }] }) },
]

async function listen(t: Test, listener: RequestListener): Promise<string> {
  const server = createServer(listener)
  const { port } = await listening(server, t)
  return `http://127.0.0.1:${port}`
}

async function start(t: Test): Promise<World> {
  const pages = await listen(t, (request, response) => {
    if (request.url?.startsWith('/search') === true) {
      response.setHeader('content-type', 'application/json')
      response.end(JSON.stringify({ results: [{ url: 'https://a.test/1', title: 'A', content: 'tea' }] }))
    } else if (request.url === '/page') {
      response.setHeader('content-type', 'text/html')
      response.end('<html><title>Tea</title><body><p>All about tea, and more about tea.</p></body></html>')
    } else response.writeHead(404).end()
  })
  const painter = await listen(t, (request, response) => {
    request.resume().on('end', () => {
      const url = `data:image/png;base64,${Buffer.from('no real picture').toString('base64')}`
      const message = { role: 'assistant', content: '', images: [{ type: 'image_url', image_url: { url } }] }
      response.setHeader('content-type', 'application/json')
      response.end(
        JSON.stringify({
          id: 'x',
          choices: [{ index: 0, finish_reason: 'stop', message }],
          usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
        }),
      )
    })
  })
  const mcp = await startMcpServer({
    tools: [
      {
        name: 'add',
        description: 'Adds two numbers.',
        inputSchema: { type: 'object', properties: { a: {}, b: {} } },
        run: ({ a, b }) =>
          a === 'fail'
            ? { isError: true, content: [{ type: 'text', text: 'cannot add' }] }
            : { content: [{ type: 'text', text: String(Number(a) + Number(b)) }] },
      },
    ],
  })
  t.teardown(mcp.close)
  const provider = new ScriptedProvider()
  const baseUrl = await provider.listen()
  const pricing = { prompt: '0.000001', completion: '0.00001' }
  const model = (id: string, more: Fields = {}) => ({
    id: `acme/${id}`,
    name: id,
    endpoints: [{ provider: 'acme', upstreamModel: id, pricing }],
    ...more,
  })
  const { tools } = loadConfig([], {})
  const gateway = await startGateway({
    providers: [
      { slug: 'acme', name: 'Acme', format: 'openai-chat', baseUrl, apiKey: 'x' },
      { slug: 'painter', name: 'Painter', format: 'openai-chat', baseUrl: painter, apiKey: 'x' },
    ],
    models: [
      model('outer'),
      model('side'),
      model('analyst'),
      {
        ...model('draw', { outputModalities: ['text', 'image'] }),
        endpoints: [{ provider: 'painter', upstreamModel: 'draw', pricing }],
      },
    ],
    tools: {
      mcp: { ...tools.mcp, allowPrivate: true },
      webSearch: {
        ...tools.webSearch,
        default: 'ours',
        engines: [{ name: 'ours', kind: 'searxng', baseUrl: pages }],
      },
      webFetch: { ...tools.webFetch, allowPrivate: true },
    },
  })
  t.teardown(async () => {
    await gateway.close()
    await provider.close()
  })
  return { gateway, provider, pages, mcpUrl: mcp.url }
}

const tally = { seen: 0, expected: 0 }
/** Items of each whole answer. */
const answers: { readonly name: string; readonly items: readonly object[] }[] = []

t.test('server tools and plugins, streamed and whole', async t => {
  const world = await start(t)
  const { gateway, provider, pages } = world
  const written = (args: Fields) => JSON.stringify(args).replaceAll('PAGES', pages)
  const call = (row: Row, args: Fields, times = 1): ScriptedReply => ({
    calls: Array.from({ length: times }, () => ({ name: row.calls ?? '', arguments: written(args) })),
  })
  const asking = (row: Row, replies: readonly ScriptedReply[], stream: boolean, more: Fields = {}) => {
    provider.asked.length = 0
    provider.script('outer', replies)
    provider.script('side', row.others ?? [])
    provider.script('analyst', [{ text: ADVICE }])
    return { model: 'acme/outer', input: 'Well?', stream, ...row.fields(world), ...more }
  }
  const ask = async (
    t: Test,
    row: Row,
    replies: readonly ScriptedReply[],
    stream: boolean,
    more: Fields = {},
  ): Promise<ResponseResource> => {
    const reply = await gateway.respond(asking(row, replies, stream, more))
    const text = await reply.text()
    t.equal(reply.status, 200, text.slice(0, 300))
    if (!stream) return JSON.parse(text) as ResponseResource
    const events = parseEventStream(text)
    t.same(grammarViolations(events), [])
    return (events.at(-1) as StreamEvent & { response: ResponseResource }).response
  }
  const toldLast = (): string => {
    const outer = provider.asked.findLast(({ model }) => model === 'outer')
    const messages = (outer?.body['messages'] ?? []) as readonly { role: string; content: unknown }[]
    return messages
      .filter(({ role }) => role === 'tool')
      .map(({ content }) => String(content))
      .join('\n')
  }
  const use = (response: ResponseResource) =>
    (response.usage as { server_tool_use_details?: Fields } | null)?.server_tool_use_details
  const manage = caller(gateway.url, gateway.managementKey)

  for (const row of ROWS) {
    for (const stream of [false, true]) {
      const form = stream ? 'streamed' : 'whole'
      const check = (what: string, run: (t: Test) => Promise<void>) => {
        tally.expected++
        return t.test(`${row.name}, ${form}: ${what}`, async t => {
          await run(t)
          if (t.passing()) tally.seen++
        })
      }
      await check('success', async t => {
        const replies = row.calls === null ? [SAYS] : [call(row, row.works), SAYS]
        const response = await ask(t, row, replies, stream)
        t.equal(response.status, 'completed')
        if (!stream) answers.push({ name: row.name, items: response.output })
        const types = response.output.map(({ type }) => type)
        if (row.item !== null) t.ok(types.includes(row.item as never), `${types}`)
        const item = response.output.find(({ type }) => type === row.item) as { status?: string } | undefined
        if (row.item !== null && row.endsTurn !== true) t.equal(item?.status ?? 'completed', 'completed')
        const executed = row.endsTurn === true ? 0 : 1
        if (row.calls !== null)
          t.match(use(response), { tool_calls_requested: 1, tool_calls_executed: executed })
        if (row.endsTurn !== true) t.equal(types.at(-1), 'message')
        if (row.calls !== null && row.endsTurn !== true) t.not(toldLast(), '', 'the model got a result')
      })
      const { fails, calls, disabled } = row
      if (fails !== null) {
        await check('failure', async t => {
          const response = await ask(t, row, [call(row, fails[0]), SAYS], stream)
          t.equal(response.status, 'completed', 'a failure of a tool is no failure of the answer')
          t.match(toldLast(), fails[1])
          t.equal(response.output.at(-1)?.type, 'message')
        })
      }
      if (calls !== null) {
        await check('budget spent', async t => {
          const replies = [call(row, row.works, 2), SAYS]
          const response = await ask(t, row, replies, stream, { max_tool_calls: 1 })
          const executed = row.endsTurn === true ? 0 : 1
          t.match(use(response), { tool_calls_requested: 2, tool_calls_executed: executed })
          if (row.endsTurn !== true) t.match(toldLast(), /limit of tool calls/)
        })
      }
      if (row.endsTurn !== true) {
        await check('abort', async t => {
          const leaving = new AbortController()
          const before = provider.left
          const replies =
            row.calls === null ? [{ hangs: true as const }] : [call(row, row.works), { hangs: true as const }]
          const asked = row.calls === null ? 1 : 2
          const body = asking(row, replies, stream)
          const answer = gateway.respond(body, { signal: leaving.signal }).then(
            reply => reply.text(),
            () => '',
          )
          const ended = answer.catch(() => '')
          const isWaiting = () => provider.asked.filter(({ model }) => model === 'outer').length === asked
          // A reply that comes instead would be waited for without end.
          await Promise.race([provider.until(isWaiting), ended])
          t.ok(isWaiting())
          if (!isWaiting()) return
          leaving.abort()
          await ended
          await provider.until(({ left }) => left > before)
          t.ok(provider.left > before, 'the call at the provider ends')
        })
      }
      if (disabled !== null) {
        await check('disabled', async t => {
          const path = '/workspaces/ws_default'
          t.equal((await manage('PATCH', path, { disabled_server_tools: [disabled] })).status, 200)
          try {
            const reply = await gateway.respond(asking(row, [SAYS], stream))
            t.equal(reply.status, 403, await reply.text())
            t.equal(provider.asked.length, 0)
          } finally {
            await manage('PATCH', path, { disabled_server_tools: null })
          }
        })
      }
    }
  }
})

t.test('the items of every answer go back to a provider of every format', async t => {
  const names = Object.keys(FORMATS) as FormatName[]
  const user = { type: 'message', role: 'user', content: 'And now?' }
  let accepted = 0
  let refused = 0
  for (const { name, items } of answers) {
    // A call that the client has to answer has its answer.
    const outputs = items.flatMap(item => answerTo(item as Fields))
    for (const format of names) {
      try {
        const request = parseResponsesRequest({
          model: 'acme/outer',
          input: [user, ...items, ...outputs, user],
        })
        const { body } = FORMATS[format].encode({ request, stream: false, endUser: null }, endpointOf(format))
        t.match(JSON.stringify(body), /And now/)
        accepted++
      } catch (thrown) {
        refused++
        t.match((thrown as Error).message, /^input\[\d+\]/, `${name} at ${format} is refused by its path`)
      }
    }
  }
  t.comment(
    `answers sent back: ${accepted} accepted, ${refused} refused by name, of ${answers.length * names.length}`,
  )
  t.equal(accepted, answers.length * names.length)
})

/** The client has applied the patch. */
function answerTo({ type, call_id }: Fields): readonly object[] {
  if (type === 'apply_patch_call') return [{ type: 'apply_patch_call_output', call_id, status: 'completed' }]
  return type === 'gateway:apply_patch' ? [{ type: 'function_call_output', call_id, output: 'applied' }] : []
}

t.test('all of them', async t => {
  t.comment(`tools and plugins: ${ROWS.length}; cases: ${tally.seen}/${tally.expected}`)
  t.ok(ROWS.length >= 25)
  t.equal(tally.seen, tally.expected)
})
