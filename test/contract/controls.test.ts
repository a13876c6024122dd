/** Controls of a request reach the provider under its own names, or their loss is told; items of other replies break none. */
import t from 'tap'
import { startGateway } from '../support/gateway.ts'
import { FORMATS, parrotRows, startParrot } from '../support/provider.ts'

const parrot = await startParrot(t)
const rows = parrotRows(parrot.url)
const gateway = await startGateway({
  ...rows,
  models: (rows.models ?? []).map(model => ({
    ...model,
    endpoints: model.endpoints.map(endpoint => ({ ...endpoint, maxOutputTokens: 64_000 })),
  })),
})
t.teardown(() => gateway.close())

async function post(path: string, body: object) {
  const reply = await fetch(`${gateway.url}${path}`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${gateway.apiKey}`,
      'content-type': 'application/json',
      'x-gateway-metadata': 'enabled',
    },
    body: JSON.stringify(body),
  })
  const text = await reply.text()
  const changes = /"changes":(\[[^\]]*\])/.exec(text)?.[1] ?? '[]'
  return { status: reply.status, text, changes, sent: parrot.bodies.at(-1) ?? '' }
}

const messages = [{ role: 'user', content: 'Hi' }]
const parameters = { type: 'object', properties: {} }

t.test('a forced call, one at a time, from each door', async t => {
  const forced: Readonly<Record<string, readonly [RegExp, RegExp | null]>> = {
    'openai-responses': [/"tool_choice":"required"/, /"parallel_tool_calls":false/],
    'openai-chat': [/"tool_choice":"required"/, /"parallel_tool_calls":false/],
    'anthropic-messages': [/"tool_choice":\{"type":"any"/, /"disable_parallel_tool_use":true/],
    'google-gemini': [/"mode":"ANY"/, null],
  }
  for (const format of FORMATS) {
    const model = `parrot/${format}`
    const [choice, single] = forced[format] ?? [/./, null]
    for (const [path, body] of [
      [
        '/messages',
        {
          model,
          messages,
          max_tokens: 99,
          tools: [{ name: 'f', input_schema: parameters }],
          tool_choice: { type: 'any', disable_parallel_tool_use: true },
        },
      ],
      [
        '/chat/completions',
        {
          model,
          messages,
          tools: [{ type: 'function', function: { name: 'f', parameters } }],
          tool_choice: 'required',
          parallel_tool_calls: false,
        },
      ],
      [
        '/responses',
        {
          model,
          input: 'Hi',
          tools: [{ type: 'function', name: 'f', parameters }],
          tool_choice: 'required',
          parallel_tool_calls: false,
        },
      ],
    ] as const) {
      const { status, sent, changes } = await post(path, body)
      const at = `${path} to ${format}`
      t.equal(status, 200, at)
      t.match(sent, choice, at)
      if (single === null) t.match(changes, /parallel_tool_calls|tool_choice/, `${at}: the loss is told`)
      else t.match(sent, single, at)
    }
  }
})

t.test('without a limit the maximum of the model is sent where a limit is demanded', async t => {
  t.match(
    (await post('/chat/completions', { model: 'parrot/anthropic-messages', messages })).sent,
    '"max_tokens":64000',
  )
  t.match(
    (await post('/responses', { model: 'parrot/anthropic-messages', input: 'Hi' })).sent,
    '"max_tokens":64000',
  )
})

t.test('a small limit reaches each provider under its name, beside reasoning too', async t => {
  const names: Readonly<Record<string, RegExp>> = {
    'openai-responses': /"max_output_tokens":30/,
    'openai-chat': /"max_completion_tokens":30/,
    'anthropic-messages': /"max_tokens":30\b/,
    'google-gemini': /"maxOutputTokens":30/,
  }
  for (const format of FORMATS) {
    for (const more of [{}, { reasoning_effort: 'high' }]) {
      const body = { model: `parrot/${format}`, messages, max_completion_tokens: 30, ...more }
      const { status, sent } = await post('/chat/completions', body)
      t.equal(status, 200, format)
      t.match(sent, names[format] ?? /./, format)
    }
  }
})

t.test('items of earlier replies without an id or content reach no provider', async t => {
  for (const format of FORMATS) {
    const input = [
      { role: 'user', content: 'Hi' },
      { type: 'reasoning', id: '', summary: [], encrypted_content: 'x' },
      { type: 'reasoning', id: 'rs_1234', summary: [] },
      { role: 'assistant', content: 'Yes' },
      { role: 'user', content: 'Go on' },
    ]
    const { status, sent, text } = await post('/responses', { model: `parrot/${format}`, input })
    t.equal(status, 200, `${format}: ${text}`)
    t.notMatch(sent, '"id":""', format)
    t.notMatch(sent, 'rs_1234', format)
    const reference = await post('/responses', {
      model: `parrot/${format}`,
      input: [{ type: 'item_reference', id: 'msg_1' }, ...input],
    })
    t.match(String(reference.status), /^4(?:00|22)$/, `${format}: a reference`)
    t.match(reference.text, 'input[0]', format)
  }
})

t.test('usual fields that mean nothing to the gateway are taken, and a background run is none', async t => {
  for (const format of FORMATS) {
    const model = `parrot/${format}`
    const chat = { model, messages, store: false, user: 'u', metadata: { a: 'b' }, logprobs: false, n: 1 }
    t.equal((await post('/chat/completions', chat)).status, 200, format)
    const run = await post('/responses', {
      model,
      input: 'Hi',
      store: false,
      truncation: 'auto',
      background: false,
    })
    t.equal(run.status, 200, format)
    const before = parrot.bodies.length
    const background = await post('/responses', { model, input: 'Hi', background: true })
    if (background.status === 200) t.notMatch(background.sent, '"background":true', format)
    else t.equal(parrot.bodies.length, before, `${format}: nobody was called`)
  }
})
