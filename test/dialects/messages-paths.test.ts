/** Failures after parsing name fields of the Messages body, although they know the request alone. */
import t from 'tap'
import { GatewayError } from '../../src/errors.ts'
import { messages } from '../support/dialects.ts'

const text = (text: string) => ({ type: 'text', text })
const IMAGE = { type: 'image', source: { type: 'url', url: 'https://a.example/x.png' } }
const BODY = {
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
const request = messages.parse(BODY)

/** What a refusal of the request names, by what the caller is told. */
const NAMES: readonly (readonly [hub: string, own: string])[] = [
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

t.test('a refusal of the request names the field of the body', async t => {
  for (const [hub, own] of NAMES) {
    const error = new GatewayError('unprocessable', `${hub}: cannot be sent: so it is`)
    const details = { id: 'gen-1-x', metadata: null, usage: null }
    const told = { error: { message: `${own}: cannot be sent: so it is`, param: own } }
    t.match(messages.failure(error, { ...details, request }), told, hub)
    const frames = messages.frames(request).failure(error, { ...details, request })
    t.ok(frames.includes(`"param":"${own}"`), `${hub} in a stream`)
  }
})

t.test('the names of the body that was sent', async t => {
  const {
    output_config: { format },
    fallbacks: _,
    ...rest
  } = BODY
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

t.test('a copy of the request knows its names, and a message without a path stays as it is', async t => {
  const details = { id: 'gen-1-x', metadata: null, usage: null }
  const copied = new GatewayError('unprocessable', 'input[2].content[1].image_url: no')
  t.match(messages.failure(copied, { ...details, request: { ...request, stream: true } }), {
    error: { param: 'messages[1].content[1].source' },
  })
  const other = new GatewayError('provider_unavailable', 'The provider says: input[0]: no')
  t.match(messages.failure(other, { ...details, request }), {
    error: { message: 'The provider says: input[0]: no', param: undefined },
  })
  const refused = new GatewayError('invalid_request', 'input: is not a field of messages: use messages')
  t.match(messages.failure(refused, { ...details, request: null }), { error: { param: 'input' } })
})
