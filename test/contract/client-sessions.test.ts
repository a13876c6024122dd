/** Sessions and agents, as clients of several makers name them: in records, log lines and GET /generation. */
import t from 'tap'
import { startGateway } from '../support/gateway.ts'
import { openSocket } from '../support/response-socket-client.ts'

const gateway = await startGateway()
t.teardown(() => gateway.close())

const AUTH = { authorization: `Bearer ${gateway.apiKey}` }

async function record(id: string): Promise<Record<string, unknown>> {
  const found = await fetch(`${gateway.url}/generation?id=${id}`, { headers: AUTH })
  return ((await found.json()) as { data: Record<string, unknown> }).data
}

async function asked(headers: Record<string, string>, body: object = {}) {
  const answer = await gateway.respond({ model: 'sim/echo', input: 'x', ...body }, { headers })
  await answer.text()
  const id = answer.headers.get('x-generation-id') ?? ''
  const { session_id, agent_id, parent_agent_id } = await record(id)
  const line = gateway.lines.find(each => each['id'] === id) ?? {}
  return {
    status: answer.status,
    told: [session_id, agent_id, parent_agent_id],
    logged: [line['session'] ?? null, line['agent'] ?? null, line['parentAgent'] ?? null],
  }
}

const CASES: readonly [string, Record<string, string>, object, readonly (string | null)[]][] = [
  ['nothing', {}, {}, [null, null, null]],
  [
    'Claude Code',
    {
      'x-claude-code-session-id': 's1',
      'x-claude-code-agent-id': 'a1',
      'x-claude-code-parent-agent-id': 'p1',
    },
    {},
    ['s1', 'a1', 'p1'],
  ],
  [
    'Codex',
    { 'session-id': 's2', 'thread-id': 'a2', 'x-codex-parent-thread-id': 'p2' },
    {},
    ['s2', 'a2', 'p2'],
  ],
  [
    'the client itself, in its body',
    { 'session-id': 'old', 'thread-id': 'old' },
    { client_metadata: { session_id: 's3', thread_id: 'a3', 'x-codex-parent-thread-id': 'p3', other: 5 } },
    ['s3', 'a3', 'p3'],
  ],
  [
    'our headers before others',
    { 'x-session-id': 's4', 'session-id': 'x', 'x-agent-id': 'a4', 'thread-id': 'x' },
    {},
    ['s4', 'a4', null],
  ],
  [
    'the field before every header',
    { 'x-session-id': 'x', 'session-id': 'y' },
    { session_id: 's5' },
    ['s5', null, null],
  ],
  [
    'unfit words',
    { 'session-id': 'x'.repeat(300), 'thread-id': `sk-gw-v1-${'0'.repeat(64)}` },
    {},
    [null, null, null],
  ],
  [
    'metadata of another kind',
    {},
    { client_metadata: { session_id: 7, thread_id: ['x'] } },
    [null, null, null],
  ],
]

for (const [name, headers, body, expected] of CASES) {
  t.test(`session and agents: ${name}`, async t => {
    const { status, told, logged } = await asked(headers, body)
    t.equal(status, 200)
    t.same(told, expected)
    t.same(logged, expected)
  })
}

t.test('over a WebSocket each message names its own', async t => {
  const socket = await openSocket(gateway.url, gateway.apiKey, {
    'session-id': 'handshake',
    'thread-id': 'first',
  })
  t.teardown(() => socket.close())
  for (const [thread, metadata] of [
    ['first', undefined],
    ['second', { session_id: 'talk', thread_id: 'second' }],
  ] as const) {
    const events = await socket.ask({ model: 'sim/echo', input: 'x', client_metadata: metadata })
    const response = events.at(-1)?.['response'] as { id: string }
    t.match(await record(response.id), { session_id: metadata?.session_id ?? 'handshake', agent_id: thread })
  }
})

t.test('activity groups by session and by agent, with what was read from and written to caches', async t => {
  await asked({ 'session-id': 'grouped', 'x-agent-id': 'one' })
  await asked({ 'session-id': 'grouped', 'x-agent-id': 'two' })
  await asked({}, { model: 'sim/chat-echo', session_id: 'grouped' })
  await gateway.shipper.ship()
  const activity = async (query: string) => {
    const reply = await fetch(`${gateway.url}/activity?${query}`, {
      headers: { authorization: `Bearer ${gateway.managementKey}` },
    })
    const { data } = (await reply.json()) as { data: Record<string, unknown>[] }
    return data
  }
  const sessions = (await activity('group_by=session')).filter(row => row['session_id'] === 'grouped')
  t.same(sessions.map(row => [row['model'], row['requests']]).toSorted(), [
    ['sim/chat-echo', 1],
    ['sim/echo', 2],
  ])
  t.ok(sessions.every(row => Number(row['prompt_tokens']) > 0 && Number(row['usage']) >= 0))
  t.ok(sessions.every(row => row['cache_read_tokens'] === 0 && row['cache_write_tokens'] === 0))
  const agents = (await activity('group_by=agent')).filter(row =>
    ['one', 'two'].includes(String(row['agent_id'])),
  )
  t.same(agents.map(row => [row['agent_id'], row['requests']]).toSorted(), [
    ['one', 1],
    ['two', 1],
  ])
  t.same(await activity(`group_by=session&api_key_hash=${'d'.repeat(64)}`), [])
})

t.test('errors of POST /responses have what the public client reads, beside the status', async t => {
  const reply = await gateway.respond({ model: 'sim/echo', input: 'x', temperature: 'hot' })
  t.equal(reply.status, 400)
  t.match(await reply.json(), {
    error: {
      code: 400,
      message: /^temperature: /,
      type: 'invalid_request',
      param: 'temperature',
      error_type: 'invalid_request',
      metadata: { error_type: 'invalid_request' },
    },
    user_id: null,
  })
  const unknown = await gateway.respond({ model: 'nobody/none', input: 'x' })
  t.match(await unknown.json(), { error: { code: 400, type: 'invalid_request', param: null } })
  const keyless = await fetch(`${gateway.url}/responses`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: '{}',
  })
  t.match(await keyless.json(), {
    error: { code: 401, type: 'authentication', error_type: 'authentication' },
  })
  const other = await fetch(`${gateway.url}/models/nobody/none`, { headers: AUTH })
  t.notOk('param' in ((await other.json()) as { error: object }).error, 'of this operation alone')
})
