/**
 * Work grows no faster than the body, counted in runs of the product's functions: where parts of a body name each
 * other, and for each kind of element of a list. test/heavy/growth.test.ts has all places at all providers.
 */
import t from 'tap'
import { growing, startGrowing, statusOf, UPSTREAMS } from './support/growing-work.ts'
import { grownOperations } from './support/grown-operations.ts'
import { isExhaustive, share } from './support/share.ts'

// Bodies that grow in several places at once, with parts that refer to each other: calls and results, tools and names.

type Fields = Readonly<Record<string, unknown>>

interface RelatedGrowth {
  readonly name: string
  readonly path: '/responses' | '/chat/completions' | '/messages' | '/embeddings'
  body(count: number): Fields
}

const SERVER = 'https://192.0.2.1/mcp'
const list = <One>(count: number, make: (at: number) => One): One[] =>
  Array.from({ length: count }, (_, at) => make(at))
const user = (content: unknown = 'hi') => ({ role: 'user', content })
const fn = (name: string, more: Fields = {}) => ({
  type: 'function',
  name,
  parameters: { type: 'object', properties: {} },
  ...more,
})
const call = (at: number, name = `f${at}`, more: Fields = {}) => ({
  type: 'function_call',
  call_id: `c${at}`,
  name,
  arguments: '{}',
  ...more,
})
const result = (at: number) => ({ type: 'function_call_output', call_id: `c${at}`, output: 'done' })
const mcp = (more: Fields = {}) => ({
  type: 'mcp',
  server_label: 's',
  server_url: SERVER,
  require_approval: 'never',
  ...more,
})
const listing = (names: readonly string[]) => ({
  type: 'mcp_list_tools',
  id: 'l',
  server_label: 's',
  tools: names.map(name => ({ name, input_schema: {} })),
})
const responses = (name: string, body: (count: number) => Fields): RelatedGrowth => ({
  name,
  path: '/responses',
  body: count => ({ input: 'hi', ...body(count) }),
})
const chat = (name: string, body: (count: number) => Fields): RelatedGrowth => ({
  name,
  path: '/chat/completions',
  body: count => ({ messages: [user()], ...body(count) }),
})
const messages = (name: string, body: (count: number) => Fields): RelatedGrowth => ({
  name,
  path: '/messages',
  body: count => ({ max_tokens: 100, messages: [user()], ...body(count) }),
})

const RELATED: readonly RelatedGrowth[] = [
  responses('calls, results and functions', count => ({
    input: [user(), ...list(count, call), ...list(count, result)],
    tools: list(count, at => fn(`f${at}`)),
  })),
  responses('calls and results by turns', count => ({
    input: [user(), ...list(count, at => [call(at), result(at)]).flat()],
    tools: list(count, at => fn(`f${at}`)),
  })),
  responses('custom tools, their calls and results', count => ({
    input: [
      user(),
      ...list(count, at => ({ type: 'custom_tool_call', call_id: `c${at}`, name: `f${at}`, input: 'x' })),
      ...list(count, at => ({ type: 'custom_tool_call_output', call_id: `c${at}`, output: 'x' })),
    ],
    tools: list(count, at => ({ type: 'custom', name: `f${at}` })),
  })),
  responses('allowed tools and functions', count => ({
    tools: list(count, at => fn(`f${at}`)),
    tool_choice: {
      type: 'allowed_tools',
      mode: 'auto',
      tools: list(count, at => ({ type: 'function', name: `f${at}` })),
    },
  })),
  responses('functions of one name and a server tool of that name', count => ({
    tools: [...list(count, () => fn('datetime')), { type: 'gateway:datetime' }],
  })),
  responses('tools of an MCP server, allowed by name, asked about by name', count => ({
    input: [user(), listing(list(count, at => `t${at}`))],
    tools: [
      mcp({
        allowed_tools: list(count, at => `t${at}`),
        require_approval: { never: { tool_names: list(count, at => `t${at}`) } },
      }),
    ],
    tool_choice: { type: 'allowed_tools', mode: 'auto', tools: list(count, () => ({ type: 'mcp' })) },
  })),
  responses('tools of an MCP server whose names become the same', count => ({
    input: [
      user(),
      listing(list(count, at => `${at}`.replace(/./g, digit => '#%&!?*+~=/'[Number(digit)] ?? ''))),
    ],
    tools: [mcp()],
  })),
  responses('tools of an MCP server of one name', count => ({
    input: [user(), listing(list(16 * count, () => 't'))],
    tools: [mcp()],
  })),
  responses('refused calls of an MCP server', count => ({
    input: [
      user(),
      listing(list(count, at => `t${at}`)),
      ...list(count / 2, at => [
        { type: 'mcp_approval_request', id: `a${at}`, server_label: 's', name: `t${at}`, arguments: '{}' },
        { type: 'mcp_approval_response', approval_request_id: `a${at}`, approve: false },
      ]).flat(),
    ],
    tools: [mcp({ require_approval: 'always' })],
  })),
  responses('functions that a subagent inherits', count => ({
    tools: [
      { type: 'gateway:subagent', parameters: { inherited_function_names: list(count, at => `f${at}`) } },
      ...list(count, at => fn(`f${at}`)),
    ],
  })),
  responses('a namespace with many functions, and their calls', count => ({
    input: [user(), ...list(count, at => call(at, `f${at}`, { namespace: 'n' })), ...list(count, result)],
    tools: [{ type: 'namespace', name: 'n', description: 'd', tools: list(count, at => fn(`f${at}`)) }],
  })),
  responses('many namespaces', count => ({
    input: [user(), ...list(count, at => call(at, 'f', { namespace: `n${at}` })), ...list(count, result)],
    tools: list(count, at => ({ type: 'namespace', name: `n${at}`, description: 'd', tools: [fn('f')] })),
  })),
  responses('namespaces and their functions that are allowed by name', count => ({
    tools: list(count, at => ({
      type: 'namespace',
      name: `n${at}`,
      description: 'd',
      tools: [fn(`f${at}`)],
    })),
    tool_choice: {
      type: 'allowed_tools',
      mode: 'auto',
      tools: list(Math.min(1_024, count), at =>
        at % 2 === 0 ? { type: 'namespace', name: 'n1' } : { type: 'function', name: `f${at}` },
      ),
    },
  })),
  responses('functions that are deferred, and calls that name them', count => ({
    input: [user(), ...list(count, call), ...list(count, result)],
    tools: [
      { type: 'gateway:tool_search' },
      fn('now'),
      ...list(count, at => fn(`f${at}`, { defer_loading: true })),
    ],
  })),
  responses('tools that come on the way', count => ({
    input: [
      user(),
      ...list(count, at => ({ type: 'additional_tools', role: 'developer', tools: [fn(`f${at}`)] })),
      user(),
    ],
  })),
  responses('thoughts, answers and questions', count => ({
    input: list(count, at => [
      user(`question ${at}`),
      {
        type: 'reasoning',
        id: `r${at}`,
        summary: [{ type: 'summary_text', text: 'x' }],
        content: [{ type: 'reasoning_text', text: 'x' }],
        encrypted_content: `e${at}`,
      },
      {
        type: 'message',
        id: `m${at}`,
        role: 'assistant',
        status: 'completed',
        content: [{ type: 'output_text', text: 'x', annotations: [] }],
      },
    ])
      .flat()
      .concat([user('and?') as never]),
  })),
  responses('texts whose findings cross from one into the next', count => ({
    input: [user(list(count, at => ({ type: 'input_text', text: at % 2 === 0 ? 'joe@exa' : 'mple.com ' })))],
  })),
  responses('texts that each have a finding', count => ({
    instructions: 'be brief',
    input: list(count, at => user(`write to joe${at}@example.com`)),
  })),
  responses('models and lists of providers', count => ({
    models: list(Math.min(256, count), at => `acme/name${at}`),
    provider: {
      order: list(Math.min(256, count), at => `provider${at}`),
      ignore: list(Math.min(256, count), at => `other${at}`),
    },
  })),
  responses('advisors and what they said', count => ({
    input: [
      user(),
      ...list(count, at => ({
        type: 'gateway:advisor',
        prompt: 'x',
        advice: 'x',
        instance_name: `a${at % 8}`,
      })),
    ],
    tools: list(8, at => ({ type: 'gateway:advisor', parameters: { name: `a${at}` } })),
  })),
  responses('what hosted tools found', count => ({
    input: [
      user(),
      ...list(count, at => ({
        type: 'web_search_call',
        id: `w${at}`,
        status: 'completed',
        action: { type: 'search', query: 'x', sources: [{ type: 'url', url: `https://x.example/${at}` }] },
      })),
      user(),
    ],
  })),
  responses('a schema of the answer with definitions', count => ({
    text: {
      format: {
        type: 'json_schema',
        name: 'answer',
        strict: true,
        schema: {
          type: 'object',
          properties: Object.fromEntries(list(count, at => [`p${at}`, { $ref: `#/$defs/d${at}` }])),
          required: list(count, at => `p${at}`),
          additionalProperties: false,
          $defs: Object.fromEntries(list(count, at => [`d${at}`, { type: 'string' }])),
        },
      },
    },
    plugins: [{ id: 'response-healing' }],
  })),
  responses('messages that are compressed', count => ({
    input: list(count, at => user(`word ${at} `.repeat(20))),
    plugins: [{ id: 'context-compression' }],
    truncation: 'auto',
  })),
  responses('patterns of models for a router', count => ({
    model: 'gateway/auto',
    plugins: [{ id: 'auto-router', allowed_models: list(count, at => `acme/*${at}`) }],
  })),
  responses('conditions that stop', count => ({
    tools: [{ type: 'gateway:datetime' }],
    stop_server_tools_when: list(count, at => ({ type: 'has_tool_call', tool_name: `t${at}` })),
  })),
  chat('calls and results', count => ({
    messages: [
      user(),
      {
        role: 'assistant',
        content: null,
        tool_calls: list(count, at => ({
          id: `c${at}`,
          type: 'function',
          function: { name: `f${at}`, arguments: '{}' },
        })),
      },
      ...list(count, at => ({ role: 'tool', tool_call_id: `c${at}`, content: 'done' })),
    ],
    tools: list(count, at => ({ type: 'function', function: { name: `f${at}`, parameters: {} } })),
  })),
  chat('details of thoughts', count => ({
    messages: [
      user(),
      {
        role: 'assistant',
        content: 'x',
        reasoning_details: list(count, at => ({
          type: at % 2 === 0 ? 'reasoning.text' : 'reasoning.encrypted',
          ...(at % 2 === 0 ? { text: 'x' } : { data: 'x' }),
          index: at,
          format: 'unknown',
        })),
      },
      user(),
    ],
  })),
  chat('parts of many kinds', count => ({
    messages: [
      user(
        list(count, at =>
          at % 2 === 0
            ? { type: 'text', text: `x${at}`, cache_control: { type: 'ephemeral' } }
            : { type: 'image_url', image_url: { url: 'data:image/png;base64,AAAA' } },
        ),
      ),
    ],
  })),
  messages('calls and results', count => ({
    messages: [
      user(),
      {
        role: 'assistant',
        content: list(count, at => ({ type: 'tool_use', id: `c${at}`, name: `f${at}`, input: {} })),
      },
      user(list(count, at => ({ type: 'tool_result', tool_use_id: `c${at}`, content: 'done' }))),
    ],
    tools: list(count, at => ({ name: `f${at}`, input_schema: { type: 'object' } })),
  })),
  messages('calls and results by turns, with thoughts and marks', count => ({
    messages: [
      user(),
      ...list(count, at => [
        {
          role: 'assistant',
          content: [
            { type: 'thinking', thinking: 'x', signature: 'c2ln' },
            { type: 'tool_use', id: `c${at}`, name: 'f', input: {}, cache_control: { type: 'ephemeral' } },
          ],
        },
        user([{ type: 'tool_result', tool_use_id: `c${at}`, content: [{ type: 'text', text: 'done' }] }]),
      ]).flat(),
    ],
    tools: [{ name: 'f', input_schema: { type: 'object' } }],
    system: list(count, at => ({ type: 'text', text: `x${at}` })),
  })),
  messages('deferred tools, and results that name them', count => ({
    messages: [
      user(),
      { role: 'assistant', content: [{ type: 'tool_use', id: 'c', name: 'search', input: {} }] },
      user([
        {
          type: 'tool_result',
          tool_use_id: 'c',
          content: list(count, at => ({ type: 'tool_reference', tool_name: `f${at}` })),
        },
      ]),
    ],
    tools: [
      { name: 'search', input_schema: { type: 'object' } },
      ...list(count, at => ({ name: `f${at}`, input_schema: { type: 'object' }, defer_loading: true })),
    ],
  })),
  { name: 'texts', path: '/embeddings', body: count => ({ input: list(count, at => `joe${at}@exa`) }) },
  { name: 'lists of tokens', path: '/embeddings', body: count => ({ input: list(count, at => [at, 1]) }) },
]

/** Lists of the body itself. */
const OUTER = /^\.\w+\[[^\]]*\]$/

t.test('a body of twice the size takes twice the work', { timeout: 600_000 }, async t => {
  const world = await startGrowing(t)
  for (const [at, { name, path, body }] of RELATED.entries()) {
    const formats = isExhaustive ? UPSTREAMS : [UPSTREAMS[at % UPSTREAMS.length]]
    const models = path === '/embeddings' ? ['acme/embed'] : formats.map(format => `acme/${format}`)
    for (const model of models) {
      const statuses: number[] = []
      const found = await growing(world.counter, async count => {
        statuses.push(await statusOf(world, path, { model, ...body(count) }))
      })
      t.same(found, [], `${path}, ${model}: ${name} (${statuses.join(', ')})`)
    }
  }
  const operations = await grownOperations(t)
  t.ok(operations.length > 20)
  const statuses = new Map<number, number>()
  for (const { id, growths, models, send } of operations) {
    for (const [at, { path, build }] of share(
      growths.filter(growth => OUTER.test(growth.path)),
      3,
    ).entries()) {
      const model = models[at % models.length] ?? null
      const found = await growing(world.counter, async count => {
        const status = await send(world, model, build(count, at % 2 === 1))
        statuses.set(status, (statuses.get(status) ?? 0) + 1)
      })
      t.same(found, [], `${id}, ${model}: ${path}`)
    }
  }
  t.ok((statuses.get(200) ?? 0) > 100, `bodies were taken: ${JSON.stringify([...statuses])}`)
})
