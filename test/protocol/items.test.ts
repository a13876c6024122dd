import t from 'tap'
import { accepted, input, parts, refused } from './bodies.ts'

const call = { type: 'function_call', call_id: 'c', name: 'f', arguments: '{}' }
const shell = { type: 'shell_call', call_id: 'c', action: { commands: ['ls'] } }

t.test('what clients replay is taken leniently', t => {
  accepted(t, [
    ['a message without type, id and status', input({ role: 'assistant', content: 'Hi' })],
    [
      'an assistant message of parts without annotations',
      input({ role: 'assistant', content: [{ type: 'output_text', text: 'Hi' }] }),
    ],
    [
      'an assistant message in the input form',
      input({ role: 'assistant', content: [{ type: 'input_text', text: 'Hi' }] }),
    ],
    ['an assistant message with null content', input({ type: 'message', role: 'assistant', content: null })],
    ['an assistant message of no parts', input({ role: 'assistant', content: [] })],
    [
      'nulls for everything optional',
      input(
        { role: 'assistant', content: 'Hi', id: null, status: null, phase: null },
        { ...call, id: null, status: null, namespace: null, async: null },
      ),
    ],
    ['an image without detail', parts({ type: 'input_image', image_url: 'https://example.com/a.png' })],
    [
      'an image with a null detail',
      parts({ type: 'input_image', image_url: 'https://example.com/a.png', detail: null }),
    ],
    ['reasoning without an id', input({ type: 'reasoning', summary: [], encrypted_content: 'e' })],
    ['reasoning with a null content', input({ type: 'reasoning', id: 'rs', summary: [], content: null })],
    ['reasoning of a format yet to come', input({ type: 'reasoning', summary: [], format: 'acme-v9' })],
    [
      'an annotation of a kind yet to come',
      input({
        role: 'assistant',
        content: [{ type: 'output_text', text: '', annotations: [{ type: 'map_pin', lat: 1 }] }],
      }),
    ],
    [
      'a citation without positions',
      input({
        role: 'assistant',
        content: [
          {
            type: 'output_text',
            text: '',
            annotations: [{ type: 'url_citation', url: 'https://example.com' }],
          },
        ],
      }),
    ],
    [
      'a call with a signature and other fields of its own',
      input({ ...call, signature: 's', extra: { a: 1 } }),
    ],
    ['a tool output of no parts', input({ type: 'function_call_output', call_id: 'c', output: [] })],
    [
      'a tool output with a file',
      input({
        type: 'custom_tool_call_output',
        call_id: 'c',
        output: [{ type: 'input_file', file_id: 'f' }],
      }),
    ],
    [
      'a deleted file',
      input({
        type: 'apply_patch_call',
        call_id: 'c',
        operation: { type: 'delete_file', path: 'a' },
        status: 'in_progress',
      }),
    ],
    [
      'a shell that timed out',
      input({
        type: 'shell_call_output',
        call_id: 'c',
        output: [{ stdout: '', stderr: '', outcome: { type: 'timeout' } }],
      }),
    ],
  ])
  t.end()
})

t.test('messages that are refused', t => {
  refused(t, [
    ['an item of no kind', input({ type: 'poem' }), 'input[0].type', /must name a known input item/],
    ['a kind that is an inherited name', input({ type: 'toString' }), 'input[0].type'],
    ['a kind that is a number', input({ type: 5 }), 'input[0].type', /must be a string/],
    ['a kind that is null', input({ type: null, role: 'user', content: 'x' }), 'input[0].type'],
    [
      'an item without type and role',
      input({ content: 'x' }),
      'input[0].type',
      /names the kind of input item/,
    ],
    ['a message without a role', input({ type: 'message', content: 'x' }), 'input[0].role', /is required/],
    [
      'a role of another kind',
      input({ role: 'tool', content: 'x' }),
      'input[0].role',
      /user, system, developer, assistant/,
    ],
    ['a role that is an inherited name', input({ role: 'constructor', content: 'x' }), 'input[0].role'],
    ['a message without content', input({ role: 'user' }), 'input[0].content', /is required/],
    [
      'content as a number',
      input({ role: 'user', content: 1 }),
      'input[0].content',
      /a string or an array or null/,
    ],
    [
      'content as one part',
      input({ role: 'user', content: { type: 'input_text', text: 'x' } }),
      'input[0].content',
    ],
    ['a second item that is a text', input({ role: 'user', content: 'x' }, 'y'), 'input[1]'],
    ['a part that is a text', parts('x'), 'input[0].content[0]', /must be an object \(content part\)/],
    ['a part that is null', parts(null), 'input[0].content[0]'],
    ['a part of no kind', parts({ type: 'smell' }), 'input[0].content[0].type'],
    ['a part without a type', parts({ text: 'x' }), 'input[0].content[0].type', /is required/],
    ['a chat part', parts({ type: 'text', text: 'x' }), 'input[0].content[0].type', /input_text/],
    ['a user who says an output text', parts({ type: 'output_text', text: 'x' }), 'input[0].content[0].type'],
    ['a text part without text', parts({ type: 'input_text' }), 'input[0].content[0].text', /is required/],
    [
      'a text part with a number',
      parts({ type: 'input_text', text: 1 }),
      'input[0].content[0].text',
      /must be a string/,
    ],
    [
      'a cache breakpoint of another kind',
      parts({ type: 'input_text', text: '', prompt_cache_breakpoint: { mode: 'auto' } }),
      'input[0].content[0].prompt_cache_breakpoint.mode',
    ],
    [
      'an image detail of another kind',
      parts({ type: 'input_image', image_url: 'x', detail: 'huge' }),
      'input[0].content[0].detail',
      /auto, high, low, original/,
    ],
    [
      'an image address that is an object',
      parts({ type: 'input_text', text: '' }, { type: 'input_image', image_url: { url: 'x' } }),
      'input[0].content[1].image_url',
      /a string or null/,
    ],
    [
      'a file name that is a number',
      parts({ type: 'input_file', filename: 1, file_id: 'f' }),
      'input[0].content[0].filename',
    ],
    [
      'audio without data',
      parts({ type: 'input_audio', input_audio: { format: 'mp3' } }),
      'input[0].content[0].input_audio.data',
    ],
    [
      'audio of another format',
      parts({ type: 'input_audio', input_audio: { data: '', format: 'flac' } }),
      'input[0].content[0].input_audio.format',
      /mp3, wav/,
    ],
    ['video without an address', parts({ type: 'input_video' }), 'input[0].content[0].video_url'],
    [
      'video processing of another kind',
      parts({ type: 'input_video', video_url: 'x', processing: 'slow' }),
      'input[0].content[0].processing',
    ],
    [
      'a status of another kind',
      input({ role: 'assistant', content: '', status: 'done' }),
      'input[0].status',
    ],
    ['a phase of another kind', input({ role: 'assistant', content: '', phase: 'draft' }), 'input[0].phase'],
    [
      'an output text without text',
      input({ role: 'assistant', content: [{ type: 'output_text' }] }),
      'input[0].content[0].text',
    ],
    [
      'a refusal without words',
      input({ role: 'assistant', content: [{ type: 'refusal' }] }),
      'input[0].content[0].refusal',
    ],
    [
      'annotations that are an object',
      input({ role: 'assistant', content: [{ type: 'output_text', text: '', annotations: {} }] }),
      'input[0].content[0].annotations',
    ],
    [
      'an annotation without a type',
      input({ role: 'assistant', content: [{ type: 'output_text', text: '', annotations: [{}] }] }),
      'input[0].content[0].annotations[0].type',
    ],
    [
      'a citation without an address',
      input({
        role: 'assistant',
        content: [{ type: 'output_text', text: '', annotations: [{ type: 'url_citation' }] }],
      }),
      'input[0].content[0].annotations[0].url',
    ],
    [
      'a citation before the text',
      input({
        role: 'assistant',
        content: [
          {
            type: 'output_text',
            text: '',
            annotations: [{ type: 'url_citation', url: '', start_index: -1 }],
          },
        ],
      }),
      'input[0].content[0].annotations[0].start_index',
    ],
    [
      'a log probability as text',
      input({
        role: 'assistant',
        content: [{ type: 'output_text', text: '', logprobs: [{ token: 'x', logprob: '0' }] }],
      }),
      'input[0].content[0].logprobs[0].logprob',
    ],
  ])
  t.end()
})

t.test('other items that are refused', t => {
  refused(t, [
    ['a call without an id', input({ ...call, call_id: undefined }), 'input[0].call_id', /is required/],
    ['a call with an empty id', input({ ...call, call_id: '' }), 'input[0].call_id'],
    ['a call without a name', input({ ...call, name: undefined }), 'input[0].name'],
    ['arguments as an object', input({ ...call, arguments: {} }), 'input[0].arguments', /must be a string/],
    ['a call status of another kind', input({ ...call, status: 'failed' }), 'input[0].status'],
    ['an output without its call', input({ type: 'function_call_output', output: 'x' }), 'input[0].call_id'],
    ['an output that is missing', input({ type: 'function_call_output', call_id: 'c' }), 'input[0].output'],
    [
      'an output as an object',
      input({ type: 'function_call_output', call_id: 'c', output: { ok: true } }),
      'input[0].output',
      /a string or an array/,
    ],
    [
      'an output with a part of no kind',
      input({ type: 'function_call_output', call_id: 'c', output: [{ type: 'output_text', text: '' }] }),
      'input[0].output[0].type',
    ],
    [
      'a custom call without input',
      input({ type: 'custom_tool_call', call_id: 'c', name: 'n' }),
      'input[0].input',
    ],
    [
      'a custom output as a number',
      input({ type: 'custom_tool_call_output', call_id: 'c', output: 1 }),
      'input[0].output',
    ],
    ['reasoning with a summary as text', input({ type: 'reasoning', summary: 'x' }), 'input[0].summary'],
    [
      'reasoning with a part of another kind',
      input({ type: 'reasoning', summary: [{ type: 'text', text: 'x' }] }),
      'input[0].summary[0].type',
      /must be summary_text/,
    ],
    [
      'reasoning content without text',
      input({ type: 'reasoning', summary: [], content: [{ type: 'reasoning_text' }] }),
      'input[0].content[0].text',
    ],
    [
      'sealed reasoning as an object',
      input({ type: 'reasoning', summary: [], encrypted_content: {} }),
      'input[0].encrypted_content',
    ],
    [
      'a patch without an operation',
      input({ type: 'apply_patch_call', call_id: 'c', status: 'completed' }),
      'input[0].operation',
    ],
    [
      'a patch operation of another kind',
      input({
        type: 'apply_patch_call',
        call_id: 'c',
        status: 'completed',
        operation: { type: 'move_file', path: 'a' },
      }),
      'input[0].operation.type',
    ],
    [
      'a patch without a diff',
      input({
        type: 'apply_patch_call',
        call_id: 'c',
        status: 'completed',
        operation: { type: 'create_file', path: 'a' },
      }),
      'input[0].operation.diff',
    ],
    [
      'a patch result of another kind',
      input({ type: 'apply_patch_call_output', call_id: 'c', status: 'incomplete' }),
      'input[0].status',
    ],
    [
      'a local shell without an environment',
      input({
        type: 'local_shell_call',
        id: 'l',
        call_id: 'c',
        status: 'completed',
        action: { type: 'exec', command: [] },
      }),
      'input[0].action.env',
    ],
    [
      'a local shell environment with a number',
      input({
        type: 'local_shell_call',
        id: 'l',
        call_id: 'c',
        status: 'completed',
        action: { type: 'exec', command: [], env: { PORT: 1 } },
      }),
      'input[0].action.env.PORT',
    ],
    ['a shell command as text', input({ ...shell, action: { commands: 'ls' } }), 'input[0].action.commands'],
    [
      'a shell output as text',
      input({ type: 'shell_call_output', call_id: 'c', output: 'x' }),
      'input[0].output',
    ],
    [
      'a shell outcome without a code',
      input({
        type: 'shell_call_output',
        call_id: 'c',
        output: [{ stdout: '', stderr: '', outcome: { type: 'exit' } }],
      }),
      'input[0].output[0].outcome.exit_code',
    ],
    ['a compaction without content', input({ type: 'compaction', id: 'c' }), 'input[0].encrypted_content'],
    ['a reference without an id', input({ type: 'item_reference' }), 'input[0].id'],
    [
      'additional tools of another role',
      input({ type: 'additional_tools', role: 'owner', tools: [] }),
      'input[0].role',
    ],
    [
      'an additional tool without a name',
      input({ type: 'additional_tools', role: 'user', tools: [{ type: 'function' }] }),
      'input[0].tools[0].name',
    ],
    [
      'an agent message without an author',
      input({ type: 'agent_message', recipient: 'b', content: [] }),
      'input[0].author',
    ],
    [
      'an agent message with audio',
      input({ type: 'agent_message', author: 'a', recipient: 'b', content: [{ type: 'input_audio' }] }),
      'input[0].content[0].type',
    ],
    [
      'a configuration update without reasoning',
      input({ type: 'configuration_update' }),
      'input[0].reasoning',
    ],
    [
      'a configuration update of another effort',
      input({ type: 'configuration_update', reasoning: { effort: 'lots' } }),
      'input[0].reasoning.effort',
    ],
  ])
  t.end()
})
