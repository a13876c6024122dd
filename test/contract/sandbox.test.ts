/** The tools of the sandbox over HTTP, streamed and whole, with real processes behind them. */
import t, { type Test } from 'tap'
import type { StreamEvent } from '../../src/protocol/events.ts'
import type { ResponseResource } from '../../src/protocol/response.ts'
import { grammarViolations } from '../support/event-grammar.ts'
import { parseEventStream } from '../support/gateway.ts'
import { addKey } from '../support/management.ts'
import type { ScriptedProvider, ScriptedReply } from '../support/provider.ts'
import { MODEL, startAligned } from '../support/world.ts'

const call = (name: string, args: object): ScriptedReply => ({
  calls: [{ name, arguments: JSON.stringify(args) }],
})
const DONE: ScriptedReply = { text: 'Done.' }

type Item = Readonly<Record<string, unknown>>

async function start(t: Test, options: Parameters<typeof startAligned>[0] = {}) {
  const world = await startAligned(options)
  t.teardown(world.close)
  const { gateway, provider } = world
  const post = (replies: readonly ScriptedReply[], fields: object) => {
    provider.asked.length = 0
    provider.script('model', replies)
    return gateway.respond({ model: MODEL, input: 'Compute.', ...fields })
  }
  return {
    gateway,
    provider,
    post,
    async ask(replies: readonly ScriptedReply[], fields: object): Promise<ResponseResource> {
      const reply = await post(replies, fields)
      t.equal(reply.status, 200)
      return (await reply.json()) as ResponseResource
    },
    async stream(replies: readonly ScriptedReply[], fields: object): Promise<readonly StreamEvent[]> {
      const reply = await post(replies, { ...fields, stream: true })
      const events = parseEventStream(await reply.text())
      t.same(grammarViolations(events), [])
      return events
    },
    async refused(fields: object): Promise<{ status: number; message: string }> {
      const reply = await post([DONE], fields)
      const { error } = (await reply.json()) as { error: { message: string } }
      t.equal(provider.asked.length, 0, 'no model was asked')
      return { status: reply.status, message: error.message }
    },
    /** What the model got for its last call. */
    told: () => lastMessage(provider),
  }
}

const lastMessage = ({ asked }: ScriptedProvider): unknown => {
  const messages = (asked.at(-1)?.body['messages'] ?? []) as readonly Item[]
  return messages.at(-1)?.['content']
}

const typesIn = ({ output }: ResponseResource) => output.map(({ type }) => type)
const item = ({ output }: ResponseResource, at = 0) => output[at] as unknown as Item

t.test('gateway:shell runs commands, keeps files, and shows them', async t => {
  const { ask, told, provider } = await start(t)
  const tools = [{ type: 'gateway:shell' }]
  const commands = ['mkdir out; echo 42 > out/answer.txt; cat out/answer.txt', 'echo bad >&2; exit 3']
  const first = await ask([call('shell', { commands, timeout_ms: 20_000 }), DONE], { tools })
  t.same(typesIn(first), ['gateway:shell', 'message'])
  t.match(item(first), {
    status: 'completed',
    call_id: 'call_1',
    action: { commands, timeout_ms: 20_000 },
    output: [
      { stdout: '42\n', stderr: '', outcome: { type: 'exit', exit_code: 0 } },
      { stdout: '', stderr: 'bad\n', outcome: { type: 'exit', exit_code: 3 } },
    ],
    container_id: /^cntr_[0-9A-Za-z]{32}$/,
    files: [{ type: 'container_file_citation', file_id: /^cfile_/, filename: 'answer.txt' }],
  })
  const [file] = item(first)['files'] as Item[]
  t.equal(Buffer.from(String(file?.['file_id']).slice(6), 'base64url').toString(), '/mnt/data/out/answer.txt')
  t.match(told(), /"stdout":"42\\n"/)
  t.match(provider.asked[0]?.body['tools'], [{ function: { name: 'shell' } }])

  const container_id = item(first)['container_id']
  const environment = { type: 'container_reference', container_id }
  const again = [{ type: 'openrouter:shell', parameters: { environment } }]
  const second = await ask([call('shell', { commands: ['cat out/*'] }), DONE], { tools: again })
  t.match(item(second), { type: 'openrouter:shell', output: [{ stdout: '42\n' }], container_id })
  t.notOk(item(second)['files'], 'no file was changed')
  const third = await ask([DONE], {
    input: [{ role: 'user', content: 'x' }, item(first), { role: 'user', content: 'y' }],
  })
  t.equal(third.status, 'completed')
  const replayed = provider.asked[0]?.body['messages'] as Item[]
  t.match(replayed[1], {
    role: 'assistant',
    tool_calls: [{ function: { name: 'shell', arguments: /out\/answer/ } }],
  })
  t.match(replayed[2], { role: 'tool', content: /42/ })
})

t.test('the native shell becomes shell_call items where the provider has none', async t => {
  const { stream } = await start(t)
  const events = await stream([call('shell', { commands: ['echo hi'], max_output_length: 1 }), DONE], {
    tools: [{ type: 'shell' }],
  })
  const { response } = events.at(-1) as StreamEvent & { response: ResponseResource }
  const kinds = typesIn(response)
  t.same(kinds.toSorted(), ['message', 'shell_call', 'shell_call_output'])
  t.match(item(response, kinds.indexOf('shell_call')), {
    status: 'completed',
    call_id: 'call_1',
    action: { commands: ['echo hi'], max_output_length: 1 },
  })
  t.match(item(response, kinds.indexOf('shell_call_output')), {
    call_id: 'call_1',
    output: [{ stdout: 'h', stderr: '', outcome: { type: 'exit', exit_code: 0 } }],
    container_id: /^cntr_/,
    max_output_length: 1,
  })
})

t.test('a native shell on the machine of the client is a call for the client', async t => {
  const { ask, provider } = await start(t)
  const response = await ask([call('shell', { commands: ['make'] }), DONE], {
    tools: [{ type: 'shell', environment: { type: 'local' } }],
  })
  t.same(typesIn(response), ['shell_call'])
  t.match(item(response), { action: { commands: ['make'] }, call_id: 'call_1' })
  t.equal(provider.asked.length, 1)
})

t.test('gateway:bash goes to the client, and runs in the sandbox with the engine gateway', async t => {
  const { ask, told, provider } = await start(t)
  const native = await ask([call('bash', { command: 'ls' }), DONE], { tools: [{ type: 'gateway:bash' }] })
  t.same(typesIn(native), ['gateway:bash'])
  t.match(item(native), { command: 'ls', call_id: 'call_1', arguments: '{"command":"ls"}' })
  t.equal(provider.asked.length, 1)
  const answered = { ...item(native), stdout: 'a.txt\n', stderr: '', exitCode: 0 }
  await ask([DONE], { input: [{ role: 'user', content: 'x' }, answered], tools: [{ type: 'gateway:bash' }] })
  t.match(told(), /"stdout":"a.txt\\n"/, 'the model gets what the client ran')

  const tools = [{ type: 'gateway:bash', parameters: { engine: 'gateway' } }]
  const here = await ask(
    [call('bash', { command: 'echo $((6*7)); exit 2' }), call('bash', { restart: true }), DONE],
    { tools },
  )
  t.same(typesIn(here), ['gateway:bash', 'gateway:bash', 'message'])
  t.match(item(here), { stdout: '42\n', exitCode: 2, status: 'completed', container_id: /^cntr_/ })
  t.match(item(here, 1), { exitCode: 0, status: 'completed' })
  const wrong = await ask([call('bash', { commands: [1] }), DONE], { tools })
  t.match(item(wrong), { status: 'failed', error: /commands/ })
})

t.test('code_interpreter shows its code, its output and its progress', async t => {
  const { stream, ask, told } = await start(t)
  const code = 'open("/mnt/data/a.csv", "w").write("1,2")\nprint(sum(range(10)))'
  const events = await stream([call('code_interpreter', { code }), DONE], {
    tools: [{ type: 'code_interpreter', container: { type: 'auto' } }],
  })
  const progress = events
    .map(({ type }) => type)
    .filter(type => type.startsWith('response.code_interpreter_call'))
  t.same(progress, [
    'response.code_interpreter_call.in_progress',
    'response.code_interpreter_call_code.delta',
    'response.code_interpreter_call_code.done',
    'response.code_interpreter_call.interpreting',
    'response.code_interpreter_call.completed',
  ])
  const { response } = events.at(-1) as StreamEvent & { response: ResponseResource }
  t.match(item(response), {
    type: 'code_interpreter_call',
    status: 'completed',
    code,
    container_id: /^cntr_/,
    outputs: [{ type: 'logs', logs: '45\n' }],
  })
  t.match(item(response, 1), {
    content: [{ annotations: [{ type: 'container_file_citation', filename: 'a.csv' }] }],
  })
  const container = item(response)['container_id']
  const whole = await ask([call('code_interpreter', { code: 'print(open("a.csv").read()); 1/0' }), DONE], {
    tools: [{ type: 'gateway:code_interpreter', parameters: { container } }],
  })
  t.match(item(whole), {
    type: 'gateway:code_interpreter',
    language: 'python',
    stdout: '1,2\n',
    stderr: /ZeroDivisionError/,
    exitCode: 1,
  })
  t.match(told(), /ZeroDivisionError/)
})

t.test('what the sandbox cannot do is refused before a model is asked, with the setting', async t => {
  const { refused, ask } = await start(t)
  const shell = (environment: object) => ({ tools: [{ type: 'gateway:shell', parameters: { environment } }] })
  const unknown = await refused(shell({ type: 'container_reference', container_id: 'cntr_unknown' }))
  t.match(unknown, { status: 404, message: /container_id|no container/ })
  const network_policy = { type: 'allowlist', allowed_domains: ['example.com'] }
  t.match(await refused(shell({ type: 'container_auto', network_policy })), {
    status: 400,
    message: /The embedded sandbox engine has no network access.*network_policy must be {type: disabled}/,
  })
  const named = { type: 'container_reference', container_id: 'my-notes' }
  await ask([call('shell', { commands: ['echo x > x'] }), DONE], shell(named))
  t.match(await refused(shell({ ...named, network_policy })), { status: 409, message: /network policy/ })
  t.match(await refused(shell({ type: 'container_auto', file_ids: ['file_1'] })), {
    status: 400,
    message:
      /^tools\[0\]\.parameters\.environment\.file_ids\[0\]: must be the id of a file in this workspace/,
  })
  const missing = { type: 'auto', file_ids: [`gw_file_${'a'.repeat(24)}`] }
  t.match(await refused({ tools: [{ type: 'code_interpreter', container: missing }] }), {
    status: 400,
    message: /^tools\[0\]\.container\.file_ids\[0\]: must be the id/,
  })
})

t.test('every memory limit is taken; the model is told what a container has', async t => {
  const { ask, provider } = await start(t, { sandbox: { memoryMb: 300 } })
  for (const memory_limit of ['1g', '4g', '16g', '64g']) {
    const container = { type: 'auto', memory_limit }
    await ask([DONE], { tools: [{ type: 'code_interpreter', container }] })
    t.match(provider.asked[0]?.body, { tools: [{ function: { description: /It has 300 MB of memory\./ } }] })
  }
})

t.test('files of the workspace are put into the container, and are those of no other workspace', async t => {
  const { gateway, ask, provider } = await start(t)
  const upload = async (filename: string, text: string): Promise<string> => {
    const form = new FormData()
    form.set('purpose', 'user_data')
    form.set('file', new Blob([text]), filename)
    const reply = await fetch(`${gateway.url}/files`, {
      method: 'POST',
      headers: { authorization: `Bearer ${gateway.apiKey}` },
      body: form,
    })
    return ((await reply.json()) as { id: string }).id
  }
  const file_ids = [await upload('sales.csv', 'a,1\nb,2\n'), await upload('sales.csv', 'other')]
  const environment = { type: 'container_auto', file_ids }
  const tools = [{ type: 'gateway:shell', parameters: { environment } }]
  const shown = await ask([call('shell', { commands: ['cat sales.csv', 'echo x >> sales.csv; ls'] }), DONE], {
    tools,
  })
  t.match(shown.output[0], {
    output: [{ stdout: 'a,1\nb,2\n' }, { stdout: `${file_ids[1]}-sales.csv\nsales.csv\n` }],
    files: [{ filename: 'sales.csv' }],
  })
  t.match(JSON.stringify(provider.asked[0]?.body), /these files into it: \/mnt\/data\/sales\.csv, /)
  const { container_id } = shown.output[0] as unknown as { container_id: string }
  const again = { type: 'container_reference', container_id, file_ids }
  const later = await ask([call('shell', { commands: ['cat sales.csv'] }), DONE], {
    tools: [{ type: 'gateway:shell', parameters: { environment: again } }],
  })
  t.match(later.output[0], { output: [{ stdout: 'a,1\nb,2\nx\n' }] })
  const container = { type: 'auto', file_ids }
  const python = await ask([call('code_interpreter', { code: 'print(open("sales.csv").read())' }), DONE], {
    tools: [{ type: 'code_interpreter', container }],
  })
  t.match(python.output[0], { type: 'code_interpreter_call', outputs: [{ logs: /a,1/ }] })
  const key = await addKey(gateway.storageUrl, { workspaceId: 'ws-other' })
  const reply = await gateway.respond(
    { model: MODEL, input: 'x', tools },
    { headers: { authorization: `Bearer ${key}` } },
  )
  t.equal(reply.status, 400)
  t.match(await reply.json(), { error: { message: /must be the id of a file in this workspace/ } })
})

t.test('without an engine the tools are refused, with the setting', async t => {
  const { refused } = await start(t, { sandbox: { engine: 'none' } })
  for (const type of ['gateway:shell', 'gateway:code_interpreter']) {
    t.match(
      await refused({ tools: [{ type }] }),
      { status: 400, message: /^tools\[0\].*setting tools\.sandbox/ },
      type,
    )
  }
})

t.test('a container of one workspace is not found by another', async t => {
  const { gateway, ask, provider } = await start(t)
  const first = await ask([call('shell', { commands: ['echo secret > s'] }), DONE], {
    tools: [{ type: 'gateway:shell' }],
  })
  const environment = { type: 'container_reference', container_id: item(first)['container_id'] }
  const key = await addKey(gateway.storageUrl, { workspaceId: 'another' })
  provider.script('model', [DONE])
  const reply = await gateway.respond(
    { model: MODEL, input: 'x', tools: [{ type: 'gateway:shell', parameters: { environment } }] },
    { headers: { authorization: `Bearer ${key}` } },
  )
  t.equal(reply.status, 404)
  t.match(await reply.text(), /There is no container with this id/)
})

t.test('chat completions have bash, and no shell', async t => {
  const { gateway, provider } = await start(t)
  const chat = (type: string, parameters: object) =>
    fetch(`${gateway.url}/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${gateway.apiKey}`, 'content-type': 'application/json' },
      body: JSON.stringify({
        model: MODEL,
        messages: [{ role: 'user', content: 'x' }],
        tools: [{ type, parameters }],
      }),
    })
  provider.script('model', [call('bash', { command: 'echo chat' }), DONE])
  const reply = await chat('gateway:bash', { engine: 'gateway' })
  t.equal(reply.status, 200)
  t.match(lastMessage(provider), /chat/)
  provider.script('model', [call('bash', { command: 'ls' })])
  t.equal((await chat('gateway:bash', {})).status, 200)
  t.equal((await chat('gateway:shell', {})).status, 400)
})
