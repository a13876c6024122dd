/** Fields and items that only some providers can be sent: they are sent, said in another form, or refused by name. */
import t from 'tap'
import type { ResponseResource } from '../../src/protocol/response.ts'
import { startGateway } from '../support/gateway.ts'
import { FORMATS, parrotRows, pieces, speaking, startParrot } from '../support/provider.ts'

const parrot = await startParrot(t)
const rows = parrotRows(parrot.url)
const gateway = await startGateway({
  providers: [
    ...(rows.providers ?? []),
    { slug: 'bare', format: 'openai-chat', baseUrl: parrot.url, apiKey: 'k' },
  ],
  models: [
    ...(rows.models ?? []),
    {
      id: 'parrot/two',
      endpoints: [
        { provider: 'parrot', format: 'openai-chat' },
        { provider: 'parrot', format: 'openai-responses' },
      ],
    },
    {
      id: 'parrot/plain',
      endpoints: [{ provider: 'bare', supportedParameters: ['temperature'] }],
    },
  ],
})
t.teardown(() => gateway.close())

interface Reply {
  readonly status: number
  readonly body: ResponseResource & { readonly error?: { readonly message: string } }
  /** The body that the provider got; null: it was not asked. */
  readonly sent: Record<string, unknown> | null
}

async function post(path: string, body: object): Promise<Reply> {
  const asked = parrot.bodies.length
  const reply = await fetch(`${gateway.url}${path}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${gateway.apiKey}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  })
  const told = parrot.bodies.length === asked ? undefined : parrot.bodies.at(-1)
  return {
    status: reply.status,
    body: (await reply.json()) as Reply['body'],
    sent: told === undefined ? null : JSON.parse(told),
  }
}

const respond = (model: string, fields: object) =>
  post('/responses', { model: `parrot/${model}`, input: 'Hi', ...fields })
const USER = { role: 'user', content: 'Hi' }
const AGENT = {
  type: 'agent_message',
  author: 'a',
  recipient: 'b',
  content: [{ type: 'input_text', text: 'Go' }],
}
const SEALED = { type: 'context_compaction', encrypted_content: 'sealed' }
const F = { type: 'function', name: 'f', parameters: { type: 'object', properties: {} } }
const OTHERS = FORMATS.filter(format => format !== 'openai-responses')

t.test('items of the Responses format alone go there unchanged, and are 400 by name elsewhere', async t => {
  for (const item of [AGENT, SEALED]) {
    const input = [USER, item]
    for (const model of ['openai-responses', 'two']) {
      const { status, sent } = await respond(model, { input })
      t.equal(status, 200, model)
      t.match(sent?.['input'], [{}, item], `${model}: ${item.type}`)
    }
    for (const format of OTHERS) {
      const { status, body, sent } = await respond(format, { input })
      t.equal(status, 400, format)
      t.match(
        body.error?.message,
        /^input\[1\]: can be sent only to providers that speak the Responses format/,
      )
      t.equal(sent, null, 'nobody was asked')
    }
  }
})

t.test('a stored prompt needs a BYOK credential where the provider speaks Responses', async t => {
  const prompt = { id: 'pmpt_1', variables: { city: 'Bern' } }
  for (const format of [...FORMATS, 'two']) {
    const { status, body, sent } = await respond(format, { prompt })
    t.equal(status, 400, format)
    t.match(body.error?.message, /^prompt: .*BYOK credential/)
    t.equal(sent, null)
  }
})

t.test('pictures and their settings are asked for everywhere, or refused by name', async t => {
  const fields = { modalities: ['text', 'image'], image_config: { aspect_ratio: '16:9', image_size: '2K' } }
  for (const format of ['openai-responses', 'openai-chat']) {
    t.match((await respond(format, fields)).sent, fields, format)
  }
  const { sent } = await respond('google-gemini', fields)
  t.match(sent?.['generationConfig'], {
    responseModalities: ['TEXT', 'IMAGE'],
    imageConfig: { aspectRatio: '16:9', imageSize: '2K' },
  })
  const strange = await respond('google-gemini', { ...fields, image_config: { style: 'x' } })
  t.equal(strange.status, 400)
  t.match(strange.body.error?.message, /^image_config\.style: /)
  const written = await respond('anthropic-messages', fields)
  t.equal(written.status, 400)
  t.match(written.body.error?.message, /^modalities: /)
})

t.test('JSON without a schema is asked for in words where the provider has no mode for it', async t => {
  const text = { format: { type: 'json_object' } }
  const { status, sent } = await respond('anthropic-messages', { text, instructions: 'Be brief.' })
  t.equal(status, 200)
  t.match(sent?.['system'], [{ text: 'Be brief.' }, { text: /one JSON object/ }])
  const chat = await post('/chat/completions', {
    model: 'parrot/anthropic-messages',
    messages: [USER],
    response_format: { type: 'json_object' },
  })
  t.equal(chat.status, 200)
  t.match(chat.sent?.['system'], /one JSON object/)
})

t.test('tools that the input adds are declared by every provider', async t => {
  const added = { type: 'additional_tools', role: 'developer', tools: [{ ...F, name: 'g' }] }
  for (const format of FORMATS) {
    const { status, sent } = await respond(format, { tools: [F], input: [USER, added] })
    t.equal(status, 200, format)
    t.match(JSON.stringify(sent), /"name":"g"/, format)
    if (format === 'openai-responses') t.match(sent?.['input'], [{}, added])
    else t.notMatch(JSON.stringify(sent), 'additional_tools')
  }
  const hosted = { ...added, tools: [{ type: 'file_search', vector_store_ids: ['vs_1'] }] }
  const { status, body } = await respond('openai-chat', { tools: [F], input: [USER, hosted] })
  t.ok(status >= 400 && status < 500)
  t.match(body.error?.message, /^input\[1\]\.tools\[0\]/)
  const clock = { ...added, tools: [{ type: 'gateway:datetime' }] }
  for (const format of FORMATS) {
    const { status, sent } = await respond(format, { input: [USER, clock] })
    t.equal(status, 200, format)
    t.match(JSON.stringify(sent), /"name":"datetime"/, `${format}: a server tool is declared too`)
  }
})

t.test('an effort that the input sets holds at every provider', async t => {
  const input = [USER, { type: 'configuration_update', reasoning: { effort: 'high' } }]
  const fields = { input, reasoning: { effort: 'low' }, max_output_tokens: 10_000 }
  const chat = await respond('openai-chat', fields)
  t.equal(chat.sent?.['reasoning_effort'], 'high')
  const gemini = await respond('google-gemini', fields)
  t.match(gemini.sent?.['generationConfig'], { thinkingConfig: { thinkingBudget: 8000 } })
  const anthropic = await respond('anthropic-messages', fields)
  t.match(anthropic.sent?.['thinking'], { budget_tokens: 8000 })
  t.match((await respond('openai-responses', fields)).sent?.['input'], [{}, input[1]])
  const deaf = await respond('plain', fields)
  t.equal(deaf.status, 400, 'never ignored')
  t.match(deaf.body.error?.message, /^input\[1\]: .*effort/)
})

t.test('tools of a namespace keep it at every provider, there and back', async t => {
  const space = {
    type: 'namespace',
    name: 'crm',
    description: 'Customers.',
    tools: [F, { type: 'custom', name: 'note' }],
  }
  const call = { type: 'function_call', call_id: 'c1', namespace: 'crm', name: 'f', arguments: '{}' }
  const input = [USER, call, { type: 'function_call_output', call_id: 'c1', output: 'ok' }]
  t.teardown(() => {
    parrot.parts = speaking('hello')
  })
  for (const format of OTHERS) {
    parrot.parts = [{ kind: 'call', name: 'crm__f', custom: false, pieces: pieces('{}') }]
    const { status, body, sent } = await respond(format, { tools: [space], input })
    t.equal(status, 200, format)
    t.match(JSON.stringify(sent?.['tools']), /"crm__f".*"crm__note"/s, format)
    t.notMatch(JSON.stringify(sent), '"name":"f"', `${format}: the replayed call too`)
    t.match(body.output, [{ type: 'function_call', namespace: 'crm', name: 'f' }], format)
    t.match(body.tools, [space], 'echoed as it came')

    const isCustom = format === 'openai-chat'
    const said = isCustom ? 'hello' : '{"input":"hello"}'
    parrot.parts = [{ kind: 'call', name: 'crm__note', custom: isCustom, pieces: pieces(said) }]
    const noted = await respond(format, { tools: [space] })
    const expected = [{ type: 'custom_tool_call', namespace: 'crm', name: 'note', input: 'hello' }]
    t.match(noted.body.output, expected, format)
  }
})

t.test('fields of one provider: what changes the meaning is refused elsewhere', async t => {
  const body = (format: string, fields: object) => ({
    model: `parrot/${format}`,
    max_tokens: 100,
    messages: [USER],
    ...fields,
  })
  const servers = { mcp_servers: [{ type: 'url', url: 'https://mcp.example', name: 'm' }] }
  const compacting = { context_management: { edits: [{ type: 'compact_20260112' }] } }
  for (const fields of [servers, compacting]) {
    const [field = ''] = Object.keys(fields)
    const own = await post('/messages', body('anthropic-messages', fields))
    t.equal(own.status, 200)
    t.match(own.sent, fields)
    for (const format of FORMATS.filter(each => each !== 'anthropic-messages')) {
      const { status, body: told } = await post('/messages', body(format, fields))
      t.equal(status, 400, `${field} at ${format}`)
      t.match(told.error?.message, new RegExp(`^${field}: `))
    }
  }
})
