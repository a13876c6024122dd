/** Fields that a provider does not get are told in the pipeline: cache marks, and tiers that the operator would pay. */
import t from 'tap'
import { startGateway } from '../support/gateway.ts'
import { FORMATS, parrotRows, startParrot } from '../support/provider.ts'

const parrot = await startParrot(t)
const rows = parrotRows(parrot.url)
const gateway = await startGateway({
  ...rows,
  models: [
    ...(rows.models ?? []),
    {
      id: 'parrot/tiered',
      endpoints: [{ provider: 'parrot', format: 'openai-chat', serviceTier: 'default', upstreamModel: 'm' }],
    },
  ],
})
t.teardown(() => gateway.close())

type Entry = { readonly name?: string; readonly data?: { readonly changes?: readonly { field: string }[] } }

async function post(path: string, body: object) {
  const reply = await fetch(`${gateway.url}${path}`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${gateway.apiKey}`,
      'content-type': 'application/json',
      'x-gateway-metadata': 'enabled',
    },
    body: JSON.stringify(body),
  })
  const answer = (await reply.json()) as { gateway_metadata?: { pipeline?: readonly Entry[] } }
  if (reply.status !== 200) t.fail(JSON.stringify(answer))
  const changes =
    answer.gateway_metadata?.pipeline?.find(({ name }) => name === 'translation')?.data?.changes ?? []
  const fields = changes.map(({ field }) => field)
  const told = Number(reply.headers.get('x-gateway-changed') ?? 0)
  if (told !== fields.length) t.fail(`the header says ${told}, the metadata ${fields.length}`)
  return { fields, sent: parrot.bodies.at(-1) ?? '' }
}

const MARK = { type: 'ephemeral' }
const HOUR = { type: 'ephemeral', ttl: '1h' }
const input = (...marks: (object | null)[]) => [
  {
    role: 'user',
    content: marks.map(mark => ({ type: 'input_text', text: 'x', ...(mark && { cache_control: mark }) })),
  },
]

t.test('with the shared key no tier goes to an endpoint without one, and it is told', async t => {
  const messages = [{ role: 'user', content: 'Hi' }]
  for (const format of FORMATS) {
    const model = `parrot/${format}`
    for (const service_tier of ['auto', 'default', 'priority', 'flex']) {
      for (const [path, body] of [
        ['/responses', { model, input: 'Hi', service_tier }],
        ['/chat/completions', { model, messages, service_tier }],
      ] as const) {
        const { fields, sent } = await post(path, body)
        t.notMatch(sent, 'service_tier', `${path} ${format} ${service_tier}`)
        t.same(fields, ['service_tier'])
      }
    }
    for (const service_tier of ['auto', 'standard_only']) {
      const { sent } = await post('/messages', { model, messages, max_tokens: 9, service_tier })
      t.notMatch(sent, 'service_tier', `/messages ${format} ${service_tier}`)
    }
  }
  const tiered = await post('/responses', { model: 'parrot/tiered', input: 'Hi', service_tier: 'default' })
  t.match(tiered.sent, '"service_tier":"default"', 'the tier of a row stays')
})

t.test('cache marks that the provider does not get are told', async t => {
  for (const format of ['openai-responses', 'openai-chat', 'google-gemini']) {
    const { fields, sent } = await post('/responses', { model: `parrot/${format}`, input: input(MARK) })
    t.notMatch(sent, 'cache_control', format)
    t.same(fields, ['cache_control'], format)
    const content = [{ type: 'text', text: 'x', cache_control: MARK }]
    const chat = { model: `parrot/${format}`, messages: [{ role: 'user', content }] }
    t.same((await post('/chat/completions', chat)).fields, ['cache_control'], format)
  }
  const kept = await post('/responses', { model: 'parrot/anthropic-messages', input: input(MARK) })
  t.match(kept.sent, 'cache_control')
  t.same(kept.fields, [])
})

t.test('a mark for five minutes before one for an hour never costs more, and it is told', async t => {
  const mixed = await post('/responses', { model: 'parrot/anthropic-messages', input: input(MARK, HOUR) })
  t.equal(mixed.sent.match(/cache_control/g)?.length, 2)
  t.notMatch(mixed.sent, '1h')
  t.same(mixed.fields, ['cache_control.ttl'])
  const falling = await post('/responses', { model: 'parrot/anthropic-messages', input: input(HOUR, MARK) })
  t.match(falling.sent, '1h')
  t.same(falling.fields, [])
})
