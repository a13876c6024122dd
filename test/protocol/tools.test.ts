import t from 'tap'
import { accepted, body, refused, tools } from './bodies.ts'

const f = { type: 'function', name: 'f', parameters: {} }

t.test('tools and choices that are taken', t => {
  accepted(t, [
    ['a function without parameters', tools({ type: 'function', name: 'f' })],
    ['a function with null parameters', tools({ ...f, parameters: null, description: null, strict: null })],
    ['an asynchronous function', tools({ ...f, async: true })],
    ['a name of 64 characters', tools({ ...f, name: 'n'.repeat(64) })],
    [
      'a schema with an argument called constructor',
      tools({
        ...f,
        parameters: { type: 'object', properties: { constructor: { type: 'string' }, prototype: {} } },
      }),
    ],
    ['a custom tool of free text', tools({ type: 'custom', name: 'c', format: { type: 'text' } })],
    ['a code interpreter in a named container', tools({ type: 'code_interpreter', container: 'cntr_1' })],
    [
      'an MCP server with an approval word',
      tools({
        type: 'mcp',
        server_label: 's',
        server_url: 'https://m',
        require_approval: 'never',
        allowed_tools: { read_only: true },
      }),
    ],
    [
      'all search spellings',
      tools(
        { type: 'web_search' },
        { type: 'web_search_2025_08_26' },
        { type: 'web_search_preview' },
        { type: 'web_search_preview_2025_03_11' },
      ),
    ],
    [
      'a file filter that compares',
      tools({
        type: 'file_search',
        vector_store_ids: [],
        filters: { type: 'gte', key: 'year', value: 2020 },
      }),
    ],
    ...['auto', 'none', 'required'].map(
      choice => [`the choice ${choice}`, body({ tools: [f], tool_choice: choice })] as const,
    ),
    ['a forced function', body({ tools: [f], tool_choice: { type: 'function', name: 'f' } })],
    [
      'a forced custom tool',
      body({ tools: [{ type: 'custom', name: 'c' }], tool_choice: { type: 'custom', name: 'c' } }),
    ],
    [
      'a forced search',
      body({ tools: [{ type: 'web_search_preview' }], tool_choice: { type: 'web_search_preview' } }),
    ],
    ['a forced shell', body({ tools: [{ type: 'shell' }], tool_choice: { type: 'shell' } })],
    ['a forced patch', body({ tools: [{ type: 'apply_patch' }], tool_choice: { type: 'apply_patch' } })],
    [
      'a forced function of a namespace',
      body({
        tools: [
          { type: 'namespace', name: 'n', description: 'd', tools: [{ ...f, defer_loading: true }] },
          f,
        ],
        tool_choice: { type: 'function', namespace: 'n', name: 'f' },
      }),
    ],
    [
      'a forced function that the input adds',
      body({
        input: [{ type: 'additional_tools', role: 'developer', tools: [f] }],
        tool_choice: { type: 'function', name: 'f' },
      }),
    ],
    [
      'a forced function whose name an MCP server may know',
      body({
        tools: [{ type: 'mcp', server_label: 's', server_url: 'https://a.example' }],
        tool_choice: { type: 'function', name: 'later' },
      }),
    ],
    [
      'a forced server tool by the name of its function',
      body({ tools: [f, { type: 'gateway:datetime' }], tool_choice: { type: 'function', name: 'datetime' } }),
    ],
    ['a forced MCP server', body({ tool_choice: { type: 'mcp', server_label: 's' } })],
  ])
  t.end()
})

t.test('tools that are refused', t => {
  refused(t, [
    ['tools as an object', body({ tools: {} }), 'tools', /must be an array/],
    ['a tool that is a text', tools('f'), 'tools[0]', /must be an object \(tool\)/],
    ['a tool without a type', tools({ name: 'f' }), 'tools[0].type', /is required/],
    ['a tool of no kind', tools({ type: 'teleport' }), 'tools[0].type', /must name a known tool/],
    ['a tool of ours that does not exist', tools({ type: 'gateway:teleport' }), 'tools[0].type'],
    ['a function without a name', tools({ type: 'function' }), 'tools[0].name', /is required/],
    ['a function in the chat form', tools({ type: 'function', function: { name: 'f' } }), 'tools[0].name'],
    ['a name with a space', tools({ ...f, name: 'a b' }), 'tools[0].name', /1 to 128 letters, digits, dots/],
    ['two functions of one name', tools(f, f), 'tools[1].name', /must differ/],
    ['a custom tool with the name of a function', tools(f, { type: 'custom', name: 'f' }), 'tools[1].name'],
    [
      'two tools of one name in a namespace',
      tools({ type: 'namespace', name: 'n', description: 'd', tools: [f, f] }),
      'tools[0].tools[1].name',
    ],
    [
      'the choice of a function that is not there',
      body({ tools: [f], tool_choice: { type: 'function', name: 'g' } }),
      'tool_choice.name',
      /must be the name of one of the tools/,
    ],
    [
      'a forced custom tool without tools',
      body({ tool_choice: { type: 'custom', name: 'c' } }),
      'tool_choice.name',
    ],
    [
      'a list of allowed tools with one that is not there',
      body({
        tools: [f],
        tool_choice: {
          type: 'allowed_tools',
          mode: 'auto',
          tools: [
            { type: 'function', name: 'f' },
            { type: 'function', name: 'g' },
          ],
        },
      }),
      'tool_choice.tools[1].name',
    ],
    ['a name of 129 characters', tools({ ...f, name: 'n'.repeat(129) }), 'tools[0].name'],
    ['an empty name', tools({ ...f, name: '' }), 'tools[0].name'],
    ['a name with a line break at its end', tools({ ...f, name: 'f\n' }), 'tools[0].name'],
    ['a second function without a name', tools(f, { type: 'function', parameters: {} }), 'tools[1].name'],
    ['parameters as text', tools({ ...f, parameters: '{}' }), 'tools[0].parameters', /an object or null/],
    ['parameters as a list', tools({ ...f, parameters: [] }), 'tools[0].parameters'],
    ['a description that is a number', tools({ ...f, description: 1 }), 'tools[0].description'],
    ['strict as text', tools({ ...f, strict: 'true' }), 'tools[0].strict'],
    ['async as a number', tools({ ...f, async: 1 }), 'tools[0].async'],
    ['defer_loading as text', tools({ ...f, defer_loading: 'yes' }), 'tools[0].defer_loading'],
    ['a custom tool without a name', tools({ type: 'custom' }), 'tools[0].name'],
    [
      'a custom format of another kind',
      tools({ type: 'custom', name: 'c', format: { type: 'xml' } }),
      'tools[0].format.type',
    ],
    [
      'a grammar of another syntax',
      tools({ type: 'custom', name: 'c', format: { type: 'grammar', syntax: 'abnf', definition: '' } }),
      'tools[0].format.syntax',
    ],
    [
      'a grammar without a definition',
      tools({ type: 'custom', name: 'c', format: { type: 'grammar', syntax: 'regex' } }),
      'tools[0].format.definition',
    ],
    [
      'a namespace without tools',
      tools({ type: 'namespace', name: 'n', description: 'd' }),
      'tools[0].tools',
    ],
    [
      'a namespace in a namespace',
      tools({ type: 'namespace', name: 'n', description: 'd', tools: [{ type: 'namespace' }] }),
      'tools[0].tools[0].type',
    ],
    [
      'a nameless function in a namespace',
      tools({ type: 'namespace', name: 'n', description: 'd', tools: [{ type: 'function' }] }),
      'tools[0].tools[0].name',
    ],
    ['a search engine of no kind', tools({ type: 'web_search', engine: 'bing' }), 'tools[0].engine'],
    [
      '26 search results',
      tools({ type: 'web_search', max_results: 26 }),
      'tools[0].max_results',
      /from 1 to 25/,
    ],
    [
      'a search context of another size',
      tools({ type: 'web_search_preview', search_context_size: 'huge' }),
      'tools[0].search_context_size',
    ],
    [
      'search domains as text',
      tools({ type: 'web_search', filters: { allowed_domains: 'a.com' } }),
      'tools[0].filters.allowed_domains',
    ],
    [
      '21 X handles',
      tools({ type: 'web_search', x_search: { allowed_x_handles: Array.from({ length: 21 }, () => 'a') } }),
      'tools[0].x_search.allowed_x_handles',
      /at most 20/,
    ],
    [
      'a location of another type',
      tools({ type: 'web_search', user_location: { type: 'exact' } }),
      'tools[0].user_location.type',
    ],
    ['a file search without stores', tools({ type: 'file_search' }), 'tools[0].vector_store_ids'],
    [
      'a file filter of another kind',
      tools({ type: 'file_search', vector_store_ids: [], filters: { type: 'near' } }),
      'tools[0].filters.type',
    ],
    [
      'a file score above 1',
      tools({ type: 'file_search', vector_store_ids: [], ranking_options: { score_threshold: 2 } }),
      'tools[0].ranking_options.score_threshold',
    ],
    [
      'a computer without a display',
      tools({ type: 'computer_use_preview', environment: 'mac' }),
      'tools[0].display_width',
    ],
    [
      'a computer of another kind',
      tools({ type: 'computer_use_preview', display_width: 1, display_height: 1, environment: 'amiga' }),
      'tools[0].environment',
    ],
    ['a code interpreter without a container', tools({ type: 'code_interpreter' }), 'tools[0].container'],
    [
      'a container of another type',
      tools({ type: 'code_interpreter', container: { type: 'manual' } }),
      'tools[0].container.type',
    ],
    [
      'a container of another size',
      tools({ type: 'code_interpreter', container: { type: 'auto', memory_limit: '2g' } }),
      'tools[0].container.memory_limit',
    ],
    [
      'an MCP server without a label',
      tools({ type: 'mcp', server_url: 'https://m' }),
      'tools[0].server_label',
    ],
    [
      'an MCP connector of no kind',
      tools({ type: 'mcp', server_label: 's', connector_id: 'connector_fax' }),
      'tools[0].connector_id',
    ],
    [
      'an MCP header with a number',
      tools({ type: 'mcp', server_label: 's', server_url: 'u', headers: { 'x-n': 1 } }),
      'tools[0].headers.x-n',
    ],
    [
      'an MCP approval of another kind',
      tools({ type: 'mcp', server_label: 's', server_url: 'u', require_approval: 'maybe' }),
      'tools[0].require_approval',
    ],
    [
      'an image quality of another kind',
      tools({ type: 'image_generation', quality: 'best' }),
      'tools[0].quality',
    ],
    [
      'image compression above 100',
      tools({ type: 'image_generation', output_compression: 101 }),
      'tools[0].output_compression',
    ],
    [
      'parameters of a tool of ours as text',
      tools({ type: 'gateway:web_search', parameters: 'x' }),
      'tools[0].parameters',
    ],
    [
      'too many search results of ours',
      tools({ type: 'openrouter:web_search', parameters: { max_results: 0 } }),
      'tools[0].parameters.max_results',
    ],
    [
      'an advisor with a bad name',
      tools({ type: 'gateway:advisor', parameters: { name: 'a/b' } }),
      'tools[0].parameters.name',
    ],
    [
      'a subagent with 26 steps',
      tools({ type: 'gateway:subagent', parameters: { max_tool_calls: 26 } }),
      'tools[0].parameters.max_tool_calls',
    ],
    [
      'a panel of nine',
      tools({
        type: 'gateway:fusion',
        parameters: { analysis_models: Array.from({ length: 9 }, () => 'a/b') },
      }),
      'tools[0].parameters.analysis_models',
    ],
    [
      '51 found tools',
      tools({ type: 'tool_search', parameters: { max_results: 51 } }),
      'tools[0].parameters.max_results',
    ],
    [
      'a shell with a network of another kind',
      tools({
        type: 'gateway:shell',
        parameters: { environment: { type: 'container_auto', network_policy: { type: 'open' } } },
      }),
      'tools[0].parameters.environment.network_policy.type',
    ],
    [
      'a choice of another word',
      body({ tool_choice: 'any' }),
      'tool_choice',
      /one of auto, none, required or an object/,
    ],
    ['a choice that is a list', body({ tool_choice: [] }), 'tool_choice'],
    ['a choice without a type', body({ tool_choice: { name: 'f' } }), 'tool_choice.type'],
    ['a choice of no kind', body({ tool_choice: { type: 'teleport' } }), 'tool_choice.type'],
    ['a forced function without a name', body({ tool_choice: { type: 'function' } }), 'tool_choice.name'],
    [
      'a forced function in the chat form',
      body({ tool_choice: { type: 'function', function: { name: 'f' } } }),
      'tool_choice.name',
    ],
    [
      'allowed tools of another mode',
      body({ tool_choice: { type: 'allowed_tools', mode: 'none', tools: [] } }),
      'tool_choice.mode',
    ],
    [
      'allowed tools that are missing',
      body({ tool_choice: { type: 'allowed_tools', mode: 'auto' } }),
      'tool_choice.tools',
    ],
    [
      'allowed tools of texts',
      body({ tool_choice: { type: 'allowed_tools', mode: 'auto', tools: ['f'] } }),
      'tool_choice.tools[0]',
    ],
  ])
  t.end()
})
