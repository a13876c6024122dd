/** Failures after parsing name fields of the chat body, although they know the request alone. */
import t from 'tap'
import { GatewayError } from '../../src/errors.ts'
import { chatCompletions } from '../support/dialects.ts'

const IMAGE = { type: 'image_url', image_url: { url: 'https://a.example/x.png' } }
const BODY = {
  model: 'acme/m',
  tools: [
    { type: 'function', function: { name: 'f' } },
    { type: 'custom', custom: { name: 'g' } },
    { type: 'gateway:datetime' },
  ],
  tool_choice: { type: 'function', function: { name: 'f' } },
  messages: [
    { role: 'system', content: 'Be kind' },
    { role: 'user', content: [{ type: 'text', text: 'Look' }, IMAGE] },
    {
      role: 'assistant',
      content: 'I look',
      reasoning_details: [
        { type: 'reasoning.text', text: 'a', signature: 's', format: 'anthropic-claude-v1' },
        { type: 'reasoning.encrypted', data: 'b' },
      ],
      images: [IMAGE],
      tool_calls: [
        { id: 'c1', type: 'function', function: { name: 'f', arguments: '{}' } },
        { id: 'c2', type: 'custom', custom: { name: 'g', input: 'x' } },
      ],
    },
    { role: 'tool', tool_call_id: 'c1', content: [{ type: 'file', file: { file_data: 'x' } }] },
    { role: 'tool', tool_call_id: 'c2', content: 'y' },
    { role: 'assistant', content: 'One' },
    { role: 'assistant', content: 'Two' },
    { role: 'user', content: [{ type: 'video_url', video_url: { url: 'x' } }] },
  ],
}
const request = chatCompletions.parse(BODY)

/** What a refusal of the request names, by what the caller is told. */
const NAMES: readonly (readonly [hub: string, chat: string])[] = [
  ['input', 'messages'],
  ['input[0].content', 'messages[0].content'],
  ['input[1].content[1].image_url', 'messages[1].content[1].image_url.url'],
  ['input[1].content[1].file_id', 'messages[1].content[1].image_url.url'],
  ['input[1].content[1].detail', 'messages[1].content[1].image_url.detail'],
  ['input[1].content[1]', 'messages[1].content[1]'],
  ['input[2]', 'messages[2].reasoning_details'],
  ['input[3].encrypted_content', 'messages[2].reasoning_details'],
  ['input[4].content', 'messages[2].content'],
  ['input[5].result', 'messages[2].images'],
  ['input[6].arguments', 'messages[2].tool_calls[0].function.arguments'],
  ['input[6].call_id', 'messages[2].tool_calls[0].id'],
  ['input[7].input', 'messages[2].tool_calls[1].custom.input'],
  ['input[7].namespace', 'messages[2].tool_calls[1]'],
  ['input[8].output[0].file_data', 'messages[3].content[0].file.file_data'],
  ['input[8].call_id', 'messages[3].tool_call_id'],
  ['input[9].output', 'messages[4].content'],
  ['input[10].content', 'messages[5].content'],
  ['input[11].content', 'messages[6].content'],
  ['input[12].content[0].video_url', 'messages[7].content[0].video_url.url'],
  ['input[99].content', 'messages'],
  ['tools[0].name', 'tools[0].function.name'],
  ['tools[1].format.syntax', 'tools[1].custom.format.syntax'],
  ['tools[0].defer_loading', 'tools[0].defer_loading'],
  ['tools[2].parameters', 'tools[2].parameters'],
  ['tool_choice.name', 'tool_choice.function.name'],
  ['tool_choice', 'tool_choice'],
  ['text.format', 'response_format'],
  ['text.format.schema', 'response_format.json_schema.schema'],
  ['text.verbosity', 'verbosity'],
  ['max_output_tokens', 'max_completion_tokens'],
  ['temperature', 'temperature'],
]

t.test('a refusal of the request names the field of the chat body', async t => {
  for (const [hub, chat] of NAMES) {
    const error = new GatewayError('unprocessable', `${hub}: cannot be sent: so it is`)
    const details = { id: 'gen-1-x', metadata: null, usage: null }
    const told = { error: { message: `${chat}: cannot be sent: so it is`, param: chat } }
    t.match(chatCompletions.failure(error, { ...details, request }), told, hub)
    const frames = chatCompletions.frames(request).failure(error, { ...details, request })
    t.ok(frames.includes(`"param":"${chat}"`), `${hub} in a stream`)
  }
})

t.test('a refused body names its fields already, and other messages stay as they are', async t => {
  const details = { id: 'gen-1-x', metadata: null, usage: null }
  const refused = new GatewayError(
    'invalid_request',
    'input: is not a field of chat completions: use messages',
  )
  t.match(chatCompletions.failure(refused, { ...details, request: null }), { error: { param: 'input' } })
  const other = new GatewayError('provider_unavailable', 'The provider says: input[0]: no')
  t.match(chatCompletions.failure(other, { ...details, request }), {
    error: { message: 'The provider says: input[0]: no', param: null },
  })
})
