/**
 * Calls in answers with server tools that somebody else has to act on: those that are left to the client, those of
 * nobody, and those of both kinds in one turn. Three doors, streamed and whole.
 */
import t, { type Test } from 'tap'
import { outgoingRequest } from '../../src/formats/outgoing.ts'
import { FORMATS } from '../../src/formats/table.ts'
import { parseResponsesRequest } from '../support/dialects.ts'
import { endpointOf } from '../support/endpoint.ts'
import { grammarViolations } from '../support/event-grammar.ts'
import { parseEventStream, startGateway } from '../support/gateway.ts'
import { ScriptedProvider, type ScriptedReply } from '../support/provider.ts'

type Fields = Readonly<Record<string, unknown>>
type Told = { readonly [field: string]: unknown }

async function start(t: Test) {
  const provider = new ScriptedProvider()
  const baseUrl = await provider.listen()
  const gateway = await startGateway({
    providers: [{ slug: 'acme', format: 'openai-chat', baseUrl, apiKey: 'k' }],
    models: [{ id: 'acme/model', endpoints: [{ provider: 'acme', upstreamModel: 'model' }] }],
  })
  t.teardown(async () => {
    await gateway.close()
    await provider.close()
  })
  const post = async (path: string, replies: readonly ScriptedReply[], body: Fields) => {
    provider.asked.length = 0
    provider.script('model', replies)
    const answer = await fetch(gateway.url + path, {
      method: 'POST',
      headers: { authorization: `Bearer ${gateway.apiKey}`, 'content-type': 'application/json' },
      body: JSON.stringify({ model: 'acme/model', ...body }),
    })
    const text = await answer.text()
    t.equal(answer.status, 200, text)
    return text
  }
  /** The whole reply of each door, also where it was streamed. */
  const doors = {
    responses: async (replies: readonly ScriptedReply[], body: Fields, stream: boolean) => {
      const text = await post('/responses', replies, { input: 'Go', ...body, stream })
      if (!stream) return JSON.parse(text) as Told
      const events = parseEventStream(text)
      t.same(grammarViolations(events), [])
      return (events.at(-1) as unknown as { response: Told }).response
    },
    chat: async (replies: readonly ScriptedReply[], body: Fields, stream: boolean) => {
      const messages = [{ role: 'user', content: 'Go' }]
      const text = await post('/chat/completions', replies, { messages, ...body, stream })
      return stream ? joinedChat(text) : (JSON.parse(text) as { choices: Told[] }).choices[0]
    },
    messages: async (replies: readonly ScriptedReply[], body: Fields, stream: boolean) => {
      const messages = [{ role: 'user', content: 'Go' }]
      const text = await post('/messages', replies, { messages, max_tokens: 99, ...body, stream })
      return stream ? joinedMessage(text) : (JSON.parse(text) as Told)
    },
  }
  const lastSent = () => JSON.stringify(provider.asked.at(-1)?.body['messages'])
  return { provider, doors, lastSent }
}

function joinedChat(text: string) {
  const chunks = [...text.matchAll(/^data: (\{.*)$/gm)].map(([, json = '']) => JSON.parse(json) as Told)
  const calls: { id?: string; function: { name: string; arguments: string } }[] = []
  let finish: unknown = null
  for (const chunk of chunks) {
    const [choice] = chunk['choices'] as { delta: Fields; finish_reason: unknown }[]
    finish = choice?.finish_reason ?? finish
    for (const call of (choice?.delta['tool_calls'] ?? []) as {
      index: number
      id?: string
      function: { name?: string; arguments?: string }
    }[]) {
      calls[call.index] ??= { function: { name: '', arguments: '' } }
      const known = calls[call.index]
      if (known === undefined) continue
      if (call.id !== undefined) known.id = call.id
      known.function.name += call.function.name ?? ''
      known.function.arguments += call.function.arguments ?? ''
    }
  }
  return { finish_reason: finish, message: { tool_calls: calls } } as unknown as Told
}

function joinedMessage(text: string): Told {
  const events = [...text.matchAll(/^data: (\{.*)$/gm)].map(([, json = '']) => JSON.parse(json) as Fields)
  const content: Record<string, unknown>[] = []
  let stop: unknown = null
  const parts: string[] = []
  for (const event of events) {
    const index = Number(event['index'])
    if (event['type'] === 'content_block_start') {
      content[index] = { ...(event['content_block'] as Fields) }
      parts[index] = ''
    } else if (event['type'] === 'content_block_delta')
      parts[index] += String((event['delta'] as Fields)['partial_json'] ?? '')
    else if (event['type'] === 'message_delta') stop = (event['delta'] as Fields)['stop_reason']
  }
  const blocks = content.map((block, at) =>
    parts[at] ? { ...block, input: JSON.parse(parts[at]) as unknown } : block,
  )
  return { stop_reason: stop, content: blocks } as unknown as Told
}

const calls = (...names: readonly string[]): ScriptedReply => ({
  calls: names.map(name => ({ name, arguments: name === 'bash' ? '{"command":"ls"}' : '{}' })),
})
const DONE: ScriptedReply = { text: 'Done.' }
const BASH = { type: 'gateway:bash' }
const TIME = { type: 'gateway:datetime' }
const MODES = [false, true]

t.test('an unknown name goes back to the model as an error where the caller has no functions', async t => {
  const { provider, doors, lastSent } = await start(t)
  for (const stream of MODES) {
    for (const [name, ask] of Object.entries(doors)) {
      const told = await ask([calls('nosuch'), DONE], { tools: [TIME] }, stream)
      const label = `${name} ${stream}`
      t.equal(provider.asked.length, 2, label)
      t.match(lastSent(), /There is no tool named nosuch/, label)
      t.notMatch(JSON.stringify(told), /nosuch/, label)
    }
    const counted = await doors.responses([calls('nosuch'), DONE], { tools: [TIME] }, stream)
    t.match(counted['usage'], {
      server_tool_use_details: { tool_calls_requested: 1, tool_calls_executed: 0 },
    })
    const spent = await doors.responses(
      [calls('nosuch'), calls('nosuch'), DONE],
      { tools: [TIME], max_tool_calls: 1 },
      stream,
    )
    t.equal(provider.asked.length, 2, 'it counts as a call')
    t.equal(spent['status'], 'completed')
    const own = { type: 'function', name: 'mine', parameters: { type: 'object' } }
    const kept = await doors.responses([calls('nosuch')], { tools: [TIME, own] }, stream)
    t.match(
      kept['output'],
      [{ type: 'function_call', name: 'nosuch' }],
      'a caller with functions decides itself',
    )
  }
})

t.test('a turn with calls of both kinds keeps the order of the model', async t => {
  const { doors } = await start(t)
  const mine = { type: 'function', name: 'mine', parameters: { type: 'object' } }
  const custom = { type: 'custom', name: 'words' }
  for (const stream of MODES) {
    for (const order of [
      ['datetime', 'mine'],
      ['mine', 'datetime'],
      ['mine', 'datetime', 'words', 'datetime', 'mine'],
      ['datetime', 'words'],
    ]) {
      const told = await doors.responses([calls(...order)], { tools: [TIME, mine, custom] }, stream)
      const seen = (told['output'] as { type: string; name?: string }[]).map(({ type, name }) =>
        type === 'gateway:datetime' ? 'datetime' : name,
      )
      t.same(seen, [...order.filter((_, at) => at < order.indexOf('datetime')), ...sortedAfter(order)])
      t.equal(told['status'], 'completed')
    }
    const chat = await doors.chat(
      [calls('datetime', 'mine')],
      { tools: [TIME, chatFunction('mine')] },
      stream,
    )
    t.match(chat, { finish_reason: 'tool_calls', message: { tool_calls: [{ function: { name: 'mine' } }] } })
    const block = { name: 'mine', input_schema: { type: 'object' } }
    const message = await doors.messages([calls('datetime', 'mine')], { tools: [TIME, block] }, stream)
    t.equal(message['stop_reason'], 'tool_use')
    const types = (message['content'] as { type: string }[]).map(({ type }) => type)
    t.same(types, ['server_tool_use', 'gateway_datetime_tool_result', 'tool_use'])
  }
})

/** Calls of server tools run together, when the model has made all its calls. */
function sortedAfter(order: readonly string[]): readonly string[] {
  const rest = order.slice(order.indexOf('datetime'))
  return [...rest.filter(name => name === 'datetime'), ...rest.filter(name => name !== 'datetime')]
}

const chatFunction = (name: string) => ({
  type: 'function',
  function: { name, parameters: { type: 'object' } },
})

t.test('a command that is left to the client is open, and no executed call', async t => {
  const { provider, doors, lastSent } = await start(t)
  for (const stream of MODES) {
    const told = await doors.responses([calls('bash')], { tools: [BASH] }, stream)
    const [item] = told['output'] as [Fields]
    t.match(item, { type: 'gateway:bash', status: 'in_progress', command: 'ls', call_id: /.+/ })
    t.match(told['usage'], {
      server_tool_use_details: { tool_calls_requested: 1, tool_calls_executed: 0 },
    })
    t.equal(provider.asked.length, 1)
    const user = { type: 'message', role: 'user', content: 'Go' }
    const again = async (...items: readonly object[]) => {
      await doors.responses([DONE], { tools: [BASH], input: [user, ...items] }, stream)
      return lastSent()
    }
    const unanswered = await again(item, user)
    t.match(unanswered, /"name":"bash","arguments":"\{\\"command\\":\\"ls\\"\}"/)
    t.match(unanswered, /has sent no output/)
    t.match(await again({ ...item, stdout: 'a.txt', stderr: '', exitCode: 0 }), /a\.txt/)
    const output = { type: 'function_call_output', call_id: item['call_id'], output: 'b.txt' }
    const answered = await again(item, output)
    t.match(answered, /"name":"bash"/)
    t.match(answered, /b\.txt/)
    t.notMatch(answered, /has sent no output/)
  }
})

t.test('other doors get it as the call of a function, which they can answer', async t => {
  const { doors, lastSent } = await start(t)
  for (const stream of MODES) {
    const message = await doors.messages([calls('bash')], { tools: [BASH] }, stream)
    t.equal(message['stop_reason'], 'tool_use')
    const content = message['content'] as Fields[]
    t.match(content, [{ type: 'tool_use', name: 'bash', input: { command: 'ls' }, id: /.+/ }])
    t.equal(content.length, 1)
    const result = { type: 'tool_result', tool_use_id: content[0]?.['id'], content: 'a.txt' }
    const next = await doors.messages(
      [DONE],
      {
        tools: [BASH],
        messages: [
          { role: 'user', content: 'Go' },
          { role: 'assistant', content },
          { role: 'user', content: [result] },
        ],
      },
      stream,
    )
    t.equal(next['stop_reason'], 'end_turn')
    t.match(lastSent(), /"name":"bash".*a\.txt/)

    const choice = await doors.chat([calls('bash')], { tools: [BASH] }, stream)
    t.equal(choice?.['finish_reason'], 'tool_calls')
    const [call] = (choice?.['message'] as { tool_calls: Fields[] } | undefined)?.tool_calls ?? []
    t.match(call, { id: /.+/, function: { name: 'bash', arguments: '{"command":"ls"}' } })
    await doors.chat(
      [DONE],
      {
        tools: [BASH],
        messages: [
          { role: 'user', content: 'Go' },
          { role: 'assistant', tool_calls: [{ ...call, type: 'function' }] },
          { role: 'tool', tool_call_id: call?.['id'], content: 'a.txt' },
        ],
      },
      stream,
    )
    t.match(lastSent(), /"name":"bash".*a\.txt/)
  }
})

t.test('a command that no client can run goes back to the model', async t => {
  const { provider, doors, lastSent } = await start(t)
  const wrong: ScriptedReply = { calls: [{ name: 'bash', arguments: '{"command":7}' }] }
  for (const stream of MODES) {
    const message = await doors.messages([wrong, DONE], { tools: [BASH] }, stream)
    t.equal(message['stop_reason'], 'end_turn')
    t.equal(provider.asked.length, 2)
    t.match(lastSent(), /command: must be a string/)
  }
})

t.test('a patch is open until the client has applied it', async t => {
  const { doors, lastSent } = await start(t)
  const patch = { type: 'create_file', path: 'a.txt', diff: '+one\n' }
  const reply: ScriptedReply = { calls: [{ name: 'apply_patch', arguments: JSON.stringify(patch) }] }
  for (const stream of MODES) {
    for (const type of ['gateway:apply_patch', 'apply_patch']) {
      const told = await doors.responses([reply], { tools: [{ type }] }, stream)
      const [item] = told['output'] as [Fields]
      t.match(item, { status: 'in_progress', operation: patch })
      t.match(told['usage'], { server_tool_use_details: { tool_calls_executed: 0 } })
      const output = { type: 'apply_patch_call_output', call_id: item['call_id'], status: 'completed' }
      const input = [{ role: 'user', content: 'Go' }, item, output]
      await doors.responses([DONE], { tools: [{ type }], input }, stream)
      t.match(lastSent(), /a\.txt.*completed/)
    }
  }
})

t.test('providers of every format see a call without an output, and its answer', t => {
  const user = { type: 'message', role: 'user', content: 'Go' }
  const left = {
    type: 'gateway:bash',
    id: 'st_1',
    call_id: 'call_1',
    status: 'in_progress',
    command: 'ls',
    arguments: '{"command":"ls"}',
  }
  for (const format of Object.values(FORMATS)) {
    for (const [items, said] of [
      [[left, user], /has sent no output/],
      [[left, { type: 'function_call_output', call_id: 'call_1', output: 'a.txt' }], /a\.txt/],
      [[{ ...left, stdout: 'a.txt', exitCode: 0 }, user], /a\.txt/],
    ] as const) {
      const request = parseResponsesRequest({ model: 'm', input: [user, ...items] })
      const outgoing = outgoingRequest(request, format, 'responses')
      const { body } = format.encode(
        { request: outgoing, stream: false, endUser: null },
        endpointOf(format.name),
      )
      t.match(JSON.stringify(body), said, format.name)
      t.match(JSON.stringify(body), /"ls/, format.name)
    }
  }
  t.end()
})
