/** The server tool advisor over HTTP: names, memory, transcript, stream, failures, bill and end. */
import t from 'tap'
import { toUsd } from '../../src/base/money.ts'
import type { ResponseResource } from '../../src/protocol/response.ts'
import { finalOf, hashKey } from '../support/gateway.ts'
import type { ScriptedReply } from '../support/provider.ts'
import { calling, itemOf, messagesTo, OUTER, saying, startModelTools, toldTo } from '../support/world.ts'

const advisor = (parameters: object = { model: 'acme/a' }) => ({ type: 'gateway:advisor', parameters })
const ASKS = calling('advisor', { prompt: 'Left or right?' })
const WELL = { outer: [ASKS, saying('Left it is.')], a: [saying('Go left.')] }

t.test('the model asks another one, which sees the question alone', async t => {
  const { provider, whole } = await startModelTools(t)
  const tool = advisor({
    model: 'acme/a',
    instructions: 'You know the way',
    temperature: 0.3,
    max_completion_tokens: 77,
  })
  const response = await whole(WELL, { tools: [tool] })
  const { id: _, ...item } = itemOf(response, 'advisor')
  t.same(item, {
    type: 'gateway:advisor',
    status: 'completed',
    prompt: 'Left or right?',
    model: 'acme/a',
    advice: 'Go left.',
  })
  t.same(toldTo(provider, 'outer'), { status: 'ok', model: 'acme/a', advice: 'Go left.' })
  t.same(messagesTo(provider, 'a'), [
    { role: 'system', content: 'You know the way' },
    { role: 'user', content: 'Left or right?' },
  ])
  t.match(provider.asked[1]?.body, { temperature: 0.3, max_completion_tokens: 77 })
  t.match(provider.asked[0]?.body['tools'], [
    { function: { name: 'advisor', parameters: { required: ['prompt'] } } },
  ])
})

t.test('the entry says which model, else it is the outer one, whatever the call says', async t => {
  const { provider, whole } = await startModelTools(t)
  const asked = async (parameters: object, args: object): Promise<string | undefined> => {
    provider.asked.length = 0
    const outer = [calling('advisor', { prompt: 'Q', ...args }), saying('one'), saying('two')]
    await whole({ outer, a: [saying('a')], b: [saying('b')] }, { tools: [advisor(parameters)] })
    return provider.asked[1]?.model
  }
  t.equal(await asked({ model: 'acme/a' }, { model: 'acme/b' }), 'a')
  t.equal(await asked({}, { model: 'acme/b' }), 'outer')
  t.equal(await asked({}, {}), 'outer')
  provider.asked.length = 0
  await whole(WELL, { tools: [advisor()] })
  const parameters = provider.asked[0]?.body['tools']
  t.notMatch(JSON.stringify(parameters), /"model"/)
})

t.test('the cap of the request holds for advice, unless the entry has its own', async t => {
  const { provider, whole } = await startModelTools(t)
  const capOf = async (parameters: object, cap: number | null): Promise<unknown> => {
    provider.asked.length = 0
    const replies = { outer: [calling('advisor', { prompt: 'Q' }), saying('one')], a: [saying('a')] }
    await whole(replies, {
      tools: [advisor({ model: 'acme/a', ...parameters })],
      max_output_tokens: cap,
    } as never)
    const { body } = provider.asked.find(({ model }) => model === 'a') ?? {}
    return body?.['max_completion_tokens'] ?? body?.['max_tokens']
  }
  t.equal(await capOf({}, 100), 100)
  t.equal(await capOf({}, 100_000), 8_192)
  t.equal(await capOf({ max_completion_tokens: 300 }, 100), 300)
  t.equal(await capOf({}, null), undefined)
})

t.test('several advisors are functions of their own; a forced one is the first', async t => {
  const { provider, whole } = await startModelTools(t)
  const tools = [
    advisor({ name: ' legal review ', model: 'acme/a' }),
    advisor({ model: 'acme/b' }),
    { type: 'function', name: 'advisor', parameters: { type: 'object' } },
  ]
  const outer = [
    calling('advisor_legal_review', { prompt: 'Q' }),
    calling('advisor_2', { prompt: 'R' }),
    saying('So.'),
  ]
  const response = await whole(
    { outer, a: [saying('A')], b: [saying('B')] },
    { tools, tool_choice: { type: 'openrouter:advisor' } },
  )
  t.match(response.output, [
    { instance_name: 'legal review', model: 'acme/a', advice: 'A' },
    { model: 'acme/b', advice: 'B' },
    { type: 'message' },
  ])
  t.notOk('instance_name' in (response.output[1] ?? {}))
  t.match(provider.asked[0]?.body['tool_choice'], { function: { name: 'advisor_legal_review' } })
})

t.test('names that cannot be are refused by their path', async t => {
  const { ask } = await startModelTools(t)
  const refused = async (tools: readonly object[], message: RegExp): Promise<void> => {
    const reply = await ask({}, { tools })
    t.equal(reply.status, 400)
    t.match(await reply.json(), { error: { message } })
  }
  await refused([advisor(), advisor()], /^tools\[1\]\.parameters\.name: is required/)
  await refused(
    [advisor({ name: 'x' }), advisor({ name: ' x ' })],
    /^tools\[1\]\.parameters\.name: another advisor/,
  )
  await refused([advisor({ name: '  ' })], /^tools\[0\]\.parameters\.name: must not be blank/)
  await refused([advisor({ name: 'a/b' })], /^tools\[0\]\.parameters\.name: /)
  await refused([advisor({ model: 'gateway/fusion' })], /^tools\[0\]\.parameters\.model: the router fusion/)
})

t.test('an advisor remembers what it said, in this request and in items that come back', async t => {
  const { provider, whole } = await startModelTools(t)
  const tools = [advisor(), advisor({ name: 'other', model: 'acme/b' })]
  const first = await whole(
    {
      outer: [ASKS, calling('advisor', { prompt: 'Sure?' }), saying('So.')],
      a: [saying('Go left.'), saying('Yes.')],
    },
    { tools },
  )
  t.same(
    messagesTo(provider, 'a')
      .slice(1)
      .map(({ content }) => content),
    ['Left or right?', 'Go left.', 'Sure?'],
  )
  const input = [{ role: 'user', content: 'Why?' }, ...first.output, { role: 'user', content: 'On?' }]
  const twice = [
    calling('advisor', { prompt: 'Now?' }),
    calling('advisor_other', { prompt: 'You?' }),
    saying('So.'),
  ]
  const replies = { outer: twice, a: [saying('Straight.')], b: [saying('Back.')] }
  t.equal((await whole(replies, { tools, input })).status, 'completed')
  t.same(
    messagesTo(provider, 'a')
      .slice(1)
      .map(({ role, content }) => [role, content]),
    [
      ['user', 'Left or right?'],
      ['assistant', 'Go left.'],
      ['user', 'Sure?'],
      ['assistant', 'Yes.'],
      ['user', 'Now?'],
    ],
  )
  t.same(messagesTo(provider, 'b').slice(1), [{ role: 'user', content: 'You?' }])
})

t.test('with the transcript it sees the conversation, and needs no question', async t => {
  const { provider, whole } = await startModelTools(t)
  const tool = advisor({ model: 'acme/a', forward_transcript: true })
  const input = [
    { role: 'user', content: 'Find it' },
    { type: 'function_call', call_id: 'c1', name: 'find', arguments: '{"q":1}' },
    { type: 'function_call_output', call_id: 'c1', output: 'found' },
    { role: 'user', content: 'And?' },
  ]
  const outer = [calling('advisor'), saying('So.')]
  await whole({ outer, a: [saying('Go on.')] }, { tools: [tool], input, instructions: 'Be kind' })
  const [head, ...rest] = messagesTo(provider, 'a')
  t.match(head?.content, /Be kind$/, 'the instructions stand behind those of the advisor')
  t.same(
    rest.map(({ role, content }) => `${role}: ${content}`),
    [
      'user: Find it',
      'assistant: [Calls find with {"q":1}]',
      'user: [The call gave: found]',
      'user: And?',
      'user: Give your advice on the conversation above.',
    ],
  )
})

t.test('with stream the advice comes as it is written, in Responses alone', async t => {
  const { ask, events, provider } = await startModelTools(t)
  const tool = advisor({ model: 'acme/a', stream: true })
  const long = `${'word '.repeat(40)}end`
  const replies = { ...WELL, a: [saying(long)] }
  const stream = await events(replies, { tools: [tool] })
  const item = itemOf(finalOf(stream), 'advisor')
  const said = stream.flatMap(event =>
    event.type === 'response.output_text.delta' && event.item_id === item['id'] ? [event.delta] : [],
  )
  t.equal(said.join(''), long)
  t.ok(said.length > 1)
  t.match(
    stream.filter(event => event.type === 'response.output_text.done' && event.item_id === item['id']),
    [{ text: long, content_index: 0 }],
  )
  t.equal(provider.asked[1]?.body['stream'], true)
  const messages = [{ role: 'user', content: 'Why?' }]
  const chat = await ask(replies, { messages, tools: [tool], stream: true }, { path: '/chat/completions' })
  const text = await chat.text()
  t.match(text, /Left/)
  t.notMatch(text, /"content":"word/)
})

t.test('an advisor that fails is told to the model, and the answer goes on', async t => {
  const { provider, whole } = await startModelTools(t)
  const cases: readonly [ScriptedReply, object, object, RegExp][] = [
    [{ status: 500 }, {}, { prompt: 'Q' }, /failure/],
    [{ text: '' }, {}, { prompt: 'Q' }, /gave no answer/],
    [saying('A'), {}, {}, /^prompt: is required/],
    [saying('A'), { model: 'acme/unknown' }, { prompt: 'Q' }, /acme\/unknown/],
  ]
  for (const [reply, parameters, args, error] of cases) {
    const outer = [calling('advisor', args), saying('Alone.')]
    const tools = [advisor({ model: 'acme/a', ...parameters })]
    const response = await whole({ outer, a: [reply] }, { tools })
    t.equal(response.status, 'completed')
    const item = itemOf(response, 'advisor')
    t.match(item, { status: 'failed', error })
    t.notOk('advice' in item)
    t.match(toldTo(provider, 'outer'), { status: 'error', error })
  }
})

t.test('after ten consultations a request has no more', async t => {
  const { provider, whole } = await startModelTools(t)
  const outer = [...Array.from({ length: 11 }, () => ASKS), saying('So.')]
  const response = await whole(
    { outer, a: Array.from({ length: 11 }, () => saying('A')) },
    { tools: [advisor()] },
  )
  t.equal(provider.asked.filter(({ model }) => model === 'a').length, 10)
  t.match(response.output[10], { status: 'failed', error: /10 consultations/ })
})

t.test('it costs what its records cost together, and a spent limit is its failure', async t => {
  const { ask, newKey, records, spent } = await startModelTools(t)
  const key = await newKey(1)
  const response = (await (await ask(WELL, { tools: [advisor()] }, { key })).json()) as ResponseResource
  const own = (await records()).filter(({ keyHash }) => keyHash === hashKey(key))
  t.equal(own.length, 2)
  t.equal(response.usage?.cost, toUsd(own.reduce((sum, { cost }) => sum + cost, 0)))
  t.equal(await spent(key), response.usage?.cost)
  const poor = await newKey(0.002)
  const outer = [{ ...ASKS, tokens: { input: 0, output: 200 } }]
  const reply = await ask({ outer }, { tools: [advisor()], max_output_tokens: 200 }, { key: poor })
  const cut = (await reply.json()) as ResponseResource
  t.match(itemOf(cut, 'advisor'), { status: 'failed', error: /spending limit/ })
  t.match(cut, { status: 'incomplete', incomplete_details: { reason: 'max_output_tokens' } })
})

t.test('a hang-up closes its call', async t => {
  const { ask, provider } = await startModelTools(t)
  const leaving = new AbortController()
  const replies = { outer: [ASKS], a: [{ hangs: true } as const] }
  const reading = ask(replies, { tools: [advisor()], stream: true }, { signal: leaving.signal }).then(reply =>
    reply.text(),
  )
  await provider.until(({ asked }) => asked.length === 2)
  leaving.abort()
  await t.rejects(reading)
  await provider.until(({ left }) => left === 1)
})

t.test('its items go back as input of every dialect', async t => {
  const { ask, provider, whole } = await startModelTools(t)
  const first = await whole(WELL, { tools: [advisor()] })
  const input = [{ role: 'user', content: 'Why?' }, ...first.output, { role: 'user', content: 'On?' }]
  const later = { outer: [saying('Later.')] }
  t.equal((await whole(later, { input })).status, 'completed')
  const messages: unknown[] = [{ role: 'user', content: 'Why?' }]
  const chat = (await (
    await ask(WELL, { messages, tools: [advisor()] }, { path: '/chat/completions' })
  ).json()) as {
    choices: { message: object }[]
  }
  const on = [...messages, chat.choices[0]?.message, { role: 'user', content: 'On?' }]
  t.equal((await ask(later, { messages: on }, { path: '/chat/completions' })).status, 200)
  const said = (await (
    await ask(WELL, { messages, max_tokens: 99, tools: [advisor()] }, { path: '/messages' })
  ).json()) as { content: unknown[] }
  const turn = { role: 'assistant', content: said.content }
  const next = { messages: [...messages, turn, { role: 'user', content: 'On?' }], max_tokens: 99 }
  const again = await ask(later, next, { path: '/messages' })
  t.equal(again.status, 200, await again.text())
  t.equal(provider.asked.at(-1)?.model, 'outer')
})

t.test('an advisor has no tools that ask models: its call has none at all', async t => {
  const { provider, whole } = await startModelTools(t)
  await whole(WELL, { tools: [advisor()] })
  t.notOk(provider.asked.find(({ model }) => model === 'a')?.body['tools'])
  t.equal(provider.asked.at(-1)?.model, OUTER.slice(5))
})
