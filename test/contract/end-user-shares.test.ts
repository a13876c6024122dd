/** End users of a key that is at its limit, over real HTTP and in every dialect: each gets his share. */
import { createServer, type ServerResponse } from 'node:http'
import t, { type Test } from 'tap'
import { startGateway, type TestGateway } from '../support/gateway.ts'
import { listening } from '../support/listening.ts'
import { caller } from '../support/management.ts'
import { until } from '../support/patience.ts'

const PLACES = 4
const OTHERS = 9
/** Of each of the others; one asks fifty times as often. */
const ASKS = 6
const GREED = 50
const WAITING = 256

interface HeldCall {
  /** The input, which is the name of the end user. */
  readonly name: string
  readonly response: ServerResponse
}

/** A provider that answers when it is told. */
async function heldProvider(t: Test) {
  const held: HeldCall[] = []
  const server = createServer((request, response) => {
    let text = ''
    request.setEncoding('utf8').on('data', (part: string) => {
      text += part
    })
    request.on('end', () => {
      const { messages } = JSON.parse(text) as { messages: { content: string }[] }
      held.push({ name: messages.at(-1)?.content ?? '', response })
    })
  })
  const { url } = await listening(server, t)
  return {
    held,
    url,
    /** Answers the oldest call, and returns its name. */
    answer(): string {
      const [oldest] = held.splice(0, 1)
      oldest?.response.setHeader('content-type', 'application/json')
      oldest?.response.end(
        JSON.stringify({
          id: 'chatcmpl-1',
          object: 'chat.completion',
          model: 'm',
          choices: [{ index: 0, message: { role: 'assistant', content: 'Yes.' }, finish_reason: 'stop' }],
          usage: { prompt_tokens: 10, completion_tokens: 2, total_tokens: 12 },
        }),
      )
      return oldest?.name ?? ''
    },
  }
}

async function start(t: Test, limits: object = {}) {
  const provider = await heldProvider(t)
  const gateway = await startGateway({
    limits: { openPerKey: PLACES, waitingPerKey: WAITING, waitMs: 60_000, maxLagMs: 3_600_000, ...limits },
    providers: [{ slug: 'held', format: 'openai-chat', baseUrl: provider.url }],
    models: [{ id: 'held/m', endpoints: [{ provider: 'held' }] }],
  })
  t.teardown(() => gateway.close())
  const waiting = async () => (await gateway.serving.metrics.queuedRequests.get()).values[0]?.value ?? 0
  return { provider, gateway, waiting }
}

const model = 'held/m'

/** Path and body. */
type Ask = readonly [path: string, body: object]

/** How each dialect names its end user. */
const DIALECTS: readonly ((user: string) => Ask)[] = [
  (user: string) => ['/responses', { model, input: user, user }],
  (user: string) => ['/responses', { model, input: user, safety_identifier: user }],
  (user: string) => ['/chat/completions', { model, messages: [{ role: 'user', content: user }], user }],
  (user: string) => [
    '/messages',
    {
      model,
      max_tokens: 10,
      messages: [{ role: 'user', content: user }],
      metadata: { user_id: user },
    },
  ],
]

async function post({ url, apiKey }: TestGateway, [path, body]: Ask, signal?: AbortSignal) {
  const reply = await fetch(`${url}${path}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${apiKey}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
    ...(signal === undefined ? {} : { signal }),
  })
  return { status: reply.status, retryAfter: reply.headers.get('retry-after'), text: await reply.text() }
}

const ask = (gateway: TestGateway, user: string, dialect = 0, signal?: AbortSignal) =>
  post(gateway, DIALECTS[dialect % DIALECTS.length]?.(user) ?? ['', {}], signal)

t.test('one of ten end users asks fifty times as often, and each of the others gets a tenth', async t => {
  const { provider, gateway, waiting } = await start(t)
  const replies: Promise<{ status: number; retryAfter: string | null }>[] = []
  const others = Array.from({ length: OTHERS }, (_, n) => `user ${n}`)
  for (let n = 0; n < PLACES; n++) replies.push(ask(gateway, 'greedy'))
  await until('the limit', () => provider.held.length === PLACES)
  for (let round = 0; round < ASKS; round++) {
    for (let n = 0; n < GREED; n++) replies.push(ask(gateway, 'greedy'))
    for (const [at, name] of others.entries()) replies.push(ask(gateway, name, at))
  }
  const asked = PLACES + ASKS * (GREED + OTHERS)
  const refused = asked - PLACES - WAITING
  await until('what does not fit was refused', async () => {
    const { values } = await gateway.serving.metrics.shed.get()
    return values.some(({ labels, value }) => labels.reason === 'key_open' && value === refused)
  })
  t.equal(await waiting(), WAITING)
  t.equal(provider.held.length, PLACES, 'the limit holds')

  const counts = new Map<string, number>()
  const rounds = PLACES + ASKS * (OTHERS + 1)
  for (let n = 0; n < rounds; n++) {
    await until('a call', () => provider.held.length > 0)
    const name = provider.answer()
    if (n >= PLACES) counts.set(name, (counts.get(name) ?? 0) + 1)
    await until('the next one', () => provider.held.length === PLACES)
  }
  t.same(Object.fromEntries(counts), Object.fromEntries([...others, 'greedy'].map(name => [name, ASKS])))

  while (gateway.serving.server.openRequests > 0) {
    await until(
      'a call or the end',
      () => provider.held.length > 0 || gateway.serving.server.openRequests === 0,
    )
    if (provider.held.length > 0) provider.answer()
  }
  const ended = await Promise.all(replies)
  t.equal(ended.filter(({ status }) => status === 200).length, PLACES + WAITING)
  const turned = ended.filter(({ status }) => status === 429)
  t.equal(turned.length, refused)
  t.ok(turned.every(({ retryAfter }) => retryAfter === '1'))
  t.equal(await waiting(), 0)
})

t.test('a client that leaves while it waits is taken out, and the stages tell of waits', async t => {
  const { provider, gateway, waiting } = await start(t)
  const running = Array.from({ length: PLACES }, () => ask(gateway, 'a'))
  await until('the limit', () => provider.held.length === PLACES)
  const leaving = new AbortController()
  const left = ask(gateway, 'b', 0, leaving.signal).catch(() => 'left')
  await until('one that waits', async () => (await waiting()) === 1)
  const stays = ask(gateway, 'c')
  await until('two that wait', async () => (await waiting()) === 2)
  leaving.abort()
  t.equal(await left, 'left')
  await until('one that waits', async () => (await waiting()) === 1)
  for (let n = 0; n <= PLACES; n++) {
    await until('a call', () => provider.held.length > 0)
    t.equal(provider.answer(), n < PLACES ? 'a' : 'c')
  }
  t.equal((await stays).status, 200)
  for (const each of await Promise.all(running)) t.equal(each.status, 200)
  const { values } = await gateway.serving.metrics.overhead.get()
  const queued = values.filter(
    ({ labels, metricName }) => labels.stage === 'queue' && metricName?.endsWith('_count'),
  )
  t.equal(queued[0]?.value, 1, 'the stage of the one that was served')
})

t.test('a stream waits for its place too, and a wait that is too long is a 429', async t => {
  const { provider, gateway, waiting } = await start(t, { openPerKey: 1, waitMs: 1 })
  const first = ask(gateway, 'a')
  await until('the limit', () => provider.held.length === 1)
  const late = await post(gateway, ['/responses', { model, input: 'b', user: 'b', stream: true }])
  t.equal(late.status, 429)
  t.match(JSON.parse(late.text), {
    error: {
      code: 429,
      message: /limit of 1 open requests, and none of them ended within 1 ms/,
      metadata: { error_type: 'rate_limit_exceeded', limit: 'limits.openPerKey' },
    },
  })
  t.equal(await waiting(), 0)
  provider.answer()
  t.equal((await first).status, 200)
})

t.test('a request without an end user is refused at once, as before', async t => {
  const { provider, gateway } = await start(t, { openPerKey: 1 })
  const first = ask(gateway, 'a')
  await until('the limit', () => provider.held.length === 1)
  t.equal((await post(gateway, ['/responses', { model, input: 'b' }])).status, 429)
  provider.answer()
  t.equal((await first).status, 200)
})

t.test('an end user of weight 3 gets three places for one of weight 1', async t => {
  const { provider, gateway, waiting } = await start(t, { openPerKey: 1 })
  const manage = caller(gateway.url, gateway.managementKey)
  /** How many of the next four places the heavy one gets, while both ask for more than there are. */
  const shareOfHeavy = async () => {
    const replies = [ask(gateway, 'first')]
    await until('the limit', () => provider.held.length === 1)
    for (const name of ['heavy', 'light', 'heavy', 'light', 'heavy', 'light', 'heavy', 'light']) {
      replies.push(ask(gateway, name))
      await until('one more that waits', async () => (await waiting()) === replies.length - 1)
    }
    const order: string[] = []
    for (let n = 0; n < replies.length; n++) {
      await until('a call', () => provider.held.length === 1)
      order.push(provider.answer())
    }
    for (const { status } of await Promise.all(replies)) t.equal(status, 200)
    return order.slice(1, 5).filter(name => name === 'heavy').length
  }
  // A weight counts once the store has told it, which no request waits for.
  t.equal((await manage('POST', '/end-users', { user: 'heavy', weight: 3 })).status, 201)
  await until('three of four', async () => (await shareOfHeavy()) === 3)
  t.equal((await manage('PATCH', '/end-users/heavy', { weight: 1 })).data['weight'], 1)
  await until('two of four', async () => (await shareOfHeavy()) === 2)
})
