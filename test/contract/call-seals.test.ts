/** Signatures that Gemini gives to calls come back to it from clients that keep no more than the call. */
import { createServer } from 'node:http'
import t, { type Test } from 'tap'
import { finalOf, parseEventStream, startGateway } from '../support/gateway.ts'
import { listening } from '../support/listening.ts'
import { addKey } from '../support/management.ts'

type Fields = Record<string, unknown>
const asked: { readonly account: string; readonly body: Fields }[] = []
const away = new Set<string>()
const FILLER = 'skip_thought_signature_validator'
let calls = 0

/** Refuses calls that it has not signed itself, as the API does, but for the documented filler. */
const server = createServer(async (request, response) => {
  let text = ''
  for await (const chunk of request.setEncoding('utf8')) text += String(chunk)
  const [, account = ''] = (request.url ?? '').split('/')
  const body = JSON.parse(text) as Fields
  asked.push({ account, body })
  const wrong = signaturesIn(body).find(one => one !== FILLER && !one?.endsWith(`-of-${account}`))
  const status = away.has(account) ? 503 : wrong === undefined ? 200 : 400
  const signature = `${'A'.repeat(600)}${++calls}-of-${account}`
  const [tools] = body['tools'] as [{ functionDeclarations: readonly { name: string }[] }]
  const name = tools.functionDeclarations[0]?.name
  const part = { functionCall: { name, args: { at: calls } }, thoughtSignature: signature }
  const content = { role: 'model', parts: [part, { functionCall: { name, args: { at: 'more' } } }] }
  const reply = {
    candidates: [{ content, finishReason: 'STOP', index: 0 }],
    usageMetadata: { promptTokenCount: 5, candidatesTokenCount: 2, totalTokenCount: 7 },
  }
  const refusal = {
    error: { code: status, message: 'Corrupted thought signature.', status: 'INVALID_ARGUMENT' },
  }
  const isStream = (request.url ?? '').includes('stream')
  const said = JSON.stringify(status === 200 ? reply : refusal)
  response
    .writeHead(status, {
      'content-type': isStream && status === 200 ? 'text/event-stream' : 'application/json',
    })
    .end(isStream && status === 200 ? `data: ${said}\n\n` : said)
})

/** The signature of the first call of each turn. */
function signaturesIn({ contents }: Fields): readonly (string | undefined)[] {
  return (contents as { parts: Fields[] }[]).flatMap(({ parts }) => {
    const call = parts.find(part => part['functionCall'] !== undefined)
    return call === undefined ? [] : [call['thoughtSignature'] as string | undefined]
  })
}
const { url: at } = await listening(server, t)
const row = (slug: string) =>
  ({
    slug,
    name: slug,
    format: 'google-gemini',
    baseUrl: `${at}/${slug}`,
    apiKey: `key-${slug}-0123456789`,
  }) as const
const upstreamModel = 'gemini-3-pro'
const gateway = await startGateway({
  providers: [row('one'), row('two')],
  models: [
    {
      id: 'acme/gem',
      endpoints: [
        { provider: 'one', upstreamModel },
        { provider: 'two', upstreamModel },
      ],
    },
  ],
})
t.teardown(() => gateway.close())
t.beforeEach(() => {
  asked.length = 0
  away.clear()
})

async function post(t: Test, path: string, body: Fields, apiKey = gateway.apiKey): Promise<Response> {
  const reply = await fetch(`${gateway.url}${path}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${apiKey}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'acme/gem', ...body }),
  })
  t.equal(reply.status, 200, path)
  return reply
}

const PARAMETERS = { type: 'object', properties: {} }
const TOOLS = [{ type: 'function', function: { name: 'look', parameters: PARAMETERS } }]

/** One turn of a client of the Chat Completions API that keeps calls and nothing else. */
async function chatTurn(t: Test, messages: Fields[], stream: boolean, apiKey?: string): Promise<void> {
  const reply = await post(t, '/chat/completions', { messages, tools: TOOLS, stream }, apiKey)
  const tool_calls: Fields[] = []
  if (stream) {
    for (const line of (await reply.text()).split('\n')) {
      if (!line.startsWith('data: {')) continue
      const { choices } = JSON.parse(line.slice(6)) as { choices: { delta: { tool_calls?: Fields[] } }[] }
      for (const call of choices[0]?.delta.tool_calls ?? []) {
        const known = tool_calls[call['index'] as number]
        const told = call['function'] as Fields
        if (known === undefined)
          tool_calls.push({ id: call['id'], type: 'function', function: { arguments: '', ...told } })
        else (known['function'] as Fields)['arguments'] += String(told['arguments'] ?? '')
      }
    }
  } else {
    const { choices } = (await reply.json()) as { choices: { message: { tool_calls: Fields[] } }[] }
    for (const { id, type, function: called } of choices[0]?.message.tool_calls ?? [])
      tool_calls.push({ id, type, function: called })
  }
  t.equal(tool_calls.length, 2)
  messages.push({ role: 'assistant', content: null, tool_calls })
  for (const { id } of tool_calls) messages.push({ role: 'tool', tool_call_id: id, content: 'Tea' })
}

t.test('by chat completions, whole and streamed', async t => {
  for (const stream of [false, true]) {
    asked.length = 0
    const messages: Fields[] = [{ role: 'user', content: 'Look' }]
    for (let turn = 0; turn < 4; turn++) await chatTurn(t, messages, stream)
    const signatures = signaturesIn(asked.at(-1)?.body ?? {})
    t.equal(signatures.length, 3)
    for (const signature of signatures) t.match(signature, /^A+\d+-of-one$/, 'the real one')
    t.equal(new Set(signatures).size, 3)
    t.notMatch(JSON.stringify(asked), 'gwm1')
  }
})

t.test('by a client of Responses that keeps the fields of calls that it knows', async t => {
  const tools = [{ type: 'function', name: 'look', parameters: PARAMETERS }]
  const input: Fields[] = [{ type: 'message', role: 'user', content: 'Look' }]
  for (let turn = 0; turn < 3; turn++) {
    const { output } = (await (await post(t, '/responses', { input, tools })).json()) as { output: Fields[] }
    input.push(
      ...output.map(({ type, call_id, name, arguments: args }) => ({ type, call_id, name, arguments: args })),
    )
    for (const { call_id } of output) input.push({ type: 'function_call_output', call_id, output: 'Tea' })
  }
  for (const signature of signaturesIn(asked.at(-1)?.body ?? {})) t.match(signature, /-of-one$/)
})

t.test(
  'of calls of tools that are no functions for their client: custom ones, and its own search',
  async t => {
    const search = { type: 'tool_search', execution: 'client', parameters: PARAMETERS }
    for (const [tool, type, outputOf] of [
      [
        { type: 'custom', name: 'look' },
        'custom_tool_call',
        { type: 'custom_tool_call_output', output: 'Tea' },
      ],
      [search, 'tool_search_call', { type: 'tool_search_output', execution: 'client', tools: [] }],
    ] as const) {
      for (const stream of [false, true]) {
        asked.length = 0
        const input: Fields[] = [{ type: 'message', role: 'user', content: 'Look' }]
        for (let turn = 0; turn < 3; turn++) {
          const reply = await post(t, '/responses', { input, tools: [tool], stream })
          const { output } = (
            stream ? finalOf(parseEventStream(await reply.text())) : await reply.json()
          ) as { output: Fields[] }
          t.equal(output.length, 2)
          for (const { signature: _, ...item } of output) {
            t.equal(item['type'], type)
            input.push(item)
          }
          for (const { call_id } of output) input.push({ ...outputOf, call_id })
        }
        const signatures = signaturesIn(asked.at(-1)?.body ?? {})
        t.equal(signatures.length, 2)
        for (const signature of signatures) t.match(signature, /-of-one$/, `${type}, stream ${stream}`)
      }
    }
  },
)

t.test('another account gets the filler, and never the signature', async t => {
  const messages: Fields[] = [{ role: 'user', content: 'Look' }]
  await chatTurn(t, messages, false)
  away.add('one')
  await chatTurn(t, messages, false)
  t.equal(asked.at(-1)?.account, 'two')
  t.same(signaturesIn(asked.at(-1)?.body ?? {}), [FILLER])
  t.notMatch(JSON.stringify(asked.at(-1)), /-of-one|gwm1/)
})

t.test('another workspace of the organization gets the filler', async t => {
  const key = await addKey(gateway.storageUrl, { workspaceId: 'ws_other' })
  const messages: Fields[] = [{ role: 'user', content: 'Look' }]
  await chatTurn(t, messages, false)
  await chatTurn(t, messages, false, key)
  t.same(signaturesIn(asked.at(-1)?.body ?? {}), [FILLER])
  t.notMatch(JSON.stringify(asked.at(-1)), /-of-one|gwm1/)
})

t.test('calls that nobody has kept get the filler', async t => {
  const called = { id: 'call_unknown', type: 'function', function: { name: 'look', arguments: '{}' } }
  await chatTurn(
    t,
    [
      { role: 'user', content: 'Look' },
      { role: 'assistant', content: null, tool_calls: [called] },
      { role: 'tool', tool_call_id: 'call_unknown', content: 'Tea' },
    ],
    false,
  )
  t.same(signaturesIn(asked.at(-1)?.body ?? {}), [FILLER])
})
