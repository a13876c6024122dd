/** Routers over real HTTP: answers, refusals, the classifier, conversations, and what they are charged. */
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { loadConfig } from '../../src/process/config/config.ts'
import type { Config } from '../../src/process/config/settings.ts'
import { buildCatalog } from '../../src/process/wiring/catalog.ts'
import { parseEventStream } from '../support/gateway.ts'
import type { ScriptedReply } from '../support/provider.ts'
import { askRouter, type RouterWorld, startRouterWorld } from '../support/router-world.ts'
import { TestClock } from '../support/test-clock.ts'

const KEPT = [{ id: 'kept/model', endpoints: [{ provider: 'sim', upstreamModel: 'echo', zdr: true }] }]
const WITH_METADATA = { 'x-gateway-metadata': 'enabled' }
const PAIR = ['ash/model-0', 'birch/model-1']

const ROUTERS = [
  { slug: 'gateway/auto', strategy: 'auto', router: 'gateway/auto' },
  { slug: 'openrouter/auto-beta', strategy: 'auto', router: 'gateway/auto-beta' },
  { slug: 'gateway/pareto-code:nitro', strategy: 'pareto', router: 'gateway/pareto-code' },
  { slug: 'openrouter/free', strategy: 'free', router: 'gateway/free' },
  { slug: 'nvidia/switchyard', strategy: 'auto', router: 'nvidia/switchyard', models: PAIR },
  { slug: 'typesafe/jev-router', strategy: 'auto', router: 'typesafe/jev-router' },
] as const

async function errorOf(answer: Response) {
  return ((await answer.json()) as { error: { code: number; message: string } }).error
}

async function recordOf({ gateway }: RouterWorld, id: string) {
  await gateway.shipper.ship()
  const answer = await fetch(`${gateway.url}/generation?id=${id}`, {
    headers: { authorization: `Bearer ${gateway.apiKey}` },
  })
  return ((await answer.json()) as { data: Record<string, unknown> }).data
}

t.test('each router answers, streamed and whole, and the record names it', async t => {
  const world = await startRouterWorld(t, { draw: () => 0 })
  for (const { slug, strategy, router, ...more } of ROUTERS) {
    const whole = await askRouter(world, { model: slug, ...more })
    t.equal(whole.status, 200, slug)
    t.match(whole.body.gateway_metadata, { requested: slug, strategy })
    t.equal(
      world.models.filter(({ id }) => id === whole.body.model).length,
      1,
      'it is a model of the catalogue',
    )
    t.match(await recordOf(world, whole.body.id), { router, model: whole.body.model })

    const streamed = await world.gateway.respond(
      { model: slug, input: 'Hi', stream: true, ...more },
      { headers: WITH_METADATA },
    )
    const last = parseEventStream(await streamed.text()).at(-1)
    t.match(last, { type: 'response.completed', response: { model: whole.body.model, status: 'completed' } })
  }
})

t.test('routers work in every dialect, and among fallbacks', async t => {
  const world = await startRouterWorld(t)
  const { gateway } = world
  const send = async (path: string, body: object) => {
    const answer = await fetch(`${gateway.url}${path}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${gateway.apiKey}`, 'content-type': 'application/json' },
      body: JSON.stringify({ messages: [{ role: 'user', content: 'Hi' }], ...body }),
    })
    return { status: answer.status, body: (await answer.json()) as { model?: string } }
  }
  const chat = await send('/chat/completions', { model: 'openrouter/auto' })
  t.equal(chat.status, 200)
  const messages = await send('/messages', { model: 'gateway/auto', max_tokens: 50 })
  t.equal(messages.status, 200)
  t.equal(messages.body.model, chat.body.model)

  const behind = await askRouter(world, { model: 'ash/model-0', models: ['gateway/auto', 'oak/model-59'] })
  t.equal(behind.body.model, 'ash/model-0')
  const listed = behind.body.gateway_metadata?.endpoints.available.map(({ model }) => model) ?? []
  t.same([...new Set(listed)].slice(0, 3), ['ash/model-0', behind.data['resolved_to'], behind.named[1]])
  t.ok(listed.includes('oak/model-59'))
})

t.test(
  'settings of a router that is not named have no effect, and enabled: false leaves the defaults',
  async t => {
    const world = await startRouterWorld(t)
    const plain = await askRouter(world, {
      model: 'ash/model-0',
      plugins: [
        { id: 'auto-router', allowed_models: ['nobody/*'] },
        { id: 'jev-router', excluded_models: ['*'] },
      ],
    })
    t.equal(plain.body.model, 'ash/model-0')
    t.equal(plain.body.gateway_metadata?.pipeline, undefined)
    const asked = {
      model: 'gateway/auto',
      plugins: [{ id: 'auto-beta-router', allowed_models: ['nobody/*'] }],
    }
    t.equal((await askRouter(world, asked)).status, 200, 'each slug reads its own plugin')
    const off = [{ id: 'auto-router', enabled: false, allowed_models: ['nobody/*'] }]
    t.equal((await askRouter(world, { model: 'gateway/auto', plugins: off })).status, 200)
  },
)

t.test('nothing left is 404, in the documented words', async t => {
  const world = await startRouterWorld(t)
  const only = { provider: { only: ['openai'] } }
  for (const body of [
    ...ROUTERS.map(({ slug }) => ({ model: slug, ...only })),
    { model: 'gateway/bodybuilder', ...only },
    { model: 'gateway/auto', plugins: [{ id: 'auto-router', allowed_models: ['nobody/*'] }] },
    { model: 'gateway/auto', plugins: [{ id: 'auto-router', excluded_models: ['*'] }] },
    { model: 'typesafe/jev-router', plugins: [{ id: 'jev-router', excluded_models: ['*'] }] },
    { model: 'gateway/free', tools: [], provider: { max_price: { prompt: 0 }, only: ['openai'] } },
  ]) {
    const { status, body: told } = await askRouter(world, body)
    t.equal(status, 404, JSON.stringify(body))
    t.equal(told.error?.message, 'No models match your request and model restrictions')
    t.match(told.gateway_metadata, { attempt: 0 })
  }
  const ignored = await askRouter(world, {
    model: 'typesafe/jev-router',
    plugins: [{ id: 'jev-router', models: ['nobody/*'] }],
  })
  t.match(ignored.data, { list_fallback: 'models_ignored' })
})

t.test('settings and combinations that cannot be are 400 and name the field', async t => {
  const world = await startRouterWorld(t)
  const switchyard = (...models: string[]) => ({ model: 'nvidia/switchyard', models })
  const jev = { model: 'typesafe/jev-router' }
  for (const [body, says] of [
    [
      { model: 'gateway/auto', plugins: [{ id: 'auto-router', cost_tier: 'huge' }] },
      /^plugins\[0\]\.cost_tier/,
    ],
    [{ model: 'gateway/auto', plugins: [{ id: 'auto-router', cost_quality_tradeoff: 11 }] }, /tradeoff/],
    [{ model: 'gateway/pareto-code', plugins: [{ id: 'pareto-router', max_price: -1 }] }, /max_price/],
    [{ ...jev, plugins: [{ id: 'jev-router', cost_tier: 'max' }] }, /cost_tier/],
    [{ ...jev, plugins: [{ id: 'jev-router', speed: 'fast' }] }, /plugins\[0\]/],
    [{ ...jev, reasoning: { max_tokens: 100 } }, /^reasoning\.max_tokens: /],
    [{ ...jev, reasoning: { mode: 'pro' } }, /^reasoning\.mode: /],
    [{ ...jev, models: ['gateway/auto'] }, /^models\[0\]: a request can name only one router/],
    [
      { model: 'gateway/auto', models: ['openrouter/free'] },
      /^models\[0\]: a request can name only one router/,
    ],
    [{ model: 'ash/model-0', models: ['nvidia/switchyard'] }, /^models\[0\]: .*cannot be a fallback/],
    [switchyard('ash/model-0', 'nobody/none'), /^models\[1\]: is not a text model/],
    [switchyard('ash/model-0', 'ash/model-0', 'nobody/none'), /^models\[2\]: is not a text model/],
    [switchyard('ash/model-0:free'), /^models\[0\]: .*not aliases/],
    [
      switchyard('ash/model-0', 'birch/model-1', 'cedar/model-2', 'elm/model-3'),
      /^models: must have at most 3/,
    ],
    [{ ...switchyard(...PAIR), provider: { only: ['openai'] } }, /^models\[0\]: no endpoint/],
    [{ ...switchyard(...PAIR), plugins: [{ id: 'switchyard-router', algorithm: 'magic' }] }, /algorithm/],
  ] as const) {
    const answer = await world.gateway.respond({ input: 'Hi', ...body })
    t.equal(answer.status, 400, JSON.stringify(body))
    t.match((await errorOf(answer)).message, says)
  }
  const batch = await fetch(`${world.gateway.url}/batches`, {
    method: 'POST',
    headers: { authorization: `Bearer ${world.gateway.apiKey}`, 'content-type': 'application/json' },
    body: JSON.stringify({
      endpoint: '/v1/responses',
      model: 'gateway/auto',
      requests: [{ custom_id: 'a', body: { input: 'Hi' } }],
    }),
  })
  t.equal(batch.status, 400)
  t.match((await errorOf(batch)).message, /gateway\/auto/)
})

t.test('a regional host leaves models of the region, and refuses two routers', async t => {
  const world = await startRouterWorld(t, {
    classifier: true,
    regions: { europe: ['127.0.0.1'], us: [] },
    models: [{ id: 'euro/model', endpoints: [{ provider: 'sim', upstreamModel: 'echo', region: 'europe' }] }],
  })
  t.equal((await askRouter(world, { model: 'gateway/auto' })).body.model, 'euro/model')
  t.equal(world.helper.asked.length, 0, 'the words stay in the region')
  for (const model of ['nvidia/switchyard', 'typesafe/jev-router']) {
    const { status, body } = await askRouter(world, { model })
    t.equal(status, 400)
    t.match(body.error?.message, /^model: .* only on the global host/)
  }
})

async function classified(t: Test, world: RouterWorld, replies: readonly ScriptedReply[], by: string) {
  world.helper.script('small', replies)
  const { status, data } = await askRouter(world, { model: 'gateway/auto', input: 'What is 3 + 4?' })
  t.equal(status, 200)
  t.equal(data['classifier'], by)
  return data['task_type']
}

t.test('the configured classifier decides; without a proper answer the weights do', async t => {
  const world = await startRouterWorld(t, { classifier: true })
  t.equal(await classified(t, world, [{ text: '{"task_type": "legal"}' }], 'model'), 'legal')
  t.equal(await classified(t, world, [{ text: '```json\n{"task_type": "email"}\n```' }], 'model'), 'email')
  const own = await classified(t, world, [{ status: 500 }], 'weights')
  for (const reply of [
    { text: 'It is legal.' },
    { text: '{"task_type": "cooking"}' },
    { text: '{"task_type": "legal", "also": "email"}' },
    { text: '[{"task_type": "legal"}]' },
    { breaks: true, text: '{"task_type"' },
  ] as const) {
    t.equal(await classified(t, world, [reply], 'weights'), own)
  }
  const [first] = world.helper.asked
  t.match(JSON.stringify(first?.body), 'What is 3 + 4?')
})

t.test('a classifier that does not answer in time is not waited for', async t => {
  const clock = new TestClock()
  const world = await startRouterWorld(t, { classifier: true, clock })
  world.helper.script('small', [{ hangs: true }])
  const asking = askRouter(world, { model: 'gateway/auto' })
  await world.helper.until(({ asked }) => asked.length === 1)
  clock.advance(1_500)
  const { status, data } = await asking
  t.equal(status, 200)
  t.equal(data['classifier'], 'weights')
})

t.test('words that must not be kept go to no classifier, and a caller without money asks none', async t => {
  const world = await startRouterWorld(t, { classifier: true, models: KEPT })
  const kept = { model: 'gateway/auto', provider: { zdr: true, ignore: ['helper'] } }
  t.equal((await askRouter(world, kept)).status, 200)
  const made = await fetch(`${world.gateway.url}/keys`, {
    method: 'POST',
    headers: { authorization: `Bearer ${world.gateway.managementKey}`, 'content-type': 'application/json' },
    body: JSON.stringify({ name: 'poor', limit: 0 }),
  })
  const { key } = (await made.json()) as { key: string }
  for (const body of [
    // Models that cost nothing are for everybody.
    { model: 'gateway/auto', plugins: [{ id: 'auto-router', cost_tier: 'max' }] },
    { model: 'typesafe/jev-router', plugins: [{ id: 'jev-router', cost_tier: 'high' }] },
    { model: 'nvidia/switchyard', models: PAIR },
  ]) {
    const { status } = await askRouter(world, body, { authorization: `Bearer ${key}` })
    t.equal(status, 402, body.model)
  }
  t.equal(world.helper.asked.length, 0)
})

t.test('a session keeps its model while that is among the first choices', async t => {
  let drawn = 0.9
  const world = await startRouterWorld(t, { draw: () => drawn })
  const ask = (more: object, session = 's1') =>
    askRouter(world, { model: 'gateway/auto', session_id: session, ...more })
  const auto = (settings: object) => ({ plugins: [{ id: 'auto-router', ...settings }] })
  const natural = await ask({}, 'other')
  const first = await ask(auto({ excluded_models: [String(natural.body.model)] }))
  t.not(first.body.model, natural.body.model)
  const second = await ask({})
  t.equal(second.body.model, first.body.model)
  t.match(second.data, { stays: true })
  const third = await ask(auto({ excluded_models: [String(first.body.model)] }))
  t.equal(third.body.model, natural.body.model, 'what is excluded does not stay')
  const dear = await ask(auto({ cost_tier: 'max' }))
  t.not(dear.body.model, natural.body.model, 'what is outside of the band does not stay')

  const free = (session: string) => askRouter(world, { model: 'gateway/free', session_id: session })
  const drawnFirst = await free('f1')
  drawn = 0
  t.equal((await free('f1')).body.model, drawnFirst.body.model)
  t.not((await free('f2')).body.model, drawnFirst.body.model)
  const turn = (model?: string) => [
    { role: 'user', content: 'Hello' },
    { role: 'assistant', content: 'Hi', ...(model === undefined ? {} : { model }) },
    { role: 'user', content: 'And now?' },
  ]
  const opening = await askRouter(world, {
    model: 'gateway/free',
    input: [{ role: 'user', content: 'Hello' }],
  })
  drawn = 0.9
  const reply = await askRouter(world, { model: 'gateway/free', input: turn() })
  t.equal(reply.body.model, opening.body.model, 'a conversation is known by its beginning')
})

t.test('pin_model keeps the model of the latest answer, if it may serve', async t => {
  const world = await startRouterWorld(t)
  const input = [
    { role: 'user', content: 'Hello' },
    { role: 'assistant', content: 'Hi', model: 'oak/model-59' },
    { role: 'user', content: 'And now?' },
  ]
  const ask = (settings: object, id = 'auto-router') =>
    askRouter(world, { model: 'gateway/auto', input, plugins: [{ id, ...settings }] })
  const pinned = await ask({ pin_model: true })
  t.equal(pinned.body.model, 'oak/model-59')
  t.match(pinned.data, { pinned: true })
  t.not((await ask({})).body.model, 'oak/model-59')
  t.not((await ask({ pin_model: true, excluded_models: ['oak/*'] })).body.model, 'oak/model-59')
})

const verdict = (boundary: string, chance: number): ScriptedReply => ({
  text: JSON.stringify({ crux: 'c', primary_rule: 'r', capability_boundary: boundary, p_solve: chance }),
})

t.test('the judge of switchyard decides, and its caller pays', async t => {
  const world = await startRouterWorld(t, { classifier: true })
  const prices = new Map(
    world.models.map(({ id, prompt, completion }) => [id, (prompt ?? 0) + (completion ?? 0)]),
  )
  const [cheap, dear] = PAIR.toSorted((a, b) => (prices.get(a) ?? 0) - (prices.get(b) ?? 0))
  const ask = async (replies: ScriptedReply[], more: object = {}, algorithm = 'capability') => {
    world.helper.script('small', replies)
    const plugins = [{ id: 'switchyard-router', algorithm }]
    return askRouter(world, { model: 'nvidia/switchyard', models: PAIR, plugins, ...more })
  }
  for (const [boundary, least] of [
    ['supported', 0.6],
    ['uncertain', 0.75],
    ['unsupported', 0.9],
    ['unmatched', 0.75],
  ] as const) {
    t.equal((await ask([verdict(boundary, least)])).body.model, cheap, boundary)
    t.equal((await ask([verdict(boundary, least - 0.01)])).body.model, dear, boundary)
  }
  const judged = await ask([verdict('supported', 1)])
  t.ok(Number(judged.body.usage?.cost) >= 0.012, 'the tokens of the judge are in the bill')
  t.match(judged.data, { strategy: 'capability', judge_ms: Number, route_ms: Number })
  for (const [reply, failure] of [
    [{ text: 'cheap' }, 'malformed_answer'],
    [verdict('maybe', 1), 'malformed_answer'],
    [verdict('supported', 2), 'malformed_answer'],
    [{ status: 500 }, 'unavailable'],
  ] as const) {
    const failed = await ask([reply])
    t.equal(failed.body.model, dear)
    t.match(failed.data, { judge_failure: failure })
  }

  const before = world.helper.asked.length
  const human = { role: 'user', content: 'Repair it' }
  const tools = (output: string) => ({
    input: [
      human,
      { type: 'function_call', call_id: 'c1', name: 'run', arguments: '{}' },
      { type: 'function_call_output', call_id: 'c1', output },
    ],
  })
  await ask([verdict('supported', 1)], { input: [human] })
  const pinned = await ask([], tools('ok'))
  t.equal(pinned.body.model, cheap)
  t.match(pinned.data, { strategy: 'session_pin' })
  t.equal(world.helper.asked.length, before + 1, 'turns of tools have no judge')
  const stuck = 'error: exit code 1\nfatal: not found'
  const failing = {
    input: [
      ...tools(stuck).input,
      ...tools(stuck)
        .input.slice(1)
        .map(item => ({ ...item, call_id: 'c2' })),
    ],
  }
  const deviating = await ask([], failing, 'composite')
  t.equal(deviating.body.model, dear, 'failures ask for the capable model')
  const passing = await ask([], tools('12 passed'), 'stage')
  t.equal(passing.body.model, cheap)
  t.equal(world.helper.asked.length, before + 1)
})

t.test('the body builder writes requests, at no cost, and nothing else', async t => {
  const world = await startRouterWorld(t, { classifier: true })
  const text = '{"requests": [{"model": "ash/model-0", "messages": [{"role": "user", "content": "Hi"}]}]}'
  const wish = { model: 'openrouter/bodybuilder', input: 'Ask ash/model-0 to say hi', tools: [] }
  world.helper.script('small', [{ text }])
  const whole = await askRouter(world, wish)
  t.equal(whole.status, 200)
  t.match(whole.body, {
    model: 'helper/small',
    usage: { cost: 0 },
    gateway_metadata: { strategy: 'bodybuilder' },
  })
  t.match(whole.body.output, [{ content: [{ text }] }])
  t.match(await recordOf(world, whole.body.id), { router: 'gateway/bodybuilder', total_cost: 0 })

  world.helper.script('small', [{ text: 'Sure! Here it is' }, { text }])
  const streamed = await world.gateway.respond({ ...wish, stream: true })
  const events = await streamed.text()
  t.match(parseEventStream(events).at(-1), {
    response: { status: 'completed', output: [{ content: [{ text }] }] },
  })
  t.notMatch(events, 'Sure!')

  world.helper.script('small', [{ text: 'Hello' }, { text: '{"requests": []}' }])
  const refused = await askRouter(world, wish)
  t.equal(refused.status, 502)
  t.notMatch(JSON.stringify(refused.body), 'Hello')
})

t.test(
  'a classifier or a file of rankings that cannot be used is a mistake of the configuration',
  async t => {
    const defaults = loadConfig([], {})
    const build = (routers: Config['routers']) => () =>
      buildCatalog(
        { ...defaults, catalogue: { ...defaults.catalogue, discover: false }, routers },
        'http://sim.test',
      )
    t.throws(build({ classifier: { model: 'nobody/none' }, rankings: null }), {
      message: /^routers\.classifier\.model: there is no such model/,
    })
    t.throws(build({ classifier: null, rankings: '/nowhere/rankings.json' }), {
      message: 'routers.rankings: /nowhere/rankings.json cannot be read (ENOENT)',
    })
    const folder = t.testdir({ 'rankings.json': '{"tasks": {"math": {"models": {"a/b": 7}}}}' })
    t.throws(build({ classifier: null, rankings: join(folder, 'rankings.json') }), {
      message: /^routers\.rankings: .*tasks\.math\.models\.a\/b: expected a number from 0 to 1/,
    })
    t.doesNotThrow(build({ classifier: { model: 'sim/echo' }, rankings: null }))
  },
)
