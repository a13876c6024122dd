/** Failures after parsing name fields of the body as its client wrote it, although they know the request alone. */
import t from 'tap'
import { GatewayError } from '../../src/base/errors.ts'
import { chatCompletions, messages } from '../support/dialects.ts'

/** What a refusal of the request names, by what the caller is told. */
type Named = readonly [hub: string, own: string]

const IMAGE_PART = { type: 'image_url', image_url: { url: 'https://a.example/x.png' } }
const CHAT_BODY = {
  model: 'acme/m',
  tools: [
    { type: 'function', function: { name: 'f' } },
    { type: 'custom', custom: { name: 'g' } },
    { type: 'gateway:datetime' },
  ],
  tool_choice: { type: 'function', function: { name: 'f' } },
  messages: [
    { role: 'system', content: 'Be kind' },
    { role: 'user', content: [{ type: 'text', text: 'Look' }, IMAGE_PART] },
    {
      role: 'assistant',
      content: 'I look',
      reasoning_details: [
        { type: 'reasoning.text', text: 'a', signature: 's', format: 'anthropic-claude-v1' },
        { type: 'reasoning.encrypted', data: 'b' },
      ],
      images: [IMAGE_PART],
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
const CHAT_NAMES: readonly Named[] = [
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

const text = (text: string) => ({ type: 'text', text })
const IMAGE = { type: 'image', source: { type: 'url', url: 'https://a.example/x.png' } }
const MESSAGES_BODY = {
  model: 'acme/m',
  max_tokens: 100,
  system: [text('Be kind'), text('Be brief')],
  tools: [
    { name: 'f', input_schema: { type: 'object' } },
    { type: 'gateway:datetime', parameters: {} },
    { type: 'bash_20250124', name: 'bash' },
  ],
  output_config: { format: { type: 'json_schema', schema: {} } },
  fallbacks: [{ model: 'acme/n' }],
  messages: [
    { role: 'user', content: 'Look' },
    { role: 'user', content: [text('Look'), IMAGE, { type: 'document', source: IMAGE.source }] },
    {
      role: 'assistant',
      content: [
        { type: 'thinking', thinking: 'Hm', signature: 's' },
        text('I look'),
        text('and look'),
        { type: 'tool_use', id: 'c1', name: 'f', input: {} },
        { type: 'server_tool_use', id: 'srvtoolu_1', name: 'web_search', input: {} },
        { type: 'web_search_tool_result', tool_use_id: 'srvtoolu_1', content: [] },
        text('and see'),
      ],
    },
    {
      role: 'user',
      content: [
        { type: 'tool_result', tool_use_id: 'c1', content: [text('a'), IMAGE] },
        { type: 'tool_result', tool_use_id: 'c2', content: 'b' },
        text('Well?'),
        {
          type: 'document',
          source: { type: 'content', content: [text('a'), IMAGE] },
        },
      ],
    },
    { role: 'assistant', content: [] },
    { role: 'system', content: [text('c')] },
  ],
}
const MESSAGES_NAMES: readonly Named[] = [
  ['input', 'messages'],
  ['input[0].content', 'system'],
  ['input[0].content[1]', 'system[1]'],
  ['input[1].content', 'messages[0].content'],
  ['input[1]', 'messages[0]'],
  ['input[2].content[1].image_url', 'messages[1].content[1].source'],
  ['input[2].content[1].file_id', 'messages[1].content[1].source.file_id'],
  ['input[2].content[1].detail', 'messages[1].content[1]'],
  ['input[2].content[2].file_url', 'messages[1].content[2].source.url'],
  ['input[2].content[2].filename', 'messages[1].content[2].title'],
  ['input[2].content', 'messages[1].content'],
  ['input[3].encrypted_content', 'messages[2].content[0]'],
  ['input[4].content[1].text', 'messages[2].content[2].text'],
  ['input[5].arguments', 'messages[2].content[3].input'],
  ['input[5].call_id', 'messages[2].content[3].id'],
  ['input[5].name', 'messages[2].content[3].name'],
  ['input[5].namespace', 'messages[2].content[3]'],
  ['input[6].type', 'messages[2].content[4]'],
  ['input[7].content[0].text', 'messages[2].content[6].text'],
  ['input[8].output[1].image_url', 'messages[3].content[0].content[1].source'],
  ['input[8].output', 'messages[3].content[0].content'],
  ['input[8].call_id', 'messages[3].content[0].tool_use_id'],
  ['input[8].status', 'messages[3].content[0]'],
  ['input[9].output', 'messages[3].content[1].content'],
  ['input[10].content[0].text', 'messages[3].content[2].text'],
  ['input[11].content[1].image_url', 'messages[3].content[3]'],
  ['input[11].content', 'messages[3].content[3]'],
  ['input[12].content', 'messages[4].content'],
  ['input[13].content[0].text', 'messages[5].content[0].text'],
  ['input[99].content', 'messages'],
  ['instructions', 'system'],
  ['tools[0].parameters', 'tools[0].input_schema'],
  ['tools[0].parameters.properties', 'tools[0].input_schema.properties'],
  ['tools[0].name', 'tools[0].name'],
  ['tools[1].parameters.timezone', 'tools[1].parameters.timezone'],
  ['tools[2]', 'tools[2]'],
  ['tool_choice.name', 'tool_choice.name'],
  ['text.format', 'output_config.format'],
  ['text.format.schema', 'output_config.format.schema'],
  ['text.format.name', 'output_config.format'],
  ['reasoning.effort', 'output_config.effort'],
  ['reasoning.max_tokens', 'thinking'],
  ['max_output_tokens', 'max_tokens'],
  ['stop', 'stop_sequences'],
  ['stop[3]', 'stop_sequences[3]'],
  ['models[0]', 'fallbacks[0].model'],
  ['temperature', 'temperature'],
  ['constructor', 'constructor'],
]

const DETAILS = { id: 'gen-1-x', metadata: null, usage: null }

for (const { dialect, request, names, copied } of [
  {
    dialect: chatCompletions,
    request: chatCompletions.parse(CHAT_BODY),
    names: CHAT_NAMES,
    copied: ['input[1].content[1].image_url', 'messages[1].content[1].image_url.url'],
  },
  {
    dialect: messages,
    request: messages.parse(MESSAGES_BODY),
    names: MESSAGES_NAMES,
    copied: ['input[2].content[1].image_url', 'messages[1].content[1].source'],
  },
] as const) {
  const told = (error: GatewayError, asked: typeof request | null = request) =>
    dialect.failure(error, { ...DETAILS, request: asked }) as { error: { message: string; param?: unknown } }

  t.test(`a refusal of the request names the field of the body of ${dialect.name}`, async t => {
    for (const [hub, own] of names) {
      const error = new GatewayError('unprocessable', `${hub}: cannot be sent: so it is`)
      t.match(told(error), { error: { message: `${own}: cannot be sent: so it is`, param: own } }, hub)
      const frames = dialect.frames(request).failure(error, { ...DETAILS, request })
      t.ok(frames.includes(`"param":"${own}"`), `${hub} in a stream`)
    }
  })

  t.test(`a copy of a request of ${dialect.name} knows its names, and other messages stay`, async t => {
    const [hub, own] = copied
    const inCopy = told(new GatewayError('unprocessable', `${hub}: no`), { ...request, stream: true })
    t.match(inCopy, { error: { param: own } })
    const other = told(new GatewayError('provider_unavailable', 'The provider says: input[0]: no'))
    t.equal(other.error.message, 'The provider says: input[0]: no')
    t.equal(other.error.param, dialect === messages ? undefined : null)
    const refused = new GatewayError(
      'invalid_request',
      `input: is not a field of ${dialect.name}: use messages`,
    )
    t.match(told(refused, null), { error: { param: 'input' } })
  })
}

t.test('names of messages are those of the body that was sent', async t => {
  const {
    output_config: { format },
    fallbacks: _,
    ...rest
  } = MESSAGES_BODY
  const other = messages.parse({
    ...rest,
    output_config: undefined,
    output_format: format,
    models: ['acme/o'],
  })
  const named = (hub: string) => {
    const error = new GatewayError('invalid_request', `${hub}: no`)
    const told = messages.failure(error, { id: 'x', metadata: null, usage: null, request: other })
    return (told as { error: { param: string } }).error.param
  }
  t.equal(named('text.format.schema'), 'output_format.schema')
  t.equal(named('models[0]'), 'models[0]')
})
