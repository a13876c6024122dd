/** Rate limits of keys, workspaces and end users: set, changed, told and kept. */
import t, { type Test } from 'tap'
import { startGateway, type TestGateway, type TestGatewayOptions } from '../support/gateway.ts'
import { caller } from '../support/management.ts'
import { startToldProvider } from '../support/provider.ts'
import { TestClock } from '../support/test-clock.ts'

const NOON = Date.parse('2026-03-11T12:00:15.000Z')
const ASK = { model: 'sim/echo', input: 'Hello', max_output_tokens: 50 }
const USAGE = { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 }
const NONE = { requests_per_minute: null, tokens_per_minute: null, parallel: null }

async function started(t: Test, options: Partial<TestGatewayOptions> = {}) {
  const clock = new TestClock(NOON)
  const gateway = await startGateway({ clock, ...options })
  t.teardown(() => gateway.close())
  const manage = caller(gateway.url, gateway.managementKey)
  const newKey = async (fields: object = {}) => {
    const { status, document, text } = await manage('POST', '/keys', { name: 'limited', ...fields })
    if (status !== 201) throw new Error(text)
    return { apiKey: String(document['key']), hash: String((document['data'] as { hash: string }).hash) }
  }
  const change = async (path: string, fields: object) => {
    const { status, text } = await manage('PATCH', path, fields)
    if (status !== 200) throw new Error(text)
  }
  return { clock, gateway, manage, newKey, change }
}

async function post(gateway: TestGateway, apiKey: string, fields: object = {}, path = '/responses') {
  const reply = await fetch(`${gateway.url}${path}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${apiKey}`, 'content-type': 'application/json' },
    body: JSON.stringify({ ...ASK, ...fields }),
  })
  const text = await reply.text()
  const document = JSON.parse(text) as {
    readonly error?: { readonly message: string; readonly metadata: object }
  }
  return { status: reply.status, headers: Object.fromEntries(reply.headers), error: document.error, text }
}

const statuses = async (count: number, ask: () => Promise<{ readonly status: number }>) => {
  const found: number[] = []
  for (let n = 0; n < count; n++) found.push((await ask()).status)
  return found
}

for (const front of ['uws', 'node'] as const) {
  t.test(`a key has requests per minute of its own, told and changed at once (${front})`, async t => {
    const { gateway, manage, newKey, change, clock } = await started(t, { listen: { front } })
    const { apiKey, hash } = await newKey({ rate_limit: { requests_per_minute: 2 } })
    const ask = () => post(gateway, apiKey)
    t.match((await ask()).headers, {
      'x-ratelimit-limit-requests': '2',
      'x-ratelimit-remaining-requests': '1',
      'x-ratelimit-reset-requests': '45s',
    })
    t.equal((await ask()).status, 200)
    const refused = await ask()
    t.match(refused, {
      status: 429,
      headers: {
        'retry-after': '45',
        'x-ratelimit-limit-requests': '2',
        'x-ratelimit-remaining-requests': '0',
      },
      error: {
        message: 'Rate limit exceeded: this API key is limited to 2 requests per minute',
        metadata: { limit: 'requests_per_minute', limited: 'key' },
      },
    })
    await change(`/keys/${hash}`, { rate_limit: { requests_per_minute: 3 } })
    t.same(await statuses(2, ask), [200, 429], 'one more')
    await change(`/keys/${hash}`, { rate_limit: { requests_per_minute: 1 } })
    t.equal((await ask()).status, 429)
    clock.advance(45_000)
    t.same(await statuses(2, ask), [200, 429], 'a new minute')
    await change(`/keys/${hash}`, { rate_limit: null })
    const free = await ask()
    t.equal(free.status, 200)
    t.notOk(Object.keys(free.headers).some(name => name.startsWith('x-ratelimit')))
    const { document } = await manage('GET', `/keys/${hash}`)
    t.match(document, { data: { rate_limit: null } })
  })
}

t.test('the quotas of the file hold for keys without a limit of their own', async t => {
  const quotas = { requestsPerMinute: 2, tokensPerMinute: 5_000, nodes: 1 }
  const { gateway, newKey } = await started(t, { quotas })
  const [usual, fast] = [
    await newKey(),
    await newKey({ rate_limit: { requests_per_minute: 4, parallel: 9 } }),
  ]
  t.same(await statuses(3, () => post(gateway, usual.apiKey)), [200, 200, 429])
  t.same(await statuses(5, () => post(gateway, fast.apiKey)), [200, 200, 200, 200, 429])
  const shown = async (apiKey: string) => {
    const reply = await fetch(`${gateway.url}/key`, { headers: { authorization: `Bearer ${apiKey}` } })
    return ((await reply.json()) as { data: { rate_limit: object } }).data.rate_limit
  }
  const legacy = { requests: -1, interval: '10s', note: 'Deprecated: always -1.' }
  t.same(await shown(usual.apiKey), {
    ...legacy,
    requests_per_minute: 2,
    tokens_per_minute: 5_000,
    parallel: null,
  })
  t.same(await shown(fast.apiKey), {
    ...legacy,
    requests_per_minute: 4,
    tokens_per_minute: 5_000,
    parallel: 9,
  })
  t.same(await shown(gateway.managementKey), { ...legacy, ...NONE })
})

t.test('a workspace limits the sum of its keys, and the tightest limit is told', async t => {
  const { gateway, manage, newKey, change } = await started(t)
  const made = await manage('POST', '/workspaces', {
    name: 'Team',
    slug: 'team',
    rate_limit: { requests_per_minute: 3 },
  })
  t.match(made, { status: 201, document: { data: { rate_limit: { ...NONE, requests_per_minute: 3 } } } })
  const workspace_id = (made.document['data'] as { id: string }).id
  const one = await newKey({ workspace_id, rate_limit: { requests_per_minute: 10 } })
  const two = await newKey({ workspace_id })
  const other = await newKey()
  t.match((await post(gateway, one.apiKey)).headers, {
    'x-ratelimit-limit-requests': '3',
    'x-ratelimit-remaining-requests': '2',
  })
  t.same(await statuses(2, () => post(gateway, two.apiKey)), [200, 200])
  t.match(await post(gateway, one.apiKey), {
    status: 429,
    error: {
      message: 'Rate limit exceeded: the workspace of this API key is limited to 3 requests per minute',
      metadata: { limit: 'requests_per_minute', limited: 'workspace' },
    },
  })
  t.equal((await post(gateway, other.apiKey)).status, 200, 'a key of another workspace')
  await change('/workspaces/team', { rate_limit: { requests_per_minute: 4 } })
  t.same(await statuses(2, () => post(gateway, two.apiKey)), [200, 429])
})

t.test('tokens are reserved at admission and corrected by usage', async t => {
  const { gateway, newKey } = await started(t)
  const { apiKey } = await newKey({ rate_limit: { tokens_per_minute: 200 } })
  const first = await post(gateway, apiKey)
  t.match(first, { status: 200, headers: { 'x-ratelimit-limit-tokens': '200' } })
  const left = Number((await post(gateway, apiKey)).headers['x-ratelimit-remaining-tokens'])
  t.ok(left > 120, `${left}: the first request used a few tokens, and not the 50 that it reserved`)
  t.match(await post(gateway, apiKey, { max_output_tokens: 300 }), {
    status: 429,
    error: {
      message: /this API key is limited to 200 tokens per minute, but this request may use up to 30\d$/,
    },
  })
})

t.test('an end user has limits of its own in all keys of its organization', async t => {
  const { gateway, manage, newKey, change } = await started(t)
  const [one, two] = [await newKey({ rate_limit: { requests_per_minute: 50 } }), await newKey()]
  t.equal((await post(gateway, two.apiKey, { user: 'ann' })).status, 200, 'nobody is limited yet')
  const limits = { requests_per_minute: 2, tokens_per_minute: 1_000 }
  const made = await manage('POST', '/end-users', { user: 'ann', rate_limit: limits })
  t.match(made, { status: 201, document: { data: { rate_limit: { ...NONE, ...limits } } } })
  t.match((await post(gateway, one.apiKey, { user: 'ann' })).headers, {
    'x-ratelimit-limit-requests': '2',
    'x-ratelimit-remaining-requests': '1',
    'x-ratelimit-limit-tokens': '1000',
  })
  t.equal((await post(gateway, two.apiKey, { user: 'somebody', safety_identifier: 'ann' })).status, 200)
  t.match(await post(gateway, one.apiKey, { user: 'ann' }), {
    status: 429,
    headers: { 'x-ratelimit-limit-requests': '2', 'x-ratelimit-remaining-requests': '0' },
    error: {
      message: 'Rate limit exceeded: this end user is limited to 2 requests per minute',
      metadata: { limit: 'requests_per_minute', limited: 'end_user' },
    },
  })
  t.equal((await post(gateway, one.apiKey, { user: 'bob' })).status, 200)
  t.match((await post(gateway, one.apiKey)).headers, { 'x-ratelimit-limit-requests': '50' })
  await change('/end-users?user=ann', { rate_limit: { requests_per_minute: 3 } })
  t.same(await statuses(2, () => post(gateway, two.apiKey, { user: 'ann' })), [200, 429])
  await change('/end-users?user=ann', { is_active: false })
  t.equal((await post(gateway, two.apiKey, { user: 'ann' })).status, 200, 'an inactive record limits nothing')
})

/** A provider that answers when it is told to, and a key with one request at once. */
async function slowWorld(t: Test, fields: object = { rate_limit: { parallel: 1 } }) {
  const provider = await startToldProvider(t)
  const world = await started(t, {
    providers: [{ slug: 'told', format: 'openai-chat', baseUrl: provider.baseUrl, apiKey: 'k' }],
    models: [{ id: 'told/slow', endpoints: [{ provider: 'told' }] }],
  })
  const { apiKey, hash } = await world.newKey(fields)
  const ask = (more: object = {}) => post(world.gateway, apiKey, { model: 'told/slow', ...more })
  return { ...world, provider, ask, hash }
}

async function until(isSo: () => boolean): Promise<void> {
  while (!isSo()) await new Promise(resolve => setImmediate(resolve))
}

t.test('a request waits for a place among those that run at once', async t => {
  const { clock, provider, ask } = await slowWorld(t)
  const first = ask()
  await until(() => provider.replies.length === 1)
  const second = ask()
  let ended = false
  void first.then(() => {
    ended = true
  })
  await new Promise(resolve => setImmediate(resolve))
  t.equal(provider.replies.length, 1)
  provider.replies[0]?.whole('Hi', USAGE)
  await until(() => ended)
  while (provider.replies.length < 2) {
    clock.advance(10)
    await new Promise(resolve => setImmediate(resolve))
  }
  provider.replies[1]?.whole('Hi', USAGE)
  t.same([(await first).status, (await second).status], [200, 200])
})

t.test(
  'without a place in five seconds it is refused, and a changed limit counts for those who wait',
  async t => {
    const { clock, provider, ask, change, hash } = await slowWorld(t)
    const first = ask()
    await until(() => provider.replies.length === 1)
    let refused: Awaited<ReturnType<typeof ask>> | null = null
    void ask().then(reply => {
      refused = reply
    })
    const sinceMs = clock.monotonicMs()
    while (refused === null) {
      clock.advance(10)
      await new Promise(resolve => setImmediate(resolve))
    }
    t.ok(clock.monotonicMs() - sinceMs >= 5_000)
    t.match(refused, {
      status: 429,
      headers: { 'retry-after': '1' },
      error: {
        message: 'Rate limit exceeded: this API key is limited to 1 request at once',
        metadata: { limit: 'parallel', limited: 'key' },
      },
    })
    await change(`/keys/${hash}`, { rate_limit: { parallel: 2 } })
    const third = ask()
    await until(() => provider.replies.length === 2)
    for (const reply of provider.replies) reply.whole('Hi', USAGE)
    t.same([(await first).status, (await third).status], [200, 200])
  },
)

t.test('a limit that is raised or removed counts for requests that already wait', async t => {
  const { clock, provider, ask, change, hash, gateway } = await slowWorld(t)
  const first = ask()
  await until(() => provider.replies.length === 1)
  const waiting = async () => {
    const before = gateway.serving.server.openRequests
    const reply = ask()
    await until(() => gateway.serving.server.openRequests > before)
    for (let turns = 0; turns < 20; turns++) await new Promise(resolve => setImmediate(resolve))
    return { reply }
  }
  const goOn = async (replies: number) => {
    while (provider.replies.length < replies) {
      clock.advance(10)
      await new Promise(resolve => setImmediate(resolve))
    }
  }
  const raised = await waiting()
  await change(`/keys/${hash}`, { rate_limit: { parallel: 2 } })
  await goOn(2)
  const removed = await waiting()
  await change(`/keys/${hash}`, { rate_limit: null })
  await goOn(3)
  for (const reply of provider.replies) reply.whole('Hi', USAGE)
  t.same([(await first).status, (await raised.reply).status, (await removed.reply).status], [200, 200, 200])
})

t.test('requests of a minute that still run are not waited for', async t => {
  const { provider, ask, manage } = await slowWorld(t, {})
  await manage('POST', '/end-users', { user: 'ann', rate_limit: { requests_per_minute: 1 } })
  const first = ask({ user: 'ann' })
  await until(() => provider.replies.length === 1)
  t.match(await ask({ user: 'ann' }), {
    status: 429,
    headers: { 'retry-after': '45' },
    error: { metadata: { limit: 'requests_per_minute', limited: 'end_user' } },
  })
  provider.replies[0]?.whole('Hi', USAGE)
  t.equal((await first).status, 200)
})

t.test('tokens that running requests only reserve are waited for', async t => {
  const { clock, provider, ask } = await slowWorld(t, { rate_limit: { tokens_per_minute: 150 } })
  const first = ask({ max_output_tokens: 100 })
  await until(() => provider.replies.length === 1)
  const second = ask({ max_output_tokens: 100 })
  await new Promise(resolve => setImmediate(resolve))
  provider.replies[0]?.whole('Hi', USAGE)
  t.equal((await first).status, 200)
  while (provider.replies.length < 2) {
    clock.advance(10)
    await new Promise(resolve => setImmediate(resolve))
  }
  provider.replies[1]?.whole('Hi', USAGE)
  t.equal((await second).status, 200)
})

t.test('faults of a limit are named', async t => {
  const { manage } = await started(t)
  for (const [rateLimit, says] of [
    [{ requests_per_minute: 0 }, /rate_limit\.requests_per_minute/],
    [{ parallel: 1.5 }, /rate_limit\.parallel/],
    [{ requests: 5 }, /rate_limit.*requests/],
    [5, /rate_limit/],
  ] as const) {
    for (const [path, fields] of [
      ['/keys', { name: 'x' }],
      ['/workspaces', { name: 'x', slug: 'x' }],
      ['/end-users', { user: 'x' }],
    ] as const) {
      const { status, text } = await manage('POST', path, { ...fields, rate_limit: rateLimit })
      t.equal(status, 400, text)
      t.match(text, says)
    }
  }
  const empty = await manage('POST', '/keys', { name: 'x', rate_limit: { parallel: null } })
  t.match(empty, { status: 201, document: { data: { rate_limit: null } } })
})
