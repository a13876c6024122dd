/** What agents read from the cache of a provider that caches only what is marked, by each door. */
import t, { type Test } from 'tap'
import { startAnthropic } from '../support/anthropic-stand-in.ts'
import { startGateway } from '../support/gateway.ts'

type Fields = Record<string, unknown>
const anthropic = await startAnthropic()
const pricing = {
  prompt: '0.000003',
  completion: '0.000015',
  inputCacheRead: '0.0000003',
  inputCacheWrite: '0.00000375',
  inputCacheWrite1h: '0.000006',
}
const gateway = await startGateway({
  providers: [
    {
      slug: 'claudes',
      name: 'Claudes',
      format: 'anthropic-messages',
      baseUrl: anthropic.url,
      apiKey: 'sk-ant-0123456789abcdef',
    },
  ],
  models: [
    { id: 'acme/sonnet', endpoints: [{ provider: 'claudes', upstreamModel: 'claude-sonnet-x', pricing }] },
  ],
})
t.teardown(async () => {
  await gateway.close()
  anthropic.close()
})

const TURNS = 20
const long = (word: string, words: number): string => Array.from({ length: words }, () => word).join(' ')
const SYSTEM = long('instruction', 900)
const FUNCTIONS = Array.from({ length: 8 }, (_, at) => ({
  name: `tool_${at}`,
  description: long('does', 60),
  parameters: { type: 'object', properties: { path: { type: 'string' } } },
}))
const MARK = { cache_control: { type: 'ephemeral' } }

/** One door: keeps a conversation as its clients do, and asks. */
interface Door {
  user(text: string): void
  result(callId: string, text: string): void
  /** Resolves to the ids of the calls in the reply. */
  ask(t: Test): Promise<readonly string[]>
}

async function post(t: Test, path: string, body: Fields): Promise<Fields> {
  const reply = await fetch(`${gateway.url}${path}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${gateway.apiKey}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'acme/sonnet', ...body }),
  })
  const said = (await reply.json()) as Fields
  t.equal(reply.status, 200, JSON.stringify(said).slice(0, 300))
  return said
}

/** As Claude Code does: marks on the system prompt and on the last two messages of the user. */
function messagesDoor(): Door {
  const messages: { role: string; content: Fields[] }[] = []
  const tools = FUNCTIONS.map(({ parameters, ...rest }) => ({ ...rest, input_schema: parameters }))
  const system = [{ type: 'text', text: SYSTEM, ...MARK }]
  return {
    user: text => void messages.push({ role: 'user', content: [{ type: 'text', text }] }),
    result(tool_use_id, content) {
      const block = { type: 'tool_result', tool_use_id, content }
      const last = messages.at(-1)
      if (last?.role === 'user') last.content.push(block)
      else messages.push({ role: 'user', content: [block] })
    },
    async ask(t) {
      const marked = messages.filter(({ role }) => role === 'user').slice(-2)
      const sent = messages.map(message => ({
        ...message,
        content: message.content.map((block, at) =>
          marked.includes(message) && at === message.content.length - 1 ? { ...block, ...MARK } : block,
        ),
      }))
      const thinking = { type: 'enabled', budget_tokens: 1024 }
      const body = { max_tokens: 4096, system, tools, messages: sent, thinking }
      const { content } = (await post(t, '/messages', body)) as { content: Fields[] }
      messages.push({ role: 'assistant', content })
      return content.filter(({ type }) => type === 'tool_use').map(({ id }) => String(id))
    },
  }
}

function chatDoor(session: string | null): Door {
  const messages: Fields[] = [{ role: 'system', content: SYSTEM }]
  const tools = FUNCTIONS.map(one => ({ type: 'function', function: one }))
  const named = session === null ? {} : { session_id: session }
  return {
    user: content => void messages.push({ role: 'user', content }),
    result: (tool_call_id, content) => void messages.push({ role: 'tool', tool_call_id, content }),
    async ask(t) {
      const body = { messages, tools, max_tokens: 4096, reasoning: { max_tokens: 1024 }, ...named }
      const { choices } = (await post(t, '/chat/completions', body)) as { choices: { message: Fields }[] }
      const { message } = choices[0] ?? { message: {} }
      messages.push(message)
      return ((message['tool_calls'] ?? []) as Fields[]).map(({ id }) => String(id))
    },
  }
}

/** A client that keeps of a thought no more than its seal. */
function responsesDoor(session: string | null): Door {
  const input: Fields[] = []
  const tools = FUNCTIONS.map(one => ({ type: 'function', ...one }))
  const named = session === null ? {} : { session_id: session }
  return {
    user: content => void input.push({ type: 'message', role: 'user', content }),
    result: (call_id, output) => void input.push({ type: 'function_call_output', call_id, output }),
    async ask(t) {
      const { output } = (await post(t, '/responses', {
        input,
        tools,
        instructions: SYSTEM,
        max_output_tokens: 4096,
        reasoning: { max_tokens: 1024 },
        include: ['reasoning.encrypted_content'],
        ...named,
      })) as { output: Fields[] }
      for (const { type, id, summary, encrypted_content, ...rest } of output)
        input.push(
          type === 'reasoning' ? { type, id, summary, encrypted_content } : { type, id, summary, ...rest },
        )
      return output.filter(({ type }) => type === 'function_call').map(({ call_id }) => String(call_id))
    },
  }
}

/** Turns of an agent: a thought and calls; in `userTurns` of them it ends, and its user says more. */
async function run(t: Test, name: string, door: Door, userTurns: readonly number[] = []): Promise<number> {
  anthropic.billed.length = 0
  anthropic.refused.length = 0
  door.user(`${name} ${long('task', 100)}`)
  for (let turn = 0; turn < TURNS; turn++) {
    const ends = userTurns.includes(turn)
    const calls = [1, 2].map(each => ({
      type: 'tool_use',
      id: `toolu_${name.replaceAll(/\W/g, '')}${turn}${each}`,
      name: `tool_${turn % 8}`,
      input: { path: `file-${turn}.ts` },
    }))
    anthropic.script.push([
      { type: 'thinking', thinking: `${name}, step ${turn}: ${long('why', 40)}` },
      { type: 'text', text: `Step ${turn}` },
      ...(ends ? [] : calls),
    ])
    const asked = await door.ask(t)
    t.equal(asked.length, ends ? 0 : 2)
    for (const id of asked) door.result(id, `${turn} ${long('line', 300)}`)
    if (ends) door.user(`And now ${turn}`)
    anthropic.nowMs += 30_000
  }
  t.same(anthropic.refused, [])
  t.equal(anthropic.billed.length, TURNS)
  const sum = (of: 'read' | 'readable'): number => anthropic.billed.reduce((all, one) => all + one[of], 0)
  const share = sum('read') / sum('readable')
  t.comment(`${name}: ${(share * 100).toFixed(1)} % of ${sum('readable')} tokens`)
  return share
}

t.test('marks of the client: an agent by the Messages API reads at least 95 %', async t => {
  t.ok((await run(t, 'messages', messagesDoor(), [6, 13])) >= 0.95)
})

t.test('marks of the gateway: an agent by the other doors reads at least 90 %', async t => {
  for (const [name, door] of [
    ['chat', chatDoor],
    ['responses', responsesDoor],
  ] as const) {
    t.ok((await run(t, `${name} in one loop`, door(null))) >= 0.9, name)
    t.ok((await run(t, `${name} with a session`, door(`session-${name}`), [6, 13])) >= 0.9, name)
    t.ok((await run(t, `${name} without a session`, door(null), [6, 13])) >= 0.9, name)
  }
})

t.test('a conversation that misses the cache is counted with the reason and the tokens', async t => {
  const { promptCacheMisses } = gateway.serving.metrics
  const counted = async (): Promise<Record<string, number>> =>
    Object.fromEntries([
      ...['tools', 'system', 'earlier_turn', 'endpoint', 'time', 'other'].map(reason => [reason, 0] as const),
      ...(await promptCacheMisses.get()).values.map(
        ({ labels, value }) => [String(labels.reason), value] as const,
      ),
    ])
  const system = [{ type: 'text', text: SYSTEM, ...MARK }]
  const tools = FUNCTIONS.map(({ parameters, ...rest }) => ({ ...rest, input_schema: parameters }))
  const messages = (...texts: string[]) =>
    texts.map((text, at) => ({
      role: at % 2 === 0 ? 'user' : 'assistant',
      content: [
        { type: 'text', text: `${text} ${long('word', 400)}`, ...(at >= texts.length - 2 ? MARK : {}) },
      ],
    }))
  const talk = async (body: Fields): Promise<unknown> => {
    const all = { max_tokens: 9, session_id: 'missing', system, tools, ...body }
    const { id } = (await post(t, '/messages', all)) as { id: string }
    const found = await fetch(`${gateway.url}/generation?id=${id}`, {
      headers: { authorization: `Bearer ${gateway.apiKey}` },
    })
    return ((await found.json()) as { data: Fields }).data['cache_miss']
  }
  const before = await counted()
  t.equal(await talk({ messages: messages('a') }), null, 'the first call')
  t.equal(await talk({ messages: messages('a', 'b', 'c') }), null, 'a hit')
  t.equal(await talk({ messages: messages('a', 'b', 'c', 'd', 'e') }), null, 'a longer one')
  const read = anthropic.billed.at(-1)?.read ?? 0
  t.match(await talk({ messages: messages('a', 'b', 'X', 'd', 'e', 'f', 'g') }), { reason: 'earlier_turn' })
  await talk({ messages: messages('a', 'b', 'X', 'd', 'e', 'f', 'g', 'h', 'i') })
  const later = anthropic.billed.at(-1)?.read ?? 0
  t.ok(later > read)
  t.same(
    await talk({ tools: tools.slice(1), messages: messages('a', 'b', 'X', 'd', 'e', 'f', 'g', 'h', 'i') }),
    { reason: 'tools', tokens: later },
  )
  const after = await counted()
  for (const [reason, value] of Object.entries(after))
    t.equal(value - (before[reason] ?? 0), ['tools', 'earlier_turn'].includes(reason) ? 1 : 0, reason)
})

t.test('a single question costs what it costs without marks', async t => {
  for (const [path, body] of [
    ['/chat/completions', { messages: [{ role: 'user', content: long('question', 3000) }] }],
    ['/responses', { input: long('question', 3001) }],
    ['/messages', { max_tokens: 9, messages: [{ role: 'user', content: long('question', 3002) }] }],
  ] as const) {
    for (const named of [{}, { session_id: `single-${path}` }]) {
      anthropic.billed.length = 0
      const { usage } = (await post(t, path, { ...body, ...named })) as { usage: Fields }
      const [{ marks, fresh, read, written5m, written1h } = { marks: -1, fresh: 0 }] = anthropic.billed
      t.equal(marks, 0, path)
      t.same([read, written5m, written1h], [0, 0, 0], path)
      if (path !== '/messages') t.equal(usage['cost'], (fresh * 3_000_000 + 20 * 15_000_000) / 1e12, path)
    }
  }
})
