/** What a request lost or had changed on its way is told by the paths of the client's own body, and costs others nothing. */
import t from 'tap'
import { startGateway } from '../support/gateway.ts'
import { parrotRows, startParrot } from '../support/provider.ts'

interface Change {
  readonly field: string
  readonly action: string
}

const parrot = await startParrot(t)
const gateway = await startGateway(parrotRows(parrot.url))
t.teardown(() => gateway.close())

async function post(path: string, body: object, metadata = true) {
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
  if (reply.status !== 200) t.fail(text)
  const header = reply.headers.get('x-gateway-changed')
  const answer = text.startsWith('{')
    ? (JSON.parse(text) as { gateway_metadata?: { pipeline?: readonly { type: string; data?: unknown }[] } })
    : {}
  const element = answer.gateway_metadata?.pipeline?.find(({ type }) => type === 'translation')
  const { changes = [] } = (element?.data ?? {}) as { readonly changes?: readonly Change[] }
  return { header, told: changes.map(({ field, action }) => `${action} ${field}`) }
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
