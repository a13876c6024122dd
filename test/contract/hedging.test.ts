/** Hedging: a second endpoint is asked beside a silent first one; the clock stands still and the providers are told. */
import t, { type Test } from 'tap'
import { startGateway, type TestGatewayOptions } from '../support/gateway.ts'
import { startToldProvider, type ToldReply } from '../support/provider.ts'
import { TestClock } from '../support/test-clock.ts'

const AFTER_MS = 500
const USAGE = { prompt_tokens: 10, completion_tokens: 2 }
const WITH_METADATA = { headers: { 'x-gateway-metadata': 'enabled' } }
const turn = () => new Promise(resolve => setImmediate(resolve))

async function until(isSo: () => boolean): Promise<void> {
  while (!isSo()) await turn()
}

interface Metadata {
  readonly attempt: number
  readonly attempts: readonly { readonly provider: string; readonly reason?: string }[]
  readonly endpoints: { readonly available: readonly { provider: string; selected: boolean }[] }
}

/** Endpoints `a`, `b` and `c` of one model, at 1, 2 and 3 USD for a million tokens of input. */
async function start(t: Test, routing: TestGatewayOptions['routing'] = { hedgeAfterMs: AFTER_MS }) {
  const clock = new TestClock()
  const [a, b, c] = [await startToldProvider(t), await startToldProvider(t), await startToldProvider(t)]
  const slugs = ['a', 'b', 'c']
  const gateway = await startGateway({
    clock,
    routing,
    timeouts: { upstreamHeadersMs: 3_600_000, upstreamIdleMs: 3_600_000, requestMs: 3_600_000 },
    providers: [a, b, c].map(({ baseUrl }, at) => ({
      slug: slugs[at] ?? '',
      name: (slugs[at] ?? '').toUpperCase(),
      format: 'openai-chat' as const,
      baseUrl,
    })),
    models: [
      {
        id: 'm/three',
        endpoints: slugs.map((provider, at) => ({ provider, pricing: { prompt: `0.00000${at + 1}` } })),
      },
      { id: 'm/one', endpoints: [{ provider: 'a' }] },
      { id: 'm/other', endpoints: [{ provider: 'b' }] },
    ],
  })
  t.teardown(() => gateway.close())
  const { metrics } = gateway.serving
  const valuesOf = async (counter: { get(): Promise<{ values: { value: number; labels: object }[] }> }) =>
    (await counter.get()).values
  return {
    clock,
    gateway,
    a,
    b,
    c,
    ask: (body: object = {}, init: { signal?: AbortSignal } = {}) =>
      gateway.respond(
        { model: 'm/three', input: 'Hi', stream: true, ...body },
        { ...WITH_METADATA, ...init },
      ),
    async hedges(): Promise<Record<string, number>> {
      const counted = (await valuesOf(metrics.hedges)).filter(({ value }) => value > 0)
      return Object.fromEntries(counted.map(({ labels, value }) => [Object.values(labels)[0], value]))
    },
    /** Of all requests, in billionths of a dollar. */
    async cost(): Promise<number> {
      await gateway.shipper.ship()
      const values = await valuesOf(metrics.cost)
      return Math.round(values.reduce((sum, { value }) => sum + value, 0) * 1e9)
    },
    /** Breaks a reply off, and waits until the gateway has noticed: its timers for the reply are gone. */
    async breakOff(reply: ToldReply): Promise<void> {
      const { armed } = clock
      reply.break()
      await until(() => clock.armed < armed)
      await turn()
    },
  }
}

function speak(reply: ToldReply, text: string): void {
  reply.say({ role: 'assistant', content: '' })
  for (const word of text.split(/(?<= )/)) reply.say({ content: word })
  reply.finish(USAGE)
}

interface Frame {
  readonly type: string
  readonly delta?: string
  readonly response?: { readonly gateway_metadata?: Metadata }
}

/** What a client reads of a stream. */
async function read(answer: Response) {
  const frames = (await answer.text())
    .split('\n')
    .filter(line => line.startsWith('data: {'))
    .map(line => JSON.parse(line.slice(6)) as Frame)
  const last = frames.at(-1)
  return {
    types: frames.map(({ type }) => type),
    text: frames.map(({ type, delta }) => (type === 'response.output_text.delta' ? delta : '')).join(''),
    last: last?.type,
    metadata: last?.response?.gateway_metadata,
  }
}

t.test('the second endpoint answers in place of a silent first one, which is closed', async t => {
  const s = await start(t)
  const asking = s.ask()
  const first = await s.a.reply(0)
  s.clock.advance(AFTER_MS - 1)
  await turn()
  t.equal(s.b.replies.length, 0, 'nobody else yet')
  s.clock.advance(1)
  const second = await s.b.reply(0)
  t.same(second.body, first.body, 'asked alike')
  speak(second, 'It was me')
  const told = await read(await asking)
  t.equal(told.text, 'It was me')
  t.equal(told.types.filter(type => type === 'response.created').length, 1)
  t.equal(told.last, 'response.completed')
  await until(() => first.closed)
  t.match(told.metadata, {
    attempt: 2,
    attempts: [{ provider: 'A', reason: 'outrun' }, { provider: 'B' }],
  })
  t.notOk(told.metadata?.attempts[1]?.reason)
  t.same(
    told.metadata?.endpoints.available.filter(({ selected }) => selected).map(({ provider }) => provider),
    ['B'],
  )
  t.same(await s.hedges(), { won: 1 })
  t.equal(await s.cost(), 20_000, 'one reply is charged: the one that was read')
  s.clock.advance(10 * AFTER_MS)
  await turn()
  t.equal(s.c.replies.length, 0, 'one hedge for a model call')
})

t.test('a first endpoint that speaks first after all is read, and the second one is closed', async t => {
  const s = await start(t)
  const asking = s.ask()
  const first = await s.a.reply(0)
  s.clock.advance(AFTER_MS)
  const second = await s.b.reply(0)
  speak(first, 'Sorry for that')
  const told = await read(await asking)
  t.equal(told.text, 'Sorry for that')
  await until(() => second.closed)
  t.match(told.metadata?.attempts, [{ provider: 'B', reason: 'outrun' }, { provider: 'A' }])
  t.same(await s.hedges(), { lost: 1 })
  t.equal(await s.cost(), 10_000)
})

t.test('after its first content, or before it as a whole reply, an endpoint is alone', async t => {
  const s = await start(t)
  const asking = s.ask()
  const first = await s.a.reply(0)
  first.say({ role: 'assistant', content: 'So' })
  const answer = await asking
  s.clock.advance(100 * AFTER_MS)
  await turn()
  first.finish(USAGE)
  t.equal((await read(answer)).text, 'So')
  t.equal(s.b.replies.length, 0)
  t.same(await s.hedges(), {})
})

t.test('whole replies race too, and chat streams are passed on by the winner', async t => {
  const s = await start(t)
  const whole = s.ask({ stream: false })
  await s.a.reply(0)
  s.clock.advance(AFTER_MS)
  ;(await s.b.reply(0)).whole('Done', USAGE)
  t.match(await (await whole).json(), { status: 'completed', gateway_metadata: { attempt: 2 } })

  const words = Array.from({ length: 40 }, (_, at) => `word${at} `).join('')
  const { url, apiKey } = s.gateway
  const streaming = fetch(`${url}/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${apiKey}`, 'content-type': 'application/json' },
    body: JSON.stringify({
      model: 'm/three',
      stream: true,
      messages: [{ role: 'user', content: 'Hi' }],
    }),
  })
  await s.a.reply(1)
  s.clock.advance(AFTER_MS)
  speak(await s.b.reply(1), words)
  const text = await (await streaming).text()
  const said = [...text.matchAll(/"content":"(word\d+ )"/g)].map(([, word]) => word)
  t.equal(said.join(''), words)
  t.same(await s.hedges(), { won: 2 })
})

t.test('a failure of one of the two leaves the other', async t => {
  const firstFails = await start(t)
  const one = firstFails.ask()
  const first = await firstFails.a.reply(0)
  firstFails.clock.advance(AFTER_MS)
  const second = await firstFails.b.reply(0)
  await firstFails.breakOff(first)
  speak(second, 'Still here')
  const told = await read(await one)
  t.equal(told.text, 'Still here')
  t.match(told.metadata?.attempts, [{ provider: 'A', reason: 'connection_lost' }, { provider: 'B' }])
  t.same(await firstFails.hedges(), { won: 1 })

  const secondFails = await start(t)
  const two = secondFails.ask()
  const silent = await secondFails.a.reply(0)
  secondFails.clock.advance(AFTER_MS)
  await secondFails.breakOff(await secondFails.b.reply(0))
  speak(silent, 'I was slow')
  t.equal((await read(await two)).text, 'I was slow')
  t.same(await secondFails.hedges(), { failed: 1 })
})

t.test('failures of both go on to the next endpoint', async t => {
  const s = await start(t)
  const asking = s.ask()
  const first = await s.a.reply(0)
  s.clock.advance(AFTER_MS)
  const second = await s.b.reply(0)
  second.break()
  first.break()
  speak(await s.c.reply(0), 'Third')
  const told = await read(await asking)
  t.equal(told.text, 'Third')
  t.equal(told.metadata?.attempt, 3)
  t.same(await s.hedges(), { failed: 1 })
})

t.test('a reply that broke after it had won is told, and nobody else is asked', async t => {
  const s = await start(t)
  const asking = s.ask()
  await s.a.reply(0)
  s.clock.advance(AFTER_MS)
  const second = await s.b.reply(0)
  second.say({ role: 'assistant', content: 'Half of' })
  const answer = await asking
  second.break()
  const told = await read(answer)
  t.equal(told.text, 'Half of')
  t.equal(told.last, 'response.failed')
  t.equal(s.c.replies.length, 0)
  t.equal(await s.cost(), 0, 'broken replies cost nothing')
})

t.test('nobody is hedged who did not ask for it, or must not be', async t => {
  const off = await start(t, {})
  const plain = off.ask()
  const alone = await off.a.reply(0)
  off.clock.advance(600_000)
  await turn()
  t.equal(off.b.replies.length, 0, 'off is the default')
  speak(alone, 'ok')
  await read(await plain)

  const s = await start(t)
  const tools = [{ type: 'gateway:datetime' }]
  for (const body of [
    { provider: { only: ['a', 'b'], allow_fallbacks: false } },
    { model: 'm/one', models: ['m/one', 'm/other'] },
    { tools },
    { plugins: [{ id: 'context-compression' }] },
  ]) {
    const at = s.a.replies.length
    const asking = s.ask(body)
    const reply = await s.a.reply(at)
    s.clock.advance(100 * AFTER_MS)
    await turn()
    t.equal(s.b.replies.length, 0, JSON.stringify(body))
    speak(reply, '{}')
    await read(await asking)
    t.same(await s.hedges(), {}, JSON.stringify(body))
  }
})

t.test('hedges count in the retry budget', async t => {
  const s = await start(t)
  const asking = Array.from({ length: 4 }, () => s.ask())
  const silent = await s.a.reply(3)
  s.clock.advance(AFTER_MS)
  await s.b.reply(2)
  await turn()
  t.equal(s.b.replies.length, 3, 'three at a time are always allowed')
  t.same(await s.hedges(), { over_budget: 1 })
  for (const reply of s.b.replies) speak(reply, 'hedged')
  for (const reply of s.a.replies) if (!reply.closed) speak(reply, 'alone')
  const texts = await Promise.all(asking.map(async each => (await read(await each)).text))
  t.same(texts.filter(text => text === 'hedged' || text === 'alone').length, 4)
  t.ok(silent)

  const next = s.ask()
  const at = s.b.replies.length
  await s.a.reply(4)
  s.clock.advance(AFTER_MS)
  speak(await s.b.reply(at), 'again')
  t.equal((await read(await next)).text, 'again', 'the places were given back')
})

t.test('a caller who leaves ends both, and pays for one', async t => {
  const s = await start(t)
  const caller = new AbortController()
  const asking = s.ask({}, { signal: caller.signal }).catch(() => null)
  const first = await s.a.reply(0)
  s.clock.advance(AFTER_MS)
  const second = await s.b.reply(0)
  caller.abort()
  await until(() => first.closed && second.closed)
  await asking
  const { usageRecords } = s.gateway.serving.metrics
  let records = 0
  while (records === 0) {
    records = (await usageRecords.get()).values.reduce((sum, { value }) => sum + value, 0)
    await turn()
  }
  t.equal(records, 1)
  const cost = await s.cost()
  t.ok(cost > 0 && cost < 10_000, 'the input of one of them')
  t.same(await s.hedges(), {})
})

t.test(
  'two hundred callers of a silent endpoint: hedges keep to their budget, and each caller pays once',
  async t => {
    const s = await start(t)
    const count = 200
    const asking = Array.from({ length: count }, () => s.ask())
    await s.a.reply(count - 1)
    s.clock.advance(AFTER_MS)
    const counted = async () => (await s.hedges())['over_budget'] ?? 0
    let refused = await counted()
    while (s.b.replies.length + refused < count) {
      await turn()
      refused = await counted()
    }
    const hedged = s.b.replies.length
    t.ok(hedged >= 3 && hedged <= count * 0.2, `${hedged} hedges`)
    t.equal(s.c.replies.length, 0)
    // Half of them are won, the others are lost to the first endpoint.
    const won = Math.ceil(hedged / 2)
    for (const reply of s.b.replies.slice(0, won)) speak(reply, 'hedged')
    await until(() => s.a.replies.filter(({ closed }) => closed).length === won)
    for (const reply of s.a.replies) if (!reply.closed) speak(reply, 'first')
    const texts = await Promise.all(asking.map(async each => (await read(await each)).text))
    t.equal(texts.filter(text => text === 'hedged').length, won)
    t.equal(texts.filter(text => text === 'first').length, count - won)
    await until(() => s.b.replies.slice(won).every(({ closed }) => closed))
    t.equal(await s.cost(), won * 20_000 + (count - won) * 10_000, 'nobody pays for the one that lost')
    t.equal(s.gateway.serving.server.openRequests, 0)
    s.clock.advance(60_000)
    await turn()
    t.equal(
      s.a.replies.length + s.b.replies.length + s.c.replies.length,
      count + hedged,
      'nothing outlives them',
    )
  },
)
