/** What a key with a limit may spend: caps, reservations that grow, unknown prices, and usage that cannot be. */
import t, { type Test } from 'tap'
import type { ResponseResource } from '../../src/protocol/response.ts'
import { parseEventStream, startGateway } from '../support/gateway.ts'
import { startToldProvider, type ToldReply } from '../support/provider.ts'

/** USD for an output token; nothing else costs. */
const TOKEN_USD = 0.0001
const PRICING = { completion: String(TOKEN_USD) }
const WORDS = 'word '.repeat(80)
/** Quarters of tokens in it. */
const WORDS_TOKENS = WORDS.length / 4

interface Row {
  readonly maxOutputTokens?: number
  readonly supportedParameters?: string[]
  readonly thinks?: false
  readonly pricing?: Record<string, string>
}

async function start(t: Test, row: Row = {}) {
  const provider = await startToldProvider(t)
  const gateway = await startGateway({
    providers: [{ slug: 'told', format: 'openai-chat', baseUrl: provider.baseUrl }],
    models: [{ id: 'told/model', endpoints: [{ provider: 'told', pricing: PRICING, ...row }] }],
  })
  t.teardown(() => gateway.close())
  return {
    provider,
    gateway,
    async newKey(limit: number | null): Promise<string> {
      const reply = await fetch(`${gateway.url}/keys`, {
        method: 'POST',
        headers: { authorization: `Bearer ${gateway.managementKey}`, 'content-type': 'application/json' },
        body: JSON.stringify({ name: 'limited', limit }),
      })
      return String(((await reply.json()) as { key: unknown }).key)
    },
    ask: (key: string, more: object = {}) =>
      gateway.respond(
        { model: 'told/model', input: 'Hi', ...more },
        { headers: { authorization: `Bearer ${key}` } },
      ),
    async spent(): Promise<number> {
      await gateway.shipper.ship()
      const { values } = await gateway.serving.metrics.cost.get()
      return values.reduce((sum, { value }) => sum + value, 0)
    },
  }
}

const usageOf = (output: number) => ({ prompt_tokens: 1, completion_tokens: output })
const capOf = (reply: ToldReply | undefined) => reply?.body['max_completion_tokens']
const errorOf = async (answer: Response) =>
  ((await answer.json()) as { error: Record<string, unknown> }).error

t.test(
  'the cap that is sent is the least of what is asked, what the model can, and what is left',
  async t => {
    const s = await start(t, { maxOutputTokens: 8_000 })
    s.provider.onReply = reply => reply.whole('ok', usageOf(1_000))
    const [limited, unlimited] = [await s.newKey(1), await s.newKey(null)]
    for (const [key, asked, sent] of [
      [limited, null, 8_000],
      [limited, 300, 300],
      [limited, 20_000, 8_000],
      [limited, null, 7_000],
      [unlimited, null, undefined],
      [unlimited, 3_000, 3_000],
    ] as const) {
      const answer = await s.ask(key, { max_output_tokens: asked })
      t.equal(answer.status, 200)
      const body = (await answer.json()) as ResponseResource
      t.equal(body.max_output_tokens, asked, 'the echo stays')
      t.equal(capOf(s.provider.replies.at(-1)), sent)
    }
    const refused = await s.ask(unlimited, { max_output_tokens: 20_000 })
    t.equal(refused.status, 400, 'without a limit nothing is capped, and no endpoint writes so much')
  },
)

t.test('a limit that is not kept by the endpoint is not believed', async t => {
  const s = await start(t, { maxOutputTokens: 4_000, supportedParameters: ['temperature'] })
  s.provider.onReply = reply => setImmediate(() => reply.whole('ok', usageOf(4_000)))
  const key = await s.newKey(1)
  const answers = await Promise.all(
    Array.from({ length: 150 }, () => s.ask(key, { max_output_tokens: 1 }).then(({ status }) => status)),
  )
  const served = answers.filter(status => status === 200).length
  t.ok(served >= 1 && served <= 2, `${served} of 0.4 USD each`)
  t.equal(answers.filter(status => status === 200 || status === 402 || status === 429).length, 150)
  t.equal(s.provider.replies.length, served)
  t.ok((await s.spent()) <= 1)
})

t.test('what running requests hold is 429, what is spent is 402', async t => {
  const s = await start(t, { maxOutputTokens: 8_000 })
  const key = await s.newKey(0.8)
  const first = s.ask(key)
  const reply = await s.provider.reply(0)
  const busy = await s.ask(key)
  t.equal(busy.status, 429)
  t.equal(busy.headers.get('retry-after'), '1')
  t.match(await errorOf(busy), { message: /reserved for requests that are still running/ })
  reply.whole('ok', usageOf(8_000))
  t.equal((await first).status, 200)
  const spent = await s.ask(key)
  t.equal(spent.status, 402)
  t.match(await errorOf(spent), { message: /costs at least 0\.0001 USD; 0 USD of 0\.8 USD remains/ })
})

t.test('a stream takes more as it goes, and ends as incomplete where there is no more', async t => {
  const s = await start(t, { thinks: false })
  const key = await s.newKey(0.3)
  const talk = async (reply: ToldReply) => {
    while (!reply.closed) {
      reply.say({ content: WORDS })
      await new Promise(resolve => setImmediate(resolve))
    }
  }
  s.provider.onReply = reply => void talk(reply)
  const answer = await s.ask(key, { stream: true })
  const last = parseEventStream(await answer.text()).at(-1)
  t.match(last, {
    type: 'response.incomplete',
    response: { status: 'incomplete', incomplete_details: { reason: 'max_output_tokens' } },
  })
  while (s.provider.replies[0]?.closed !== true) await new Promise(resolve => setImmediate(resolve))
  const spent = await s.spent()
  t.ok(spent >= 0.2 && spent <= 0.3 + 1_024 * TOKEN_USD, `${spent} USD`)
  const [usage] = [(last as { response: ResponseResource }).response.usage]
  t.equal(usage?.cost, spent, 'as it was told')
})

t.test('of streams at once no more is spent than the limit and a last piece', async t => {
  const s = await start(t, { thinks: false })
  const key = await s.newKey(1)
  const talk = async (reply: ToldReply) => {
    // Three times what is reserved at first.
    for (let said = 0; said < 3 * 1_024 && !reply.closed; said += WORDS_TOKENS) {
      reply.say({ content: WORDS })
      await new Promise(resolve => setImmediate(resolve))
    }
    if (!reply.closed) reply.finish(usageOf(3 * 1_024))
  }
  s.provider.onReply = reply => void talk(reply)
  const statuses = await Promise.all(
    Array.from({ length: 40 }, async () => {
      const answer = await s.ask(key, { stream: true })
      await answer.text()
      return answer.status
    }),
  )
  t.ok(statuses.filter(status => status === 200).length >= 3)
  t.same(
    [...new Set(statuses)].filter(status => status !== 200 && status !== 402 && status !== 429),
    [],
  )
  const spent = await s.spent()
  t.ok(spent <= 1 + 1_024 * TOKEN_USD, `${spent} USD`)
})

t.test('an answer whose tools have spent the rest ends without a further call', async t => {
  const s = await start(t, { thinks: false, maxOutputTokens: 9_000 })
  const key = await s.newKey(0.5)
  s.provider.onReply = reply => {
    const call = { id: 'c', type: 'function', function: { name: 'datetime', arguments: '{}' }, index: 0 }
    reply.say({ tool_calls: [call] })
    reply.finish(usageOf(5_000), 'tool_calls')
  }
  const answer = await s.ask(key, { stream: true, tools: [{ type: 'gateway:datetime' }] })
  const events = parseEventStream(await answer.text())
  t.match(events.at(-1), {
    type: 'response.incomplete',
    response: { incomplete_details: { reason: 'max_output_tokens' }, output: [{ type: 'gateway:datetime' }] },
  })
  t.equal(s.provider.replies.length, 1)
})

t.test('an endpoint of unknown price serves nobody who is limited, and is free for others', async t => {
  const provider = await startToldProvider(t)
  provider.onReply = reply => reply.whole('ok', usageOf(5))
  const known = { provider: 'told', upstreamModel: 'known', pricing: {} }
  const s = await start(t)
  const gateway = await startGateway({
    storageUrl: s.gateway.storageUrl,
    providers: [{ slug: 'told', format: 'openai-chat', baseUrl: provider.baseUrl }],
    models: [
      { id: 'told/unknown', endpoints: [{ provider: 'told' }] },
      { id: 'told/both', endpoints: [{ provider: 'told', upstreamModel: 'unknown' }, known] },
    ],
  })
  t.teardown(() => gateway.close())
  const [limited, unlimited] = [await s.newKey(1), await s.newKey(null)]
  const ask = (key: string, model: string, more: object = {}) =>
    gateway.respond({ model, input: 'Hi', ...more }, { headers: { authorization: `Bearer ${key}` } })
  const refused = await ask(limited, 'told/unknown')
  t.equal(refused.status, 403)
  t.match(await errorOf(refused), { message: /price of told\/unknown is not known.*BYOK credential/ })
  const served = (await (await ask(unlimited, 'told/unknown')).json()) as ResponseResource
  t.match(served.usage, { cost: 0, cost_details: { price_unknown: true } })
  t.equal((await ask(limited, 'told/both')).status, 200)
  t.equal(provider.replies.at(-1)?.body['model'], 'known')
  t.equal((await ask(unlimited, 'told/both')).status, 200)
  t.equal(provider.replies.at(-1)?.body['model'], 'unknown')
  t.equal((await ask(unlimited, 'told/both', { provider: { sort: 'price' } })).status, 200)
  t.equal(provider.replies.at(-1)?.body['model'], 'known', 'unknown is no price to be first with')
  t.equal((await ask(unlimited, 'told/unknown', { provider: { max_price: { prompt: 1 } } })).status, 404)
})

t.test('usage that cannot be is not charged', async t => {
  const s = await start(t, {
    maxOutputTokens: 1_000,
    pricing: { prompt: '0.000001', completion: '0.000001' },
  })
  const key = await s.newKey(null)
  const implausible = async () => {
    const { values } = await s.gateway.serving.metrics.usageImplausible.get()
    return values.reduce((sum, { value }) => sum + value, 0)
  }
  const charged = async (usage: unknown) => {
    s.provider.onReply = reply => reply.whole('four', usage)
    const answer = await s.ask(key)
    const { usage: told } = (await answer.json()) as ResponseResource
    const id = answer.headers.get('x-generation-id') ?? ''
    const headers = { authorization: `Bearer ${key}` }
    const record = await fetch(`${s.gateway.url}/generation?id=${id}`, { headers })
    const { data } = (await record.json()) as { data: Record<string, unknown> }
    t.equal(data['total_cost'], told?.cost, 'the client is told what was booked')
    return { input: told?.input_tokens, output: told?.output_tokens, accounting: data['accounting'] }
  }
  t.match(await charged({ prompt_tokens: 9, completion_tokens: 9e15 }), {
    input: 9,
    output: 1_016,
    accounting: 'estimated',
  })
  t.equal(await implausible(), 1)
  const { input, output } = await charged({ total_tokens: Number.MAX_SAFE_INTEGER })
  t.ok(Number(input) + Number(output) < 6_000)
  t.match(await charged({ prompt_tokens: 9e12, completion_tokens: 2 }), {
    output: 2,
    accounting: 'estimated',
  })
  t.equal(await implausible(), 3)
  t.match(await charged({}), { input: 1, output: 1, accounting: 'estimated' })
  t.match(await charged({ prompt_tokens: -5, completion_tokens: -7 }), { output: 1, accounting: 'estimated' })
  t.match(await charged({ prompt_tokens: '10', completion_tokens: '7' }), {
    input: 10,
    output: 7,
    accounting: 'exact',
  })
  t.match(await charged({ prompt_tokens: 10, completion_tokens: 900 }), { output: 900, accounting: 'exact' })
  t.ok(
    s.gateway.lines.some(
      line => line['provider'] === 'told' && /implausible usage/.test(String(line['msg'])),
    ),
  )
})
