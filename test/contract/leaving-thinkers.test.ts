/** The charge of a caller who leaves while the model thinks, or before a whole reply: the time, at the endpoint's speed. */
import t, { type Test } from 'tap'
import { USUAL_TOKENS_PER_SECOND } from '../../src/pipeline/accounting/estimate.ts'
import { until } from '../support/patience.ts'
import { openSocket } from '../support/response-socket-client.ts'
import { startLeaving } from '../support/world.ts'

const SECONDS = 10
const THOUGHT = SECONDS * USUAL_TOKENS_PER_SECOND
const user = { role: 'user', content: 'Hi' }
const model = 'told/model'
const max_tokens = 8_000

/** In each dialect: a request that asks for reasoning, one that turns it off, and one that says nothing. */
const DIALECTS = {
  responses: {
    path: '/v1/responses',
    plain: { model, input: 'Hi', stream: true },
    on: { reasoning: { effort: 'high' } },
    off: { reasoning: { effort: 'none' } },
  },
  'chat completions': {
    path: '/v1/chat/completions',
    plain: { model, messages: [user], stream: true },
    on: { reasoning_effort: 'high' },
    off: { reasoning: { enabled: false } },
  },
  messages: {
    path: '/v1/messages',
    plain: { model, max_tokens, messages: [user], stream: true },
    on: { thinking: { type: 'enabled', budget_tokens: 4_000 } },
    off: { thinking: { type: 'disabled' } },
  },
  gemini: {
    path: `/v1beta/models/${model}:streamGenerateContent?alt=sse`,
    plain: { contents: [{ role: 'user', parts: [{ text: 'Hi' }] }] },
    on: { generationConfig: { thinkingConfig: { thinkingBudget: 4_000 } } },
    off: { generationConfig: { thinkingConfig: { thinkingBudget: 0 } } },
  },
}

async function leftThinking(
  t: Test,
  path: string,
  body: object,
  {
    row = {},
    seconds = SECONDS,
    limit,
  }: { readonly row?: object; readonly seconds?: number; readonly limit?: number } = {},
) {
  const s = await startLeaving(t, null, row)
  const key = limit === undefined ? undefined : await newKey(s.gateway, limit)
  const asked = await s.ask(body, '', path, key)
  const reply = await s.provider.reply(0)
  s.clock.advance(seconds * 1_000)
  await asked.leave()
  await until('the end of the reply', () => reply.closed)
  return s.record(key)
}

async function newKey(gateway: { url: string; managementKey: string }, limit: number): Promise<string> {
  const reply = await fetch(`${gateway.url}/keys`, {
    method: 'POST',
    headers: { authorization: `Bearer ${gateway.managementKey}`, 'content-type': 'application/json' },
    body: JSON.stringify({ name: 'limited', limit }),
  })
  return String(((await reply.json()) as { key: unknown }).key)
}

const thought = (tokens: number) => ({
  outcome: 'aborted',
  accounting: 'estimated',
  tokens_completion: tokens,
})

for (const [name, { path, plain, on, off }] of Object.entries(DIALECTS)) {
  t.test(`${name}: the thoughts of a caller who leaves before the first word are charged`, async t => {
    t.match(await leftThinking(t, path, { ...plain, ...on }), {
      ...thought(THOUGHT),
      native_tokens_reasoning: THOUGHT,
    })
  })

  t.test(`${name}: without reasoning the prompt alone is charged`, async t => {
    t.match(await leftThinking(t, path, { ...plain, ...off }), thought(0))
  })

  t.test(`${name}: a whole reply that has not come yet is charged by its time, as text`, async t => {
    const whole = { ...plain, ...off, ...('stream' in plain ? { stream: false } : {}) }
    const at = path.replace('streamGenerateContent?alt=sse', 'generateContent')
    t.match(await leftThinking(t, at, whole), { ...thought(THOUGHT), native_tokens_reasoning: 0 })
  })
}

const { path, plain } = DIALECTS.responses

t.test('a model thinks unless its row, its parameters or the request say otherwise', async t => {
  t.match(await leftThinking(t, path, plain), thought(THOUGHT))
  t.match(await leftThinking(t, path, plain, { row: { thinks: false } }), thought(0))
  t.match(await leftThinking(t, path, plain, { row: { supportedParameters: ['max_tokens'] } }), thought(0))
})

t.test('of a whole reply nobody sees whether it is thoughts or text', async t => {
  const whole = { ...plain, stream: false }
  const reasoning = (tokens: number) => ({ ...thought(THOUGHT), native_tokens_reasoning: tokens })
  t.match(await leftThinking(t, path, whole), reasoning(THOUGHT))
  t.match(await leftThinking(t, path, whole, { row: { thinks: false } }), reasoning(0))
  t.match(await leftThinking(t, path, whole, { row: { supportedParameters: ['max_tokens'] } }), reasoning(0))
})

t.test('no more is charged than the model may write, and than the caller has reserved', async t => {
  const hour = { seconds: 3_000 }
  t.match(await leftThinking(t, path, { ...plain, max_output_tokens: 700 }, hour), thought(700))
  t.match(await leftThinking(t, path, plain, hour), thought(20_000))
  const record = await leftThinking(t, path, plain, { ...hour, limit: 0.05 })
  t.ok(Number(record['total_cost']) <= 0.05, `${record['total_cost']} USD`)
  t.ok(Number(record['tokens_completion']) > 3_000)
  const whole = await leftThinking(
    t,
    path,
    { ...plain, stream: false },
    { ...hour, row: { thinks: false }, limit: 0.05 },
  )
  t.ok(Number(whole['total_cost']) <= 0.05, `${whole['total_cost']} USD`)
  t.ok(Number(whole['tokens_completion']) > 3_000)
})

t.test('where the speed of the endpoint is known, it counts', async t => {
  const s = await startLeaving(t, null)
  const answered = s.gateway.respond({ ...plain, reasoning: { effort: 'high' } })
  const first = await s.provider.reply(0)
  first.say({ content: 'word '.repeat(80) })
  const reading = (await answered).text()
  await until('the first word', () => s.gateway.serving.server.openStreams === 1)
  s.clock.advance(500)
  // Hidden thoughts were written before the first word.
  first.finish({
    prompt_tokens: 1,
    completion_tokens: 5_100,
    completion_tokens_details: { reasoning_tokens: 5_000 },
  })
  await reading
  const asked = await s.ask({ reasoning: { effort: 'high' } }, '')
  const second = await s.provider.reply(1)
  s.clock.advance(SECONDS * 1_000)
  await asked.leave()
  await until('the end of the reply', () => second.closed)
  await until('both records', async () => (await s.recorded()) === 2)
  const charged = (await s.outputTokens()) - 5_100
  t.ok(charged > 1_900 && charged < 2_100, `${charged} tokens at 200 a second`)
})

t.test('a response over a WebSocket is charged alike when the socket closes', async t => {
  const s = await startLeaving(t, null)
  const socket = await openSocket(s.gateway.url, s.gateway.apiKey)
  const { stream: _, ...fields } = plain
  socket.send(JSON.stringify({ type: 'response.create', ...fields, reasoning: { effort: 'high' } }))
  const reply = await s.provider.reply(0)
  s.clock.advance(SECONDS * 1_000)
  socket.close()
  await until('the end of the reply', () => reply.closed)
  t.match(await s.record(), thought(THOUGHT))
})

t.test('so is the model call of a tool', async t => {
  const s = await startLeaving(t, null)
  const asked = await s.ask(
    { tools: [{ type: 'gateway:advisor', parameters: { model, reasoning: { effort: 'high' } } }] },
    '',
  )
  const outer = await s.provider.reply(0)
  const call = { name: 'advisor', arguments: '{"prompt":"Left?"}' }
  outer.say({ tool_calls: [{ index: 0, id: 'c', type: 'function', function: call }] })
  outer.finish({ prompt_tokens: 1, completion_tokens: 1 }, 'tool_calls')
  const inner = await s.provider.reply(1)
  s.clock.advance(SECONDS * 1_000)
  await asked.leave()
  await until('the end of the inner call', () => inner.closed)
  await until('both records', async () => (await s.recorded()) === 2)
  t.equal(await s.outputTokens(), 1 + THOUGHT)
})
