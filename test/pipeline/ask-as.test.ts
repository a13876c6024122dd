/** What tools ask of models on behalf of a caller: its limits, guardrails, bill and end. */
import t from 'tap'
import { GatewayError } from '../../src/base/errors.ts'
import { UNITS_PER_USD } from '../../src/base/money.ts'
import { startAsking, TOKEN_USD } from './asking-gateway.ts'

const TERMS = { deadlineMs: 1_000 }
const HI = { model: 'acme/side', input: 'Hi' }
const costOf = (tokens: number): number => Math.round(tokens * TOKEN_USD * UNITS_PER_USD)

t.test('a reply comes whole, with a record that names the exchange and counts in its bill', async t => {
  const { askAs, caller, exchange, provider, records } = await startAsking(t)
  provider.script('side', [{ text: 'Hello' }])
  const outer = exchange({ user: 'someone' })
  t.match(await askAs(outer, HI, TERMS), {
    status: 'completed',
    output: [{ content: [{ text: 'Hello' }] }],
    usage: { output_tokens: 5, cost: 0.005 },
  })
  t.same(outer.bill.inner, {
    inputTokens: 7,
    cachedTokens: 0,
    outputTokens: 5,
    reasoningTokens: 0,
    webSearchRequests: 0,
    cost: costOf(5),
  })
  t.equal(outer.bill.cost, null, 'the record of the exchange has nothing of it')
  t.match(await records(), [
    {
      parent: 'gen-1-outer',
      keyHash: caller.keyHash,
      organizationId: caller.organizationId,
      outcome: 'completed',
      cost: costOf(5),
      endUser: 'someone',
    },
  ])
})

t.test('with a listener the events come one by one, and the same is charged', async t => {
  const { askAs, exchange, provider, records } = await startAsking(t)
  provider.script('side', [{ text: 'Hello you' }])
  const outer = exchange()
  const types: string[] = []
  const reply = await askAs(outer, HI, { ...TERMS, onEvent: event => void types.push(event.type) })
  t.match(reply, { status: 'completed', output: [{ content: [{ text: 'Hello you' }] }] })
  t.equal(types.at(0), 'response.created')
  t.equal(types.filter(type => type === 'response.output_text.delta').length, 2)
  t.equal(types.at(-1), 'response.completed')
  t.equal(provider.asked[0]?.body['stream'], true)
  t.equal(outer.bill.inner.cost, costOf(5))
  t.match(await records(), [{ cost: costOf(5), streamed: true }])
})

t.test('the limit of the caller holds: nothing is asked once it is spent', async t => {
  const { askAs, exchange, provider, records } = await startAsking(t, 0.005)
  provider.script('side', [{ text: 'Hello' }, { text: 'Again' }])
  const outer = exchange()
  await askAs(outer, HI, TERMS)
  await t.rejects(askAs(outer, HI, TERMS), { code: 'payment_required', status: 402 })
  t.equal(provider.asked.length, 1)
  t.equal(outer.bill.inner.cost, costOf(5))
  t.equal((await records()).length, 1, 'what a limit refuses leaves no record')
})

t.test('guardrails of the caller hold for what is asked and for the reply', async t => {
  const { askAs, exchange, guard, provider } = await startAsking(t)
  await guard({
    contentFilters: [{ pattern: 'secret', label: null, action: 'block' }],
    output: {
      contentFilters: [{ pattern: 'giraffe', label: 'animal', action: 'redact' }],
      contentFilterBuiltins: [],
      windowBytes: 256,
      overlapBytes: 64,
    },
  })
  await t.rejects(askAs(exchange(), { ...HI, input: 'The secret' }, TERMS), { code: 'permission_denied' })
  t.equal(provider.asked.length, 0)
  provider.script('side', [{ text: 'A giraffe it is' }])
  t.match(await askAs(exchange(), HI, TERMS), { output: [{ content: [{ text: 'A [REDACTED] it is' }] }] })
})

t.test('what the caller wishes for its data holds inside too', async t => {
  const wishes = [{ zdr: true }, { data_collection: 'deny' }] as const
  for (const provider of wishes) {
    const world = await startAsking(t)
    world.provider.script('kept', [{ text: 'Hello' }])
    await world.askAs(world.exchange({ provider }), HI, TERMS)
    t.same(
      world.provider.asked.map(({ model }) => model),
      ['kept'],
    )
  }
})

t.test('it ends with the exchange, and asks nothing for one that is over', async t => {
  for (const onEvent of [undefined, () => undefined]) {
    const { askAs, exchange, outer, provider, records } = await startAsking(t)
    provider.script('side', [{ hangs: true }])
    const gone = new GatewayError('client_closed', 'gone')
    const terms = onEvent === undefined ? TERMS : { ...TERMS, onEvent }
    const asking = askAs(exchange(), HI, terms)
    await provider.until(({ asked }) => asked.length === 1)
    outer.abort(gone)
    await t.rejects(asking, gone)
    await provider.until(({ left }) => left === 1)
    await t.rejects(askAs(exchange(), HI, terms), gone)
    t.equal(provider.asked.length, 1)
    t.match(await records(), [{ cancelled: true }, { cancelled: true }])
  }
})

t.test('a signal of its own and the deadline end it, and the exchange goes on', async t => {
  const { askAs, clock, exchange, provider } = await startAsking(t)
  provider.script('side', [{ hangs: true }, { hangs: true }, { text: 'Hello' }])
  const ending = new AbortController()
  const outer = exchange()
  const stopped = askAs(outer, HI, { ...TERMS, signal: ending.signal })
  await provider.until(({ asked }) => asked.length === 1)
  ending.abort(new GatewayError('deadline_exceeded', 'the tool is late'))
  await t.rejects(stopped, { code: 'deadline_exceeded', message: 'the tool is late' })
  const late = askAs(outer, HI, TERMS)
  await provider.until(({ asked }) => asked.length === 2)
  clock.advance(1_000)
  await t.rejects(late, { code: 'deadline_exceeded' })
  t.match(await askAs(outer, HI, TERMS), { status: 'completed' })
})

t.test('the bill of the exchange is the sum of the records, also of calls that failed', async t => {
  const { askAs, clock, exchange, provider, records } = await startAsking(t)
  provider.script('side', [
    { text: 'Hello' },
    { status: 400 },
    { text: 'Broken', breaks: true },
    { hangs: true },
    { hangs: true },
  ])
  const outer = exchange()
  const listening = { ...TERMS, onEvent: () => undefined }
  await askAs(outer, HI, listening)
  await t.rejects(askAs(outer, HI, TERMS), { code: 'invalid_request' })
  await t.rejects(askAs(outer, HI, listening))
  for (const [at, terms] of [TERMS, listening].entries()) {
    const late = askAs(outer, HI, terms)
    await provider.until(({ asked }) => asked.length === 4 + at)
    clock.advance(1_000)
    await t.rejects(late, { code: 'deadline_exceeded' })
  }
  const all = await records()
  t.equal(all.length, 5)
  t.equal(
    outer.bill.inner.cost,
    all.reduce((sum, { cost }) => sum + cost, 0),
  )
})
