/** The server tool subagent over HTTP: tasks, tools of the worker, functions of the client, failures, bill and end. */
import t from 'tap'
import { toUsd } from '../../src/base/money.ts'
import type { OutputItem } from '../../src/protocol/items.ts'
import type { ResponseResource } from '../../src/protocol/response.ts'
import { hashKey } from '../support/gateway.ts'
import type { ScriptedReply } from '../support/provider.ts'
import {
  calling,
  itemOf,
  type ModelTools,
  messagesTo,
  saying,
  startModelTools,
  toldTo,
} from '../support/world.ts'

const subagent = (parameters: object = {}) => ({
  type: 'gateway:subagent',
  parameters: { model: 'acme/a', ...parameters },
})
const TASK = { task_name: 'dig', task_description: 'Dig a hole' }
const GIVES = calling('subagent', TASK)
const WELL = { outer: [GIVES, saying('Done.')], a: [saying('It is dug.')] }
const FIND = {
  type: 'function',
  name: 'find',
  parameters: { type: 'object', properties: { q: { type: 'string' } } },
}
const HEIR = [subagent({ inherit_functions: true }), FIND]

t.test('a worker sees its task alone, and the outer model its outcome', async t => {
  const { provider, whole } = await startModelTools(t)
  const response = await whole(WELL, { tools: [subagent({ instructions: 'Dig well', temperature: 0.1 })] })
  t.match(itemOf(response, 'subagent'), {
    type: 'gateway:subagent',
    status: 'completed',
    call_id: 'call_1',
    ...TASK,
    model: 'acme/a',
    outcome: 'It is dug.',
  })
  t.same(toldTo(provider, 'outer'), {
    status: 'ok',
    model: 'acme/a',
    task_name: 'dig',
    outcome: 'It is dug.',
  })
  t.same(messagesTo(provider, 'a'), [
    { role: 'system', content: 'Dig well' },
    { role: 'user', content: 'Dig a hole' },
  ])
  t.equal(provider.asked[1]?.body['temperature'], 0.1)
})

t.test('it has tools of its own, as often as it may call them', async t => {
  const { provider, whole } = await startModelTools(t)
  const tool = subagent({ name: 'Dig er', tools: [{ type: 'openrouter:datetime' }], max_tool_calls: 1 })
  const outer = [calling('subagent_Dig_er', TASK), saying('Done.')]
  const response = await whole({ outer, a: [calling('datetime'), saying('At noon.')] }, { tools: [tool] })
  t.match(itemOf(response, 'subagent'), { instance_name: 'Dig er', name: 'Dig er', outcome: 'At noon.' })
  const worker = provider.asked.filter(({ model }) => model === 'a').map(({ body }) => body)
  t.match(worker[0]?.['tools'], [{ function: { name: 'datetime' } }])
  t.equal(worker[1]?.['tool_choice'], 'none')
})

t.test('a worker that fails never fails the response', async t => {
  const { provider, whole } = await startModelTools(t)
  const cases: readonly [ScriptedReply, object, RegExp][] = [
    [{ status: 500 }, TASK, /failure/],
    [{ text: '' }, TASK, /gave no answer/],
    [saying('A'), { task_name: 'dig' }, /^task_description: is required/],
    [calling('unknown'), TASK, /a function that it does not have/],
  ]
  for (const [reply, args, error] of cases) {
    const outer = [calling('subagent', args), saying('Alone.')]
    const response = await whole({ outer, a: [reply] }, { tools: [subagent()] })
    t.equal(response.status, 'completed')
    t.match(itemOf(response, 'subagent'), { status: 'failed', error, task_name: 'dig' })
    t.match(toldTo(provider, 'outer'), { status: 'error', task_name: 'dig', error })
  }
})

t.test('settings that cannot be are refused by their path', async t => {
  const { ask } = await startModelTools(t)
  const refused = async (fields: object, message: RegExp, path = '/responses'): Promise<void> => {
    const reply = await ask({}, fields as never, { path })
    t.equal(reply.status, 400)
    t.match(await reply.json(), { error: { message } })
  }
  const at = (rest: string) => new RegExp(`^tools\\[0\\]\\.parameters\\.${rest}`)
  await refused({ tools: [subagent({ tools: [FIND] })] }, at('tools\\[0\\]\\.type: must be a server tool'))
  await refused({ tools: [subagent({ tools: [{ type: 'gateway:subagent' }] })] }, at('tools\\[0\\]\\.type: '))
  await refused({ tools: [subagent({ max_tool_calls: 26 })] }, at('max_tool_calls: '))
  await refused({ tools: [subagent(), subagent()] }, /^tools\[1\]\.parameters\.name: is required/)
  await refused(
    { tools: [subagent({ inherited_function_names: ['find', 'other'] }), FIND] },
    at('inherited_function_names\\[1\\]: tools contains no function'),
  )
  const names = Array.from({ length: 1025 }, () => 'find')
  await refused(
    { tools: [subagent({ inherited_function_names: names }), FIND] },
    at('inherited_function_names: must have at most 1024 elements'),
  )
  const messages = [{ role: 'user', content: 'Hi' }]
  const chatTool = { type: 'function', function: { name: 'find', parameters: {} } }
  const chat = { messages, tools: [subagent({ inherit_functions: true }), chatTool] }
  await refused(chat, at('inherit_functions: works only with POST /v1/responses'), '/chat/completions')
})

/** A response whose worker waits for the client, and the items to go on with. */
async function suspend({ whole }: ModelTools, fields: object = {}) {
  const worker: ScriptedReply = {
    text: 'Let me look. ',
    calls: [
      { name: 'find', arguments: '{"q":"spade"}' },
      { name: 'find', arguments: '{"q":"hole"}' },
    ],
  }
  const response = await whole({ outer: [GIVES], a: [worker] }, { tools: HEIR, ...fields } as never)
  const calls = response.output.filter(({ type }) => type === 'function_call') as unknown as readonly {
    readonly call_id: string
    readonly arguments: string
    readonly subagent_id: string
    readonly subagent_items?: readonly object[]
  }[]
  const outputs = calls.map(({ call_id }, at) => ({
    type: 'function_call_output',
    call_id,
    output: `found ${at}`,
  }))
  const input: object[] = [{ role: 'user', content: 'Why?' }, ...response.output, ...outputs]
  return { response, calls, outputs, input }
}

t.test('a worker that calls a function of the client waits for it, and goes on', async t => {
  const world = await startModelTools(t)
  const { provider, whole } = world
  const { response, calls, input } = await suspend(world)
  t.equal(response.status, 'completed')
  t.same(
    response.output.map(({ type, status }) => [type, status]),
    [
      ['gateway:subagent', 'in_progress'],
      ['function_call', 'completed'],
      ['function_call', 'completed'],
    ],
  )
  t.match(response.output[0], { call_id: 'call_1', ...TASK })
  t.match(calls, [{ arguments: '{"q":"spade"}' }, { arguments: '{"q":"hole"}' }])
  t.equal(calls[0]?.subagent_id, calls[1]?.subagent_id)
  t.ok(calls[0]?.subagent_items)
  t.notOk(calls[1]?.subagent_items)
  t.notMatch(JSON.stringify(calls[0]?.subagent_items), /Dig|spade/)
  t.same(
    provider.asked.map(({ model }) => model),
    ['outer', 'a'],
    'the outer model is not asked again',
  )
  const done = await whole({ outer: [saying('Done.')], a: [saying('It is dug.')] }, { tools: HEIR, input })
  t.match(done.output, [
    { type: 'gateway:subagent', status: 'completed', call_id: 'call_1', ...TASK, outcome: 'It is dug.' },
    { type: 'message' },
  ])
  t.match(messagesTo(provider, 'a').slice(1), [
    { role: 'user', content: 'Dig a hole' },
    { role: 'assistant', content: 'Let me look. ', tool_calls: [{ id: 'call_1' }, { id: 'call_2' }] },
    { role: 'tool', tool_call_id: 'call_1', content: 'found 0' },
    { role: 'tool', tool_call_id: 'call_2', content: 'found 1' },
  ])
  t.match(messagesTo(provider, 'outer'), [
    { role: 'user', content: 'Why?' },
    { role: 'assistant', tool_calls: [{ id: 'call_1', function: { name: 'subagent' } }] },
    { role: 'tool', tool_call_id: 'call_1', content: /It is dug\./ },
  ])
  t.equal(messagesTo(provider, 'outer').length, 3, 'nothing of the worker')
  const later = [...input, ...done.output, { role: 'user', content: 'And?' }]
  const third = await whole({ outer: [saying('Bye.')] }, { tools: HEIR, input: later })
  t.same(
    third.output.map(({ type }) => type),
    ['message'],
    'what has ended does not run again',
  )
  t.equal(messagesTo(provider, 'outer').length, 5)
})

t.test('the stream leaves the item of the subagent open, and tells the calls in full', async t => {
  const { events } = await startModelTools(t)
  const stream = await events({ outer: [GIVES], a: [calling('find', { q: 1 })] }, { tools: HEIR })
  const types = stream.map(({ type }) => type.slice('response.'.length))
  t.same(types, [
    'created',
    'in_progress',
    'output_item.added',
    'output_item.added',
    'function_call_arguments.delta',
    'function_call_arguments.done',
    'output_item.done',
    'completed',
  ])
  t.match(stream[2], {
    item: { type: 'gateway:subagent', status: 'in_progress', call_id: 'call_1', ...TASK },
  })
  t.match(stream[6], { item: { type: 'function_call', arguments: '{"q":1}', subagent_id: /^sub_/ } })
})

t.test('a worker may wait again, and then the outer model is not asked at all', async t => {
  const world = await startModelTools(t)
  const { input } = await suspend(world)
  const { ask, provider, records, whole } = world
  const key = await world.newKey(1)
  for (const stream of [false, true]) {
    provider.asked.length = 0
    const again = await ask(
      { a: [calling('find', { q: 'more' })] },
      { tools: HEIR, input, stream },
      { key: stream ? world.gateway.apiKey : key },
    )
    const text = await again.text()
    t.equal(again.status, 200, text)
    t.same(
      provider.asked.map(({ model }) => model),
      ['a'],
    )
    if (stream) continue
    const response = JSON.parse(text) as ResponseResource
    t.same(
      response.output.map(({ type }) => type),
      ['gateway:subagent', 'function_call'],
    )
    const own = (await records()).filter(({ keyHash }) => keyHash === hashKey(key))
    t.equal(response.usage?.cost, toUsd(own.reduce((sum, { cost }) => sum + cost, 0)))
    const call = response.output[1] as unknown as { call_id: string }
    const output = { type: 'function_call_output', call_id: call.call_id, output: 'more' }
    const done = await whole(
      { outer: [saying('Done.')], a: [saying('Dug.')] },
      { tools: HEIR, input: [...input, ...response.output, output] },
    )
    t.match(itemOf(done, 'subagent'), { call_id: 'call_1', outcome: 'Dug.' })
    t.same(
      messagesTo(provider, 'a').map(({ role }) => role),
      ['system', 'user', 'assistant', 'tool', 'tool', 'assistant', 'tool'],
    )
  }
})

t.test('only what this workspace got may go on', async t => {
  const world = await startModelTools(t)
  const { input, calls } = await suspend(world)
  const { ask, gateway, provider } = world
  provider.asked.length = 0
  const change = (changed: (call: Record<string, unknown>) => object) =>
    input.map(item => ((item as OutputItem).type === 'function_call' ? changed(item as never) : item))
  const refused = async (changed: readonly object[], message: RegExp, tools: readonly object[] = HEIR) => {
    const reply = await ask({}, { tools, input: changed })
    t.equal(reply.status, 400)
    t.match(await reply.json(), { error: { message } })
  }
  const bad = /^input\[2\]\.subagent_id: is not a suspended subagent/
  await refused(
    change(call => ({ ...call, subagent_id: 'sub_other' })),
    bad,
  )
  await refused(
    change(({ subagent_items: _, ...call }) => call),
    bad,
  )
  await refused(
    change(call => ({ ...call, call_id: 'call_x' })),
    bad,
  )
  const [sealed] = (calls[0]?.subagent_items ?? []) as { type: string; encrypted_content: string }[]
  const text = sealed?.encrypted_content ?? ''
  const middle = Math.floor(text.length / 2)
  const flipped = text.slice(0, middle) + (text[middle] === 'A' ? 'B' : 'A') + text.slice(middle + 1)
  for (const encrypted_content of [flipped, `${text}AAAA`, text.slice(0, -4), 'test.AAAA', '']) {
    await refused(
      change(call =>
        'subagent_items' in call ? { ...call, subagent_items: [{ ...sealed, encrypted_content }] } : call,
      ),
      bad,
    )
  }
  await refused(
    input.filter(item => (item as { type?: string }).type !== 'function_call_output'),
    /^input: the output of the call call_\w+ of a suspended subagent is missing/,
  )
  await refused(input, /^tools: the subagent of a suspended task is missing/, [
    subagent({ name: 'other', inherit_functions: true }),
    FIND,
  ])
  t.equal(provider.asked.length, 0)
  const made = await fetch(`${gateway.url}/workspaces`, {
    method: 'POST',
    headers: { authorization: `Bearer ${gateway.managementKey}`, 'content-type': 'application/json' },
    body: JSON.stringify({ name: 'Other', slug: 'other' }),
  })
  const workspace = ((await made.json()) as { data: { id: string } }).data.id
  const foreign = await fetch(`${gateway.url}/keys`, {
    method: 'POST',
    headers: { authorization: `Bearer ${gateway.managementKey}`, 'content-type': 'application/json' },
    body: JSON.stringify({ name: 'foreign', workspace_id: workspace }),
  })
  const key = ((await foreign.json()) as { key: string }).key
  const reply = await ask({}, { tools: HEIR, input }, { key })
  t.equal(reply.status, 400)
  t.match(await reply.json(), { error: { message: bad } })
})

t.test('work that is too long to go on later is a failure of the worker', async t => {
  const { whole } = await startModelTools(t)
  const worker = { ...calling('find', { q: 1 }), text: 'x'.repeat(1_100_000) }
  const response = await whole({ outer: [GIVES, saying('Alone.')], a: [worker] }, { tools: HEIR })
  t.match(itemOf(response, 'subagent'), { status: 'failed', error: /too long/ })
})

t.test('it costs what its records cost together', async t => {
  const { ask, newKey, records, spent } = await startModelTools(t)
  const key = await newKey(1)
  const response = (await (await ask(WELL, { tools: [subagent()] }, { key })).json()) as ResponseResource
  const own = (await records()).filter(({ keyHash }) => keyHash === hashKey(key))
  t.equal(own.filter(({ parent }) => parent === response.id).length, 1)
  t.equal(response.usage?.cost, toUsd(own.reduce((sum, { cost }) => sum + cost, 0)))
  t.equal(await spent(key), response.usage?.cost)
})

t.test('a hang-up closes the calls of all workers', async t => {
  const { ask, provider } = await startModelTools(t)
  const leaving = new AbortController()
  const two = { calls: [1, 2].map(() => ({ name: 'subagent', arguments: JSON.stringify(TASK) })) }
  const replies = { outer: [two], a: [{ hangs: true } as const, { hangs: true } as const] }
  const reading = ask(replies, { tools: [subagent()] }, { signal: leaving.signal }).then(reply =>
    reply.text(),
  )
  await provider.until(({ asked }) => asked.length === 3)
  leaving.abort()
  await t.rejects(reading)
  await provider.until(({ left }) => left === 2)
})

t.test('its item goes back as input', async t => {
  const { provider, whole } = await startModelTools(t)
  const first = await whole(WELL, { tools: [subagent()] })
  const input = [{ role: 'user', content: 'Why?' }, ...first.output, { role: 'user', content: 'On?' }]
  for (const tools of [[], [subagent()]]) {
    t.equal((await whole({ outer: [saying('Later.')] }, { input, tools })).status, 'completed')
  }
  t.match(messagesTo(provider, 'outer')[2], { role: 'tool', content: /It is dug/ })
})
