import t from 'tap'
import { accepted, input, refused } from './bodies.ts'

t.test('items of tools that a provider ran, as clients replay them', t => {
  accepted(t, [
    ['an image call by its id alone', input({ type: 'image_generation_call', id: 'ig_1' })],
    [
      'a web search action of a kind yet to come',
      input({ type: 'web_search_call', id: 'ws', status: 'completed', action: { type: 'zoom' } }),
    ],
    [
      'a web search that only opens a page',
      input({ type: 'web_search_call', status: 'completed', action: { type: 'open_page', url: null } }),
    ],
    [
      'an MCP error as a text',
      input({ type: 'mcp_call', id: 'm', name: 'n', arguments: '{}', server_label: 's', error: 'down' }),
    ],
    [
      'an MCP error as an object',
      input({
        type: 'mcp_call',
        id: 'm',
        name: 'n',
        arguments: '{}',
        server_label: 's',
        error: { type: 'http_error', code: 500, message: 'm' },
      }),
    ],
  ])
  refused(t, [
    [
      'an MCP list without a server',
      input({ type: 'mcp_list_tools', id: 'm', tools: [] }),
      'input[0].server_label',
    ],
    [
      'an MCP tool without a schema',
      input({ type: 'mcp_list_tools', id: 'm', server_label: 's', tools: [{ name: 'n' }] }),
      'input[0].tools[0].input_schema',
    ],
    [
      'an MCP approval as text',
      input({ type: 'mcp_approval_response', approval_request_id: 'm', approve: 'yes' }),
      'input[0].approve',
    ],
    [
      'an MCP approval request without arguments',
      input({ type: 'mcp_approval_request', id: 'm', name: 'n', server_label: 's' }),
      'input[0].arguments',
    ],
    [
      'a computer call without its checks',
      input({ type: 'computer_call', call_id: 'c', status: 'completed' }),
      'input[0].pending_safety_checks',
    ],
    [
      'a computer output of another kind',
      input({ type: 'computer_call_output', call_id: 'c', output: { type: 'video' } }),
      'input[0].output.type',
    ],
    [
      'a web search status of another kind',
      input({ type: 'web_search_call', id: 'w', status: 'incomplete' }),
      'input[0].status',
    ],
    [
      'a file search without queries',
      input({ type: 'file_search_call', id: 'f', status: 'completed' }),
      'input[0].queries',
    ],
    [
      'an image result as an object',
      input({ type: 'image_generation_call', id: 'i', result: {} }),
      'input[0].result',
    ],
    [
      'a code output without logs',
      input({ type: 'code_interpreter_call', id: 'c', outputs: [{ type: 'logs' }] }),
      'input[0].outputs[0].logs',
    ],
  ])
  t.end()
})
