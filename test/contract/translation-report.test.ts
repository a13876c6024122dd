/** What a request lost or had changed on its way is told by the paths of the client's own body, and costs others nothing. */
import t from 'tap'
import { startGateway } from '../support/gateway.ts'
import { FORMATS, parrotRows, startParrot } from '../support/provider.ts'

interface Change {
  readonly field: string
  readonly action: string
}

const parrot = await startParrot(t)
const rows = parrotRows(parrot.url)
const gateway = await startGateway({
  ...rows,
  models: [
    ...(rows.models ?? []),
    {
      id: 'parrot/pro',
      endpoints: [{ provider: 'parrot', format: 'google-gemini', upstreamModel: 'gemini-2.5-pro' }],
    },
    ...FORMATS.map(format => ({
      id: `parrot/few-${format}`,
      endpoints: [
        {
          provider: 'parrot',
          format,
          upstreamModel: 'm',
          efforts: ['low' as const, 'high' as const],
          jsonFormats: [],
        },
      ],
    })),
    {
      id: 'parrot/old',
      endpoints: [{ provider: 'parrot', format: 'google-gemini', upstreamModel: 'gemini-2.5-flash' }],
    },
    {
      id: 'parrot/new',
      endpoints: [{ provider: 'parrot', format: 'google-gemini', upstreamModel: 'gemini-3.6-flash' }],
    },
    {
      id: 'parrot/two',
      endpoints: [
        { provider: 'parrot', format: 'anthropic-messages', upstreamModel: 'm' },
        { provider: 'parrot', format: 'openai-chat', upstreamModel: 'm' },
      ],
    },
  ],
  routing: { loadBalancing: false },
})
t.teardown(() => gateway.close())

async function post(path: string, body: object, metadata = true, refused = false) {
  const reply = await fetch(`${gateway.url}${path}`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${gateway.apiKey}`,
      'content-type': 'application/json',
      ...(metadata ? { 'x-gateway-metadata': 'enabled' } : {}),
    },
    body: JSON.stringify(body),
  })
  const text = await reply.text()
  if (reply.status !== 200 && !refused) t.fail(text)
  const header = reply.headers.get('x-gateway-changed')
  const answer = text.startsWith('{')
    ? (JSON.parse(text) as { gateway_metadata?: { pipeline?: readonly { type: string; data?: unknown }[] } })
    : {}
  const element = answer.gateway_metadata?.pipeline?.find(({ type }) => type === 'translation')
  const { changes = [] } = (element?.data ?? {}) as { readonly changes?: readonly Change[] }
  return {
    status: reply.status,
    text,
    header,
    told: changes.map(({ field, action }) => `${action} ${field}`),
  }
}

const f = { type: 'function', function: { name: 'f', parameters: { type: 'object' } } }
const call = (id: string) => ({ id, type: 'function', function: { name: 'f', arguments: '{"a"' } })

t.test('ids, arguments and fields of a chat client at Anthropic', async t => {
  const { header, told } = await post('/chat/completions', {
    model: 'parrot/anthropic-messages',
    seed: 7,
    tools: [f],
    messages: [
      { role: 'user', content: 'Go' },
      { role: 'assistant', content: null, tool_calls: [call('a.b')] },
      { role: 'tool', tool_call_id: 'a.b', content: 'x' },
    ],
  })
  t.same(told, [
    'dropped seed',
    'changed messages[1].tool_calls[0].id',
    'changed messages[2].tool_call_id',
    'changed messages[1].tool_calls[0].function.arguments',
  ])
  t.equal(header, '4')
})

t.test('names and results of a client of Messages at chat completions', async t => {
  const name = `mcp__${'n'.repeat(80)}`
  const image = { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'iVBORw0KGgo=' } }
  const { header, told } = await post('/messages', {
    model: 'parrot/openai-chat',
    max_tokens: 9,
    tools: [{ name, input_schema: { type: 'object' } }],
    messages: [
      { role: 'user', content: 'Go' },
      { role: 'assistant', content: [{ type: 'tool_use', id: 't1', name, input: {} }] },
      { role: 'user', content: [{ type: 'tool_result', tool_use_id: 't1', content: [image] }] },
    ],
  })
  t.same(told, ['moved messages[2].content[0].content', 'changed tools[0].name'])
  t.equal(header, '2')
})

t.test('a message that had to move, and the number of changes in front of a stream', async t => {
  const body = {
    model: 'parrot/google-gemini',
    tools: [{ type: 'function', name: 'f', parameters: { type: 'object' } }],
    input: [
      { role: 'user', content: 'Go' },
      { type: 'function_call', call_id: 'c1', name: 'f', arguments: '{}' },
      { role: 'user', content: 'note' },
      { type: 'function_call_output', call_id: 'c1', output: 'x' },
    ],
  }
  t.same((await post('/responses', body)).told, ['moved input[2]'])
  t.equal(
    (await post('/responses', { ...body, stream: true }, false)).header,
    '1',
    'without the metadata too',
  )
})

t.test('a request that goes as it came has no header', async t => {
  for (const model of ['parrot/openai-chat', 'parrot/anthropic-messages', 'parrot/google-gemini']) {
    const { header, told } = await post('/responses', { model, input: 'Hi', temperature: 0.5 })
    t.equal(header, null, model)
    t.same(told, [], model)
  }
})

const MARK = { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'iVBORw0KGgo=' } }
const PNG = 'data:image/png;base64,iVBORw0KGgo='
const NAME = 'srv.tool'
/** The own API takes it. */
const LONG = 'n'.repeat(80)
const parameters = { type: 'object', properties: {} }

/** A request whose name of a tool no format but Google's takes, and whose picture in a result Google's does not. */
const REQUESTS: readonly [
  door: string,
  path: (model: string) => string,
  body: (model: string) => object,
  field: string,
  picture: string,
][] = [
  [
    'responses',
    () => '/responses',
    model => ({
      model,
      tools: [{ type: 'function', name: NAME, parameters }],
      input: [
        { role: 'user', content: 'Go' },
        { type: 'function_call', call_id: 'c1', name: NAME, arguments: '{}' },
        { type: 'function_call_output', call_id: 'c1', output: [{ type: 'input_image', image_url: PNG }] },
      ],
    }),
    'tools[0].name',
    'input[2].output',
  ],
  [
    'chat',
    () => '/chat/completions',
    model => ({
      model,
      tools: [{ type: 'function', function: { name: NAME, parameters } }],
      messages: [
        { role: 'user', content: 'Go' },
        {
          role: 'assistant',
          content: null,
          tool_calls: [{ id: 'c1', type: 'function', function: { name: NAME, arguments: '{' } }],
        },
        { role: 'tool', tool_call_id: 'c1', content: 'x' },
      ],
    }),
    'tools[0].function.name',
    'messages[1].tool_calls[0].function.arguments',
  ],
  [
    'messages',
    () => '/messages',
    model => ({
      model,
      max_tokens: 50,
      tools: [{ name: LONG, input_schema: parameters }],
      messages: [
        { role: 'user', content: 'Go' },
        { role: 'assistant', content: [{ type: 'tool_use', id: 't1', name: LONG, input: {} }] },
        { role: 'user', content: [{ type: 'tool_result', tool_use_id: 't1', content: [MARK] }] },
      ],
    }),
    'tools[0].name',
    'messages[2].content[0].content',
  ],
]

t.test(
  'a change is a refusal where the client requires all parameters, at every door and format',
  async t => {
    for (const [door, path, body, name, other] of REQUESTS) {
      for (const format of FORMATS.filter(each => door !== 'messages' || each !== 'anthropic-messages')) {
        const model = `parrot/${format}`
        const before = parrot.bodies.length
        for (const stream of [false, true]) {
          const sent = { ...body(model), stream, provider: { require_parameters: true } }
          const { status, text } = await post(path(model), sent, false, true)
          const at = `${door} ${format} ${stream}`
          t.equal(status, 404, at)
          t.match(text, 'constraint_filtered', at)
          t.match(text, format === 'google-gemini' ? other : name, at)
        }
        t.equal(parrot.bodies.length, before, `${door} ${format}: nobody was called`)
        t.not((await post(path(model), body(model))).header, null, `${door} ${format}: told without it`)
      }
    }
  },
)

t.test('the next endpoint gets a request that the first would change, even without fallbacks', async t => {
  for (const allow_fallbacks of [true, false]) {
    const { told } = await post('/chat/completions', {
      model: 'parrot/two',
      seed: 7,
      messages: [{ role: 'user', content: 'Hi' }],
      provider: { require_parameters: true, allow_fallbacks },
    })
    t.same(told, [])
    t.match(parrot.bodies.at(-1), '"seed":7')
  }
})

t.test('an addition of the gateway is told and refuses nothing', async t => {
  const body = {
    model: 'parrot/google-gemini',
    provider: { require_parameters: true },
    tools: [{ type: 'function', name: 'f', parameters }],
    input: [
      { type: 'function_call', call_id: 'c1', name: 'f', arguments: '{}' },
      { type: 'function_call_output', call_id: 'c1', output: 'x' },
    ],
  }
  t.same((await post('/responses', body)).told, ['changed input[0]'])
  t.match(parrot.bodies.at(-1), 'Begin.')
})

t.test('settings that the model does not take are told', async t => {
  const chat = (more: object) => ({ messages: [{ role: 'user', content: 'Hi' }], ...more })
  for (const [format, more, expected] of [
    ['anthropic-messages', { temperature: 1.5 }, ['changed temperature']],
    ['anthropic-messages', { verbosity: 'low' }, ['dropped verbosity']],
    ['anthropic-messages', { response_format: { type: 'json_object' } }, ['changed response_format']],
    ['google-gemini', { seed: 2 ** 40 + 1 }, ['changed seed']],
    ['google-gemini', { temperature: 1.5, top_p: 0.5, seed: 3 }, []],
    ['openai-chat', { temperature: 1.5, top_p: 0.5, seed: 3, logit_bias: { 5: 1 } }, []],
    ['openai-responses', { temperature: 1.5, seed: 3 }, ['dropped seed']],
    ['openai-chat', { reasoning_effort: 'high', verbosity: 'low' }, []],
    ['anthropic-messages', { reasoning_effort: 'high' }, []],
    ['google-gemini', { reasoning_effort: 'high' }, []],
  ] as const) {
    const { told } = await post('/chat/completions', { ...chat(more), model: `parrot/${format}` })
    t.same(told, expected, `${format} ${JSON.stringify(more)}`)
  }
})

t.test('what a model lacks becomes the nearest that it has, which is told, or refused', async t => {
  const schema = { type: 'object', properties: {}, additionalProperties: false }
  const format = { type: 'json_schema', name: 's', schema }
  const USER = { role: 'user', content: 'Hi' }
  const doors: readonly [path: string, body: object, effort: string, field: string][] = [
    [
      '/responses',
      { input: 'Hi', reasoning: { effort: 'xhigh' }, text: { format } },
      'reasoning.effort',
      'text.format',
    ],
    [
      '/chat/completions',
      {
        messages: [USER],
        reasoning_effort: 'xhigh',
        response_format: { type: 'json_schema', json_schema: { name: 's', schema } },
      },
      'reasoning_effort',
      'response_format',
    ],
    [
      '/messages',
      {
        messages: [USER],
        max_tokens: 5_000,
        thinking: { type: 'adaptive' },
        output_config: { effort: 'xhigh', format: { type: 'json_schema', schema } },
      },
      'output_config.effort',
      'output_config.format',
    ],
  ]
  for (const [path, body, effort, field] of doors) {
    for (const receiver of ['openai-chat', 'openai-responses']) {
      const model = `parrot/few-${receiver}`
      const at = `${path} to ${receiver}`
      const { told, header } = await post(path, { model, ...body })
      t.same(told, [`changed ${effort}`, `changed ${field}`], at)
      t.equal(header, '2', at)
      const sent = parrot.bodies.at(-1) ?? ''
      t.match(sent, '"high"', at)
      t.match(sent, 'JSON Schema', at)
      t.notMatch(sent, /"json_schema"|xhigh/, at)
      const all = { model, ...body, provider: { require_parameters: true } }
      const { status, text } = await post(path, all, true, true)
      t.equal(status, 404, at)
      t.match(text, effort, at)
    }
  }
})

t.test("Google's own tools beside functions are left out where the model refuses both", async t => {
  const tools = [
    { type: 'web_search' },
    { type: 'function', name: 'f', parameters: { type: 'object', properties: {} } },
  ]
  await post('/responses', { model: 'parrot/old', input: 'Hi', tools })
  t.notMatch(parrot.bodies.at(-1), 'googleSearch')
  t.match(parrot.bodies.at(-1), 'functionDeclarations')
  await post('/responses', { model: 'parrot/old', input: 'Hi', tools: tools.slice(0, 1) })
  t.match(parrot.bodies.at(-1), 'googleSearch')
  await post('/responses', { model: 'parrot/new', input: 'Hi', tools })
  t.match(parrot.bodies.at(-1), 'googleSearch')
  t.match(parrot.bodies.at(-1), 'functionDeclarations')
})

t.test('a turn of the user follows where a model does not go on with its own', async t => {
  const { told } = await post('/chat/completions', {
    model: 'parrot/new',
    messages: [
      { role: 'user', content: 'Hi' },
      { role: 'assistant', content: 'It is' },
    ],
  })
  t.same(told, ['changed messages'])
  t.match(parrot.bodies.at(-1), 'Continue.')
})

const SIGNATURE = 'S'.repeat(60)
const USER = { role: 'user', content: 'Go' }
const ran = {
  type: 'web_search_call',
  id: 'ws_1',
  status: 'completed',
  action: { type: 'search', query: 'q' },
}
/** At which formats an item of the history is told as lost. */
const LOST: readonly (readonly [item: object, formats: readonly string[]])[] = [
  [ran, ['openai-chat', 'anthropic-messages', 'google-gemini']],
  [
    {
      type: 'reasoning',
      id: 'rs_1',
      summary: [],
      encrypted_content: 'x'.repeat(60),
      format: 'openai-responses-v1',
    },
    ['openai-chat', 'anthropic-messages', 'google-gemini'],
  ],
  [
    {
      type: 'reasoning',
      id: 'rs_1',
      summary: [],
      content: [{ type: 'reasoning_text', text: 'Hm' }],
      signature: SIGNATURE,
      format: 'anthropic-claude-v1',
    },
    ['openai-chat', 'openai-responses', 'google-gemini'],
  ],
  [
    {
      type: 'reasoning',
      id: 'rs_1',
      summary: [{ type: 'summary_text', text: 'Hm' }],
      signature: SIGNATURE,
      format: 'google-gemini-v1',
    },
    ['openai-chat', 'openai-responses', 'anthropic-messages'],
  ],
  [{ type: 'reasoning', id: 'rs_1', summary: [{ type: 'summary_text', text: 'Hm' }] }, []],
]

t.test('reasoning of another provider, and items of its tools, are told where they are left out', async t => {
  for (const [item, formats] of LOST) {
    for (const format of FORMATS) {
      const body = {
        model: `parrot/${format}`,
        input: [USER, item, { role: 'assistant', content: 'Yes' }, USER],
      }
      const { told, header } = await post('/responses', body)
      const expected = formats.includes(format) ? ['dropped input[1]'] : []
      const at = `${format}: ${JSON.stringify(item)}`
      t.same(told, expected, at)
      t.equal(header, expected.length === 0 ? null : '1', at)
      t.equal((await post('/responses', body, false)).header, header, `${at}, without the metadata`)
    }
  }
})

t.test('reasoning has the path of the client, whatever moved before it', async t => {
  const messages = {
    model: 'parrot/google-gemini',
    max_tokens: 50,
    messages: [
      USER,
      {
        role: 'assistant',
        content: [
          { type: 'text', text: 'Well' },
          { type: 'thinking', thinking: 'Hm', signature: SIGNATURE },
          { type: 'text', text: 'Yes' },
        ],
      },
      USER,
    ],
  }
  t.same((await post('/messages', messages)).told, ['dropped messages[1].content[1]'])
  const chat = {
    model: 'parrot/anthropic-messages',
    messages: [
      { role: 'system', content: 'Be brief' },
      USER,
      {
        role: 'assistant',
        content: 'Yes',
        reasoning_details: [
          { type: 'reasoning.text', text: 'Hm', signature: SIGNATURE, format: 'google-gemini-v1', index: 0 },
        ],
      },
      USER,
    ],
  }
  t.same((await post('/chat/completions', chat)).told, ['dropped messages[2].reasoning_details'])
  const moved = {
    model: 'parrot/google-gemini',
    tools: [{ type: 'function', name: 'f', parameters }],
    input: [
      USER,
      { type: 'function_call', call_id: 'c1', name: 'f', arguments: '{}' },
      { role: 'user', content: 'note' },
      { type: 'function_call_output', call_id: 'c1', output: 'x' },
      ran,
      USER,
    ],
  }
  t.same((await post('/responses', moved)).told, ['moved input[2]', 'dropped input[4]'])
})

t.test('tools that a provider gets in another form are told, and added ones as moved', async t => {
  const custom = {
    type: 'custom',
    name: 'sql',
    format: { type: 'grammar', syntax: 'lark', definition: 'start: "a"' },
  }
  const namespace = {
    type: 'namespace',
    name: 'crm',
    description: 'Customers',
    tools: [{ type: 'function', name: 'find', parameters }],
  }
  const search = { type: 'tool_search', execution: 'client', description: 'Finds', parameters }
  const input = [USER, { type: 'additional_tools', role: 'developer', tools: [custom] }, USER]
  const tools = [{ type: 'function', name: 'f', parameters }, custom, namespace, search]
  for (const format of FORMATS) {
    const { told } = await post('/responses', { model: `parrot/${format}`, input, tools: tools.slice(0, 1) })
    t.same(told, format === 'openai-responses' ? [] : ['moved input[1]'], `${format}, added`)
    const listed = await post('/responses', { model: `parrot/${format}`, input: 'Go', tools })
    t.same(
      listed.told.filter(each => !each.endsWith('.name')),
      format === 'openai-responses' ? [] : ['changed tools[1]', 'changed tools[2]', 'changed tools[3]'],
      format,
    )
  }
  const chat = {
    model: 'parrot/google-gemini',
    messages: [USER],
    tools: [{ type: 'custom', custom: { name: 'sql' } }],
  }
  t.same((await post('/chat/completions', chat)).told, ['changed tools[0]'])
  const { status, text } = await post(
    '/chat/completions',
    { ...chat, provider: { require_parameters: true } },
    true,
    true,
  )
  t.equal(status, 404)
  t.match(text, 'tools[0]')
})

t.test('a model that always thinks gets its smallest budget, and that is told', async t => {
  const chat = { model: 'parrot/pro', messages: [USER] }
  t.same((await post('/chat/completions', { ...chat, reasoning_effort: 'none' })).told, [
    'changed reasoning_effort',
  ])
  t.match(parrot.bodies.at(-1), '"thinkingBudget":128')
  t.same((await post('/chat/completions', { ...chat, reasoning_effort: 'low' })).told, [])
  const { told } = await post('/responses', {
    model: 'parrot/pro',
    input: 'Hi',
    reasoning: { enabled: false },
  })
  t.same(told, ['changed reasoning.enabled'])
})
