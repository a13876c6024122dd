import t from 'tap'
import { encodeTools } from '../../../src/formats/google-gemini/tools.ts'
import { parseResponsesRequest } from '../../support/dialects.ts'

const fn = (name: string, more: Record<string, unknown> = {}) => ({ type: 'function', name, ...more })

t.test('tools and tool choice', async t => {
  const parameters = {
    type: 'object',
    properties: { a: { $ref: '#/$defs/a' } },
    $defs: { a: { type: 'string' } },
  }
  const declared = (...names: string[]) => [{ functionDeclarations: names.map(name => ({ name })) }]
  const cases: readonly {
    body: Record<string, unknown>
    tools: unknown
    config?: unknown
    model?: string
  }[] = [
    { body: { tools: [] }, tools: [] },
    {
      body: {
        tools: [
          fn('f', { description: 'd', strict: true, parameters, async: true, defer_loading: false }),
          fn('g', { parameters: null }),
          fn('h', { parameters: {} }),
        ],
      },
      tools: [
        {
          functionDeclarations: [
            { name: 'f', description: 'd', parametersJsonSchema: parameters },
            { name: 'g' },
            { name: 'h' },
          ],
        },
      ],
    },
    {
      body: {
        tools: [
          { type: 'web_search' },
          {
            type: 'web_search_preview',
            search_context_size: 'low',
            filters: null,
            user_location: { type: 'approximate', country: 'DE' },
          },
          { type: 'web_search_2025_08_26', filters: { allowed_domains: [] } },
          { type: 'web_search_preview_2025_03_11' },
          { type: 'code_interpreter', container: { type: 'auto' } },
        ],
      },
      tools: [{ googleSearch: {} }, { codeExecution: {} }],
    },
    {
      body: { tools: [fn('f')], tool_choice: 'auto' },
      tools: declared('f'),
      config: { functionCallingConfig: { mode: 'AUTO' } },
    },
    {
      body: { tools: [fn('f')], tool_choice: 'none' },
      tools: declared('f'),
      config: { functionCallingConfig: { mode: 'NONE' } },
    },
    {
      body: { tools: [fn('f')], tool_choice: 'required' },
      tools: declared('f'),
      config: { functionCallingConfig: { mode: 'ANY' } },
    },
    {
      body: { tools: [fn('f'), fn('g')], tool_choice: { type: 'function', name: 'g' } },
      tools: declared('f', 'g'),
      config: { functionCallingConfig: { mode: 'ANY', allowedFunctionNames: ['g'] } },
    },
    {
      body: {
        tools: [fn('f'), fn('g'), { type: 'web_search' }, { type: 'shell' }],
        tool_choice: {
          type: 'allowed_tools',
          mode: 'auto',
          tools: [{ type: 'function', name: 'g' }, { type: 'web_search' }],
        },
      },
      tools: [{ googleSearch: {} }, ...declared('g')],
      config: { functionCallingConfig: { mode: 'AUTO' } },
    },
    {
      body: {
        tools: [fn('f'), fn('g')],
        tool_choice: { type: 'allowed_tools', mode: 'required', tools: [{ type: 'function', name: 'g' }] },
      },
      tools: declared('g'),
      config: { functionCallingConfig: { mode: 'ANY' } },
    },
    { body: { tools: [{ type: 'web_search' }], tool_choice: 'auto' }, tools: [{ googleSearch: {} }] },
    { body: { tools: [{ type: 'web_search' }], tool_choice: 'none' }, tools: [] },
    { body: { tool_choice: 'none' }, tools: [] },
    { body: { tools: [fn('f'), { type: 'web_search' }] }, tools: [{ googleSearch: {} }, ...declared('f')] },
    {
      model: 'gemini-3-flash-preview',
      body: { tools: [fn('f'), { type: 'web_search' }] },
      tools: [{ googleSearch: {} }, ...declared('f')],
      config: { includeServerSideToolInvocations: true },
    },
  ]
  for (const { body, tools, config = null, model = 'gemini-2.5-flash' } of cases) {
    const request = parseResponsesRequest({ model: 'google/gemini', input: 'Hi', ...body })
    const { omittedTools: leftOut, ...encoded } = encodeTools(request, model)
    t.strictSame(encoded, { tools, toolConfig: config }, JSON.stringify(body))
    t.same(leftOut, [])
  }
})
