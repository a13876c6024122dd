/** The response cache: equal requests get one answer, within their workspace, as long as nothing has changed. */
import t, { type Test } from 'tap'
import { loadConfig } from '../../src/process/config/config.ts'
import type { Config } from '../../src/process/config/settings.ts'
import { createTranscripts } from '../../src/process/threads/transcripts.ts'
import { configuredParts, packParts } from '../../src/process/wiring/catalog.ts'
import { startGateway, type TestGatewayOptions } from '../support/gateway.ts'
import { addKey, addOrganization, caller } from '../support/management.ts'
import { until } from '../support/patience.ts'
import { startToldProvider } from '../support/provider.ts'
import { idOf, type Piece, readPiece } from '../support/resumable.ts'
import { TestClock } from '../support/test-clock.ts'

const MODEL = 'told/model'
const USAGE = { prompt_tokens: 10, completion_tokens: 4 }
const CACHED = 'x-gateway-cached'
const WISH = 'x-gateway-cache'

interface Terms extends TestGatewayOptions {
  readonly kept?: Partial<Config['resume']>
}

async function start(t: Test, { kept = {}, ...options }: Terms = {}) {
  const provider = await startToldProvider(t)
  const clock = new TestClock()
  const config = loadConfig([], {})
  const store = createTranscripts({ ...config, resume: { ...config.resume, ...kept } }, clock)
  const pricing = { prompt: '0.000001', completion: '0.000001' }
  const model = (id: string, more: object = {}) => ({
    id,
    maxOutputTokens: 1000,
    endpoints: [{ provider: 'told', pricing, ...more }],
  })
  const gateway = await startGateway({
    clock,
    transcripts: store,
    timeouts: { upstreamIdleMs: 3_600_000, requestMs: 3_600_000, heartbeatMs: 15_000 },
    providers: [{ slug: 'told', format: 'openai-chat', baseUrl: provider.baseUrl }] as never,
    models: [model(MODEL), model('told/other'), model('told/private', { zdr: true })] as never,
    ...options,
  })
  t.teardown(() => gateway.close())
  const { port, apiKey, serving, shipper } = gateway
  const manage = caller(gateway.url, gateway.managementKey)
  type More = Partial<Parameters<typeof readPiece>[1]> & {
    readonly fields?: object
    readonly path?: string
    readonly wish?: string
  }
  const ask = ({ fields, headers, path = '/responses', wish = 'seconds=60', ...rest }: More = {}) =>
    readPiece(path, {
      port,
      apiKey,
      headers: { ...(wish === '' ? {} : { [WISH]: wish }), ...headers },
      body: { model: MODEL, input: 'Hi', ...fields },
      ...rest,
    })
  return {
    ...gateway,
    provider,
    clock,
    store,
    ask,
    manage,
    /** So many requests have come: one runs, the others read its answer. */
    waiting: (requests: number) =>
      until(`${requests} requests at one answer`, () => {
        const readers = [...store.all()].reduce((sum, each) => sum + each.readers.size, 0)
        return serving.server.openRequests === requests && readers === requests - 1
      }),
    /** Answers every call with its number. */
    answerAll: (usage: typeof USAGE = USAGE) => {
      let runs = 0
      provider.onReply = reply => {
        const text = `answer ${++runs}`
        if (reply.body['stream'] !== true) reply.whole(text, usage)
        else {
          for (const piece of text.split(/(?<= )/)) reply.say({ content: piece })
          reply.finish(usage)
        }
      }
    },
    async generations() {
      await shipper.ship()
      return (await manage('GET', '/generations?limit=100')).list as Record<string, unknown>[]
    },
    async counted() {
      const { values } = await serving.metrics.responseCache.get()
      return Object.fromEntries(
        values.filter(({ value }) => value > 0).map(({ labels, value }) => [String(labels.outcome), value]),
      )
    },
  }
}

interface Document {
  readonly id: string
  readonly output: { readonly id: string; readonly content: { readonly text: string }[] }[]
  readonly usage: { readonly cost: number; readonly input_tokens: number; readonly output_tokens: number }
  readonly gateway_metadata?: Record<string, unknown>
}

const documentOf = ({ body }: Piece) => JSON.parse(body) as Document
const textOf = (piece: Piece) => documentOf(piece).output[0]?.content[0]?.text
const eventsOf = ({ frames }: Piece) =>
  frames.map(frame => JSON.parse(frame.slice(frame.indexOf('data: ') + 6)) as Record<string, unknown>)
/** Events without what belongs to one answer. */
const comparable = (piece: Piece) =>
  JSON.stringify(eventsOf(piece), (name, value) =>
    [...['id', 'item_id', 'created_at', 'completed_at', 'cost', 'cost_details', 'gateway_metadata']].includes(
      name,
    )
      ? undefined
      : value,
  )

t.test('an equal request gets the kept answer, with an id of its own, for nothing', async t => {
  const s = await start(t)
  s.answerAll()
  const first = await s.ask()
  t.equal(first.status, 200)
  t.equal(first.headers[CACHED], undefined)
  s.clock.advance(7_300)
  const again = await s.ask({ headers: { 'x-gateway-metadata': 'enabled' }, fields: { user: 'ann' } })
  t.equal(again.headers[CACHED], '7')
  t.equal(textOf(again), 'answer 1')
  const [one, two] = [documentOf(first), documentOf(again)]
  t.not(two.id, one.id)
  t.not(two.output[0]?.id, one.output[0]?.id)
  t.match(two.usage, { input_tokens: 10, output_tokens: 4, cost: 0 })
  t.ok(one.usage.cost > 0)
  const { cached_at: cachedAt, endpoints } = two.gateway_metadata ?? {}
  t.equal(cachedAt, Math.floor((s.clock.nowMs() - 7_300) / 1000))
  t.match(endpoints, { available: [{ model: MODEL, selected: true }] })
  t.equal(s.provider.replies.length, 1)
  const [hit, run] = await s.generations()
  t.match(hit, { accounting: 'cached', total_cost: 0, model: MODEL, tokens_prompt: 10, tokens_completion: 4 })
  t.match(hit, { response_cache_source_id: one.id, provider_responses: [] })
  t.match(run, { accounting: 'exact', response_cache_source_id: null })
  t.same(await s.counted(), { miss: 1, hit: 1 })
})

t.test('without a wish or a policy nothing is kept, and off turns it off', async t => {
  const s = await start(t, { cache: { enabled: true, scope: 'workspace' } })
  s.answerAll()
  t.equal(textOf(await s.ask({ wish: '' })), 'answer 1')
  t.equal(textOf(await s.ask({ wish: '' })), 'answer 1', 'by the configuration')
  t.equal(textOf(await s.ask({ wish: 'off' })), 'answer 2')
  const plain = await start(t)
  plain.answerAll()
  t.equal(textOf(await plain.ask({ wish: '' })), 'answer 1')
  t.equal(textOf(await plain.ask({ wish: '' })), 'answer 2')
  t.same(await plain.counted(), {})
})

for (const [path, body] of [
  ['/responses', { input: 'Hi' }],
  ['/chat/completions', { messages: [{ role: 'user', content: 'Hi' }], input: undefined }],
  ['/messages', { messages: [{ role: 'user', content: 'Hi' }], max_tokens: 100, input: undefined }],
] as const) {
  t.test(`either form of ${path} is made from one kept answer`, async t => {
    const s = await start(t)
    s.answerAll()
    const said = (piece: Piece) => /answer \d/.exec(piece.body.replaceAll(/[^a-z0-9 ]+/g, ' '))?.[0]
    for (const stream of [true, false]) {
      const fields = { ...body, temperature: stream ? 0 : 1 }
      const first = await s.ask({ path, fields: { ...fields, stream } })
      const same = await s.ask({ path, fields: { ...fields, stream } })
      t.equal(same.headers[CACHED], '0', same.body)
      if (stream && path === '/responses') t.equal(comparable(same), comparable(first))
      const other = await s.ask({ path, fields: { ...fields, stream: !stream } })
      t.equal(other.headers[CACHED], '0')
      t.equal(other.status, 200)
      if (path === '/responses') {
        const [streamed, whole] = stream ? [first, other] : [other, first]
        const last = eventsOf(streamed).at(-1)?.['response'] as Document
        t.same(last.output[0]?.content, documentOf(whole).output[0]?.content)
        const types = eventsOf(streamed).map(({ type }) => type)
        t.match(types, ['response.created', 'response.in_progress', 'response.output_item.added'])
        t.same(
          eventsOf(streamed).map(event => event['sequence_number']),
          types.map((_, at) => at),
        )
      } else t.equal(said(other), `answer ${stream ? 1 : 2}`)
    }
    t.equal(s.provider.replies.length, 2)
  })
}

t.test('a call of a function is given with its own id, and all of its arguments', async t => {
  const s = await start(t)
  const tools = [{ type: 'function', name: 'look', parameters: { type: 'object' } }]
  const call = (args: string, name?: string): Record<string, unknown> => ({
    tool_calls: [
      { index: 0, ...(name ? { id: 'call_1', type: 'function' } : {}), function: { name, arguments: args } },
    ],
  })
  s.provider.onReply = reply => {
    reply.say(call('{"a', 'look'))
    reply.say(call('":1}'))
    reply.finish(USAGE, 'tool_calls')
  }
  const first = await s.ask({ fields: { tools, stream: true } })
  const again = await s.ask({ fields: { tools, stream: true } })
  t.equal(comparable(again), comparable(first))
  const whole = await s.ask({ fields: { tools } })
  t.match(JSON.parse(whole.body).output, [{ type: 'function_call', call_id: 'call_1', arguments: '{"a":1}' }])
  t.equal(s.provider.replies.length, 1)
})

t.test('an answer is too old after its seconds, and refresh replaces it', async t => {
  const s = await start(t)
  s.answerAll()
  await s.ask()
  s.clock.advance(30_000)
  t.equal(textOf(await s.ask()), 'answer 1')
  t.equal(textOf(await s.ask({ wish: 'seconds=20' })), 'answer 2', 'the kept one is 30 s old')
  t.equal(textOf(await s.ask()), 'answer 2')
  const fresh = await s.ask({ wish: 'refresh, seconds=60' })
  t.equal(fresh.headers[CACHED], undefined)
  t.equal(textOf(fresh), 'answer 3')
  t.equal(textOf(await s.ask()), 'answer 3')
  s.clock.advance(60_001)
  t.equal(textOf(await s.ask()), 'answer 4')
  for (const wish of [
    'on',
    'seconds=0',
    'seconds=86401',
    'seconds=1,seconds=2',
    'off, refresh',
    'seconds=x',
  ]) {
    const refused = await s.ask({ wish })
    t.equal(refused.status, 400, wish)
    t.match(JSON.parse(refused.body).error, { param: 'X-Gateway-Cache', message: /must be off, refresh/ })
  }
})

t.test('100 requests at once are one run, streamed and whole', async t => {
  const s = await start(t)
  const asked = Array.from({ length: 100 }, (_, at) => s.ask({ fields: { stream: at % 2 === 0 } }))
  const reply = await s.provider.reply(0)
  await s.waiting(100)
  const isStream = reply.body['stream'] === true
  if (isStream) {
    reply.say({ content: 'one ' })
    reply.say({ content: 'run' })
    reply.finish(USAGE)
  } else reply.whole('one run', USAGE)
  const pieces = await Promise.all(asked)
  t.equal(s.provider.replies.length, 1)
  for (const piece of pieces) t.match(piece.body, /one run/)
  t.equal(new Set(pieces.map(idOf)).size, 100)
  const { miss, shared = 0, hit = 0 } = (await s.counted()) as Record<string, number>
  t.equal(miss, 1)
  t.equal(shared + hit, 99)
  const records = await s.generations()
  t.equal(records.filter(({ accounting }) => accounting === 'exact').length, 1)
})

t.test('those who wait for a run whose provider fails get its failure, and nothing is kept', async t => {
  const s = await start(t)
  const asked = Array.from({ length: 20 }, (_, at) => s.ask({ fields: { stream: at % 2 === 0 } }))
  const reply = await s.provider.reply(0)
  await s.waiting(20)
  reply.answer({ status: 400, json: { error: { message: 'The prompt is odd' } } })
  const pieces = await Promise.all(asked)
  for (const piece of pieces) t.match({ ...piece }, { status: 400, body: /The prompt is odd/ })
  t.equal(s.provider.replies.length, 1)
  s.answerAll()
  t.equal(textOf(await s.ask()), 'answer 1')
})

t.test('a stream that breaks breaks for its followers too, and is not kept', async t => {
  const s = await start(t)
  const asked = Array.from({ length: 3 }, () => s.ask({ fields: { stream: true } }))
  const reply = await s.provider.reply(0)
  await s.waiting(3)
  reply.say({ content: 'half ' })
  await until('a part of the stream', () => s.store.bytes > 1500)
  await new Promise(resolve => setImmediate(resolve))
  reply.break()
  for (const piece of await Promise.all(asked)) t.match(piece.body, /response\.failed/)
  s.answerAll()
  t.equal(textOf(await s.ask()), 'answer 1')
})

t.test('a client that leaves does not end the run of others', async t => {
  const s = await start(t)
  const first = s.ask({ fields: { stream: true }, leaveAt: 'one' })
  const reply = await s.provider.reply(0)
  const second = s.ask({ fields: { stream: true } })
  await s.waiting(2)
  reply.say({ content: 'one ' })
  await first
  reply.say({ content: 'two' })
  reply.finish(USAGE)
  t.match((await second).body, /response\.completed/)
  t.equal(textOf(await s.ask()), 'one two')
  t.equal(s.provider.replies.length, 1)
})

t.test('answers that were cut are given to those who wait, and not kept', async t => {
  const s = await start(t)
  const asked = [s.ask({ fields: { stream: true } }), s.ask({ fields: { stream: true } })]
  const reply = await s.provider.reply(0)
  await s.waiting(2)
  reply.say({ content: 'too long' })
  reply.finish(USAGE, 'length')
  for (const piece of await Promise.all(asked)) t.match(piece.body, /response\.incomplete/)
  s.answerAll()
  t.equal(textOf(await s.ask()), 'answer 1')
})

t.test('no answer crosses a key, a workspace, an organization, a model or a field that counts', async t => {
  const s = await start(t)
  s.answerAll()
  await s.ask()
  const other = await addKey(s.storageUrl)
  const organization = await addOrganization(s.storageUrl, 'org_other')
  let runs = 1
  for (const more of [
    { apiKey: other },
    { apiKey: organization.apiKey },
    { fields: { model: 'told/other' } },
    { fields: { input: 'Ho' } },
    { fields: { instructions: 'Be brief' } },
    { fields: { temperature: 0.5 } },
    { fields: { max_output_tokens: 9 } },
    { fields: { tools: [{ type: 'function', name: 'look', parameters: { type: 'object' } }] } },
    { path: '/chat/completions', fields: { messages: [{ role: 'user', content: 'Hi' }], input: undefined } },
  ]) {
    const piece = await s.ask(more)
    t.equal(piece.headers[CACHED], undefined, JSON.stringify(more))
    t.equal(s.provider.replies.length, ++runs)
  }
  for (const fields of [{ user: 'ann' }, { metadata: { a: 'b' } }, { session_id: 's1' }])
    t.equal(textOf(await s.ask({ fields })), 'answer 1')
  t.equal(textOf(await s.ask({ headers: { 'user-agent': 'another/1', 'x-request-id': 'r' } })), 'answer 1')
})

t.test('keys of a workspace share answers only if its policy says so, and only inside of it', async t => {
  const s = await start(t)
  s.answerAll()
  const made = await s.manage('POST', '/workspaces', {
    name: 'Evals',
    slug: 'evals',
    cache: { enabled: true, seconds: 120, scope: 'workspace' },
  })
  t.match(made.data, { cache: { enabled: true, seconds: 120, scope: 'workspace' } })
  const workspaceId = String(made.data['id'])
  const [one, two, own] = await Promise.all([
    addKey(s.storageUrl, { workspaceId }),
    addKey(s.storageUrl, { workspaceId }),
    addKey(s.storageUrl, { workspaceId, cache: { enabled: true, seconds: 300, scope: 'key' } }),
  ])
  t.equal(textOf(await s.ask({ apiKey: one, wish: '' })), 'answer 1')
  t.equal(textOf(await s.ask({ apiKey: two, wish: '' })), 'answer 1')
  t.equal(textOf(await s.ask({ apiKey: two, wish: 'seconds=30' })), 'answer 1', 'its scope stays')
  t.equal(textOf(await s.ask({ apiKey: own, wish: '' })), 'answer 2', 'a key of the scope key')
  t.equal(textOf(await s.ask()), 'answer 3', 'another workspace, which never widens a scope')
  s.clock.advance(1000)
  t.equal((await s.manage('PATCH', '/workspaces/evals', { description: 'emptied' })).status, 200)
  t.equal(textOf(await s.ask({ apiKey: one, wish: '' })), 'answer 4', 'a changed workspace begins anew')
  const bad = await s.manage('PATCH', '/workspaces/evals', { cache: { enabled: true, seconds: 86_401 } })
  t.equal(bad.status, 400)
  t.match(bad.message, /cache\.seconds/)
})

t.test('a guardrail that was added or changed, and a revoked key, hold on a hit', async t => {
  const s = await start(t)
  s.answerAll()
  await s.ask()
  const guardrail = await s.manage('POST', '/guardrails', {
    name: 'g',
    content_filters: [{ pattern: 'xyzzy', action: 'flag' }],
  })
  t.equal(guardrail.status, 201, guardrail.text)
  const id = String(guardrail.data['id'])
  const hash = String(
    (await s.manage('GET', '/keys')).list.find(each => each['is_management_key'] === false)?.['hash'],
  )
  t.equal((await s.manage('POST', `/guardrails/${id}/assignments/keys`, { key_hashes: [hash] })).status, 200)
  t.equal(textOf(await s.ask()), 'answer 2')
  t.equal(textOf(await s.ask()), 'answer 2')
  const patched = await s.manage('PATCH', `/guardrails/${id}`, {
    content_filters: [{ pattern: 'xyzzy2', action: 'flag' }],
  })
  t.equal(patched.status, 200)
  t.equal(textOf(await s.ask()), 'answer 3')
  t.equal((await s.manage('PATCH', `/guardrails/${id}`, { allowed_models: ['told/other'] })).status, 200)
  t.equal((await s.ask()).status, 403)
  t.equal((await s.manage('DELETE', `/guardrails/${id}`)).status, 200)
  t.equal((await s.manage('PATCH', `/keys/${hash}`, { disabled: true })).status, 200)
  t.equal((await s.ask()).status, 401)
})

t.test('a model with another price or address begins anew', async t => {
  const s = await start(t)
  s.answerAll()
  const reload = (prompt: string, upstreamModel: string) => {
    const endpoint = { provider: 'told', pricing: { prompt, completion: '0.000001' }, upstreamModel }
    const config = {
      ...loadConfig([], {}),
      providers: [{ slug: 'told', format: 'openai-chat', baseUrl: s.provider.baseUrl }],
      models: [{ id: MODEL, maxOutputTokens: 1000, endpoints: [endpoint] }],
    } as unknown as Config
    s.serving.catalogue(packParts(configuredParts(config, { simUrl: null })))
  }
  reload('0.000001', 'one')
  t.same([textOf(await s.ask()), textOf(await s.ask())], ['answer 1', 'answer 1'])
  reload('0.000002', 'one')
  t.same([textOf(await s.ask()), textOf(await s.ask())], ['answer 2', 'answer 2'])
  reload('0.000002', 'two')
  t.equal(textOf(await s.ask()), 'answer 3')
})

t.test('a spent limit refuses a hit, and a hit spends nothing', async t => {
  const s = await start(t)
  s.answerAll()
  const made = await s.manage('POST', '/keys', { name: 'limited', limit: 0.002 })
  const apiKey = String(made.document['key'])
  const hash = String(made.data['hash'])
  const usage = async () => Number((await s.manage('GET', `/keys/${hash}`)).data['usage'])
  t.equal(textOf(await s.ask({ apiKey })), 'answer 1')
  await s.generations()
  const spent = await usage()
  t.ok(spent > 0)
  for (let at = 0; at < 3; at++) t.equal(textOf(await s.ask({ apiKey })), 'answer 1')
  await s.generations()
  t.equal(await usage(), spent)
  t.equal((await s.manage('PATCH', `/keys/${hash}`, { limit: 0 })).status, 200)
  t.equal((await s.ask({ apiKey })).status, 402)
})

t.test('requests that nobody may keep, and those with server tools, run for themselves', async t => {
  const s = await start(t)
  s.answerAll()
  for (const fields of [
    { model: 'told/private', provider: { zdr: true } },
    { tools: [{ type: 'gateway:datetime' }] },
  ]) {
    const runs = s.provider.replies.length
    const first = await s.ask({ fields, headers: { 'x-gateway-metadata': 'enabled' } })
    await s.ask({ fields })
    t.equal(s.provider.replies.length, runs + 2, first.body)
    if ('provider' in fields) {
      t.equal(first.headers['x-gateway-changed'], '1')
      t.match(first.body, /header:X-Gateway-Cache/)
    }
  }
})

t.test(
  'with an idempotency key, the retry gets its own answer and the next request the kept one',
  async t => {
    const s = await start(t)
    s.answerAll()
    const headers = { 'idempotency-key': 'k1' }
    const first = await s.ask({ headers })
    const retry = await s.ask({ headers })
    t.equal(retry.body, first.body)
    t.equal(retry.headers['x-gateway-replayed'], 'true')
    const other = await s.ask({ headers: { 'idempotency-key': 'k2' } })
    t.equal(other.headers[CACHED], '0')
    t.equal(textOf(other), 'answer 1')
    t.equal(s.provider.replies.length, 1)
  },
)

t.test('one workspace cannot displace the answers of another', async t => {
  const s = await start(t, { cache: { enabled: true, maxBytesPerWorkspace: 65_536 } })
  s.answerAll()
  const made = await s.manage('POST', '/workspaces', { name: 'Loud', slug: 'loud' })
  const loud = await addKey(s.storageUrl, { workspaceId: String(made.data['id']) })
  await s.ask({ wish: '' })
  for (let at = 0; at < 60; at++) await s.ask({ apiKey: loud, wish: '', fields: { input: `Loud ${at}` } })
  t.ok(s.store.bytes <= 2 * 65_536)
  t.equal(textOf(await s.ask({ wish: '' })), 'answer 1')
  const runs = s.provider.replies.length
  await s.ask({ apiKey: loud, wish: '', fields: { input: 'Loud 59' } })
  t.equal(s.provider.replies.length, runs)
  await s.ask({ apiKey: loud, wish: '', fields: { input: 'Loud 0' } })
  t.equal(s.provider.replies.length, runs + 1, 'its own oldest went first')
})
