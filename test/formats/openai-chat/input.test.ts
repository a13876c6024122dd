/** `instructions` and `input` as Chat Completions messages, item kind by item kind. */
import t from 'tap'
import { openaiChat } from '../../../src/formats/openai-chat.ts'
import type { Endpoint, Quirk } from '../../../src/protocol/provider.ts'
import { parseResponsesRequest } from '../../support/dialects.ts'
import { type Differences, endpointOf } from '../../support/endpoint.ts'

type Body = Readonly<Record<string, unknown>>

function endpoint(quirks: readonly Quirk[] = [], more: Differences = {}): Endpoint {
  return endpointOf('openai-chat', { ...more, quirks })
}

function body(request: Body, quirks: readonly Quirk[] = []): Body {
  const parsed = parseResponsesRequest({ model: 'acme/fast-1', ...request })
  return openaiChat.encode({ request: parsed, stream: false, endUser: null }, endpoint(quirks)).body
}

interface MessagesRow {
  readonly name: string
  readonly input: unknown
  readonly quirks?: readonly Quirk[]
  readonly more?: Body
  readonly messages: readonly unknown[]
}

const CALL = { type: 'function_call', call_id: 'c1', name: 'f', arguments: '{"a":1}' }
const CALL2 = { type: 'function_call', call_id: 'c2', name: 'g', arguments: '' }
const CHAT_CALL = { id: 'c1', type: 'function', function: { name: 'f', arguments: '{"a":1}' } }
const CHAT_CALL2 = { id: 'c2', type: 'function', function: { name: 'g', arguments: '{}' } }
const OUT = { type: 'function_call_output', call_id: 'c1', output: 'one' }
const OUT2 = {
  type: 'function_call_output',
  call_id: 'c2',
  output: [
    { type: 'input_text', text: 'two' },
    { type: 'input_text', text: 'lines' },
  ],
}
const CHAT_OUT = { role: 'tool', tool_call_id: 'c1', content: 'one' }
const CHAT_OUT2 = { role: 'tool', tool_call_id: 'c2', content: 'two\nlines' }
const USER = { role: 'user', content: 'Hi' }
const THOUGHT = {
  type: 'reasoning',
  id: 'rs_1',
  summary: [],
  content: [{ type: 'reasoning_text', text: 'hm' }],
}
const SIGNED = { ...THOUGHT, format: 'anthropic-claude-v1', signature: 'sig' }
const ENCRYPTED = {
  type: 'reasoning',
  id: 'rs_1',
  detail_id: 'rs_up',
  summary: [{ type: 'summary_text', text: 'plan' }],
  format: 'openai-responses-v1',
  encrypted_content: 'enc',
}
const SAID = {
  type: 'message',
  role: 'assistant',
  id: 'msg_1',
  status: 'completed',
  content: [{ type: 'output_text', text: 'Well', annotations: [] }],
}

const MESSAGES: readonly MessagesRow[] = [
  { name: 'text', input: 'Hi', messages: [USER] },
  {
    name: 'instructions come first',
    input: 'Hi',
    more: { instructions: 'Be kind' },
    messages: [{ role: 'system', content: 'Be kind' }, USER],
  },
  {
    name: 'roles',
    input: [{ role: 'developer', content: 'd' }, { role: 'system', content: 's' }, USER],
    messages: [{ role: 'system', content: 'd\n\ns' }, USER],
  },
  {
    name: 'a role of its own',
    input: [{ role: 'developer', content: 'd' }, USER],
    messages: [{ role: 'developer', content: 'd' }, USER],
  },
  {
    name: 'the name of who speaks',
    input: [{ role: 'user', name: 'Ann', content: 'Hi' }],
    messages: [{ role: 'user', name: 'Ann', content: 'Hi' }],
  },
  {
    name: 'roles where developer is unknown',
    input: [{ role: 'developer', content: 'd' }, USER],
    quirks: ['system-role'],
    messages: [{ role: 'system', content: 'd' }, USER],
  },
  {
    name: 'one text part is a string',
    input: [{ role: 'user', content: [{ type: 'input_text', text: 'Hi' }] }],
    messages: [USER],
  },
  {
    name: 'parts',
    input: [
      {
        role: 'user',
        content: [
          { type: 'input_text', text: 'Look' },
          { type: 'input_image', detail: 'auto', image_url: 'https://a.example/a.png' },
          { type: 'input_image', detail: 'original', image_url: 'data:image/png;base64,AA==' },
          { type: 'input_file', filename: 'a.pdf', file_data: 'data:application/pdf;base64,AA==' },
          { type: 'input_file', file_id: 'file-1' },
          { type: 'input_file', filename: 'b.pdf', file_url: 'data:application/pdf;base64,BB==' },
          { type: 'input_audio', input_audio: { data: 'AA==', format: 'mp3' } },
          { type: 'input_video', video_url: 'data:video/mp4;base64,AA==' },
        ],
      },
    ],
    messages: [
      {
        role: 'user',
        content: [
          { type: 'text', text: 'Look' },
          { type: 'image_url', image_url: { url: 'https://a.example/a.png' } },
          { type: 'image_url', image_url: { url: 'data:image/png;base64,AA==', detail: 'high' } },
          { type: 'file', file: { filename: 'a.pdf', file_data: 'data:application/pdf;base64,AA==' } },
          { type: 'file', file: { file_id: 'file-1' } },
          { type: 'file', file: { filename: 'b.pdf', file_data: 'data:application/pdf;base64,BB==' } },
          { type: 'input_audio', input_audio: { data: 'AA==', format: 'mp3' } },
          { type: 'video_url', video_url: { url: 'data:video/mp4;base64,AA==' } },
        ],
      },
    ],
  },
  {
    name: 'empty content',
    input: [
      { role: 'user', content: null },
      { role: 'user', content: [] },
      { role: 'assistant', content: null },
    ],
    messages: [
      { role: 'user', content: '' },
      { role: 'user', content: '' },
      { role: 'assistant', content: '' },
    ],
  },
  {
    name: 'a replayed answer',
    input: [USER, SAID, USER],
    messages: [USER, { role: 'assistant', content: 'Well' }, USER],
  },
  {
    name: 'an answer of several parts is one text; a refusal is what was said',
    input: [
      USER,
      {
        role: 'assistant',
        content: [
          { type: 'output_text', text: 'a' },
          { type: 'output_text', text: 'b' },
          { type: 'refusal', refusal: 'no' },
        ],
      },
    ],
    messages: [USER, { role: 'assistant', content: 'abno' }],
  },
  {
    name: 'two answers stay two',
    input: [USER, SAID, { role: 'assistant', content: 'More' }],
    messages: [USER, { role: 'assistant', content: 'Well' }, { role: 'assistant', content: 'More' }],
  },
  {
    name: 'calls are one message',
    input: [USER, CALL, CALL2, OUT, OUT2],
    messages: [
      USER,
      { role: 'assistant', content: null, tool_calls: [CHAT_CALL, CHAT_CALL2] },
      CHAT_OUT,
      CHAT_OUT2,
    ],
  },
  {
    name: 'calls join the words before them',
    input: [USER, SAID, CALL, OUT, USER],
    messages: [USER, { role: 'assistant', content: 'Well', tool_calls: [CHAT_CALL] }, CHAT_OUT, USER],
  },
  {
    name: 'words after a call stay before its output',
    input: [USER, CALL, SAID, OUT],
    messages: [USER, { role: 'assistant', content: 'Well', tool_calls: [CHAT_CALL] }, CHAT_OUT],
  },
  {
    name: 'calls after outputs are the next turn',
    input: [USER, CALL, OUT, CALL2, OUT2],
    messages: [
      USER,
      { role: 'assistant', content: null, tool_calls: [CHAT_CALL] },
      CHAT_OUT,
      { role: 'assistant', content: null, tool_calls: [CHAT_CALL2] },
      CHAT_OUT2,
    ],
  },
  {
    name: 'custom calls',
    input: [
      { type: 'custom_tool_call', call_id: 'c1', name: 'p', input: 'x' },
      { type: 'custom_tool_call_output', call_id: 'c1', output: 'one' },
    ],
    messages: [
      {
        role: 'assistant',
        content: null,
        tool_calls: [{ id: 'c1', type: 'custom', custom: { name: 'p', input: 'x' } }],
      },
      CHAT_OUT,
    ],
  },
  {
    name: 'images of tools follow all outputs',
    input: [
      CALL,
      CALL2,
      { ...OUT, output: [{ type: 'input_image', detail: 'auto', image_url: 'https://a.example/a.png' }] },
      OUT2,
      USER,
    ],
    messages: [
      { role: 'assistant', content: null, tool_calls: [CHAT_CALL, CHAT_CALL2] },
      { role: 'tool', tool_call_id: 'c1', content: 'The output is attached below.' },
      CHAT_OUT2,
      {
        role: 'user',
        content: [
          { type: 'text', text: 'Output of tool call c1:' },
          { type: 'image_url', image_url: { url: 'https://a.example/a.png' } },
        ],
      },
      USER,
    ],
  },
  {
    name: 'reasoning is left out',
    input: [USER, SIGNED, SAID, USER],
    messages: [USER, { role: 'assistant', content: 'Well' }, USER],
  },
  {
    name: 'reasoning text that is not signed is no detail',
    input: [USER, THOUGHT, SAID],
    quirks: ['reasoning-object'],
    messages: [USER, { role: 'assistant', content: 'Well' }],
  },
  {
    name: 'signed reasoning as details',
    input: [USER, SIGNED, SAID, CALL, OUT],
    quirks: ['reasoning-object'],
    messages: [
      USER,
      {
        role: 'assistant',
        content: 'Well',
        reasoning_details: [
          {
            type: 'reasoning.text',
            text: 'hm',
            signature: 'sig',
            format: 'anthropic-claude-v1',
            id: 'rs_1',
            index: 0,
          },
        ],
        tool_calls: [CHAT_CALL],
      },
      CHAT_OUT,
    ],
  },
  {
    name: 'encrypted reasoning as details, in order',
    input: [USER, ENCRYPTED, { ...ENCRYPTED, id: 'rs_2', detail_id: undefined, summary: [] }, CALL, OUT],
    quirks: ['reasoning-object'],
    messages: [
      USER,
      {
        role: 'assistant',
        content: null,
        reasoning_details: [
          {
            type: 'reasoning.summary',
            summary: 'plan',
            format: 'openai-responses-v1',
            id: 'rs_up',
            index: 0,
          },
          { type: 'reasoning.encrypted', data: 'enc', format: 'openai-responses-v1', id: 'rs_up', index: 1 },
          { type: 'reasoning.encrypted', data: 'enc', format: 'openai-responses-v1', id: 'rs_2', index: 2 },
        ],
        tool_calls: [CHAT_CALL],
      },
      CHAT_OUT,
    ],
  },
  {
    name: 'reasoning as reasoning_content',
    input: [USER, THOUGHT, SAID, CALL, OUT, THOUGHT, CALL2, OUT2],
    quirks: ['replay-reasoning'],
    messages: [
      USER,
      { role: 'assistant', content: 'Well', reasoning_content: 'hm', tool_calls: [CHAT_CALL] },
      CHAT_OUT,
      { role: 'assistant', content: null, reasoning_content: 'hm', tool_calls: [CHAT_CALL2] },
      CHAT_OUT2,
    ],
  },
  {
    name: 'reasoning as thinking parts',
    input: [USER, THOUGHT, SAID],
    quirks: ['thinking-parts'],
    messages: [
      USER,
      {
        role: 'assistant',
        content: [
          { type: 'thinking', thinking: [{ type: 'text', text: 'hm' }] },
          { type: 'text', text: 'Well' },
        ],
      },
    ],
  },
  {
    name: "Google's signatures",
    input: [
      USER,
      { type: 'reasoning', summary: [], format: 'google-gemini-v1', signature: 'whole' },
      { ...CALL, signature: 'sig' },
      OUT,
    ],
    quirks: ['thought-signatures'],
    messages: [
      USER,
      {
        role: 'assistant',
        content: null,
        tool_calls: [{ ...CHAT_CALL, extra_content: { google: { thought_signature: 'sig' } } }],
        extra_content: { google: { thought_signature: 'whole' } },
      },
      CHAT_OUT,
    ],
  },
  {
    name: 'signatures stay away from others',
    input: [USER, { ...CALL, signature: 'sig' }, OUT],
    messages: [USER, { role: 'assistant', content: null, tool_calls: [CHAT_CALL] }, CHAT_OUT],
  },
  {
    name: 'cache marks',
    input: [
      {
        role: 'user',
        content: [{ type: 'input_text', text: 'Hi', cache_control: { type: 'ephemeral', ttl: '1h' } }],
      },
      {
        role: 'user',
        content: [{ type: 'input_text', text: 'Hi', prompt_cache_breakpoint: { mode: 'explicit' } }],
      },
    ],
    quirks: ['cache-control'],
    messages: [
      {
        role: 'user',
        content: [{ type: 'text', text: 'Hi', cache_control: { type: 'ephemeral', ttl: '1h' } }],
      },
      { role: 'user', content: [{ type: 'text', text: 'Hi', cache_control: { type: 'ephemeral' } }] },
    ],
  },
  {
    name: 'a mark at the end of the prompt',
    input: [USER, SAID, USER],
    more: { cache_control: { type: 'ephemeral' } },
    quirks: ['cache-control'],
    messages: [
      USER,
      { role: 'assistant', content: 'Well' },
      { role: 'user', content: [{ type: 'text', text: 'Hi', cache_control: { type: 'ephemeral' } }] },
    ],
  },
  {
    name: 'breakpoints stay here without their options',
    input: [
      {
        role: 'user',
        content: [{ type: 'input_text', text: 'Hi', prompt_cache_breakpoint: { mode: 'explicit' } }],
      },
    ],
    messages: [USER],
  },
  {
    name: 'marks in the words of OpenAI',
    input: [
      { role: 'user', content: [{ type: 'input_text', text: 'Hi', cache_control: { type: 'ephemeral' } }] },
    ],
    quirks: ['cache-breakpoints'],
    messages: [
      {
        role: 'user',
        content: [{ type: 'text', text: 'Hi', prompt_cache_breakpoint: { mode: 'explicit' } }],
      },
    ],
  },
  {
    name: 'cache marks stay here otherwise',
    input: [
      { role: 'user', content: [{ type: 'input_text', text: 'Hi', cache_control: { type: 'ephemeral' } }] },
    ],
    messages: [USER],
  },
]

t.test('messages', async t => {
  for (const row of MESSAGES)
    t.same(body({ ...row.more, input: row.input }, row.quirks)['messages'], row.messages, row.name)
})

t.test('explicit breakpoints of OpenAI pass with their options', async t => {
  const input = [
    {
      role: 'user',
      content: [{ type: 'input_text', text: 'Hi', prompt_cache_breakpoint: { mode: 'explicit' } }],
    },
  ]
  const got = body({ input, prompt_cache_options: { mode: 'explicit', ttl: '30m' } })
  t.same(got['prompt_cache_options'], { mode: 'explicit', ttl: '30m' })
  t.same(got['messages'], [
    { role: 'user', content: [{ type: 'text', text: 'Hi', prompt_cache_breakpoint: { mode: 'explicit' } }] },
  ])
})
