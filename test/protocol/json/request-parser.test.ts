import t from 'tap'
import { createRequestParser } from '../../../src/protocol/json/request-parser.ts'
import { accepted, type BadRow, body, input, MODEL, parts, plugins, refused, tools } from '../bodies.ts'

t.test('features that are not offered are refused by name', t => {
  refused(t, [
    ['a preset as model', body({ model: '@preset/mine' }), 'model', /preset/],
    ['a preset behind a model', body({ model: 'acme/fast-1@preset/mine' }), 'model', /preset/],
    ['a preset in the model list', body({ models: [MODEL, '@preset/mine'] }), 'models[1]', /preset/],
    ['a preset field', body({ preset: 'mine' }), 'preset', /preset/],
    ['the auto router', body({ model: 'gateway/auto' }), 'model', /router auto/],
    ['the auto router by its public name', body({ model: 'openrouter/auto' }), 'model', /router auto/],
    ['the auto router with a variant', body({ model: 'openrouter/auto:nitro' }), 'model', /router auto/],
    ['the beta router', body({ model: 'gateway/auto-beta' }), 'model', /auto-beta/],
    ['the free router', body({ model: 'gateway/free' }), 'model', /free/],
    ['the pareto router', body({ model: 'gateway/pareto-code' }), 'model', /pareto-code/],
    ['the body builder', body({ model: 'gateway/bodybuilder' }), 'model', /bodybuilder/],
    ['the switchyard router', body({ model: 'nvidia/switchyard' }), 'model', /switchyard/],
    [
      'the jev router in the model list',
      body({ models: ['typesafe/jev-router'] }),
      'models[0]',
      /jev-router/,
    ],
  ])
  t.end()
})

t.test('the variant :online needs the plugin web', t => {
  const parse = createRequestParser({ plugins: new Set(), tools: new Set(), routers: new Set() })
  for (const model of ['acme/fast-1:online', 'acme/fast-1:free:online']) {
    accepted(t, [[model, body({ model })]])
    t.throws(
      () => parse({ model, input: 'x' }),
      { message: /^model: the variant :online is not offered/ },
      model,
    )
  }
  t.end()
})

t.test('rules that span fields', t => {
  const update = { type: 'configuration_update', reasoning: { effort: 'low' } }
  const hello = { role: 'user', content: 'Hello' }
  refused(t, [
    [
      'an image from nowhere',
      parts({ type: 'input_image' }),
      'input[0].content[0].image_url',
      /without file_id/,
    ],
    [
      'an image whose sources are null',
      parts({ type: 'input_text', text: '' }, { type: 'input_image', image_url: null, file_id: null }),
      'input[0].content[1].image_url',
    ],
    [
      'a file from nowhere',
      parts({ type: 'input_file', filename: 'a.pdf' }),
      'input[0].content[0].file_data',
    ],
    [
      'an image from nowhere in a tool output',
      input({ type: 'function_call_output', call_id: 'c', output: [{ type: 'input_image' }] }),
      'input[0].output[0].image_url',
    ],
    [
      'a reference to a stored item',
      input(hello, { type: 'item_reference', id: 'msg_1' }),
      'input[1].type',
      /not stored/,
    ],
    ['two configuration updates in a row', input(hello, update, update), 'input[2].type', /directly/],
    [
      'an MCP server without an address',
      tools({ type: 'mcp', server_label: 'docs' }),
      'tools[0].server_url',
      /without connector_id/,
    ],
    [
      'search domains both allowed and excluded',
      tools({ type: 'web_search', allowed_domains: ['a'], excluded_domains: ['b'] }),
      'tools[0].excluded_domains',
    ],
    [
      'X handles both allowed and excluded',
      tools({
        type: 'web_search_preview',
        x_search: { allowed_x_handles: ['a'], excluded_x_handles: ['b'] },
      }),
      'tools[0].x_search.excluded_x_handles',
    ],
    [
      'the same plugin twice',
      plugins({ id: 'web', enabled: false }, { id: 'web', enabled: false }),
      'plugins[1].id',
      /already in the list/,
    ],
    [
      'two alignment plugins',
      plugins({ id: 'alignment', rules: ['a'] }, { id: 'alignment', rules: ['b'] }),
      'plugins[1].id',
      /already in the list/,
    ],
    [
      'too many characters of router patterns',
      plugins({
        id: 'auto-router',
        enabled: false,
        allowed_models: Array.from({ length: 1000 }, () => 'x'.repeat(66)),
      }),
      'plugins[0].allowed_models',
      /65536/,
    ],
    [
      'too many characters of excluded patterns',
      plugins({
        id: 'auto-router',
        enabled: false,
        excluded_models: Array.from({ length: 65 }, () => 'x'.repeat(1024)),
      }),
      'plugins[0].excluded_models',
      /65536/,
    ],
  ])
  accepted(t, [
    ['an image by id', parts({ type: 'input_image', file_id: 'f_1' })],
    ['a file by address', parts({ type: 'input_file', file_url: 'https://example.com/a.pdf' })],
    ['configuration updates apart', input(update, hello, update)],
    ['an MCP connector', tools({ type: 'mcp', server_label: 'mail', connector_id: 'connector_gmail' })],
    ...['alignment', 'context-compression', 'file-parser', 'moderation', 'response-healing'].map(
      id =>
        [`the plugin ${id}`, plugins({ id, ...(id === 'alignment' ? { rules: ['Be kind'] } : {}) })] as const,
    ),
    ['empty search lists', tools({ type: 'web_search', allowed_domains: ['a'], excluded_domains: [] })],
    [
      'exactly the allowed characters of patterns',
      plugins({
        id: 'auto-router',
        enabled: false,
        allowed_models: Array.from({ length: 64 }, () => 'x'.repeat(1024)),
      }),
    ],
  ])
  t.end()
})

t.test('plugins and server tools are refused until they are offered', t => {
  const ids = [
    'moderation',
    'file-parser',
    'context-compression',
    'response-healing',
    'auto-beta-router',
    'auto-router',
    'fusion',
    'jev-router',
    'pareto-router',
    'switchyard-router',
    'web',
    'web-fetch',
  ]
  const names = [
    'web_search',
    'web_fetch',
    'datetime',
    'image_generation',
    'fusion',
    'advisor',
    'subagent',
    'files',
    'experimental__search_models',
    'tool_search',
    'bash',
    'shell',
    'apply_patch',
  ]
  const nothing = new Set<string>()
  const parse = createRequestParser({ plugins: nothing, tools: nothing, routers: nothing })
  const requests: BadRow[] = [
    ...ids.map(
      id =>
        [
          `the plugin ${id}`,
          plugins({ id }),
          'plugins[0].id',
          new RegExp(`the ${id} plugin is not offered`),
        ] as const,
    ),
    ...names.flatMap(name =>
      ['gateway', 'openrouter'].map(
        prefix =>
          [
            `${prefix}:${name}`,
            tools({ type: `${prefix}:${name}` }),
            'tools[0].type',
            new RegExp(`the ${name} server tool is not offered`),
          ] as const,
      ),
    ),
    ['the short spelling of tool search', tools({ type: 'tool_search' }), 'tools[0].type'],
    [
      'a server tool among additional tools',
      input({ type: 'additional_tools', role: 'developer', tools: [{ type: 'gateway:datetime' }] }),
      'input[0].tools[0].type',
    ],
    [
      'a search engine of ours',
      tools({ type: 'web_search', engine: 'exa' }),
      'tools[0].engine',
      /auto or native/,
    ],
    [
      'a deferred function',
      tools({ type: 'function', name: 'f', parameters: {}, defer_loading: true }),
      'tools[0].defer_loading',
      /tool_search/,
    ],
    [
      'a deferred function in a namespace',
      tools({
        type: 'namespace',
        name: 'n',
        description: 'd',
        tools: [{ type: 'function', name: 'f', defer_loading: true }],
      }),
      'tools[0].tools[0].defer_loading',
    ],
    ['the auto router', body({ model: 'gateway/auto' }), 'model', /router auto is not offered/],
  ]
  refused(t, requests, parse)
  const all = { plugins: new Set(ids), tools: new Set(names), routers: new Set(['auto']) }
  accepted(
    t,
    requests.map(([title, request]) => [`${title}, when it is offered,`, request]),
    createRequestParser(all),
  )
  const turnedOff = ids.filter(id => id !== 'jev-router' && id !== 'moderation')
  accepted(
    t,
    [
      ...turnedOff.map(id => [`the plugin ${id}, turned off`, plugins({ id, enabled: false })] as const),
      ['a search with the engine of the provider', tools({ type: 'web_search', engine: 'native' })],
      ['a search with the engine left to us', tools({ type: 'web_search_preview', engine: 'auto' })],
      [
        'a function that is not deferred',
        tools({ type: 'function', name: 'f', parameters: {}, defer_loading: false }),
      ],
    ],
    parse,
  )
  t.end()
})
