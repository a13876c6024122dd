/** Names without a vendor over real HTTP: answers, refusals, guardrails and lists. */
import t from 'tap'
import { startGateway } from '../support/gateway.ts'
import { startGuarded } from '../support/world.ts'

const sim = (id: string, more: object = {}) => ({
  id,
  endpoints: [{ provider: 'sim', upstreamModel: 'echo' }],
  ...more,
})
const gateway = await startGateway({
  models: [
    sim('anthropic/claude-opus-5.5', { aliases: ['default-big'] }),
    sim('acme/twin'),
    sim('bcme/twin'),
    sim('openai/*'),
  ],
})
t.teardown(() => gateway.close())

interface Told {
  readonly model?: string
  readonly id?: string
  readonly error?: { readonly message: string; readonly type?: string; readonly code?: number }
}

async function post(path: string, body: object) {
  const reply = await fetch(`${gateway.url}${path}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${gateway.apiKey}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  })
  return { status: reply.status, told: (await reply.json()) as Told }
}

const message = (model: string) => ({ model, max_tokens: 50, messages: [{ role: 'user', content: 'Hi' }] })

t.test('every door answers a bare name with the whole id', async t => {
  for (const [name, id] of [
    ['claude-opus-5-5', 'anthropic/claude-opus-5.5'],
    ['claude-opus-5-5-20260901', 'anthropic/claude-opus-5.5'],
    ['claude-opus-5-5-latest:nitro', 'anthropic/claude-opus-5.5'],
    ['default-big', 'anthropic/claude-opus-5.5'],
    ['gpt-9-codex', 'openai/gpt-9-codex'],
  ] as const) {
    const whole = await post('/responses', { model: name, input: 'Hi' })
    t.match(whole, { status: 200, told: { model: id } }, name)
    t.match(await post('/messages', message(name)), { status: 200, told: { model: id } }, name)
    const { max_tokens: _max, ...chat } = message(name)
    t.match(await post('/chat/completions', chat), { status: 200, told: { model: id } }, name)
  }
  const found = await fetch(`${gateway.url}/models/claude-opus-5-5`, {
    headers: { authorization: `Bearer ${gateway.apiKey}` },
  })
  t.match(await found.json(), { id: 'anthropic/claude-opus-5.5' })
})

t.test('a name that several models end in is refused with their names', async t => {
  const says = 'twin could mean acme/twin or bcme/twin: name one of them'
  t.match(await post('/responses', { model: 'twin', input: 'Hi' }), {
    status: 400,
    told: { error: { message: says } },
  })
  t.match(await post('/messages', message('twin')), { status: 400, told: { error: { message: says } } })
})

t.test('an unknown model is 404 for clients of messages, and 400 for others', async t => {
  t.match(await post('/messages', message('claude-none')), {
    status: 404,
    told: { error: { type: 'not_found_error', message: /^claude-none is not a valid model ID/ } },
  })
  t.match(await post('/messages/count_tokens', message('claude-none')), {
    status: 404,
    told: { error: { type: 'not_found_error' } },
  })
  t.match(await post('/responses', { model: 'claude-none', input: 'Hi' }), {
    status: 400,
    told: { error: { code: 400 } },
  })
})

t.test('lists of guardrails check the whole id of a bare name', async t => {
  const guarded = await startGuarded(t)
  const ask = async (allowedModels: string[]) => {
    await guarded.guard({ allowedModels })
    return (await guarded.ask({ model: 'openai-chat', input: 'Hi' })).status
  }
  t.equal(await ask(['parrot/openai-chat']), 200)
  t.equal(await ask(['openai-chat']), 403)
  t.equal(await ask(['parrot/google-gemini']), 403)
})
